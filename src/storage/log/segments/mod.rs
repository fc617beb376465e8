//! The log in files of its own: segments, to which one frame after the other is written in place.
//!
//! A write is one frame: one `pwrite` and one `fdatasync`, of space that is filled with zeros, or
//! with an earlier life of the file, so that a flush changes no metadata of the file system. A
//! segment begins with everything besides entries that the log held before it, so that the segments
//! before may be removed once their entries are purged. They become spares, which are written over.
//!
//! ```text
//! segments/0000000000000007.segment   header │ frame 4711 │ frame 4712 │ … │ zeros
//! segments/0000000000000008.segment   header │ frame 5100 │ …
//! segments/0000000000000005.spare     to become segment 9
//! ```
//!
//! Memory holds for each frame where its entries are. Invariants: the numbers of segments are
//! consecutive, and so are those of the frames; nothing that was written is changed, only removed.

mod file;
mod frame;
pub(super) mod inspect;
mod recover;
mod replay;

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use headwater_files as files;
use parking_lot::Mutex;

use self::file::{FrameReader, Segment, segment_path, spare_path};
use self::frame::{HEADER_BYTES, Header};
pub(super) use self::recover::{open, open_draft};
use self::replay::{Run, Runs};
use super::LogOptions;
use super::batch::{LogBatch, Meta};
use super::record::{LogRecord, corrupt};
use crate::StorageError;
use headwater_proto::codec::raft::LogTip;

/// The folder of the segments, in the folder of the log.
pub(super) const FOLDER: &str = "segments";
/// The folder in which a log is made.
const DRAFT: &str = "segments.tmp";
/// The folder of a log that was converted, until it is removed.
const RETIRED: &str = "segments.old";

/// Space that is filled with zeros at once, bytes.
const GROWTH_BYTES: u64 = 512 * 1024;
/// Spare files that are kept, count.
const SPARES_MAX: usize = 2;
/// Largest buffer that is kept for the next write, bytes.
const BUFFER_BYTES_MAX: usize = 2 * 1024 * 1024;

/// An open log in segments.
pub(super) struct SegmentLog {
    folder: PathBuf,
    store_id: u64,
    segment_bytes: u64,
    syncs: bool,
    active: Mutex<Active>,
    index: Mutex<Index>,
    is_retired: AtomicBool,
}

/// The end of the log. Used by the writer alone.
struct Active {
    segment: Arc<Segment>,
    /// Position of the next frame in the segment.
    at: u64,
    /// Length of the file: up to here a write needs no new space.
    allocated: u64,
    /// What the header of the next segment has to say.
    meta: Meta,
    tip: LogTip,
    buffer: Vec<u8>,
}

/// Where the entries are, and the files.
struct Index {
    runs: Runs,
    /// Every segment whose header is durable, ascending.
    segments: Vec<Arc<Segment>>,
    spares: Vec<PathBuf>,
}

impl SegmentLog {
    /// Creates a log in the folder `dir`, which has none, with `meta` and `tip` and without
    /// entries; durably. It is a draft until it is [published](publish).
    pub(super) fn create(dir: &Path, options: &LogOptions, meta: &Meta, tip: &LogTip) -> Result<Self, StorageError> {
        let folder = dir.join(DRAFT);
        files::remove_tree(&folder)?;
        files::create_dir(&folder)?;
        let header = Header { salt: rand::random(), store_id: options.store_id, meta: *meta, tip: *tip };
        let segment = new_segment(&folder, 1, header.salt, None)?;
        let at = HEADER_BYTES as u64;
        let write = |bytes: &[u8]| segment.file.write_all_at(bytes, 0).and_then(|()| segment.file.sync_all());
        write(&frame::encode_header(1, &header)).map_err(files::at(&segment_path(&folder, 1)))?;
        let index = Index { runs: Runs::default(), segments: vec![Arc::clone(&segment)], spares: Vec::new() };
        let active = Active { segment, at, allocated: at, meta: *meta, tip: *tip, buffer: Vec::new() };
        Ok(Self::new(folder, options, active, index))
    }

    fn new(folder: PathBuf, options: &LogOptions, active: Active, index: Index) -> Self {
        Self {
            folder,
            store_id: options.store_id,
            segment_bytes: options.segment_bytes as u64,
            syncs: !options.unsafe_no_fsync,
            active: Mutex::new(active),
            index: Mutex::new(index),
            is_retired: AtomicBool::new(false),
        }
    }

    pub(super) fn write(&self, batch: &LogBatch<'_>) -> Result<usize, StorageError> {
        let mut active = self.active.lock();
        let active = &mut *active;
        let mut buffer = std::mem::take(&mut active.buffer);
        buffer.clear();
        frame::encode(batch, active.segment.salt, &mut buffer);
        let is_full = active.at > HEADER_BYTES as u64 && active.at + buffer.len() as u64 > self.segment_bytes;
        let mut start = active.at;
        let mut begun = None;
        if is_full {
            let header = Header { salt: rand::random(), store_id: self.store_id, meta: active.meta, tip: active.tip };
            begun = self.begin_segment(active, header.salt)?;
            if begun.is_some() {
                buffer.clear();
                buffer.extend_from_slice(&frame::encode_header(active.segment.number, &header));
                frame::encode(batch, header.salt, &mut buffer);
                start = 0;
            }
        }
        let at = if start == 0 { HEADER_BYTES as u64 } else { start };
        let bytes = buffer.len();
        let end = start + bytes as u64;
        if end > active.allocated {
            let grown = end.next_multiple_of(GROWTH_BYTES).min(self.segment_bytes.max(end));
            buffer.resize((grown - start) as usize, 0);
            active.allocated = grown;
        }
        let file = &active.segment.file;
        let written =
            file.write_all_at(&buffer, start).and_then(|()| if self.syncs { file.sync_data() } else { Ok(()) });
        written.map_err(files::at(&segment_path(&self.folder, active.segment.number)))?;
        let mut index = self.index.lock();
        // Not before: its header is what allows the segments before it to be removed.
        index.segments.extend(begun);
        index.runs.apply(batch, &active.segment, at);
        drop(index);
        active.at = end;
        active.meta.update(batch);
        active.tip = batch.tip;
        if buffer.capacity() <= BUFFER_BYTES_MAX {
            active.buffer = buffer;
        }
        Ok(bytes)
    }

    /// Goes on in a new file, which has its name durably and nothing else, and returns it. `None`
    /// if there is no file descriptor left: then the log goes on in the file that it has.
    fn begin_segment(&self, active: &mut Active, salt: u64) -> Result<Option<Arc<Segment>>, StorageError> {
        let number = active.segment.number + 1;
        let spare = self.index.lock().spares.pop();
        let segment = match new_segment(&self.folder, number, salt, spare.as_deref()) {
            Err(error) if error.is_out_of_descriptors() => {
                self.index.lock().spares.extend(spare);
                return Ok(None);
            }
            made => made?,
        };
        let length = segment.file.metadata().map_err(files::at(&segment_path(&self.folder, number)))?.len();
        headwater_fail_points::fail_point!(LogSegment);
        (active.segment, active.at, active.allocated) = (Arc::clone(&segment), 0, length);
        Ok(Some(segment))
    }

    pub(super) fn reader(&self, start: u64, end: u64) -> SegmentReader {
        let runs = self.index.lock().runs.of(start, end);
        SegmentReader { runs: runs.into_iter(), loaded: Vec::new().into_iter(), frames: None, wanted: start, end }
    }

    /// Removes the segments that hold only entries up to `index`, or keeps them as spares. The
    /// oldest one first, so that a crash leaves consecutive ones.
    pub(super) fn reclaim(&self, index: u64) -> Result<(), StorageError> {
        let removed: Vec<Arc<Segment>> = {
            let mut locked = self.index.lock();
            let Index { runs, segments, .. } = &mut *locked;
            runs.drop_before(index + 1);
            let active = segments.last().map_or(0, |segment| segment.number);
            let needed = runs.first().map_or(active, |run| run.segment.number);
            let removed = segments.partition_point(|segment| segment.number < needed);
            segments.drain(..removed).collect()
        };
        for segment in removed {
            let path = segment_path(&self.folder, segment.number);
            // A reader that began before may still need the file: then it only loses its name.
            let is_free = Arc::strong_count(&segment) == 1;
            if is_free && self.index.lock().spares.len() < SPARES_MAX {
                let spare = spare_path(&self.folder, segment.number);
                fs::rename(&path, &spare).map_err(files::at(&path))?;
                self.index.lock().spares.push(spare);
            } else {
                fs::remove_file(&path).map_err(files::at(&path))?;
            }
        }
        Ok(())
    }

    pub(super) fn retire(&self) {
        self.is_retired.store(true, Ordering::Release);
    }
}

impl Drop for SegmentLog {
    fn drop(&mut self) {
        if !self.is_retired.load(Ordering::Acquire) {
            return;
        }
        let retired = self.folder.with_file_name(RETIRED);
        if let Err(error) = files::remove_tree(&retired) {
            tracing::warn!(dir = %retired.display(), %error, "the former log is removed at the next start");
        }
    }
}

/// Makes the draft in `dir` the log, durably. From then on the log is made of segments.
pub(super) fn publish(dir: &Path) -> Result<(), StorageError> {
    Ok(files::rename(&dir.join(DRAFT), &dir.join(FOLDER))?)
}

/// As [`publish`], with the draft open.
pub(super) fn publish_open(dir: &Path, mut draft: SegmentLog) -> Result<SegmentLog, StorageError> {
    publish(dir)?;
    draft.folder = dir.join(FOLDER);
    Ok(draft)
}

/// Ends the log in `dir`, durably. From then on the log is not made of segments.
pub(super) fn withdraw(dir: &Path) -> Result<(), StorageError> {
    let retired = dir.join(RETIRED);
    files::remove_tree(&retired)?;
    Ok(files::rename(&dir.join(FOLDER), &retired)?)
}

/// Removes what interrupted conversions have left in `dir`.
pub(super) fn remove_drafts(dir: &Path) -> Result<(), StorageError> {
    for name in [DRAFT, RETIRED] {
        files::remove_tree(&dir.join(name))?;
    }
    Ok(())
}

/// Creates the file of segment `number`, or takes over a spare one. Its name is durable. Without
/// file descriptors nothing is changed.
fn new_segment(folder: &Path, number: u64, salt: u64, spare: Option<&Path>) -> Result<Arc<Segment>, StorageError> {
    let path = segment_path(folder, number);
    let directory = File::open(folder).map_err(files::at(folder))?;
    let opened = spare.unwrap_or(&path);
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(spare.is_none()).truncate(false).mode(0o600);
    let file = options.open(opened).map_err(files::at(opened))?;
    if let Some(spare) = spare {
        fs::rename(spare, &path).map_err(files::at(spare))?;
    }
    directory.sync_all().map_err(files::at(folder))?;
    Ok(Arc::new(Segment { number, salt, file }))
}

/// Reads consecutive entries, from where they were when the reader was made.
pub(super) struct SegmentReader {
    runs: std::vec::IntoIter<Run>,
    loaded: std::vec::IntoIter<LogRecord>,
    frames: Option<FrameReader>,
    wanted: u64,
    end: u64,
}

impl SegmentReader {
    pub(super) fn next(&mut self) -> Result<LogRecord, StorageError> {
        loop {
            let wanted = self.wanted;
            if let Some(record) = self.loaded.next() {
                if record.index.get() != wanted {
                    let detail = format!("missing, the next entry is {}", record.index);
                    return Err(corrupt(format!("log/entries/{wanted}"), detail));
                }
                self.wanted += 1;
                return Ok(record);
            }
            let run = self.runs.next().ok_or_else(|| corrupt(format!("log/entries/{wanted}"), "missing"))?;
            self.loaded = self.load(&run)?.into_iter();
        }
    }

    fn load(&mut self, run: &Run) -> Result<Vec<LogRecord>, StorageError> {
        let (from, end) = (run.first.max(self.wanted), run.end.min(self.end));
        let frames = match &mut self.frames {
            Some(frames) if Arc::ptr_eq(frames.segment(), &run.segment) => frames,
            frames => frames.insert(FrameReader::new(Arc::clone(&run.segment))),
        };
        let damaged = |detail: String| {
            corrupt(
                format!("{}, byte {}", run.segment.location(), run.at),
                format!("entries {from} to {}: {detail}", end - 1),
            )
        };
        let (frame, _) = frames.frame(run.at)?.ok_or_else(|| damaged("the checksum is wrong".into()))?;
        frame.entries(from, end).map_err(damaged)
    }
}

#[cfg(test)]
mod tests {
    use super::super::batch::BatchChange;
    use super::*;
    use headwater_proto::codec::raft::{LogId, Vote};
    use headwater_types::{LogIndex, NodeId, Term};

    /// Ends the process, so to speak, between the name of a segment and its header.
    #[test]
    fn segments_stay_until_the_next_one_has_its_header() {
        let temp = tempfile::tempdir().unwrap();
        let options = LogOptions { store_id: 7, ..LogOptions::default() };
        let start = LogTip { batch: 1, first: LogIndex(0), last: None };
        drop(SegmentLog::create(temp.path(), &options, &Meta::default(), &start).unwrap());
        publish(temp.path()).unwrap();
        let (log, _, _) = open(temp.path(), 1, &options).unwrap();
        let purged = LogId { term: Term(3), index: LogIndex(50) };
        let vote = Some(Vote { term: Term(3), node_id: NodeId(2), committed: true });
        let tip = LogTip { batch: 2, first: LogIndex(51), last: Some(purged) };
        log.write(&LogBatch { changes: vec![BatchChange::Purge(purged)], vote, committed: None, tip }).unwrap();
        let begun = log.begin_segment(&mut log.active.lock(), 99).unwrap();
        assert!(begun.is_some());
        log.reclaim(50).unwrap();
        drop((begun, log));
        let (_, state, found) = open(temp.path(), 2, &options).unwrap();
        assert_eq!((state.vote, state.purged, found), (vote, Some(purged), tip));
    }
}
