//! openraft's own storage suite on our log store and state machine. It never crashes or reopens a store; the tests of
//! `storage` do.

use std::sync::Arc;

use openraft::StorageError;
use openraft::testing::log::{StoreBuilder, Suite};
use tempfile::TempDir;
use tokio::sync::watch;

use super::log_store::LogStore;
use super::state_machine::{StateMachine, Told};
use super::types::TypeConfig;
use crate::storage::log::{LogDb, LogOptions};
use crate::storage::{StateOptions, StateStore};
use crate::stream::NoSubscribers;
use crate::types::LogIndex;

struct Builder;

impl StoreBuilder<TypeConfig, LogStore, StateMachine, TempDir> for Builder {
    async fn build(&self) -> Result<(TempDir, LogStore, StateMachine), StorageError<TypeConfig>> {
        let dir = tempfile::tempdir().unwrap();
        let log = LogDb::open(&dir.path().join("log"), LogOptions::default()).unwrap();
        let state = StateStore::open(&dir.path().join("state"), &StateOptions::default()).unwrap();
        let state_machine = StateMachine::new(
            Arc::new(state),
            // The suite applies entries that it never appends.
            watch::Sender::new(u64::MAX).subscribe(),
            watch::Sender::new(LogIndex::ZERO),
            Arc::new(NoSubscribers),
            dir.path().join("snapshots"),
            Told::default(),
        )
        .unwrap();
        Ok((dir, LogStore::new(log).unwrap(), state_machine))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn openrafts_storage_suite() {
    Suite::test_all(Builder).await.unwrap();
}
