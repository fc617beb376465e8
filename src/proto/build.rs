//! Compiles every file below `proto/` with a compiler that is itself a crate: nothing has to be
//! installed for it.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = Path::new("../../proto");
    println!("cargo::rerun-if-changed=../../proto");
    let mut files = Vec::new();
    collect(root, &mut files)?;
    files.sort();

    // Internal records are not part of any public API, so reflection does not show them.
    let public = compile(files.iter().filter(|file| !file.starts_with(root.join("internal"))))?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    // Encoded by the compiler: with prost's own types the HTTP annotations would be lost.
    fs::write(out.join("public_descriptors.bin"), public.encode_file_descriptor_set())?;

    // Ordered maps: stored messages must have the same bytes on every member.
    let (peer, others): (Vec<_>, Vec<_>) = files.iter().partition(|file| file.ends_with("internal/peer.proto"));
    tonic_prost_build::configure().bytes(".").btree_map(".").compile_fds(compile(others)?.file_descriptor_set())?;
    // Messages between members have checksums; the names of the messages are part of them.
    let mut named = tonic_prost_build::Config::new();
    named.enable_type_names();
    tonic_prost_build::configure()
        .bytes(".")
        .btree_map(".")
        .codec_path("crate::pb::checked::Checked")
        .compile_fds_with_config(compile(peer)?.file_descriptor_set(), named)?;
    Ok(())
}

fn compile<'a>(files: impl IntoIterator<Item = &'a PathBuf>) -> Result<protox::Compiler, protox::Error> {
    let mut compiler = protox::Compiler::new(["../../proto"])?;
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
