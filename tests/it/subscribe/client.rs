//! A subscriber for tests, with a short form of its events.

use headwater::node::{Consistency, RequestContext};
use headwater::pb::pbservice::CheckServiceNode;
use headwater::pb::subscribe::event::Payload;
use headwater::pb::subscribe::state_change_subscription_client::StateChangeSubscriptionClient;
use headwater::pb::subscribe::subscribe_request::Subject;
use headwater::pb::subscribe::{CatalogOp, Event, NamedSubject, SubscribeRequest, Topic};
use headwater::types::catalog::{
    CatalogNode, Check, CheckStatus, Deregistration, DeregistrationTarget, Registration, Service,
};
use std::collections::BTreeMap;
use std::time::Duration;
use tonic::{Request, Status, Streaming};

use crate::cluster::{Cluster, wait_until, within};

/// Deadline of requests to a node: longer than they take on a loaded machine.
const TIMEOUT: Duration = Duration::from_secs(60);

pub fn ctx() -> RequestContext {
    RequestContext::within(TIMEOUT)
}

/// A request for the instances of the service `key` (topic ServiceHealth).
pub fn health(key: &str) -> SubscribeRequest {
    named(Topic::ServiceHealth, key)
}

pub fn named(topic: Topic, key: &str) -> SubscribeRequest {
    let subject = Subject::NamedSubject(NamedSubject { key: key.to_owned(), ..Default::default() });
    SubscribeRequest { topic: topic.into(), subject: Some(subject), ..Default::default() }
}

pub fn wildcard(topic: Topic) -> SubscribeRequest {
    SubscribeRequest { topic: topic.into(), subject: Some(Subject::WildcardSubject(true)), ..Default::default() }
}

/// A request in the form of clients before Consul 1.13.
#[expect(deprecated, reason = "older clients send it")]
pub fn old(topic: Topic, key: &str) -> SubscribeRequest {
    SubscribeRequest { topic: topic.into(), key: key.to_owned(), ..Default::default() }
}

pub fn after(index: u64, request: SubscribeRequest) -> SubscribeRequest {
    SubscribeRequest { index, ..request }
}

/// An event of a subscription, in short: log index and name. The name is `NODE/ID` of an instance,
/// or a service in the topic ServiceList.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delivery {
    Reg(u64, String),
    Dereg(u64, String),
    Batch(u64, Vec<Delivery>),
    End(u64),
    StartOver,
}

impl Delivery {
    pub fn index(&self) -> u64 {
        match self {
            Self::Reg(index, _) | Self::Dereg(index, _) | Self::Batch(index, _) | Self::End(index) => *index,
            Self::StartOver => 0,
        }
    }
}

pub fn reg(index: u64, name: &str) -> Delivery {
    Delivery::Reg(index, name.to_owned())
}

pub fn dereg(index: u64, name: &str) -> Delivery {
    Delivery::Dereg(index, name.to_owned())
}

pub fn name_of(instance: &CheckServiceNode) -> String {
    let (node, service) = (instance.node.as_ref().unwrap(), instance.service.as_ref().unwrap());
    format!("{}/{}", node.node, service.id)
}

fn delivered(event: &Event) -> Delivery {
    let of = |op: i32, name: String| match CatalogOp::try_from(op).unwrap() {
        CatalogOp::Register => Delivery::Reg(event.index, name),
        CatalogOp::Deregister => Delivery::Dereg(event.index, name),
    };
    match event.payload.as_ref().expect("every event has a payload") {
        Payload::EndOfSnapshot(is_end) => {
            assert!(is_end, "S4: never false");
            Delivery::End(event.index)
        }
        Payload::NewSnapshotToFollow(follows) => {
            assert!(follows, "S4: never false");
            assert_eq!(event.index, 0);
            Delivery::StartOver
        }
        Payload::EventBatch(batch) => {
            let inner: Vec<_> = batch.events.iter().map(delivered).collect();
            assert!(inner.len() > 1, "S13: one change is no batch");
            for one in &inner {
                assert_eq!(one.index(), event.index, "S12: all of one commit");
                assert!(
                    matches!(one, Delivery::Reg(..) | Delivery::Dereg(..)),
                    "S19: neither framing nor batches inside"
                );
            }
            Delivery::Batch(event.index, inner)
        }
        Payload::ServiceHealth(update) => of(update.op, name_of(update.check_service_node.as_ref().unwrap())),
        Payload::Service(update) => of(update.op, update.name.clone()),
    }
}

/// An open stream of `Subscribe`.
pub struct Subscriber {
    events: Streaming<Event>,
    is_of_names: bool,
    pub epoch: String,
}

impl Subscriber {
    /// Subscribes at a running member. The error is the status of a refusal.
    pub async fn open(cluster: &Cluster, member: usize, request: SubscribeRequest) -> Result<Self, Status> {
        Self::open_with(cluster, member, request, None).await
    }

    /// As `open`; `epoch` is the store epoch to which the request's index belongs.
    pub async fn open_with(
        cluster: &Cluster,
        member: usize,
        request: SubscribeRequest,
        epoch: Option<&str>,
    ) -> Result<Self, Status> {
        Self::open_from(cluster, member, request, epoch, None).await
    }

    /// As `open_with`; `min_index` is the lowest log index that the snapshot may have.
    pub async fn open_from(
        cluster: &Cluster,
        member: usize,
        request: SubscribeRequest,
        epoch: Option<&str>,
        min_index: Option<u64>,
    ) -> Result<Self, Status> {
        // A new cluster chooses its store epoch a moment after it begins to serve.
        wait_until("the lineage has a name", async || cluster.node(member).epoch().is_some()).await;
        let endpoint = tonic::transport::Endpoint::from_shared(cluster.client_url(member)).unwrap();
        let channel = within("a connection", endpoint.connect()).await.unwrap();
        let mut client = StateChangeSubscriptionClient::new(channel).max_decoding_message_size(usize::MAX);
        let is_of_names = request.topic == i32::from(Topic::ServiceList);
        let mut request = Request::new(request);
        if let Some(epoch) = epoch {
            request.metadata_mut().insert("headwater-epoch", epoch.parse().unwrap());
        }
        if let Some(min_index) = min_index {
            request.metadata_mut().insert("headwater-min-index", min_index.into());
        }
        let response = within("an answer", client.subscribe(request)).await?;
        assert!(response.metadata().get("headwater-index").is_some());
        let epoch = response.metadata().get("headwater-epoch").unwrap().to_str().unwrap().to_owned();
        Ok(Self { events: response.into_inner(), is_of_names, epoch })
    }

    pub async fn event(&mut self) -> Result<Event, Status> {
        within("an event", self.events.message()).await.map(|event| event.expect("the stream goes on"))
    }

    pub async fn next(&mut self) -> Delivery {
        delivered(&self.event().await.unwrap())
    }

    /// Reads the snapshot to its end; returns its names and its log index, which all its events
    /// must have. Instances come one by one, names of services in one message.
    pub async fn snapshot(&mut self) -> (Vec<String>, u64) {
        let mut found = Vec::new();
        loop {
            match self.next().await {
                Delivery::Reg(index, name) if !self.is_of_names || found.is_empty() => found.push((index, name)),
                Delivery::Batch(_, all) if self.is_of_names && found.is_empty() => {
                    found.extend(all.into_iter().map(|one| match one {
                        Delivery::Reg(index, name) => (index, name),
                        other => panic!("{other:?} in a snapshot"),
                    }));
                }
                Delivery::End(index) => {
                    assert!(index >= 1);
                    assert!(found.iter().all(|(of, _)| *of == index), "S2: {found:?}, {index}");
                    return (found.into_iter().map(|(_, name)| name).collect(), index);
                }
                other => panic!("{other:?} in a snapshot"),
            }
        }
    }

    /// Reads to the end of the stream, which must be an error; returns its status.
    pub async fn end(&mut self) -> Status {
        loop {
            match within("the end", self.events.message()).await {
                Ok(Some(_)) => {}
                Ok(None) => panic!("a stream ends with a status"),
                Err(status) => return status,
            }
        }
    }
}

/// Registers an instance on the catalog's node `node`, which gets the address `NODE.example`;
/// returns the log index.
pub async fn register(cluster: &Cluster, member: usize, node: &str, id: &str, service: &str) -> u64 {
    let service = Service { id: id.to_owned(), name: service.to_owned(), port: 80, ..Service::default() };
    let registration = Registration { service: Some(service), ..on(node) };
    apply(cluster, member, registration).await
}

/// Registers a check of the instance `id`, or of the node if that is empty; returns the log index.
pub async fn check(cluster: &Cluster, member: usize, node: &str, id: &str, status: CheckStatus) -> u64 {
    let check = Check { id: format!("check-{id}"), service_id: id.to_owned(), status, ..Check::default() };
    apply(cluster, member, Registration { checks: vec![check], ..on(node) }).await
}

/// A registration of a node of the catalog without an instance.
pub fn on(node: &str) -> Registration {
    let node = CatalogNode { name: node.to_owned(), address: format!("{node}.example"), ..CatalogNode::default() };
    Registration { node, ..Registration::default() }
}

pub async fn apply(cluster: &Cluster, member: usize, registration: Registration) -> u64 {
    cluster.node(member).catalog().register(&ctx(), registration).await.unwrap().index.get()
}

pub async fn deregister(cluster: &Cluster, member: usize, node: &str, what: DeregistrationTarget) -> u64 {
    let deregistration = Deregistration { node: node.to_owned(), what, guard: None };
    cluster.node(member).catalog().deregister(&ctx(), deregistration).await.unwrap().index.get()
}

/// The instances of a service by a linearizable read at a member: by `NODE/ID`, the statuses of the
/// checks.
pub async fn read(cluster: &Cluster, member: usize, service: &str) -> BTreeMap<String, Vec<String>> {
    let found = cluster.node(member).catalog().instances(&ctx(), Consistency::Linearizable, service.to_owned()).await;
    let instances = found.unwrap().value.value;
    let status = |check: &std::sync::Arc<Check>| check.status.to_string();
    let entry = |it: std::sync::Arc<headwater::types::catalog::CheckServiceNode>| {
        (format!("{}/{}", it.node.name, it.service.id), it.checks.iter().map(status).collect())
    };
    instances.into_iter().map(entry).collect()
}
