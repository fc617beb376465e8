//! `Subscribe`: the numbered cases of spec watcher §3, on every kind of member; resuming; views.
//!
//! Cases that are tested elsewhere: S22 to S26, about tokens and rights, in `acl::streams`; S37 in
//! the tests of `headwater::client`; S39 in those of the encoder; S31 and S32 in those of the
//! crate `stream` (`stream/tests/snapshots.rs`, `stream/tests/hand_off.rs`).

mod cases;
pub mod client;
mod payload;
mod random;
mod remote_datacenter;
mod resume;
mod snapshots;
mod topologies;
mod wait;
