//! Simulated leaders of the real node: of five members, four exist only here. Their log has a
//! history that Raft allows.
//!
//! Invariants: a committed entry is in the log of every later leader; a leader commits up to an
//! entry of its own term; entries that a new leader lacks were only on the leader before it and on
//! the real node, so that a majority could elect the new one.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use openraft::entry::RaftEntry;
use openraft::impls::leader_id_std::LeaderId;
use openraft::raft::AppendEntriesRequest;
use openraft::storage::{RaftSnapshotBuilder, RaftStateMachine};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tokio::sync::watch;

use super::super::member::{first_members, small_state};
use super::node::contents;
use headwater_proto::codec;
use headwater_raft::parts::{
    EncodedCommand, EntryPayload, LogEntry, LogId, Membership, SharedApplyState, Snapshot, StateMachine, TypeConfig,
    Vote, log_id, term_of,
};
use headwater_storage::StateStore;
use headwater_stream::NoSubscribers;
use headwater_types::{Command, LogIndex, Proposal, Put, StoreEpoch, ValueChoice};

/// Id of the real node.
pub(super) const ME: u64 = 1;
const MEMBERS: u64 = 5;
const KEYS: u64 = 40;

/// The current leader, its log, and a state that has applied its committed entries in order.
pub(super) struct Leaders {
    rng: SmallRng,
    term: u64,
    leader: u64,
    log: Vec<LogEntry>,
    committed: u64,
    machine: StateMachine,
    store: Arc<StateStore>,
    pub(super) changes: u64,
}

impl Leaders {
    pub(super) fn new(seed: u64, root: &Path) -> Self {
        let store = Arc::new(StateStore::open(&root.join("leader"), &small_state()).unwrap());
        // Applied entries are committed, so they are on enough disks.
        let durable = watch::Sender::new(u64::MAX).subscribe();
        let applied = watch::Sender::new(LogIndex::ZERO);
        let snapshots = root.join("leader-snapshots");
        let machine = StateMachine::new(
            store.clone(),
            durable,
            applied,
            Arc::new(NoSubscribers),
            snapshots,
            SharedApplyState::default(),
        )
        .unwrap();
        let members: BTreeMap<_, _> = first_members(MEMBERS);
        let voters = members.keys().copied().collect();
        let membership = Membership::new(vec![voters], members).unwrap();
        let log = vec![LogEntry::new(log_id(0, 0), EntryPayload::Membership(membership))];
        let rng = SmallRng::seed_from_u64(seed);
        let mut leaders = Self { rng, term: 0, leader: 2, log, committed: 0, machine, store, changes: 0 };
        leaders.change();
        leaders.push(&Command::Bootstrap(StoreEpoch(seed + 1)));
        leaders
    }

    pub(super) fn last(&self) -> u64 {
        self.log.len() as u64 - 1
    }

    pub(super) fn committed(&self) -> u64 {
        self.committed
    }

    fn id(&self, index: u64) -> LogId {
        self.log[index as usize].log_id
    }

    fn add(&mut self, payload: EntryPayload) {
        self.log.push(LogEntry::new(log_id(self.term, self.last() + 1), payload));
    }

    fn push(&mut self, command: &Command) {
        let proposal = Proposal::new(self.last(), command.clone());
        self.add(EntryPayload::Normal(EncodedCommand(codec::encode_proposal(&proposal).unwrap())));
    }

    /// Elects another leader: its log has all committed entries, and perhaps more.
    pub(super) fn change(&mut self) {
        let kept = self.rng.random_range(self.committed..=self.last());
        self.log.truncate(kept as usize + 1);
        self.term += 1;
        self.leader = ME + 1 + self.leader % (MEMBERS - 1);
        self.changes += 1;
        self.add(EntryPayload::Blank);
    }

    /// Appends `count` writes of clients.
    pub(super) fn write(&mut self, count: u64) {
        for _ in 0..count {
            let key = format!("k{}", self.rng.random_range(0..KEYS));
            let value = ValueChoice::Set(format!("{}/{}", self.term, self.last()).into());
            self.push(&Command::Put(Put { key: key.into(), value, ..super::super::clients::plain_put() }));
        }
    }

    /// Appends a command without content, which has no effect. A member whose apply is stuck
    /// proposes one, because openraft applies again when the next entry arrives.
    pub(super) fn write_blank(&mut self) {
        self.add(EntryPayload::Normal(EncodedCommand(bytes::Bytes::new())));
    }

    /// Commits the entries up to `index`, if that entry is of the current term.
    pub(super) fn commit(&mut self, index: u64) {
        let index = index.min(self.last());
        if term_of(&self.id(index)) == self.term {
            self.committed = self.committed.max(index);
        }
    }

    pub(super) fn vote(&self) -> Vote {
        Vote { leader_id: LeaderId { term: self.term, voted_for: self.leader }, committed: true }
    }

    /// An append request with at most `count` entries from index `first` on; 0 makes a heartbeat.
    pub(super) fn append(&self, first: u64, count: u64) -> AppendEntriesRequest<TypeConfig> {
        let first = first.min(self.last() + 1);
        let end = first.saturating_add(count).min(self.last() + 1);
        AppendEntriesRequest {
            vote: self.vote(),
            prev_log_id: first.checked_sub(1).map(|before| self.id(before)),
            entries: self.log[first as usize..end as usize].to_vec(),
            leader_commit: Some(self.id(self.committed)),
        }
    }

    /// Applies the entries up to `index`, which must be committed.
    pub(super) async fn apply(&mut self, index: u64) {
        let from = match self.machine.applied_state().await.unwrap().0 {
            Some(applied) => applied.index + 1,
            None => 0,
        };
        if from <= index {
            let entries = self.log[from as usize..=index as usize].to_vec();
            let entries = entries.into_iter().map(|entry| Ok((entry, None)));
            self.machine.apply(futures::stream::iter(entries)).await.unwrap();
        }
    }

    /// A snapshot of the committed entries.
    pub(super) async fn snapshot(&mut self) -> Snapshot {
        self.apply(self.committed).await;
        self.machine.get_snapshot_builder().await.build_snapshot().await.unwrap()
    }

    /// Applied index and hash of the leader's state.
    pub(super) fn contents(&self) -> (LogIndex, u64) {
        contents(&self.store)
    }
}
