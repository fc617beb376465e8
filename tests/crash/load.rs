//! Load of the cluster until the process ends: clients write, watch, compact and use leases. If a
//! fail point needs it, members also stop and restart, or are added and removed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use headwater::node::ManualClock;
use headwater::pb::etcdserverpb as pb;
use headwater::pb::etcdserverpb::downgrade_request::DowngradeAction;
use headwater::pb::etcdserverpb::kv_client::KvClient;
use headwater::pb::etcdserverpb::lease_client::LeaseClient;
use headwater::pb::etcdserverpb::request_op::Request;
use headwater::storage::data_dir::Layout;
use headwater::storage::log::LogForm;
use pb::compare::{CompareResult, CompareTarget, TargetUnion};
use tokio::task::JoinSet;
use tonic::transport::{Channel, Endpoint};

use super::CLIENTS;
use super::child::{follow_end, say};
use super::cluster::{Cluster, get, put, wait_until, within};
use super::watch::{self, Stream};
use headwater_fail_points::Point;

/// Number of elements of a client that exist at a time: those for the last values of its counter.
pub(super) const KEPT: u64 = 100;
/// Pause between two requests of a client.
const PAUSE: Duration = Duration::from_millis(4);
/// Longest wait of a client for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(1);

/// Number of acknowledged writes in this process.
pub(super) static WRITES: AtomicU64 = AtomicU64::new(0);

pub(super) fn counter(client: usize) -> String {
    format!("counter/{client}")
}

pub(super) fn element(client: usize, count: u64) -> String {
    format!("set/{client}/{count:09}")
}

/// Starts all clients, which run until the process ends or the returned set is shut down. `counts`
/// has the counter of each writing client.
pub(super) fn start(cluster: &Cluster, counts: [u64; CLIENTS], hand: ManualClock) -> JoinSet<()> {
    let urls: Vec<String> = (0..3).map(|member| cluster.client_url(member)).collect();
    let mut clients = JoinSet::new();
    for (client, count) in counts.into_iter().enumerate() {
        clients.spawn(write(urls.clone(), client, count));
    }
    clients.spawn(follow(urls.clone()));
    clients.spawn(compact(urls.clone()));
    clients.spawn(lease(urls, hand));
    clients
}

fn channel(url: &str) -> Channel {
    Endpoint::from_shared(url.to_owned()).unwrap().timeout(ANSWER_MAX).connect_lazy()
}

/// A transaction on condition that the client's counter is one less than `count`. It raises the
/// counter, adds the element of `count`, and removes the oldest one beyond [`KEPT`]: the counter
/// implies the elements that exist.
fn step(client: usize, count: u64) -> pb::TxnRequest {
    let (target, before) = match count {
        1 => (CompareTarget::Version, TargetUnion::Version(0)),
        _ => (CompareTarget::Value, TargetUnion::Value((count - 1).to_string().into())),
    };
    let compare = pb::Compare {
        result: CompareResult::Equal as i32,
        target: target as i32,
        key: counter(client).into(),
        target_union: Some(before),
        ..Default::default()
    };
    let mut then = vec![
        Request::RequestPut(put(counter(client), count.to_string())),
        Request::RequestPut(put(element(client, count), "v")),
    ];
    if count > KEPT {
        let old = element(client, count - KEPT);
        then.push(Request::RequestDeleteRange(pb::DeleteRangeRequest { key: old.into(), ..Default::default() }));
    }
    let success = then.into_iter().map(|request| pb::RequestOp { request: Some(request) }).collect();
    pb::TxnRequest { compare: vec![compare], success, ..Default::default() }
}

/// A client that raises its counter again and again. It repeats a step without an answer, which
/// cannot take effect twice because of its condition.
async fn write(urls: Vec<String>, client: usize, mut count: u64) {
    let mut members: Vec<KvClient<Channel>> = urls.iter().map(|url| KvClient::new(channel(url))).collect();
    let mut member = client;
    loop {
        tokio::time::sleep(PAUSE).await;
        let next = count + 1;
        let kv = &mut members[member % urls.len()];
        match kv.txn(step(client, next)).await {
            Ok(answer) if answer.get_ref().succeeded => count = next,
            Ok(_) => {
                let Ok(found) = kv.range(get(counter(client))).await else { continue };
                let found = found.into_inner().kvs.first().map(|kv| String::from_utf8_lossy(&kv.value).into_owned());
                assert_eq!(found, Some(next.to_string()), "client {client} has counted to {count}");
                count = next;
            }
            Err(_) => {
                member += 1;
                continue;
            }
        }
        WRITES.fetch_add(1, Ordering::SeqCst);
        say(format_args!("acknowledged {client} {count}"));
    }
}

/// A client that watches all counters from the oldest revision on, from history and then live;
/// after a while it begins anew at the next member.
async fn follow(urls: Vec<String>) {
    for url in urls.iter().cycle() {
        // The member may be down.
        tokio::time::sleep(PAUSE).await;
        let Ok(mut stream) = Stream::open(url).await else { continue };
        let from = |start_revision| pb::WatchCreateRequest { start_revision, ..watch::prefix("counter/") };
        stream.ask(from(1)).await;
        let watching = async {
            while let Ok(Some(response)) = stream.try_next().await {
                // A refusal because of compaction names the oldest revision.
                if response.canceled && response.compact_revision > 0 {
                    stream.ask(from(response.compact_revision)).await;
                }
                report(&response);
            }
        };
        // After an end or the timeout, the next member follows.
        let _over = tokio::time::timeout(Duration::from_millis(300), watching).await.is_err();
    }
}

fn report(response: &pb::WatchResponse) {
    for kv in response.events.iter().filter_map(|event| event.kv.as_ref()) {
        let (key, value) = (String::from_utf8_lossy(&kv.key), String::from_utf8_lossy(&kv.value));
        let client = key.rsplit('/').next().unwrap_or_default();
        say(format_args!("watched {client} {value}"));
    }
}

/// A client that compacts all but the last hundred revisions, again and again.
async fn compact(urls: Vec<String>) {
    for url in urls.iter().cycle() {
        tokio::time::sleep(Duration::from_millis(150)).await;
        let mut kv = KvClient::new(channel(url));
        let Ok(found) = kv.range(get("x")).await else { continue };
        let now = found.into_inner().header.map_or(0, |header| header.revision);
        let request = pb::CompactionRequest { revision: (now - 100).max(1), ..Default::default() };
        // Another client may have compacted a later revision already.
        let _refused = kv.compact(request).await.is_err();
    }
}

/// A client that grants leases, attaches a key to each, and moves the lease clock, so that they
/// expire.
async fn lease(urls: Vec<String>, hand: ManualClock) {
    for url in urls.iter().cycle() {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let (mut leases, mut kv) = (LeaseClient::new(channel(url)), KvClient::new(channel(url)));
        let Ok(granted) = leases.lease_grant(pb::LeaseGrantRequest { ttl: 10, id: 0 }).await else { continue };
        let lease = granted.into_inner().id;
        let attached = pb::PutRequest { lease, ..put(format!("lease/{lease}"), "v") };
        // The lease may have expired, or the outcome may be unknown.
        let _in_doubt = kv.put(attached).await.is_err();
        hand.advance(Duration::from_secs(7));
    }
}

/// Changes of members during the load, without which a fail point is not reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// No changes: the clients reach the point.
    Clients,
    /// A member is down until it needs a snapshot.
    Lag,
    /// A leader has entries that no other member gets, and comes back under another leader, so that
    /// they are truncated.
    Truncate,
    /// A learner that never runs is added and removed.
    Members,
    /// The cluster's version falls and rises again, and with it the form of each member's log.
    Versions,
}

impl Part {
    pub(super) fn of(point: Point) -> Self {
        use Point as P;
        match point {
            P::SnapshotOffered
            | P::SnapshotChunkSent
            | P::SnapshotChunkReceived
            | P::SnapshotFileReceived
            | P::SnapshotReceived
            | P::InstallRename
            | P::InstallRenamed
            | P::InstallOpened
            | P::InstallSwitch
            | P::InstallSwitched
            | P::InstallPublished => Self::Lag,
            P::LogTruncate | P::LogTruncated => Self::Truncate,
            P::MembershipApply => Self::Members,
            P::LogConvert | P::LogConverted => Self::Versions,
            P::LogWrite
            | P::LogSynced
            | P::LogMarked
            | P::LogPurge
            | P::LogPurged
            | P::LogReclaim
            | P::LogReclaimed
            | P::LogSegment
            | P::StateCommit
            | P::StateCommitted
            | P::StatePublished
            | P::StateReclaim
            | P::StateReclaimed
            | P::SnapshotCheckpoint
            | P::SnapshotBuilt
            | P::LeaseExpire
            | P::LeaderSend
            | P::FollowerAnswer
            | P::FollowerForward
            | P::WatchSend
            | P::CatchUpRead
            | P::CatchUpAnswer => Self::Clients,
        }
    }
}

/// Repeats the changes until the process ends.
pub(super) async fn play(cluster: &mut Cluster, part: Part) {
    if part != Part::Versions {
        // A child before may have ended in the middle of a downgrade.
        let _none = change_downgrade(cluster, DowngradeAction::Cancel).await.is_err();
    }
    loop {
        match part {
            Part::Clients => std::future::pending().await,
            Part::Lag => lag(cluster).await,
            Part::Truncate => truncate(cluster).await,
            Part::Members => change_members(cluster).await,
            Part::Versions => change_version(cluster).await,
        }
    }
}

async fn restart(cluster: &mut Cluster, member: usize) {
    cluster.restart(member).await;
    follow_end(cluster.node(member).consensus().clone());
}

async fn lag(cluster: &mut Cluster) {
    let away = cluster.follower().await;
    let at = *cluster.node(away).applied().borrow();
    cluster.crash(away).await;
    wait_until("what the member needs is purged", async || {
        let leader = cluster.leader().await;
        cluster.node(leader).consensus().progress().points().purged > at
    })
    .await;
    restart(cluster, away).await;
    wait_until("the member is back", async || *cluster.node(away).applied().borrow() > at).await;
    cluster.wait_healthy().await;
}

async fn truncate(cluster: &mut Cluster) {
    let leader = cluster.leader().await;
    let others = [(leader + 1) % 3, (leader + 2) % 3];
    for other in others {
        cluster.crash(other).await;
    }
    // Writes of the clients since the others ended are in the leader's log alone. Without any, the
    // next round tries again.
    cluster.crash(leader).await;
    for other in others {
        restart(cluster, other).await;
    }
    cluster.wait_healthy().await;
    let written = WRITES.load(Ordering::SeqCst);
    wait_until("the others take writes", async || WRITES.load(Ordering::SeqCst) > written).await;
    restart(cluster, leader).await;
    cluster.wait_healthy().await;
}

async fn change_members(cluster: &mut Cluster) {
    let leader = cluster.leader().await;
    let mut members = cluster.members(leader);
    let request = pb::MemberAddRequest { peer_ur_ls: vec!["http://127.0.0.1:1".to_owned()], is_learner: true };
    if let Ok(added) = within("an answer", members.member_add(request)).await {
        let id = added.into_inner().member.expect("the new member").id;
        // The next leader may not have the new member.
        let _in_doubt = members.member_remove(pb::MemberRemoveRequest { id }).await.is_err();
    }
}

async fn change_downgrade(cluster: &Cluster, action: DowngradeAction) -> Result<(), tonic::Status> {
    let request = pb::DowngradeRequest { action: action.into(), version: "0.3".to_owned() };
    cluster.maintenance(0).downgrade(request).await.map(drop)
}

async fn change_version(cluster: &mut Cluster) {
    for (action, form) in [(DowngradeAction::Enable, LogForm::RocksDb), (DowngradeAction::Cancel, LogForm::Segments)] {
        // A child before may have ended in the middle of a downgrade.
        let _refused = change_downgrade(cluster, action).await.is_err();
        wait_until("each member's log has the form of the version", async || {
            (0..3).all(|member| LogForm::of(&Layout::new(&cluster.data_dir(member)).log_dir()) == form)
        })
        .await;
    }
}
