//! Invariants of every simulated life, one file each. A finding begins with the name of its
//! invariant.

mod agreement;
mod convergence;
mod order;
mod outcomes;
mod reads;
mod replay;
mod watches;

use std::collections::BTreeMap;
use std::sync::Arc;

use super::clients::{Op, ReadSeen};
use super::committed::Applied;
use super::watchers::Watched;
use super::world::Control;
use headwater_storage::StateStore;
use replay::Replay;

/// The records of a life, for the invariants.
#[derive(Default)]
pub(super) struct Evidence {
    pub(super) control: Option<Control>,
    /// The committed entries, by log index.
    pub(super) entries: BTreeMap<u64, Applied>,
    pub(super) conflicts: Vec<String>,
    pub(super) ops: Vec<Op>,
    pub(super) reads: Vec<ReadSeen>,
    pub(super) watched: Vec<Watched>,
    pub(super) members: Vec<(u64, Arc<StateStore>)>,
}

/// Checks all invariants; returns the violations. If agreement is violated, returns only its
/// violations.
pub(super) fn check(evidence: &Evidence) -> Vec<String> {
    let findings = agreement::check(evidence);
    if !findings.is_empty() {
        // Without one common history there is nothing to compare the rest with.
        return findings;
    }
    let replay = Replay::of(&evidence.entries, evidence.control == Some(Control::BrokenRule));
    [
        outcomes::check(evidence, &replay),
        order::check(evidence),
        reads::check(evidence, &replay),
        watches::check(evidence, &replay),
        convergence::check(evidence, &replay),
    ]
    .concat()
}
