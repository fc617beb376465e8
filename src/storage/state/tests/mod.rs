//! Promises of the state, without any business rule: atomic commits, durability, generations,
//! reclamation.

mod bed;
mod commands;
mod commit;
mod compact_history;
mod generations;
mod golden;
mod inspect;
mod leases;
mod newer;
mod outlines;
mod ranges;
mod reclaim;
mod savepoint;
