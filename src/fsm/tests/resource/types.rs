//! Types that are resources themselves.

use super::*;
use crate::storage::state::{RegisteredTypes, StateReader as _};

fn registered(type_: &Type) -> ResourceId {
    ResourceId { name: TypeName::of(type_).0, type_: Type::resource_type(), ..ResourceId::default() }
}

#[test]
fn a_type_is_known_from_its_registration_to_its_removal() {
    let mut store = Store::empty();
    let type_ = artist("a").type_;
    assert_eq!(store.write(of(artist("a"))), Err(ResourceRefusal::TypeUnknown));
    let registration = store.register(type_.clone(), Scope::Namespace).unwrap();
    let head = store.bed.store.current().head();
    assert_eq!(head.types, RegisteredTypes { changed: registration.version, count: 1 });
    store.write(of(artist("a"))).unwrap();
    assert_eq!(store.type_count(&type_), 1);
    assert_eq!(store.delete(&registered(&type_)), Err(ResourceRefusal::TypeInUse));
    store.delete(&artist("a")).unwrap();
    assert_eq!(store.delete(&registered(&type_)), Ok(ResourceDeletion::Removed));
    assert_eq!(store.bed.store.current().head().types.count, 0);
    assert_eq!(store.write(of(artist("a"))), Err(ResourceRefusal::TypeUnknown));
    store.reap_all();
    assert!(store.everything().is_empty());
}

#[test]
fn a_write_obeys_the_registration_that_is_current() {
    let mut store = Store::new();
    let write = store.write_command(of(artist("a")), None);
    store.register(artist("a").type_, Scope::Namespace).unwrap();
    let stale = store.run(ResourceCommand::Write(Box::new(write)));
    assert_eq!(stale, Err(ResourceRefusal::TypeChanged));
    store.write(of(artist("a"))).unwrap();
    // A status of the registration changes its version, too: whoever follows versions sees every change.
    let id = store.read(&registered(&artist("a").type_)).unwrap().id;
    let version = written(store.write_status(&id, "k", None).unwrap()).version;
    let record = store.view(|view| view.type_record(&TypeName::of(&artist("a").type_)).unwrap());
    assert_eq!(record.registered.unwrap().version, version);
    store.write(of(artist("a"))).unwrap();
}

#[test]
fn names_and_scope_never_change() {
    let mut store = Store::new();
    let type_ = artist("a").type_;
    assert_eq!(store.register(type_.clone(), Scope::Cluster), Err(ResourceRefusal::TypeIdentityChanged));
    let other_case = Type::new("demo", "v2", "ArTist");
    assert_eq!(store.register(other_case, Scope::Namespace), Err(ResourceRefusal::TypeIdentityChanged));
    assert!(store.register(type_, Scope::Namespace).is_ok());
}

#[test]
fn a_type_goes_although_another_version_of_its_kind_is_used() {
    let mut store = Store::new();
    store.write(of(artist("a"))).unwrap();
    assert_eq!(store.delete(&registered(&Type::new("demo", "v1", "Artist"))), Ok(ResourceDeletion::Removed));
    assert_eq!(store.delete(&registered(&artist("a").type_)), Err(ResourceRefusal::TypeInUse));
}
