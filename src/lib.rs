//! Headwater: a replicated store that you can subscribe to. Start at ARCHITECTURE.md.

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

#[cfg(test)]
#[path = "../tests/sim/mod.rs"]
mod sim;
