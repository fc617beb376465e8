//! A store for tests, and short forms to write commands and to read pairs.
//!
//! A pair reads `key=value@create/mod/version`, with `/lease` if it is attached to one.

use bytes::Bytes;
use tempfile::TempDir;

use headwater_storage::state::{AppliedState, Committed, StateOptions, StateStore};
use headwater_types::{
    Alarm, AlarmKind, Command, Compact, Compare, CompareOp, CompareTarget, DeleteRange, Deleted, KeyRange, KeyValue,
    Lease, LeaseChoice, LeaseGrant, LeaseId, LogIndex, NodeId, Outcome, Proposal, Put, Quota, RangeQuery, RangeResult,
    ReadAt, Refusal, Revision, SetAlarm, Term, TrimHistory, Txn, TxnDone, TxnOp, ValueChoice,
};

pub(super) struct TestBed {
    // Declared first, so that it is closed before its directory is removed.
    pub(super) store: StateStore,
    pub(super) dir: TempDir,
    /// Log index of the next log entry.
    pub(super) next: u64,
}

pub(super) fn bytes(text: impl AsRef<[u8]>) -> Bytes {
    Bytes::copy_from_slice(text.as_ref())
}

/// A directory in memory if the system has one: these tests check rules, and would mostly wait for
/// the disk.
pub(super) fn scratch_dir() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

pub(super) fn options() -> StateOptions {
    StateOptions {
        block_cache_bytes: 1 << 20,
        memtable_bytes: 1 << 20,
        key_cache_bytes: 1 << 16,
        hot_records_bytes: 1 << 16,
        lease_cache_bytes: 1 << 10,
        open_files_max: 64,
        ..StateOptions::default()
    }
}

impl TestBed {
    pub(super) fn new() -> Self {
        let dir = scratch_dir();
        let store = StateStore::open(dir.path(), &options()).unwrap();
        Self { dir, store, next: 1 }
    }

    /// The store, closed and opened again: its state is then read from disk.
    pub(super) fn reopened(self) -> Self {
        self.reopened_with(options())
    }

    /// As [`reopened`](Self::reopened), with other options.
    pub(super) fn reopened_with(self, options: StateOptions) -> Self {
        let Self { dir, store, next } = self;
        drop(store);
        let store = StateStore::open(dir.path(), &options).unwrap();
        Self { dir, store, next }
    }

    /// A store with these commands applied, which must all be accepted.
    pub(super) fn with(commands: impl IntoIterator<Item = Command>) -> Self {
        let mut bed = Self::new();
        for command in commands {
            let outcome = bed.apply(command);
            assert!(!matches!(outcome, Outcome::Refused(_)), "{outcome:?}");
        }
        bed
    }

    /// Applies one command in a commit of its own.
    pub(super) fn apply(&mut self, command: Command) -> Outcome {
        let (mut outcomes, _) = self.apply_all([command], true);
        outcomes.pop().unwrap()
    }

    /// Applies commands in one commit, in the log of term 1.
    pub(super) fn apply_all(
        &mut self,
        commands: impl IntoIterator<Item = Command>,
        want: bool,
    ) -> (Vec<Outcome>, Committed) {
        self.apply_in(Term(1), commands, want)
    }

    /// Applies commands in one commit, in the log of `term`.
    pub(super) fn apply_in(
        &mut self,
        term: Term,
        commands: impl IntoIterator<Item = Command>,
        want: bool,
    ) -> (Vec<Outcome>, Committed) {
        let db = self.store.current();
        let mut txn = self.store.begin(&db).unwrap();
        let mut outcomes = Vec::new();
        for command in commands {
            let index = LogIndex(self.next);
            let proposal = Proposal::new(1_000_000 + self.next, command);
            outcomes.push(crate::apply(&mut txn, term, index, &proposal, want).unwrap());
            txn.set_applied(&AppliedState { term, index, membership: None });
            self.next += 1;
        }
        (outcomes, txn.commit().unwrap())
    }

    pub(super) fn revision(&self) -> i64 {
        self.store.current().head().revision.get()
    }

    pub(super) fn range(&self, query: &RangeQuery) -> Result<RangeResult, Refusal> {
        crate::range(&self.store.current().view().unwrap(), query).unwrap()
    }

    pub(super) fn read_txn(&self, txn: &Txn) -> Result<TxnDone, Refusal> {
        crate::read_txn(&self.store.current().view().unwrap(), txn).unwrap()
    }

    /// All live pairs.
    pub(super) fn pairs(&self) -> Vec<String> {
        show_all(&self.range(&RangeQuery::new(KeyRange::all())).unwrap().kvs)
    }

    /// All pairs that were live at a revision.
    pub(super) fn pairs_at(&self, revision: i64) -> Result<Vec<String>, Refusal> {
        let query = RangeQuery { at: at(revision), ..RangeQuery::new(KeyRange::all()) };
        Ok(show_all(&self.range(&query)?.kvs))
    }

    /// Grants a lease, and returns the log index of its grant.
    pub(super) fn grant(&mut self, lease: i64) -> LogIndex {
        let granted = LogIndex(self.next);
        assert_eq!(self.apply(grant(lease, 60)), Outcome::LeaseGranted { ttl_seconds: 60 });
        granted
    }

    /// The lease with this id.
    pub(super) fn lease(&self, lease: i64) -> Option<Lease> {
        self.store.current().view().unwrap().lease(LeaseId(lease)).unwrap()
    }

    /// Keys that are attached to a lease.
    pub(super) fn lease_keys(&self, lease: i64) -> Vec<Bytes> {
        self.store.current().view().unwrap().lease_keys(LeaseId(lease)).unwrap()
    }

    pub(super) fn hash(&self) -> u64 {
        self.store.current().view().unwrap().state_hash().unwrap()
    }

    /// Reclaims all history below the compaction point, in steps of `limit`. Returns the number of
    /// removed versions.
    pub(super) fn reclaim(&self, limit: usize) -> usize {
        let mut removed = 0;
        loop {
            let progress = self.store.current().reclaim_step(limit).unwrap();
            removed += progress.removed;
            if progress.done {
                return removed;
            }
        }
    }
}

pub(super) fn show(kv: &KeyValue) -> String {
    let lease = if kv.lease.is_some() { format!("/{}", kv.lease) } else { String::new() };
    format!(
        "{}={}@{}/{}/{}{lease}",
        kv.key.escape_ascii(),
        kv.value.escape_ascii(),
        kv.create_revision,
        kv.mod_revision,
        kv.version
    )
}

pub(super) fn show_all(kvs: &[KeyValue]) -> Vec<String> {
    kvs.iter().map(show).collect()
}

pub(super) fn at(revision: i64) -> ReadAt {
    if revision == 0 { ReadAt::Current } else { ReadAt::Revision(Revision(revision)) }
}

pub(super) fn put_of(key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Put {
    Put {
        key: bytes(key),
        value: ValueChoice::Set(bytes(value)),
        lease: LeaseChoice::Set(LeaseId::NONE),
        prev_kv: false,
    }
}

pub(super) fn put(key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Command {
    Command::Put(put_of(key, value))
}

/// An interval with `end` as on the wire: empty is one key, `"\0"` is everything from `key` on.
pub(super) fn span(key: impl AsRef<[u8]>, end: impl AsRef<[u8]>) -> KeyRange {
    KeyRange::from_etcd(bytes(key), bytes(end))
}

pub(super) fn del_of(key: impl AsRef<[u8]>, end: impl AsRef<[u8]>) -> DeleteRange {
    DeleteRange { range: span(key, end), prev_kv: false }
}

pub(super) fn del(key: impl AsRef<[u8]>, end: impl AsRef<[u8]>) -> Command {
    Command::DeleteRange(del_of(key, end))
}

pub(super) fn get(key: impl AsRef<[u8]>, end: impl AsRef<[u8]>) -> RangeQuery {
    RangeQuery::new(span(key, end))
}

pub(super) fn grant(lease: i64, ttl_seconds: i64) -> Command {
    Command::LeaseGrant(LeaseGrant { id: LeaseId(lease), ttl_seconds })
}

pub(super) fn set_alarm(member: u64, kind: AlarmKind, active: bool) -> Command {
    Command::SetAlarm(SetAlarm { alarm: Alarm { member: NodeId(member), kind }, active })
}

/// Command that sets the quota, as configured by member 2. `None` is no bound.
pub(super) fn quota(bytes_max: Option<u64>) -> Command {
    Command::SetQuota(Quota { bytes_max, member: NodeId(2) })
}

pub(super) fn compact(revision: i64) -> Command {
    Command::Compact(Compact { revision: Revision(revision) })
}

pub(super) fn trim(from: u64) -> Command {
    Command::TrimHistory(TrimHistory { from: LogIndex(from) })
}

pub(super) fn compare(key: impl AsRef<[u8]>, op: CompareOp, target: CompareTarget) -> Compare {
    Compare { range: span(key, ""), op, target }
}

/// A compare that holds if the key exists.
pub(super) fn exists(key: impl AsRef<[u8]>) -> Compare {
    compare(key, CompareOp::Greater, CompareTarget::Version(0))
}

pub(super) fn op_put(key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> TxnOp {
    TxnOp::Put(put_of(key, value))
}

pub(super) fn op_del(key: impl AsRef<[u8]>, end: impl AsRef<[u8]>) -> TxnOp {
    TxnOp::DeleteRange(del_of(key, end))
}

pub(super) fn op_get(key: impl AsRef<[u8]>, end: impl AsRef<[u8]>) -> TxnOp {
    TxnOp::Range(get(key, end))
}

pub(super) fn txn(compares: Vec<Compare>, success: Vec<TxnOp>, failure: Vec<TxnOp>) -> Txn {
    Txn { compares, success, failure }
}

pub(super) fn compacted(point: i64) -> Refusal {
    Refusal::Compacted { compact_revision: Revision(point) }
}

pub(super) fn future(current: i64) -> Refusal {
    Refusal::FutureRevision { current: Revision(current) }
}

pub(super) fn deleted(outcome: Outcome) -> Deleted {
    match outcome {
        Outcome::DeleteRange(deleted) => deleted,
        other => panic!("{other:?}"),
    }
}

pub(super) fn txn_done(outcome: Outcome) -> TxnDone {
    match outcome {
        Outcome::Txn(done) => done,
        other => panic!("{other:?}"),
    }
}
