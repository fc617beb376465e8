//! Watches: cases that run on every kind of member, failures, and random writes.

mod cases;
pub mod client;
mod early;
mod random;
mod topologies;
mod trouble;
