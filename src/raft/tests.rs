//! Runs openraft's own storage suite on our log store and state machine, and tests how a run of
//! entries is cut into commits. The suite never crashes or reopens a store; the tests of `storage`
//! do.

use std::sync::Arc;

use bytes::Bytes;
use openraft::StorageError;
use openraft::entry::RaftEntry;
use openraft::storage::RaftStateMachine;
use openraft::testing::log::{StoreBuilder, Suite};
use parking_lot::Mutex;
use tempfile::TempDir;
use tokio::sync::watch;

use super::log_store::LogStore;
use super::state_machine::{SharedApplyState, StateMachine};
use super::types::{EncodedCommand, EntryPayload, LogEntry, TypeConfig, log_id};
use headwater_proto::codec;
use headwater_storage::log::{LogDb, LogOptions};
use headwater_storage::{StateOptions, StateStore};
use headwater_stream::{NoSubscribers, Publisher, StatePoint};
use headwater_types::{
    CommandEvents, LeaseChange, LeaseChoice, LeaseId, LogIndex, Proposal, Put, Txn, TxnOp, ValueChoice,
};

struct Builder;

impl StoreBuilder<TypeConfig, LogStore, StateMachine, TempDir> for Builder {
    async fn build(&self) -> Result<(TempDir, LogStore, StateMachine), StorageError<TypeConfig>> {
        let dir = tempfile::tempdir().unwrap();
        let log = LogDb::open(&dir.path().join("log"), LogOptions::default()).unwrap();
        let state = StateStore::open(&dir.path().join("state"), &StateOptions::default()).unwrap();
        let state_machine = state_machine(&dir, state, Arc::new(NoSubscribers));
        Ok((dir, LogStore::new(log).unwrap(), state_machine))
    }
}

fn state_machine(dir: &TempDir, state: StateStore, publisher: Arc<dyn Publisher>) -> StateMachine {
    StateMachine::new(
        Arc::new(state),
        // Entries are applied that were never appended.
        watch::Sender::new(u64::MAX).subscribe(),
        watch::Sender::new(LogIndex::ZERO),
        publisher,
        dir.path().join("snapshots"),
        SharedApplyState::default(),
    )
    .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn openrafts_storage_suite() {
    Suite::test_all(Builder).await.unwrap();
}

/// The number of commands with events in each commit.
#[derive(Default)]
struct Commits(Mutex<Vec<usize>>);

impl Publisher for Commits {
    fn publish(&self, commits: Vec<CommandEvents>) {
        self.0.lock().push(commits.len());
    }

    fn leases_changed(&self, _changes: &[LeaseChange]) {}

    fn reset(&self, _point: StatePoint) {}
}

#[tokio::test]
async fn a_run_of_commands_that_write_more_than_they_say_is_cut() {
    let dir = tempfile::tempdir().unwrap();
    let state = StateStore::open(&dir.path().join("state"), &StateOptions::default()).unwrap();
    let commits = Arc::new(Commits::default());
    let mut machine = state_machine(&dir, state, Arc::clone(&commits) as Arc<dyn Publisher>);
    let put = |key: usize, value: &ValueChoice| Put {
        key: Bytes::from(format!("k{key}")),
        value: value.clone(),
        lease: LeaseChoice::Set(LeaseId::NONE),
        prev_kv: false,
    };
    let mut index = 0;
    let mut entries = |commands: Vec<headwater_types::Command>| {
        let entry = |command| {
            index += 1;
            let command = codec::encode_proposal(&Proposal::new(0, command)).unwrap();
            let payload = EntryPayload::Normal(EncodedCommand(command));
            Ok::<_, std::io::Error>((LogEntry::new(log_id(1, index), payload), None))
        };
        futures::stream::iter(commands.into_iter().map(entry).collect::<Vec<_>>())
    };
    let large = ValueChoice::Set(vec![7; 1024 * 1024].into());
    machine.apply(entries((0..8).map(|key| headwater_types::Command::Put(put(key, &large))).collect())).await.unwrap();
    commits.0.lock().clear();
    // Each command has a few hundred bytes, and writes 8 MiB, held in the batch and in the overlay.
    let success: Vec<TxnOp> = (0..8).map(|key| TxnOp::Put(put(key, &ValueChoice::Keep))).collect();
    let keep = headwater_types::Command::Txn(Txn { compares: Vec::new(), success, failure: Vec::new() });
    machine.apply(entries(vec![keep; 6])).await.unwrap();
    assert_eq!(*commits.0.lock(), [2, 2, 2]);
}
