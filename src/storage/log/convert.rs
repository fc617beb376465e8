//! Stores a log in its other form. Runs on the writer's thread, between two writes.
//!
//! The new form is made and checked beside the old one, and becomes the log by one rename: of the
//! folder of the segments. A crash before leaves the old form, a crash after it the new one; the
//! next opening removes the other. Nothing that was acknowledged is ever in neither.

use headwater_files as files;

use super::batch::{BatchChange, LogBatch, Meta};
use super::disk::{Disk, LogForm};
use super::record::{LogRecord, corrupt};
use super::rocks::{self, RocksLog};
use super::segments::{self, SegmentLog};
use super::shared::Shared;
use super::state::Bounds;
use crate::StorageError;
use headwater_proto::codec::raft::LogTip;
use headwater_types::LogIndex;

/// Payload that is copied in one write, bytes.
const COPY_BYTES: usize = 1024 * 1024;
/// File descriptors that must be left for the switch, count: it opens folders to sync them.
const SWITCH_DESCRIPTORS: usize = 8;

/// Copies the log `from`, which holds `meta` and ends with `tip`, into `form`, and checks the copy.
/// Returns it with its tip, whose number is that of its last write. It is not the log yet.
///
/// # Errors
///
/// If the copy cannot be made or is not whole. Nothing is left of it.
pub(super) fn copy_to(
    form: LogForm,
    from: &Disk,
    shared: &Shared,
    meta: &Meta,
    tip: &LogTip,
) -> Result<(Disk, LogTip), StorageError> {
    let copied = checked_copy(form, from, shared, meta, tip);
    if copied.is_err() {
        let removed = match form {
            LogForm::RocksDb => rocks::remove(&shared.dir),
            LogForm::Segments => segments::remove_drafts(&shared.dir),
        };
        if let Err(error) = removed {
            tracing::warn!(dir = %shared.dir.display(), %error, "the copy of the log is removed at the next start");
        }
    }
    copied
}

/// Makes the copy the log, durably.
///
/// # Errors
///
/// If the disk fails. Then either may be the log.
pub(super) fn switch_to(copy: Disk, shared: &Shared) -> Result<Disk, StorageError> {
    match copy {
        Disk::RocksDb(_) => {
            segments::withdraw(&shared.dir)?;
            Ok(copy)
        }
        Disk::Segments(draft) => Ok(Disk::Segments(segments::publish_open(&shared.dir, draft)?)),
    }
}

fn checked_copy(
    form: LogForm,
    from: &Disk,
    shared: &Shared,
    meta: &Meta,
    tip: &LogTip,
) -> Result<(Disk, LogTip), StorageError> {
    let (dir, options) = (&shared.dir, &shared.options);
    let bounds = Bounds::of(tip);
    let has_entries = bounds.first < bounds.end();
    // Without its entries, the log ends where it was purged.
    let start = if has_entries { LogTip { last: meta.purged, ..*tip } } else { *tip };
    // Opened like any other log, so that it is checked.
    let (disk, state, found, written) = match form {
        LogForm::RocksDb => {
            rocks::remove(dir)?;
            let log = RocksLog::create(dir, options, meta, &start)?;
            let written = copy(from, tip, &start, |batch| log.write(batch))?;
            drop(log);
            let (log, state, found) = rocks::recover::open(dir, written.batch, options)?;
            (Disk::RocksDb(log), state, found, written)
        }
        LogForm::Segments => {
            let log = SegmentLog::create(dir, options, meta, &start)?;
            let written = copy(from, tip, &start, |batch| log.write(batch))?;
            drop(log);
            let (log, state, found) = segments::open_draft(dir, written.batch, options)?;
            (Disk::Segments(log), state, found, written)
        }
    };
    if (found, state.meta(), state.bounds) != (written, *meta, bounds) {
        let detail = format!("{form} hold {found:?} and {:?} instead of {written:?} and {meta:?}", state.meta());
        return Err(corrupt("the copy of the log", detail));
    }
    // The switch must not fail half-way.
    files::probe_descriptors(SWITCH_DESCRIPTORS).map_err(|source| StorageError::Io { path: dir.clone(), source })?;
    Ok((disk, found))
}

/// Copies the entries, in writes that follow `start`. Returns the tip of the last one.
fn copy(
    from: &Disk,
    tip: &LogTip,
    start: &LogTip,
    mut write: impl FnMut(&LogBatch<'_>) -> Result<usize, StorageError>,
) -> Result<LogTip, StorageError> {
    let bounds = Bounds::of(tip);
    let mut last = *start;
    let mut reader = from.reader(bounds.first, bounds.end());
    let mut left = bounds.end() - bounds.first;
    while left > 0 {
        let (mut records, mut bytes) = (Vec::<LogRecord>::new(), 0);
        while left > 0 && bytes < COPY_BYTES {
            let record = reader.next()?;
            bytes += record.payload.len();
            records.push(record);
            left -= 1;
        }
        let end = records.last().map(LogRecord::id);
        last = LogTip { batch: last.batch + 1, first: LogIndex(bounds.first), last: end };
        write(&LogBatch { changes: vec![BatchChange::Append(&records)], vote: None, committed: None, tip: last })?;
    }
    Ok(last)
}
