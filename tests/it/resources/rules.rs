//! The service's rules about reads, writes, deletes and validation, case by case (spec: consul
//! §6.2).

use headwater::pb::pbresource as pb;
use prost::Message;
use tonic::Code;

use super::client::{
    Client, Demo, album, any, artist, artist_data, artist_type, artist_v1_type, concept_type, executive_type, id,
    id_of, label_type, named, names_of, refused, type_of, without_uid,
};
use crate::cluster::{Cluster, Settings};

/// A cluster of one member with the demo types, and a client of it.
async fn bed() -> (Cluster, Client) {
    let cluster = Cluster::start(Settings::alone()).await;
    let client = Client::of(&cluster, 0);
    client.register_demo().await;
    (cluster, client)
}

/// Ids that every method for a single resource refuses, each with a part of the error's text.
fn bad_ids() -> Vec<(pb::Id, &'static str)> {
    let long = "a".repeat(64);
    let good = || id(artist_type(), ("default", "default"), "a");
    vec![
        (pb::Id { r#type: None, ..good() }, "id.type is required"),
        (pb::Id { name: String::new(), ..good() }, "id.name"),
        (pb::Id { name: "MixedCase".into(), ..good() }, "id.name"),
        (pb::Id { name: long.clone(), ..good() }, "id.name"),
        (id(artist_type(), ("MixedCase", "default"), "a"), "id.tenancy.partition"),
        (id(artist_type(), (&long, "default"), "a"), "id.tenancy.partition"),
        (id(artist_type(), ("default", "MixedCase"), "a"), "id.tenancy.namespace"),
        (id(artist_type(), ("default", &long), "a"), "id.tenancy.namespace"),
        (id(artist_type(), ("*", "default"), "a"), "id.tenancy.partition"),
        (id(label_type(), ("default", "default"), "a"), "cannot have a namespace"),
        (id(executive_type(), ("default", ""), "a"), "cannot have a partition"),
        (id(executive_type(), ("", "default"), "a"), "cannot have a namespace"),
        (id(type_of("demo", "v9", "Artist"), ("default", "default"), "a"), "demo.v9.Artist not registered"),
    ]
}

/// Ids of the same artist as `of`, which is in the default units: the units are written in every
/// legal way.
fn spellings(of: &pb::Id) -> Vec<pb::Id> {
    let units = |partition: &str, namespace: &str| {
        Some(pb::Tenancy { partition: partition.to_owned(), namespace: namespace.to_owned() })
    };
    [units("default", "default"), units("", "default"), units("default", ""), units("", ""), None]
        .into_iter()
        .map(|tenancy| pb::Id { tenancy, ..of.clone() })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_names_no_resource_is_refused_everywhere() {
    let (_cluster, client) = bed().await;
    for (id, said) in bad_ids() {
        let code = Code::InvalidArgument;
        refused(client.read(id.clone()).await, code, said);
        refused(client.delete(id.clone()).await, code, said);
        let written = pb::Resource { id: Some(id.clone()), ..Default::default() };
        refused(client.write(written.clone()).await, code, said);
        refused(client.judge(written).await, code, said);
        let status = pb::WriteStatusRequest {
            id: Some(pb::Id { uid: "u".into(), ..id.clone() }),
            key: "k".into(),
            status: Some(pb::Status { observed_generation: "01ARZ3NDEKTSV4RRFFQ69G5FAV".into(), ..Default::default() }),
            ..Default::default()
        };
        refused(client.write_status(status).await, code, said);
        if !said.contains("cannot") && !said.contains("registered") {
            let owner = said.replacen("id", "resource.owner", 1);
            refused(client.write(album(&id, "child")).await, code, &owner);
        }
        refused(client.owned(pb::Id { uid: "u".into(), ..id }).await, code, &said.replacen("id.", "owner.", 1));
    }
    let no_id = pb::Resource::default();
    refused(client.write(no_id).await, Code::InvalidArgument, "resource.id is required");
    refused(client.owned(id(artist_type(), ("", ""), "a")).await, Code::InvalidArgument, "owner uid is required");
}

#[tokio::test(flavor = "multi_thread")]
async fn units_are_filled_in_and_must_exist() {
    let (_cluster, client) = bed().await;
    let plain = id(artist_type(), ("default", "default"), "a");
    for written in spellings(&plain) {
        let resource = pb::Resource { id: Some(written.clone()), ..artist("a") };
        let judged = client.judge(resource.clone()).await.unwrap();
        assert_eq!(judged.id.unwrap().tenancy, plain.tenancy);
        let stored = client.write(resource).await.unwrap();
        assert_eq!(id_of(&stored).tenancy, plain.tenancy);
        assert!(!id_of(&stored).uid.is_empty() && !stored.version.is_empty() && !stored.generation.is_empty());
        for read in spellings(&plain) {
            assert_eq!(client.read(read.clone()).await.unwrap(), stored);
            assert_eq!(client.consistent().read(read).await.unwrap(), stored);
        }
        client.delete(written).await.unwrap();
        refused(client.read(plain.clone()).await, Code::NotFound, "resource not found");
        let tombstone = pb::Id {
            name: format!("tombstone-a-{}", id_of(&stored).uid.to_lowercase()),
            ..id(type_of("internal", "v1", "Tombstone"), ("default", "default"), "")
        };
        // The tombstone may have been reaped already, but its type can be read.
        match client.read(tombstone).await {
            Ok(found) => assert!(found.data.is_some()),
            Err(status) => assert_eq!(status.code(), Code::NotFound),
        }
    }
    for (units, said) in [(("bogus", "default"), "partition not found"), (("default", "bogus"), "namespace not found")]
    {
        let id = id(artist_type(), units, "a");
        refused(client.read(id.clone()).await, Code::NotFound, said);
        let resource = pb::Resource { id: Some(id.clone()), ..artist("a") };
        refused(client.write(resource.clone()).await, Code::InvalidArgument, said);
        refused(client.judge(resource).await, Code::InvalidArgument, said);
        // Deletes, lists and watches there succeed, and find nothing.
        client.delete(id.clone()).await.unwrap();
        assert_eq!(client.list(artist_type(), units, "").await.unwrap(), []);
        assert_eq!(client.owned(pb::Id { uid: "u".into(), ..id }).await.unwrap(), []);
        let (listed, _) = client.watch(artist_type(), Some(units), "").await.unwrap().list().await;
        assert_eq!(listed, []);
    }
    let label = client.write(named(label_type(), ("", ""), "sony")).await.unwrap();
    assert_eq!(id_of(&label).tenancy.unwrap().partition, "default");
    let executive = pb::Resource {
        id: Some(pb::Id { tenancy: None, ..id(executive_type(), ("", ""), "marvin") }),
        ..Default::default()
    };
    let executive = client.write(executive).await.unwrap();
    assert_eq!(id_of(&executive).tenancy, Some(pb::Tenancy::default()));
}

#[tokio::test(flavor = "multi_thread")]
async fn data_is_completed_and_judged() {
    let (_cluster, client) = bed().await;
    let with = |data| pb::Resource { data, ..artist("a") };
    let nameless = any("demo.v2.Artist", &Demo { name: String::new(), genre: "rock".into() });
    let garbage = prost_types::Any { type_url: "type.googleapis.com/demo.v2.Artist".into(), value: vec![0xff] };
    for (data, said) in [
        (any("demo.v2.Album", &Demo::default()), "resource.data is of wrong type"),
        (nameless, "artist.name required"),
        (garbage, "resource.data is not an encoded demo.v2.Artist"),
    ] {
        refused(client.write(with(Some(data.clone()))).await, Code::InvalidArgument, said);
        refused(client.judge(with(Some(data))).await, Code::InvalidArgument, said);
    }
    let bare = any("demo.v2.Artist", &Demo { name: "korn".into(), genre: String::new() });
    let stored = client.write(with(Some(bare.clone()))).await.unwrap();
    let genre = |resource: &pb::Resource| Demo::decode(resource.data.as_ref().unwrap().value.as_slice()).unwrap().genre;
    assert_eq!(genre(&stored), "unspecified");
    let judged = client.judge(pb::Resource { version: "7".into(), ..with(Some(bare)) }).await.unwrap();
    assert_eq!((genre(&judged), judged.version.as_str()), ("unspecified".to_owned(), "7"));
    refused(
        client.judge(pb::Resource { version: "7".into(), ..named(executive_type(), ("default", ""), "a") }).await,
        Code::InvalidArgument,
        "cannot have a partition",
    );
    // Without data there are no rules to check.
    assert_eq!(client.write(with(None)).await.unwrap().data, None);
    assert!(client.write(named(concept_type(), ("", ""), "funk")).await.is_ok());
    let concept = pb::Resource { data: Some(artist_data("x")), ..named(concept_type(), ("", ""), "funk") };
    refused(client.write(concept).await, Code::InvalidArgument, "resource.data is of wrong type");
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_compare_what_they_are_told_to() {
    let (_cluster, client) = bed().await;
    let first = client.write(artist("a")).await.unwrap();
    let second = client.write(pb::Resource { data: Some(artist_data("b")), ..first.clone() }).await.unwrap();
    assert_eq!(id_of(&second).uid, id_of(&first).uid);
    assert!(second.version != first.version && second.generation != first.generation);
    refused(client.write(first.clone()).await, Code::Aborted, "CAS operation failed");
    let other_life = pb::Id { uid: "01ARZ3NDEKTSV4RRFFQ69G5FAV".into(), ..id_of(&second) };
    let wrong_uid = pb::Resource { id: Some(other_life), version: String::new(), ..second.clone() };
    refused(client.write(wrong_uid).await, Code::FailedPrecondition, "the given uid doesn't match what is stored");
    // Without a version the condition is evaluated when the write is applied: it never fails
    // because of a concurrent one.
    let blanket = || pb::Resource { version: String::new(), generation: String::new(), ..second.clone() };
    let results = futures::future::join_all((0..32).map(|_| client.write(blanket()))).await;
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    let no_uid = pb::Resource { id: Some(without_uid(id_of(&second))), ..blanket() };
    assert_eq!(id_of(&client.write(no_uid).await.unwrap()), id_of(&second));
    // A write with another version of the kind replaces the resource.
    let as_v1 = pb::Resource {
        id: Some(pb::Id { r#type: Some(artist_v1_type()), ..without_uid(id_of(&second)) }),
        data: Some(any("demo.v1.Artist", &Demo { name: "a".into(), genre: String::new() })),
        ..Default::default()
    };
    let moved = client.write(as_v1).await.unwrap();
    assert_eq!((id_of(&moved).uid, id_of(&moved).r#type), (id_of(&second).uid, Some(artist_v1_type())));
    assert_eq!(client.list(artist_type(), ("", ""), "").await.unwrap(), []);
    assert_eq!(names_of(&client.list(artist_v1_type(), ("", ""), "").await.unwrap()), ["a"]);
    refused(client.delete(id_of(&second)).await, Code::InvalidArgument, "GroupVersion");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_write_makes_no_new_resource() {
    let (_cluster, client) = bed().await;
    let stored = client.write(artist("a")).await.unwrap();
    client.delete(id_of(&stored)).await.unwrap();
    let blanket = pb::Resource { version: String::new(), ..stored.clone() };
    for late in [stored.clone(), blanket] {
        refused(client.write(late).await, Code::Aborted, "does not exist any more");
    }
    refused(client.read(without_uid(id_of(&stored))).await, Code::NotFound, "resource not found");
    client.delete(id_of(&stored)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mark_is_a_time() {
    let (_cluster, client) = bed().await;
    let stored = client.write(artist("a")).await.unwrap();
    let marked = |mark: &str| {
        let metadata = [("deletionTimestamp".to_owned(), mark.to_owned())].into();
        pb::Resource { metadata, version: String::new(), generation: String::new(), ..stored.clone() }
    };
    for garbage in ["garbage", "2026-01-01", "1767225600"] {
        refused(client.judge(marked(garbage)).await, Code::InvalidArgument, "RFC 3339");
        refused(client.write(marked(garbage)).await, Code::InvalidArgument, "RFC 3339");
    }
    assert_eq!(client.read(id_of(&stored)).await.unwrap(), stored);
    assert!(client.judge(marked("2026-01-01T02:00:00+02:00")).await.is_ok());
    assert!(client.write(marked("2026-01-01T02:00:00+02:00")).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn deletes_compare_and_are_idempotent() {
    let (_cluster, client) = bed().await;
    for (with_uid, with_version) in [(true, true), (true, false), (false, true), (false, false)] {
        let stored = client.write(artist("a")).await.unwrap();
        let id = if with_uid { id_of(&stored) } else { without_uid(id_of(&stored)) };
        let version = if with_version { stored.version.as_str() } else { "" };
        client.delete_if(id.clone(), version).await.unwrap();
        refused(client.read(id.clone()).await, Code::NotFound, "resource not found");
        client.delete_if(id, version).await.unwrap();
    }
    let stored = client.write(artist("a")).await.unwrap();
    refused(client.delete_if(id_of(&stored), "bogus").await, Code::Aborted, "CAS operation failed");
    let uid = pb::Id { uid: "01ARZ3NDEKTSV4RRFFQ69G5FAV".into(), ..id_of(&stored) };
    let other_life = "the given uid doesn't match what is stored";
    refused(client.delete(uid.clone()).await, Code::FailedPrecondition, other_life);
    refused(client.delete_if(uid.clone(), &stored.version).await, Code::FailedPrecondition, other_life);
    refused(client.read(uid).await, Code::NotFound, "resource not found");
    assert_eq!(client.read(id_of(&stored)).await.unwrap(), stored);
    // Deletes without a version beside concurrent writes never fail.
    let writes = futures::future::join_all((0..16).map(|_| client.write(artist("a"))));
    let deletes = futures::future::join_all((0..16).map(|_| client.delete(without_uid(id_of(&stored)))));
    let (writes, deletes) = tokio::join!(writes, deletes);
    assert!(writes.iter().all(Result::is_ok) && deletes.iter().all(Result::is_ok), "{writes:?} {deletes:?}");
    refused(
        client.write(named(type_of("internal", "v1", "Tombstone"), ("default", "default"), "tombstone-x")).await,
        Code::InvalidArgument,
        "written by the store alone",
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn tombstones_are_out_of_reach() {
    let (_cluster, client) = bed().await;
    let reserved = "written by the store alone";
    let reserved_id = id(type_of("internal", "v1", "Tombstone"), ("default", "default"), "tombstone-x");
    let tombstone = pb::Id { uid: "01ARZ3NDEKTSV4RRFFQ69G5FAV".into(), ..reserved_id };
    refused(client.delete(tombstone.clone()).await, Code::InvalidArgument, reserved);
    refused(client.delete(without_uid(tombstone.clone())).await, Code::InvalidArgument, reserved);
    let status = pb::WriteStatusRequest {
        id: Some(tombstone),
        key: "k".into(),
        status: Some(pb::Status { observed_generation: "01ARZ3NDEKTSV4RRFFQ69G5FAV".into(), ..Default::default() }),
        ..Default::default()
    };
    refused(client.write_status(status).await, Code::InvalidArgument, reserved);
}

#[tokio::test(flavor = "multi_thread")]
async fn finalizers_put_deletion_off() {
    let (_cluster, client) = bed().await;
    let mut held = artist("a");
    held.metadata.insert("finalizers".into(), "one two".into());
    let stored = client.write(held).await.unwrap();
    client.delete(id_of(&stored)).await.unwrap();
    let marked = client.read(id_of(&stored)).await.unwrap();
    assert!(marked.metadata.contains_key("deletionTimestamp"));
    client.delete(id_of(&stored)).await.unwrap();
    assert_eq!(client.read(id_of(&stored)).await.unwrap(), marked, "a second delete does nothing");
    let edited = pb::Resource { data: Some(artist_data("other")), ..marked.clone() };
    refused(client.write(edited).await, Code::InvalidArgument, "cannot modify data");
    refused(client.write(marked.clone()).await, Code::InvalidArgument, "cannot no-op write");
    let mut unmarked = marked.clone();
    unmarked.metadata.remove("deletionTimestamp");
    refused(client.write(unmarked).await, Code::InvalidArgument, "cannot remove deletionTimestamp");
    let mut free = marked;
    free.metadata.insert("finalizers".into(), String::new());
    let free = client.write(free).await.unwrap();
    assert_eq!(client.read(id_of(&stored)).await.unwrap(), free, "it waits for the last delete");
    client.delete(id_of(&stored)).await.unwrap();
    refused(client.read(id_of(&stored)).await, Code::NotFound, "resource not found");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_status_is_not_written_by_write() {
    let (_cluster, client) = bed().await;
    let status = pb::Status { observed_generation: "01ARZ3NDEKTSV4RRFFQ69G5FAV".into(), ..Default::default() };
    let mut with_status = artist("a");
    with_status.status.insert("k".into(), status.clone());
    refused(client.write(with_status).await, Code::InvalidArgument, "WriteStatus endpoint");
    let stored = client.write(artist("a")).await.unwrap();
    let request =
        pb::WriteStatusRequest { id: stored.id.clone(), key: "k".into(), status: Some(status), ..Default::default() };
    let reported = client.write_status(request).await.unwrap();
    let mut changed = reported.clone();
    changed.status.get_mut("k").unwrap().observed_generation = reported.generation.clone();
    refused(client.write(changed).await, Code::InvalidArgument, "WriteStatus endpoint");
    let carried = client.write(pb::Resource { status: Default::default(), ..reported.clone() }).await.unwrap();
    assert_eq!(carried.status, reported.status);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_too_large_is_refused() {
    let (_cluster, client) = bed().await;
    let large = any("demo.v2.Artist", &Demo { name: "x".repeat(1_600_000), genre: "rock".into() });
    let refused_large = client.write(pb::Resource { data: Some(large), ..artist("a") }).await.unwrap_err();
    assert_eq!(refused_large.code(), Code::InvalidArgument, "{refused_large:?}");
    assert!(client.write(artist("a")).await.is_ok());
}
