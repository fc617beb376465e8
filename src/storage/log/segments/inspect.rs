//! Reads a log in segments without changing it, and lists all damage. Behind damage it looks for
//! the next whole frame.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use super::FOLDER;
use super::file::{self, FrameReader};
use super::frame::{HEADER_BYTES, NoHeader};
use super::replay::{Replay, Run};
use crate::damage::DamageList;
use crate::log::LogRecord;
use crate::log::inspect::{LogFacts, run as run_of};
use headwater_types::LogIndex;

/// A log in segments that is being read.
pub(in crate::log) struct SegmentInspector {
    replay: Option<Replay>,
}

impl SegmentInspector {
    /// Reads all frames of the log in `dir`, and its facts. Keeps where the entries are.
    pub(in crate::log) fn open(dir: &Path, marked: Option<u64>, damage: &mut DamageList) -> (Self, LogFacts) {
        let folder = dir.join(FOLDER);
        let mut replay = None;
        let numbers = match file::list(&folder) {
            Ok(listing) => listing.segments,
            Err(error) => {
                damage.add_error("log/segments", &error);
                Vec::new()
            }
        };
        let (mut before, mut end) = (None, String::new());
        for (place, number) in numbers.iter().copied().enumerate() {
            if before.is_some_and(|before| before + 1 != number) {
                damage.add(file::location(number), "the segment before it is gone");
            }
            before = Some(number);
            let is_last = place > 0 && place + 1 == numbers.len();
            if let Some(read_up_to) = read_segment(&folder, number, is_last, &end, &mut replay, damage) {
                end = read_up_to;
            }
        }
        if numbers.is_empty() {
            damage.add("log/segments", "there is no log");
        }
        let mut facts = LogFacts { marked, ..LogFacts::default() };
        if let Some(replay) = &replay {
            facts = LogFacts {
                store_id: Some(replay.store_id),
                vote: replay.meta.vote,
                committed: replay.meta.committed,
                purged: replay.meta.purged,
                first: Some(replay.tip.first),
                last: replay.tip.last,
                written: Some(replay.tip.batch),
                marked,
            };
            if let Some(marked) = marked.filter(|marked| replay.tip.batch < *marked) {
                let detail = format!(
                    "it can be read up to write {}, and write {marked} was acknowledged: what follows is damaged or gone",
                    replay.tip.batch
                );
                damage.add("log/segments", detail);
            }
        }
        (Self { replay }, facts)
    }

    /// Calls `visit` with the entries from `from` on; see
    /// [`LogInspector::read`](crate::log::LogInspector::read).
    pub(in crate::log) fn read(
        &self,
        facts: &LogFacts,
        damage: &mut DamageList,
        from: LogIndex,
        mut visit: impl FnMut(LogRecord) -> ControlFlow<()>,
    ) {
        let Some(replay) = &self.replay else { return };
        let end = facts.last.map_or(0, |last| last.index.get() + 1);
        let mut wanted = facts.first.unwrap_or(LogIndex::ZERO).max(from).get();
        let mut frames: Option<FrameReader> = None;
        for run in replay.runs.of(wanted, end) {
            let first = run.first.max(wanted);
            if first > wanted {
                damage.add(run_of(wanted, first), "missing");
            }
            wanted = run.end.min(end).max(wanted);
            match entries(&run, first, wanted, &mut frames) {
                Ok(entries) => {
                    for entry in entries {
                        if visit(entry).is_break() {
                            return;
                        }
                    }
                }
                Err(detail) => damage.add(run_of(first, wanted), detail),
            }
        }
        if wanted < end {
            damage.add(run_of(wanted, end), "missing");
        }
    }
}

/// Adds the frames of segment `number` to `replay`. `before` is the place at which the segment
/// before could not be read any further. Returns that place in this one, if it has frames.
fn read_segment(
    folder: &Path,
    number: u64,
    may_be_unwritten: bool,
    before: &str,
    replay: &mut Option<Replay>,
    damage: &mut DamageList,
) -> Option<String> {
    let (segment, header) = match file::open(folder, number, false) {
        Ok(Ok(opened)) => opened,
        Ok(Err(no_header)) => {
            match no_header {
                NoHeader::Unwritten if may_be_unwritten => {}
                NoHeader::Unwritten => damage.add(file::location(number), "it was never written"),
                NoHeader::Damaged(detail) => {
                    damage.add(file::location(number), format!("{detail}: nothing in it can be read"));
                }
            }
            return None;
        }
        Err(error) => {
            damage.add_error(file::location(number), &error);
            return None;
        }
    };
    let segment = Arc::new(segment);
    // Only the bounds matter here, not the newest entries.
    let replay = replay.get_or_insert_with(|| Replay::new(&header, 0));
    if replay.tip.batch < header.tip.batch {
        let lost = lost(replay.tip.batch + 1, header.tip.batch);
        damage.add(before, format!("damaged: {lost} cannot be read"));
        replay.skip();
    }
    replay.resume(&header);
    let mut frames = FrameReader::new(Arc::clone(&segment));
    let mut at = HEADER_BYTES as u64;
    loop {
        let place = format!("{}, byte {at}", segment.location());
        let length = match frames.frame(at) {
            Ok(Some((frame, length))) => {
                if frame.number != replay.tip.batch + 1 {
                    let lost = lost(replay.tip.batch + 1, frame.number.saturating_sub(1));
                    damage.add(&place, format!("{lost} before this one cannot be read"));
                    // It need not follow what was read before; what it says is right.
                    replay.skip();
                    drop(replay.apply(&frame, &segment, at));
                } else if let Err(detail) = replay.apply(&frame, &segment, at) {
                    damage.add(&place, detail);
                }
                length
            }
            Ok(None) => match frames.next_frame(at) {
                Ok(Some(next)) => {
                    damage.add(&place, format!("damaged up to byte {next}"));
                    at = next;
                    continue;
                }
                Ok(None) => return Some(place),
                Err(error) => {
                    damage.add_error(&place, &error);
                    return Some(place);
                }
            },
            Err(error) => {
                damage.add_error(&place, &error);
                return Some(place);
            }
        };
        at += length as u64;
    }
}

fn lost(first: u64, last: u64) -> String {
    if first >= last { format!("write {first}") } else { format!("writes {first} to {last}") }
}

/// The entries of `from..end` in this run, or the reason why they cannot be read.
fn entries(run: &Run, from: u64, end: u64, frames: &mut Option<FrameReader>) -> Result<Vec<LogRecord>, String> {
    let frames = match frames {
        Some(frames) if Arc::ptr_eq(frames.segment(), &run.segment) => frames,
        frames => frames.insert(FrameReader::new(Arc::clone(&run.segment))),
    };
    match frames.frame(run.at) {
        Ok(Some((frame, _))) => frame.entries(from, end),
        Ok(None) => Err("the frame is damaged".into()),
        Err(error) => Err(error.to_string()),
    }
}
