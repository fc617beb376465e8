//! Random commands against a simple model: resources, indexes, and events.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use headwater_types::ChangeKind;

/// A random command. `name` is an index into [`NAMES`].
#[derive(Clone, Debug)]
enum Op {
    Write { name: usize, owner: Option<Owner>, finalizers: bool, version: Choice, uid: Choice },
    Status { name: usize },
    Delete { name: usize, version: Choice, uid: Choice },
    Reap,
}

/// A field that is left out, right or wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    Absent,
    Right,
    Wrong,
}

/// The form in which a write names its owner: without a uid, with the right or a wrong one; and
/// with units or without.
#[derive(Clone, Copy, Debug)]
struct Owner {
    name: usize,
    uid: Choice,
    units: bool,
}

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

fn choice() -> impl Strategy<Value = Choice> {
    prop_oneof![3 => Just(Choice::Absent), 2 => Just(Choice::Right), 1 => Just(Choice::Wrong)]
}

fn op() -> impl Strategy<Value = Op> {
    let name = 0..NAMES.len();
    let owner = (name.clone(), choice(), any::<bool>()).prop_map(|(name, uid, units)| Owner { name, uid, units });
    prop_oneof![
        6 => (name.clone(), prop::option::of(owner), any::<bool>(), choice(), choice()).prop_map(
            |(name, owner, finalizers, version, uid)| Op::Write { name, owner, finalizers, version, uid }
        ),
        1 => name.clone().prop_map(|name| Op::Status { name }),
        4 => (name, choice(), choice()).prop_map(|(name, version, uid)| Op::Delete { name, version, uid }),
        2 => Just(Op::Reap),
    ]
}

/// A stored resource: uid, version, owner, whether it is held, whether it is marked.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Live {
    uid: String,
    version: u64,
    owner: Option<ResourceId>,
    held: bool,
    marked: bool,
}

type Model = BTreeMap<&'static str, Live>;

fn chosen(model: &Model, name: &str, version: Choice, uid: Choice) -> (Option<u64>, String) {
    let live = model.get(name);
    let version = match version {
        Choice::Absent => None,
        Choice::Right => Some(live.map_or(0, |live| live.version)),
        Choice::Wrong => Some(1),
    };
    let uid = match uid {
        Choice::Absent => String::new(),
        Choice::Right => live.map_or_else(String::new, |live| live.uid.clone()),
        Choice::Wrong => "wrong".to_owned(),
    };
    (version, uid)
}

/// Whether a write over `live` is accepted, by the specification. `lives`: the owner that the write
/// names exists, or it names none. `op`: whether it has finalizers, its expected version, its uid,
/// its owner.
fn takes(live: Option<&Live>, lives: bool, op: (bool, Option<u64>, &str, Option<&ResourceId>)) -> bool {
    let (held, version, uid, owner) = op;
    match live {
        None => lives && version.is_none() && uid.is_empty(),
        Some(live) => {
            let same_life = uid.is_empty() || uid == live.uid;
            let same_version = version.is_none_or(|version| version == live.version);
            let owner_same = match (&live.owner, owner) {
                (None, None) => true,
                (Some(stored), Some(given)) => {
                    stored.name == given.name && (given.uid.is_empty() || given.uid == stored.uid)
                }
                (None, Some(_)) | (Some(_), None) => false,
            };
            // Only a write without an expected version keeps the mark. It may remove finalizers,
            // or, once all are removed, change anything; and it must change something.
            let allowed = !live.marked || version.is_none() && live.held != held;
            same_life && same_version && owner_same && allowed
        }
    }
}

fn check(store: &Store, model: &Model) -> Result<(), TestCaseError> {
    let stored = store.all(&artist("").type_);
    let found: Model = stored
        .iter()
        .map(|resource| {
            let name = NAMES.into_iter().find(|name| *name == resource.id.name).unwrap();
            let live = Live {
                uid: resource.id.uid.clone(),
                version: resource.version.get(),
                owner: resource.owner.clone(),
                held: !resource.finalizers().is_empty(),
                marked: resource.is_marked(),
            };
            (name, live)
        })
        .collect();
    prop_assert_eq!(&found, model);
    let mut owned: BTreeMap<ResourceId, Vec<bytes::Bytes>> = BTreeMap::new();
    for resource in &stored {
        if let Some(owner) = &resource.owner {
            owned.entry(owner.clone()).or_default().push(resource_key(&resource.id));
        }
    }
    for (owner, children) in owned {
        prop_assert_eq!(store.owned(&owner), children);
    }
    prop_assert_eq!(store.type_count(&artist("").type_), stored.len() as u64);
    let everywhere = store.everything().iter().filter(|resource| resource.id.tenancy.partition == "default").count();
    prop_assert_eq!(store.unit_count("default", "*"), everywhere as u64);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn commands_do_what_the_model_does(ops in prop::collection::vec(op(), 1..60)) {
        let mut store = Store::new();
        let from = store.bed.next;
        let mut model = Model::new();
        // Uids of deleted owners with children that were not reaped yet.
        let mut ended: Vec<String> = Vec::new();
        for op in ops {
            match op {
                Op::Write { name, owner, finalizers, version, uid } => {
                    let name = NAMES[name];
                    let owner = owner.map(|owner| {
                        let id = artist(NAMES[owner.name]);
                        let tenancy = if owner.units { id.tenancy.clone() } else { Tenancy::default() };
                        ResourceId { uid: chosen(&model, &id.name, Choice::Absent, owner.uid).1, tenancy, ..id }
                    });
                    let (version, uid) = chosen(&model, name, version, uid);
                    let lives = owner.as_ref().is_none_or(|owner| {
                        let live = model.get(owner.name.as_str());
                        live.is_some_and(|live| owner.uid.is_empty() || owner.uid == live.uid)
                    });
                    let wanted =
                        takes(model.get(name), lives, (finalizers, version, &uid, owner.as_ref()));
                    let mut resource = of(ResourceId { uid, ..artist(name) });
                    resource.owner = owner;
                    let resource = with_finalizers(resource, if finalizers { "f" } else { "" });
                    match store.write_if(resource, version) {
                        Ok(written) => {
                            prop_assert!(wanted, "{:?}", written);
                            let before = model.get(name);
                            let live = Live {
                                uid: before.map_or_else(|| written.id.uid.clone(), |live| live.uid.clone()),
                                version: store.bed.next - 1,
                                owner: written.owner.clone(),
                                held: finalizers,
                                marked: before.is_some_and(|live| live.marked),
                            };
                            model.insert(name, live);
                        }
                        Err(refusal) => prop_assert!(!wanted, "{:?}", refusal),
                    }
                }
                Op::Status { name } => {
                    let name = NAMES[name];
                    if let Some(live) = model.get_mut(name) {
                        let id = ResourceId { uid: live.uid.clone(), ..artist(name) };
                        prop_assert!(store.write_status(&id, "k", None).is_ok());
                        live.version = store.bed.next - 1;
                    }
                }
                Op::Delete { name, version, uid } => {
                    let name = NAMES[name];
                    let (version, uid) = chosen(&model, name, version, uid);
                    let done = store.delete_if(&ResourceId { uid: uid.clone(), ..artist(name) }, version);
                    match model.get_mut(name) {
                        Some(live) if !uid.is_empty() && uid != live.uid => {
                            prop_assert_eq!(done, Err(ResourceRefusal::WrongUid));
                        }
                        None => prop_assert_eq!(done, Ok(ResourceDeletion::Nothing)),
                        Some(live) if version.is_some_and(|version| version != live.version) => {
                            prop_assert_eq!(done, Err(ResourceRefusal::VersionMismatch));
                        }
                        Some(live) if live.held && live.marked => prop_assert_eq!(done, Ok(ResourceDeletion::Nothing)),
                        Some(live) if live.held => {
                            prop_assert_eq!(done, Ok(ResourceDeletion::Marked));
                            (live.marked, live.version) = (true, store.bed.next - 1);
                        }
                        Some(_) => {
                            prop_assert_eq!(done, Ok(ResourceDeletion::Removed));
                            ended.extend(model.remove(name).map(|live| live.uid));
                        }
                    }
                }
                Op::Reap => {
                    store.reap_all();
                    let stored = store.all(&artist("").type_);
                    let version = |name: &str| stored.iter().find(|resource| resource.id.name == name).unwrap().version;
                    while let Some(uid) = ended.pop() {
                        let owned = |live: &Live| live.owner.as_ref().is_some_and(|owner| owner.uid == uid);
                        let children: Vec<&'static str> =
                            NAMES.into_iter().filter(|name| model.get(name).is_some_and(owned)).collect();
                        for name in children {
                            match model.get_mut(name).filter(|live| live.held) {
                                None => ended.extend(model.remove(name).map(|live| live.uid)),
                                Some(live) if live.marked => {}
                                Some(live) => (live.marked, live.version) = (true, version(name).get()),
                            }
                        }
                    }
                }
            }
            check(&store, &model)?;
        }
        // The state is the same if the commands are committed together, and their outcomes are not
        // wanted.
        let mut together = TestBed::new();
        together.apply_all(store.log.clone(), false);
        prop_assert_eq!(together.hash(), store.bed.hash());
        // A watcher from the beginning reaches the same state.
        let mut replayed: BTreeMap<bytes::Bytes, Resource> = BTreeMap::new();
        store.view(|view| view.history(LogIndex(from), |command| {
            for record in &command.records {
                let resource = record.resource(command.index).unwrap();
                let key = resource_key(&resource.id);
                match record.kind {
                    ChangeKind::Put => {
                        replayed.insert(key, resource);
                    }
                    ChangeKind::Delete | ChangeKind::Expire => {
                        assert_eq!(replayed.remove(&key), Some(resource), "a removal tells what was there");
                    }
                }
            }
            true
        }).unwrap());
        let stored: Vec<Resource> =
            store.everything().into_iter().filter(|resource| resource.id.type_ != Type::resource_type()).collect();
        prop_assert_eq!(replayed.into_values().collect::<Vec<_>>(), stored);
    }
}
