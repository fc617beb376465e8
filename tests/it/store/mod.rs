//! Reads at points of the history and the history itself, over gRPC and JSON, on every kind of
//! member.

mod cases;
mod cli;
pub mod client;
mod topologies;
mod trouble;
