//! What the frames of a log add up to: its bounds, its vote, and where its entries are.
//!
//! Owns the meaning of frames. Reads no files. Used for opening, which refuses what does not fit,
//! and for inspection, which goes on behind damage.

use std::collections::VecDeque;
use std::sync::Arc;

use super::file::Segment;
use super::frame::{Frame, Header, Record};
use crate::log::LogRecord;
use crate::log::batch::{BatchChange, LogBatch, Meta};
use crate::log::record::decode_entry_body;
use crate::log::state::Bounds;
use headwater_proto::codec::raft::{LogId, LogTip};
use headwater_types::{LogIndex, Term};

/// Consecutive entries of one frame that are part of the log.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) first: u64,
    /// The index after the last one.
    pub(super) end: u64,
    pub(super) segment: Arc<Segment>,
    /// Position of the frame in the segment.
    pub(super) at: u64,
}

/// Where the entries of a log are, in order of their indexes.
#[derive(Debug, Default)]
pub(super) struct Runs(VecDeque<Run>);

impl Runs {
    pub(super) fn push(&mut self, run: Run) {
        if run.first < run.end {
            self.0.push_back(run);
        }
    }

    /// Forgets every entry from this index on.
    pub(super) fn truncate(&mut self, from: u64) {
        while self.0.pop_back_if(|run| run.first >= from).is_some() {}
        if let Some(last) = self.0.back_mut() {
            last.end = last.end.min(from);
        }
    }

    /// Forgets the runs that hold only entries before this index.
    pub(super) fn drop_before(&mut self, first: u64) {
        while self.0.pop_front_if(|run| run.end <= first).is_some() {}
    }

    pub(super) fn first(&self) -> Option<&Run> {
        self.0.front()
    }

    /// The runs with entries of `start..end`.
    pub(super) fn of(&self, start: u64, end: u64) -> Vec<Run> {
        let from = self.0.partition_point(|run| run.end <= start);
        self.0.range(from..).take_while(|run| run.first < end).cloned().collect()
    }

    /// Adds the entries of a write, whose frame is here.
    pub(super) fn apply(&mut self, batch: &LogBatch<'_>, segment: &Arc<Segment>, at: u64) {
        for change in &batch.changes {
            match change {
                BatchChange::Append(records) => {
                    let (Some(first), Some(last)) = (records.first(), records.last()) else { continue };
                    let (first, end) = (first.index.get(), last.index.get() + 1);
                    self.push(Run { first, end, segment: Arc::clone(segment), at });
                }
                BatchChange::Truncate(from) => self.truncate(*from),
                BatchChange::Purge(_) => {}
            }
        }
    }
}

/// The log up to some frame.
#[derive(Debug)]
pub(super) struct Replay {
    pub(super) store_id: u64,
    pub(super) meta: Meta,
    pub(super) tip: LogTip,
    pub(super) runs: Runs,
    /// Whether frames before the next one cannot be read.
    has_gap: bool,
    /// The last entries, as far as they fit.
    pub(super) tail: VecDeque<LogRecord>,
    tail_bytes: usize,
    tail_bytes_max: usize,
}

impl Replay {
    /// Begins with the first segment. Keeps up to `tail_bytes_max` of the last entries.
    pub(super) fn new(header: &Header, tail_bytes_max: usize) -> Self {
        Self {
            store_id: header.store_id,
            meta: header.meta,
            tip: header.tip,
            runs: Runs::default(),
            has_gap: false,
            tail: VecDeque::new(),
            tail_bytes: 0,
            tail_bytes_max,
        }
    }

    /// Goes on with a segment whose header is known, where frames before it cannot be read. Forgets
    /// the entries that these may have replaced.
    pub(super) fn resume(&mut self, header: &Header) {
        self.forget_doubtful(header.tip.last.map(|last| last.term));
        (self.meta, self.tip) = (header.meta, header.tip);
        let bounds = Bounds::of(&self.tip);
        self.runs.truncate(bounds.end());
        self.runs.drop_before(bounds.first);
    }

    /// Notes that frames cannot be read: the next one shows whether they may have replaced entries.
    pub(super) fn skip(&mut self) {
        self.has_gap = true;
    }

    /// Forgets entries that frames which cannot be read may have replaced. Replaced are only
    /// entries above the committed one, and only by entries of a later term than the last one has;
    /// `next` is the term of the first entry that is known again.
    fn forget_doubtful(&mut self, next: Option<Term>) {
        let term = self.tip.last.map(|last| last.term);
        if std::mem::take(&mut self.has_gap) && next > term {
            self.runs.truncate(self.meta.committed.map_or(0, |id| id.index.get() + 1));
        }
    }

    /// Adds the frame at this place.
    ///
    /// # Errors
    ///
    /// What does not fit to the frames before, or what is wrong in the frame. Of a frame that only
    /// does not fit, everything is added all the same.
    pub(super) fn apply(&mut self, frame: &Frame<'_>, segment: &Arc<Segment>, at: u64) -> Result<(), String> {
        let mut bounds = Bounds::of(&self.tip);
        let (mut tip, mut misplaced) = (None, None);
        let mut run: Option<Run> = None;
        for record in frame.records() {
            match record? {
                Record::Entry(bytes) => {
                    let entry = decode_entry_body(bytes).map_err(|error| error.to_string())?;
                    let index = entry.index.get();
                    if self.has_gap {
                        self.forget_doubtful(Some(entry.term));
                    }
                    if bounds.last.is_none() {
                        bounds.first = index;
                    }
                    match &mut run {
                        Some(run) if run.end == index => run.end += 1,
                        _ => {
                            run.take().into_iter().for_each(|run| self.runs.push(run));
                            run = Some(Run { first: index, end: index + 1, segment: Arc::clone(segment), at });
                        }
                    }
                    if bounds.last.is_some() && bounds.end() != index {
                        misplaced.get_or_insert(format!("it has entry {index} where entry {} should be", bounds.end()));
                        self.runs.truncate(index);
                    }
                    bounds.last = Some(entry.id());
                    self.keep(entry);
                }
                Record::Truncate(from) => {
                    run.take().into_iter().for_each(|run| self.runs.push(run));
                    self.runs.truncate(from);
                    self.forget_from(from);
                    if from < bounds.end() {
                        bounds = self.truncated(bounds, from);
                    }
                }
                Record::Purge(id) => {
                    self.meta.purged = Some(id);
                    bounds.first = bounds.first.max(id.index.get() + 1);
                    if bounds.last.is_none_or(|last| last.index <= id.index) {
                        bounds.last = Some(id);
                    }
                }
                Record::Vote(vote) => self.meta.vote = Some(vote),
                Record::Committed(id) => self.meta.committed = id,
                Record::Tip(found) => tip = Some(found),
                Record::Store(_) => return Err("it names a store".into()),
            }
        }
        run.take().into_iter().for_each(|run| self.runs.push(run));
        let tip = tip.ok_or("it has no tip")?;
        self.tip = tip;
        if tip.batch != frame.number {
            return Err(format!("it is write {} and its tip is that of write {}", frame.number, tip.batch));
        }
        let wanted = Bounds::of(&tip);
        if (bounds.first, bounds.end()) != (wanted.first, wanted.end()) {
            let range = |bounds: Bounds| format!("{}..{}", bounds.first, bounds.end());
            misplaced.get_or_insert(format!("the log is {} with it, and {} by its tip", range(bounds), range(wanted)));
        }
        self.drop_purged();
        misplaced.map_or(Ok(()), Err)
    }

    /// The bounds without the entries from this index on. The term of the last one is not known
    /// here, and not needed.
    fn truncated(&self, bounds: Bounds, from: u64) -> Bounds {
        if from > bounds.first {
            let last = LogId { term: Term(0), index: LogIndex(from - 1) };
            return Bounds { last: Some(last), ..bounds };
        }
        match self.meta.purged {
            Some(purged) => Bounds { last: Some(purged), ..bounds },
            None => Bounds::default(),
        }
    }

    fn keep(&mut self, entry: LogRecord) {
        self.tail_bytes += entry.cost_bytes();
        self.tail.push_back(entry);
        while self.tail_bytes > self.tail_bytes_max {
            self.drop_front();
        }
    }

    fn forget_from(&mut self, from: u64) {
        while let Some(last) = self.tail.pop_back_if(|last| last.index.get() >= from) {
            self.tail_bytes -= last.cost_bytes();
        }
    }

    fn drop_purged(&mut self) {
        let first = self.tip.first;
        while self.tail.front().is_some_and(|entry| entry.index < first) {
            self.drop_front();
        }
    }

    fn drop_front(&mut self) {
        if let Some(entry) = self.tail.pop_front() {
            self.tail_bytes -= entry.cost_bytes();
        }
    }

    /// Size of the tail, bytes.
    pub(super) fn tail_bytes(&self) -> usize {
        self.tail_bytes
    }
}
