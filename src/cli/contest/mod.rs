//! `headwater lock` and `headwater elect`: etcd's services of locks and elections, with a lease
//! that the command keeps alive.

pub(super) mod elect;
pub(super) mod lock;
mod session;
mod signals;
