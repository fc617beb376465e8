//! Watches: one library of cases, run on every kind of member; and failures.

mod cases;
pub mod client;
mod early;
mod random;
mod topologies;
mod trouble;
