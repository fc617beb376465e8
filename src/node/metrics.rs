//! A node's metrics of reads, hashes, reclamation and defragmentation, under etcd's names
//! (docs/metrics.md). Apply counts for itself, see [`RaftMetrics`].

use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Histogram, HistogramOpts, HistogramVec, IntCounter, IntGauge, Registry, exponential_buckets};

use headwater_raft::RaftMetrics;

/// The metrics of one node. They count whether or not they are registered.
pub(super) struct NodeMetrics {
    consensus: Arc<RaftMetrics>,
    range_seconds: HistogramVec,
    range_failed: Histogram,
    range_succeeded: Histogram,
    pub(super) hash_seconds: Histogram,
    pub(super) hash_rev_seconds: Histogram,
    defrag_seconds: Histogram,
    defrag_under_way: IntGauge,
    pub(super) slow_read_indexes: IntCounter,
    pub(super) read_indexes_failed: IntCounter,
    reclaimed_keys: IntCounter,
    reclaim_pause_ms: Histogram,
    reclaim_total_ms: Histogram,
    reclaimed_at: IntGauge,
}

/// Options of a histogram with buckets that double. `first` is the upper bound of the first bucket,
/// `count` the number of buckets.
fn buckets(name: &str, help: &str, (first, count): (f64, usize)) -> HistogramOpts {
    let buckets = exponential_buckets(first, 2.0, count).expect("invariant: positive start, factor above 1");
    HistogramOpts::new(name, help).buckets(buckets)
}

impl NodeMetrics {
    pub(super) fn new(consensus: Arc<RaftMetrics>) -> Self {
        let counter = |name, help| IntCounter::new(name, help).expect("invariant: valid name");
        let gauge = |name, help| IntGauge::new(name, help).expect("invariant: valid name");
        let histogram =
            |name, help, shape| Histogram::with_opts(buckets(name, help, shape)).expect("invariant: valid name");
        let help = "Seconds that reading a range from the state took, without the wait for the leader.";
        let range = buckets("etcd_server_range_duration_seconds", help, (0.0001, 20));
        let range_seconds = HistogramVec::new(range, &["success"]).expect("invariant: valid name");
        Self {
            consensus,
            range_failed: range_seconds.with_label_values(&["false"]),
            range_succeeded: range_seconds.with_label_values(&["true"]),
            range_seconds,
            hash_seconds: histogram(
                "etcd_mvcc_hash_duration_seconds",
                "Seconds that a hash of the whole state took.",
                (0.01, 15),
            ),
            hash_rev_seconds: histogram(
                "etcd_mvcc_hash_rev_duration_seconds",
                "Seconds that a hash of the keys up to a revision took.",
                (0.01, 15),
            ),
            defrag_seconds: histogram(
                "etcd_disk_backend_defrag_duration_seconds",
                "Seconds that a defragmentation took.",
                (0.1, 13),
            ),
            defrag_under_way: gauge("etcd_disk_defrag_inflight", "Whether a defragmentation is under way: 1 or 0."),
            slow_read_indexes: counter(
                "etcd_server_slow_read_indexes_total",
                "Requests for a read index that were not answered within 500 ms.",
            ),
            read_indexes_failed: counter(
                "etcd_server_read_indexes_failed_total",
                "Requests for a read index that failed.",
            ),
            reclaimed_keys: counter(
                "etcd_debugging_mvcc_db_compaction_keys_total",
                "Versions below the compaction point that were removed.",
            ),
            reclaim_pause_ms: histogram(
                "etcd_debugging_mvcc_db_compaction_pause_duration_milliseconds",
                "Milliseconds that one batch of reclamation took; nothing waits for it.",
                (1.0, 13),
            ),
            reclaim_total_ms: histogram(
                "etcd_debugging_mvcc_db_compaction_total_duration_milliseconds",
                "Milliseconds from a new compaction point until everything below it was reclaimed.",
                (100.0, 14),
            ),
            reclaimed_at: gauge(
                "etcd_debugging_mvcc_db_compaction_last",
                "Unix time at which reclamation came to its end last; 0 if it has not since the start.",
            ),
        }
    }

    /// Registers the metrics on `registry`, and those of consensus, also under etcd's older names.
    pub(super) fn register(&self, registry: &Registry) -> prometheus::Result<()> {
        self.consensus.register(registry)?;
        for counter in [&self.slow_read_indexes, &self.read_indexes_failed, &self.reclaimed_keys] {
            registry.register(Box::new(counter.clone()))?;
        }
        for gauge in [&self.defrag_under_way, &self.reclaimed_at] {
            registry.register(Box::new(gauge.clone()))?;
        }
        let histograms = [
            &self.hash_seconds,
            &self.hash_rev_seconds,
            &self.defrag_seconds,
            &self.reclaim_pause_ms,
            &self.reclaim_total_ms,
        ];
        for histogram in histograms {
            registry.register(Box::new(histogram.clone()))?;
        }
        registry.register(Box::new(self.range_seconds.clone()))?;
        let older = ["put", "delete", "range", "txn"].map(|what| format!("etcd_debugging_mvcc_{what}_total"));
        for (name, counter) in older.iter().zip(self.consensus.operations()) {
            registry.register(Box::new(Alias::new(name, counter)?))?;
        }
        Ok(())
    }

    /// Counts `ranges` reads of ranges, and records the time since `began` as one sample, by
    /// `success`.
    pub(super) fn ranged(&self, ranges: usize, began: Instant, success: bool) {
        let [_, _, counter, _] = self.consensus.operations();
        counter.inc_by(ranges as u64);
        let histogram = if success { &self.range_succeeded } else { &self.range_failed };
        histogram.observe(began.elapsed().as_secs_f64());
    }

    /// Counts a transaction that was not replicated, because it only reads.
    pub(super) fn read_txn(&self) {
        let [_, _, _, counter] = self.consensus.operations();
        counter.inc();
    }

    /// Runs and measures `work`, a defragmentation.
    pub(super) fn defragment<T>(&self, work: impl FnOnce() -> T) -> T {
        self.defrag_under_way.set(1);
        let began = Instant::now();
        let done = work();
        self.defrag_seconds.observe(began.elapsed().as_secs_f64());
        self.defrag_under_way.set(0);
        done
    }

    /// Counts a batch of reclamation that removed `removed` versions since `began`.
    pub(super) fn reclaimed_batch(&self, removed: usize, began: Instant) {
        self.reclaimed_keys.inc_by(removed as u64);
        self.reclaim_pause_ms.observe(milliseconds(began));
    }

    /// Records the end of a reclamation, with its duration since `began`.
    pub(super) fn reclaimed(&self, began: Instant) {
        self.reclaim_total_ms.observe(milliseconds(began));
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        self.reclaimed_at.set(i64::try_from(now).unwrap_or(i64::MAX));
    }
}

fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1000.0
}

/// A counter under another name: etcd's name in earlier releases, which dashboards still use.
struct Alias {
    name: String,
    desc: Desc,
    counter: IntCounter,
}

impl Alias {
    fn new(name: &str, counter: &IntCounter) -> prometheus::Result<Self> {
        let help = format!("The same as {}.", counter.desc()[0].fq_name);
        let desc = Desc::new(name.to_owned(), help, Vec::new(), Default::default())?;
        Ok(Self { name: name.to_owned(), desc, counter: counter.clone() })
    }
}

impl Collector for Alias {
    fn desc(&self) -> Vec<&Desc> {
        vec![&self.desc]
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let mut families = self.counter.collect();
        for family in &mut families {
            family.set_name(self.name.clone());
            family.set_help(self.desc.help.clone());
        }
        families
    }
}
