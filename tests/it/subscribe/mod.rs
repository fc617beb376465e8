//! Subscribe: the numbered cases of spec watcher §3, on every kind of member; resuming; views.
//!
//! S22 to S26, about tokens and rights, are in `acl::streams`. S37 is `headwater::client`'s own
//! tests, S39 those of the encoder, S31 and S32 those of the stream's snapshots
//! (`stream/tests/snapshots.rs`, `stream/tests/hand_off.rs`).

mod cases;
pub mod client;
mod payload;
mod random;
mod remote_datacenter;
mod resume;
mod snapshots;
mod topologies;
mod wait;
