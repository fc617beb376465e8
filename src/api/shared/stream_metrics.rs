//! Metrics of streams of changes, by face and by topic; those of keys under etcd's names as well
//! (spec: etcd §4.7).

use parking_lot::Mutex;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry};

use headwater_node::Node;

/// Metrics of the streams of all faces.
pub struct StreamMetrics {
    streams: IntGaugeVec,
    events: IntCounterVec,
    etcd_streams: IntGauge,
    etcd_events: IntCounter,
    etcd_pending: IntGauge,
}

/// Metrics of the streams of one face; cheap to clone.
#[derive(Clone)]
pub struct WatchMetrics {
    streams: IntGauge,
    events: IntCounter,
    /// The same metrics under etcd's names. `None` for a face that does not serve keys.
    etcd: Option<EtcdWatchMetrics>,
}

#[derive(Clone)]
struct EtcdWatchMetrics {
    streams: IntGauge,
    events: IntCounter,
    pending: IntGauge,
}

impl StreamMetrics {
    /// Makes and registers the metrics of streams and of the node's feeds.
    ///
    /// # Errors
    ///
    /// If `registry` already holds metrics of these names.
    pub fn register(node: &Node, registry: &Registry) -> Result<Self, prometheus::Error> {
        let opened = Opts::new("headwater_stream_open", "Streams of changes now, by API.");
        let sent = Opts::new("headwater_stream_events_total", "Changes sent to streams, by API.");
        let this = Self {
            streams: IntGaugeVec::new(opened, &["api"])?,
            events: IntCounterVec::new(sent, &["api"])?,
            etcd_streams: IntGauge::new("etcd_debugging_mvcc_watch_stream_total", "Watch streams of keys now.")?,
            etcd_events: IntCounter::new("etcd_debugging_mvcc_events_total", "Events sent to watchers of keys.")?,
            etcd_pending: IntGauge::new(
                "etcd_debugging_mvcc_pending_events_total",
                "Events that were read for watchers of keys and are not sent yet.",
            )?,
        };
        registry.register(Box::new(this.streams.clone()))?;
        registry.register(Box::new(this.events.clone()))?;
        registry.register(Box::new(this.etcd_streams.clone()))?;
        registry.register(Box::new(this.etcd_events.clone()))?;
        registry.register(Box::new(this.etcd_pending.clone()))?;
        registry.register(Box::new(FeedCollector::new(node.clone())?))?;
        Ok(this)
    }

    /// The metrics of the face `api`, which serves keys: also under etcd's names.
    pub fn of_keys(&self, api: &str) -> WatchMetrics {
        let etcd = EtcdWatchMetrics {
            streams: self.etcd_streams.clone(),
            events: self.etcd_events.clone(),
            pending: self.etcd_pending.clone(),
        };
        WatchMetrics { etcd: Some(etcd), ..self.of(api) }
    }

    /// The metrics of the face `api`.
    pub fn of(&self, api: &str) -> WatchMetrics {
        let (streams, events) = (self.streams.with_label_values(&[api]), self.events.with_label_values(&[api]));
        WatchMetrics { streams, events, etcd: None }
    }
}

impl WatchMetrics {
    /// Counts a stream until the guard is dropped.
    pub(super) fn stream(&self) -> StreamGuard {
        self.streams.inc();
        if let Some(etcd) = &self.etcd {
            etcd.streams.inc();
        }
        StreamGuard { metrics: self.clone(), pending: 0 }
    }

    fn events_sent(&self, count: usize) {
        self.events.inc_by(count as u64);
        if let Some(etcd) = &self.etcd {
            etcd.events.inc_by(count as u64);
        }
    }
}

/// Counts one open stream until it is dropped.
pub(super) struct StreamGuard {
    metrics: WatchMetrics,
    /// Events that were read and are not sent yet. Stays 0 for a face that does not serve keys.
    pending: i64,
}

impl StreamGuard {
    /// Counts events as sent.
    pub(super) fn events_sent(&self, count: usize) {
        self.metrics.events_sent(count);
    }

    /// Counts events as read and not yet taken by the client.
    pub(super) fn events_pending(&mut self, count: usize) {
        self.set_pending(self.pending + count as i64);
    }

    /// Notes that the client has taken all events that were read.
    pub(super) fn nothing_pending(&mut self) {
        self.set_pending(0);
    }

    fn set_pending(&mut self, pending: i64) {
        if pending != self.pending
            && let Some(etcd) = &self.metrics.etcd
        {
            etcd.pending.add(pending - self.pending);
            self.pending = pending;
        }
    }
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        self.nothing_pending();
        self.metrics.streams.dec();
        if let Some(etcd) = &self.metrics.etcd {
            etcd.streams.dec();
        }
    }
}

/// Metrics of the node's feeds, read at each collection.
struct FeedCollector {
    node: Node,
    watchers: IntGauge,
    slow_watchers: IntGauge,
    gauges: [IntGaugeVec; 5],
    counters: [IntCounterVec; 3],
    /// Collections add the increase since the last one, so only one may run at a time.
    collecting: Mutex<()>,
}

impl FeedCollector {
    fn new(node: Node) -> Result<Self, prometheus::Error> {
        let gauge = |name: &str, help: &str| IntGaugeVec::new(Opts::new(name, help), &["topic"]);
        let counter = |name: &str, help: &str| IntCounterVec::new(Opts::new(name, help), &["topic"]);
        Ok(Self {
            node,
            watchers: IntGauge::new("etcd_debugging_mvcc_watcher_total", "Watchers of keys now.")?,
            slow_watchers: IntGauge::new(
                "etcd_debugging_mvcc_slow_watcher_total",
                "Watchers of keys that are catching up now.",
            )?,
            gauges: [
                gauge("headwater_stream_subscriptions", "Subscriptions now.")?,
                gauge("headwater_stream_lagging", "Subscriptions that are catching up now.")?,
                gauge("headwater_stream_subjects", "What somebody subscribes to now, each counted once.")?,
                gauge("headwater_stream_window_commits", "Commits that are kept for slow readers now.")?,
                gauge("headwater_stream_window_bytes", "Bytes that are kept for slow readers now.")?,
            ],
            counters: [
                counter(
                    "headwater_stream_fell_behind_total",
                    "Times that a subscription lost its place in the live list.",
                )?,
                counter("headwater_stream_catch_up_scans_total", "Scans of history for those that are behind.")?,
                counter("headwater_stream_catch_up_answers_total", "Requests that these scans answered.")?,
            ],
            collecting: Mutex::new(()),
        })
    }
}

impl Collector for FeedCollector {
    fn desc(&self) -> Vec<&Desc> {
        let etcd = self.watchers.desc().into_iter().chain(self.slow_watchers.desc());
        let gauges = self.gauges.iter().flat_map(Collector::desc);
        etcd.chain(gauges).chain(self.counters.iter().flat_map(Collector::desc)).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let _alone = self.collecting.lock();
        let set = |gauge: &IntGauge, value: u64| gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        let keys = self.node.follow().key_stats();
        set(&self.watchers, keys.subscriptions);
        set(&self.slow_watchers, keys.lagging);
        for (topic, stats) in self.node.follow().stats() {
            let now = [stats.subscriptions, stats.lagging, stats.subjects, stats.window_items, stats.window_bytes];
            for (gauge, value) in self.gauges.iter().zip(now) {
                set(&gauge.with_label_values(&[topic]), value);
            }
            for (counter, value) in self.counters.iter().zip([stats.fell_behind, stats.scans, stats.scans_answered]) {
                let counter = counter.with_label_values(&[topic]);
                counter.inc_by(value.saturating_sub(counter.get()));
            }
        }
        let etcd = self.watchers.collect().into_iter().chain(self.slow_watchers.collect());
        let gauges = self.gauges.iter().flat_map(Collector::collect);
        etcd.chain(gauges).chain(self.counters.iter().flat_map(Collector::collect)).collect()
    }
}
