//! Compiles every file below `proto/` with a compiler that is itself a crate: nothing has to be installed for it.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = Path::new("proto");
    println!("cargo::rerun-if-changed=proto");
    let mut files = Vec::new();
    collect(root, &mut files)?;
    files.sort();

    let descriptors = protox::compile(&files, [root])?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    // Internal records are not part of any public API, so reflection does not show them.
    let mut public = descriptors.clone();
    public.file.retain(|file| !file.name().starts_with("internal/"));
    fs::write(out.join("public_descriptors.bin"), prost::Message::encode_to_vec(&public))?;

    tonic_prost_build::configure().bytes(".").compile_fds(descriptors)?;
    Ok(())
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
