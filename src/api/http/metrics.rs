//! `/metrics`: everything in the registry, and the state of the node at the time of the request
//! (spec: etcd §4.7).

use std::sync::Arc;

use axum::extract::State;
use axum::http::{Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use parking_lot::Mutex;
use prometheus::core::{Collector, Desc};
use prometheus::process_collector::ProcessCollector;
use prometheus::proto::MetricFamily;
use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry, TextEncoder};

use super::{HttpState, only_get, text};
use headwater_api_shared::{ETCD_CLUSTER_VERSION, ETCD_COMPATIBLE_VERSION};
use headwater_node::{Counters, Node, Status};
use headwater_types::NodeId;

pub(super) async fn metrics(State(state): State<Arc<HttpState>>, method: Method) -> Response {
    if let Some(refusal) = only_get(&method) {
        return refusal;
    }
    let _under_way = GaugeGuard::begin(&state.scrapes.under_way);
    let response = match TextEncoder::new().encode_to_string(&state.registry.gather()) {
        Ok(body) => ([(header::CONTENT_TYPE, prometheus::TEXT_FORMAT)], body).into_response(),
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("metrics cannot be encoded: {error}\n")),
    };
    state.scrapes.done.with_label_values(&[response.status().as_str()]).inc();
    response
}

/// Metrics of the requests for `/metrics` itself, under the names that Go's client library gives
/// them.
pub(super) struct Scrapes {
    done: IntCounterVec,
    under_way: IntGauge,
}

impl Scrapes {
    pub(super) fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let done = Opts::new("promhttp_metric_handler_requests_total", "Scrapes by HTTP status code.");
        let this = Self {
            done: IntCounterVec::new(done, &["code"])?,
            under_way: IntGauge::new("promhttp_metric_handler_requests_in_flight", "Scrapes being served now.")?,
        };
        // Shown from the start, as Go's does.
        ["200", "500", "503"].into_iter().for_each(|code| this.done.with_label_values(&[code]).reset());
        registry.register(Box::new(this.done.clone()))?;
        registry.register(Box::new(this.under_way.clone()))?;
        Ok(this)
    }
}

/// A gauge that is one higher until this is dropped.
struct GaugeGuard<'a>(&'a IntGauge);

impl<'a> GaugeGuard<'a> {
    fn begin(gauge: &'a IntGauge) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for GaugeGuard<'_> {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Registers the figures of the node and the process.
pub(super) fn register(node: &Node, registry: &Registry) -> Result<(), prometheus::Error> {
    let identity = node.identity();
    for (name, help, label, value) in [
        ("etcd_server_version", "The etcd release that is spoken.", "server_version", ETCD_COMPATIBLE_VERSION),
        ("etcd_cluster_version", "The cluster version that is spoken.", "cluster_version", ETCD_CLUSTER_VERSION),
        ("headwater_server_version", "This member's program.", "program", &node.versions().own().program),
        ("etcd_server_id", "This member, in hexadecimal.", "server_id", &format!("{:x}", identity.node_id.get())),
    ] {
        let fact = IntGaugeVec::new(Opts::new(name, help), &[label])?;
        fact.with_label_values(&[value]).set(1);
        registry.register(Box::new(fact))?;
    }
    registry.register(Box::new(NodeCollector {
        node: node.clone(),
        gauges: Gauges::new()?,
        totals: Totals::new()?,
        known_peers: IntGaugeVec::new(
            Opts::new("etcd_network_known_peers", "The other members of the cluster: 1 for each."),
            &["Local", "Remote"],
        )?,
        cluster_version: IntGaugeVec::new(
            Opts::new("headwater_cluster_version", "The version that the cluster has agreed on: 1 for it."),
            &["version"],
        )?,
        collecting: Mutex::new(()),
    }))?;
    registry.register(Box::new(Process::new()?))
}

/// Figures of this process from the system, with its file descriptors under etcd's names as well.
struct Process {
    inner: ProcessCollector,
    descriptors_used: IntGauge,
    descriptors_limit: IntGauge,
}

impl Process {
    fn new() -> Result<Self, prometheus::Error> {
        Ok(Self {
            inner: ProcessCollector::for_self(),
            descriptors_used: IntGauge::new("os_fd_used", "File descriptors in use.")?,
            descriptors_limit: IntGauge::new("os_fd_limit", "File descriptors that may be in use.")?,
        })
    }

    fn etcd(&self) -> [&IntGauge; 2] {
        [&self.descriptors_used, &self.descriptors_limit]
    }
}

impl Collector for Process {
    fn desc(&self) -> Vec<&Desc> {
        self.inner.desc().into_iter().chain(self.etcd().into_iter().flat_map(Collector::desc)).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let mut families = self.inner.collect();
        for (name, gauge) in
            [("process_open_fds", &self.descriptors_used), ("process_max_fds", &self.descriptors_limit)]
        {
            let found = families.iter().find(|family| family.name() == name);
            if let Some(metric) = found.and_then(|family| family.get_metric().first()) {
                gauge.set(metric.get_gauge().get_value() as i64);
            }
        }
        families.extend(self.etcd().into_iter().flat_map(Collector::collect));
        families
    }
}

/// Figures read from the node at each collection. While the node has no status, its gauges are left
/// out, except `has_leader`, which is 0.
struct NodeCollector {
    node: Node,
    gauges: Gauges,
    totals: Totals,
    known_peers: IntGaugeVec,
    cluster_version: IntGaugeVec,
    // Two collections at once must not both add the increase since the last one.
    collecting: Mutex<()>,
}

impl Collector for NodeCollector {
    fn desc(&self) -> Vec<&Desc> {
        let gauges = self.gauges.all().into_iter().flat_map(Collector::desc);
        let labelled = self.known_peers.desc().into_iter().chain(self.cluster_version.desc());
        gauges.chain(self.totals.desc()).chain(labelled).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let _alone = self.collecting.lock();
        let mut families = match self.node.status() {
            Ok(status) => {
                self.gauges.set(self.node.identity().node_id, &status);
                self.gauges.all().into_iter().flat_map(Collector::collect).collect()
            }
            Err(_) => {
                self.gauges.has_leader.set(0);
                self.gauges.has_leader.collect()
            }
        };
        self.totals.raise(self.node.counters());
        families.extend(self.totals.collect());
        let local = format!("{:x}", self.node.identity().node_id.get());
        self.known_peers.reset();
        for peer in self.node.members().peers() {
            self.known_peers.with_label_values(&[local.as_str(), &format!("{:x}", peer.get())]).set(1);
        }
        families.extend(self.known_peers.collect());
        self.cluster_version.reset();
        self.cluster_version.with_label_values(&[self.node.versions().cluster().version.to_string().as_str()]).set(1);
        families.extend(self.cluster_version.collect());
        families
    }
}

macro_rules! gauges {
    ($($field:ident: $name:literal, $help:literal;)*) => {
        struct Gauges {
            $($field: IntGauge,)*
        }

        impl Gauges {
            fn new() -> Result<Self, prometheus::Error> {
                Ok(Self { $($field: IntGauge::new($name, $help)?,)* })
            }

            fn all(&self) -> Vec<&IntGauge> {
                vec![$(&self.$field,)*]
            }
        }
    };
}

gauges! {
    has_leader: "etcd_server_has_leader", "Whether a leader is known: 1 or 0.";
    is_leader: "etcd_server_is_leader", "Whether this member leads: 1 or 0.";
    is_learner: "etcd_server_is_learner", "Whether this member has no vote: 1 or 0.";
    term: "headwater_raft_term", "Raft term of this member.";
    committed: "etcd_server_proposals_committed_total", "Highest log index known to be committed.";
    applied: "etcd_server_proposals_applied_total", "Highest log index applied.";
    db_size: "etcd_mvcc_db_total_size_in_bytes", "Bytes that the state takes in files and write buffers; never less than what is in use.";
    db_size_older: "etcd_debugging_mvcc_db_total_size_in_bytes", "The same as etcd_mvcc_db_total_size_in_bytes.";
    open_views: "etcd_mvcc_db_open_read_transactions", "Views of the state that are open.";
    db_size_in_use: "etcd_mvcc_db_total_size_in_use_in_bytes", "Bytes of live keys and values.";
    quota: "etcd_server_quota_backend_bytes", "Bytes that live keys and values may take; 0 if there is no bound.";
    alarms: "headwater_alarms", "Number of active alarms.";
    keys: "etcd_debugging_mvcc_keys_total", "Number of live keys.";
    revision: "etcd_debugging_mvcc_current_revision", "Current revision of the KV store.";
    compact_revision: "etcd_debugging_mvcc_compact_revision", "Compaction point of the KV store.";
    history_from: "headwater_history_first_index", "Log index of the first change that is kept in the history.";
    log_from: "headwater_log_first_index", "First log index that the log has; a member that needs an earlier one is sent a snapshot.";
    serving: "headwater_serving", "Whether this member has recovered and serves: 1 or 0.";
    standstill: "headwater_apply_standstill_seconds",
        "For how long nothing was applied although more is committed; 0 if that is not long.";
}

impl Gauges {
    fn set(&self, id: NodeId, status: &Status) {
        let signed = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        let leadership = status.leadership;
        self.has_leader.set(leadership.leader.is_some().into());
        self.is_leader.set((leadership.leader == Some(id)).into());
        self.is_learner.set(status.is_learner.into());
        self.term.set(signed(leadership.term.get()));
        self.committed.set(signed(status.committed.get()));
        self.applied.set(signed(status.applied.get()));
        self.db_size.set(signed(status.stored_bytes));
        self.db_size_older.set(signed(status.stored_bytes));
        self.open_views.set(signed(status.open_views));
        self.db_size_in_use.set(signed(status.live_bytes));
        self.quota.set(status.quota_bytes.map_or(0, signed));
        self.alarms.set(signed(status.alarms.len() as u64));
        self.keys.set(signed(status.live_keys));
        self.revision.set(status.revision.get());
        self.compact_revision.set(status.compact_revision.get());
        self.history_from.set(signed(status.history_from.get()));
        self.log_from.set(signed(status.log_from.get()));
        self.serving.set(status.serving.into());
        self.standstill.set(status.stands_still.map_or(0, |lasts| signed(lasts.as_secs())));
    }
}

/// Counts of the node since its start; `pending` is the number of proposals that wait now.
struct Totals {
    pending: IntGauge,
    answered: IntCounter,
    failed: IntCounter,
    leader_changes: IntCounter,
}

impl Totals {
    fn new() -> Result<Self, prometheus::Error> {
        Ok(Self {
            pending: IntGauge::new("etcd_server_proposals_pending", "Proposals that wait for an outcome now.")?,
            answered: IntCounter::new("headwater_proposals_answered_total", "Proposals that got an outcome.")?,
            failed: IntCounter::new(
                "etcd_server_proposals_failed_total",
                "Proposals that failed or stayed unanswered.",
            )?,
            leader_changes: IntCounter::new(
                "etcd_server_leader_changes_seen_total",
                "Changes of leadership that this member saw.",
            )?,
        })
    }

    fn raise(&self, counters: Counters) {
        let Counters { proposals_pending, proposals_answered, proposals_failed, leader_changes } = counters;
        self.pending.set(i64::try_from(proposals_pending).unwrap_or(i64::MAX));
        for (counter, value) in [
            (&self.answered, proposals_answered),
            (&self.failed, proposals_failed),
            (&self.leader_changes, leader_changes),
        ] {
            counter.inc_by(value.saturating_sub(counter.get()));
        }
    }

    fn each(&self) -> [&dyn Collector; 4] {
        [&self.pending, &self.answered, &self.failed, &self.leader_changes]
    }

    fn desc(&self) -> Vec<&Desc> {
        self.each().into_iter().flat_map(Collector::desc).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        self.each().into_iter().flat_map(Collector::collect).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_node::Leadership;
    use headwater_types::{Alarm, AlarmKind};

    #[test]
    fn gauges_tell_how_the_node_stands() {
        let gauges = Gauges::new().unwrap();
        let mut status = Status {
            leadership: Leadership { leader: Some(2.into()), term: 3.into() },
            committed: 10.into(),
            applied: 9.into(),
            revision: 5.into(),
            compact_revision: 2.into(),
            history_from: 6.into(),
            log_from: 8.into(),
            epoch: None,
            stored_bytes: 1000,
            open_views: 3,
            live_bytes: 400,
            live_keys: 7,
            quota_bytes: Some(5000),
            version: headwater_types::ClusterVersion::FIRST,
            alarms: vec![Alarm { member: 1.into(), kind: AlarmKind::NoSpace }],
            is_learner: false,
            serving: true,
            stands_still: None,
        };
        let values = |id: u64, status: &Status| -> Vec<i64> {
            gauges.set(id.into(), status);
            gauges.all().into_iter().map(IntGauge::get).collect()
        };
        assert_eq!(values(2, &status), [1, 1, 0, 3, 10, 9, 1000, 1000, 3, 400, 5000, 1, 7, 5, 2, 6, 8, 1, 0]);
        assert_eq!(values(1, &status)[..2], [1, 0]);
        status.leadership.leader = None;
        (status.quota_bytes, status.alarms) = (None, vec![]);
        (status.is_learner, status.serving, status.stored_bytes) = (true, false, u64::MAX);
        status.stands_still = Some(std::time::Duration::from_millis(12_500));
        assert_eq!(values(1, &status), [0, 0, 1, 3, 10, 9, i64::MAX, i64::MAX, 3, 400, 0, 0, 7, 5, 2, 6, 8, 0, 12]);
    }

    #[test]
    fn totals_follow_the_node() {
        let totals = Totals::new().unwrap();
        let values = |proposals_pending, leader_changes| {
            totals.raise(Counters { proposals_pending, proposals_answered: 7, proposals_failed: 2, leader_changes });
            (totals.pending.get(), totals.answered.get(), totals.failed.get(), totals.leader_changes.get())
        };
        assert_eq!(values(5, 1), (5, 7, 2, 1));
        assert_eq!(values(3, 1), (3, 7, 2, 1));
        assert_eq!(values(0, 4), (0, 7, 2, 4));
        assert_eq!((totals.desc().len(), totals.collect().len()), (4, 4));
    }
}
