//! Deletion of the children of a deleted resource (spec: consul §5.10).

use super::*;
use headwater_types::limits::RESOURCE_REAP_BATCH;

fn child_of(owner: &ResourceId, name: &str) -> Resource {
    Resource { owner: Some(owner.clone()), ..of(artist(name)) }
}

#[test]
fn a_cascade_takes_everything_below() {
    let mut store = Store::new();
    let root = store.write(of(artist("root"))).unwrap();
    let other = store.write(of(artist("other"))).unwrap();
    let mut level = vec![root.id.clone()];
    for depth in 0..3 {
        let mut next = Vec::new();
        for (at, owner) in level.iter().enumerate() {
            for n in 0..2 {
                next.push(store.write(child_of(owner, &format!("c-{depth}-{at}-{n}"))).unwrap().id);
            }
        }
        level = next;
    }
    let kept = store.write(child_of(&other.id, "kept")).unwrap();
    store.delete(&root.id).unwrap();
    assert_eq!(store.owned(&root.id).len(), 2, "children go later");
    store.reap_all();
    let left: Vec<_> = store.all(&artist("").type_).into_iter().map(|resource| resource.id.name).collect();
    assert_eq!(left, ["kept", "other"]);
    assert_eq!(store.owned(&other.id), [resource_key(&kept.id)]);
    assert!(store.all(&Type::tombstone()).is_empty());
}

#[test]
fn many_children_go_in_bounded_steps() {
    let mut store = Store::new();
    let owner = store.write(of(artist("owner"))).unwrap();
    let count = 2 * RESOURCE_REAP_BATCH + 1;
    for n in 0..count {
        store.write(child_of(&owner.id, &format!("c-{n:05}"))).unwrap();
    }
    store.delete(&owner.id).unwrap();
    let tombstone = store.read(&owner.id.tombstone()).unwrap();
    let mut after = bytes::Bytes::new();
    let mut steps = Vec::new();
    loop {
        let reaped = store.reap_step(&owner.id, tombstone.version, after).unwrap();
        steps.push(reaped.removed);
        match reaped.next {
            Some(next) => after = next,
            None => break,
        }
    }
    assert_eq!(steps, [RESOURCE_REAP_BATCH as u64, RESOURCE_REAP_BATCH as u64, 1]);
    assert_eq!(store.read(&owner.id.tombstone()), None);
    assert_eq!(store.all(&artist("").type_), []);
}

#[test]
fn large_children_go_one_by_one() {
    let mut store = Store::new();
    let owner = store.write(of(artist("owner"))).unwrap();
    for n in 0..3 {
        let large = Resource { data: data(&"x".repeat(1_100_000)), ..child_of(&owner.id, &format!("c{n}")) };
        store.write(large).unwrap();
    }
    store.delete(&owner.id).unwrap();
    let tombstone = store.read(&owner.id.tombstone()).unwrap();
    let reaped = store.reap_step(&owner.id, tombstone.version, bytes::Bytes::new()).unwrap();
    assert_eq!(reaped.removed, 1);
    assert!(reaped.next.is_some());
    store.reap_all();
    assert_eq!(store.all(&artist("").type_), []);
}

#[test]
fn a_child_with_finalizers_is_marked_and_outlives_the_tombstone() {
    let mut store = Store::new();
    let owner = store.write(of(artist("owner"))).unwrap();
    store.write(with_finalizers(child_of(&owner.id, "held"), "f")).unwrap();
    store.write(child_of(&owner.id, "free")).unwrap();
    store.delete(&owner.id).unwrap();
    assert_eq!(store.reap_all(), 2, "one step for the owner, one for the child that went");
    let held = store.read(&artist("held")).unwrap();
    assert!(held.is_marked());
    assert_eq!(store.read(&artist("free")), None);
    // Its controllers remove their finalizers.
    store.write(with_finalizers(child_of(&owner.id, "held"), "")).unwrap();
    assert_eq!(store.delete(&held.id), Ok(ResourceDeletion::Removed));
    store.reap_all();
    assert!(store.owned(&owner.id).is_empty());
}

#[test]
fn a_new_life_adopts_nobody() {
    let mut store = Store::new();
    let first = store.write(of(artist("owner"))).unwrap();
    store.write(child_of(&first.id, "child")).unwrap();
    store.delete(&first.id).unwrap();
    let second = store.write(of(artist("owner"))).unwrap();
    assert!(store.owned(&second.id).is_empty());
    store.write(child_of(&second.id, "other")).unwrap();
    store.reap_all();
    assert_eq!(store.read(&artist("child")), None);
    assert!(store.read(&artist("other")).is_some() && store.read(&artist("owner")).is_some());
}

#[test]
fn a_life_that_has_ended_gets_no_child() {
    let mut store = Store::new();
    let owner = store.write(of(artist("owner"))).unwrap();
    store.delete(&owner.id).unwrap();
    store.reap_all();
    assert_eq!(store.write(child_of(&owner.id, "late")), Err(ResourceRefusal::OwnerNotFound));
    assert_eq!(store.read(&artist("late")), None);
    assert!(store.everything().iter().all(|resource| resource.id.type_ == Type::resource_type()));
}

#[test]
fn no_child_comes_behind_a_walk() {
    let mut store = Store::new();
    let owner = store.write(of(artist("owner"))).unwrap();
    for n in 0..RESOURCE_REAP_BATCH {
        store.write(child_of(&owner.id, &format!("c-{n:05}"))).unwrap();
    }
    store.delete(&owner.id).unwrap();
    let tombstone = store.read(&owner.id.tombstone()).unwrap();
    let reaped = store.reap_step(&owner.id, tombstone.version, bytes::Bytes::new()).unwrap();
    let next = reaped.next.unwrap();
    for version in [tombstone.version, LogIndex(1)] {
        assert_eq!(store.write(child_of(&owner.id, "a-behind")), Err(ResourceRefusal::OwnerNotFound));
        let wanted = if version == tombstone.version { None } else { Some(ResourceRefusal::NothingToReap) };
        assert_eq!(store.reap_step(&owner.id, version, next.clone()).err(), wanted);
    }
    assert!(store.owned(&owner.id).is_empty());
}

#[test]
fn cycles_are_harmless() {
    let mut store = Store::new();
    // No resource can own itself: it does not exist yet.
    let own = ResourceId { uid: "u".to_owned(), ..artist("self") };
    assert_eq!(store.write(child_of(&own, "self")), Err(ResourceRefusal::OwnerNotFound));
    // A cycle of names: one owner is an earlier resource of its name.
    let first = store.write(of(artist("a"))).unwrap();
    let b = store.write(child_of(&first.id, "b")).unwrap();
    store.delete(&first.id).unwrap();
    store.write(child_of(&b.id, "a")).unwrap();
    store.reap_all();
    assert_eq!(store.all(&artist("").type_), []);
}

#[test]
fn the_tombstone_of_a_life_that_goes_on_is_only_removed() {
    let mut store = Store::new();
    let owner = store.write(of(artist("owner"))).unwrap();
    let child = store.write(child_of(&owner.id, "child")).unwrap();
    let forged = Resource { id: owner.id.tombstone(), data: Some(tombstone_data(&owner.id)), ..Resource::default() };
    store.write(forged).unwrap();
    assert_eq!(store.reap_all(), 1);
    assert_eq!(store.read(&child.id), Some(child));
    assert_eq!(store.read(&owner.id), Some(owner));
}

#[test]
fn a_tombstone_that_no_deletion_wrote_takes_nothing() {
    let mut store = Store::new();
    let owner = store.write(of(artist("owner"))).unwrap();
    let child = store.write(child_of(&owner.id, "child")).unwrap();
    store.delete(&owner.id).unwrap();
    // An earlier version of the program wrote tombstones for owners that it could not find, with an
    // empty time or none.
    for generated_at in [Some(""), None] {
        let metadata = generated_at.map(|at| ("generated_at".to_owned(), at.to_owned())).into_iter().collect();
        let tombstone_id = owner.id.tombstone();
        let unproven =
            Resource { id: tombstone_id, metadata, data: Some(tombstone_data(&owner.id)), ..Resource::default() };
        store.write(unproven).unwrap();
        assert_eq!(store.reap_all(), 1);
        assert_eq!(store.read(&child.id), Some(child.clone()), "{generated_at:?}");
    }
    // An existing child can still be changed, with its owner.
    assert!(store.write(child_of(&owner.id, "child")).is_ok());
}
