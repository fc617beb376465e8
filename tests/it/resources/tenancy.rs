//! Units of tenancy: their lists, the refusal of missing ones, and the deletion of their resources
//! (spec: consul §5.4).

use headwater::pb::pbresource as pb;
use tonic::Code;

use super::client::{Client, artist, artist_type, id, id_of, names_of, refused, type_of};
use crate::cluster::{Cluster, Settings, wait_until};

fn partition_type() -> pb::Type {
    type_of("tenancy", "v2beta1", "Partition")
}

fn namespace_type() -> pb::Type {
    type_of("tenancy", "v2beta1", "Namespace")
}

fn artist_in(units: (&str, &str), name: &str) -> pb::Resource {
    pb::Resource { id: Some(id(artist_type(), units, name)), ..artist(name) }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_default_units_are_listed_and_stay() {
    let cluster = Cluster::three().await;
    let client = Client::of(&cluster, cluster.follower().await);
    wait_until("the default units are written", async || {
        !client.list(namespace_type(), ("*", ""), "").await.unwrap().is_empty()
    })
    .await;
    assert_eq!(names_of(&client.list(partition_type(), ("", ""), "").await.unwrap()), ["default"]);
    refused(client.delete(id(partition_type(), ("", ""), "default")).await, Code::InvalidArgument, "cannot be deleted");
    refused(
        client.delete(id(namespace_type(), ("default", ""), "default")).await,
        Code::InvalidArgument,
        "cannot be deleted",
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_unit_that_is_deleted_is_emptied_first() {
    let cluster = Cluster::three().await;
    let client = Client::of(&cluster, cluster.follower().await);
    client.register_demo().await;
    client.make_unit("billing", "payments").await;
    let payments = ("billing", "payments");
    let mut held = artist_in(payments, "held");
    held.metadata.insert("finalizers".into(), "somebody".into());
    let held = client.write(held).await.unwrap();
    for number in 0..20 {
        client.write(artist_in(payments, &format!("free-{number}"))).await.unwrap();
    }
    let elsewhere = client.write(artist("elsewhere")).await.unwrap();
    let partition = id(partition_type(), ("", ""), "billing");
    client.delete(partition.clone()).await.unwrap();
    refused(client.write(artist_in(payments, "new")).await, Code::InvalidArgument, "marked for deletion");
    refused(client.judge(artist_in(payments, "new")).await, Code::InvalidArgument, "marked for deletion");
    wait_until("what nobody holds is gone", async || {
        names_of(&client.list(artist_type(), payments, "").await.unwrap()) == ["held"]
    })
    .await;
    assert!(client.read(partition.clone()).await.unwrap().metadata.contains_key("deletionTimestamp"));
    // The last resource is removed when its controller removes the finalizer.
    let mut marked = held.clone();
    wait_until("what somebody holds is marked", async || {
        marked = client.read(id_of(&held)).await.unwrap();
        marked.metadata.contains_key("deletionTimestamp")
    })
    .await;
    marked.metadata.insert("finalizers".into(), String::new());
    client.write(marked).await.unwrap();
    wait_until("the partition is gone", async || {
        client.read(partition.clone()).await.is_err_and(|status| status.code() == Code::NotFound)
    })
    .await;
    assert_eq!(client.list(namespace_type(), ("billing", ""), "").await.unwrap(), []);
    refused(client.write(artist_in(payments, "new")).await, Code::InvalidArgument, "partition not found");
    assert_eq!(client.read(id_of(&elsewhere)).await.unwrap(), elsewhere);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_unit_that_somebody_holds_costs_no_log_entries() {
    let cluster = Cluster::start(Settings::alone()).await;
    let client = Client::of(&cluster, 0);
    client.register_demo().await;
    client.make_unit("billing", "payments").await;
    let payments = ("billing", "payments");
    let mut held = artist_in(payments, "held");
    held.metadata.insert("finalizers".into(), "somebody".into());
    let held = client.write(held).await.unwrap();
    client.delete(id(partition_type(), ("", ""), "billing")).await.unwrap();
    let is_marked = async |id: pb::Id| client.read(id).await.unwrap().metadata.contains_key("deletionTimestamp");
    let namespace = id(namespace_type(), ("billing", ""), "payments");
    wait_until("all is marked", async || is_marked(id_of(&held)).await && is_marked(namespace.clone()).await).await;
    // The reaper removes a tombstone at the beginning of a round: when the last one is gone, all
    // earlier rounds have ended.
    let index = async || client.write(artist("mark")).await.unwrap().version.parse::<u64>().unwrap();
    let before = index().await;
    let rounds = 6;
    for _ in 0..rounds {
        let gone = client.write(artist("gone")).await.unwrap();
        client.delete(id_of(&gone)).await.unwrap();
        wait_until("its tombstone is gone", async || {
            let tombstones = client.list(type_of("internal", "v1", "Tombstone"), ("*", "*"), "").await;
            tombstones.unwrap().is_empty()
        })
        .await;
    }
    let entries = index().await - before - 1;
    // A round has three entries: write, delete, reap. One more is for commands of the members.
    assert!(entries < 3 * rounds + rounds, "{entries} entries in {rounds} rounds");
}
