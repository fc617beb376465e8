//! Headwater: a replicated store that you can subscribe to. Start at ARCHITECTURE.md.

#[macro_use]
mod fail_points;

pub mod api;
pub mod cli;
pub mod client;
pub mod codec;
pub mod controller;
pub mod fsm;
pub mod node;
pub mod pb;
pub mod raft;
pub mod schema;
pub mod server;
pub mod storage;
pub mod stream;
pub mod types;

/// What the tests below `tests` that are part of this crate call it, as those of other binaries do.
#[cfg(test)]
extern crate self as headwater;

#[cfg(test)]
#[path = "../tests/crash/mod.rs"]
mod crash;

#[cfg(test)]
#[path = "../tests/sim/mod.rs"]
mod sim;
