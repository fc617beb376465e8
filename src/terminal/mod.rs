//! The parts that client commands share: options, connections, errors, output and progress.
//!
//! The command line and the load generator use it. Must not know any command. Invariant: the error
//! of a write that must not be repeated tells whether the write may have taken effect.

mod args;
pub mod connect;
pub mod error;
mod notice;
pub mod output;
mod password;
pub mod progress;

pub use args::{ClientArgs, Freshness, parse_duration, parse_ttl};
pub use notice::print_notice;
pub use password::ask_password;
