//! Metrics of one member's consensus and state machine, under etcd's names where etcd has them
//! (docs/metrics.md).
//!
//! The handles are made once, so that the path of an entry touches only atomics and looks up no
//! labels. They count even if they are not registered.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use prometheus::core::Collector;
use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
    exponential_buckets,
};

use super::log_throttle::LogThrottle;
use headwater_storage::state::OpCounts;
use headwater_types::limits::PEERS_SHOWN_MAX;
use headwater_types::{Command, NodeId};

/// Time above which the apply of an entry counts as slow (etcd's value).
const SLOW_APPLY: Duration = Duration::from_millis(100);

/// The metrics of one member's consensus.
pub struct RaftMetrics {
    apply_seconds: HistogramVec,
    /// Durations of applying, by [`Command::kind`], then by outcome: failed, succeeded.
    apply_by_kind: [OnceLock<[Histogram; 2]>; Command::KINDS.len()],
    slow_applies: IntCounter,
    commit_seconds: Histogram,
    snapshot_seconds: Histogram,
    snapshot_save_seconds: Histogram,
    snapshot_fsync_seconds: Histogram,
    installing: IntGauge,
    puts: IntCounter,
    put_bytes: IntGauge,
    deletes: IntCounter,
    ranges: IntCounter,
    txns: IntCounter,
    heartbeat_failures: IntCounter,
    leader_ends: IntCounter,
    promotions: IntCounter,
    promotion_failures: IntCounterVec,
    joins: IntCounterVec,
    peers: PeerFamilies,
    known: Mutex<BTreeMap<NodeId, Arc<PeerMetrics>>>,
    /// The metrics of all peers beyond [`PEERS_SHOWN_MAX`] together.
    others: OnceLock<Arc<PeerMetrics>>,
}

/// The families that have a member in their labels.
struct PeerFamilies {
    sent_bytes: IntCounterVec,
    received_bytes: IntCounterVec,
    sent_failures: IntCounterVec,
    received_failures: IntCounterVec,
    damaged: IntCounterVec,
    overdue: IntCounterVec,
    round_trip: HistogramVec,
    active: IntGaugeVec,
    disconnected: IntCounterVec,
    sending: TransferFamilies,
    receiving: TransferFamilies,
}

/// Metrics of snapshot transfers in one direction, with a member in their labels.
struct TransferFamilies {
    under_way: IntGaugeVec,
    successes: IntCounterVec,
    failures: IntCounterVec,
    seconds: HistogramVec,
}

/// Metrics about another member.
pub(crate) struct PeerMetrics {
    pub(crate) sent_bytes: IntCounter,
    pub(crate) received_bytes: IntCounter,
    sent_failures: IntCounter,
    pub(crate) received_failures: IntCounter,
    /// Rate of the log lines about refused messages of the member.
    pub(crate) refusals: LogThrottle,
    /// Calls to the member that ended because the request or the answer was damaged.
    pub(crate) damaged: IntCounter,
    /// Streams to the member that this one ended with their connection, because an answer was
    /// overdue or the log keeper ordered it.
    pub(crate) overdue: IntCounter,
    sessions_ended: AtomicU64,
    pub(crate) round_trip: Histogram,
    active: IntGauge,
    disconnected: IntCounter,
    /// Whether the last call from or to the member succeeded.
    is_active: AtomicBool,
    sending: TransferMetrics,
    receiving: TransferMetrics,
}

#[derive(Clone)]
struct TransferMetrics {
    under_way: IntGauge,
    successes: IntCounter,
    failures: IntCounter,
    seconds: Histogram,
}

fn counter(name: &str, help: &str) -> IntCounter {
    IntCounter::new(name, help).expect("invariant: valid name")
}

fn gauge(name: &str, help: &str) -> IntGauge {
    IntGauge::new(name, help).expect("invariant: valid name")
}

fn counters(name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
    IntCounterVec::new(Opts::new(name, help), labels).expect("invariant: valid name")
}

fn gauges(name: &str, help: &str, labels: &[&str]) -> IntGaugeVec {
    IntGaugeVec::new(Opts::new(name, help), labels).expect("invariant: valid name")
}

/// Options of a histogram with `count` buckets, each with twice the upper bound of the one before
/// it, as in etcd. `first` is the upper bound of the first bucket.
fn buckets(name: &str, help: &str, (first, count): (f64, usize)) -> HistogramOpts {
    let buckets = exponential_buckets(first, 2.0, count).expect("invariant: positive start, factor above 1");
    HistogramOpts::new(name, help).buckets(buckets)
}

fn histogram(name: &str, help: &str, shape: (f64, usize)) -> Histogram {
    Histogram::with_opts(buckets(name, help, shape)).expect("invariant: valid name")
}

fn histograms(name: &str, help: &str, shape: (f64, usize), labels: &[&str]) -> HistogramVec {
    HistogramVec::new(buckets(name, help, shape), labels).expect("invariant: valid name")
}

/// The id of a member in a label: hexadecimal, as in etcd.
fn label(member: NodeId) -> String {
    format!("{:x}", member.get())
}

impl Default for RaftMetrics {
    fn default() -> Self {
        Self {
            apply_seconds: histograms(
                "etcd_server_apply_duration_seconds",
                "Seconds that applying one log entry took, by kind of command.",
                (0.0001, 20),
                &["version", "op", "success"],
            ),
            apply_by_kind: std::array::from_fn(|_| OnceLock::new()),
            slow_applies: counter("etcd_server_slow_apply_total", "Log entries whose application took over 100 ms."),
            commit_seconds: histogram(
                "etcd_disk_backend_commit_duration_seconds",
                "Seconds that a commit of the state took: a run of entries, written without fsync.",
                (0.001, 14),
            ),
            snapshot_seconds: histogram(
                "etcd_disk_backend_snapshot_duration_seconds",
                "Seconds that a checkpoint of the state took.",
                (0.01, 17),
            ),
            snapshot_save_seconds: histogram(
                "etcd_snap_db_save_total_duration_seconds",
                "Seconds that receiving, saving and installing a snapshot took.",
                (0.1, 10),
            ),
            snapshot_fsync_seconds: histogram(
                "etcd_snap_db_fsync_duration_seconds",
                "Seconds that the fsync of a file of a received snapshot took.",
                (0.001, 14),
            ),
            installing: gauge(
                "etcd_server_snapshot_apply_in_progress_total",
                "Whether this member is putting a received snapshot in place: 1 or 0.",
            ),
            puts: counter("etcd_mvcc_put_total", "Puts that this member applied."),
            put_bytes: gauge("etcd_debugging_mvcc_total_put_size_in_bytes", "Keys and values of those puts, bytes."),
            deletes: counter("etcd_mvcc_delete_total", "Deletions that this member applied."),
            ranges: counter("etcd_mvcc_range_total", "Ranges that this member read or applied."),
            txns: counter("etcd_mvcc_txn_total", "Transactions that this member read or applied."),
            heartbeat_failures: counter(
                "etcd_server_heartbeat_send_failures_total",
                "Heartbeats of this leader that were not answered in time.",
            ),
            leader_ends: counter(
                "headwater_leader_process_ends_total",
                "Elections that this member asked for because the leader's process had ended.",
            ),
            promotions: counter(
                "etcd_server_learner_promote_successes",
                "Learners that were given a vote while this member led.",
            ),
            promotion_failures: counters(
                "etcd_server_learner_promote_failures",
                "Promotions that were refused while this member led.",
                &["Reason"],
            ),
            joins: counters(
                "headwater_joins_total",
                "Requests of nodes to join, by their result, while this member led. Repeated requests of a node count.",
                &["result"],
            ),
            peers: PeerFamilies::new(),
            known: Mutex::default(),
            others: OnceLock::new(),
        }
    }
}

impl PeerFamilies {
    fn new() -> Self {
        Self {
            sent_bytes: counters("etcd_network_peer_sent_bytes_total", "Bytes of messages to peers.", &["To"]),
            received_bytes: counters(
                "etcd_network_peer_received_bytes_total",
                "Bytes of messages from peers.",
                &["From"],
            ),
            sent_failures: counters(
                "etcd_network_peer_sent_failures_total",
                "Calls to peers that failed or were not answered in time.",
                &["To"],
            ),
            received_failures: counters(
                "etcd_network_peer_received_failures_total",
                "Messages of peers that could not be read.",
                &["From"],
            ),
            damaged: counters(
                "headwater_peer_damaged_messages_total",
                "Calls to peers that ended because a message was damaged on the way.",
                &["To"],
            ),
            overdue: counters(
                "headwater_peer_overdue_answers_total",
                "Streams to peers that ended because an answer was overdue.",
                &["To"],
            ),
            round_trip: histograms(
                "etcd_network_peer_round_trip_time_seconds",
                "Seconds from a heartbeat of this leader to its answer.",
                (0.0001, 16),
                &["To"],
            ),
            active: gauges(
                "etcd_network_active_peers",
                "Whether the last call from or to the peer succeeded: 1 or 0.",
                &["Local", "Remote"],
            ),
            disconnected: counters(
                "etcd_network_disconnected_peers_total",
                "Times that an active peer could not be reached any more.",
                &["Local", "Remote"],
            ),
            sending: TransferFamilies::new("send", "To"),
            receiving: TransferFamilies::new("receive", "From"),
        }
    }

    fn all(&self) -> Vec<Box<dyn Collector>> {
        let mut all: Vec<Box<dyn Collector>> = vec![
            Box::new(self.sent_bytes.clone()),
            Box::new(self.received_bytes.clone()),
            Box::new(self.sent_failures.clone()),
            Box::new(self.received_failures.clone()),
            Box::new(self.damaged.clone()),
            Box::new(self.overdue.clone()),
            Box::new(self.round_trip.clone()),
            Box::new(self.active.clone()),
            Box::new(self.disconnected.clone()),
        ];
        for TransferFamilies { under_way, successes, failures, seconds } in [&self.sending, &self.receiving] {
            all.push(Box::new(under_way.clone()));
            all.push(Box::new(successes.clone()));
            all.push(Box::new(failures.clone()));
            all.push(Box::new(seconds.clone()));
        }
        all
    }

    fn of(&self, me: NodeId, name: &str) -> PeerMetrics {
        let (one, both) = ([name], [&*label(me), name]);
        PeerMetrics {
            sent_bytes: self.sent_bytes.with_label_values(&one),
            received_bytes: self.received_bytes.with_label_values(&one),
            sent_failures: self.sent_failures.with_label_values(&one),
            received_failures: self.received_failures.with_label_values(&one),
            refusals: LogThrottle::default(),
            damaged: self.damaged.with_label_values(&one),
            overdue: self.overdue.with_label_values(&one),
            sessions_ended: AtomicU64::new(0),
            round_trip: self.round_trip.with_label_values(&one),
            active: self.active.with_label_values(&both),
            disconnected: self.disconnected.with_label_values(&both),
            is_active: AtomicBool::new(false),
            sending: self.sending.of(name),
            receiving: self.receiving.of(name),
        }
    }
}

impl TransferFamilies {
    fn new(direction: &str, label: &str) -> Self {
        let name = |what: &str| format!("etcd_network_snapshot_{direction}_{what}");
        Self {
            under_way: gauges(&name("inflights_total"), "Snapshots under way now.", &[label]),
            successes: counters(&name("success"), "Snapshots that arrived.", &[label]),
            failures: counters(&name("failures"), "Snapshots that did not.", &[label]),
            seconds: histograms(&name("total_duration_seconds"), "Seconds that a snapshot took.", (0.1, 10), &[label]),
        }
    }

    fn of(&self, member: &str) -> TransferMetrics {
        TransferMetrics {
            under_way: self.under_way.with_label_values(&[member]),
            successes: self.successes.with_label_values(&[member]),
            failures: self.failures.with_label_values(&[member]),
            seconds: self.seconds.with_label_values(&[member]),
        }
    }
}

impl RaftMetrics {
    /// Shows the metrics on `registry`.
    ///
    /// # Errors
    ///
    /// If metrics of these names are registered already.
    pub fn register(&self, registry: &Registry) -> prometheus::Result<()> {
        for counter in [
            &self.slow_applies,
            &self.puts,
            &self.deletes,
            &self.ranges,
            &self.txns,
            &self.heartbeat_failures,
            &self.leader_ends,
            &self.promotions,
        ] {
            registry.register(Box::new(counter.clone()))?;
        }
        for histogram in
            [&self.commit_seconds, &self.snapshot_seconds, &self.snapshot_save_seconds, &self.snapshot_fsync_seconds]
        {
            registry.register(Box::new(histogram.clone()))?;
        }
        registry.register(Box::new(self.apply_seconds.clone()))?;
        registry.register(Box::new(self.installing.clone()))?;
        registry.register(Box::new(self.put_bytes.clone()))?;
        registry.register(Box::new(self.promotion_failures.clone()))?;
        registry.register(Box::new(self.joins.clone()))?;
        self.peers.all().into_iter().try_for_each(|family| registry.register(family))
    }

    /// The counters of puts, deletions, ranges and transactions, in this order. They are also
    /// exported under older names.
    pub fn operations(&self) -> [&IntCounter; 4] {
        [&self.puts, &self.deletes, &self.ranges, &self.txns]
    }

    /// Records the time that the apply of an entry took. `kind` is that of [`Command::kind`].
    pub(super) fn applied(&self, kind: usize, success: bool, took: Duration) {
        if took > SLOW_APPLY {
            self.slow_applies.inc();
        }
        let histograms = self.apply_by_kind[kind].get_or_init(|| {
            let op = Command::KINDS[kind];
            ["false", "true"].map(|success| self.apply_seconds.with_label_values(&["v3", op, success]))
        });
        histograms[usize::from(success)].observe(took.as_secs_f64());
    }

    /// Counts a commit of the state, which took `took`, and the operations in it.
    pub(super) fn committed(&self, took: Duration, done: &OpCounts) {
        self.commit_seconds.observe(took.as_secs_f64());
        let OpCounts { puts, put_bytes, deletes, ranges, txns, refused: _ } = *done;
        for (counter, by) in [(&self.puts, puts), (&self.deletes, deletes), (&self.ranges, ranges), (&self.txns, txns)]
        {
            if by > 0 {
                counter.inc_by(by);
            }
        }
        self.put_bytes.add(i64::try_from(put_bytes).unwrap_or(i64::MAX));
    }

    /// Notes that a checkpoint was made.
    pub(super) fn checkpointed(&self, took: Duration) {
        self.snapshot_seconds.observe(took.as_secs_f64());
    }

    /// Notes that a file of a received snapshot was flushed.
    pub(super) fn snapshot_flushed(&self, took: Duration) {
        self.snapshot_fsync_seconds.observe(took.as_secs_f64());
    }

    /// Records a snapshot that was received, saved and installed. `took` is the time of all three.
    pub(super) fn snapshot_saved(&self, took: Duration) {
        self.snapshot_save_seconds.observe(took.as_secs_f64());
    }

    /// Counts a snapshot as being installed until the guard is dropped.
    pub(super) fn installing(&self) -> GaugeGuard {
        GaugeGuard::new(&self.installing)
    }

    /// Counts a heartbeat that was not answered.
    pub(super) fn heartbeat_failed(&self) {
        self.heartbeat_failures.inc();
    }

    /// Counts an election that this member asks for because the leader's process has ended.
    pub(super) fn leader_ended(&self) {
        self.leader_ends.inc();
    }

    /// Counts a promotion of a learner; `refusal` is the reason if it was refused.
    pub fn promoted(&self, refusal: Option<&dyn std::fmt::Display>) {
        match refusal {
            None => self.promotions.inc(),
            Some(reason) => self.promotion_failures.with_label_values(&[&reason.to_string()]).inc(),
        }
    }

    /// Counts a request to join by its result.
    pub fn joined(&self, result: &str) {
        self.joins.with_label_values(&[result]).inc();
    }

    /// Metrics about another member. The members beyond the first [`PEERS_SHOWN_MAX`] share theirs.
    pub(crate) fn peer(&self, me: NodeId, member: NodeId) -> Arc<PeerMetrics> {
        let mut known = self.known.lock();
        if known.len() >= PEERS_SHOWN_MAX && !known.contains_key(&member) {
            return Arc::clone(self.others.get_or_init(|| Arc::new(self.peers.of(me, "other"))));
        }
        Arc::clone(known.entry(member).or_insert_with(|| Arc::new(self.peers.of(me, &label(member)))))
    }
}

/// A gauge that is one higher until this is dropped.
pub(super) struct GaugeGuard(IntGauge);

impl GaugeGuard {
    fn new(gauge: &IntGauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl PeerMetrics {
    /// Whether a snapshot is on its way to the member.
    pub(crate) fn is_sending(&self) -> bool {
        self.sending.under_way.get() > 0
    }

    /// Number of replication sessions with the member that ended because of damage, of an overdue
    /// answer, or by order of the log keeper. Single calls, such as heartbeats and votes, do not
    /// count: they carry no entries.
    pub(crate) fn sessions_ended(&self) -> u64 {
        self.sessions_ended.load(Ordering::Relaxed)
    }

    /// Counts a replication session for [`sessions_ended`](Self::sessions_ended).
    pub(crate) fn session_ended(&self) {
        self.sessions_ended.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that a call from or to the member succeeded.
    pub(crate) fn reached(&self) {
        if !self.is_active.swap(true, Ordering::Relaxed) {
            self.active.set(1);
        }
    }

    /// Whether the last call from or to the member succeeded.
    #[cfg(test)]
    pub(crate) fn is_active(&self) -> bool {
        self.is_active.load(Ordering::Relaxed)
    }

    /// Notes that a call to the member failed.
    pub(crate) fn missed(&self) {
        self.sent_failures.inc();
        if self.is_active.swap(false, Ordering::Relaxed) {
            self.active.set(0);
            self.disconnected.inc();
        }
    }

    /// Begins the transfer of a snapshot to the member.
    pub(crate) fn sending(&self) -> Transfer {
        Transfer::begin(&self.sending)
    }

    /// Begins the transfer of a snapshot from the member.
    pub(crate) fn receiving(&self) -> Transfer {
        Transfer::begin(&self.receiving)
    }
}

/// The transfer of a snapshot. Dropped without [`arrived`](Self::arrived), it counts as failed.
pub(crate) struct Transfer {
    metrics: TransferMetrics,
    _under_way: GaugeGuard,
    began: Instant,
    arrived: bool,
}

impl Transfer {
    fn begin(metrics: &TransferMetrics) -> Self {
        let under_way = GaugeGuard::new(&metrics.under_way);
        Self { metrics: metrics.clone(), _under_way: under_way, began: Instant::now(), arrived: false }
    }

    /// Time since the transfer began.
    pub(crate) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Ends the transfer as successful.
    pub(crate) fn arrived(mut self) {
        self.arrived = true;
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        if self.arrived {
            self.metrics.successes.inc();
            self.metrics.seconds.observe(self.began.elapsed().as_secs_f64());
        } else {
            self.metrics.failures.inc();
        }
    }
}

#[cfg(test)]
mod tests {
    use prometheus::TextEncoder;

    use super::*;

    fn shown(metrics: &RaftMetrics) -> String {
        let registry = Registry::new();
        metrics.register(&registry).unwrap();
        TextEncoder::new().encode_to_string(&registry.gather()).unwrap()
    }

    fn assert_shown(metrics: &RaftMetrics, lines: &[&str]) {
        let text = shown(metrics);
        for line in lines {
            assert!(text.lines().any(|shown| shown == *line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn a_peer_is_active_from_success_to_failure() {
        let metrics = RaftMetrics::default();
        let peer = metrics.peer(NodeId(1), NodeId(0x1f));
        peer.missed();
        assert_shown(
            &metrics,
            &[
                "etcd_network_peer_sent_failures_total{To=\"1f\"} 1",
                "etcd_network_active_peers{Local=\"1\",Remote=\"1f\"} 0",
                "etcd_network_disconnected_peers_total{Local=\"1\",Remote=\"1f\"} 0",
            ],
        );
        peer.reached();
        metrics.peer(NodeId(1), NodeId(0x1f)).reached();
        assert_shown(&metrics, &["etcd_network_active_peers{Local=\"1\",Remote=\"1f\"} 1"]);
        peer.missed();
        peer.missed();
        assert_shown(
            &metrics,
            &[
                "etcd_network_peer_sent_failures_total{To=\"1f\"} 3",
                "etcd_network_active_peers{Local=\"1\",Remote=\"1f\"} 0",
                "etcd_network_disconnected_peers_total{Local=\"1\",Remote=\"1f\"} 1",
            ],
        );
    }

    #[test]
    fn whoever_calls_under_many_ids_makes_no_more_labels() {
        let metrics = RaftMetrics::default();
        for id in 0..PEERS_SHOWN_MAX as u64 + 10 {
            metrics.peer(NodeId(1), NodeId(id)).missed();
        }
        assert_shown(&metrics, &["etcd_network_peer_sent_failures_total{To=\"other\"} 10"]);
        let shown = shown(&metrics).lines().filter(|line| line.starts_with("etcd_network_active_peers{")).count();
        assert_eq!(shown, PEERS_SHOWN_MAX + 1);
    }

    #[test]
    fn a_snapshot_arrives_or_fails() {
        let metrics = RaftMetrics::default();
        let peer = metrics.peer(NodeId(1), NodeId(2));
        let (first, second) = (peer.sending(), peer.sending());
        assert_shown(&metrics, &["etcd_network_snapshot_send_inflights_total{To=\"2\"} 2"]);
        first.arrived();
        drop(second);
        peer.receiving().arrived();
        assert_shown(
            &metrics,
            &[
                "etcd_network_snapshot_send_inflights_total{To=\"2\"} 0",
                "etcd_network_snapshot_send_success{To=\"2\"} 1",
                "etcd_network_snapshot_send_failures{To=\"2\"} 1",
                "etcd_network_snapshot_send_total_duration_seconds_count{To=\"2\"} 1",
                "etcd_network_snapshot_receive_success{From=\"2\"} 1",
            ],
        );
    }

    #[test]
    fn entries_are_told_apart_by_kind_and_by_outcome() {
        let metrics = RaftMetrics::default();
        let kind = |name: &str| Command::KINDS.iter().position(|kind| *kind == name).unwrap();
        metrics.applied(kind("Put"), true, Duration::from_millis(1));
        metrics.applied(kind("Put"), true, Duration::from_millis(101));
        metrics.applied(kind("Txn"), false, Duration::from_millis(100));
        assert_shown(
            &metrics,
            &[
                "etcd_server_slow_apply_total 1",
                "etcd_server_apply_duration_seconds_count{op=\"Put\",success=\"true\",version=\"v3\"} 2",
                "etcd_server_apply_duration_seconds_count{op=\"Txn\",success=\"false\",version=\"v3\"} 1",
            ],
        );
    }

    #[test]
    fn joins_count_by_their_results() {
        let metrics = RaftMetrics::default();
        for result in ["joined", "uninvited", "uninvited"] {
            metrics.joined(result);
        }
        let shown = ["headwater_joins_total{result=\"joined\"} 1", "headwater_joins_total{result=\"uninvited\"} 2"];
        assert_shown(&metrics, &shown);
    }

    #[test]
    fn promotions_count_with_their_refusals() {
        let metrics = RaftMetrics::default();
        metrics.promoted(None);
        metrics.promoted(Some(&"not ready"));
        assert_shown(
            &metrics,
            &[
                "etcd_server_learner_promote_successes 1",
                "etcd_server_learner_promote_failures{Reason=\"not ready\"} 1",
            ],
        );
    }
}
