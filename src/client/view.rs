//! A state that keeps itself up to date, and its waiting callers (spec: consul §3.1 to §3.4).
//!
//! Each view has one task that follows the stream; callers only read the visible state, or wait for
//! the next change. The old state stays visible, marked as stale, until a new snapshot is complete,
//! so that a lost connection never looks like "no instances".

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use thiserror::Error;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tonic::{Code, Status};
use tracing::{debug, warn};

use super::backoff::StreamFailures;
use super::fold::{Fold, Step};
use super::source::{EventSource, Shown};
use super::topic::{Rejected, ViewTopic};
use super::verdict::is_final_for_streams;

/// An attempt of at least this length resets the count of failures, even if it delivered nothing:
/// its end is the first failure. One that ends within a snapshot does not.
const LONG_LIVED: Duration = Duration::from_secs(60);
/// Longest wait for the next message of a snapshot. Afterwards a stream is silent for as long as
/// nothing changes.
const SNAPSHOT_SILENCE_MAX: Duration = Duration::from_secs(30);

/// State that a view shows.
#[derive(Clone, Debug, PartialEq)]
pub struct View<S> {
    /// Log index of the state.
    pub index: u64,
    /// The state at that index.
    pub state: Arc<S>,
    /// Whether the view is not known to be current: the stream is broken, or a new snapshot is on
    /// its way.
    pub is_stale: bool,
}

/// The reason for which a view has no answer.
#[derive(Clone, Debug, Error)]
pub enum ViewError {
    /// The first snapshot did not arrive in time. Retry.
    #[error("no snapshot has come yet")]
    NotLoaded,
    /// At least as many consecutive attempts failed as there are endpoints, and at least two. The
    /// view keeps trying; ask again.
    #[error("no endpoint answers: {}: {}", .0.code(), .0.message())]
    Unavailable(Arc<Status>),
    /// The server refused for good: the request is wrong, or may not be made. The view has ended.
    #[error("{}: {}", .0.code(), .0.message())]
    Refused(Arc<Status>),
    /// The view was stopped.
    #[error("the view was stopped")]
    Stopped,
}

/// State that callers see.
struct Visible<S> {
    /// 0 until the first snapshot is complete.
    index: u64,
    state: Arc<S>,
    is_stale: bool,
    /// Number of snapshots whose index was lower than that of the visible state: the store is of
    /// another lineage. Waiting callers return when it moves.
    setbacks: u64,
    /// Number of failures that callers are informed of; `failure` is the last one.
    failures: u64,
    failure: Option<ViewError>,
}

/// A state that follows a topic; cheap to clone, and alive for as long as there is a clone.
pub struct MaterializedView<T: ViewTopic> {
    inner: Arc<Inner<T::State>>,
}

struct Inner<S> {
    visible: watch::Receiver<Visible<S>>,
    task: AbortHandle,
}

impl<S> Drop for Inner<S> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl<T: ViewTopic> Clone for MaterializedView<T> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<T: ViewTopic> MaterializedView<T> {
    /// Begins to follow. Needs a Tokio runtime around it.
    pub fn start(topic: T, source: impl EventSource) -> Self {
        let visible =
            Visible { index: 0, state: Arc::default(), is_stale: true, setbacks: 0, failures: 0, failure: None };
        let (sender, receiver) = watch::channel(visible);
        let task = tokio::spawn(Follower::new(topic, source, sender).run()).abort_handle();
        Self { inner: Arc::new(Inner { visible: receiver, task }) }
    }

    /// The shown state; `None` until the first snapshot is complete.
    #[must_use]
    pub fn latest(&self) -> Option<View<T::State>> {
        self.inner.visible.borrow().view()
    }

    /// Whether the server has refused for good, or the view was stopped.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        matches!(self.inner.visible.borrow().failure, Some(ViewError::Refused(_) | ViewError::Stopped))
    }

    /// The last failure that was reported to callers. `None` while the view is current, and if too
    /// few attempts have failed for a report.
    #[must_use]
    pub fn failure(&self) -> Option<ViewError> {
        self.inner.visible.borrow().failure.clone()
    }

    /// The state once its index is above `min_index`; with 0, the first state. If `wait` ends
    /// before, the present state: its index is then `min_index` or lower. A call that waits while
    /// the index goes back, because the store is another one now, returns the new state at once.
    ///
    /// # Errors
    ///
    /// [`ViewError::NotLoaded`] if `wait` ends before the first snapshot. [`ViewError::Refused`]
    /// and [`ViewError::Stopped`] are final; after the others, ask again. A failure before the
    /// call is reported only if it is final.
    pub async fn query(&self, min_index: u64, wait: Duration) -> Result<View<T::State>, ViewError> {
        let deadline = Instant::now() + wait;
        let mut visible = self.inner.visible.clone();
        let (setbacks, failures) = {
            let now = visible.borrow();
            (now.setbacks, now.failures)
        };
        loop {
            {
                let now = visible.borrow_and_update();
                match &now.failure {
                    Some(error @ (ViewError::Refused(_) | ViewError::Stopped)) => return Err(error.clone()),
                    Some(error) if now.failures != failures => return Err(error.clone()),
                    Some(_) | None => {}
                }
                if now.index > min_index || now.setbacks != setbacks {
                    return now.view().ok_or(ViewError::NotLoaded);
                }
            }
            match tokio::time::timeout_at(deadline, visible.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return Err(ViewError::Stopped),
                Err(_) => return visible.borrow().view().ok_or(ViewError::NotLoaded),
            }
        }
    }
}

impl<S> Visible<S> {
    fn view(&self) -> Option<View<S>> {
        (self.index > 0).then(|| View { index: self.index, state: Arc::clone(&self.state), is_stale: self.is_stale })
    }
}

/// The end of an attempt.
enum Ended {
    Status(Status),
    Rejected(Rejected),
}

/// The task of a view.
struct Follower<T: ViewTopic, E> {
    topic: T,
    source: E,
    fold: Fold<T::State>,
    visible: watch::Sender<Visible<T::State>>,
    /// The lineage of the visible state; `None` if no server has named it.
    epoch: Option<String>,
    failures: StreamFailures,
}

impl<T: ViewTopic, E: EventSource> Follower<T, E> {
    fn new(topic: T, source: E, visible: watch::Sender<Visible<T::State>>) -> Self {
        Self { topic, source, fold: Fold::new(), visible, epoch: None, failures: StreamFailures::default() }
    }

    async fn run(mut self) {
        loop {
            let began = Instant::now();
            let ended = self.attempt().await;
            if began.elapsed() >= LONG_LIVED && !self.fold.is_in_snapshot() {
                self.failures.reset();
            }
            self.visible.send_if_modified(|visible| !std::mem::replace(&mut visible.is_stale, true));
            let status = match ended {
                Ended::Rejected(rejected) => {
                    warn!(%rejected, "a view begins again with a snapshot");
                    self.fold.reset();
                    Status::internal(rejected.to_string())
                }
                Ended::Status(status) => status,
            };
            if is_final(status.code()) {
                self.report(ViewError::Refused(Arc::new(status)));
                return;
            }
            if matches!(status.code(), Code::Aborted | Code::OutOfRange) {
                self.fold.reset();
            }
            let pause = self.failures.add(rand::random());
            debug!(code = ?status.code(), error = status.message(), ?pause, "a view lost its stream and goes on");
            // One failure, or one of each endpoint, is repaired at once and not reported.
            if usize::try_from(self.failures.count()).is_ok_and(|failures| failures >= self.source.endpoints().max(2)) {
                self.report(ViewError::Unavailable(Arc::new(status)));
            }
            self.source.fail_over();
            tokio::time::sleep(pause).await;
        }
    }

    /// Follows one stream to its end.
    async fn attempt(&mut self) -> Ended {
        let mut request = self.topic.request();
        request.index = self.fold.begin();
        let index = self.visible.borrow().index;
        let shown = self.epoch.clone().map(|epoch| Shown { epoch, index });
        let opened = match self.source.subscribe(request, shown).await {
            Ok(opened) => opened,
            Err(status) => return Ended::Status(status),
        };
        let mut events = opened.events;
        if self.fold.is_resuming() {
            self.visible.send_if_modified(|visible| {
                visible.failure = None;
                std::mem::replace(&mut visible.is_stale, false)
            });
        }
        loop {
            let next = match self.fold.is_in_snapshot() {
                true => tokio::time::timeout(SNAPSHOT_SILENCE_MAX, events.next()).await,
                false => Ok(events.next().await),
            };
            let event = match next {
                Ok(Some(Ok(event))) => event,
                Ok(Some(Err(status))) => return Ended::Status(status),
                Ok(None) => return Ended::Status(Status::unavailable("the stream ended")),
                Err(_) => return Ended::Status(Status::deadline_exceeded("no message of the snapshot in time")),
            };
            match self.fold.take(&self.topic, event) {
                Ok(Step::Nothing) => {}
                Ok(Step::Outdated) => {
                    self.visible.send_if_modified(|visible| !std::mem::replace(&mut visible.is_stale, true));
                }
                Ok(Step::Replace(state, index)) => {
                    self.epoch = opened.epoch.clone();
                    show(&self.visible, |visible| {
                        visible.setbacks += u64::from(index < visible.index);
                        visible.index = index;
                        visible.state = Arc::new(state);
                    });
                    self.failures.reset();
                }
                Ok(Step::Apply(changes, index)) => {
                    // A server that goes on after an index without a lineage takes it for one of
                    // its own.
                    if self.epoch.is_none() {
                        self.epoch.clone_from(&opened.epoch);
                    }
                    let topic = &self.topic;
                    show(&self.visible, |visible| {
                        // Readers of the old state keep it.
                        let state = Arc::make_mut(&mut visible.state);
                        changes.into_iter().for_each(|change| topic.apply(state, change));
                        visible.index = index;
                    });
                    self.failures.reset();
                }
                Err(rejected) => return Ended::Rejected(rejected),
            }
        }
    }

    fn report(&self, error: ViewError) {
        self.visible.send_modify(|visible| {
            visible.failures += 1;
            visible.failure = Some(error);
        });
    }
}

/// Applies `change` to the visible state, and marks that state as current: neither stale nor
/// failed.
fn show<S>(visible: &watch::Sender<Visible<S>>, change: impl FnOnce(&mut Visible<S>)) {
    visible.send_modify(|visible| {
        change(visible);
        visible.is_stale = false;
        visible.failure = None;
    });
}

/// Whether the code means that every endpoint would answer the same. `NotFound` is about the topic
/// or its datacenter.
fn is_final(code: Code) -> bool {
    code == Code::NotFound || is_final_for_streams(code)
}
