//! A second implementation of the rules of most commands, in the simplest way: maps that are copied
//! for every revision.
//!
//! It shares only the vocabulary with the code under test.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use bytes::Bytes;
use proptest::prelude::*;

use super::bed::*;
use super::{catalog, commit_model, invitation};
use headwater_types::{
    ClusterVersion, Command, Compare, CompareOp, CompareTarget, DeleteRange, Deleted, KeyRange, KeyValue, Lease,
    LeaseAttach, LeaseCheckpoint, LeaseChoice, LeaseExpire, LeaseId, LeaseRemaining, LeaseRevoke, LeaseTxn, LogIndex,
    MemberProgram, NodeId, Outcome, Proposal, Put, PutDone, RangeDone, RangeQuery, RangeResult, ReadAt, Refusal,
    Revision, RevisionFilter, SortOrder, SortTarget, Term, Txn, TxnDone, TxnOp, TxnOpDone, ValueChoice, Version,
    VersionChange, VersionRefusal,
};

pub(super) type State = BTreeMap<Bytes, KeyValue>;

#[derive(Clone)]
pub struct Model {
    pub revision: i64,
    pub(super) compacted: i64,
    pub(super) now: State,
    pub(super) leases: BTreeMap<LeaseId, Lease>,
    pub(super) clock_ms: u64,
    catalog: catalog::model::Model,
    pub(super) index: u64,
    /// Term of the log entry that is being applied.
    term: Term,
    /// The state after each revision.
    pub past: BTreeMap<i64, State>,
    /// The log index of each revision.
    pub(super) made_at: BTreeMap<i64, u64>,
    /// Log index from which on history can be read; zero if there was no compaction. A trim by log
    /// index may put it above the log index of the revision `compacted`.
    pub(super) floor: u64,
    version: ClusterVersion,
    programs: BTreeMap<NodeId, MemberProgram>,
    invitations: invitation::Model,
    /// Time of the proposal that is being applied; `None` for that of the test bed.
    pub(super) unix_ms: Option<u64>,
    pub(super) commits: commit_model::Commits,
}

impl Model {
    pub fn new() -> Self {
        Self {
            revision: 1,
            compacted: -1,
            now: State::new(),
            leases: BTreeMap::new(),
            clock_ms: 0,
            catalog: Default::default(),
            index: 0,
            term: Term(1),
            past: BTreeMap::from([(1, State::new())]),
            made_at: BTreeMap::from([(1, 0)]),
            floor: 0,
            version: ClusterVersion::FIRST,
            programs: BTreeMap::new(),
            invitations: invitation::Model::default(),
            unix_ms: None,
            commits: commit_model::Commits::default(),
        }
    }

    /// Applies the proposal of the log entry of `term` at `index`.
    pub fn apply_at(&mut self, term: Term, index: LogIndex, proposal: &Proposal) -> Outcome {
        (self.term, self.index, self.unix_ms) = (term, index.get() - 1, Some(proposal.unix_ms));
        if proposal.needs() > self.version.version {
            self.index += 1;
            return Outcome::Refused(Refusal::NeedsVersion { needs: proposal.needs() });
        }
        self.apply(&proposal.command)
    }

    pub fn apply(&mut self, command: &Command) -> Outcome {
        let mut next = self.now.clone();
        self.index += 1;
        let outcome = match command {
            _ if command.needs() > self.version.version => Err(Refusal::NeedsVersion { needs: command.needs() }),
            Command::Bootstrap(_) => Ok(Outcome::Bootstrapped),
            Command::Compact(compact) => self.compact(compact.revision.get()),
            Command::TrimHistory(trim) => Ok(self.trim(trim.from)),
            Command::Put(put) => self.put(&mut next, put).map(Outcome::Put),
            Command::DeleteRange(delete) => Ok(Outcome::DeleteRange(self.delete(&mut next, delete, false))),
            Command::Txn(txn) => self.txn(&mut next, txn).map(Outcome::Txn),
            Command::LeaseGrant(grant) => self.grant(grant.id, grant.ttl_seconds),
            Command::LeaseRevoke(revoke) => self.end(&mut next, revoke.id),
            Command::LeaseExpire(expire) => match self.leases.get(&expire.id) {
                Some(lease) if lease.granted != expire.granted || expire.term != self.term => Err(Refusal::LeaseStale),
                _ => self.end(&mut next, expire.id),
            },
            Command::LeaseCheckpoint(checkpoint) => self.checkpoint(checkpoint),
            Command::LeaseAttach(attach) => self.attach(&mut next, attach),
            Command::LeaseTxn(request) => self.lease_txn(&mut next, request).map(Outcome::Txn),
            Command::SetAlarm(_) | Command::SetQuota(_) => unreachable!("never made here: `alarm` has their tables"),
            Command::Catalog(command) => Ok(self.catalog.apply(command)),
            Command::Resource(_) | Command::Consul(_) | Command::Acl(_) => {
                unreachable!("never made here: they have models of their own")
            }
            Command::SetVersion(change) => self.change_version(*change).map_err(Refusal::from),
            Command::AnnounceProgram(member, program) => {
                self.programs.insert(*member, program.clone());
                Ok(Outcome::ProgramAnnounced)
            }
            Command::Invitation(command) => {
                let unix_ms = self.unix_ms.unwrap_or(1_000_000 + self.index);
                self.invitations.apply(self.index, unix_ms, command).map_err(Refusal::from)
            }
            Command::Commit(request) => Ok(Outcome::Commit(self.commit(&mut next, request))),
            Command::Auth(_) => unreachable!("no strategy makes changes of users; `tests::auth` has their rules"),
            #[cfg(feature = "next-version")]
            Command::Note(_) => Ok(Outcome::Noted),
        };
        if outcome.is_ok() && next != self.now {
            self.revision += 1;
            self.commits.note(self.index, &self.now, &next);
            self.now = next;
            self.past.insert(self.revision, self.now.clone());
            self.made_at.insert(self.revision, self.index);
        }
        outcome.unwrap_or_else(Outcome::Refused)
    }

    fn change_version(&mut self, change: VersionChange) -> Result<Outcome, VersionRefusal> {
        let ClusterVersion { version, is_downgrading } = self.version;
        let is_supported = |to| self.programs.values().all(|program| program.supported.has(to));
        self.version = match change {
            VersionChange::Raise { term, .. } if term != self.term => return Err(VersionRefusal::Stale),
            VersionChange::Raise { to, .. } if is_downgrading || to <= version || !is_supported(to) => {
                return Err(VersionRefusal::Stale);
            }
            VersionChange::Raise { to, .. } => ClusterVersion { version: to, is_downgrading: false },
            VersionChange::Downgrade { .. } if is_downgrading => return Err(VersionRefusal::Downgrading),
            VersionChange::Downgrade { to } => {
                let is_one_below = to.major() == version.major() && to.minor() + 1 == version.minor();
                if !is_one_below || to < Version::V0_3 || !is_supported(to) {
                    return Err(VersionRefusal::Target);
                }
                if to < Version::V0_4 {
                    self.invitations.clear();
                    self.commits.clear();
                }
                ClusterVersion { version: to, is_downgrading: true }
            }
            VersionChange::EndDowngrade if is_downgrading => ClusterVersion { version, is_downgrading: false },
            VersionChange::EndDowngrade => return Err(VersionRefusal::NotDowngrading),
        };
        Ok(Outcome::VersionSet)
    }

    fn compact(&mut self, revision: i64) -> Result<Outcome, Refusal> {
        if revision <= self.compacted {
            return Err(compacted(self.compacted));
        }
        if revision > self.revision {
            return Err(future(self.revision));
        }
        self.compacted = revision;
        self.floor = self.floor.max(self.made_at.get(&revision).copied().unwrap_or(0));
        Ok(Outcome::Compacted)
    }

    fn trim(&mut self, from: LogIndex) -> Outcome {
        let from = from.get().min(self.index);
        if from > self.floor {
            self.floor = from;
            let current = self.made_at.iter().filter(|(_, index)| **index <= from).map(|(revision, _)| *revision).max();
            // There is nothing to compact before the first revision.
            if let Some(current) = current.filter(|current| *current > self.compacted.max(1)) {
                self.compacted = current;
            }
        }
        Outcome::Compacted
    }

    pub(super) fn grant(&mut self, id: LeaseId, ttl_seconds: i64) -> Result<Outcome, Refusal> {
        if self.leases.contains_key(&id) {
            return Err(Refusal::LeaseExists);
        }
        self.leases.insert(id, Lease { granted: LogIndex(self.index), ttl_seconds, due_ms: None });
        Ok(Outcome::LeaseGranted { ttl_seconds })
    }

    fn end(&mut self, next: &mut State, id: LeaseId) -> Result<Outcome, Refusal> {
        self.leases.remove(&id).ok_or(Refusal::LeaseNotFound)?;
        next.retain(|_, kv| kv.lease != id);
        Ok(Outcome::LeaseEnded { deleted: (self.now.len() - next.len()) as u64 })
    }

    fn checkpoint(&mut self, checkpoint: &LeaseCheckpoint) -> Result<Outcome, Refusal> {
        if checkpoint.term != self.term {
            return Err(Refusal::LeaseStale);
        }
        self.clock_ms = self.clock_ms.max(checkpoint.clock_ms);
        for said in &checkpoint.leases {
            let lease = self.leases.get_mut(&said.id).filter(|lease| lease.granted == said.granted);
            if let Some(lease) = lease {
                lease.due_ms = said.remaining_ms.map(|remaining_ms| self.clock_ms + remaining_ms);
            }
        }
        Ok(Outcome::LeaseCheckpointed)
    }

    fn attach(&self, next: &mut State, attach: &LeaseAttach) -> Result<Outcome, Refusal> {
        if !self.leases.contains_key(&attach.id) {
            return Err(Refusal::LeaseNotFound);
        }
        let revision = Revision(self.revision + 1);
        match next.get_mut(&attach.key) {
            None => return Err(Refusal::KeyNotFound),
            Some(kv) if kv.lease == attach.id => {}
            Some(kv) => {
                *kv = KeyValue { lease: attach.id, mod_revision: revision, version: kv.version + 1, ..kv.clone() }
            }
        }
        Ok(Outcome::LeaseAttached)
    }

    fn lease_txn(&self, next: &mut State, request: &LeaseTxn) -> Result<TxnDone, Refusal> {
        if has_duplicate(&request.txn.success) || has_duplicate(&request.txn.failure) {
            return Err(Refusal::DuplicateKey);
        }
        let (succeeded, _) = self.list(&request.txn);
        let mut path = Vec::new();
        self.chosen(&request.txn, &mut path);
        let attachments = if succeeded { &request.success } else { &request.failure };
        if attachments.iter().any(|attach| !self.leases.contains_key(&attach.id)) {
            return Err(Refusal::LeaseNotFound);
        }
        let mut ops: Vec<TxnOp> = path.into_iter().cloned().collect();
        let answered = ops.len();
        for LeaseAttach { id, key } in attachments {
            let lease = LeaseChoice::Set(*id);
            let put = ops.iter_mut().find_map(|op| match op {
                TxnOp::Put(put) if put.key == key => Some(put),
                _ => None,
            });
            if let Some(put) = put {
                put.lease = lease;
                continue;
            }
            let deleted = ops.iter().any(|op| matches!(op, TxnOp::DeleteRange(del) if del.range.contains(key)));
            if deleted || self.now.get(key).is_none_or(|kv| kv.lease != *id) {
                ops.push(TxnOp::Put(Put { key: key.clone(), value: ValueChoice::Keep, lease, prev_kv: false }));
            }
        }
        let plain = Txn { compares: vec![], success: ops, failure: vec![] };
        let mut done = self.txn(next, &plain)?;
        done.responses.truncate(answered);
        Ok(TxnDone { succeeded, ..done })
    }

    /// Whether the put names a lease that does not exist.
    fn names_no_lease(&self, put: &Put) -> bool {
        matches!(put.lease, LeaseChoice::Set(lease) if lease.is_some() && !self.leases.contains_key(&lease))
    }

    pub(super) fn put(&self, next: &mut State, put: &Put) -> Result<PutDone, Refusal> {
        if self.names_no_lease(put) {
            return Err(Refusal::LeaseNotFound);
        }
        let old = next.get(&put.key).cloned();
        let value = match (&put.value, &old) {
            (ValueChoice::Set(value), _) => value.clone(),
            (ValueChoice::Keep, Some(old)) => old.value.clone(),
            (ValueChoice::Keep, None) => return Err(Refusal::KeyNotFound),
        };
        let lease = match (put.lease, &old) {
            (LeaseChoice::Set(lease), _) => lease,
            (LeaseChoice::KeepIfPresent, None) => LeaseId::NONE,
            (LeaseChoice::Keep, None) => return Err(Refusal::KeyNotFound),
            (LeaseChoice::Keep | LeaseChoice::KeepIfPresent, Some(old)) => old.lease,
        };
        let revision = Revision(self.revision + 1);
        let kv = KeyValue {
            key: put.key.clone(),
            value,
            create_revision: old.as_ref().map_or(revision, |old| old.create_revision),
            mod_revision: revision,
            version: old.as_ref().map_or(0, |old| old.version) + 1,
            lease,
        };
        next.insert(put.key.clone(), kv);
        Ok(PutDone { revision, prev: old.filter(|_| put.prev_kv) })
    }

    pub(super) fn delete(&self, next: &mut State, delete: &DeleteRange, changed: bool) -> Deleted {
        let doomed: Vec<KeyValue> = next.values().filter(|kv| delete.range.contains(&kv.key)).cloned().collect();
        next.retain(|key, _| !delete.range.contains(key));
        Deleted {
            revision: self.revision_after(changed || !doomed.is_empty()),
            deleted: doomed.len() as u64,
            prev: if delete.prev_kv { doomed } else { vec![] },
        }
    }

    pub(super) fn revision_after(&self, changed: bool) -> Revision {
        Revision(self.revision + i64::from(changed))
    }

    fn check_at(&self, at: ReadAt) -> Result<(), Refusal> {
        match at {
            ReadAt::Revision(Revision(revision)) if revision > self.revision => Err(future(self.revision)),
            ReadAt::Revision(Revision(revision)) if revision < self.compacted.max(0) => {
                Err(compacted(self.compacted.max(0)))
            }
            _ => Ok(()),
        }
    }

    pub fn range(&self, now: &State, query: &RangeQuery) -> Result<RangeResult, Refusal> {
        self.check_at(query.at)?;
        let empty = State::new();
        let state = match query.at {
            ReadAt::Current => now,
            ReadAt::Revision(revision) => self.past.get(&revision.get()).unwrap_or(&empty),
        };
        let inside: Vec<&KeyValue> = state.values().filter(|kv| query.range.contains(&kv.key)).collect();
        let count = inside.len() as u64;
        if query.count_only {
            return Ok(RangeResult { kvs: vec![], more: false, count });
        }
        let limit = if query.limit == 0 { usize::MAX } else { query.limit as usize };
        let mut kvs: Vec<KeyValue> = inside.into_iter().cloned().collect();
        if query.order == SortOrder::None && !query.filter.is_active() {
            kvs.truncate(limit.saturating_add(1));
        }
        let f = &query.filter;
        kvs.retain(|kv| {
            let (modified, created) = (kv.mod_revision.get(), kv.create_revision.get());
            (f.min_mod == 0 || modified >= f.min_mod)
                && (f.max_mod == 0 || modified <= f.max_mod)
                && (f.min_create == 0 || created >= f.min_create)
                && (f.max_create == 0 || created <= f.max_create)
        });
        let compare = |a: &KeyValue, b: &KeyValue| match query.target {
            SortTarget::Key => a.key.cmp(&b.key),
            SortTarget::Version => a.version.cmp(&b.version),
            SortTarget::Create => a.create_revision.cmp(&b.create_revision),
            SortTarget::Mod => a.mod_revision.cmp(&b.mod_revision),
            SortTarget::Value => a.value.cmp(&b.value),
        };
        // The pairs are in key order; equal ones stay so.
        match query.order {
            SortOrder::None | SortOrder::Ascend => kvs.sort_by(compare),
            SortOrder::Descend => kvs.sort_by(|a, b| compare(b, a)),
        }
        let more = kvs.len() > limit;
        kvs.truncate(limit);
        if query.keys_only {
            kvs.iter_mut().for_each(|kv| kv.value = Bytes::new());
        }
        Ok(RangeResult { kvs, more, count })
    }

    fn txn(&self, next: &mut State, txn: &Txn) -> Result<TxnDone, Refusal> {
        for list in [&txn.success, &txn.failure] {
            if has_duplicate(list) {
                return Err(Refusal::DuplicateKey);
            }
        }
        let mut path = Vec::new();
        self.chosen(txn, &mut path);
        for op in &path {
            if let TxnOp::Put(put) = op {
                let keeps = put.value == ValueChoice::Keep || put.lease == LeaseChoice::Keep;
                if keeps && !self.now.contains_key(&put.key) {
                    return Err(Refusal::KeyNotFound);
                }
                if self.names_no_lease(put) {
                    return Err(Refusal::LeaseNotFound);
                }
            }
        }
        for op in &path {
            if let TxnOp::Range(query) = op {
                self.check_at(query.at)?;
            }
        }
        self.run(next, txn)
    }

    fn list<'t>(&self, txn: &'t Txn) -> (bool, &'t [TxnOp]) {
        let yes = txn.compares.iter().all(|compare| self.holds(compare));
        (yes, if yes { &txn.success } else { &txn.failure })
    }

    fn chosen<'t>(&self, txn: &'t Txn, out: &mut Vec<&'t TxnOp>) {
        for op in self.list(txn).1 {
            match op {
                TxnOp::Txn(inner) => self.chosen(inner, out),
                other => out.push(other),
            }
        }
    }

    fn run(&self, next: &mut State, txn: &Txn) -> Result<TxnDone, Refusal> {
        let (succeeded, ops) = self.list(txn);
        let mut responses = Vec::new();
        for op in ops {
            let changed = *next != self.now;
            responses.push(match op {
                TxnOp::Put(put) => TxnOpDone::Put(self.put(next, put)?),
                TxnOp::DeleteRange(delete) => TxnOpDone::DeleteRange(self.delete(next, delete, changed)),
                TxnOp::Range(query) => TxnOpDone::Range(RangeDone {
                    revision: self.revision_after(changed),
                    result: self.range(next, query)?,
                }),
                TxnOp::Txn(inner) => TxnOpDone::Txn(self.run(next, inner)?),
            });
        }
        Ok(TxnDone { succeeded, responses })
    }

    pub(super) fn holds(&self, compare: &Compare) -> bool {
        let inside: Vec<&KeyValue> = self.now.values().filter(|kv| compare.range.contains(&kv.key)).collect();
        let one = |kv: &KeyValue| {
            let order = match &compare.target {
                CompareTarget::Version(given) => kv.version.cmp(given),
                CompareTarget::CreateRevision(given) => kv.create_revision.get().cmp(given),
                CompareTarget::ModRevision(given) => kv.mod_revision.get().cmp(given),
                CompareTarget::Lease(given) => kv.lease.get().cmp(given),
                CompareTarget::Value(given) => kv.value.cmp(given),
            };
            match compare.op {
                CompareOp::Equal => order == Ordering::Equal,
                CompareOp::NotEqual => order != Ordering::Equal,
                CompareOp::Greater => order == Ordering::Greater,
                CompareOp::Less => order == Ordering::Less,
            }
        };
        match (inside.is_empty(), &compare.target) {
            (true, CompareTarget::Value(_)) => false,
            (true, _) => one(&KeyValue::default()),
            (false, _) => inside.into_iter().all(one),
        }
    }
}

/// Whether two operations of a list may touch one key, at least one of them putting it. Also true
/// if that holds within a nested list.
fn has_duplicate(ops: &[TxnOp]) -> bool {
    fn writes<'t>(op: &'t TxnOp, puts: &mut Vec<&'t Bytes>, deletes: &mut Vec<&'t KeyRange>) {
        match op {
            TxnOp::Range(_) => {}
            TxnOp::Put(put) => puts.push(&put.key),
            TxnOp::DeleteRange(delete) => deletes.push(&delete.range),
            TxnOp::Txn(txn) => txn.success.iter().chain(&txn.failure).for_each(|op| writes(op, puts, deletes)),
        }
    }
    let all: Vec<_> = ops
        .iter()
        .map(|op| {
            let (mut puts, mut deletes) = (vec![], vec![]);
            writes(op, &mut puts, &mut deletes);
            (puts, deletes)
        })
        .collect();
    let nested = ops.iter().any(|op| match op {
        TxnOp::Txn(txn) => has_duplicate(&txn.success) || has_duplicate(&txn.failure),
        _ => false,
    });
    nested
        || all.iter().enumerate().any(|(i, (puts, _))| {
            all.iter().enumerate().any(|(j, (others, deletes))| {
                i != j && puts.iter().any(|key| others.contains(key) || deletes.iter().any(|range| range.contains(key)))
            })
        })
}

const KEYS: [&str; 7] = ["a", "a\0", "ab", "b", "c", "d\0\0", "e"];

pub(super) fn key() -> impl Strategy<Value = &'static str> {
    prop::sample::select(KEYS.to_vec())
}

fn interval() -> impl Strategy<Value = KeyRange> {
    prop_oneof![
        4 => key().prop_map(|key| span(key, "")),
        3 => (key(), key()).prop_map(|(key, end)| span(key, end)),
        1 => key().prop_map(|key| span(key, "\0")),
        1 => Just(span("\0", "\0")),
    ]
}

/// Few ids, so that commands concern the same leases.
pub(super) fn lease_id() -> impl Strategy<Value = LeaseId> {
    (1..4i64).prop_map(LeaseId)
}

/// Mostly the term of the log.
fn term() -> impl Strategy<Value = Term> {
    prop::sample::select(vec![Term(1), Term(1), Term(1), Term(2)])
}

fn attachments() -> impl Strategy<Value = Vec<LeaseAttach>> {
    // Each key once: another test covers two attachments of one key.
    prop::collection::btree_map(key(), lease_id(), 0..3)
        .prop_map(|all| all.into_iter().map(|(key, id)| LeaseAttach { id, key: bytes(key) }).collect())
}

fn lease_command() -> impl Strategy<Value = Command> {
    // Log indexes begin at 1, and most leases are granted by one of the first commands.
    let granted = || (1..8u64).prop_map(LogIndex);
    let remaining = (lease_id(), granted(), prop::option::of(0..9000u64))
        .prop_map(|(id, granted, remaining_ms)| LeaseRemaining { id, granted, remaining_ms });
    prop_oneof![
        4 => (1..4i64, 1..90i64).prop_map(|(id, ttl)| grant(id, ttl)),
        1 => lease_id().prop_map(|id| Command::LeaseRevoke(LeaseRevoke { id })),
        2 => (lease_id(), granted(), term())
            .prop_map(|(id, granted, term)| Command::LeaseExpire(LeaseExpire { id, granted, term })),
        2 => (term(), 0..9000u64, prop::collection::vec(remaining, 0..3)).prop_map(|(term, clock_ms, leases)| {
            Command::LeaseCheckpoint(LeaseCheckpoint { term, clock_ms, leases })
        }),
        2 => (lease_id(), key()).prop_map(|(id, key)| Command::LeaseAttach(LeaseAttach { id, key: bytes(key) })),
        3 => (txn_strategy(1), attachments(), attachments())
            .prop_map(|(txn, success, failure)| Command::LeaseTxn(LeaseTxn { txn, success, failure })),
    ]
}

pub(super) fn put_strategy() -> impl Strategy<Value = Put> {
    let value = prop_oneof![
        6 => "[x-z]{0,3}".prop_map(|value| ValueChoice::Set(bytes(value))),
        1 => Just(ValueChoice::Keep),
    ];
    let lease = prop_oneof![
        8 => Just(LeaseChoice::Set(LeaseId::NONE)),
        1 => Just(LeaseChoice::Keep),
        1 => Just(LeaseChoice::KeepIfPresent),
        2 => lease_id().prop_map(LeaseChoice::Set),
    ];
    (key(), value, lease, any::<bool>()).prop_map(|(key, value, lease, prev_kv)| Put {
        key: bytes(key),
        value,
        lease,
        prev_kv,
    })
}

pub(super) fn delete_strategy() -> impl Strategy<Value = DeleteRange> {
    (interval(), any::<bool>()).prop_map(|(range, prev_kv)| DeleteRange { range, prev_kv })
}

pub fn query() -> impl Strategy<Value = RangeQuery> {
    let order = prop::sample::select(vec![SortOrder::None, SortOrder::Ascend, SortOrder::Descend]);
    let target = prop::sample::select(vec![
        SortTarget::Key,
        SortTarget::Version,
        SortTarget::Create,
        SortTarget::Mod,
        SortTarget::Value,
    ]);
    let filter = prop_oneof![
        3 => Just(RevisionFilter::default()),
        1 => (0..9i64, 0..20i64, 0..9i64, 0..20i64)
            .prop_map(|(min_mod, max_mod, min_create, max_create)| RevisionFilter { min_mod, max_mod, min_create, max_create }),
    ];
    (
        interval(),
        prop_oneof![2 => Just(0), 1 => -1..30i64],
        0..5u64,
        order,
        target,
        filter,
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(|(range, revision, limit, order, target, filter, keys_only, count_only)| RangeQuery {
            range,
            at: at(revision),
            limit,
            order,
            target,
            filter,
            keys_only,
            count_only,
        })
}

pub(super) fn compare_strategy() -> impl Strategy<Value = Compare> {
    let op = prop::sample::select(vec![CompareOp::Equal, CompareOp::Greater, CompareOp::Less, CompareOp::NotEqual]);
    let target = prop_oneof![
        (0..4i64).prop_map(CompareTarget::Version),
        (0..12i64).prop_map(CompareTarget::CreateRevision),
        (0..12i64).prop_map(CompareTarget::ModRevision),
        "[x-z]{0,2}".prop_map(|value| CompareTarget::Value(bytes(value))),
        (0..4i64).prop_map(CompareTarget::Lease),
    ];
    (interval(), op, target).prop_map(|(range, op, target)| Compare { range, op, target })
}

fn ops(depth: u32) -> BoxedStrategy<Vec<TxnOp>> {
    let leaf = prop_oneof![
        3 => put_strategy().prop_map(TxnOp::Put),
        2 => delete_strategy().prop_map(TxnOp::DeleteRange),
        2 => query().prop_map(TxnOp::Range),
    ];
    let op = if depth == 0 {
        leaf.boxed()
    } else {
        prop_oneof![4 => leaf, 1 => txn_strategy(depth - 1).prop_map(TxnOp::Txn)].boxed()
    };
    prop::collection::vec(op, 0..4).boxed()
}

fn txn_strategy(depth: u32) -> BoxedStrategy<Txn> {
    (prop::collection::vec(compare_strategy(), 0..2), ops(depth), ops(depth))
        .prop_map(|(compares, success, failure)| Txn { compares, success, failure })
        .boxed()
}

pub fn command() -> impl Strategy<Value = Command> {
    prop_oneof![
        6 => put_strategy().prop_map(Command::Put),
        3 => delete_strategy().prop_map(Command::DeleteRange),
        4 => txn_strategy(2).prop_map(Command::Txn),
        5 => lease_command(),
        2 => invitation::command(),
        3 => commit_model::command(),
        1 => (-1..30i64).prop_map(compact),
        1 => (0..60u64).prop_map(trim),
    ]
}
