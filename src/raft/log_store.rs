//! openraft's log storage on our own log database.
//!
//! Adapts types and waits; `storage::log` decides about durability. Invariant: a callback of
//! `append` reports success only after the entries are on disk.

use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds};

use openraft::entry::RaftEntry;
use openraft::storage::{IOFlushed, LogState, RaftLogStorage};
use openraft::{OptionalSend, RaftLogReader};
use tokio::sync::{oneshot, watch};

use super::membership;
use super::types::{EncodedCommand, EntryPayload, LogEntry, LogId, TypeConfig, Vote, log_id, term_of};
use headwater_proto::codec::raft as record;
use headwater_storage::StorageError;
use headwater_storage::log::{LogDb, LogRecord};
use headwater_types::limits::APPEND_BYTES_MAX;
use headwater_types::{LogIndex, NodeId, Term};

/// openraft's handle to the log; clones read the same log.
#[derive(Clone)]
pub(super) struct LogStore {
    log: LogDb,
    durable: watch::Sender<u64>,
}

impl LogStore {
    pub(super) fn new(log: LogDb) -> Result<Self, StorageError> {
        let last = log.state()?.last.map_or(0, |id| id.index.get());
        Ok(Self { log, durable: watch::Sender::new(last) })
    }

    /// Subscribes to the highest log index that is surely on this member's disk, or purged. A
    /// truncation lowers it.
    pub(super) fn durable(&self) -> watch::Receiver<u64> {
        self.durable.subscribe()
    }
}

pub(super) fn io_error(error: StorageError) -> io::Error {
    io::Error::other(error)
}

fn id_to_record(id: &LogId) -> record::LogId {
    record::LogId { term: Term(term_of(id)), index: LogIndex(id.index) }
}

fn id_from_record(id: record::LogId) -> LogId {
    log_id(id.term.get(), id.index.get())
}

fn to_record(entry: LogEntry) -> LogRecord {
    let (kind, payload) = match entry.payload {
        EntryPayload::Blank => (record::RecordKind::Blank, bytes::Bytes::new()),
        EntryPayload::Normal(command) => (record::RecordKind::Normal, command.0),
        EntryPayload::Membership(members) => (record::RecordKind::Membership, membership::encode(&members)),
    };
    LogRecord { term: Term(term_of(&entry.log_id)), index: LogIndex(entry.log_id.index), kind, payload }
}

fn from_record(stored: LogRecord) -> Result<LogEntry, io::Error> {
    let payload = match stored.kind {
        record::RecordKind::Blank => EntryPayload::Blank,
        record::RecordKind::Normal => EntryPayload::Normal(EncodedCommand(stored.payload)),
        record::RecordKind::Membership => EntryPayload::Membership(
            membership::decode(&stored.payload)
                .map_err(|error| io::Error::other(format!("log entry {}: {error}", stored.index)))?,
        ),
    };
    Ok(LogEntry::new(log_id(stored.term.get(), stored.index.get()), payload))
}

fn bounds(range: &impl RangeBounds<u64>) -> (u64, u64) {
    let start = match range.start_bound() {
        Bound::Included(start) => *start,
        Bound::Excluded(start) => start + 1,
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(end) => end + 1,
        Bound::Excluded(end) => *end,
        Bound::Unbounded => u64::MAX,
    };
    (start, end)
}

/// Submits a change of the log, and waits for the result that its callback gets.
async fn completed(submit: impl FnOnce(Box<dyn FnOnce(Result<(), io::Error>) + Send>)) -> Result<(), io::Error> {
    let (done, wait) = oneshot::channel();
    // The waiter may have been cancelled; the change happens all the same.
    submit(Box::new(move |result| drop(done.send(result))));
    wait.await.map_err(|_| io::Error::other("the log writer is gone"))?
}

impl RaftLogReader<TypeConfig> for LogStore {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> Result<Vec<LogEntry>, io::Error> {
        let (start, end) = bounds(&range);
        self.log.read(LogIndex(start)..LogIndex(end)).map_err(io_error)?.into_iter().map(from_record).collect()
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> Result<Vec<LogEntry>, io::Error> {
        self.log
            .read_limited(LogIndex(start), LogIndex(end), APPEND_BYTES_MAX)
            .map_err(io_error)?
            .into_iter()
            .map(from_record)
            .collect()
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, io::Error> {
        Ok(self.log.vote().map_err(io_error)?.map(|vote| Vote {
            leader_id: openraft::impls::leader_id_std::LeaderId {
                term: vote.term.get(),
                voted_for: vote.node_id.get(),
            },
            committed: vote.committed,
        }))
    }
}

impl RaftLogStorage<TypeConfig> for LogStore {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Result<LogState<TypeConfig>, io::Error> {
        let state = self.log.state().map_err(io_error)?;
        let purged = state.last_purged.map(id_from_record);
        Ok(LogState { last_purged_log_id: purged, last_log_id: state.last.map(id_from_record).or(purged) })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), io::Error> {
        let vote = record::Vote {
            term: Term(vote.leader_id.term),
            node_id: NodeId(vote.leader_id.voted_for),
            committed: vote.committed,
        };
        completed(|done| self.log.save_vote(vote, done)).await
    }

    async fn save_committed(&mut self, committed: Option<LogId>) -> Result<(), io::Error> {
        self.log.save_committed(committed.as_ref().map(id_to_record)).map_err(io_error)
    }

    async fn read_committed(&mut self) -> Result<Option<LogId>, io::Error> {
        Ok(self.log.committed().map_err(io_error)?.map(id_from_record))
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<TypeConfig>) -> Result<(), io::Error>
    where
        I: IntoIterator<Item = LogEntry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let records: Vec<LogRecord> = entries.into_iter().map(to_record).collect();
        let Some(last) = records.last().map(|record| record.index.get()) else {
            callback.io_completed(Ok(()));
            return Ok(());
        };
        let durable = self.durable.clone();
        let done = move |result: Result<(), io::Error>| {
            if result.is_ok() {
                durable.send_if_modified(|index| {
                    let grown = last > *index;
                    *index = last.max(*index);
                    grown
                });
            }
            callback.io_completed(result);
        };
        self.log.append(records, done);
        Ok(())
    }

    async fn truncate_after(&mut self, last_log_id: Option<LogId>) -> Result<(), io::Error> {
        let last = last_log_id.as_ref().map(|id| id.index);
        completed(|done| self.log.truncate_after(last.map(LogIndex), done)).await?;
        headwater_fail_points::fail_point!(LogTruncated);
        // Lowered only now: appends complete in order, so no truncated append can raise it after
        // this. Later appends at those indexes raise it again.
        self.durable.send_modify(|index| *index = (*index).min(last.unwrap_or(0)));
        Ok(())
    }

    async fn purge(&mut self, upto: LogId) -> Result<(), io::Error> {
        headwater_fail_points::fail_point!(LogPurge);
        self.durable.send_modify(|index| *index = (*index).max(upto.index));
        // Later changes are never durable without it, and nothing else depends on it: no reason to
        // wait for the disk.
        self.log.purge(id_to_record(&upto), |_| {});
        Ok(())
    }
}
