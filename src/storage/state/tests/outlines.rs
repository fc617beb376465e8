//! Outlines in a transaction agree with the records.

use std::collections::BTreeMap;

use super::bed::TestBed;
use crate::state::{AppliedState, NEWEST, StateReader, Table, WriteTxn};
use headwater_types::resource::{
    Any, Condition, Reference, Resource, ResourceId, Scope, Status, Tenancy, Type, TypeName, resource_key,
};
use headwater_types::{LogIndex, Term};

fn id(uid: &str, version: &str) -> ResourceId {
    ResourceId {
        uid: uid.to_owned(),
        name: "blue".to_owned(),
        type_: Type::new("music", version, "Album"),
        tenancy: Tenancy::new("default", "n"),
    }
}

/// Resources of one name that replace each other: two plain ones, and one with all fields.
fn lives() -> Vec<Resource> {
    let plain = |uid: &str, version: &str| Resource {
        id: id(uid, version),
        generation: "g".to_owned(),
        data: Some(Any { type_url: "t/x".to_owned(), value: "data".into() }),
        ..Resource::default()
    };
    let reference = Reference { name: "other".to_owned(), ..Reference::default() };
    let condition = Condition { type_: "ready".to_owned(), resource: Some(reference), ..Condition::default() };
    let status = Status { observed_generation: "g".to_owned(), conditions: vec![condition], updated_at: None };
    let full = Resource {
        owner: Some(ResourceId { name: "artist".to_owned(), ..id("u0", "v1") }),
        metadata: BTreeMap::from([("finalizers".to_owned(), "a b".to_owned())]),
        status: BTreeMap::from([("key".to_owned(), status)]),
        ..plain("u3", "v2")
    };
    vec![plain("u1", "v1"), plain("u2", "v2"), full]
}

fn command<T>(bed: &TestBed, index: u64, act: impl FnOnce(&mut WriteTxn<'_>) -> T) -> T {
    let db = bed.store.current();
    let mut txn = bed.store.begin(&db).unwrap();
    txn.begin_command(LogIndex(index), 0);
    let done = act(&mut txn);
    txn.end_command();
    txn.set_applied(&AppliedState { term: Term(1), index: LogIndex(index), membership: None });
    txn.commit().unwrap();
    done
}

/// The resource without data and generation: read as an outline, again as an outline (from the
/// cache), and from its record.
fn outlines(bed: &TestBed) -> [Option<Resource>; 3] {
    let db = bed.store.current();
    let txn = bed.store.begin(&db).unwrap();
    let asked = id("", "v9");
    let outline = || txn.resource_outline(&asked).unwrap();
    let (first, again, whole) = (outline(), outline(), txn.resource(&resource_key(&asked)).unwrap());
    assert_eq!(first.as_ref().map(|found| found.0), whole.as_ref().map(|found| found.0));
    let without_data = |(_, resource)| Resource { generation: String::new(), data: None, ..resource };
    [first.map(|found| found.1), again.map(|found| found.1), whole.map(without_data)]
}

#[test]
fn an_outline_is_what_the_record_says_wherever_it_comes_from() {
    let mut bed = TestBed::new();
    let mut index = 0;
    for resource in lives() {
        index += 1;
        command(&bed, index, |txn| {
            let key = resource_key(&resource.id);
            let previous = txn.resource(&key).unwrap();
            if let Some((version, last)) = previous {
                txn.delete_resource(&version, last).unwrap();
                assert_eq!(txn.resource_outline(&resource.id).unwrap(), None, "removed by this command");
            }
        });
        assert_eq!(outlines(&bed), [None, None, None], "removed by an earlier one");
        index += 1;
        command(&bed, index, |txn| {
            txn.put_resource(resource.clone(), None).unwrap();
            let (_, pending) = txn.resource_outline(&resource.id).unwrap().expect("it was just written");
            assert_eq!((pending.id, pending.owner), (resource.id.clone(), resource.owner.clone()));
            assert_eq!((pending.metadata, pending.status), (resource.metadata.clone(), resource.status.clone()));
        });
        let remembered = outlines(&bed);
        bed = bed.reopened();
        let read = outlines(&bed);
        assert_eq!(remembered, read);
        let [first, again, whole] = read;
        assert!(first.is_some() && first == again && again == whole, "{first:?} {again:?} {whole:?}");
    }
    // A view caches the newest version without an outline; a transaction still finds the outline
    // afterwards.
    let db = bed.store.current();
    db.view().unwrap().lookup(Table::Resource, &resource_key(&id("", "v1")), NEWEST).unwrap();
    let [first, _, whole] = outlines(&bed);
    assert_eq!(first, whole);
}

#[test]
fn a_remembered_registration_is_forgotten_when_types_change() {
    let bed = TestBed::new();
    let name = TypeName("music-v1-album".to_owned());
    let read = |txn: &WriteTxn<'_>| txn.registration(&name).unwrap().map(|registered| registered.version);
    let registration = |version| crate::state::Registration {
        type_: Type::new("music", "v1", "Album"),
        scope: Scope::Namespace,
        version: LogIndex(version),
    };
    let mut index = 0;
    for registered in [None, Some(2), Some(3), None, Some(5)] {
        index += 1;
        let before = command(&bed, index, |txn| {
            let before = read(txn);
            txn.set_registration(name.clone(), LogIndex(index), registered.map(registration)).unwrap();
            assert_eq!(read(txn), registered.map(LogIndex), "seen by the command that wrote it");
            before
        });
        let db = bed.store.current();
        let txn = bed.store.begin(&db).unwrap();
        assert_eq!([read(&txn), read(&txn)], [registered.map(LogIndex); 2], "after {before:?}");
    }
}
