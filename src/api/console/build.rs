//! Packs the files of the console with gzip, as they are served: nothing else is done to them.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

use flate2::Compression;
use flate2::write::GzEncoder;

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=files");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    for entry in fs::read_dir(Path::new("files"))? {
        let path = entry?.path();
        let name = path.file_name().expect("an entry of a folder has a name").to_owned();
        let mut packed = GzEncoder::new(Vec::new(), Compression::best());
        io::copy(&mut fs::File::open(&path)?, &mut packed)?;
        fs::write(out.join(name).with_added_extension("gz"), packed.finish()?)?;
    }
    Ok(())
}
