//! `headwater lock` and `headwater elect`: the server's recipes, with a lease that this command
//! keeps alive.

pub(super) mod elect;
pub(super) mod lock;
mod session;
mod signals;
