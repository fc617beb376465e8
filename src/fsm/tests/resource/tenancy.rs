//! Units of tenancy: existence, refusals, and deletion (spec: consul §5.4).

use super::*;

fn partition(name: &str) -> ResourceId {
    ResourceId { name: name.to_owned(), type_: Type::partition(), ..ResourceId::default() }
}

fn namespace(partition: &str, name: &str) -> ResourceId {
    ResourceId {
        name: name.to_owned(),
        type_: Type::namespace(),
        tenancy: Tenancy::new(partition, ""),
        ..ResourceId::default()
    }
}

fn artist_in(partition: &str, namespace: &str) -> ResourceId {
    ResourceId { tenancy: Tenancy::new(partition, namespace), ..artist("a") }
}

#[test]
fn a_unit_must_be_there() {
    let mut store = Store::new();
    let label = |partition: &str| ResourceId {
        type_: Type::new("demo", "v1", "RecordLabel"),
        tenancy: Tenancy::new(partition, ""),
        ..artist("l")
    };
    let executive =
        ResourceId { type_: Type::new("demo", "v1", "Executive"), tenancy: Tenancy::default(), ..artist("e") };
    for (id, wanted) in [
        (artist_in("p", "default"), Some(ResourceRefusal::PartitionNotFound)),
        (artist_in("default", "n"), Some(ResourceRefusal::NamespaceNotFound)),
        (label("p"), Some(ResourceRefusal::PartitionNotFound)),
        (namespace("p", "n"), Some(ResourceRefusal::PartitionNotFound)),
        (artist_in("default", "default"), None),
        (label("default"), None),
        (executive, None),
    ] {
        assert_eq!(store.write(of(id.clone())).err(), wanted, "{id:?}");
    }
    store.write(of(partition("p"))).unwrap();
    store.write(of(namespace("p", "n"))).unwrap();
    for id in [artist_in("p", "n"), artist_in("p", "default"), label("p")] {
        assert!(store.write(of(id.clone())).is_ok(), "{id:?}");
    }
    assert_eq!((store.unit_count("p", "n"), store.unit_count("p", "default"), store.unit_count("p", "*")), (1, 1, 4));
}

#[test]
fn an_empty_unit_goes_at_once_and_a_used_one_is_emptied_first() {
    let mut store = Store::new();
    store.write(of(partition("p"))).unwrap();
    store.write(of(namespace("p", "n"))).unwrap();
    assert_eq!(store.delete(&namespace("p", "n")), Ok(ResourceDeletion::Removed));
    store.reap_all();
    assert_eq!(store.delete(&partition("p")), Ok(ResourceDeletion::Removed));
    store.reap_all();

    store.write(of(partition("p"))).unwrap();
    store.write(of(namespace("p", "n"))).unwrap();
    let held = store.write(with_finalizers(of(artist_in("p", "n")), "f")).unwrap();
    for unit in [namespace("p", "n"), partition("p")] {
        assert_eq!(store.delete(&unit), Ok(ResourceDeletion::Marked), "{unit:?}");
        assert_eq!(store.delete(&unit), Ok(ResourceDeletion::Nothing), "{unit:?}");
    }
    // Refuses new content, and accepts every step of the deletion.
    let new = ResourceId { name: "new".to_owned(), ..artist_in("p", "n") };
    assert_eq!(store.write(of(new)), Err(ResourceRefusal::TenancyMarked));
    let edited = Resource { data: data("y"), ..of(artist_in("p", "n")) };
    assert_eq!(store.write(edited), Err(ResourceRefusal::TenancyMarked));
    assert!(store.write_status(&held.id, "k", None).is_ok());
    assert_eq!(store.delete(&held.id), Ok(ResourceDeletion::Marked));
    assert!(store.write(with_finalizers(of(artist_in("p", "n")), "")).is_ok());
    assert_eq!(store.delete(&held.id), Ok(ResourceDeletion::Removed));
    assert_eq!(store.delete(&namespace("p", "n")), Ok(ResourceDeletion::Nothing), "its tombstone is still there");
    store.reap_all();
    assert_eq!(store.unit_count("p", "n"), 0);
    assert_eq!(store.delete(&namespace("p", "n")), Ok(ResourceDeletion::Removed));
    store.reap_all();
    assert_eq!(store.delete(&partition("p")), Ok(ResourceDeletion::Removed));
}

#[test]
fn finalizers_go_in_a_marked_unit_before_their_resource_is_marked() {
    let mut store = Store::new();
    store.write(of(namespace("default", "n"))).unwrap();
    store.write(with_finalizers(of(artist_in("default", "n")), "f g")).unwrap();
    store.delete(&namespace("default", "n")).unwrap();
    assert!(store.write(with_finalizers(of(artist_in("default", "n")), "g")).is_ok());
    let added = with_finalizers(of(artist_in("default", "n")), "g h");
    assert_eq!(store.write(added), Err(ResourceRefusal::TenancyMarked));
}

#[test]
fn the_default_units_stay() {
    let mut store = Store::new();
    for id in [partition("default"), namespace("default", "default")] {
        store.write(of(id.clone())).unwrap();
        assert_eq!(store.delete(&id), Err(ResourceRefusal::DefaultUnit));
        let mut marked = of(id);
        marked.metadata.insert(headwater_types::resource::DELETION_TIMESTAMP.to_owned(), NOW.to_owned());
        assert_eq!(store.write(marked), Err(ResourceRefusal::DefaultUnit));
    }
    store.write(of(partition("p"))).unwrap();
    store.write(of(namespace("p", "default"))).unwrap();
    assert_eq!(store.delete(&namespace("p", "default")), Ok(ResourceDeletion::Removed));
}
