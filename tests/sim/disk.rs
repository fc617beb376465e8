//! The simulated disk of a member's log: a write can be read at once, and survives a loss of power
//! once it is flushed.
//!
//! One task flushes, as in `storage::log`: pending writes in order, and then reports them. After a
//! loss of power, any prefix of the unflushed writes may be on disk, and a part of the append after
//! it. (Reordered writes need no case of their own: the log waits for one before it begins the
//! next.)

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use openraft::storage::{IOFlushed, LogState, RaftLogStorage};
use openraft::{OptionalSend, RaftLogReader};
use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tokio::sync::{Notify, oneshot, watch};

use super::committed::Committed;
use super::us;
use headwater_raft::parts::{LogEntry, LogId, TypeConfig, Vote};

/// Content of a member's Raft log: its entries, purge position, vote and committed position.
#[derive(Clone, Default)]
struct Content {
    entries: BTreeMap<u64, LogEntry>,
    purged: Option<LogId>,
    vote: Option<Vote>,
    committed: Option<LogId>,
}

enum Change {
    Append(Vec<LogEntry>),
    TruncateAfter(u64),
    Purge(LogId),
    Vote(Vote),
    Committed(Option<LogId>),
}

impl Content {
    fn make(&mut self, change: &Change) {
        match change {
            Change::Append(entries) => {
                self.entries.extend(entries.iter().map(|entry| (entry.log_id.index, entry.clone())));
            }
            Change::TruncateAfter(last) => drop(self.entries.split_off(&(last + 1))),
            Change::Purge(upto) => {
                self.entries = self.entries.split_off(&(upto.index + 1));
                self.purged = Some(*upto);
            }
            Change::Vote(vote) => self.vote = Some(*vote),
            Change::Committed(committed) => self.committed.clone_from(committed),
        }
    }
}

/// The party that is notified when a change is flushed.
enum Waiting {
    Nobody,
    Append(IOFlushed<TypeConfig>, u64),
    Change(oneshot::Sender<()>),
}

struct State {
    /// The content that survives a loss of power.
    safe: Content,
    /// The content that the running process sees.
    live: Content,
    unflushed: VecDeque<(Change, Waiting)>,
    /// Number of starts and losses of power so far, which identifies the running process. A read or
    /// write with another number comes from an ended process, and fails.
    process: u64,
    /// Highest log index of the entries that this process has recorded in [`Disk::committed`], for
    /// the comparison with other members; 0 before the first. Not `Content::committed`.
    noted: u64,
    rng: SmallRng,
    flush_ms_max: u64,
    /// Whether changes are reported as flushed before they are (the control `LyingDisk`).
    lies: bool,
}

/// The disk with the log of one member. It outlives the processes of the member.
pub(super) struct Disk {
    member: u64,
    state: Mutex<State>,
    changed: Notify,
    committed: Arc<Committed>,
}

impl Disk {
    pub(super) fn new(member: u64, seed: u64, lies: bool, committed: Arc<Committed>) -> Arc<Self> {
        let state = State {
            safe: Content::default(),
            live: Content::default(),
            unflushed: VecDeque::new(),
            process: 0,
            noted: 0,
            rng: SmallRng::seed_from_u64(seed),
            flush_ms_max: 3,
            lies,
        };
        Arc::new(Self { member, state: Mutex::new(state), changed: Notify::new(), committed })
    }

    /// Sets the longest time of a flush, simulated milliseconds.
    pub(super) fn set_flush_ms_max(&self, flush_ms_max: u64) {
        self.state.lock().flush_ms_max = flush_ms_max;
    }

    /// Opens the log for a new process, and starts its flush task.
    pub(super) fn open(self: &Arc<Self>) -> SimLog {
        let mut state = self.state.lock();
        state.process += 1;
        state.noted = 0;
        let last = state.live.entries.keys().next_back().copied();
        let last = last.or(state.live.purged.as_ref().map(|id| id.index)).unwrap_or(0);
        let log = SimLog { disk: Arc::clone(self), process: state.process, durable: watch::Sender::new(last) };
        drop(state);
        tokio::spawn(log.clone().flush());
        log
    }

    /// Loss of power: of the unflushed writes, only a random prefix survives, and a part of the
    /// append after it. With the control `LyingDisk` none survives.
    pub(super) fn lose_power(&self) {
        let mut state = self.state.lock();
        let State { safe, unflushed, rng, process, lies, .. } = &mut *state;
        *process += 1;
        let kept = if *lies { 0 } else { rng.random_range(0..=unflushed.len()) };
        for (number, (change, _)) in std::mem::take(unflushed).into_iter().enumerate() {
            match change {
                change if number < kept => safe.make(&change),
                Change::Append(mut entries) if number == kept && !*lies => {
                    entries.truncate(rng.random_range(0..=entries.len()));
                    safe.make(&Change::Append(entries));
                }
                _ => break,
            }
        }
        state.live = state.safe.clone();
        drop(state);
        // Wakes the flush task of the ended process, so that it ends now. Else it could take a
        // wake-up for the next process's task.
        self.changed.notify_waiters();
    }
}

/// The log as opened by one process.
#[derive(Clone)]
pub(super) struct SimLog {
    disk: Arc<Disk>,
    process: u64,
    durable: watch::Sender<u64>,
}

impl SimLog {
    /// The highest log index that is flushed, as it changes.
    pub(super) fn durable(&self) -> watch::Receiver<u64> {
        self.durable.subscribe()
    }

    fn read<T>(&self, read: impl FnOnce(&Content) -> T) -> Result<T, io::Error> {
        let state = self.disk.state.lock();
        if state.process == self.process { Ok(read(&state.live)) } else { Err(off()) }
    }

    fn write(&self, change: Change, waiting: Waiting) -> Result<(), io::Error> {
        let mut state = self.disk.state.lock();
        if state.process != self.process {
            return Err(off());
        }
        state.live.make(&change);
        if state.lies {
            state.unflushed.push_back((change, Waiting::Nobody));
            drop(state);
            self.report(waiting);
        } else {
            state.unflushed.push_back((change, waiting));
            drop(state);
        }
        self.disk.changed.notify_one();
        Ok(())
    }

    /// Records the entries up to `committed`, which this member is about to apply. Records none if
    /// the last of them is not in its log, because it came in a snapshot.
    fn note_committed(&self, committed: &LogId) -> Result<(), io::Error> {
        let mut state = self.disk.state.lock();
        if state.process != self.process {
            return Err(off());
        }
        // The committed index may go back: a write queued behind the installation of a snapshot is
        // older than the snapshot.
        let is_new = committed.index > state.noted;
        if is_new && state.live.entries.get(&committed.index).is_some_and(|entry| entry.log_id == *committed) {
            for (_, entry) in state.live.entries.range(state.noted + 1..=committed.index) {
                self.disk.committed.note(self.disk.member, entry);
            }
            state.noted = committed.index;
        }
        Ok(())
    }

    fn report(&self, waiting: Waiting) {
        match waiting {
            Waiting::Nobody => {}
            Waiting::Append(callback, last) => {
                self.durable.send_modify(|durable| *durable = last.max(*durable));
                callback.io_completed(Ok(()));
            }
            // After a loss of power the waiter may be gone.
            Waiting::Change(done) => drop(done.send(())),
        }
    }

    async fn flush(self) {
        loop {
            let pause = {
                let mut state = self.disk.state.lock();
                if state.process != self.process {
                    return;
                }
                let most = if state.lies { 400 } else { state.flush_ms_max };
                // Drawn only if a write is unflushed: the random sequence must not depend on the
                // number of wake-ups.
                let any = !state.unflushed.is_empty();
                any.then(|| us(state.rng.random_range(100..=most * 1000)))
            };
            let Some(pause) = pause else {
                self.disk.changed.notified().await;
                continue;
            };
            tokio::time::sleep(pause).await;
            let flushed = {
                let mut state = self.disk.state.lock();
                if state.process != self.process {
                    return;
                }
                let flushed = std::mem::take(&mut state.unflushed);
                flushed.iter().for_each(|(change, _)| state.safe.make(change));
                flushed
            };
            flushed.into_iter().for_each(|(_, waiting)| self.report(waiting));
        }
    }

    async fn write_and_wait(&self, change: Change) -> Result<(), io::Error> {
        let (done, wait) = oneshot::channel();
        self.write(change, Waiting::Change(done))?;
        wait.await.map_err(|_| off())
    }
}

fn off() -> io::Error {
    io::Error::other("the power is off")
}

impl RaftLogReader<TypeConfig> for SimLog {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> Result<Vec<LogEntry>, io::Error> {
        let range = (range.start_bound().cloned(), range.end_bound().cloned());
        let is_empty = match range {
            (Bound::Included(start), Bound::Excluded(end)) => start >= end,
            _ => false,
        };
        self.read(|content| match is_empty {
            true => Vec::new(),
            false => content.entries.range(range).map(|(_, entry)| entry.clone()).collect(),
        })
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, io::Error> {
        self.read(|content| content.vote)
    }
}

impl RaftLogStorage<TypeConfig> for SimLog {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Result<LogState<TypeConfig>, io::Error> {
        self.read(|content| {
            let last = content.entries.values().next_back().map(|entry| entry.log_id);
            LogState { last_purged_log_id: content.purged, last_log_id: last.or(content.purged) }
        })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), io::Error> {
        self.write_and_wait(Change::Vote(*vote)).await
    }

    async fn save_committed(&mut self, committed: Option<LogId>) -> Result<(), io::Error> {
        if let Some(committed) = &committed {
            self.note_committed(committed)?;
        }
        self.write(Change::Committed(committed), Waiting::Nobody)
    }

    async fn read_committed(&mut self) -> Result<Option<LogId>, io::Error> {
        self.read(|content| content.committed)
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<TypeConfig>) -> Result<(), io::Error>
    where
        I: IntoIterator<Item = LogEntry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let entries: Vec<LogEntry> = entries.into_iter().collect();
        let Some(last) = entries.last().map(|entry| entry.log_id.index) else {
            callback.io_completed(Ok(()));
            return Ok(());
        };
        self.write(Change::Append(entries), Waiting::Append(callback, last))
    }

    async fn truncate_after(&mut self, last_log_id: Option<LogId>) -> Result<(), io::Error> {
        let last = last_log_id.map_or(0, |id| id.index);
        self.write_and_wait(Change::TruncateAfter(last)).await?;
        self.durable.send_modify(|durable| *durable = (*durable).min(last));
        Ok(())
    }

    async fn purge(&mut self, upto: LogId) -> Result<(), io::Error> {
        self.durable.send_modify(|durable| *durable = (*durable).max(upto.index));
        self.write(Change::Purge(upto), Waiting::Nobody)
    }
}
