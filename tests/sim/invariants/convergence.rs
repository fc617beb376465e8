//! Once everything has healed all members hold the same, and what the rules say.

use std::collections::BTreeMap;

use super::{Evidence, Replay};
use crate::fsm;
use crate::types::{KeyRange, RangeQuery};

pub(super) fn check(evidence: &Evidence, replay: &Replay) -> Vec<String> {
    let mut findings = Vec::new();
    let mut hashes = BTreeMap::new();
    for (id, store) in &evidence.members {
        let db = store.current();
        let view = db.view().unwrap();
        hashes.insert(id, (view.applied(), view.state_hash().unwrap()));
        let found = fsm::range(&view, &RangeQuery::new(KeyRange::all())).unwrap().unwrap().kvs;
        let wanted: Vec<_> = replay.at(replay.revision_at(view.applied())).values().cloned().collect();
        if found != wanted {
            findings.push(format!("convergence: member {id} holds {found:?}, and should {wanted:?}"));
        }
    }
    let first = hashes.values().next();
    if hashes.values().any(|hash| Some(hash) != first) {
        findings.push(format!("convergence: members differ: {hashes:?}"));
    }
    findings
}
