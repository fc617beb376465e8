//! Compiles every file below `proto/` with the crate `protox`, so that `protoc` need not be
//! installed.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// Messages of etcd's Auth with passwords or tokens. They have no `Debug`, so that nothing prints
/// them.
const SECRET: [&str; 4] = [
    ".etcdserverpb.AuthenticateRequest",
    ".etcdserverpb.AuthenticateResponse",
    ".etcdserverpb.AuthUserAddRequest",
    ".etcdserverpb.AuthUserChangePasswordRequest",
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=../../proto");
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let root = &match env::var_os("CARGO_FEATURE_NEXT_VERSION") {
        Some(_) => next_version(Path::new("../../proto"), &out)?,
        None => PathBuf::from("../../proto"),
    };
    let mut files = Vec::new();
    collect(root, &mut files)?;
    files.sort();

    // Internal records are not part of any public API, so reflection does not show them.
    let public = compile(root, files.iter().filter(|file| !file.starts_with(root.join("internal"))))?;
    // Encoded by the compiler: with prost's own types the HTTP annotations would be lost.
    fs::write(out.join("public_descriptors.bin"), public.encode_file_descriptor_set())?;

    // Ordered maps: stored messages must have the same bytes on every member.
    let (peer, others): (Vec<_>, Vec<_>) = files.iter().partition(|file| file.ends_with("internal/peer.proto"));
    tonic_prost_build::configure()
        .bytes(".")
        .btree_map(".")
        .skip_debug(SECRET)
        .codec_path("crate::pb::SizedCodec")
        .compile_fds(compile(root, others)?.file_descriptor_set())?;
    // Messages between members have checksums, which also cover the names of the messages.
    let mut named = tonic_prost_build::Config::new();
    named.enable_type_names();
    tonic_prost_build::configure()
        .bytes(".")
        .btree_map(".")
        .codec_path("crate::pb::checked::Checked")
        .compile_fds_with_config(compile(root, peer)?.file_descriptor_set(), named)?;
    Ok(())
}

/// Copies the protos to a folder in `out`, and enables the lines of the next version: removes the
/// comment marks `// next: `. Returns the folder of the copies.
fn next_version(root: &Path, out: &Path) -> io::Result<PathBuf> {
    let target = out.join("proto");
    // A proto that was removed since must not come back.
    match fs::remove_dir_all(&target) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut files = Vec::new();
    collect(root, &mut files)?;
    for file in files {
        let copy = target.join(file.strip_prefix(root).expect("invariant: collected below it"));
        fs::create_dir_all(copy.parent().expect("invariant: below the target"))?;
        fs::write(copy, fs::read_to_string(file)?.replace("// next: ", ""))?;
    }
    Ok(target)
}

fn compile<'a>(root: &Path, files: impl IntoIterator<Item = &'a PathBuf>) -> Result<protox::Compiler, protox::Error> {
    let mut compiler = protox::Compiler::new([root])?;
    compiler.include_source_info(true).include_imports(true).open_files(files)?;
    Ok(compiler)
}

fn collect(dir: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|ext| ext == "proto") {
            files.push(path);
        }
    }
    Ok(())
}
