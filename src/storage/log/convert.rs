//! Stores a log in its other form. Runs on the writer's thread, between two writes.
//!
//! The new form is made beside the old one, and becomes the log by one rename: of the folder of the
//! segments. A crash before leaves the old form, a crash after it the new one; the next opening
//! removes the other. Nothing that was acknowledged is ever in neither.

use super::batch::{BatchChange, LogBatch, Meta};
use super::disk::{Disk, LogForm};
use super::record::LogRecord;
use super::rocks::{self, RocksLog};
use super::segments::{self, SegmentLog};
use super::shared::Shared;
use super::state::Bounds;
use crate::StorageError;
use headwater_proto::codec::raft::LogTip;
use headwater_types::LogIndex;

/// Payload that is copied in one write, bytes.
const COPY_BYTES: usize = 1024 * 1024;

/// Copies the log `from`, which holds `meta` and ends with `tip`, into `form`, and makes that the
/// log. Returns it with its tip, whose number is that of its last write.
pub(super) fn convert(
    from: &Disk,
    form: LogForm,
    shared: &Shared,
    meta: &Meta,
    tip: &LogTip,
) -> Result<(Disk, LogTip), StorageError> {
    let (dir, options) = (&shared.dir, &shared.options);
    let bounds = Bounds::of(tip);
    let has_entries = bounds.first < bounds.end();
    // Without its entries, the log ends where it was purged.
    let start = if has_entries { LogTip { last: meta.purged, ..*tip } } else { *tip };
    let written = match form {
        LogForm::RocksDb => {
            rocks::remove(dir)?;
            let log = RocksLog::create(dir, options, meta, &start)?;
            let last = copy(from, tip, &start, |batch| log.write(batch))?;
            headwater_fail_points::fail_point!(LogConvert);
            segments::withdraw(dir)?;
            drop(log);
            last
        }
        LogForm::Segments => {
            let log = SegmentLog::create(dir, options, meta, &start)?;
            let last = copy(from, tip, &start, |batch| log.write(batch))?;
            headwater_fail_points::fail_point!(LogConvert);
            drop(log);
            segments::publish(dir)?;
            last
        }
    };
    // Opened like any other log, so that it is checked before the old form goes.
    let (disk, state, found) = match form {
        LogForm::RocksDb => {
            let (log, state, found) = rocks::recover::open(dir, written.batch, options)?;
            (Disk::RocksDb(log), state, found)
        }
        LogForm::Segments => {
            let (log, state, found) = segments::open(dir, written.batch, options)?;
            (Disk::Segments(log), state, found)
        }
    };
    if (found, state.meta()) != (written, *meta) {
        let detail = format!("{form} hold {found:?} and {:?} instead of {written:?} and {meta:?}", state.meta());
        return Err(super::record::corrupt("log", detail));
    }
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
