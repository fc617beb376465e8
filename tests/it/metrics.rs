//! Metrics under etcd's names: each metric in `docs/metrics.md` is served, and counts the events
//! that it names.

use std::collections::{BTreeMap, BTreeSet};

use etcd_client::Client;
use headwater::node::LeaseClock;
use headwater::pb::etcdserverpb as pb;
use headwater::pb::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use headwater::pb::etcdserverpb::request_op::Request as Op;

use crate::cluster::{Cluster, Settings, get, get_local, pass, put, wait_until};
use crate::consul_http;
use crate::snapshots;

/// The samples of one member, by the text before the value (`NAME{LABELS}`).
pub(crate) struct Samples(BTreeMap<String, f64>);

impl Samples {
    pub(crate) async fn of(cluster: &Cluster, member: usize) -> Self {
        let text = consul_http::get(cluster, member, "/metrics").await.text;
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let sample = |line: &str| {
            let (name, value) = line.rsplit_once(' ').unwrap();
            (name.to_owned(), value.parse().unwrap())
        };
        Self(lines.map(sample).collect())
    }

    /// The value of the sample with this name and labels, as printed. Panics without it.
    pub(crate) fn one(&self, name: &str) -> f64 {
        *self.0.get(name).unwrap_or_else(|| panic!("{name} is not served"))
    }

    /// Sum of all samples of a family, over all its labels. Panics if there are none.
    fn sum(&self, family: &str) -> f64 {
        let of = |name: &str| name.split_once('{').map_or(name, |(family, _)| family) == family;
        let found: Vec<f64> = self.0.iter().filter(|(name, _)| of(name)).map(|(_, value)| *value).collect();
        assert!(!found.is_empty(), "{family} is not served");
        found.iter().sum()
    }

    /// Increase of the sum of each family since `before`, in the order of `families`.
    fn since<const N: usize>(&self, before: &Self, families: [&str; N]) -> [i64; N] {
        families.map(|family| (self.sum(family) - before.sum(family)) as i64)
    }

    /// Names of all families, without labels and without the suffixes of histograms.
    fn families(&self) -> BTreeSet<String> {
        let family = |name: &String| {
            let name = name.split_once('{').map_or(name.as_str(), |(family, _)| family);
            let cut = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
            cut.unwrap_or(name).to_owned()
        };
        self.0.keys().map(family).collect()
    }
}

/// Names in the first column of the table below this heading of `docs/metrics.md`.
fn documented(heading: &str) -> Vec<String> {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/metrics.md")).unwrap();
    let (_, section) = page.split_once(heading).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let name = |line: &str| Some(line.strip_prefix("| `")?.split_once('`')?.0.to_owned());
    section.lines().filter_map(name).collect()
}

/// Makes a request that the cluster refuses: to promote a voter.
async fn promote_a_voter(cluster: &Cluster, member: usize) {
    let request = pb::MemberPromoteRequest { id: cluster.id(member) };
    cluster.members(member).member_promote(request).await.unwrap_err();
}

#[tokio::test(flavor = "multi_thread")]
async fn every_name_of_the_page_is_served_and_no_other_of_etcds() {
    let cluster = Cluster::three().await;
    let leader = cluster.leader().await;
    cluster.kv(leader).put(put("k", "v")).await.unwrap();
    promote_a_voter(&cluster, leader).await;
    for path in ["/health", "/livez", "/readyz", "/metrics"] {
        consul_http::get(&cluster, leader, path).await;
    }
    let served = Samples::of(&cluster, leader).await.families();
    let listed: BTreeSet<String> = documented("## etcd's names that are served").into_iter().collect();
    let missing: Vec<_> = listed.difference(&served).collect();
    assert!(missing.is_empty(), "in the page, but not served: {missing:?}");
    let is_etcds = |name: &&String| ["etcd_", "grpc_", "os_", "promhttp_"].iter().any(|start| name.starts_with(start));
    let unlisted: Vec<_> = served.difference(&listed).filter(is_etcds).collect();
    assert!(unlisted.is_empty(), "served, but not in the page: {unlisted:?}");
    for name in documented("## etcd's names that are not served") {
        assert!(!served.contains(&name) && !listed.contains(&name), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn operations_on_keys_are_counted_by_every_member_that_applies_them() {
    let cluster = Cluster::three().await;
    let (leader, follower) = (cluster.leader().await, cluster.follower().await);
    let names = ["etcd_mvcc_put_total", "etcd_mvcc_delete_total", "etcd_mvcc_range_total", "etcd_mvcc_txn_total"];
    let older = names.map(|name| name.replace("etcd_mvcc", "etcd_debugging_mvcc"));
    let older = older.each_ref().map(String::as_str);
    let before = [Samples::of(&cluster, leader).await, Samples::of(&cluster, follower).await];

    let mut kv = cluster.kv(leader);
    for number in 0..3 {
        kv.put(put(format!("k{number}"), "value")).await.unwrap();
    }
    kv.range(get("k0")).await.unwrap();
    kv.delete_range(pb::DeleteRangeRequest { key: "absent".into(), ..Default::default() }).await.unwrap();
    let all = pb::DeleteRangeRequest { key: "k".into(), range_end: "l".into(), ..Default::default() };
    kv.delete_range(all).await.unwrap();
    let op = |request| pb::RequestOp { request: Some(request) };
    let is_absent = pb::Compare {
        key: "t".into(),
        target: CompareTarget::Version as i32,
        result: CompareResult::Equal as i32,
        target_union: Some(TargetUnion::Version(0)),
        ..Default::default()
    };
    let txn = pb::TxnRequest {
        compare: vec![is_absent],
        success: vec![op(Op::RequestPut(put("t", "1"))), op(Op::RequestRange(get("t")))],
        failure: vec![],
    };
    kv.txn(txn).await.unwrap();
    let reads = pb::TxnRequest { success: vec![op(Op::RequestRange(get("t"))); 2], ..Default::default() };
    kv.txn(reads).await.unwrap();
    cluster.hashes().await;

    let after = [Samples::of(&cluster, leader).await, Samples::of(&cluster, follower).await];
    // The two reads, and the read-only transaction, count at the leader alone.
    assert_eq!(after[0].since(&before[0], names), [4, 2, 4, 2]);
    assert_eq!(after[1].since(&before[1], names), [4, 2, 1, 1]);
    assert_eq!(after[0].since(&before[0], older), [4, 2, 4, 2], "older names");
    let bytes = after[1].since(&before[1], ["etcd_debugging_mvcc_total_put_size_in_bytes"]);
    assert_eq!(bytes, [3 * 7 + 2]);
    assert_eq!(after[1].one("etcd_debugging_mvcc_keys_total"), 1.0);
    let ranges = ["etcd_server_range_duration_seconds_count"];
    assert_eq!(after[0].since(&before[0], ranges), [2]);
    kv.range(pb::RangeRequest { revision: 1_000_000, ..get("t") }).await.unwrap_err();
    let failed = Samples::of(&cluster, leader).await;
    assert_eq!(failed.one("etcd_server_range_duration_seconds_count{success=\"false\"}"), 1.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_applied_and_flushed_is_timed() {
    let cluster = Cluster::start(Settings::alone()).await;
    let before = Samples::of(&cluster, 0).await;
    cluster.kv(0).put(put("k", "v")).await.unwrap();
    let keep = pb::PutRequest { ignore_value: true, ..put("absent", "") };
    cluster.kv(0).put(keep).await.unwrap_err();
    let after = Samples::of(&cluster, 0).await;
    let op = |success: bool| {
        format!("etcd_server_apply_duration_seconds_count{{op=\"Put\",success=\"{success}\",version=\"v3\"}}")
    };
    assert_eq!((after.one(&op(true)), after.one(&op(false))), (1.0, 1.0));
    for family in [
        "etcd_disk_backend_commit_duration_seconds_count",
        "etcd_disk_wal_fsync_duration_seconds_count",
        "etcd_disk_wal_write_bytes_total",
    ] {
        assert!(after.sum(family) > before.sum(family), "{family}");
    }
    assert_eq!(after.one("etcd_server_slow_apply_total"), 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_and_versions_of_clients_are_counted() {
    let cluster = Cluster::start(Settings::alone()).await;
    let labels = "{grpc_method=\"Put\",grpc_service=\"etcdserverpb.KV\",grpc_type=\"unary\"}";
    let unknown = "etcd_server_client_requests_total{client_api_version=\"unknown\",type=\"unary\"}";
    let before = Samples::of(&cluster, 0).await;
    let (request, mut sized) = (put("key", "v".repeat(1000)), Vec::new());
    prost::Message::encode(&request, &mut sized).unwrap();
    cluster.kv(0).put(request.clone()).await.unwrap();
    let mut named = tonic::Request::new(request);
    named.metadata_mut().insert("client-api-version", "3.5".parse().unwrap());
    cluster.kv(0).put(named).await.unwrap();
    let after = Samples::of(&cluster, 0).await;
    for family in ["grpc_server_msg_received_total", "grpc_server_msg_sent_total", "grpc_server_started_total"] {
        assert_eq!(after.one(&format!("{family}{labels}")), 2.0, "{family}");
    }
    let bytes = after.since(&before, ["etcd_network_client_grpc_received_bytes_total"]);
    assert_eq!(bytes, [2 * sized.len() as i64], "messages alone");
    let [sent] = after.since(&before, ["etcd_network_client_grpc_sent_bytes_total"]);
    assert!((10..200).contains(&sent), "two answers with a header each: {sent}");
    let known = "etcd_server_client_requests_total{client_api_version=\"3.5\",type=\"unary\"}";
    assert_eq!((after.one(unknown) - before.one(unknown), after.one(known)), (1.0, 1.0));

    // In a stream every message counts.
    let mut client = Client::connect([cluster.client_url(0)], None).await.unwrap();
    let mut events = client.watch("w", None).await.unwrap();
    for number in 0..3 {
        cluster.kv(0).put(put("w", number.to_string())).await.unwrap();
        while events.message().await.unwrap().unwrap().events().is_empty() {}
    }
    let labels = "{grpc_method=\"Watch\",grpc_service=\"etcdserverpb.Watch\",grpc_type=\"bidi_stream\"}";
    let streamed = Samples::of(&cluster, 0).await;
    assert_eq!(streamed.one(&format!("grpc_server_msg_received_total{labels}")), 1.0);
    assert_eq!(streamed.one(&format!("grpc_server_msg_sent_total{labels}")), 4.0, "created, and three events");
    assert_eq!(streamed.one("etcd_debugging_mvcc_events_total"), 3.0);
    assert_eq!(streamed.one("etcd_debugging_mvcc_pending_events_total"), 0.0);
    assert_eq!(streamed.one("etcd_debugging_mvcc_watcher_total"), 1.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn peers_are_told_apart_and_missed() {
    let mut cluster = Cluster::three().await;
    let (leader, follower) = (cluster.leader().await, cluster.follower().await);
    let (me, other) = (cluster.id(leader), cluster.id(follower));
    cluster.kv(leader).put(put("k", "v".repeat(10_000))).await.unwrap();
    cluster.hashes().await;
    let pair = format!("{{Local=\"{me}\",Remote=\"{other}\"}}");
    let samples = Samples::of(&cluster, leader).await;
    assert!(samples.one(&format!("etcd_network_peer_sent_bytes_total{{To=\"{other}\"}}")) > 10_000.0);
    assert!(samples.one(&format!("etcd_network_peer_received_bytes_total{{From=\"{other}\"}}")) > 0.0);
    assert_eq!(samples.one(&format!("etcd_network_known_peers{pair}")), 1.0);
    assert_eq!(samples.sum("etcd_network_known_peers"), 2.0);
    let there = Samples::of(&cluster, follower).await;
    assert!(there.one(&format!("etcd_network_peer_received_bytes_total{{From=\"{me}\"}}")) > 10_000.0);
    assert_eq!(there.one(&format!("etcd_network_active_peers{{Local=\"{other}\",Remote=\"{me}\"}}")), 1.0);
    wait_until("a heartbeat is answered", async || {
        let samples = Samples::of(&cluster, leader).await;
        samples.one(&format!("etcd_network_peer_round_trip_time_seconds_count{{To=\"{other}\"}}")) > 0.0
            && samples.one(&format!("etcd_network_active_peers{pair}")) == 1.0
    })
    .await;

    cluster.crash(follower).await;
    wait_until("the follower is missed", async || {
        let samples = Samples::of(&cluster, leader).await;
        samples.one(&format!("etcd_network_active_peers{pair}")) == 0.0
            && samples.one(&format!("etcd_network_disconnected_peers_total{pair}")) >= 1.0
            && samples.one(&format!("etcd_network_peer_sent_failures_total{{To=\"{other}\"}}")) >= 1.0
            && samples.one("etcd_server_heartbeat_send_failures_total") >= 1.0
    })
    .await;
    let samples = Samples::of(&cluster, leader).await;
    assert_eq!(samples.sum("etcd_network_known_peers"), 2.0, "it is still a member");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_index_without_a_majority_fails() {
    let mut cluster = Cluster::three().await;
    let leader = cluster.leader().await;
    for member in (0..3).filter(|member| *member != leader) {
        cluster.crash(member).await;
    }
    let mut request = tonic::Request::new(get("k"));
    request.set_timeout(std::time::Duration::from_secs(3));
    cluster.kv(leader).range(request).await.unwrap_err();
    let samples = Samples::of(&cluster, leader).await;
    let failed = samples.one("etcd_server_read_indexes_failed_total");
    let slow = samples.one("etcd_server_slow_read_indexes_total");
    assert!(failed >= 1.0 && slow <= failed, "{failed} failed, {slow} of them slow");
    assert_eq!(cluster.kv(leader).range(get_local("k")).await.unwrap().into_inner().count, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn snapshots_are_counted_where_they_come_from_and_where_they_go() {
    let mut cluster = Cluster::start(snapshots::settings()).await;
    let (leader, follower) = (cluster.leader().await, cluster.follower().await);
    let (me, other) = (cluster.id(leader), cluster.id(follower));
    cluster.crash(follower).await;
    snapshots::install(&mut cluster, follower).await;
    wait_until("both sides know that it has arrived", async || {
        let sent = Samples::of(&cluster, leader).await;
        let received = Samples::of(&cluster, follower).await;
        let (to, from) = (format!("{{To=\"{other}\"}}"), format!("{{From=\"{me}\"}}"));
        sent.one(&format!("etcd_network_snapshot_send_success{to}")) >= 1.0
            && sent.one(&format!("etcd_network_snapshot_send_total_duration_seconds_count{to}")) >= 1.0
            && sent.one(&format!("etcd_network_snapshot_send_inflights_total{to}")) == 0.0
            && received.one(&format!("etcd_network_snapshot_receive_success{from}")) >= 1.0
            && received.one(&format!("etcd_network_snapshot_receive_total_duration_seconds_count{from}")) >= 1.0
            && received.one(&format!("etcd_network_snapshot_receive_inflights_total{from}")) == 0.0
    })
    .await;
    let sent = Samples::of(&cluster, leader).await;
    assert!(sent.one("etcd_disk_backend_snapshot_duration_seconds_count") >= 1.0);
    let received = Samples::of(&cluster, follower).await;
    assert!(received.one("etcd_snap_db_save_total_duration_seconds_count") >= 1.0);
    assert!(received.one("etcd_snap_db_fsync_duration_seconds_count") >= 1.0);
    assert_eq!(received.one("etcd_server_snapshot_apply_in_progress_total"), 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn maintenance_is_timed() {
    let cluster = Cluster::start(Settings::alone()).await;
    let mut kv = cluster.kv(0);
    for number in 0..10 {
        kv.put(put("k", number.to_string())).await.unwrap();
    }
    let before = Samples::of(&cluster, 0).await;
    let mut maintenance = cluster.maintenance(0);
    maintenance.hash(pb::HashRequest {}).await.unwrap();
    maintenance.hash_kv(pb::HashKvRequest { revision: 0 }).await.unwrap();
    maintenance.defragment(pb::DefragmentRequest {}).await.unwrap();
    kv.compact(pb::CompactionRequest { revision: 8, physical: true }).await.unwrap();
    let after = Samples::of(&cluster, 0).await;
    let timed = [
        "etcd_mvcc_hash_duration_seconds_count",
        "etcd_mvcc_hash_rev_duration_seconds_count",
        "etcd_disk_backend_defrag_duration_seconds_count",
        "etcd_debugging_mvcc_db_compaction_total_duration_milliseconds_count",
    ];
    assert_eq!(after.since(&before, timed), [1, 1, 1, 1]);
    assert!(after.sum("etcd_debugging_mvcc_db_compaction_pause_duration_milliseconds_count") >= 1.0);
    // Revisions 2 to 7 of one key.
    assert_eq!(after.since(&before, ["etcd_debugging_mvcc_db_compaction_keys_total"]), [6]);
    assert_eq!(
        (before.one("etcd_debugging_mvcc_db_compaction_last"), after.one("etcd_disk_defrag_inflight")),
        (0.0, 0.0)
    );
    assert!(after.one("etcd_debugging_mvcc_db_compaction_last") > 1e9);
    assert_eq!(after.one("etcd_debugging_mvcc_compact_revision"), 8.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn promotions_are_counted_by_the_leader() {
    let mut cluster = Cluster::start(Settings { members: 1, ..Settings::default() }).await;
    promote_a_voter(&cluster, 0).await;
    let refused = Samples::of(&cluster, 0).await;
    assert_eq!(refused.one("etcd_server_learner_promote_failures{Reason=\"not a learner\"}"), 1.0);
    assert_eq!(refused.one("etcd_server_learner_promote_successes"), 0.0);
    let learner = cluster.join(true).await;
    let id = cluster.id(learner);
    let there = Samples::of(&cluster, learner).await;
    assert_eq!(there.one("etcd_server_is_learner"), 1.0);
    wait_until("the learner is promoted", async || {
        cluster.members(0).member_promote(pb::MemberPromoteRequest { id }).await.is_ok()
    })
    .await;
    assert_eq!(Samples::of(&cluster, 0).await.one("etcd_server_learner_promote_successes"), 1.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn leases_that_run_out_are_counted_under_etcds_name() {
    let (clock, hand) = LeaseClock::by_hand();
    let cluster = Cluster::start_with_clock(Settings::alone(), clock).await;
    let mut client = Client::connect([cluster.client_url(0)], None).await.unwrap();
    client.lease_grant(2, None).await.unwrap();
    pass(&hand, 10).await;
    wait_until("the lease has ended", async || {
        let samples = Samples::of(&cluster, 0).await;
        samples.one("etcd_debugging_server_lease_expired_total") == 1.0
            && samples.one("etcd_debugging_lease_revoked_total") == 1.0
            && samples.one("etcd_debugging_lease_granted_total") == 1.0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn checks_scrapes_and_descriptors_are_counted() {
    let cluster = Cluster::start(Settings::alone()).await;
    for path in ["/health", "/livez", "/readyz"] {
        consul_http::get(&cluster, 0, path).await;
    }
    let samples = Samples::of(&cluster, 0).await;
    assert_eq!(samples.one("etcd_server_health_success"), 1.0);
    for (probe, check) in [("livez", "serializable_read"), ("readyz", "linearizable_read"), ("readyz", "non_learner")] {
        assert_eq!(samples.one(&format!("etcd_server_healthcheck{{name=\"{check}\",type=\"{probe}\"}}")), 1.0);
        let success = format!("etcd_server_healthchecks_total{{name=\"{check}\",status=\"success\",type=\"{probe}\"}}");
        assert_eq!(samples.one(&success), 1.0);
    }
    assert_eq!(samples.one("os_fd_used"), samples.one("process_open_fds"));
    assert_eq!(samples.one("os_fd_limit"), samples.one("process_max_fds"));
    assert_eq!(samples.one("promhttp_metric_handler_requests_in_flight"), 1.0, "this one");
    let again = Samples::of(&cluster, 0).await;
    assert_eq!(again.one("promhttp_metric_handler_requests_total{code=\"200\"}"), 1.0);
}
