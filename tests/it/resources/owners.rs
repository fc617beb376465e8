//! Deletion of children after their owners (spec: consul §5.10).

use headwater::pb::pbresource as pb;
use tonic::Code;

use super::client::{
    Client, album, album_type, artist, artist_type, executive_type, id, id_of, label_type, named, names_of, refused,
    type_of, without_uid,
};
use crate::cluster::{Cluster, Settings, wait_until};

/// A uid that no resource has.
const NEVER: &str = "01ARZ3NDEKTSV4RRFFQ69G5FAV";

async fn tombstones(client: &Client) -> Vec<pb::Resource> {
    client.consistent().list(type_of("internal", "v1", "Tombstone"), ("*", "*"), "").await.unwrap()
}

/// Waits until there are no tombstones: the reaper has no more work.
async fn reaped(client: &Client) {
    wait_until("all tombstones are gone", async || tombstones(client).await.is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delete_that_loses_the_race_leaves_no_tombstone_and_no_orphan() {
    let cluster = Cluster::three().await;
    let client = Client::of(&cluster, cluster.follower().await);
    client.register_demo().await;
    let owner = client.write(artist("owner")).await.unwrap();
    let child = client.write(album(&id_of(&owner), "child")).await.unwrap();
    client.write(artist("owner")).await.unwrap();
    for _ in 0..20 {
        refused(client.delete_if(id_of(&owner), &owner.version).await, Code::Aborted, "CAS operation failed");
    }
    assert_eq!(tombstones(&client).await, []);
    assert_eq!(client.owned(id_of(&owner)).await.unwrap(), std::slice::from_ref(&child));
    // The reaper, which has just reaped another child, has not touched it.
    let other = client.write(artist("other")).await.unwrap();
    client.write(album(&id_of(&other), "others-child")).await.unwrap();
    client.delete(id_of(&other)).await.unwrap();
    reaped(&client).await;
    assert_eq!(names_of(&client.list(album_type(), ("", ""), "").await.unwrap()), ["child"]);
    assert_eq!(client.read(id_of(&child)).await.unwrap(), child);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cascade_reaches_the_bottom() {
    let cluster = Cluster::three().await;
    let client = Client::of(&cluster, cluster.follower().await);
    client.register_demo().await;
    let root = client.write(artist("root")).await.unwrap();
    let kept = client.write(artist("kept")).await.unwrap();
    let keeps = client.write(album(&id_of(&kept), "keeps")).await.unwrap();
    let mut above = id_of(&root);
    for depth in 0..5 {
        let next = client.write(album(&above, &format!("below-{depth}"))).await.unwrap();
        for sibling in 0..10 {
            client.write(album(&above, &format!("beside-{depth}-{sibling}"))).await.unwrap();
        }
        above = id_of(&next);
    }
    client.delete(id_of(&root)).await.unwrap();
    reaped(&client).await;
    assert_eq!(client.list(album_type(), ("*", "*"), "").await.unwrap(), [keeps]);
    assert_eq!(names_of(&client.list(artist_type(), ("*", "*"), "").await.unwrap()), ["kept"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_leader_goes_on_reaping() {
    let mut cluster = Cluster::three().await;
    let leader = cluster.leader().await;
    let client = Client::of(&cluster, leader);
    client.register_demo().await;
    let owner = client.write(artist("owner")).await.unwrap();
    let children = (0..2000).map(|number| {
        let (client, owner) = (client.clone(), id_of(&owner));
        async move { client.write(album(&owner, &format!("c-{number}"))).await.unwrap() }
    });
    futures::StreamExt::collect::<Vec<_>>(futures::StreamExt::buffer_unordered(futures::stream::iter(children), 64))
        .await;
    client.delete(id_of(&owner)).await.unwrap();
    cluster.crash(leader).await;
    let other = Client::of(&cluster, cluster.leader().await);
    reaped(&other).await;
    assert_eq!(other.list(album_type(), ("*", "*"), "").await.unwrap(), []);
    cluster.restart(leader).await;
    cluster.wait_healthy().await;
    let hashes = cluster.hashes().await;
    assert!(hashes.windows(2).all(|pair| pair[0] == pair[1]), "{hashes:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn owners_are_found_and_kept() {
    let cluster = Cluster::start(Settings::alone()).await;
    let client = Client::of(&cluster, 0);
    client.register_demo().await;
    let nobody = id(artist_type(), ("default", "default"), "nobody");
    refused(client.write(album(&nobody, "child")).await, Code::InvalidArgument, "resource.owner does not exist");
    let owner = client.write(artist("owner")).await.unwrap();
    let by_name = id(artist_type(), ("default", "default"), "owner");
    let child = client.write(album(&by_name, "child")).await.unwrap();
    assert_eq!(child.owner, owner.id);
    let again = client.write(album(&by_name, "child")).await.unwrap();
    assert_eq!(again.owner, owner.id);
    let other = client.write(artist("other")).await.unwrap();
    refused(client.write(album(&id_of(&other), "child")).await, Code::InvalidArgument, "owner cannot be changed");
    let orphan = pb::Resource { owner: None, ..album(&by_name, "child") };
    refused(client.write(orphan).await, Code::InvalidArgument, "owner cannot be changed");
    let foundling = pb::Resource { owner: owner.id.clone(), ..artist("other") };
    refused(client.write(foundling).await, Code::InvalidArgument, "owner cannot be changed");
    // An incarnation that never existed cannot be an owner.
    let stranger = pb::Id { uid: NEVER.into(), ..nobody };
    refused(client.write(album(&stranger, "foundling")).await, Code::InvalidArgument, "resource.owner does not exist");
    assert_eq!(names_of(&client.list(album_type(), ("", ""), "").await.unwrap()), ["child"]);
    // Many children of one owner.
    for number in 0..10 {
        client.write(album(&id_of(&other), &format!("album-{number}"))).await.unwrap();
    }
    assert_eq!(client.owned(id_of(&other)).await.unwrap().len(), 10);
}

/// Equivalent ids of an owner in the default units: with both units, with none, or with one of
/// them; each with and without the uid.
fn spellings(of: &pb::Id) -> Vec<pb::Id> {
    let units = of.tenancy.clone().unwrap();
    let nothing = String::new;
    let mut spellings = vec![
        of.clone(),
        pb::Id { tenancy: None, ..of.clone() },
        pb::Id { tenancy: Some(pb::Tenancy::default()), ..of.clone() },
    ];
    for some in [pb::Tenancy { partition: nothing(), ..units.clone() }, pb::Tenancy { namespace: nothing(), ..units }] {
        spellings.push(pb::Id { tenancy: Some(some), ..of.clone() });
    }
    let by_name: Vec<_> = spellings.iter().cloned().map(without_uid).collect();
    spellings.extend(by_name);
    spellings
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_is_found_without_its_units() {
    let cluster = Cluster::three().await;
    let client = Client::of(&cluster, cluster.follower().await);
    client.register_demo().await;
    let mut children = Vec::new();
    for owner in
        [artist("owner"), named(label_type(), ("default", ""), "owner"), named(executive_type(), ("", ""), "owner")]
    {
        let owner = client.write(owner).await.unwrap();
        let mut owned = Vec::new();
        for spelling in spellings(&id_of(&owner)) {
            let child = album(&spelling, &format!("album-{}", children.len() + owned.len()));
            assert_eq!(client.judge(child.clone()).await.unwrap().owner, owner.id, "{spelling:?}");
            assert_eq!(client.write(child.clone()).await.unwrap().owner, owner.id, "{spelling:?}");
            let again = client.write(child).await.unwrap();
            assert_eq!(again.owner, owner.id, "once more: {spelling:?}");
            owned.push(again);
        }
        let listed = client.consistent().owned(id_of(&owner)).await.unwrap();
        assert_eq!(names_of(&listed), names_of(&owned));
        children.extend(owned);
    }
    // Once the reaper has removed a later tombstone, it has also seen this one.
    let other = client.write(artist("other")).await.unwrap();
    client.write(album(&id_of(&other), "others-album")).await.unwrap();
    client.delete(id_of(&other)).await.unwrap();
    reaped(&client).await;
    let left = client.consistent().list(album_type(), ("", ""), "").await.unwrap();
    assert_eq!(names_of(&left), names_of(&children));
    for owner in [artist_type(), label_type(), executive_type()] {
        client.delete(pb::Id { tenancy: None, ..id(owner, ("", ""), "owner") }).await.unwrap();
    }
    reaped(&client).await;
    assert_eq!(client.list(album_type(), ("", ""), "").await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_must_live() {
    let cluster = Cluster::start(Settings::alone()).await;
    let client = Client::of(&cluster, 0);
    client.register_demo().await;
    let (earlier, gone) = (client.write(artist("owner")).await.unwrap(), client.write(artist("gone")).await.unwrap());
    client.delete(id_of(&earlier)).await.unwrap();
    client.delete(id_of(&gone)).await.unwrap();
    let owner = client.write(artist("owner")).await.unwrap();
    let cluster_wide = client.write(named(executive_type(), ("", ""), "owner")).await.unwrap();
    let another = "resource.owner.uid doesn't match what is stored";
    let no_such = "resource.owner does not exist";
    let misplaced = pb::Tenancy { partition: "default".into(), namespace: String::new() };
    for (owner, said) in [
        (pb::Id { uid: NEVER.into(), ..id_of(&owner) }, another),
        (pb::Id { uid: NEVER.into(), tenancy: None, ..id_of(&owner) }, another),
        (id_of(&earlier), another),
        (pb::Id { tenancy: None, ..id_of(&earlier) }, another),
        (id_of(&gone), no_such),
        (pb::Id { tenancy: None, ..without_uid(id_of(&gone)) }, no_such),
        (pb::Id { r#type: Some(type_of("demo", "v9", "Artist")), ..id_of(&gone) }, no_such),
        (pb::Id { r#type: Some(type_of("demo", "v1", "Artist")), ..id_of(&owner) }, "different GroupVersion"),
        (pb::Id { tenancy: Some(misplaced), ..id_of(&cluster_wide) }, "does not fit the scope"),
    ] {
        refused(client.judge(album(&owner, "child")).await, Code::InvalidArgument, said);
        refused(client.write(album(&owner, "child")).await, Code::InvalidArgument, said);
    }
    assert_eq!(client.list(album_type(), ("*", "*"), "").await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_of_an_owner_that_is_being_deleted_is_refused_or_goes() {
    let cluster = Cluster::three().await;
    let client = Client::of(&cluster, cluster.follower().await);
    client.register_demo().await;
    for round in 0..10 {
        let owner = id_of(&client.write(artist("owner")).await.unwrap());
        let written = futures::future::join_all((0..16).map(|number| {
            let (client, child) = (client.clone(), album(&owner, &format!("album-{round}-{number}")));
            async move { client.write(child).await }
        }));
        let (written, deleted) = tokio::join!(written, client.delete(owner.clone()));
        deleted.unwrap();
        for refusal in written.into_iter().filter_map(Result::err) {
            assert_eq!(refusal.code(), Code::InvalidArgument, "{refusal:?}");
        }
    }
    reaped(&client).await;
    assert_eq!(client.consistent().list(album_type(), ("*", "*"), "").await.unwrap(), []);
}
