//! A plain model of the store: a sorted map, one request at a time. It shares no code with the
//! server.

use std::collections::BTreeMap;

use crate::history::{Body, Condition, Event, Pair, Request, Step, StepDone};

/// The pairs of the store at one revision, by key.
#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    pub pairs: BTreeMap<String, Pair>,
}

/// Result of a request in the model: the expected answer, and the changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Done {
    pub body: Body,
    /// Changes in the order of the keys. Empty if the request makes no revision.
    pub events: Vec<Event>,
}

impl Model {
    /// Carries out a request. `revision` is the revision of its changes, if it makes any. Requests
    /// about leases change no key here, and their `body` is not that of a real answer. Deletions by
    /// the end of a lease come from the store's log of changes, by [`Self::follow`].
    pub(crate) fn apply(&mut self, request: &Request, revision: i64) -> Done {
        let mut events = Vec::new();
        let body = match request {
            Request::Read { key, prefix, .. } => Body::Pairs(self.read(key, *prefix)),
            Request::Put { key, value, lease } => {
                self.put(key, value, *lease, revision, &mut events);
                Body::Put
            }
            Request::Replace { key, value, lease } => {
                let before = self.pairs.get(key).cloned();
                self.put(key, value, *lease, revision, &mut events);
                Body::Replaced(before)
            }
            Request::Delete { key } => Body::Deleted(self.delete(key, revision, &mut events)),
            Request::DeleteRange { prefix } => {
                let (count, before) = self.delete_range(prefix, revision, &mut events);
                Body::Removed { count, before }
            }
            Request::Txn { when, then, or_else } => {
                let succeeded = self.all_hold(when);
                let steps = if succeeded { then } else { or_else };
                let steps = steps.iter().map(|step| self.step(step, revision, &mut events)).collect();
                Body::Txn { succeeded, steps }
            }
            Request::Grant { ttl_seconds } => Body::Granted { lease: 0, ttl_seconds: *ttl_seconds },
            Request::KeepAlive { .. } => Body::KeptAlive { ttl_seconds: 0 },
            Request::Revoke { .. } => Body::Revoked,
        };
        events.sort_by(|a, b| a.pair.key.cmp(&b.pair.key));
        Done { body, events }
    }

    /// Applies the recorded changes of the store. Sets the pairs as recorded and checks nothing.
    pub(crate) fn follow(&mut self, events: &[Event]) {
        for event in events {
            if event.deleted {
                self.pairs.remove(&event.pair.key);
            } else {
                self.pairs.insert(event.pair.key.clone(), event.pair.clone());
            }
        }
    }

    /// The pair of `key`; with `prefix`, the pairs of all keys that begin with `key`, in the order
    /// of the keys.
    pub(crate) fn read(&self, key: &str, prefix: bool) -> Vec<Pair> {
        if prefix {
            self.pairs.range(key.to_owned()..).take_while(|(k, _)| k.starts_with(key)).map(|(_, p)| p.clone()).collect()
        } else {
            self.pairs.get(key).cloned().into_iter().collect()
        }
    }

    /// Whether a transaction with these conditions takes its first branch.
    pub(crate) fn all_hold(&self, conditions: &[Condition]) -> bool {
        conditions.iter().all(|condition| self.holds(condition))
    }

    fn holds(&self, condition: &Condition) -> bool {
        match condition {
            Condition::Modified { key, is } => self.pairs.get(key).map_or(0, |pair| pair.modified) == *is,
            Condition::Created { key, is } => self.pairs.get(key).map_or(0, |pair| pair.created) == *is,
            Condition::Value { key, is } => self.pairs.get(key).is_some_and(|pair| pair.value == *is),
            Condition::Version { key, is } => self.pairs.get(key).map_or(0, |pair| pair.version) == *is,
            Condition::Lease { key, is } => self.pairs.get(key).map_or(0, |pair| pair.lease) == *is,
        }
    }

    fn step(&mut self, step: &Step, revision: i64, events: &mut Vec<Event>) -> StepDone {
        match step {
            Step::Put { key, value, lease } => {
                self.put(key, value, *lease, revision, events);
                StepDone::Put
            }
            Step::Delete { key } => StepDone::Deleted(self.delete(key, revision, events)),
            Step::DeleteRange { prefix } => {
                let (count, before) = self.delete_range(prefix, revision, events);
                StepDone::Removed { count, before }
            }
            Step::Get { key } => StepDone::Got(self.pairs.get(key).cloned()),
        }
    }

    fn put(&mut self, key: &str, value: &str, lease: i64, revision: i64, events: &mut Vec<Event>) {
        let before = self.pairs.get(key).cloned();
        let pair = Pair {
            key: key.to_owned(),
            value: value.to_owned(),
            created: before.as_ref().map_or(revision, |pair| pair.created),
            modified: revision,
            version: before.as_ref().map_or(1, |pair| pair.version + 1),
            lease,
        };
        self.pairs.insert(key.to_owned(), pair.clone());
        events.push(Event { deleted: false, pair, before });
    }

    fn delete(&mut self, key: &str, revision: i64, events: &mut Vec<Event>) -> i64 {
        let Some(before) = self.pairs.remove(key) else { return 0 };
        events.push(deletion(key, revision, Some(before)));
        1
    }

    fn delete_range(&mut self, prefix: &str, revision: i64, events: &mut Vec<Event>) -> (i64, Vec<Pair>) {
        let before = self.read(prefix, true);
        let count = before.iter().map(|pair| self.delete(&pair.key, revision, events)).sum();
        (count, before)
    }
}

/// The event of the deletion of `key` at `revision`.
pub(crate) fn deletion(key: &str, revision: i64, before: Option<Pair>) -> Event {
    let pair = Pair { key: key.to_owned(), modified: revision, ..Pair::default() };
    Event { deleted: true, pair, before }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(key: &str, value: &str) -> Request {
        Request::Put { key: key.into(), value: value.into(), lease: 0 }
    }

    #[test]
    fn versions_and_revisions_of_a_generation() {
        let mut model = Model::default();
        model.apply(&put("k", "a"), 2);
        let done = model.apply(&put("k", "b"), 3);
        let pair = &done.events[0].pair;
        assert_eq!((pair.created, pair.modified, pair.version), (2, 3, 2));
        assert_eq!(done.events[0].before.as_ref().unwrap().value, "a");
        assert_eq!(model.apply(&Request::Delete { key: "k".into() }, 4).body, Body::Deleted(1));
        assert_eq!(model.apply(&Request::Delete { key: "k".into() }, 5).body, Body::Deleted(0));
        let before = model.apply(&put("k2", "d"), 5).events.remove(0).pair;
        let all = Request::DeleteRange { prefix: "k".into() };
        assert_eq!(model.apply(&all, 6).body, Body::Removed { count: 1, before: vec![before] });
        let again = model.apply(&put("k", "c"), 5);
        assert_eq!((again.events[0].pair.created, again.events[0].pair.version), (5, 1));
    }

    #[test]
    fn a_transaction_runs_one_branch_and_sees_itself() {
        let mut model = Model::default();
        let txn = Request::Txn {
            when: vec![Condition::Created { key: "k".into(), is: 0 }],
            then: vec![Step::Put { key: "k".into(), value: "x".into(), lease: 0 }, Step::Get { key: "k".into() }],
            or_else: vec![Step::Get { key: "k".into() }],
        };
        let Body::Txn { succeeded: true, steps } = model.apply(&txn, 2).body else { panic!("the key is absent") };
        assert!(matches!(&steps[1], StepDone::Got(Some(pair)) if pair.value == "x"));
        let done = model.apply(&txn, 3);
        assert!(matches!(done.body, Body::Txn { succeeded: false, .. }));
        assert!(done.events.is_empty());
    }
}
