//! Deletion in one step (spec: consul §5.9).

use super::*;

#[test]
fn a_refused_delete_leaves_nothing_behind() {
    let mut store = Store::new();
    let owner = store.write(of(artist("owner"))).unwrap();
    store.write(Resource { owner: Some(owner.id.clone()), ..of(artist("child")) }).unwrap();
    let newer = store.write(of(artist("owner"))).unwrap();
    let before = (store.everything(), store.bed.hash());
    let stale = owner.version.get();
    for id in [owner.id.clone(), artist("owner")] {
        assert_eq!(store.delete_if(&id, Some(stale)), Err(ResourceRefusal::VersionMismatch));
        assert_eq!(store.delete_if(&id, Some(0)), Err(ResourceRefusal::VersionMismatch));
    }
    assert_eq!(store.everything(), before.0, "no tombstone, and the child is there");
    assert_eq!(store.reap_all(), 0);
    assert_eq!(store.delete_if(&owner.id, Some(newer.version.get())), Ok(ResourceDeletion::Removed));
}

#[test]
fn what_is_not_there_is_deleted_already() {
    let mut store = Store::new();
    let stored = store.write(of(artist("a"))).unwrap();
    let absent = ResourceId { uid: "other".to_owned(), ..artist("b") };
    for (id, expected) in [(artist("b"), None), (artist("b"), Some(1)), (absent.clone(), None), (absent, Some(1))] {
        assert_eq!(store.delete_if(&id, expected), Ok(ResourceDeletion::Nothing), "{id:?}");
    }
    // A resource of this name with another uid is stored, and stays; the uid is checked before the
    // version.
    let other_life = ResourceId { uid: "other".to_owned(), ..artist("a") };
    for expected in [None, Some(1), Some(stored.version.get())] {
        assert_eq!(store.delete_if(&other_life, expected), Err(ResourceRefusal::WrongUid), "{expected:?}");
    }
    assert_eq!(store.everything().len(), types().len() + 1);
    assert_eq!(store.read(&artist("a")), Some(stored));
}

#[test]
fn a_removal_writes_a_tombstone_and_its_own_removal_does_not() {
    let mut store = Store::new();
    for (uid, version) in [(true, true), (true, false), (false, true), (false, false)] {
        let stored = store.write(of(artist("a"))).unwrap();
        let id = if uid { stored.id.clone() } else { artist("a") };
        let expected = version.then_some(stored.version.get());
        assert_eq!(store.delete_if(&id, expected), Ok(ResourceDeletion::Removed));
        assert_eq!(store.read(&artist("a")), None);
        let tombstone = store.read(&stored.id.tombstone()).unwrap();
        assert_eq!(tombstone.id.name, format!("tombstone-a-{}", stored.id.uid.to_ascii_lowercase()));
        assert_eq!(tombstone.id.tenancy, stored.id.tenancy);
        let owner = tombstone_owner(&tombstone).unwrap();
        assert_eq!(owner, stored.id);
        assert_eq!(store.delete(&tombstone.id), Ok(ResourceDeletion::Removed));
        assert!(store.all(&Type::tombstone()).is_empty());
    }
}

#[test]
fn a_name_begins_a_new_life() {
    let mut store = Store::new();
    let first = store.write(of(artist("a"))).unwrap();
    store.delete(&artist("a")).unwrap();
    let second = store.write(of(artist("a"))).unwrap();
    assert_ne!(first.id.uid, second.id.uid);
    let of_first = of(first.id.clone());
    assert_eq!(store.write(of_first), Err(ResourceRefusal::WrongUid));
    assert_eq!(store.delete(&first.id), Err(ResourceRefusal::WrongUid));
    assert_eq!(store.read(&artist("a")), Some(second));
}

#[test]
fn space_that_resources_take_is_counted() {
    let mut store = Store::new();
    let before = store.bed.store.current().head().live_bytes;
    let stored = store.write(of(artist("a"))).unwrap();
    store.write(of(artist("a"))).unwrap();
    store.write_status(&stored.id, "k", None).unwrap();
    assert!(store.bed.store.current().head().live_bytes > before);
    store.delete(&artist("a")).unwrap();
    store.reap_all();
    let head = store.bed.store.current().head();
    assert_eq!((head.live_bytes, head.live_keys), (before, 0));
}

#[test]
fn a_full_store_takes_deletions_only() {
    let mut store = Store::new();
    store.write(of(artist("a"))).unwrap();
    let live = store.bed.store.current().head().live_bytes;
    store.bed.apply(crate::tests::bed::quota(Some(live)));
    let write = store.write_command(of(artist("b")), None);
    let refused = store.bed.apply(Command::Resource(ResourceCommand::Write(Box::new(write))));
    assert_eq!(refused, Outcome::Refused(Refusal::NoSpace));
    assert_eq!(store.delete(&artist("a")), Ok(ResourceDeletion::Removed));
    store.reap_all();
    assert!(store.bed.store.current().head().live_bytes < live);
}

#[test]
fn compaction_gives_back_what_was_removed() {
    let mut store = Store::new();
    for _ in 0..10 {
        store.write(of(artist("a"))).unwrap();
        store.delete(&artist("a")).unwrap();
        store.reap_all();
    }
    let kept = store.write(of(artist("a"))).unwrap();
    // Only a compaction of the KV face can move the point so far.
    store.bed.apply(crate::tests::bed::put("k", "v"));
    store.bed.apply(crate::tests::bed::compact(2));
    let hash = store.bed.hash();
    assert!(store.bed.reclaim(7) > 30);
    assert_eq!(store.bed.hash(), hash);
    assert_eq!(store.read(&artist("a")), Some(kept));
}
