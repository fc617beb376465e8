//! Consensus: the log store and state machine as openraft wants them, snapshot transfer, and the peer network.
//!
//! Owns the `openraft` crate; no other module names it. Commands are opaque bytes here: there is no `if` on a command in
//! this module. Errors: storage failures end consensus ([`Consensus::ended`]), and with it the process.

mod consensus;
mod convert;
mod desk;
mod form;
mod gather;
mod log_keeper;
mod log_store;
mod member_desk;
mod membership;
mod network;
mod propose_lane;
mod removal;
mod restore;
mod roster;
mod snapshot;
mod start;
mod state_machine;
mod transfer;
mod types;

#[cfg(test)]
mod tests;

pub use consensus::{Consensus, Leading, LogPoints, ReadIndexError, WriteError};
pub use desk::{AskError, Desk};
pub use member_desk::{ChangeError, ChangeFrom, MemberDesk, ask_to_join};
pub(crate) use restore::{first_membership, make_log};
pub use roster::{MemberProgress, MemberRecord, MembershipStep, Roster, StepError};
pub(crate) use snapshot::SnapshotFiles;
pub use start::{ConsensusOptions, StartError, Timing, peer_routes, start};
pub use transfer::NotTakenOver;
pub use types::MemberInfo;
