//! A store on disk, filled by commands without consensus: the fixture of the benchmarks of writes
//! and of ranges.

use std::time::{Duration, Instant};

use bytes::Bytes;
use headwater_storage::state::{AppliedState, StateOptions, StateStore};
use headwater_types::{
    Command, CommitOutcome, LeaseChoice, LeaseId, LogIndex, Outcome, Proposal, Put, Term, ValueChoice,
};

/// Length of a value, bytes, in benchmarks that do not vary it.
pub(crate) const VALUE_BYTES: usize = 256;

/// A store in a temporary folder, and the log index of the next command.
pub(crate) struct Bed {
    dir: tempfile::TempDir,
    pub(crate) store: StateStore,
    next: u64,
    /// The last input of [`scatter`] in [`Bed::fresh`].
    seed: u64,
}

pub(crate) fn key(number: u64) -> Bytes {
    Bytes::from(format!("/registry/bench/{number:016x}"))
}

pub(crate) fn put(key: Bytes, fill: u64, bytes: usize) -> Proposal {
    let mut value = vec![0u8; bytes];
    for (word, chunk) in (fill..).zip(value.chunks_exact_mut(8)) {
        chunk.copy_from_slice(&scatter(word).to_le_bytes());
    }
    let command = Command::Put(Put {
        key,
        value: ValueChoice::Set(value.into()),
        lease: LeaseChoice::Set(LeaseId::NONE),
        prev_kv: false,
    });
    Proposal::new(1, command)
}

/// A number that looks random; the same one for the same `number`, in every run.
pub(crate) fn scatter(number: u64) -> u64 {
    let mixed = (number ^ (number >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) ^ (mixed >> 32)
}

impl Bed {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let store = StateStore::open(dir.path(), &StateOptions::default()).expect("a store");
        Self { dir, store, next: 1, seed: 1 }
    }

    /// Flushes and closes the store, and opens it again: every cache of this process is empty.
    pub(crate) fn reopened(self) -> Self {
        let Self { dir, store, next, seed } = self;
        store.current().flush().expect("a flush");
        drop(store);
        let store = StateStore::open(dir.path(), &StateOptions::default()).expect("a store");
        Self { dir, store, next, seed }
    }

    /// Applies `proposals` in one write transaction; returns the time that this took, with its
    /// commit. Panics if one of them is refused or fails.
    pub(crate) fn apply(&mut self, proposals: &[Proposal]) -> Duration {
        let start = Instant::now();
        let db = self.store.current();
        let mut txn = self.store.begin(&db).expect("a transaction");
        for proposal in proposals {
            let index = LogIndex(self.next);
            self.next += 1;
            let outcome = headwater_fsm::apply(&mut txn, Term(1), index, proposal, true).expect("no failure");
            let is_refused = matches!(outcome, Outcome::Refused(_) | Outcome::Commit(CommitOutcome::Failed(_)));
            assert!(!is_refused, "{outcome:?}");
            txn.set_applied(&AppliedState { term: Term(1), index, membership: None });
        }
        txn.commit().expect("a commit");
        start.elapsed()
    }

    /// Puts a key for each of the numbers `keys`, in their order, one command each; 512 a commit.
    /// `bytes` is the length of a value.
    pub(crate) fn load(&mut self, keys: impl Iterator<Item = u64>, bytes: usize) {
        let mut batch = Vec::new();
        for number in keys {
            batch.push(put(key(number), number, bytes));
            if batch.len() == 512 {
                self.apply(&batch);
                batch.clear();
            }
        }
        self.apply(&batch);
    }

    pub(crate) fn fresh(&mut self) -> u64 {
        self.seed += 1;
        scatter(self.seed)
    }
}

/// Number of keys to load before a measurement; few if the benches are only tried (`--test`). Some
/// benches load a quarter of it.
pub(crate) fn preload() -> u64 {
    if std::env::args().any(|arg| arg == "--test") { 1000 } else { 200_000 }
}
