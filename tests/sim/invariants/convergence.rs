//! Convergence: after all faults are healed, all members have the same state, which is that of the
//! model.

use std::collections::BTreeMap;

use super::{Evidence, Replay};
use headwater_types::{KeyRange, RangeQuery};

pub(super) fn check(evidence: &Evidence, replay: &Replay) -> Vec<String> {
    let mut findings = Vec::new();
    let mut hashes = BTreeMap::new();
    for (id, store) in &evidence.members {
        let db = store.current();
        let view = db.view().unwrap();
        hashes.insert(id, (view.applied(), view.state_hash().unwrap()));
        let found = headwater_fsm::range(&view, &RangeQuery::new(KeyRange::all())).unwrap().unwrap().kvs;
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

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use super::*;
    use crate::clients::plain_put;
    use crate::committed::Applied;
    use crate::member::small_state;
    use headwater_proto::codec;
    use headwater_storage::StateStore;
    use headwater_storage::state::AppliedState;
    use headwater_types::{Command, LeaseGrant, LeaseId, LogIndex, Proposal, Put, StoreEpoch, Term, ValueChoice};

    fn put(key: &'static str, value: &'static str) -> Command {
        Command::Put(Put { key: key.into(), value: ValueChoice::Set(value.into()), ..plain_put() })
    }

    fn grant(lease: i64) -> Command {
        Command::LeaseGrant(LeaseGrant { id: LeaseId(lease), ttl_seconds: 60 })
    }

    fn commands() -> Vec<Command> {
        vec![Command::Bootstrap(StoreEpoch(1)), put("a", "1"), grant(1), put("b", "2")]
    }

    fn changed(at: usize, command: Command) -> Vec<Command> {
        let mut commands = commands();
        commands[at] = command;
        commands
    }

    fn proposals(commands: Vec<Command>) -> impl Iterator<Item = (u64, Proposal)> {
        (1..).zip(commands.into_iter().map(|command| Proposal::new(1, command)))
    }

    /// The store of a member that has applied these commands.
    fn member(dir: &Path, commands: Vec<Command>) -> Arc<StateStore> {
        let store = StateStore::open(dir, &small_state()).unwrap();
        let db = store.current();
        let mut txn = store.begin(&db).unwrap();
        for (index, proposal) in proposals(commands) {
            let (term, index) = (Term(1), LogIndex(index));
            headwater_fsm::apply(&mut txn, term, index, &proposal, false).unwrap();
            txn.set_applied(&AppliedState { term, index, membership: None });
        }
        txn.commit().unwrap();
        Arc::new(store)
    }

    /// The findings for three members that have applied these commands, if `commands()` were the
    /// committed ones.
    fn found(members: [Vec<Command>; 3]) -> Vec<String> {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let entry = |(index, proposal)| {
            let command = Some(codec::encode_proposal(&proposal).unwrap());
            (index, Applied { term: Term(1), command })
        };
        let entries = proposals(commands()).map(entry).collect();
        let members = (1..).zip(members).map(|(id, commands)| (id, member(&dir.path().join(id.to_string()), commands)));
        let evidence = Evidence { entries, members: members.collect(), ..Evidence::default() };
        check(&evidence, &Replay::of(&evidence.entries, false))
    }

    #[test]
    fn members_that_hold_something_else_are_found() {
        let holds = |member: u64| format!("convergence: member {member} holds ");
        let differ = || "convergence: members differ: ".to_owned();
        for (members, wanted) in [
            ([commands(), commands(), commands()], vec![]),
            // One lags behind, with a correct state.
            ([commands(), commands()[..3].to_vec(), commands()], vec![differ()]),
            ([commands(), commands(), changed(3, put("b", "3"))], vec![holds(3), differ()]),
            // The leases differ, the pairs do not.
            ([commands(), commands(), changed(2, grant(2))], vec![differ()]),
            ([(); 3].map(|()| changed(1, put("b", "1"))), vec![holds(1), holds(2), holds(3)]),
        ] {
            let findings = found(members);
            let is_it = |(finding, wanted): (&String, &String)| finding.starts_with(wanted);
            assert_eq!(findings.len(), wanted.len(), "{findings:?}");
            assert!(findings.iter().zip(&wanted).all(is_it), "{findings:?}");
        }
    }
}
