//! The loop around a reconciler.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tracing::{debug, error, info, warn};

use super::client::{Client, Error};
use super::election::Candidate;
use super::queue::WorkQueue;
use super::{watch, wire};
use crate::Backoff;
use headwater_proto::pb::pbresource::Resource;
use headwater_types::resource::{ResourceId, Type};

/// Pause before another attempt to be elected.
const ELECTION_PAUSE: Duration = Duration::from_millis(500);

/// Result of a reconciler that has handled a resource: the time of the next call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The next call follows a change of the resource or of a watched resource that maps to it, or
    /// a new leadership.
    Done,
    /// As [`Done`](Self::Done), but the resource is queued again after this time even if nothing
    /// changes.
    Again(Duration),
}

/// Code that brings a resource into its desired state.
pub trait Reconciler: Send + Sync + 'static {
    /// Brings the resource with this id into its desired state. The resource may not exist any
    /// more. The id of a managed resource has no uid.
    ///
    /// At most one call at a time runs for one resource. After an error the resource is handled
    /// again later; the pause doubles with each consecutive error. When leadership is lost or the
    /// controller is stopped, the call is dropped at its current `await`; its effects until then
    /// stay. After a panic this instance resigns and then stands for election again.
    ///
    /// # Errors
    ///
    /// Any error; the resource is handled again later.
    fn reconcile(&self, client: &Client, id: &ResourceId) -> impl Future<Output = Result<Action, Error>> + Send;
}

/// Names the resources to handle when a watched resource has changed.
type Map = Arc<dyn Fn(&Resource) -> Vec<ResourceId> + Send + Sync>;

/// A controller: the types that it follows, the number of its workers, and its pauses after errors.
#[derive(Clone)]
pub struct Controller {
    name: String,
    watched: Vec<(Type, Map)>,
    workers: usize,
    backoff: Backoff,
    identity: String,
}

impl std::fmt::Debug for Controller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let types: Vec<_> = self.watched.iter().map(|(type_, _)| type_.to_string()).collect();
        f.debug_struct("Controller").field("name", &self.name).field("types", &types).finish_non_exhaustive()
    }
}

impl Controller {
    /// A controller of the resources of a type. Of all instances with this name in a cluster, one
    /// works at a time.
    #[must_use]
    pub fn new(name: &str, managed: Type) -> Self {
        let itself: Map = Arc::new(|resource: &Resource| vec![wire::id_without_uid(resource.id.as_ref())]);
        Self {
            name: name.to_owned(),
            watched: vec![(managed, itself)],
            workers: 1,
            backoff: Backoff::default(),
            identity: format!("pid {}", std::process::id()),
        }
    }

    /// Follows another type, too: when a resource of that type changes, its owner is reconciled if
    /// it is of the managed kind.
    #[must_use]
    pub fn owns(self, type_: Type) -> Self {
        let managed = self.watched[0].0.clone();
        self.watches(type_, move |resource| {
            let owner = resource.owner.as_ref().map(|owner| wire::id_without_uid(Some(owner)));
            owner.filter(|owner| wire::is_same_kind(&owner.type_, &managed)).into_iter().collect()
        })
    }

    /// Follows another type, too: when a resource of that type changes, the resources that `map`
    /// returns are reconciled. `map` returns ids without uid, as in [`Reconciler::reconcile`].
    #[must_use]
    pub fn watches(mut self, type_: Type, map: impl Fn(&Resource) -> Vec<ResourceId> + Send + Sync + 'static) -> Self {
        self.watched.push((type_, Arc::new(map)));
        self
    }

    /// Sets the number of resources that are handled at once: 1 by default, and never less.
    #[must_use]
    pub fn workers(mut self, count: usize) -> Self {
        self.workers = count.max(1);
        self
    }

    /// Sets the pauses before a failed resource is handled again.
    #[must_use]
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.backoff = backoff;
        self
    }

    /// Sets the text that `headwater elect --listen headwater-controller/NAME` shows of this
    /// instance while it leads. By default it is `pid N`, with the id of the process.
    #[must_use]
    pub fn identity(mut self, identity: &str) -> Self {
        identity.clone_into(&mut self.identity);
        self
    }

    /// Reconciles whenever this instance leads, until `stop` resolves; then resigns. Failures are
    /// logged and retried.
    pub async fn run(self, client: Client, reconciler: impl Reconciler, stop: impl Future<Output = ()>) {
        let reconciler = Arc::new(reconciler);
        tokio::pin!(stop);
        loop {
            tokio::select! {
                () = &mut stop => return,
                candidate = Candidate::open(&client) => match candidate {
                    Ok(candidate) => {
                        let stopped = tokio::select! {
                            () = &mut stop => true,
                            () = self.lead(&client, &candidate, &reconciler) => false,
                        };
                        candidate.resign().await;
                        if stopped {
                            return;
                        }
                    }
                    Err(error) => debug!(controller = self.name, %error, "no lease to be elected with"),
                },
            }
            tokio::select! {
                () = &mut stop => return,
                () = tokio::time::sleep(ELECTION_PAUSE) => {}
            }
        }
    }

    /// Waits to be elected, then works until the leadership is lost or a task panics. Returns
    /// without work if the lease ends before the election, or if the campaign fails.
    async fn lead<R: Reconciler>(&self, client: &Client, candidate: &Candidate<'_>, reconciler: &Arc<R>) {
        let kept = candidate.keep_alive();
        tokio::pin!(kept);
        tokio::select! {
            () = &mut kept => return,
            won = candidate.campaign(&self.name, &self.identity) => if let Err(error) = won {
                debug!(controller = self.name, %error, "not elected");
                return;
            },
        }
        info!(controller = self.name, "controller leads");
        // Dropped with this function: nothing is worked on without the leadership.
        let mut work = self.work(client, reconciler);
        tokio::select! {
            () = &mut kept => warn!(controller = self.name, "controller no longer leads"),
            // These tasks never end, so this one panicked. Resign: an idle leader would keep other
            // instances from working.
            ended = work.join_next() => {
                let error = ended.and_then(Result::err).map(|error| error.to_string());
                error!(controller = self.name, error, "a part of the controller ended: it gives the leadership up");
            }
        }
    }

    fn work<R: Reconciler>(&self, client: &Client, reconciler: &Arc<R>) -> JoinSet<()> {
        let queue = WorkQueue::new(self.backoff);
        let mut tasks = JoinSet::new();
        for (type_, map) in &self.watched {
            let (queue, map) = (queue.clone(), Arc::clone(map));
            let on_change = move |resource: &Resource| map(resource).into_iter().for_each(|id| queue.add(id));
            tasks.spawn(watch::follow(client.clone(), type_.clone(), on_change));
        }
        for _ in 0..self.workers {
            let (queue, client, reconciler) = (queue.clone(), client.clone(), Arc::clone(reconciler));
            let name = self.name.clone();
            tasks.spawn(async move {
                loop {
                    let id = queue.next().await;
                    match reconciler.reconcile(&client, &id).await {
                        Ok(Action::Done) => queue.done(&id),
                        Ok(Action::Again(wait)) => {
                            queue.done(&id);
                            queue.add_after(id, wait);
                        }
                        Err(error) => {
                            let wait = queue.failed(&id);
                            debug!(controller = name, id = wire::name(&id), %error, ?wait, "reconciling failed");
                        }
                    }
                }
            });
        }
        tasks
    }
}
