//! Followers of `google.watcher.v1`: the numbered cases of the spec (watcher §2) over gRPC and
//! HTTP, on every kind of member.

mod browser;
mod cases;
pub mod client;
pub mod events;
mod positions;
mod property;
mod spaces;
mod topologies;
mod trouble;
