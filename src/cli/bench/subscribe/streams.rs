//! The subscribers: opened all at once, and counting what reaches them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tonic::transport::Channel;
use tonic::{Status, Streaming};

use super::LATENCY_US_MAX;
use super::catalog::Catalog;
use crate::cli::error::CliError;
use crate::client::{ServiceHealth, ViewTopic, channel};
use crate::pb::subscribe::event::Payload;
use crate::pb::subscribe::state_change_subscription_client::StateChangeSubscriptionClient;
use crate::pb::subscribe::{Event, ServiceHealthUpdate};

/// Subscribers on some connections. The one with number n is of the service n modulo their count.
pub(super) struct Streams {
    catalog: Arc<Catalog>,
    channels: Vec<Channel>,
    tasks: JoinSet<Result<(), Status>>,
    opened: usize,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    live: AtomicU64,
    delivered: AtomicU64,
    is_counting: AtomicBool,
    /// Microseconds from the time at which a change was due.
    latency: Mutex<Option<Histogram<u64>>>,
    progress: Notify,
}

impl Streams {
    pub(super) fn connect(catalog: Arc<Catalog>, endpoints: &[String], conns: usize) -> Result<Self, CliError> {
        let channels = (0..conns).map(|number| channel(&endpoints[number % endpoints.len()]));
        let channels = channels.collect::<Result<_, _>>().map_err(|error| CliError::Usage(error.to_string()))?;
        Ok(Self { catalog, channels, tasks: JoinSet::new(), opened: 0, shared: Arc::default() })
    }

    async fn subscribe(&self, number: usize) -> Result<Streaming<Event>, Status> {
        let request = ServiceHealth::of(&self.catalog.service(number)).request();
        let channel = self.channels[number % self.channels.len()].clone();
        Ok(StateChangeSubscriptionClient::new(channel).subscribe(request).await?.into_inner())
    }

    /// Subscribes once, and gives the time until the state was complete.
    pub(super) async fn probe(&self, number: usize, patience: Duration) -> Result<Duration, CliError> {
        let began = Instant::now();
        let complete = async {
            let mut events = self.subscribe(number).await?;
            snapshot(&mut events).await
        };
        match tokio::time::timeout(patience, complete).await {
            Ok(Ok(())) => Ok(began.elapsed()),
            Ok(Err(status)) => Err(CliError::Finding(format!("a subscription failed: {status}"))),
            Err(_) => Err(CliError::Finding("a subscription was not live in time".to_owned())),
        }
    }

    /// Opens so many at once, and waits until the state of each is complete.
    pub(super) async fn open(&mut self, count: usize, patience: Duration) -> Result<(), CliError> {
        for number in 0..count {
            let request = ServiceHealth::of(&self.catalog.service(number)).request();
            let channel = self.channels[number % self.channels.len()].clone();
            let (catalog, shared) = (Arc::clone(&self.catalog), Arc::clone(&self.shared));
            self.tasks.spawn(async move {
                let mut events = StateChangeSubscriptionClient::new(channel).subscribe(request).await?.into_inner();
                snapshot(&mut events).await?;
                shared.live.fetch_add(1, Ordering::Relaxed);
                shared.progress.notify_one();
                while let Some(event) = events.message().await? {
                    shared.count(&catalog, event);
                }
                Ok(())
            });
        }
        self.opened = count;
        let all_live = async {
            loop {
                let live = self.shared.live.load(Ordering::Relaxed);
                if live >= count as u64 {
                    return Ok(());
                }
                tokio::select! {
                    () = self.shared.progress.notified() => {}
                    Some(ended) = self.tasks.join_next() => {
                        let why = match ended {
                            Ok(Ok(())) => "the stream ended".to_owned(),
                            Ok(Err(status)) => status.to_string(),
                            Err(error) => error.to_string(),
                        };
                        return Err(CliError::Finding(format!("a subscription failed, {live} were live: {why}")));
                    }
                }
            }
        };
        let live = tokio::time::timeout(patience, all_live).await;
        live.map_err(|_| CliError::Finding(format!("not all of {count} subscriptions were live in time")))?
    }

    /// How many subscribe to a service.
    pub(super) fn of_service(&self, service: usize) -> u64 {
        let services = self.catalog.services();
        (self.opened / services + usize::from(service < self.opened % services)) as u64
    }

    pub(super) fn begin_counting(&self) {
        *self.shared.latency.lock() = Histogram::new_with_bounds(1, LATENCY_US_MAX, 3).ok();
        self.shared.delivered.store(0, Ordering::Relaxed);
        self.shared.is_counting.store(true, Ordering::Relaxed);
    }

    /// Waits until so many changes were delivered; gives how many are missing.
    pub(super) async fn wait_delivered(&self, expected: u64, patience: Duration) -> u64 {
        let missing = || expected.saturating_sub(self.shared.delivered.load(Ordering::Relaxed));
        let all = async {
            while missing() > 0 {
                self.shared.progress.notified().await;
            }
        };
        // Whether in time or not, what is missing is said.
        let _in_time = tokio::time::timeout(patience, all).await.is_ok();
        missing()
    }

    pub(super) fn end_counting(&self) -> Histogram<u64> {
        self.shared.is_counting.store(false, Ordering::Relaxed);
        let latency = self.shared.latency.lock().take();
        latency.unwrap_or_else(|| Histogram::new(3).expect("three digits are a legal precision"))
    }

    /// Cuts all connections, and waits until nobody reads any more.
    pub(super) async fn close(mut self) {
        self.tasks.shutdown().await;
    }
}

impl Shared {
    fn count(&self, catalog: &Catalog, event: Event) {
        if !self.is_counting.load(Ordering::Relaxed) {
            return;
        }
        let now = catalog.now_ns();
        let mut delivered = 0;
        each_health(event, &mut |update| {
            let checks = update.check_service_node.map(|instance| instance.checks).unwrap_or_default();
            let due = checks.iter().find_map(|check| check.output.parse::<u64>().ok()).filter(|due| *due > 0);
            let Some(due) = due else { return };
            delivered += 1;
            if let Some(latency) = &mut *self.latency.lock() {
                latency.saturating_record(now.saturating_sub(due) / 1000);
            }
        });
        self.delivered.fetch_add(delivered, Ordering::Relaxed);
        self.progress.notify_one();
    }
}

fn each_health(event: Event, found: &mut dyn FnMut(ServiceHealthUpdate)) {
    match event.payload {
        Some(Payload::ServiceHealth(update)) => found(update),
        Some(Payload::EventBatch(batch)) => batch.events.into_iter().for_each(|event| each_health(event, found)),
        Some(Payload::EndOfSnapshot(_) | Payload::NewSnapshotToFollow(_) | Payload::Service(_)) | None => {}
    }
}

/// Reads until the state is complete.
async fn snapshot(events: &mut Streaming<Event>) -> Result<(), Status> {
    while let Some(event) = events.message().await? {
        if let Some(Payload::EndOfSnapshot(_)) = event.payload {
            return Ok(());
        }
    }
    Err(Status::unavailable("the stream ended before its snapshot was complete"))
}
