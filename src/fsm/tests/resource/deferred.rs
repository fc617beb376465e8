//! Deletion that waits for finalizers: the rules of spec consul §5.8, most of them as a row.

use super::*;
use headwater_types::resource::DELETION_TIMESTAMP;

/// A case: the write of `input` over `stored`. Each has four values: deletionTimestamp, finalizers,
/// another metadata key, and the data. `-` leaves the metadata key out.
struct Row {
    what: &'static str,
    stored: (&'static str, &'static str, &'static str, &'static str),
    input: (&'static str, &'static str, &'static str, &'static str),
    wanted: Option<ResourceRefusal>,
}

/// The resource with the values of `stored` or `input` of a [`Row`].
fn resource((mark, finalizers, other, text): (&str, &str, &str, &str)) -> Resource {
    let mut resource = Resource { data: data(text), ..of(artist("a")) };
    for (key, value) in [(DELETION_TIMESTAMP, mark), (FINALIZERS, finalizers), ("note", other)] {
        if value != "-" {
            resource.metadata.insert(key.to_owned(), value.to_owned());
        }
    }
    resource
}

const T: &str = "2026-01-01T00:00:00Z";
const U: &str = "2027-01-01T00:00:00Z";

#[rustfmt::skip]
const ROWS: &[Row] = &[
    Row { what: "the mark cannot be taken off", stored: (T, "f", "-", "x"), input: ("-", "-", "-", "x"), wanted: Some(ResourceRefusal::MarkRemoved) },
    Row { what: "nor changed", stored: (T, "f", "-", "x"), input: (U, "-", "-", "x"), wanted: Some(ResourceRefusal::MarkModified) },
    Row { what: "nor emptied", stored: (T, "f", "-", "x"), input: ("", "-", "-", "x"), wanted: Some(ResourceRefusal::MarkModified) },
    Row { what: "an empty mark may be given a time", stored: ("", "f", "-", "x"), input: (T, "", "-", "x"), wanted: None },
    Row { what: "a write may mark", stored: ("-", "f", "n", "x"), input: (T, "f", "n", "x"), wanted: None },
    Row { what: "without a finalizer, too", stored: ("-", "-", "-", "x"), input: (T, "-", "-", "x"), wanted: None },
    Row { what: "with an empty time, too", stored: ("-", "f", "-", "x"), input: ("", "f", "-", "x"), wanted: None },
    Row { what: "but not with what is no time", stored: ("-", "f", "-", "x"), input: ("garbage", "f", "-", "x"), wanted: Some(ResourceRefusal::MarkInvalid) },
    Row { what: "nor with a date alone", stored: ("-", "-", "-", "x"), input: ("2026-01-01", "-", "-", "x"), wanted: Some(ResourceRefusal::MarkInvalid) },
    Row { what: "a time of another zone is one", stored: ("-", "f", "-", "x"), input: ("2026-01-01T02:00:00.5+02:00", "f", "-", "x"), wanted: None },
    Row { what: "an empty mark is not given what is no time", stored: ("", "f", "-", "x"), input: ("garbage", "", "-", "x"), wanted: Some(ResourceRefusal::MarkInvalid) },
    Row { what: "but change no metadata then", stored: ("-", "f", "n", "x"), input: (T, "f", "m", "x"), wanted: Some(ResourceRefusal::MetadataModified) },
    Row { what: "nor finalizers", stored: ("-", "f g", "-", "x"), input: (T, "f", "-", "x"), wanted: Some(ResourceRefusal::MetadataModified) },
    Row { what: "nor data", stored: ("-", "f", "-", "x"), input: (T, "f", "-", "y"), wanted: Some(ResourceRefusal::DataModified) },
    Row { what: "a marked one is not written for nothing", stored: (T, "f", "-", "x"), input: (T, "f", "-", "x"), wanted: Some(ResourceRefusal::NoOpWrite) },
    Row { what: "whether it has finalizers or not", stored: (T, "-", "-", "x"), input: (T, "-", "-", "x"), wanted: Some(ResourceRefusal::NoOpWrite) },
    Row { what: "one finalizer goes", stored: (T, "f g", "-", "x"), input: (T, "g", "-", "x"), wanted: None },
    Row { what: "all go", stored: (T, "f g", "-", "x"), input: (T, "", "-", "x"), wanted: None },
    Row { what: "none goes", stored: (T, "f g", "-", "x"), input: (T, "g f", "-", "x"), wanted: Some(ResourceRefusal::FinalizerNotRemoved) },
    Row { what: "one goes, another comes", stored: (T, "f g", "-", "x"), input: (T, "f h", "-", "x"), wanted: Some(ResourceRefusal::FinalizerNotRemoved) },
    Row { what: "one comes", stored: (T, "f", "-", "x"), input: (T, "f g", "-", "x"), wanted: Some(ResourceRefusal::FinalizerNotRemoved) },
    Row { what: "one goes, a note changes", stored: (T, "f", "n", "x"), input: (T, "", "m", "x"), wanted: Some(ResourceRefusal::MetadataModified) },
    Row { what: "one goes, data change", stored: (T, "f", "-", "x"), input: (T, "", "-", "y"), wanted: Some(ResourceRefusal::DataModified) },
    Row { what: "nobody holds it, so it may be edited", stored: (T, "-", "-", "x"), input: (T, "-", "n", "y"), wanted: None },
    Row { what: "an unmarked one gets a finalizer", stored: ("-", "-", "-", "x"), input: ("-", "f", "-", "x"), wanted: None },
    Row { what: "and loses it again", stored: ("-", "f", "-", "x"), input: ("-", "", "-", "x"), wanted: None },
    Row { what: "or exchanges it", stored: ("-", "f", "-", "x"), input: ("-", "g", "-", "y"), wanted: None },
];

/// Stores the resource that a row begins with. A mark is set by a second write.
fn stored(store: &mut Store, row: &Row) -> Resource {
    let (mark, finalizers, other, text) = row.stored;
    let plain = store.write(resource(("-", finalizers, other, text))).unwrap();
    if mark == "-" { plain } else { store.write(resource((mark, finalizers, other, text))).unwrap() }
}

#[test]
fn the_table_of_deferred_deletion() {
    for row in ROWS {
        // A write with an expected version keeps no metadata.
        let mut store = Store::new();
        let before = stored(&mut store, row);
        let done = store.write_if(resource(row.input), Some(before.version.get()));
        assert_eq!(done.as_ref().err().copied(), row.wanted, "{}", row.what);
        match done {
            Ok(after) => assert_eq!(after.metadata, resource(row.input).metadata, "{}", row.what),
            Err(_) => assert_eq!(store.read(&artist("a")), Some(before), "{}", row.what),
        }
    }
}

#[test]
fn a_blanket_write_does_not_undo_a_mark() {
    for (input, wanted) in [
        // Omitted keys are kept, so this write changes nothing.
        (("-", "-", "-", "x"), Some(ResourceRefusal::NoOpWrite)),
        (("-", "-", "n", "x"), Some(ResourceRefusal::MetadataModified)),
        (("-", "-", "-", "y"), Some(ResourceRefusal::DataModified)),
        // An empty list of finalizers is not an omitted one.
        (("-", "", "-", "x"), None),
        (("-", "f", "-", "x"), None),
    ] {
        let mut store = Store::new();
        store.write(resource(("-", "f g", "-", "x"))).unwrap();
        let marked = store.write(resource((T, "f g", "-", "x"))).unwrap();
        let done = store.write(resource(input));
        assert_eq!(done.as_ref().err().copied(), wanted, "{input:?}");
        if let Ok(after) = done {
            assert_eq!(after.metadata.get(DELETION_TIMESTAMP), marked.metadata.get(DELETION_TIMESTAMP));
        }
    }
}

#[test]
fn a_blanket_write_keeps_finalizers() {
    let mut store = Store::new();
    store.write(resource(("-", "f g", "-", "x"))).unwrap();
    let kept = store.write(resource(("-", "-", "n", "y"))).unwrap();
    assert_eq!(kept.finalizers(), ["f", "g"]);
}

#[test]
fn deletion_waits_for_the_last_finalizer() {
    let mut store = Store::new();
    let stored = store.write(with_finalizers(of(artist("a")), "f g")).unwrap();
    assert_eq!(store.delete(&artist("a")), Ok(ResourceDeletion::Marked));
    let marked = store.read(&artist("a")).unwrap();
    assert_eq!(marked.metadata.get(DELETION_TIMESTAMP).map(String::as_str), Some(NOW));
    assert_ne!(marked.generation, stored.generation, "marking is a write");
    assert_eq!(store.delete(&artist("a")), Ok(ResourceDeletion::Nothing), "it is marked already");
    assert_eq!(store.read(&artist("a")), Some(marked));
    // Statuses can still be written.
    assert!(store.write_status(&stored.id, "k", None).is_ok());
    store.write(with_finalizers(of(artist("a")), "g")).unwrap();
    store.write(with_finalizers(of(artist("a")), "")).unwrap();
    assert!(store.read(&artist("a")).is_some(), "somebody has to delete it again");
    assert!(store.all(&Type::tombstone()).is_empty());
    assert_eq!(store.delete(&artist("a")), Ok(ResourceDeletion::Removed));
    assert_eq!(store.read(&artist("a")), None);
}
