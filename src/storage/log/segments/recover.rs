//! Opens a log in segments: reads all of it, and refuses it unless everything that was acknowledged
//! is there.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use headwater_files as files;

use super::file::{self, FrameReader, Segment};
use super::frame::{HEADER_BYTES, Header, NoHeader};
use super::replay::Replay;
use super::{Active, DRAFT, FOLDER, Index, SPARES_MAX, SegmentLog, publish};
use crate::StorageError;
use crate::log::LogOptions;
use crate::log::batch::Meta;
use crate::log::record::corrupt;
use crate::log::recover::{check_bounds, check_store, check_written};
use crate::log::state::{Bounds, State};
use headwater_proto::codec::raft::LogTip;

/// Opens the log in `dir`, or creates it if there is none. `marked` is the last write that was
/// acknowledged.
pub(in crate::log) fn open(
    dir: &Path,
    marked: u64,
    options: &LogOptions,
) -> Result<(SegmentLog, State, LogTip), StorageError> {
    let folder = dir.join(FOLDER);
    if !folder.is_dir() {
        let tip = LogTip { batch: 1, first: Bounds::default().first.into(), last: None };
        drop(SegmentLog::create(dir, options, &Meta::default(), &tip)?);
        publish(dir)?;
    }
    open_folder(folder, marked, options)
}

/// Opens the draft in `dir`, which must reach the write `wanted`.
pub(in crate::log) fn open_draft(
    dir: &Path,
    wanted: u64,
    options: &LogOptions,
) -> Result<(SegmentLog, State, LogTip), StorageError> {
    open_folder(dir.join(DRAFT), wanted, options)
}

fn open_folder(
    folder: PathBuf,
    marked: u64,
    options: &LogOptions,
) -> Result<(SegmentLog, State, LogTip), StorageError> {
    let dir = folder.parent().unwrap_or(&folder).to_owned();
    let listing = file::list(&folder)?;
    let mut found: Option<Found> = None;
    let mut unwritten = None;
    for (place, number) in listing.segments.iter().copied().enumerate() {
        let is_last = place + 1 == listing.segments.len();
        let opened = file::open(&folder, number, true)?;
        let (segment, header) = match (opened, &found) {
            (Ok(opened), _) => opened,
            // Only its name was durable.
            (Err(NoHeader::Unwritten), Some(_)) if is_last => {
                unwritten = Some(number);
                break;
            }
            (Err(NoHeader::Unwritten), _) => {
                return Err(corrupt(file::location(number), "it was never written, or lost what it held"));
            }
            (Err(NoHeader::Damaged(detail)), _) => return Err(corrupt(file::location(number), detail)),
        };
        let segment = Arc::new(segment);
        match &mut found {
            None => found = Some(Found::new(segment, &header, options)),
            // A loss of power may have brought removed segments back, though not all of them.
            Some(before) if number != before.frames.segment().number + 1 => {
                found = Some(Found::new(segment, &header, options));
            }
            Some(found) => found.go_on(segment, &header)?,
        }
        if let Some(found) = &mut found {
            found.read()?;
        }
    }
    let Some(mut found) = found else {
        return Err(corrupt(folder.display().to_string(), "there is no segment: votes and entries are gone"));
    };
    check_written(&dir, found.replay.tip.batch, marked)?;
    found.check_end()?;
    check_store(&dir, found.replay.store_id, options)?;
    if let Some(number) = unwritten {
        // The next segment gets this number.
        files::remove(&file::segment_path(&folder, number))?;
    }
    let mut spares = listing.spares;
    for spare in spares.drain(spares.len().min(SPARES_MAX)..) {
        files::remove(&spare)?;
    }
    found.finish(folder, spares, options)
}

/// The segments that were read so far, without a gap between them.
struct Found {
    replay: Replay,
    segments: Vec<Arc<Segment>>,
    frames: FrameReader,
    /// Position behind the last whole frame of the last segment.
    at: u64,
    /// Length of that frame, bytes; 0 if the segment has none.
    last_bytes: usize,
}

impl Found {
    fn new(segment: Arc<Segment>, header: &Header, options: &LogOptions) -> Self {
        let replay = Replay::new(header, options.tail_bytes_max);
        let frames = FrameReader::new(Arc::clone(&segment));
        Self { replay, segments: vec![segment], frames, at: HEADER_BYTES as u64, last_bytes: 0 }
    }

    /// Goes on with the next segment, which must begin where the one before ends.
    fn go_on(&mut self, segment: Arc<Segment>, header: &Header) -> Result<(), StorageError> {
        let before = self.frames.segment();
        if (header.tip, header.meta) != (self.replay.tip, self.replay.meta) || header.store_id != self.replay.store_id {
            let detail = format!(
                "readable up to write {}, and the next segment begins behind write {}: acknowledged data is lost",
                self.replay.tip.batch, header.tip.batch
            );
            return Err(corrupt(format!("{}, byte {}", before.location(), self.at), detail));
        }
        self.frames = FrameReader::new(Arc::clone(&segment));
        self.segments.push(segment);
        (self.at, self.last_bytes) = (HEADER_BYTES as u64, 0);
        Ok(())
    }

    /// Adds the frames of the last segment.
    fn read(&mut self) -> Result<(), StorageError> {
        let segment = Arc::clone(self.frames.segment());
        while let Some((frame, length)) = self.frames.frame(self.at)? {
            let wanted = self.replay.tip.batch + 1;
            let applied = if frame.number == wanted {
                self.replay.apply(&frame, &segment, self.at)
            } else {
                Err(format!("there is write {} where write {wanted} should be", frame.number))
            };
            applied.map_err(|detail| corrupt(format!("{}, byte {}", segment.location(), self.at), detail))?;
            self.at += length as u64;
            self.last_bytes = length;
        }
        Ok(())
    }

    /// Writes the last frame once more, and flushes it. The process may have ended before its
    /// flush, or because of it: then only the memory of the system has the frame, which counts as
    /// durable from now on. Those before were flushed.
    fn flush_last(&self) -> std::io::Result<()> {
        let file = &self.frames.segment().file;
        // The first frame was written together with the header.
        let last = self.at - self.last_bytes as u64;
        let from = if last <= HEADER_BYTES as u64 { 0 } else { last };
        let mut bytes = vec![0; (self.at - from) as usize];
        file.read_exact_at(&mut bytes, from)?;
        file.write_all_at(&bytes, from)?;
        file.sync_data()
    }

    /// An error if frames follow behind the last readable one: they were written after it was
    /// acknowledged.
    fn check_end(&mut self) -> Result<(), StorageError> {
        let Some(next) = self.frames.next_frame(self.at)? else { return Ok(()) };
        let detail = format!("it is damaged, and a whole write follows at byte {next}: acknowledged data is lost");
        Err(corrupt(format!("{}, byte {}", self.frames.segment().location(), self.at), detail))
    }

    fn finish(
        mut self,
        folder: PathBuf,
        spares: Vec<PathBuf>,
        options: &LogOptions,
    ) -> Result<(SegmentLog, State, LogTip), StorageError> {
        let Replay { meta, tip, .. } = self.replay;
        let bounds = Bounds::of(&tip);
        self.replay.runs.drop_before(bounds.first);
        let mut wanted = bounds.first;
        for run in self.replay.runs.of(bounds.first, bounds.end()) {
            if run.first > wanted {
                break;
            }
            wanted = run.end;
        }
        if wanted < bounds.end() {
            return Err(corrupt(format!("log/entries/{wanted}"), "missing"));
        }
        if self.replay.tail.back().is_some_and(|last| Some(last.id()) != bounds.last) {
            return Err(corrupt("log/entries", format!("the last entry is not {:?}", bounds.last)));
        }
        let path = file::segment_path(&folder, self.frames.segment().number);
        if !options.unsafe_no_fsync {
            self.flush_last().map_err(files::at(&path))?;
        }
        let state = State {
            bounds,
            purged: meta.purged,
            vote: meta.vote,
            committed: meta.committed,
            tail_bytes: self.replay.tail_bytes(),
            tail: self.replay.tail,
            durable_end: bounds.end(),
            ..State::default()
        };
        check_bounds(&state)?;
        let segment = Arc::clone(self.frames.segment());
        let length = segment.file.metadata().map_err(files::at(&path))?.len();
        let active = Active { segment, at: self.at, allocated: length, meta, tip, buffer: Vec::new() };
        let index = Index { runs: self.replay.runs, segments: self.segments, spares };
        Ok((SegmentLog::new(folder, options, active, index), state, tip))
    }
}
