//! The files of a log in segments: their names, and reading frames from them.

use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use headwater_files as files;

use super::frame::{self, FRAME_HEAD_BYTES, Frame, HEADER_BYTES, Header, NoHeader};
use crate::StorageError;

const SEGMENT: &str = "segment";
const SPARE: &str = "spare";
/// Bytes that are read from a segment at once, unless a frame is longer.
const WINDOW_BYTES: usize = 64 * 1024;

/// A segment that is open.
#[derive(Debug)]
pub(super) struct Segment {
    /// Its place in the order of segments.
    pub(super) number: u64,
    /// What its checksums cover besides the frames.
    pub(super) salt: u64,
    pub(super) file: File,
}

impl Segment {
    /// Its name in errors and in lists of damage.
    pub(super) fn location(&self) -> String {
        location(self.number)
    }
}

/// The name of segment `number` in errors and in lists of damage.
pub(super) fn location(number: u64) -> String {
    format!("log/segments/{}", file_name(number, SEGMENT))
}

fn file_name(number: u64, extension: &str) -> String {
    format!("{number:016x}.{extension}")
}

pub(super) fn segment_path(folder: &Path, number: u64) -> PathBuf {
    folder.join(file_name(number, SEGMENT))
}

pub(super) fn spare_path(folder: &Path, number: u64) -> PathBuf {
    folder.join(file_name(number, SPARE))
}

/// The files in the folder of a log.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// Numbers of the segments, ascending.
    pub(super) segments: Vec<u64>,
    /// Files that may become segments.
    pub(super) spares: Vec<PathBuf>,
}

/// Lists the segments in `folder`. Other files are left out.
pub(super) fn list(folder: &Path) -> Result<Listing, StorageError> {
    let mut listing = Listing::default();
    for entry in fs::read_dir(folder).map_err(files::at(folder))? {
        let path = entry.map_err(files::at(folder))?.path();
        let number = path.file_stem().and_then(|stem| u64::from_str_radix(stem.to_str()?, 16).ok());
        let Some((number, extension)) = number.zip(path.extension()) else { continue };
        if extension == SEGMENT {
            listing.segments.push(number);
        } else if extension == SPARE {
            listing.spares.push(path);
        }
    }
    listing.segments.sort_unstable();
    Ok(listing)
}

/// A segment that is open and its header, or the reason why it has none.
type Opened = Result<(Segment, Header), NoHeader>;

/// Opens segment `number`, for writing, too, if `writes` is set, and reads its header.
pub(super) fn open(folder: &Path, number: u64, writes: bool) -> Result<Opened, StorageError> {
    let path = segment_path(folder, number);
    let file = OpenOptions::new().read(true).write(writes).open(&path).map_err(files::at(&path))?;
    let mut header = [0; HEADER_BYTES];
    match file.read_exact_at(&mut header, 0) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(Err(NoHeader::Unwritten)),
        Err(error) => return Err(files::at(&path)(error).into()),
    }
    Ok(frame::decode_header(number, &header).map(|header| (Segment { number, salt: header.salt, file }, header)))
}

/// Reads the frames of one segment.
pub(super) struct FrameReader {
    segment: Arc<Segment>,
    window: Vec<u8>,
    /// Position of the window in the file.
    window_at: u64,
}

impl FrameReader {
    pub(super) fn new(segment: Arc<Segment>) -> Self {
        Self { segment, window: Vec::new(), window_at: 0 }
    }

    pub(super) fn segment(&self) -> &Arc<Segment> {
        &self.segment
    }

    /// The frame at this position, and its length. `None` if there is no whole one.
    ///
    /// # Errors
    ///
    /// If the file cannot be read.
    pub(super) fn frame(&mut self, at: u64) -> Result<Option<(Frame<'_>, usize)>, StorageError> {
        let salt = self.segment.salt;
        let Some(head) = self.bytes(at, FRAME_HEAD_BYTES)? else { return Ok(None) };
        let head = head.first_chunk().expect("invariant: as long as it was asked for");
        let Some(length) = frame::frame_bytes(head, salt) else { return Ok(None) };
        let Some(bytes) = self.bytes(at, length)? else { return Ok(None) };
        Ok(frame::parse(bytes, salt).map(|frame| (frame, length)))
    }

    /// The first whole frame at or behind this position, and its position.
    ///
    /// # Errors
    ///
    /// If the file cannot be read.
    pub(super) fn next_frame(&mut self, mut at: u64) -> Result<Option<u64>, StorageError> {
        let overlap = frame::FRAME_MAGIC.len() - 1;
        loop {
            let Some(window) = self.rest(at)? else { return Ok(None) };
            let found = window.windows(overlap + 1).position(|bytes| bytes == frame::FRAME_MAGIC);
            match found {
                Some(offset) => {
                    at += offset as u64;
                    if self.frame(at)?.is_some() {
                        return Ok(Some(at));
                    }
                    at += 1;
                }
                None => at += (window.len() - overlap) as u64,
            }
        }
    }

    /// `length` bytes from this position on. `None` if the file ends before.
    fn bytes(&mut self, at: u64, length: usize) -> Result<Option<&[u8]>, StorageError> {
        if !self.holds(at, length) {
            // A damaged length must not become an allocation.
            let fail = |error| StorageError::from(files::at(&PathBuf::from(self.segment.location()))(error));
            let left = self.segment.file.metadata().map_err(fail)?.len().saturating_sub(at);
            if left < length as u64 {
                return Ok(None);
            }
            self.load(at, length.max(WINDOW_BYTES))?;
            if !self.holds(at, length) {
                return Ok(None);
            }
        }
        let offset = (at - self.window_at) as usize;
        Ok(Some(&self.window[offset..offset + length]))
    }

    /// Some bytes from this position on, at least as many as a magic has. `None` if the file ends
    /// before.
    fn rest(&mut self, at: u64) -> Result<Option<&[u8]>, StorageError> {
        if self.bytes(at, frame::FRAME_MAGIC.len())?.is_none() {
            return Ok(None);
        }
        Ok(Some(&self.window[(at - self.window_at) as usize..]))
    }

    fn holds(&self, at: u64, length: usize) -> bool {
        at >= self.window_at && at + length as u64 <= self.window_at + self.window.len() as u64
    }

    fn load(&mut self, at: u64, length: usize) -> Result<(), StorageError> {
        self.window.resize(length, 0);
        self.window_at = at;
        let mut filled = 0;
        while filled < length {
            match self.segment.file.read_at(&mut self.window[filled..], at + filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    self.window.clear();
                    return Err(files::at(&PathBuf::from(self.segment.location()))(error).into());
                }
            }
        }
        self.window.truncate(filled);
        Ok(())
    }
}
