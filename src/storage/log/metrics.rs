//! Metrics of the log, under etcd's names where etcd has the same metric (spec: etcd §4.7).

use prometheus::{Histogram, HistogramOpts, IntCounter, Registry, exponential_buckets};

/// The metrics of one log; cheap to clone: clones share their counts. They count whether or not
/// they are registered.
#[derive(Clone, Debug)]
pub struct LogMetrics {
    /// Seconds that a durable write took, from the write to the end of its fsync. One observation
    /// is one fsync.
    pub fsync_seconds: Histogram,
    /// Total size of the writes, bytes, without what the file system or RocksDB adds.
    pub write_bytes: IntCounter,
    /// Number of entries in one write. Writes without entries are not counted.
    pub batch_entries: Histogram,
}

impl LogMetrics {
    pub(super) fn new() -> Self {
        let histogram = |name: &str, help: &str, start: f64, count: usize| {
            let buckets = exponential_buckets(start, 2.0, count).expect("invariant: positive start, factor above 1");
            Histogram::with_opts(HistogramOpts::new(name, help).buckets(buckets)).expect("invariant: valid name")
        };
        Self {
            fsync_seconds: histogram(
                "etcd_disk_wal_fsync_duration_seconds",
                "The latency distributions of fsync called by the log.",
                0.000_125,
                17,
            ),
            write_bytes: IntCounter::new(
                "etcd_disk_wal_write_bytes_total",
                "Total number of bytes written in the log.",
            )
            .expect("invariant: valid name"),
            batch_entries: histogram(
                "headwater_log_batch_entries",
                "Entries that were made durable by one write of the log.",
                1.0,
                13,
            ),
        }
    }

    /// Shows the metrics on `registry`.
    ///
    /// # Errors
    ///
    /// If metrics of these names are registered already.
    pub fn register(&self, registry: &Registry) -> prometheus::Result<()> {
        registry.register(Box::new(self.fsync_seconds.clone()))?;
        registry.register(Box::new(self.write_bytes.clone()))?;
        registry.register(Box::new(self.batch_entries.clone()))
    }
}
