//! Creation, replacement, and their refusals (spec: consul §5.6, §5.7).

use std::sync::Arc;

use super::*;
use crate::tests::bed::trim;
use headwater_types::limits::{RESOURCE_BYTES_MAX, RESOURCE_FINDING_BYTES};
use headwater_types::resource::{Condition, DELETION_TIMESTAMP};
use headwater_types::{ChangeKind, ResourceEvent, Revision};

#[test]
fn a_new_resource_gets_uid_generation_and_version() {
    let mut store = Store::new();
    let first = store.write(of(artist("a"))).unwrap();
    assert!(!first.id.uid.is_empty() && !first.generation.is_empty());
    assert_eq!(first.version, LogIndex(store.bed.next - 1));
    assert_eq!(store.read(&artist("a")), Some(first.clone()));
    // Every write makes a new version and generation, also an equal one.
    let second = store.write(of(artist("a"))).unwrap();
    assert_eq!(second.id, first.id);
    assert!(second.version > first.version && second.generation != first.generation);
    // A uid names a stored resource.
    let made_up = of(ResourceId { uid: "mine".to_owned(), ..artist("b") });
    assert_eq!(store.write(made_up), Err(ResourceRefusal::Gone));
    assert_eq!(store.read(&artist("b")), None);
    assert_eq!(store.bed.revision(), Revision::INITIAL.get(), "resources do not move the revision of keys");
}

#[test]
fn versions_and_uids_are_compared() {
    let mut store = Store::new();
    let stored = store.write(of(artist("a"))).unwrap();
    let version = stored.version.get();
    let with_uid = |uid: &str| of(ResourceId { uid: uid.to_owned(), ..artist("a") });
    let uid = stored.id.uid.clone();
    let wrong = ResourceRefusal::VersionMismatch;
    for (name, resource, expected, wanted) in [
        ("absent, with a version", of(artist("b")), Some(version), Some(wrong)),
        ("absent, with a version that nothing has", of(artist("b")), Some(0), Some(wrong)),
        ("absent, with a uid", of(ResourceId { uid: uid.clone(), ..artist("b") }), None, Some(ResourceRefusal::Gone)),
        ("another version", of(artist("a")), Some(version + 1), Some(wrong)),
        ("the uid before the version", with_uid("other"), Some(version + 1), Some(ResourceRefusal::WrongUid)),
        ("another uid", with_uid("other"), None, Some(ResourceRefusal::WrongUid)),
        ("the uid, another version", with_uid(&uid), Some(version + 1), Some(wrong)),
        ("the uid and the version", with_uid(&uid), Some(version), None),
        ("the old version", of(artist("a")), Some(version), Some(wrong)),
        ("nothing", of(artist("a")), None, None),
    ] {
        assert_eq!(store.write_if(resource, expected).err(), wanted, "{name}");
    }
}

#[test]
fn what_a_new_resource_must_not_bring() {
    let mut store = Store::new();
    let mut with_status = of(artist("a"));
    with_status.status.insert("k".to_owned(), Status::default());
    let mut marked = of(artist("a"));
    marked.metadata.insert(DELETION_TIMESTAMP.to_owned(), String::new());
    let owned = |owner| Resource { owner: Some(owner), ..of(artist("a")) };
    let label = of(ResourceId { type_: Type::new("demo", "v2", "Label"), ..artist("a") });
    let elsewhere = of(ResourceId { tenancy: Tenancy::new("default", ""), ..artist("a") });
    for (resource, wanted) in [
        (with_status, ResourceRefusal::StatusAtCreation),
        (marked, ResourceRefusal::MarkedAtCreation),
        (owned(artist("nobody")), ResourceRefusal::OwnerNotFound),
        // No resource can own itself: it does not exist yet.
        (owned(artist("a")), ResourceRefusal::OwnerNotFound),
        (label, ResourceRefusal::TypeUnknown),
        (elsewhere, ResourceRefusal::ScopeMismatch),
    ] {
        assert_eq!(store.write(resource), Err(wanted));
    }
    assert_eq!(store.read(&artist("a")), None);
}

#[test]
fn an_owner_is_found_once_and_never_changed() {
    let mut store = Store::new();
    let owner = store.write(of(artist("owner"))).unwrap();
    let other = store.write(of(artist("other"))).unwrap();
    let owned = |owner: Option<ResourceId>| Resource { owner, ..of(artist("child")) };
    let child = store.write(owned(Some(artist("owner")))).unwrap();
    assert_eq!(child.owner, Some(owner.id.clone()), "the uid is filled in");
    assert_eq!(store.owned(&owner.id), [resource_key(&child.id)]);
    for (owner, wanted) in [
        (Some(owner.id.clone()), None),
        (Some(artist("owner")), None),
        (None, Some(ResourceRefusal::OwnerChanged)),
        (Some(other.id.clone()), Some(ResourceRefusal::OwnerChanged)),
        (Some(ResourceId { uid: "other".to_owned(), ..artist("owner") }), Some(ResourceRefusal::OwnerChanged)),
    ] {
        assert_eq!(store.write(owned(owner.clone())).err(), wanted, "{owner:?}");
    }
    // A resource without an owner cannot get one.
    let adopted = Resource { owner: Some(owner.id), ..of(artist("other")) };
    assert_eq!(store.write(adopted), Err(ResourceRefusal::OwnerChanged));
    // An owner must be named with the version of its kind that is stored.
    let as_v1 = ResourceId { type_: Type::new("demo", "v1", "Artist"), ..artist("owner") };
    let child = Resource { owner: Some(as_v1), ..of(artist("second")) };
    assert_eq!(store.write(child), Err(ResourceRefusal::OwnerOtherVersion));
}

#[test]
fn a_late_write_makes_no_new_life() {
    let mut store = Store::new();
    let stored = store.write(of(artist("a"))).unwrap();
    store.delete(&stored.id).unwrap();
    let mut with_status = of(stored.id.clone());
    with_status.status.insert("k".to_owned(), Status::default());
    let mut marked = of(stored.id.clone());
    marked.metadata.insert(DELETION_TIMESTAMP.to_owned(), NOW.to_owned());
    for expected in [None, Some(stored.version.get())] {
        for late in [of(stored.id.clone()), with_status.clone(), marked.clone()] {
            assert_eq!(store.write_if(late, expected), Err(ResourceRefusal::Gone));
        }
    }
    assert_eq!(store.read(&artist("a")), None);
    assert!(store.write(of(artist("a"))).is_ok());
}

/// Ids of one owner, with units written or left out in every way that means the default ones.
fn spellings(of: &ResourceId) -> Vec<ResourceId> {
    let units = [("default", "default"), ("", "default"), ("default", ""), ("", "")];
    units.map(|(partition, namespace)| ResourceId { tenancy: Tenancy::new(partition, namespace), ..of.clone() }).into()
}

#[test]
fn the_units_of_an_owner_are_filled_in() {
    let mut store = Store::new();
    let owner = store.write(of(artist("owner"))).unwrap().id;
    let label = Type::new("demo", "v1", "RecordLabel");
    let label = ResourceId { type_: label, tenancy: Tenancy::new("default", ""), ..artist("label") };
    let label = store.write(of(label)).unwrap().id;
    let mut children = 0;
    for (owner, others) in [(&owner, spellings(&owner)), (&label, spellings(&label)[2..].to_vec())] {
        for named in others.iter().flat_map(|other| [other.clone(), ResourceId { uid: String::new(), ..other.clone() }])
        {
            let child = Resource { owner: Some(named.clone()), ..of(artist(&format!("child-{children}"))) };
            let written = store.write(child.clone()).unwrap();
            assert_eq!(written.owner.as_ref(), Some(owner), "{named:?}");
            assert_eq!(store.write(child).unwrap().owner.as_ref(), Some(owner), "once more: {named:?}");
            children += 1;
        }
    }
    assert_eq!(store.reap_all(), 0, "nothing to reap");
    assert_eq!(store.owned(&owner).len() + store.owned(&label).len(), children);
    let with_namespace = ResourceId { tenancy: Tenancy::new("default", "default"), ..label };
    let child = Resource { owner: Some(with_namespace), ..of(artist("child")) };
    assert_eq!(store.write(child), Err(ResourceRefusal::OwnerScopeMismatch));
}

#[test]
fn an_owner_must_live() {
    let mut store = Store::new();
    let first = store.write(of(artist("owner"))).unwrap().id;
    let gone = store.write(of(artist("gone"))).unwrap().id;
    store.delete(&first).unwrap();
    store.delete(&gone).unwrap();
    store.write(of(artist("owner"))).unwrap();
    let before = store.everything();
    let of_no_type = ResourceId { type_: Type::new("demo", "v1", "Nothing"), ..gone.clone() };
    let invented = ResourceId { uid: "invented".to_owned(), ..artist("owner") };
    for (owner, wanted) in [
        (first, ResourceRefusal::OwnerWrongUid),
        (invented, ResourceRefusal::OwnerWrongUid),
        (gone, ResourceRefusal::OwnerNotFound),
        (of_no_type, ResourceRefusal::OwnerNotFound),
    ] {
        for owner in spellings(&owner) {
            let child = Resource { owner: Some(owner.clone()), ..of(artist("child")) };
            assert_eq!(store.write(child), Err(wanted), "{owner:?}");
        }
    }
    assert_eq!(store.everything(), before);
}

#[test]
fn a_write_carries_the_status_and_cannot_change_it() {
    let mut store = Store::new();
    let stored = store.write(of(artist("a"))).unwrap();
    let with_status = written(store.write_status(&stored.id, "k", None).unwrap());
    assert_eq!(with_status.generation, stored.generation);
    assert!(with_status.version > stored.version);
    let mut changed = with_status.clone();
    changed.status.get_mut("k").unwrap().observed_generation = "other".to_owned();
    let mut more = with_status.clone();
    more.status.insert("l".to_owned(), Status::default());
    for (resource, wanted) in [
        (changed, Some(ResourceRefusal::StatusModified)),
        (more, Some(ResourceRefusal::StatusModified)),
        (with_status.clone(), None),
        (of(artist("a")), None),
    ] {
        match store.write(resource) {
            Ok(resource) => {
                assert_eq!(wanted, None);
                assert_eq!(resource.status, with_status.status);
            }
            Err(refusal) => assert_eq!(Some(refusal), wanted),
        }
    }
}

#[test]
fn a_status_is_written_to_one_life_of_a_resource() {
    let mut store = Store::new();
    let stored = store.write(of(artist("a"))).unwrap();
    let version = stored.version.get();
    let other_life = ResourceId { uid: "other".to_owned(), ..artist("a") };
    let absent = ResourceId { uid: "u".to_owned(), ..artist("b") };
    let as_v1 = ResourceId { type_: Type::new("demo", "v1", "Artist"), ..stored.id.clone() };
    for (id, expected, wanted) in [
        (other_life.clone(), None, Some(ResourceRefusal::WrongUid)),
        (other_life, Some(version), Some(ResourceRefusal::WrongUid)),
        (absent, None, Some(ResourceRefusal::NotFound)),
        (as_v1, None, Some(ResourceRefusal::OtherGroupVersion)),
        (stored.id.clone(), Some(version + 1), Some(ResourceRefusal::VersionMismatch)),
        (stored.id.clone(), Some(version), None),
        (stored.id.clone(), Some(version), Some(ResourceRefusal::VersionMismatch)),
        (stored.id.clone(), None, None),
    ] {
        assert_eq!(store.write_status(&id, "one", expected).err(), wanted, "{id:?} {expected:?}");
    }
    let both = written(store.write_status(&stored.id, "two", None).unwrap());
    assert_eq!(both.status.len(), 2);
    assert_eq!((both.data, both.metadata), (stored.data, stored.metadata));
}

#[test]
fn the_versions_of_a_kind_share_their_names() {
    let mut store = Store::new();
    let v1 = ResourceId { type_: Type::new("demo", "v1", "Artist"), ..artist("a") };
    let second = store.write(of(artist("a"))).unwrap();
    let first = store.write(of(v1.clone())).unwrap();
    assert_eq!(first.id, ResourceId { uid: second.id.uid, ..v1.clone() }, "the label moves, the life goes on");
    assert_eq!((store.type_count(&v1.type_), store.type_count(&artist("a").type_)), (1, 0));
    assert_eq!(store.delete(&artist("a")), Err(ResourceRefusal::OtherGroupVersion));
}

#[test]
fn history_tells_the_same_as_the_publisher() {
    let mut store = Store::new();
    let from = store.bed.next;
    let mut published = Vec::new();
    let mut run = |store: &mut Store, command| {
        let (outcomes, committed) = store.bed.apply_all([Command::Resource(command)], true);
        assert!(matches!(outcomes[0], Outcome::Resource(_)), "{outcomes:?}");
        published.extend(committed.events);
    };
    let write = store.write_command(of(artist("a")), None);
    run(&mut store, ResourceCommand::Write(Box::new(write)));
    let id = store.read(&artist("a")).unwrap().id;
    let status = ResourceWriteStatus { id: id.clone(), expected: None, key: "k".into(), status: Status::default() };
    run(&mut store, ResourceCommand::WriteStatus(Box::new(status)));
    let last = store.read(&id).unwrap();
    let delete = ResourceDelete { id, expected: None, chosen: store.next_chosen() };
    run(&mut store, ResourceCommand::Delete(Box::new(delete)));
    let kinds: Vec<_> = published.iter().map(|commit| commit.resources.len()).collect();
    assert_eq!(kinds, [1, 1, 2], "a tombstone comes with the removal");
    assert_eq!(*published[2].resources[1].resource, last, "a removal says what was removed");
    assert_eq!(replayed(&store, from), published.into_iter().map(|commit| commit.resources).collect::<Vec<_>>());
}

/// Events that history gives from a log index on.
fn replayed(store: &Store, from: u64) -> Vec<Arc<[ResourceEvent]>> {
    let mut replayed = Vec::new();
    store.view(|view| {
        view.history(LogIndex(from), |command| {
            replayed.push(command.resource_events().unwrap());
            true
        })
        .unwrap();
    });
    replayed
}

#[test]
fn a_move_to_another_version_is_a_removal_from_the_old_one() {
    for at_once in [1, 4] {
        let mut store = Store::new();
        let from = store.bed.next;
        let mut commands = Vec::new();
        for version in ["v1", "v2", "v2", "v1"] {
            let id = ResourceId { type_: Type::new("demo", version, "Artist"), ..artist("a") };
            let write = store.write_command(of(id), None);
            commands.push(Command::Resource(ResourceCommand::Write(Box::new(write))));
        }
        let mut published = Vec::new();
        for some in commands.chunks(at_once) {
            let (_, committed) = store.bed.apply_all(some.to_vec(), false);
            published.extend(committed.events.into_iter().map(|commit| commit.resources));
        }
        let summary = |event: &ResourceEvent| (event.kind, event.resource.id.type_.group_version.clone());
        let (put, delete) =
            (|version: &str| (ChangeKind::Put, version.into()), |version: &str| (ChangeKind::Delete, version.into()));
        assert_eq!(
            published.iter().map(|events| events.iter().map(summary).collect()).collect::<Vec<Vec<_>>>(),
            [vec![put("v1")], vec![delete("v1"), put("v2")], vec![put("v2")], vec![delete("v2"), put("v1")]],
            "{at_once} at once"
        );
        assert_eq!(published[1][0].resource, published[0][0].resource, "as it was last, data and all");
        assert_eq!(published[3][0].resource, published[2][0].resource);
        assert_eq!(replayed(&store, from), published);
        // If history begins with the move, the state before it is stored nowhere else.
        store.bed.apply(trim(from + 1));
        store.bed.reclaim(100);
        assert_eq!(replayed(&store, from + 1), published[1..]);
        store.bed.apply(trim(from + 3));
        store.bed.reclaim(100);
        assert_eq!(replayed(&store, from + 3), published[3..]);
    }
}

#[test]
fn statuses_do_not_make_a_resource_larger_than_one_may_be() {
    let mut store = Store::new();
    let stored = store.write(of(artist("a"))).unwrap();
    let report = |key: String, bytes: usize| {
        let condition = Condition { message: "m".repeat(bytes), ..Condition::default() };
        let status = Status { conditions: vec![condition], ..Status::default() };
        ResourceCommand::WriteStatus(Box::new(ResourceWriteStatus {
            id: stored.id.clone(),
            expected: None,
            key,
            status,
        }))
    };
    for number in 0..3 {
        store.run(report(format!("k{number}"), RESOURCE_BYTES_MAX / 4)).unwrap();
    }
    let budget =
        RESOURCE_BYTES_MAX - store.read(&artist("a")).unwrap().content_bytes() - 2 * RESOURCE_FINDING_BYTES - 1;
    assert_eq!(store.run(report("k".to_owned(), budget + 1)), Err(ResourceRefusal::TooLarge));
    store.run(report("k".to_owned(), budget)).unwrap();
    let full = store.read(&artist("a")).unwrap();
    assert_eq!(full.content_bytes(), RESOURCE_BYTES_MAX);
    // Nothing more fits, for any kind of write; the resource may still change, become smaller, be
    // marked and be deleted.
    assert_eq!(store.run(report("l".to_owned(), 0)), Err(ResourceRefusal::TooLarge));
    assert_eq!(store.write(Resource { data: data("longer"), ..of(artist("a")) }), Err(ResourceRefusal::TooLarge));
    store.run(report("k".to_owned(), 0)).unwrap();
    store.write(with_finalizers(of(artist("a")), "f")).unwrap();
    let budget = RESOURCE_BYTES_MAX - store.read(&artist("a")).unwrap().content_bytes();
    store.run(report("k".to_owned(), budget)).unwrap();
    assert_eq!(store.delete(&artist("a")), Ok(ResourceDeletion::Marked));
    store.write(with_finalizers(of(artist("a")), "")).unwrap();
    assert_eq!(store.delete(&artist("a")), Ok(ResourceDeletion::Removed));
}
