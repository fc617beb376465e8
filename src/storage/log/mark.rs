//! The mark of the last durable write batch of the log. After a restart it reveals that
//! acknowledged batches are missing.
//!
//! A log ends before its first damaged write. A torn tail that was never acknowledged must be
//! dropped; a damaged write that was acknowledged must not. Nothing in the last write distinguishes
//! the two (and nothing at all in RocksDB's write-ahead log), so the number of the last durable
//! batch is also kept here, in a small file beside the log. The file is
//! written after each fsync of the log has returned, **without an fsync of its own**.
//!
//! The mark is never ahead of the durable log. So a log that ends before the mark has lost
//! acknowledged data, and the node must not start. After a crash of the process (the page cache
//! survives) the mark is exact, and every loss is noticed. After a power failure it may be as old
//! as the kernel's write-back (30 s by default), and damage to younger batches is not noticed here.
//! A log that was removed altogether is noticed like any other loss.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use headwater_files as files;

use super::record::corrupt;
use crate::StorageError;

/// The name of the file, in the folder of the log.
pub(super) const FILE_NAME: &str = "headwater-mark";
const MAGIC: [u8; 4] = *b"HWM1";
/// Length of a slot, bytes: magic, number of the batch, checksum.
const SLOT_BYTES: usize = 16;
/// The two slots lie in different sectors and are written in turn, so that a torn write leaves the
/// other one.
const SLOT_OFFSETS: [u64; 2] = [0, 4096];
const FILE_BYTES: u64 = 8192;

/// The file that holds the mark.
#[derive(Debug)]
pub(super) struct DurableMark {
    file: File,
    path: PathBuf,
}

impl DurableMark {
    /// Opens or creates the mark in `dir`. Returns the mark, and the number of the last batch known
    /// to be durable (0 if none is).
    pub(super) fn open(dir: &Path) -> Result<(Self, u64), StorageError> {
        let path = dir.join(FILE_NAME);
        let fail = |source| StorageError::Io { path: path.clone(), source };
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).map_err(fail)?;
        if file.metadata().map_err(fail)?.len() < FILE_BYTES {
            file.set_len(FILE_BYTES).map_err(fail)?;
            file.sync_all().map_err(fail)?;
            files::sync_dir(dir)?;
        }
        let batch = read_slots(&file, &path)?;
        Ok((Self { file, path }, batch))
    }

    /// Writes `batch` as the number of the last durable batch, without an fsync. `batch` is above
    /// every earlier one.
    pub(super) fn set(&self, batch: u64) -> Result<(), StorageError> {
        let offset = SLOT_OFFSETS[usize::from(!batch.is_multiple_of(2))];
        self.file.write_all_at(&encode(batch), offset).map_err(|source| self.fail(source))
    }

    /// Makes the mark durable by an fsync of its file.
    pub(super) fn sync(&self) -> Result<(), StorageError> {
        self.file.sync_data().map_err(|source| self.fail(source))
    }

    fn fail(&self, source: io::Error) -> StorageError {
        StorageError::Io { path: self.path.clone(), source }
    }
}

/// The number of the last durable batch by the mark in `dir`, 0 if none is. Does not change the
/// file.
///
/// # Errors
///
/// If the file is missing or cannot be read, or if a slot is damaged and no slot holds a number.
pub(super) fn read(dir: &Path) -> Result<u64, StorageError> {
    let path = dir.join(FILE_NAME);
    let file = File::open(&path).map_err(|source| StorageError::Io { path: path.clone(), source })?;
    read_slots(&file, &path)
}

fn read_slots(file: &File, path: &Path) -> Result<u64, StorageError> {
    let mut batch = None;
    let mut damaged = 0;
    for offset in SLOT_OFFSETS {
        let mut slot = [0; SLOT_BYTES];
        file.read_exact_at(&mut slot, offset).map_err(|source| StorageError::Io { path: path.into(), source })?;
        match decode(&slot) {
            Slot::Batch(found) => batch = batch.max(Some(found)),
            Slot::Unwritten => {}
            Slot::Damaged => damaged += 1,
        }
    }
    if batch.is_none() && damaged > 0 {
        return Err(corrupt(
            path.display().to_string(),
            "the mark of the last durable write is unreadable, so that nobody can tell whether the log is whole; \
             replace this member",
        ));
    }
    Ok(batch.unwrap_or(0))
}

#[derive(Debug, PartialEq, Eq)]
enum Slot {
    Batch(u64),
    Unwritten,
    Damaged,
}

fn encode(batch: u64) -> [u8; SLOT_BYTES] {
    let mut slot = [0; SLOT_BYTES];
    slot[..4].copy_from_slice(&MAGIC);
    slot[4..12].copy_from_slice(&batch.to_le_bytes());
    let crc = crc32c::crc32c(&slot[..12]);
    slot[12..].copy_from_slice(&crc.to_le_bytes());
    slot
}

fn decode(slot: &[u8; SLOT_BYTES]) -> Slot {
    if slot == &[0; SLOT_BYTES] {
        return Slot::Unwritten;
    }
    let mut batch = [0; 8];
    batch.copy_from_slice(&slot[4..12]);
    let batch = u64::from_le_bytes(batch);
    if *slot == encode(batch) { Slot::Batch(batch) } else { Slot::Damaged }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes() {
        assert_eq!(encode(258), *b"HWM1\x02\x01\x00\x00\x00\x00\x00\x00\x19\x84\x4d\x07");
        assert_eq!(decode(&[0; SLOT_BYTES]), Slot::Unwritten);
    }

    #[test]
    fn keeps_the_highest_and_survives_a_torn_slot() {
        let dir = tempfile::tempdir().unwrap();
        let (mark, batch) = DurableMark::open(dir.path()).unwrap();
        assert_eq!(batch, 0, "a new mark proves nothing");
        for batch in 1..=4 {
            mark.set(batch).unwrap();
            assert_eq!(DurableMark::open(dir.path()).unwrap().1, batch);
        }
        mark.sync().unwrap();
        // Batch 4 is in the first slot; tear it, and the mark falls back to batch 3.
        mark.file.write_all_at(b"torn", 2).unwrap();
        assert_eq!(DurableMark::open(dir.path()).unwrap().1, 3);
        // Without a readable slot the last durable batch is unknown, so the log must not open.
        mark.file.write_all_at(b"torn", SLOT_OFFSETS[1]).unwrap();
        let error = DurableMark::open(dir.path()).unwrap_err();
        assert!(matches!(error, StorageError::Corrupt { .. }), "{error}");
    }
}
