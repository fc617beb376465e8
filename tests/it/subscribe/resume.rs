//! Resuming a stream: on any member, after restarts, after a restore, past a compaction.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use headwater::node::{RequestContext, RestoreOptions};
use headwater::pb::etcdserverpb as pb;
use headwater::pb::etcdserverpb::maintenance_client::MaintenanceClient;
use headwater::types::catalog::{CheckStatus, DeregistrationTarget};
use headwater::types::limits::RESTORE_BUMP_INDEX_DEFAULT;
use headwater::types::{ClusterId, NodeId};
use tonic::Code;

use super::client::{Delivery, Subscriber, after, check, dereg, deregister, health, reg, register};
use crate::cluster::{Cluster, Settings, put, wait_until, within};

/// Changes the service `web`, and others in between; returns the events that subscribers of `web`
/// must get, in order.
async fn change(cluster: &Cluster, member: usize) -> Vec<Delivery> {
    let mut delivered = Vec::new();
    for turn in 0..12 {
        let id = format!("web-{}", turn % 3);
        let name = format!("n/{id}");
        delivered.push(reg(register(cluster, member, "n", &id, "web").await, &name));
        delivered.push(reg(check(cluster, member, "n", &id, CheckStatus::ALL[turn % 3]).await, &name));
        delivered.push(dereg(deregister(cluster, member, "n", DeregistrationTarget::Service(id)).await, &name));
        // A change of another service.
        register(cluster, member, "n", "db", &format!("db-{turn}")).await;
    }
    delivered
}

#[tokio::test(flavor = "multi_thread")]
async fn any_index_of_history_goes_on_at_any_member_and_after_a_restart() {
    let mut cluster = Cluster::three().await;
    let leader = cluster.leader().await;
    let mut stream = Subscriber::open(&cluster, leader, health("web")).await.unwrap();
    let (_, start) = stream.snapshot().await;
    let delivered = change(&cluster, leader).await;
    for wanted in &delivered {
        assert_eq!(stream.next().await, *wanted);
    }
    let epoch = stream.epoch.clone();
    let resume = async |cluster: &Cluster, member: usize| {
        for from in [0, 1, 7, 20, delivered.len() - 1] {
            let index = if from == 0 { start } else { delivered[from - 1].index() };
            for epoch in [None, Some(epoch.as_str())] {
                let request = after(index, health("web"));
                let mut stream = Subscriber::open_with(cluster, member, request, epoch).await.unwrap();
                for wanted in &delivered[from..] {
                    assert_eq!(stream.next().await, *wanted, "from {index} at {member}");
                }
            }
        }
    };
    for member in 0..3 {
        // A request without a store epoch and with an index that the member has not reached would
        // count as one of another lineage.
        cluster
            .node(member)
            .catalog()
            .service_names(&ctx_at(delivered.last().unwrap().index()), Default::default())
            .await
            .unwrap();
        resume(&cluster, member).await;
    }
    // S28: the leader crashes, and with it every stream that it served.
    cluster.crash(leader).await;
    let other = cluster.leader().await;
    resume(&cluster, other).await;
    cluster.restart(leader).await;
    for member in (0..3).filter(|member| *member != leader) {
        cluster.crash(member).await;
        cluster.restart(member).await;
    }
    cluster.wait_healthy().await;
    cluster.hashes().await;
    for member in 0..3 {
        resume(&cluster, member).await;
    }
}

fn ctx_at(index: u64) -> RequestContext {
    RequestContext { min_index: Some(headwater::types::LogIndex(index)), ..super::client::ctx() }
}

#[tokio::test(flavor = "multi_thread")]
async fn s7_a_history_that_was_compacted_begins_anew() {
    let cluster = Cluster::three().await;
    let member = cluster.follower().await;
    let first = register(&cluster, member, "n", "web-1", "web").await;
    let mut kv = cluster.kv(member);
    let before = kv.put(put("k", "1")).await.unwrap().into_inner().header.unwrap().revision;
    let second = register(&cluster, member, "n", "web-2", "web").await;
    let revision = kv.put(put("k", "2")).await.unwrap().into_inner().header.unwrap().revision;
    let third = register(&cluster, member, "n", "web-3", "web").await;
    let compact = pb::CompactionRequest { revision, physical: true };
    assert!(revision > before);
    kv.compact(compact).await.unwrap();
    let mut stream = Subscriber::open(&cluster, member, after(first, health("web"))).await.unwrap();
    assert_eq!(stream.next().await, Delivery::StartOver);
    let (mut found, end) = stream.snapshot().await;
    found.sort();
    assert_eq!(found, ["n/web-1", "n/web-2", "n/web-3"]);
    assert!(end >= third);
    let next = check(&cluster, member, "n", "web-1", CheckStatus::Passing).await;
    assert_eq!(stream.next().await, reg(next, "n/web-1"));
    // Changes after the compaction point can be resumed.
    let mut resumed = Subscriber::open(&cluster, member, after(third, health("web"))).await.unwrap();
    assert_eq!(resumed.next().await, reg(next, "n/web-1"));
    assert!(second < third);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_too_old_is_given_up_although_no_key_is_ever_written() {
    let settings = Settings { history_retention: Some(Duration::from_millis(300)), ..Settings::default() };
    let mut cluster = Cluster::start(settings).await;
    let member = cluster.follower().await;
    let mut stream = Subscriber::open(&cluster, member, health("web")).await.unwrap();
    assert_eq!(stream.snapshot().await.0, [""; 0]);
    let first = register(&cluster, member, "n", "web-1", "web").await;
    assert_eq!(stream.next().await, reg(first, "n/web-1"));
    let history_from = |cluster: &Cluster, member| cluster.node(member).status().unwrap().history_from.get();
    // A new cluster commits commands of its own for a moment. After that, history begins with the
    // last change.
    let mut statuses = [CheckStatus::Warning, CheckStatus::Passing].into_iter().cycle();
    let last = loop {
        let last = check(&cluster, member, "n", "web-1", statuses.next().unwrap()).await;
        assert_eq!(stream.next().await, reg(last, "n/web-1"));
        wait_until("history is given up", async || history_from(&cluster, member) >= last).await;
        if history_from(&cluster, member) == last {
            break last;
        }
    };
    for member in 0..3 {
        wait_until("history is given up", async || history_from(&cluster, member) >= last).await;
        let status = cluster.node(member).status().unwrap();
        assert_eq!((status.compact_revision, status.history_from.get()), (0.into(), last), "no key was compacted");
        let mut old = Subscriber::open(&cluster, member, after(first - 1, health("web"))).await.unwrap();
        assert_eq!(old.next().await, Delivery::StartOver);
        assert_eq!(old.snapshot().await.0, ["n/web-1"]);
        let mut newest = Subscriber::open(&cluster, member, after(last - 1, health("web"))).await.unwrap();
        assert_eq!(newest.next().await, reg(last, "n/web-1"), "where history begins is still there");
    }
    // A live stream misses nothing, through changes of leader and compactions.
    let leader = cluster.leader().await;
    cluster.crash(if leader == member { (leader + 1) % 3 } else { leader }).await;
    for turn in 0..3 {
        let index = check(&cluster, member, "n", "web-1", CheckStatus::ALL[turn]).await;
        assert_eq!(stream.next().await, reg(index, "n/web-1"));
        wait_until("history is given up", async || history_from(&cluster, member) >= index).await;
    }
    // The last revision of a key is kept for watches, at any age.
    let revision = cluster.kv(member).put(put("k", "1")).await.unwrap().into_inner().header.unwrap().revision;
    let written = cluster.node(member).status().unwrap().applied.get();
    wait_until("history is given up", async || history_from(&cluster, member) >= written).await;
    let last = register(&cluster, member, "n", "web-2", "web").await;
    wait_until("history is given up", async || history_from(&cluster, member) >= last).await;
    assert_eq!(cluster.node(member).status().unwrap().compact_revision.get(), revision);
    let mut watch = crate::watch::client::Stream::open(&cluster.client_url(member)).await.unwrap();
    let start = pb::WatchCreateRequest { start_revision: revision, ..crate::watch::client::key("k") };
    watch.create(start).await;
    assert_eq!(watch.events(1).await[0].kv.as_ref().unwrap().value, "1");
}

async fn save(cluster: &Cluster, member: usize, dir: &std::path::Path) -> PathBuf {
    let mut client = MaintenanceClient::connect(cluster.client_url(member)).await.unwrap();
    let mut chunks = client.snapshot(pb::SnapshotRequest {}).await.unwrap().into_inner();
    let mut bytes = Vec::new();
    while let Some(chunk) = within("a piece of the backup", chunks.message()).await.unwrap() {
        bytes.extend_from_slice(&chunk.blob);
    }
    let file = dir.join("backup");
    std::fs::write(&file, bytes).unwrap();
    file
}

#[tokio::test(flavor = "multi_thread")]
async fn s27_after_a_restore_every_index_of_before_begins_anew() {
    let mut cluster = Cluster::start(Settings::alone()).await;
    let first = register(&cluster, 0, "n", "web-1", "web").await;
    let mut stream = Subscriber::open(&cluster, 0, health("web")).await.unwrap();
    let (_, end) = stream.snapshot().await;
    let dir = tempfile::tempdir().unwrap();
    let file = save(&cluster, 0, dir.path()).await;
    // The new lineage does not have the later changes of the old one.
    let lost = register(&cluster, 0, "n", "web-lost", "web").await;
    let (epoch, streams) = (stream.epoch.clone(), stream);
    drop(streams);
    cluster.stop(0).await;
    let options = RestoreOptions {
        file: PathBuf::new(),
        data_dir: PathBuf::new(),
        node_id: NodeId(1),
        cluster_id: ClusterId(8),
        members: BTreeMap::new(),
        bump_index: RESTORE_BUMP_INDEX_DEFAULT,
        bump_revision: 0,
        mark_compacted: false,
        disable_auth: false,
    };
    let restored = Cluster::restored(Settings::default(), &file, &options).await;
    let member = restored.follower().await;
    // As many commands as the old lineage had: indexes of both lineages overlap.
    for turn in 0..lost + 10 {
        restored.kv(member).put(put("k", turn.to_string())).await.unwrap();
    }
    for index in [1, first, end, lost, lost + 1_000] {
        for epoch in [None, Some(epoch.as_str())] {
            let request = after(index, health("web"));
            let mut stream = Subscriber::open_with(&restored, member, request, epoch).await.unwrap();
            assert_eq!(stream.next().await, Delivery::StartOver, "{index} {epoch:?}");
            assert_eq!(stream.snapshot().await.0, ["n/web-1"]);
            assert_ne!(Some(stream.epoch.as_str()), epoch);
        }
    }
    // In the new lineage streams resume as usual.
    let mut stream = Subscriber::open(&restored, member, health("web")).await.unwrap();
    let (_, end) = stream.snapshot().await;
    let next = register(&restored, member, "n", "web-2", "web").await;
    assert_eq!(stream.next().await, reg(next, "n/web-2"));
    let mut resumed = Subscriber::open(&restored, member, after(end, health("web"))).await.unwrap();
    assert_eq!(resumed.next().await, reg(next, "n/web-2"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_lags_waits_for_an_index_of_its_lineage_and_a_stopping_one_sends_its_clients_on() {
    let mut cluster = Cluster::three().await;
    let member = cluster.follower().await;
    let mut stream = Subscriber::open(&cluster, member, health("web")).await.unwrap();
    let (_, end) = stream.snapshot().await;
    let epoch = stream.epoch.clone();
    // The index is of this lineage, but not reached yet: the member waits for it, and then resumes.
    let request = after(end + 5, health("web"));
    let (mut opened, written) =
        tokio::join!(async { Subscriber::open_with(&cluster, member, request, Some(&epoch)).await.unwrap() }, async {
            let mut written = Vec::new();
            for turn in 0..10 {
                written.push(register(&cluster, member, "n", &format!("web-{turn}"), "web").await);
            }
            written
        });
    let wanted = written.iter().position(|index| *index > end + 5).unwrap();
    assert_eq!(opened.next().await, reg(written[wanted], &format!("n/web-{wanted}")));
    // The member also waits for a client that requests a new snapshot and has seen a later index of
    // this lineage. In another lineage there is no such index.
    let ahead = written[9] + 5;
    let other = Subscriber::open_from(&cluster, member, health("web"), Some("123456789abcdef0"), Some(ahead));
    assert!(other.await.unwrap().snapshot().await.1 < ahead);
    let (mut opened, _) = tokio::join!(
        async { Subscriber::open_from(&cluster, member, health("web"), Some(&epoch), Some(ahead)).await.unwrap() },
        async {
            for turn in 10..20 {
                register(&cluster, member, "n", &format!("web-{turn}"), "web").await;
            }
        }
    );
    assert!(opened.snapshot().await.1 >= ahead);
    cluster.stop(member).await;
    assert_eq!(stream.end().await.code(), Code::Unavailable);
}
