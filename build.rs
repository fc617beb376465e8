//! Compiles every file below `proto/` with a compiler that is itself a crate: nothing has to be installed for it.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = Path::new("proto");
    println!("cargo::rerun-if-changed=proto");
    let mut files = Vec::new();
    collect(root, &mut files)?;
    files.sort();

    // Internal records are not part of any public API, so reflection does not show them.
    let public = compile(files.iter().filter(|file| !file.starts_with(root.join("internal"))))?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    // Encoded by the compiler: with prost's own types the HTTP annotations would be lost.
    fs::write(out.join("public_descriptors.bin"), public.encode_file_descriptor_set())?;

    // Ordered maps: what is stored must be the same bytes on every member.
    tonic_prost_build::configure().bytes(".").btree_map(".").compile_fds(compile(&files)?.file_descriptor_set())?;
    Ok(())
}

fn compile<'a>(files: impl IntoIterator<Item = &'a PathBuf>) -> Result<protox::Compiler, protox::Error> {
    let mut compiler = protox::Compiler::new(["proto"])?;
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
