//! Registrations and changes of health: Consul's HTTP API over HTTP/2.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use http::{Request, header};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tonic::body::Body;
use tonic::transport::Channel;
use tower::{Service, ServiceExt};

use super::super::clock::Clock;
use super::super::lease::connect;
use super::super::wire;
use crate::error::CliError;

/// Instances on one node.
const INSTANCES_PER_NODE: usize = 10;
const REGISTER: &str = "/v1/catalog/register";

/// Names of the instances, which have numbers from 0, and the requests that register and change
/// them.
pub(super) struct Catalog {
    prefix: String,
    instances: usize,
    services: usize,
    clock: Clock,
}

impl Catalog {
    pub(super) fn new(prefix: &str, instances: usize, services: usize, clock: Clock) -> Self {
        Self { prefix: prefix.to_owned(), instances, services, clock }
    }

    pub(super) fn services(&self) -> usize {
        self.services
    }

    pub(super) fn service(&self, number: usize) -> String {
        format!("{}-svc-{}", self.prefix, number % self.services)
    }

    pub(super) fn now_ns(&self) -> u64 {
        self.clock.nanos()
    }

    fn node(&self, instance: usize) -> Value {
        let node = instance / INSTANCES_PER_NODE;
        let address = format!("10.{}.{}.{}", node >> 16 & 255, node >> 8 & 255, node & 255);
        json!({ "Node": format!("{}-node-{node}", self.prefix), "Address": address })
    }

    fn id(&self, instance: usize) -> String {
        format!("{}-{instance}", self.prefix)
    }

    fn check(&self, instance: usize, status: &str, output: String) -> Value {
        let id = self.id(instance);
        json!({ "CheckID": format!("{id}-check"), "Name": "health", "ServiceID": id, "Status": status, "Output": output })
    }

    fn registration(&self, instance: usize) -> Value {
        let mut body = self.node(instance);
        body["Service"] = json!({
            "ID": self.id(instance), "Service": self.service(instance), "Port": 1024 + instance % 60_000,
            "Tags": ["bench"], "Meta": { "version": "1.0" },
        });
        body["Check"] = self.check(instance, "passing", String::new());
        body
    }

    /// The body of the request that changes an instance's health. The check's output is `due_ns`,
    /// the time at which the change was due, nanoseconds of the clock.
    fn change(&self, instance: usize, turn: u64, due_ns: u64) -> Value {
        let mut body = self.node(instance);
        body["SkipNodeUpdate"] = true.into();
        // The status alternates from one round over the instances to the next.
        let status = if (turn / self.instances as u64).is_multiple_of(2) { "warning" } else { "passing" };
        body["Check"] = self.check(instance, status, due_ns.to_string());
        body
    }
}

/// Writers of registrations and changes of health. They share one connection to each endpoint.
pub(super) struct CatalogWriters {
    catalog: Arc<Catalog>,
    channels: Vec<Channel>,
    clients: usize,
    /// Number of the next change: it selects the instance and the status.
    turn: Arc<AtomicU64>,
}

/// Result of [`CatalogWriters::at_rate`].
#[derive(Default)]
pub(super) struct RateResult {
    /// Numbers of the changed services, one for each acknowledged change, in the order of the
    /// answers.
    pub(super) changed: Vec<usize>,
    /// Changes that were not acknowledged.
    pub(super) failed: u64,
}

impl CatalogWriters {
    pub(super) async fn connect(catalog: Arc<Catalog>, endpoints: &[String], clients: usize) -> Result<Self, CliError> {
        Ok(Self { catalog, channels: connect(endpoints).await?, clients, turn: Arc::default() })
    }

    /// Registers every instance; returns the registrations a second.
    pub(super) async fn fill(&self) -> Result<f64, CliError> {
        let next = Arc::new(AtomicUsize::new(0));
        let began = Instant::now();
        let mut writers = JoinSet::new();
        for writer in 0..self.clients {
            let (catalog, next) = (Arc::clone(&self.catalog), Arc::clone(&next));
            let mut channel = self.channels[writer % self.channels.len()].clone();
            writers.spawn(async move {
                loop {
                    let instance = next.fetch_add(1, Ordering::Relaxed);
                    if instance >= catalog.instances {
                        return Ok::<(), String>(());
                    }
                    register(&mut channel, &catalog.registration(instance)).await?;
                }
            });
        }
        for done in writers.join_all().await {
            done.map_err(CliError::Finding)?;
        }
        Ok(self.catalog.instances as f64 / began.elapsed().as_secs_f64())
    }

    /// Sends `rate` changes of health a second for `duration`, without waiting for earlier answers.
    /// Returns when each is answered or has failed.
    pub(super) async fn at_rate(&self, rate: u64, duration: Duration) -> Result<RateResult, CliError> {
        let total = (rate as f64 * duration.as_secs_f64()) as u64;
        let began = Instant::now();
        let mut writes = JoinSet::new();
        for number in 0..total {
            let due = began + Duration::from_secs_f64(number as f64 / rate as f64);
            tokio::time::sleep_until(due.into()).await;
            let due_ns = self.catalog.clock.nanos_at(due);
            let turn = self.turn.fetch_add(1, Ordering::Relaxed);
            let catalog = Arc::clone(&self.catalog);
            let mut channel = self.channels[number as usize % self.channels.len()].clone();
            writes.spawn(async move {
                let instance = instance(turn, &catalog);
                let done = register(&mut channel, &catalog.change(instance, turn, due_ns)).await;
                (instance % catalog.services, done.is_ok())
            });
        }
        let mut steady = RateResult::default();
        for (service, is_done) in writes.join_all().await {
            match is_done {
                true => steady.changed.push(service),
                false => steady.failed += 1,
            }
        }
        Ok(steady)
    }
}

impl RateResult {
    /// Adds the result of a later run.
    pub(super) fn extend(&mut self, later: Self) {
        self.changed.extend(later.changed);
        self.failed += later.failed;
    }
}

/// Number of the instance that change `turn` is about, in a fixed order that jumps between nodes of
/// the catalog.
fn instance(turn: u64, catalog: &Catalog) -> usize {
    (turn as usize).wrapping_mul(7919) % catalog.instances
}

async fn register(channel: &mut Channel, body: &Value) -> Result<(), String> {
    let body = Body::new(Full::new(bytes::Bytes::from(body.to_string())));
    let mut request = Request::put(REGISTER).header(header::CONTENT_TYPE, "application/json");
    for (name, value) in wire::credentials() {
        request = request.header(name, value);
    }
    let request = request.body(body).map_err(|error| error.to_string())?;
    let channel = channel.ready().await.map_err(|error| error.to_string())?;
    let response = channel.call(request).await.map_err(|error| error.to_string())?;
    let status = response.status();
    let answer = response.into_body().collect().await.map_err(|error| error.to_string())?.to_bytes();
    match status.is_success() {
        true => Ok(()),
        false => Err(format!("{REGISTER} answers {status}: {}", String::from_utf8_lossy(&answer).trim())),
    }
}
