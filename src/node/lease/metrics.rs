//! Metrics of leases, under etcd's names where etcd has them (spec: etcd §4.7).
//!
//! As in etcd, every member counts grants and ends as it applies them, including those that a
//! restart applies again. The leader counts the rest. A lease that is granted and ended by one
//! commit is counted as ended only.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus::{Histogram, HistogramOpts, IntCounter, IntGauge, Registry, exponential_buckets};

use headwater_types::{LeaseChange, LogIndex};

/// The metrics of one member's leases. They count whether or not they are registered.
pub(crate) struct LeaseMetrics {
    granted: IntCounter,
    revoked: IntCounter,
    ttl_seconds: Histogram,
    pub(super) renewed: IntCounter,
    pub(super) expired: IntCounter,
    pub(super) lateness_seconds: Histogram,
    pub(super) checkpoints: IntCounter,
    pub(super) kept: IntGauge,
    /// Log index up to which grants are counted already, or are left out.
    counted: AtomicU64,
}

impl LeaseMetrics {
    pub(super) fn new() -> Self {
        let counter = |name, help| IntCounter::new(name, help).expect("invariant: valid name");
        let histogram = |name: &str, help: &str, start: f64, count: usize| {
            let buckets = exponential_buckets(start, 2.0, count).expect("invariant: positive start, factor above 1");
            Histogram::with_opts(HistogramOpts::new(name, help).buckets(buckets)).expect("invariant: valid name")
        };
        Self {
            granted: counter("etcd_debugging_lease_granted_total", "Leases granted."),
            revoked: counter("etcd_debugging_lease_revoked_total", "Leases that ended, revoked or expired."),
            renewed: counter("etcd_debugging_lease_renewed_total", "Times that this leader kept a lease alive."),
            ttl_seconds: histogram("etcd_debugging_lease_ttl_total", "Times to live of leases, seconds.", 1.0, 24),
            expired: counter("etcd_debugging_server_lease_expired_total", "Leases that this leader let expire."),
            lateness_seconds: histogram(
                "headwater_lease_lateness_seconds",
                "From the moment at which a lease ran out until its end was applied at this leader.",
                0.001,
                17,
            ),
            checkpoints: counter(
                "headwater_lease_checkpoints_total",
                "Commands by which this leader told the log about the time of leases.",
            ),
            kept: IntGauge::new("headwater_leases_kept", "Leases whose time this member measures: 0 unless it leads.")
                .expect("invariant: valid name"),
            counted: AtomicU64::new(0),
        }
    }

    /// Registers the metrics on `registry`.
    pub(crate) fn register(&self, registry: &Registry) -> prometheus::Result<()> {
        for counter in [&self.granted, &self.revoked, &self.renewed, &self.expired, &self.checkpoints] {
            registry.register(Box::new(counter.clone()))?;
        }
        registry.register(Box::new(self.kept.clone()))?;
        registry.register(Box::new(self.ttl_seconds.clone()))?;
        registry.register(Box::new(self.lateness_seconds.clone()))
    }

    /// Leaves out the grants up to `index`: they are part of the state that this process began with
    /// or was sent.
    pub(crate) fn count_after(&self, index: LogIndex) {
        self.counted.store(index.get(), Ordering::Relaxed);
    }

    /// Log index up to which grants are counted already, or are left out.
    pub(super) fn counted(&self) -> LogIndex {
        LogIndex(self.counted.load(Ordering::Relaxed))
    }

    /// Counts the lease changes of commits, in their order.
    pub(super) fn count(&self, changes: &[LeaseChange]) {
        let before = self.counted.load(Ordering::Relaxed);
        let mut last = before;
        for change in changes {
            match change.lease {
                None => self.revoked.inc(),
                Some(lease) if lease.granted.get() > before => {
                    last = last.max(lease.granted.get());
                    self.granted.inc();
                    self.ttl_seconds.observe(lease.ttl_seconds as f64);
                }
                // Only the lease's due point has changed.
                Some(_) => {}
            }
        }
        self.counted.store(last, Ordering::Relaxed);
    }

    /// Counts an expiry that was applied `late` after the lease had expired.
    pub(super) fn ended(&self, late: Duration) {
        self.expired.inc();
        self.lateness_seconds.observe(late.as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_types::{Lease, LeaseId};

    #[test]
    fn a_grant_counts_once_whatever_is_said_of_it_later() {
        let metrics = LeaseMetrics::new();
        metrics.count_after(LogIndex(5));
        let change = |id, granted, due_ms| LeaseChange {
            id: LeaseId(id),
            lease: Some(Lease { granted: LogIndex(granted), ttl_seconds: 10, due_ms }),
        };
        // The first grant is older than the counted ones. One commit grants two leases.
        metrics.count(&[change(1, 4, Some(7)), change(2, 9, None), change(3, 8, None)]);
        metrics.count(&[change(2, 9, Some(7)), LeaseChange { id: LeaseId(3), lease: None }]);
        assert_eq!((metrics.granted.get(), metrics.revoked.get()), (2, 1));
        assert_eq!((metrics.ttl_seconds.get_sample_count(), metrics.ttl_seconds.get_sample_sum()), (2, 20.0));
    }
}
