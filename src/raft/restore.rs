//! The first log and membership of a state that was restored from a backup.
//!
//! Every member of the new cluster begins with the same state, which ends with the same entry. Each
//! member's log is empty and continues after that entry. Each member's vote is for itself in the
//! term of that entry. So the first election is for a later term, as openraft requires.

use std::collections::BTreeMap;
use std::path::Path;

use bytes::Bytes;

use super::membership;
use super::types::{MemberInfo, Membership, StoredMembership, log_id};
use headwater_proto::codec::raft::{LogId, Vote};
use headwater_storage::StorageError;
use headwater_storage::log::{LogDb, LogOptions};
use headwater_types::{LogIndex, NodeId, Term};

/// The membership of a cluster that begins with these voters after the entry at `index`, as the
/// state machine stores it.
pub fn first_membership(voters: &BTreeMap<NodeId, MemberInfo>, term: Term, index: LogIndex) -> Bytes {
    let ids = voters.keys().map(|id| id.get()).collect();
    let nodes: BTreeMap<u64, MemberInfo> = voters.iter().map(|(id, info)| (id.get(), info.clone())).collect();
    let members = Membership::new(vec![ids], nodes).expect("invariant: every voter is among the members");
    membership::encode_stored(&StoredMembership::new(Some(log_id(term.get(), index.get())), members))
}

/// Makes the empty log of a member with a state up to the entry of `term` at `index`, durably. The
/// log continues after that entry. Blocks.
///
/// # Errors
///
/// If the disk failed, or `dir` has the log of another store.
pub fn make_log(dir: &Path, store_id: u64, me: NodeId, term: Term, index: LogIndex) -> Result<(), StorageError> {
    let log = LogDb::open(dir, LogOptions { store_id, create: true, ..LogOptions::default() })?;
    // Not waited for: later changes of the log are never durable without it.
    log.save_vote(Vote { term, node_id: me, committed: false }, |_| {});
    log.reset_to(LogId { term, index })?;
    log.close();
    Ok(())
}
