//! What owners leave behind: nothing (spec: consul §5.10).

use headwater::pb::pbresource as pb;
use tonic::Code;

use super::client::{Client, album, album_type, artist, artist_type, id, id_of, names_of, refused, type_of};
use crate::cluster::{Cluster, Settings, wait_until};

async fn tombstones(client: &Client) -> Vec<pb::Resource> {
    client.consistent().list(type_of("internal", "v1", "Tombstone"), ("*", "*"), "").await.unwrap()
}

/// Waits until the reaper has nothing left to do.
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
    // The reaper, which has just reaped something else, has not touched it.
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
    let cluster = Cluster::start(Settings { members: 1, ..Settings::default() }).await;
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
    // A life that never was owns what goes soon.
    let stranger = pb::Id { uid: "01ARZ3NDEKTSV4RRFFQ69G5FAV".into(), ..nobody };
    client.write(album(&stranger, "foundling")).await.unwrap();
    reaped(&client).await;
    assert_eq!(names_of(&client.list(album_type(), ("", ""), "").await.unwrap()), ["child"]);
    // Many of them, of one owner.
    for number in 0..10 {
        client.write(album(&id_of(&other), &format!("album-{number}"))).await.unwrap();
    }
    assert_eq!(client.owned(id_of(&other)).await.unwrap().len(), 10);
}
