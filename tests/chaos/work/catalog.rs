//! Instances that are registered, change their health and are removed, and materialized views of
//! them: for each node one view of each service by that node alone, and one view of all services
//! that fails over between the nodes.
//!
//! The outcome of a write does not matter: once the cluster is quiet, every view must equal a
//! linearizable read.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use headwater_client::{Endpoints, MaterializedView, ServiceHealth};
use http::Request;
use http_body_util::BodyExt;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tonic::body::Body;
use tower::{Service, ServiceExt};

use super::{AsyncClientStep, Client, Lab, REQUEST_TIMEOUT};
use crate::check::catalog::{ReadInstances, ViewInstances};
use crate::check::{Finding, Findings};
use crate::client::Target;
use crate::commit;
use crate::login::Login;
use crate::retry_budget::RetryBudget;

const WRITERS: u64 = 3;
const PAUSE: Duration = Duration::from_millis(25);
const SERVICES: u64 = 3;
const NODES: u64 = 4;
const INSTANCES: u64 = 2;
const STATUSES: [&str; 3] = ["passing", "warning", "critical"];
/// Pause between two comparisons of a view with a read, and before a failed query is repeated.
const AGAIN: Duration = Duration::from_millis(100);
/// Longest wait for a change of a view, in one query.
const SILENCE: Duration = Duration::from_secs(60);

/// Every view that was started; cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Views {
    all: Arc<Mutex<Vec<Watched>>>,
    tasks: Arc<Mutex<JoinSet<()>>>,
}

#[derive(Clone)]
struct Watched {
    name: String,
    /// The service that the view shows; `None` for all services.
    service: Option<String>,
    view: MaterializedView<ServiceHealth>,
    /// Index of the last state that the view has shown, the number of its changes, and the defects
    /// of its states.
    seen: Arc<Mutex<Seen>>,
}

#[derive(Default)]
struct Seen {
    index: u64,
    changes: usize,
    wrong: Vec<String>,
}

#[derive(Clone)]
struct Writer;

/// Starts the writers, and the views of the services that they write.
pub(crate) fn start(lab: &Lab, tasks: &mut JoinSet<()>) {
    lab.clients(tasks, "catalog", WRITERS, PAUSE, |_| (), Writer);
    let all: Vec<String> = lab.targets.iter().map(Target::name).collect();
    for (node, target) in lab.targets.iter().enumerate() {
        for service in services() {
            let name = format!("{service} on node {}", node + 1);
            lab.views.start(name, Some(service), std::slice::from_ref(&all[node]), target);
        }
        let mut endpoints = all.clone();
        endpoints.rotate_left(node);
        lab.views.start(format!("all services, begun on node {}", node + 1), None, &endpoints, target);
    }
}

fn services() -> impl Iterator<Item = String> {
    (0..SERVICES).map(|service| format!("service-{service}"))
}

impl AsyncClientStep<()> for Writer {
    async fn step(&self, client: &mut Client, (): &mut ()) {
        let host = format!("host-{}", client.below(NODES));
        let service = format!("service-{}", client.below(SERVICES));
        let id = format!("{service}-{}", client.below(INSTANCES));
        let check = |about: &str, status: u64| {
            json!({"CheckID": format!("check-{about}"), "Name": "health", "ServiceID": about,
                   "Status": STATUSES[status as usize]})
        };
        let status = client.below(STATUSES.len() as u64);
        let (path, body) = match client.below(20) {
            0..12 => {
                let value = client.value();
                let body = json!({"Node": host, "Address": "10.0.0.1", "Check": check(&id, status),
                    "Service": {"ID": id, "Service": service, "Port": 1000, "Meta": {"value": value}}});
                ("register", body)
            }
            // A check of the node concerns every instance on it.
            12..14 => ("register", json!({"Node": host, "Address": "10.0.0.1", "Check": check("", status)})),
            14 => ("register", json!({"Node": host, "Address": format!("10.0.0.{}", 2 + client.below(200))})),
            15..19 => ("deregister", json!({"Node": host, "ServiceID": id})),
            _ => ("deregister", json!({"Node": host})),
        };
        let node = client.node();
        let target = client.lab.targets[node].clone();
        if put(&target, path, &body).await.is_err() {
            // As clients do: pauses after a node that does not answer.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Views {
    fn start(&self, name: String, service: Option<String>, addresses: &[String], target: &Target) {
        let topic = service.as_deref().map_or_else(ServiceHealth::of_all, ServiceHealth::of);
        let endpoints = Endpoints::by(addresses, target.dialer()).expect("invariant: addresses are made by the rig");
        let endpoints = endpoints.as_user(target.login().map(Login::credentials));
        let view = MaterializedView::start(topic, endpoints);
        let watched = Watched { name, service, view, seen: Arc::default() };
        self.tasks.lock().spawn(watched.clone().follow());
        self.all.lock().push(watched);
    }

    /// Number of changes that all views have shown after their first state.
    pub(crate) fn changes(&self) -> usize {
        self.all.lock().iter().map(|watched| watched.seen.lock().changes.saturating_sub(1)).sum()
    }

    /// Ends all views.
    pub(crate) fn stop(&self) {
        self.tasks.lock().abort_all();
        self.all.lock().clear();
    }

    /// Compares every view with linearizable reads until they are equal, at most `budget` for each
    /// view. Findings are the differences that remain, and the defects that the views showed while
    /// the workload ran.
    pub(crate) async fn settle(&self, targets: &[Target], budget: Duration) -> Findings {
        let mut findings = Findings::new("views");
        let all = self.all.lock().clone();
        let mut changes = 0;
        let mut instances = 0;
        for watched in &all {
            let mut budget = RetryBudget::new(budget);
            loop {
                let is_over = budget.is_spent();
                let difference = match read(targets, watched.service.as_deref()).await {
                    Ok(read_state) => {
                        instances = instances.max(read_state.len());
                        watched.difference(&read_state)
                    }
                    Err(why) => Some(format!("there is nothing to compare with: {why}")),
                };
                match difference {
                    None => break,
                    Some(difference) if is_over => {
                        findings.add(Finding::new(
                            "a view differs once all is quiet",
                            format!("{}: {difference}", watched.name),
                        ));
                        break;
                    }
                    Some(_) => tokio::time::sleep(AGAIN).await,
                }
            }
            let seen = watched.seen.lock();
            changes += seen.changes;
            for wrong in &seen.wrong {
                findings.add(Finding::new("a view went wrong on the way", format!("{}: {wrong}", watched.name)));
            }
        }
        findings
            .scope(format!("{} views, {changes} changes, {instances} instances at the end", all.len()))
            .judged(self.changes())
            .nothing_if(changes == 0)
    }
}

impl Watched {
    /// Checks each state that a query of the view returns, until the task is aborted.
    async fn follow(self) {
        loop {
            let index = self.seen.lock().index;
            // Now and then no endpoint answers: the view resumes by itself.
            let Ok(view) = self.view.query(index, SILENCE).await else {
                tokio::time::sleep(AGAIN).await;
                continue;
            };
            let mut seen = self.seen.lock();
            if view.index < seen.index {
                let wrong = format!("it went from {} back to {}", seen.index, view.index);
                seen.wrong.push(wrong);
            }
            if let Some(wrong) = ViewInstances::of(&view.state).beyond(view.index) {
                seen.wrong.push(wrong);
            }
            seen.changes += usize::from(view.index > seen.index);
            seen.index = view.index;
        }
    }

    /// The first difference between the view and a read, or the reason why the view has no current
    /// state; `None` if they are equal.
    fn difference(&self, read_state: &ReadInstances) -> Option<String> {
        match self.view.latest() {
            None => Some("it shows nothing".to_owned()),
            Some(_) if self.view.has_ended() => Some("a server has refused it for good".to_owned()),
            Some(view) if view.is_stale => {
                let failure = self.view.failure().map_or("none was reported".to_owned(), |it| it.to_string());
                Some(format!("it is not current since index {}; last failure: {failure}", view.index))
            }
            Some(view) => ViewInstances::of(&view.state).difference(read_state),
        }
    }
}

/// The instances of a service, or of all services (`None`), by linearizable reads at the first node
/// that answers.
async fn read(targets: &[Target], service: Option<&str>) -> Result<ReadInstances, String> {
    let names: Vec<String> =
        service.map_or_else(|| services().chain(commit::services()).collect(), |name| vec![name.to_owned()]);
    let mut read_state = BTreeMap::new();
    for name in names {
        // The first node that answers.
        let mut answer = Err("there are no nodes".to_owned());
        for target in targets {
            answer = call(target, Request::get(format!("/v1/health/service/{name}?consistent")), Bytes::new()).await;
            if answer.is_ok() {
                break;
            }
        }
        read_state.extend(ReadInstances::of(&answer?)?.into_instances());
    }
    Ok(ReadInstances::new(read_state))
}

async fn put(target: &Target, path: &str, body: &Value) -> Result<(), String> {
    let request = Request::put(format!("/v1/catalog/{path}"));
    call(target, request, body.to_string().into()).await.map(drop)
}

/// Sends an HTTP request once; returns the JSON of its answer, or a description of the failure.
async fn call(target: &Target, request: http::request::Builder, body: Bytes) -> Result<Value, String> {
    let request = request.body(Body::new(http_body_util::Full::new(body))).map_err(|error| error.to_string())?;
    let answered = async {
        let mut channel = target.channel().await?;
        let ready = channel.ready().await.map_err(|error| error.to_string())?;
        let response = ready.call(request).await.map_err(|error| error.to_string())?;
        let status = response.status();
        let body = response.into_body().collect().await.map_err(|error| error.to_string())?.to_bytes();
        match status.is_success() {
            true => serde_json::from_slice(&body).map_err(|error| format!("{error}: {body:?}")),
            false => Err(format!("{status}: {}", String::from_utf8_lossy(&body))),
        }
    };
    let answer = tokio::time::timeout(REQUEST_TIMEOUT, answered).await;
    let answer = answer.unwrap_or_else(|_| Err("no answer in time".to_owned()));
    if answer.is_err() {
        target.forget();
    }
    answer
}
