//! The controller loop of the client library, against a cluster: of two instances one works, and
//! the other takes over.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use headwater::controller::{Action, Client, Controller, Error, Reconciler, wire};
use headwater::pb::pbresource::Resource;
use headwater::types::resource::{ResourceId, Tenancy, Type};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::good;
use crate::cluster::{Cluster, wait_until, within};

/// A reconciler that gives every concept a child, `NAME-echo`. Its first call for each concept
/// fails.
struct Echo {
    looks: Arc<AtomicUsize>,
    failed: parking_lot::Mutex<std::collections::BTreeSet<String>>,
}

fn concept() -> Type {
    Type::new("demo", "v1", "Concept")
}

impl Reconciler for Echo {
    async fn reconcile(&self, client: &Client, id: &ResourceId) -> Result<Action, Error> {
        self.looks.fetch_add(1, Ordering::Relaxed);
        if id.name.ends_with("-echo") {
            return Ok(Action::Done);
        }
        if self.failed.lock().insert(id.name.clone()) {
            return Err(Error::Other("not the first time".to_owned()));
        }
        let Some(found) = client.read(id).await? else { return Ok(Action::Done) };
        let echo = ResourceId { name: format!("{}-echo", id.name), ..id.clone() };
        if client.read(&echo).await?.is_none() {
            let echo = Resource { id: Some(wire::id_to_pb(&echo)), owner: found.id, ..Default::default() };
            client.write(echo).await?;
        }
        Ok(Action::Again(Duration::from_secs(3600)))
    }
}

fn start(cluster: &Cluster, looks: &Arc<AtomicUsize>) -> (oneshot::Sender<()>, JoinHandle<()>) {
    let client = Client::new((0..3).map(|member| cluster.client_url(member))).unwrap();
    let echo = Echo { looks: Arc::clone(looks), failed: Default::default() };
    let (stop, stopped) = oneshot::channel::<()>();
    let controller = Controller::new("echo", concept()).owns(concept()).workers(2);
    let running = tokio::spawn(async move {
        let stopped = async { drop(stopped.await) };
        controller.run(client, echo, stopped).await
    });
    (stop, running)
}

async fn names(client: &Client) -> Vec<String> {
    let all = client.list(&concept(), &Tenancy::new("default", "default")).await.unwrap();
    all.into_iter().filter_map(|it| it.id).map(|id| id.name).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn one_instance_works_and_another_takes_over() {
    let cluster = Cluster::three().await;
    good(&cluster, &[0], &["apply", "-f", "examples/"]).await;
    let client = Client::new((0..3).map(|member| cluster.client_url(member))).unwrap();
    let (first_looks, second_looks) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));

    let (stop_first, first) = start(&cluster, &first_looks);
    wait_until("what was there is dealt with", async || names(&client).await == ["nu-metal", "nu-metal-echo"]).await;
    let (stop_second, second) = start(&cluster, &second_looks);

    let make = |name: &str| Resource {
        id: Some(wire::id_to_pb(&ResourceId {
            name: name.to_owned(),
            type_: concept(),
            tenancy: Tenancy::new("default", "default"),
            ..Default::default()
        })),
        ..Default::default()
    };
    client.write(make("a")).await.unwrap();
    wait_until("what comes is dealt with", async || names(&client).await.contains(&"a-echo".to_owned())).await;
    // Children are watched, too: a removed one is created again.
    let echo = make("a-echo").id.unwrap();
    client.delete(&echo, "").await.unwrap();
    wait_until("it is made again", async || names(&client).await.contains(&"a-echo".to_owned())).await;
    assert_eq!(second_looks.load(Ordering::Relaxed), 0, "the second one waits");

    stop_first.send(()).unwrap();
    within("the first one ends", first).await.unwrap();
    let before = first_looks.load(Ordering::Relaxed);
    client.write(make("b")).await.unwrap();
    wait_until("the second one takes over", async || names(&client).await.contains(&"b-echo".to_owned())).await;
    assert_eq!(first_looks.load(Ordering::Relaxed), before);
    assert!(second_looks.load(Ordering::Relaxed) > 0);

    // A deleted concept takes its echo along, by ownership.
    client.delete(&make("b").id.unwrap(), "").await.unwrap();
    wait_until("both are gone", async || !names(&client).await.iter().any(|name| name.starts_with('b'))).await;
    stop_second.send(()).unwrap();
    within("the second one ends", second).await.unwrap();
}

/// A reconciler that records for each name whether the resource exists.
struct Notes {
    there: Arc<parking_lot::Mutex<BTreeMap<String, bool>>>,
}

impl Reconciler for Notes {
    async fn reconcile(&self, client: &Client, id: &ResourceId) -> Result<Action, Error> {
        let is_there = client.read(id).await?.is_some();
        self.there.lock().insert(id.name.clone(), is_there);
        Ok(Action::Done)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_moves_to_another_version_is_gone_for_those_who_follow_the_old_one() {
    let cluster = Cluster::three().await;
    good(&cluster, &[0], &["apply", "-f", "examples/"]).await;
    let client = Client::new((0..3).map(|member| cluster.client_url(member))).unwrap();
    let there = Arc::<parking_lot::Mutex<BTreeMap<_, _>>>::default();
    let (notes, follower) = (Notes { there: Arc::clone(&there) }, client.clone());
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(async move {
        let stopped = async { drop(stopped.await) };
        Controller::new("notes", Type::new("demo", "v1", "Artist")).run(follower, notes, stopped).await
    });
    for (version, is_there) in [("v1", true), ("v2", false)] {
        let id = ResourceId {
            name: "a".to_owned(),
            type_: Type::new("demo", version, "Artist"),
            tenancy: Tenancy::new("default", "default"),
            ..Default::default()
        };
        client.write(Resource { id: Some(wire::id_to_pb(&id)), ..Default::default() }).await.unwrap();
        wait_until("it is noted", async || there.lock().get("a") == Some(&is_there)).await;
    }
    stop.send(()).unwrap();
    within("it ends", running).await.unwrap();
}

/// A reconciler that panics at its first call and does nothing at later ones.
struct Panics {
    looks: Arc<AtomicUsize>,
}

impl Reconciler for Panics {
    async fn reconcile(&self, _client: &Client, id: &ResourceId) -> Result<Action, Error> {
        assert!(self.looks.fetch_add(1, Ordering::Relaxed) > 0, "the first look at {} goes wrong", id.name);
        Ok(Action::Done)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reconciler_that_panics_does_not_lead_on_idle() {
    let cluster = Cluster::three().await;
    good(&cluster, &[0], &["apply", "-f", "examples/"]).await;
    let client = Client::new((0..3).map(|member| cluster.client_url(member))).unwrap();
    let looks = Arc::new(AtomicUsize::new(0));
    let panics = Panics { looks: Arc::clone(&looks) };
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(async move {
        let stopped = async { drop(stopped.await) };
        Controller::new("panics", concept()).run(client, panics, stopped).await
    });
    // The next elected instance begins with all resources.
    wait_until("it is elected again and works", async || looks.load(Ordering::Relaxed) > 1).await;
    stop.send(()).unwrap();
    within("it ends", running).await.unwrap();
}
