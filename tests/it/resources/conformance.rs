//! The cases of Consul's suite for storage backends (spec: consul §6.1), by requests of clients,
//! for every kind of member.
//!
//! Consul's suite calls a storage backend, which takes any uid. A client cannot choose a uid, so
//! the cases use those that the server gave.

use headwater::pb::pbresource as pb;
use tonic::Code;

use super::client::{Client, Delivery, Scope, id_of, name_of, named, names_of, refused, type_of, without_uid};
use crate::cluster::{Cluster, wait_until};

/// The member at which the cases run.
pub struct Member<'c> {
    pub cluster: &'c Cluster,
    pub index: usize,
}

impl Member<'_> {
    fn client(&self) -> Client {
        Client::of(self.cluster, self.index)
    }
}

/// Runs the cases twice: with reads of the member's own state, and with linearizable reads. Only
/// the case of deletions runs once, at the end.
pub async fn run_all(member: &Member<'_>) {
    let client = member.client();
    client.make_unit("default", "other").await;
    client.make_unit("billing", "payments").await;
    for (group, reader) in [("eventual", client.clone()), ("strong", client.consistent())] {
        let bed = Bed::new(group, &client, &reader).await;
        read(&bed).await;
        cas_write(&bed).await;
        cas_delete(&bed).await;
        list_and_watch(&bed).await;
        list_by_owner(&bed).await;
        moves_are_told_to_both_versions(&bed).await;
    }
    deletions_are_told(&client).await;
}

struct Bed<'c> {
    writer: &'c Client,
    reader: &'c Client,
    a1: pb::Type,
    a2: pb::Type,
    b: pb::Type,
}

impl<'c> Bed<'c> {
    async fn new(group: &str, writer: &'c Client, reader: &'c Client) -> Self {
        let bed = Self {
            writer,
            reader,
            a1: type_of(group, "v1", "Aa"),
            a2: type_of(group, "v2", "Aa"),
            b: type_of(group, "v1", "Bb"),
        };
        for type_ in [&bed.a1, &bed.a2, &bed.b] {
            writer.register(type_, Scope::Namespace).await;
        }
        bed
    }

    fn at_home(&self, type_: &pb::Type, name: &str) -> pb::Resource {
        named(type_.clone(), ("default", "default"), name)
    }
}

async fn read(bed: &Bed<'_>) {
    let stored = bed.writer.write(bed.at_home(&bed.a1, "read")).await.unwrap();
    let id = id_of(&stored);
    assert_eq!(bed.reader.read(id.clone()).await.unwrap(), stored, "simple");
    assert_eq!(bed.reader.read(without_uid(id.clone())).await.unwrap(), stored, "no uid");
    let other_name = pb::Id { name: "different".into(), ..without_uid(id.clone()) };
    refused(bed.reader.read(other_name).await, Code::NotFound, "resource not found");
    let other_life = pb::Id { uid: "b".into(), ..id.clone() };
    refused(bed.reader.read(other_life).await, Code::NotFound, "resource not found");
    let other_version = pb::Id { r#type: Some(bed.a2.clone()), ..id };
    let said = "requested with GroupVersion=\"v2\", but stored with GroupVersion=\"v1\"";
    refused(bed.reader.read(other_version).await, Code::InvalidArgument, said);
}

async fn cas_write(bed: &Bed<'_>) {
    let with = |resource: &pb::Resource, version: &str| pb::Resource { version: version.into(), ..resource.clone() };
    let new = bed.at_home(&bed.b, "web");
    for version in ["some-version", "1", "18446744073709551615"] {
        refused(bed.writer.write(with(&new, version)).await, Code::Aborted, "CAS operation failed");
    }
    let first = bed.writer.write(new.clone()).await.unwrap();
    assert!(!first.version.is_empty());
    let second = bed.writer.write(first.clone()).await.unwrap();
    assert_ne!(second.version, first.version);
    refused(bed.writer.write(first).await, Code::Aborted, "CAS operation failed");
    // A uid does not change.
    let other_life = pb::Id { uid: "b".into(), ..id_of(&second) };
    let renamed = pb::Resource { id: Some(other_life), ..second.clone() };
    refused(bed.writer.write(renamed).await, Code::FailedPrecondition, "uid");
    bed.writer.delete_if(id_of(&second), &second.version).await.unwrap();
    let recreated = bed.writer.write(new).await.unwrap();
    assert_ne!(id_of(&recreated).uid, id_of(&second).uid);
}

async fn cas_delete(bed: &Bed<'_>) {
    let stored = bed.writer.write(bed.at_home(&bed.b, "gone")).await.unwrap();
    let id = id_of(&stored);
    refused(bed.writer.delete_if(id.clone(), "bogus").await, Code::Aborted, "CAS operation failed");
    refused(bed.writer.delete_if(without_uid(id.clone()), "bogus").await, Code::Aborted, "CAS operation failed");
    let other_life = pb::Id { uid: "b".into(), ..id.clone() };
    let deleted = bed.writer.delete_if(other_life, &stored.version).await;
    refused(deleted, Code::FailedPrecondition, "the given uid doesn't match what is stored");
    assert_eq!(bed.reader.read(id.clone()).await.unwrap(), stored, "another life was meant");
    bed.writer.delete_if(id.clone(), &stored.version).await.unwrap();
    refused(bed.reader.read(id).await, Code::NotFound, "resource not found");
}

/// Units and name prefix of a list, and indexes of the seeds that it finds: of version 1 of the
/// type, and of version 2.
type Query = ((&'static str, &'static str), &'static str, &'static [usize], &'static [usize]);

const QUERIES: &[Query] = &[
    (("default", "default"), "", &[0, 1], &[2]),
    (("billing", "payments"), "", &[3], &[]),
    (("default", "default"), "a", &[0, 1], &[]),
    (("*", "*"), "", &[0, 1, 3, 5], &[2]),
    (("default", "*"), "", &[0, 1, 5], &[2]),
    (("*", "default"), "", &[0, 1], &[2]),
    (("*", "*"), "a", &[0, 1, 3, 5], &[]),
];

/// Lists and watches by [`QUERIES`]. The seeds have kinds of their own, so that other cases do not
/// interfere.
async fn list_and_watch(bed: &Bed<'_>) {
    let (a1, a2) = (type_of(&bed.a1.group, "v1", "Listed"), type_of(&bed.a1.group, "v2", "Listed"));
    let b = type_of(&bed.a1.group, "v1", "Other");
    for type_ in [&a1, &a2, &b] {
        bed.writer.register(type_, Scope::Namespace).await;
    }
    let seeds = [
        named(a1.clone(), ("default", "default"), "admin"),
        named(a1.clone(), ("default", "default"), "api"),
        named(a2.clone(), ("default", "default"), "web"),
        named(a1.clone(), ("billing", "payments"), "api"),
        named(b, ("default", "default"), "admin"),
        named(a1.clone(), ("default", "other"), "autoscaler"),
    ];
    // Watches that begin before the first write get the resources one by one.
    let mut following = Vec::new();
    for (units, prefix, first, second) in QUERIES {
        for (type_, wanted) in [(&a1, first), (&a2, second)] {
            let mut watch = bed.reader.watch(type_.clone(), Some(*units), prefix).await.unwrap();
            assert_eq!(watch.next().await, Delivery::End, "{units:?} {prefix}");
            following.push((watch, *wanted));
        }
    }
    let mut stored = Vec::new();
    for seed in &seeds {
        stored.push(bed.writer.write(seed.clone()).await.unwrap());
    }
    let pick = |at: &[usize]| at.iter().map(|at| stored[*at].clone()).collect::<Vec<_>>();
    for (watch, wanted) in &mut following {
        for resource in pick(wanted) {
            assert_eq!(watch.next().await, Delivery::Upsert(resource.clone()));
            // A resource can be read once its event was delivered.
            assert_eq!(bed.reader.read(id_of(&resource)).await.unwrap(), resource);
        }
    }
    let sorted = |mut resources: Vec<pb::Resource>| {
        resources.sort_by(|a, b| id_of(a).uid.cmp(&id_of(b).uid));
        resources
    };
    for (units, prefix, first, second) in QUERIES {
        for (type_, wanted) in [(&a1, first), (&a2, second)] {
            let listed = bed.reader.list(type_.clone(), *units, prefix).await.unwrap();
            assert_eq!(sorted(listed), sorted(pick(wanted)), "{units:?} {prefix}");
            let mut watch = bed.reader.watch(type_.clone(), Some(*units), prefix).await.unwrap();
            let (listed, index) = watch.list().await;
            assert_eq!(sorted(listed), sorted(pick(wanted)), "{units:?} {prefix}");
            assert!(index > 0);
        }
    }
    for (watch, wanted) in &mut following {
        let Some(&last) = wanted.last() else { continue };
        // The last resource is written once more, so that every watch gets the deletion of one.
        let again = bed.writer.write(seeds[last].clone()).await.unwrap();
        loop {
            if watch.next().await == Delivery::Upsert(again.clone()) {
                break;
            }
        }
    }
}

async fn deletions_are_told(client: &Client) {
    let type_ = type_of("deleted", "v1", "Thing");
    client.register(&type_, Scope::Namespace).await;
    let mut stored = Vec::new();
    for name in ["a", "b", "c"] {
        stored.push(client.write(named(type_.clone(), ("default", "default"), name)).await.unwrap());
    }
    let mut watch = client.watch(type_.clone(), None, "").await.unwrap();
    watch.list().await;
    for resource in stored {
        client.delete(id_of(&resource)).await.unwrap();
        assert_eq!(watch.next().await, Delivery::Delete(resource.clone()), "as it was last");
        refused(client.read(id_of(&resource)).await, Code::NotFound, "resource not found");
    }
}

async fn moves_are_told_to_both_versions(bed: &Bed<'_>) {
    let [v1, v2] = ["v1", "v2"].map(|version| type_of(&bed.a1.group, version, "Moved"));
    for type_ in [&v1, &v2] {
        bed.writer.register(type_, Scope::Namespace).await;
    }
    let after = |resource: &pb::Resource| bed.reader.with("headwater-min-index", resource.version.as_str());
    let never_first = bed.writer.write(bed.at_home(&v2, "never-v1")).await.unwrap();
    let first = bed.writer.write(bed.at_home(&v1, "a")).await.unwrap();
    let mut as_v1 = after(&first).watch(v1.clone(), None, "").await.unwrap();
    let (listed, start) = as_v1.list().await;
    assert_eq!(listed, std::slice::from_ref(&first));
    let mut as_v2 = after(&first).watch(v2.clone(), None, "").await.unwrap();
    assert_eq!(as_v2.list().await.0, std::slice::from_ref(&never_first));

    let moved = bed.writer.write(bed.at_home(&v2, "a")).await.unwrap();
    let index = moved.version.parse().unwrap();
    assert_eq!(as_v1.next_with_index().await.unwrap(), (Delivery::Delete(first.clone()), index), "as it was last");
    assert_eq!(as_v2.next_with_index().await.unwrap(), (Delivery::Upsert(moved.clone()), index));
    // Shared lists from before the move still exist, but are served with later changes merged.
    for (type_, wanted) in [(&v1, vec![]), (&v2, vec![moved.clone(), never_first.clone()])] {
        let reader = after(&moved);
        assert_eq!(reader.list(type_.clone(), ("", ""), "").await.unwrap(), wanted);
        assert_eq!(names_of(&reader.watch(type_.clone(), None, "").await.unwrap().list().await.0), names_of(&wanted));
    }
    let resuming = bed.reader.with("headwater-resume-index", start.to_string());
    let mut resumed = resuming.watch(v1.clone(), None, "").await.unwrap();
    assert_eq!(resumed.next_with_index().await.unwrap(), (Delivery::End, start));
    assert_eq!(resumed.next_with_index().await.unwrap(), (Delivery::Delete(first), index));

    // Later events of the moved resource, and of the one that was always of version 2, go to
    // watches of version 2 only.
    for gone in [moved, never_first] {
        bed.writer.delete(id_of(&gone)).await.unwrap();
        assert_eq!(as_v2.next().await, Delivery::Delete(gone));
    }
    let back = bed.writer.write(bed.at_home(&v1, "a")).await.unwrap();
    for watch in [&mut as_v1, &mut resumed] {
        assert_eq!(watch.next().await, Delivery::Upsert(back.clone()));
    }
}

async fn list_by_owner(bed: &Bed<'_>) {
    let owner = bed.writer.write(bed.at_home(&bed.a1, "owner")).await.unwrap();
    let owned = |type_: &pb::Type, name: &str| pb::Resource { owner: Some(id_of(&owner)), ..bed.at_home(type_, name) };
    let first = bed.writer.write(owned(&bed.b, "r1")).await.unwrap();
    let second = bed.writer.write(owned(&bed.a2, "r2")).await.unwrap();
    let listed = bed.reader.owned(id_of(&owner)).await.unwrap();
    assert_eq!(names_of(&listed), ["r1", "r2"]);
    assert!(listed.contains(&first) && listed.contains(&second));
    let other_life = pb::Id { uid: "b".into(), ..id_of(&owner) };
    assert_eq!(bed.reader.owned(other_life).await.unwrap(), []);
    bed.writer.delete(id_of(&first)).await.unwrap();
    let listed = bed.reader.owned(id_of(&owner)).await.unwrap();
    assert_eq!(listed.iter().map(name_of).collect::<Vec<_>>(), ["r2"]);
    // The remaining children are deleted after their owner, a little later.
    bed.writer.delete(id_of(&owner)).await.unwrap();
    wait_until("what a deleted resource owned is gone", async || {
        bed.reader.owned(id_of(&owner)).await.unwrap().is_empty()
    })
    .await;
}
