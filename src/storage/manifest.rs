//! The list of a database's files (RocksDB's MANIFEST), checked before RocksDB reads it.
//!
//! RocksDB's reader checks the checksums, but it loops forever at a record of an unknown kind:
//! after one flipped byte a node would hang at its start without an error. Owns only this check.
//! Invariant: nothing is changed, and a list that RocksDB can read is accepted.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use crate::StorageError;

/// Size of the blocks that records are written in, bytes. A record does not cross their ends.
const BLOCK_BYTES: usize = 32 * 1024;
/// Checksum, length and kind in front of a record, bytes.
const HEADER_BYTES: usize = 7;
/// The highest kind of a record: whole (1), first part (2), middle part (3), last part (4); 0 is
/// space that was reserved.
const KIND_MAX: u8 = 4;

/// Checks the list of files (MANIFEST) of the database in `dir`. A missing database or list is no
/// error here: RocksDB reports it.
///
/// # Errors
///
/// [`StorageError::Corrupt`] for a record of an unknown kind, [`StorageError::Io`] if a file cannot
/// be read.
pub(crate) fn check(dir: &Path) -> Result<(), StorageError> {
    let read = |name: &str| match fs::read(dir.join(name)) {
        Ok(bytes) => Ok(Some(bytes)),
        // For a missing file RocksDB reports its own error.
        Err(error) if error.kind() == ErrorKind::NotFound || error.kind() == ErrorKind::InvalidInput => Ok(None),
        Err(error) => Err(StorageError::from(headwater_files::at(&dir.join(name))(error))),
    };
    let Some(current) = read("CURRENT")? else { return Ok(()) };
    let name = String::from_utf8_lossy(&current);
    let name = name.trim_end();
    // RocksDB itself refuses a name outside the directory.
    if !name.starts_with("MANIFEST-") || name.contains('/') {
        return Ok(());
    }
    let Some(manifest) = read(name)? else { return Ok(()) };
    match unknown_kind(&manifest) {
        None => Ok(()),
        Some((at, kind)) => Err(StorageError::Corrupt {
            location: dir.join(name).display().to_string(),
            detail: format!("the record at byte {at} is of the unknown kind {kind}"),
        }),
    }
}

/// The offset and the kind of the first record of an unknown kind.
fn unknown_kind(manifest: &[u8]) -> Option<(usize, u8)> {
    for (number, block) in manifest.chunks(BLOCK_BYTES).enumerate() {
        let mut at = 0;
        // A rest shorter than a header is padding at the end of a block. At the end of the file it
        // may also be an incomplete record.
        while let Some(&[_, _, _, _, low, high, kind]) = block.get(at..at + HEADER_BYTES) {
            if kind > KIND_MAX {
                return Some((number * BLOCK_BYTES + at, kind));
            }
            at += HEADER_BYTES + usize::from(u16::from_le_bytes([low, high]));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use rocksdb::{DB, Options};

    use super::*;

    /// A database with some records in its list: its folder, the bytes of the list, and the path of
    /// the list.
    fn database() -> (tempfile::TempDir, Vec<u8>, std::path::PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let mut options = Options::default();
        options.create_if_missing(true);
        let db = DB::open(&options, dir.path()).unwrap();
        for round in 0..5 {
            db.put(b"k", [round]).unwrap();
            db.flush().unwrap();
        }
        drop(db);
        let current = fs::read_to_string(dir.path().join("CURRENT")).unwrap();
        let path = dir.path().join(current.trim_end());
        (dir, fs::read(&path).unwrap(), path)
    }

    #[test]
    fn lists_as_rocksdb_writes_them_pass_whole_and_cut() {
        let (dir, manifest, path) = database();
        check(dir.path()).unwrap();
        check(&dir.path().join("absent")).unwrap();
        for length in 0..manifest.len() {
            assert_eq!(unknown_kind(&manifest[..length]), None, "{length}");
        }
        fs::write(&path, [&manifest[..], &[0; 40_000]].concat()).unwrap();
        check(dir.path()).unwrap();
        let large = [vec![0; BLOCK_BYTES], manifest].concat();
        assert_eq!(unknown_kind(&large), None);
    }

    #[test]
    fn every_flipped_byte_is_refused_here_or_by_rocksdb_at_once() {
        let (dir, manifest, path) = database();
        let mut refused = 0;
        for at in 0..manifest.len() {
            for flip in [1, 10, 0x80] {
                let mut bytes = manifest.clone();
                bytes[at] ^= flip;
                fs::write(&path, bytes).unwrap();
                if check(dir.path()).is_err() {
                    refused += 1;
                    continue;
                }
                // RocksDB must come to an end, whatever it says.
                let (done, opened) = mpsc::channel();
                let of = dir.path().to_owned();
                std::thread::spawn(move || {
                    let opened = DB::open_for_read_only(&Options::default(), of, false).is_ok();
                    done.send(opened).ok();
                });
                opened.recv_timeout(Duration::from_secs(60)).unwrap_or_else(|_| panic!("it hangs: byte {at} ^ {flip}"));
            }
        }
        assert!(refused > 0);
    }
}
