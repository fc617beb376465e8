//! Random commands against a simple model of the promises in Consul's documentation, with writes of
//! an etcd client between them.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use headwater_types::consul::SessionBehavior;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct ModelEntry {
    value: String,
    flags: u64,
    session: Option<usize>,
    lock_index: u64,
    modified: u64,
}

/// The keys by path, and the live sessions with their behaviour and whether they have a lock delay.
/// Paths and sessions are indexes into [`PATHS`] and [`SESSIONS`].
#[derive(Clone, Debug, Default)]
struct Model {
    entries: BTreeMap<usize, ModelEntry>,
    sessions: BTreeMap<usize, (SessionBehavior, bool)>,
    delayed: Vec<usize>,
    index: u64,
}

#[derive(Clone, Debug)]
enum Step {
    Set { path: usize, value: u8, flags: u64 },
    Cas { path: usize, right: bool },
    Lock { path: usize, session: usize },
    Unlock { path: usize, session: usize },
    Delete { path: usize },
    DeleteTree,
    Etcd { path: usize, delete: bool },
    Create { session: usize, deletes: bool, delays: bool },
    Destroy { session: usize },
    DelayEnds { path: usize },
}

const PATHS: [&str; 4] = ["a", "a/1", "a/2", "b"];
const SESSIONS: [&str; 3] = ["s0", "s1", "s2"];

fn step() -> impl Strategy<Value = Step> {
    let (path, session) = (0..PATHS.len(), 0..SESSIONS.len());
    prop_oneof![
        3 => (path.clone(), 0..3u8, 0..2u64).prop_map(|(path, value, flags)| Step::Set { path, value, flags }),
        2 => (path.clone(), any::<bool>()).prop_map(|(path, right)| Step::Cas { path, right }),
        5 => (path.clone(), session.clone()).prop_map(|(path, session)| Step::Lock { path, session }),
        2 => (path.clone(), session.clone()).prop_map(|(path, session)| Step::Unlock { path, session }),
        1 => path.clone().prop_map(|path| Step::Delete { path }),
        1 => Just(Step::DeleteTree),
        1 => (path.clone(), any::<bool>()).prop_map(|(path, delete)| Step::Etcd { path, delete }),
        3 => (session.clone(), any::<bool>(), any::<bool>())
            .prop_map(|(session, deletes, delays)| Step::Create { session, deletes, delays }),
        2 => session.prop_map(|session| Step::Destroy { session }),
        1 => path.prop_map(|path| Step::DelayEnds { path }),
    ]
}

impl Model {
    fn write(&mut self, path: usize, change: impl FnOnce(&mut ModelEntry)) {
        let before = self.entries.get(&path).cloned();
        let mut after = before.clone().unwrap_or_default();
        change(&mut after);
        if before.as_ref() != Some(&after) {
            after.modified = self.index;
            self.entries.insert(path, after);
        }
    }

    fn end(&mut self, session: usize) {
        let Some((behavior, delays)) = self.sessions.remove(&session) else { return };
        for path in 0..PATHS.len() {
            if self.entries.get(&path).is_none_or(|entry| entry.session != Some(session)) {
                continue;
            }
            match behavior {
                SessionBehavior::Release => self.write(path, |entry| entry.session = None),
                SessionBehavior::Delete => drop(self.entries.remove(&path)),
            }
            if delays {
                self.delayed.push(path);
            }
        }
    }

    /// Applies a step to the model. Returns the command, and whether it must be done; `None` if it
    /// must be refused.
    fn run(&mut self, bed: &TestBed, step: &Step) -> (Command, Option<bool>) {
        self.index += 1;
        match *step {
            Step::Set { path, value, flags } => {
                self.write(path, |entry| (entry.value, entry.flags) = (value.to_string(), flags));
                (kv(KvOp { flags, ..set(PATHS[path], &value.to_string()) }), Some(true))
            }
            Step::Cas { path, right } => {
                let now = self.entries.get(&path).map_or(0, |entry| entry.modified);
                let index = if right { now } else { now + 1 };
                if right {
                    self.write(path, |entry| (entry.value, entry.flags) = ("v".to_owned(), 0));
                }
                (kv(with_index(KvVerb::Cas, PATHS[path], index)), Some(right))
            }
            Step::Lock { path, session } => {
                let command = kv(with_session(KvVerb::Lock, PATHS[path], SESSIONS[session]));
                if !self.sessions.contains_key(&session) {
                    return (command, None);
                }
                let holder = self.entries.get(&path).and_then(|entry| entry.session);
                let is_free = holder.is_none() && !self.delayed.contains(&path);
                if is_free || holder == Some(session) {
                    self.write(path, |entry| {
                        (entry.value, entry.flags, entry.session) = ("v".to_owned(), 0, Some(session));
                        entry.lock_index += u64::from(is_free);
                    });
                }
                (command, Some(is_free || holder == Some(session)))
            }
            Step::Unlock { path, session } => {
                let holds = self.entries.get(&path).is_some_and(|entry| entry.session == Some(session));
                if holds {
                    self.write(path, |entry| (entry.value, entry.flags, entry.session) = ("v".to_owned(), 0, None));
                }
                (kv(with_session(KvVerb::Unlock, PATHS[path], SESSIONS[session])), Some(holds))
            }
            Step::Delete { path } => {
                self.entries.remove(&path);
                (kv(op(KvVerb::Delete, PATHS[path])), Some(true))
            }
            Step::DeleteTree => {
                self.entries.retain(|path, _| !PATHS[*path].starts_with("a/"));
                (kv(op(KvVerb::DeleteTree, "a/")), Some(true))
            }
            Step::Etcd { path, delete } => {
                let key = format!("consul/kv/{}", PATHS[path]);
                if delete {
                    self.entries.remove(&path);
                    (del(key, ""), Some(true))
                } else {
                    let entry = ModelEntry { value: "etcd".to_owned(), modified: self.index, ..ModelEntry::default() };
                    self.entries.insert(path, entry);
                    (put(key, "etcd"), Some(true))
                }
            }
            Step::Create { session, deletes, delays } => {
                let behavior = if deletes { SessionBehavior::Delete } else { SessionBehavior::Release };
                let lock_delay_ms = if delays { 1000 } else { 0 };
                let record = Session { behavior, lock_delay_ms, ..super::session(SESSIONS[session]) };
                let is_new = !self.sessions.contains_key(&session);
                self.sessions.entry(session).or_insert((behavior, delays));
                (create(record), is_new.then_some(true))
            }
            Step::Destroy { session } => {
                self.end(session);
                (destroy(SESSIONS[session]), Some(true))
            }
            Step::DelayEnds { path } => {
                let was = self.delayed.contains(&path);
                self.delayed.retain(|delayed| *delayed != path);
                let id = bed.deadline(&Deadline::LockDelay(bytes(PATHS[path])));
                assert_eq!(id.is_some(), was);
                let id = id.unwrap_or(LeaseId(7));
                let granted = bed.lease(id.get()).map_or(LogIndex::ZERO, |lease| lease.granted);
                (Command::LeaseExpire(LeaseExpire { id, granted, term: Term(1) }), was.then_some(true))
            }
        }
    }

    fn shown(&self) -> Vec<String> {
        let show = |(path, entry): (&usize, &ModelEntry)| {
            let session = entry.session.map_or("", |session| SESSIONS[session]);
            let ModelEntry { value, flags, lock_index, modified, .. } = entry;
            format!("{}={value}/{flags} {lock_index}{session}@{modified}", PATHS[*path])
        };
        self.entries.iter().map(show).collect()
    }
}

fn without_creation(shown: &str) -> String {
    let (head, indexes) = shown.rsplit_once('@').unwrap();
    format!("{head}@{}", indexes.split_once('/').unwrap().1)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_store_does_what_the_model_does(steps in prop::collection::vec(step(), 1..60)) {
        let (mut bed, mut model) = (TestBed::new(), Model::default());
        let mut indexes = BTreeMap::new();
        for step in &steps {
            let (command, wanted) = model.run(&bed, step);
            let (before, revision) = (bed.shown(""), bed.revision());
            let outcome = bed.apply(command);
            let came_to = match outcome {
                Outcome::Consul(ConsulOutcome::Kv(done)) => Some(done),
                Outcome::Refused(_) => None,
                _ => Some(true),
            };
            prop_assert_eq!(came_to, wanted, "{:?}", step);
            let shown = bed.shown("");
            prop_assert_eq!(shown.iter().map(|shown| without_creation(shown)).collect::<Vec<_>>(), model.shown());
            // The revision advances by one if and only if a key has changed.
            prop_assert_eq!(bed.revision() - revision, i64::from(before != shown), "{:?}", step);
            // A query index never decreases, and increases with every change below its prefix.
            for prefix in ["", "a", "a/", "b"] {
                let below = |shown: &[String]| shown.iter().filter(|it| it.starts_with(prefix)).cloned().collect::<Vec<_>>();
                let index = bed.prefix_index(prefix);
                let last = indexes.insert(prefix, index).unwrap_or(0);
                prop_assert!(index >= last);
                prop_assert!(index > last || below(&before) == below(&shown), "{:?} below {:?}", step, prefix);
            }
            let held: Vec<String> = model.sessions.keys().map(|session| SESSIONS[*session].to_owned()).collect();
            prop_assert_eq!(bed.session_ids(), held);
        }
    }
}
