//! Registrations of types, which are resources themselves.

use super::*;
use headwater_storage::state::RegisteredTypes;

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
    let changed = store.register_as(artist("a").type_, Scope::Namespace, data("changed")).unwrap();
    let stale = store.run(ResourceCommand::Write(Box::new(write)));
    assert_eq!(stale, Err(ResourceRefusal::TypeChanged));
    store.write(of(artist("a"))).unwrap();
    assert_eq!(store.registered(&artist("a").type_), changed.version);
}

#[test]
fn what_says_nothing_of_a_type_leaves_its_registration_as_it_is() {
    let mut store = Store::new();
    let type_ = artist("a").type_;
    let first = store.register_as(type_.clone(), Scope::Namespace, data("said")).unwrap();
    let write = store.write_command(of(artist("a")), None);
    let types = store.bed.store.current().head().types;
    assert_eq!(types.changed, first.version);
    // Writes without new data: a status, an equal registration, a finalizer, a mark.
    store.write_status(&first.id, "k", None).unwrap();
    store.register_as(type_.clone(), Scope::Namespace, data("said")).unwrap();
    let id = ResourceId { uid: String::new(), ..first.id.clone() };
    let held = with_finalizers(Resource { id: id.clone(), data: data("said"), ..Resource::default() }, "f");
    let mut held = store.write_command(held, None);
    held.registers = Some((type_.clone(), Scope::Namespace));
    store.run(ResourceCommand::Write(Box::new(held))).unwrap();
    assert_eq!(store.delete(&id), Ok(ResourceDeletion::Marked));
    let now = store.read(&id).unwrap();
    assert!(now.is_marked() && now.version > first.version && now.status.contains_key("k"));
    assert_eq!(store.registered(&type_), first.version);
    assert_eq!(store.bed.store.current().head().types, types);
    store.run(ResourceCommand::Write(Box::new(write))).unwrap();
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
