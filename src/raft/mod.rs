//! Consensus: the log store and state machine as openraft wants them, snapshot transfer, and the
//! peer network.
//!
//! Owns the `openraft` crate; no other layer names it. Commands travel as opaque bytes: they are
//! decoded only to be checked or applied, and no code here depends on their kind. Errors: storage
//! failures end consensus ([`Consensus::ended`]), and with it the process.

mod apply;
mod batcher;
mod blocking;
mod consensus;
mod convert;
mod figures;
mod form;
mod leader_end;
mod leadership;
mod log_keeper;
mod log_store;
mod log_throttle;
mod majority;
mod member_changes;
mod membership;
mod metrics;
mod network;
mod progress;
mod propose;
mod propose_streams;
mod queries;
mod read_index;
mod removal;
mod replication_gaps;
mod restore;
mod roster;
#[cfg(feature = "simulation")]
pub mod simulation;
mod snapshot;
mod stalled;
mod start;
mod state_machine;
mod transfer;
mod types;

pub use apply::{ApplyError, replay};
pub use blocking::run_blocking;
pub use consensus::Consensus;
pub use figures::{Figures, FiguresService, MemberFigures};
pub use leadership::{Leadership, Leading};
pub use log_throttle::LogThrottle;
pub use member_changes::{ChangeError, ChangeFrom, MembershipService, ask_to_join};
pub use metrics::RaftMetrics;
pub use progress::{LogPoints, Progress};
pub use propose::WriteError;
pub use queries::{Queries, QueryError, QueryService};
pub use read_index::ReadIndexError;
pub use restore::{first_membership, make_log};
pub use roster::{MemberProgress, MemberRecord, Members, MembershipStep, Roster, StepError, members_of};
pub use snapshot::SnapshotFiles;
pub use start::{ConsensusOptions, StartError, Timing, peer_routes, start};
pub use transfer::NotTakenOver;
pub use types::MemberInfo;

/// The parts of which the simulation (`tests/sim`) builds a member.
#[doc(hidden)]
pub mod parts {
    pub use super::stalled::StalledApply;
    pub use super::start::{ConsensusOptions, config as raft_config};
    pub use super::state_machine::{SharedApplyState, StateMachine};
    pub use super::types::{
        EncodedCommand, EntryPayload, LogEntry, LogId, MemberInfo, Membership, Raft, Runtime, Snapshot, SnapshotMeta,
        StoredMembership, TypeConfig, Vote, log_id, term_of,
    };
}

#[cfg(test)]
mod tests;
