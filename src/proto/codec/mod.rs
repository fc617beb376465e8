//! Encoding and decoding of the project's own records: on disk, in the log, and between nodes.
//!
//! Raft's records ([`raft`]) are bincode. All others are protobuf: commands ([`command`]), outcomes
//! ([`outcome`]), questions to the leader ([`lease`]), the description of a backup ([`backup`]),
//! and stored rows, for example those of [`resource`] and [`catalog`]. Does not know where the
//! bytes are stored or sent. Invariant: every later version can decode bytes that were once written
//! (a leading format byte, golden tests). Bytes of an unknown format are an error, never a guess.
//! An unknown field is an error in a command; in other records of protobuf it is ignored.

pub mod acl;
mod alarm;
mod auth;
pub mod backup;
pub mod catalog;
pub mod command;
pub mod commit;
pub mod consul;
mod error;
mod invitation;
mod kv;
pub mod lease;
pub mod outcome;
pub mod raft;
pub mod resource;
#[cfg(test)]
mod tests;
mod version;

pub use acl::{decode_acl_row, encode_acl_row};
pub use auth::{decode_auth_state, decode_role, decode_user, encode_auth_state, encode_role, encode_user};
pub use backup::{decode_backup, encode_backup};
pub use command::{NEWEST, decode_proposal, encode_proposal, proposal_needs};
pub use commit::{commit_body, decode_kept_commit, encode_kept_commit};
pub use consul::{decode_session, decode_side, encode_session, encode_side};
pub use error::CodecError;
pub use lease::{decode_lease_answer, decode_lease_question, encode_lease_answer, encode_lease_question};
pub use outcome::{decode_applied, encode_applied};
pub use resource::{
    check_unit, decode_resource, decode_resource_type, encode_resource, read_tombstone, tombstone_data,
};
