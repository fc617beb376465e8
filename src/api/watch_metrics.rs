//! What is counted about watches, with etcd's names where they exist (spec: etcd §4.7).

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{IntCounter, IntGauge, Registry};

use crate::node::Node;

/// Counters of both watch services; cheap to clone.
#[derive(Clone)]
pub(super) struct WatchMetrics {
    streams: IntGauge,
    events: IntCounter,
}

impl WatchMetrics {
    /// Registers them, and what is read from the node's feed.
    pub(super) fn register(node: &Node, registry: &Registry) -> Result<Self, prometheus::Error> {
        let streams = IntGauge::new("etcd_debugging_mvcc_watch_stream_total", "Watch streams now.")?;
        let events = IntCounter::new("etcd_debugging_mvcc_events_total", "Events sent to watchers.")?;
        registry.register(Box::new(streams.clone()))?;
        registry.register(Box::new(events.clone()))?;
        registry.register(Box::new(FeedCollector::new(node.clone())?))?;
        registry.register(Box::new(CatalogCollector::new(node.clone())?))?;
        Ok(Self { streams, events })
    }

    /// Counts a stream until it is dropped.
    pub(super) fn stream(&self) -> StreamGuard {
        self.streams.inc();
        StreamGuard(self.streams.clone())
    }

    pub(super) fn events_sent(&self, count: usize) {
        self.events.inc_by(count as u64);
    }
}

/// One open stream.
pub(super) struct StreamGuard(IntGauge);

impl Drop for StreamGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// What the feed of keys says when it is asked.
struct FeedCollector {
    node: Node,
    gauges: [IntGauge; 8],
}

impl FeedCollector {
    fn new(node: Node) -> Result<Self, prometheus::Error> {
        let gauges = [
            IntGauge::new("etcd_debugging_mvcc_watcher_total", "Watchers now.")?,
            IntGauge::new("etcd_debugging_mvcc_slow_watcher_total", "Watchers that are catching up now.")?,
            IntGauge::new("headwater_stream_subjects", "Keys and intervals that somebody watches now.")?,
            IntGauge::new("headwater_stream_window_commits", "Commits that are kept for slow watchers now.")?,
            IntGauge::new("headwater_stream_window_bytes", "Bytes that are kept for slow watchers now.")?,
            IntGauge::new("headwater_stream_fell_behind", "Times that a watcher lost its place in the live list.")?,
            IntGauge::new("headwater_stream_catch_up_scans", "Scans of history for watchers that are behind.")?,
            IntGauge::new("headwater_stream_catch_up_answers", "Requests that these scans answered.")?,
        ];
        Ok(Self { node, gauges })
    }
}

impl Collector for FeedCollector {
    fn desc(&self) -> Vec<&Desc> {
        self.gauges.iter().flat_map(Collector::desc).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let stats = self.node.watch_stats();
        let values = [
            stats.subscriptions,
            stats.lagging,
            stats.subjects,
            stats.window_items,
            stats.window_bytes,
            stats.fell_behind,
            stats.scans,
            stats.scans_answered,
        ];
        for (gauge, value) in self.gauges.iter().zip(values) {
            gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        }
        self.gauges.iter().flat_map(Collector::collect).collect()
    }
}

/// What the feed of the service catalog says when it is asked.
struct CatalogCollector {
    node: Node,
    gauges: [IntGauge; 4],
}

impl CatalogCollector {
    fn new(node: Node) -> Result<Self, prometheus::Error> {
        let gauges = [
            IntGauge::new("headwater_catalog_subscriptions", "Streams and queries that wait for the catalog now.")?,
            IntGauge::new("headwater_catalog_subjects", "Services, nodes and tables that somebody waits for now.")?,
            IntGauge::new("headwater_catalog_lagging", "Subscriptions to the catalog that are catching up now.")?,
            IntGauge::new("headwater_catalog_window_bytes", "Bytes that are kept for slow subscribers now.")?,
        ];
        Ok(Self { node, gauges })
    }
}

impl Collector for CatalogCollector {
    fn desc(&self) -> Vec<&Desc> {
        self.gauges.iter().flat_map(Collector::desc).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let stats = self.node.catalog_stats();
        let values = [stats.subscriptions, stats.subjects, stats.lagging, stats.window_bytes];
        for (gauge, value) in self.gauges.iter().zip(values) {
            gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        }
        self.gauges.iter().flat_map(Collector::collect).collect()
    }
}
