//! Commits of the store, over gRPC and JSON, on every kind of member.

mod cases;
mod cli;
mod operations;
mod topologies;
mod trouble;
