//! Locks and elections on a cluster (spec: etcd §4.4): their order, hand-over and fencing, and the
//! keys that ended calls leave.

use std::process::Stdio;
use std::time::Duration;

use headwater::node::{LeaseClock, ManualClock};
use headwater::pb::etcdserverpb as pb;
use headwater::pb::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use headwater::pb::etcdserverpb::lease_client::LeaseClient;
use headwater::pb::etcdserverpb::request_op::Request;
use headwater::pb::v3electionpb as election;
use headwater::pb::v3electionpb::election_client::ElectionClient;
use headwater::pb::v3lockpb as lock;
use headwater::pb::v3lockpb::lock_client::LockClient;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::task::JoinHandle;
use tonic::transport::Channel;
use tonic::{Code, Response, Status, Streaming};

use crate::cluster::{Cluster, Settings, get, put, wait_until, within};

async fn by_hand() -> (Cluster, ManualClock) {
    let (clock, hand) = LeaseClock::by_hand();
    (Cluster::start_with_clock(Settings::default(), clock).await, hand)
}

async fn locks(cluster: &Cluster, member: usize) -> LockClient<Channel> {
    LockClient::connect(cluster.client_url(member)).await.unwrap()
}

async fn elections(cluster: &Cluster, member: usize) -> ElectionClient<Channel> {
    ElectionClient::connect(cluster.client_url(member)).await.unwrap()
}

async fn leases(cluster: &Cluster) -> LeaseClient<Channel> {
    let member = cluster.leader().await;
    LeaseClient::connect(cluster.client_url(member)).await.unwrap()
}

async fn grant(cluster: &Cluster, id: i64, ttl: i64) {
    leases(cluster).await.lease_grant(pb::LeaseGrantRequest { id, ttl }).await.unwrap();
}

/// The keys with a prefix, in the order of their creation: the contenders of a lock or an election.
async fn queue(cluster: &Cluster, member: usize, prefix: &str) -> Vec<String> {
    let mut end = prefix.to_owned().into_bytes();
    *end.last_mut().unwrap() += 1;
    let request = pb::RangeRequest {
        range_end: end.into(),
        sort_target: pb::range_request::SortTarget::Create.into(),
        sort_order: pb::range_request::SortOrder::Ascend.into(),
        ..get(prefix)
    };
    let kvs = cluster.kv(member).range(request).await.unwrap().into_inner().kvs;
    kvs.into_iter().map(|kv| String::from_utf8(kv.key.to_vec()).unwrap()).collect()
}

type Waiting<T> = JoinHandle<Result<Response<T>, Status>>;

async fn lock_later(cluster: &Cluster, member: usize, name: &'static str, lease: i64) -> Waiting<lock::LockResponse> {
    let mut client = locks(cluster, member).await;
    tokio::spawn(async move { client.lock(lock::LockRequest { name: name.into(), lease }).await })
}

/// Requests a lock in a task, and waits until the contender's key is in the queue.
async fn queue_up(cluster: &Cluster, member: usize, name: &'static str, lease: i64) -> Waiting<lock::LockResponse> {
    let waiting = lock_later(cluster, member, name, lease).await;
    let key = format!("{name}/{lease:x}");
    wait_until("it is in the queue", async || queue(cluster, 0, &format!("{name}/")).await.contains(&key)).await;
    waiting
}

fn token<T>(response: &Response<T>) -> i64 {
    response.metadata().get("headwater-fencing-token").unwrap().to_str().unwrap().parse().unwrap()
}

/// A transaction that puts `key` if the create revision of the key `owner` is `token`.
fn guarded(owner: &str, token: i64, key: &str) -> pb::TxnRequest {
    pb::TxnRequest {
        compare: vec![pb::Compare {
            result: CompareResult::Equal.into(),
            target: CompareTarget::Create.into(),
            key: owner.to_owned().into_bytes().into(),
            target_union: Some(TargetUnion::CreateRevision(token)),
            ..Default::default()
        }],
        success: vec![pb::RequestOp { request: Some(Request::RequestPut(put(key, token.to_string()))) }],
        failure: vec![],
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_goes_from_one_to_the_next_in_order_on_every_member() {
    let (cluster, _clock) = by_hand().await;
    for id in 1..=4 {
        grant(&cluster, id, 60).await;
    }
    let mut waiting = Vec::new();
    for id in 1..=4 {
        waiting.push(queue_up(&cluster, id as usize % 3, "l", id).await);
    }
    let mut last = 0;
    for (number, waiting) in waiting.into_iter().enumerate() {
        let id = number as i64 + 1;
        let response = within("its turn", waiting).await.unwrap().unwrap();
        let now = token(&response);
        let response = response.into_inner();
        assert_eq!(response.key, format!("l/{id:x}"));
        assert!(now > last, "tokens grow: {now} after {last}");
        let found = cluster.kv(0).range(get(format!("l/{id:x}"))).await.unwrap().into_inner();
        assert_eq!((found.kvs[0].create_revision, found.kvs[0].lease), (now, id));
        assert!(response.header.unwrap().revision >= now);
        last = now;
        // The owner's session gets the lock again; no other session does.
        let mut same = locks(&cluster, number % 3).await;
        let again = within("at once", same.lock(lock::LockRequest { name: "l".into(), lease: id })).await.unwrap();
        assert_eq!(token(&again), now);
        assert_eq!(queue(&cluster, 1, "l/").await.len(), 4 - number);
        let unlock = lock::UnlockRequest { key: response.key };
        locks(&cluster, (number + 1) % 3).await.unlock(unlock.clone()).await.unwrap();
        locks(&cluster, (number + 1) % 3).await.unlock(unlock).await.expect("nothing to give up is no error");
    }
    assert_eq!(queue(&cluster, 0, "l/").await, [] as [&str; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_goes_away_while_waiting_leaves_no_key_behind() {
    let (cluster, _clock) = by_hand().await;
    for id in 1..=3 {
        grant(&cluster, id, 60).await;
    }
    let held = within("it is free", queue_up(&cluster, 0, "l", 1).await).await.unwrap().unwrap().into_inner();
    let second = queue_up(&cluster, 1, "l", 2).await;
    let third = queue_up(&cluster, 2, "l", 3).await;
    // A client that hangs up.
    second.abort();
    wait_until("the place is given up", async || queue(&cluster, 0, "l/").await == ["l/1", "l/3"]).await;
    // A request without a lease.
    let nobody = lock_later(&cluster, 1, "l", 0).await;
    wait_until("it is in the queue", async || queue(&cluster, 0, "l/").await.len() == 3).await;
    let all = leases(&cluster).await.lease_leases(pb::LeaseLeasesRequest {}).await.unwrap().into_inner().leases;
    assert_eq!(all.len(), 4, "it got a lease");
    nobody.abort();
    wait_until("place and lease are given up", async || {
        let all = leases(&cluster).await.lease_leases(pb::LeaseLeasesRequest {}).await.unwrap().into_inner().leases;
        all.len() == 3 && queue(&cluster, 0, "l/").await == ["l/1", "l/3"]
    })
    .await;
    // A client with a deadline that passes.
    let mut client = locks(&cluster, 1).await;
    let mut request = tonic::Request::new(lock::LockRequest { name: "l".into(), lease: 2 });
    request.set_timeout(Duration::from_millis(300));
    let status = client.lock(request).await.unwrap_err();
    assert!(matches!(status.code(), Code::DeadlineExceeded | Code::Cancelled), "{status:?}");
    wait_until("the place is given up", async || queue(&cluster, 0, "l/").await == ["l/1", "l/3"]).await;
    // The next contender is not affected.
    locks(&cluster, 0).await.unlock(lock::UnlockRequest { key: held.key }).await.unwrap();
    assert_eq!(within("its turn", third).await.unwrap().unwrap().into_inner().key, "l/3");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_was_given_up_does_not_take_the_place_of_a_later_one_with_the_same_lease() {
    let (cluster, _clock) = by_hand().await;
    for id in 1..=4 {
        grant(&cluster, id, 600).await;
    }
    let held = within("it is free", queue_up(&cluster, 0, "l", 1).await).await.unwrap().unwrap().into_inner();
    let given_up = queue_up(&cluster, 1, "l", 2).await;
    let queued = cluster.kv(0).range(get("l/2")).await.unwrap().into_inner().kvs.remove(0);
    // The client repeats its call at another member, and its first call ends only after that.
    let elsewhere = lock_later(&cluster, 2, "l", 2).await;
    wait_until("its key was written again", async || {
        let again = cluster.kv(0).range(get("l/2")).await.unwrap().into_inner().kvs.remove(0);
        assert_eq!(again.create_revision, queued.create_revision, "it keeps its place");
        again.mod_revision > queued.mod_revision
    })
    .await;
    let witness = queue_up(&cluster, 1, "l", 3).await;
    given_up.abort();
    witness.abort();
    wait_until("the member has undone what was given up", async || queue(&cluster, 0, "l/").await == ["l/1", "l/2"])
        .await;
    locks(&cluster, 0).await.unlock(lock::UnlockRequest { key: held.key }).await.unwrap();
    let owner = within("its turn", elsewhere).await.unwrap().unwrap();
    assert_eq!((owner.get_ref().key.as_ref(), token(&owner)), (&b"l/2"[..], queued.create_revision));
    // An owner that repeats its request and hangs up stays the owner.
    let third = queue_up(&cluster, 1, "l", 4).await;
    let asked_again = locks(&cluster, 1).await.lock(lock::LockRequest { name: "l".into(), lease: 2 }).await.unwrap();
    assert_eq!(token(&asked_again), queued.create_revision);
    third.abort();
    wait_until("nobody waits", async || queue(&cluster, 0, "l/").await == ["l/2"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_ends_ends_the_place_and_the_lock() {
    let (cluster, _clock) = by_hand().await;
    for id in 1..=3 {
        grant(&cluster, id, 60).await;
    }
    let first = within("it is free", queue_up(&cluster, 0, "l", 1).await).await.unwrap().unwrap();
    let second = queue_up(&cluster, 1, "l", 2).await;
    let third = queue_up(&cluster, 2, "l", 3).await;
    // The waiting call ends at once, not only when its turn comes.
    leases(&cluster).await.lease_revoke(pb::LeaseRevokeRequest { id: 2 }).await.unwrap();
    let status = within("it hears", second).await.unwrap().unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::Unknown, "mutex: session is expired"));
    leases(&cluster).await.lease_revoke(pb::LeaseRevokeRequest { id: 1 }).await.unwrap();
    let third = within("its turn", third).await.unwrap().unwrap();
    // The fencing token refuses late writes of the first owner, and admits those of the third.
    let (old, new) = (token(&first), token(&third));
    for member in 0..3 {
        let stale = guarded("l/1", old, "guarded");
        assert!(!cluster.kv(member).txn(stale).await.unwrap().into_inner().succeeded);
        let current = guarded("l/3", new, "guarded");
        assert!(cluster.kv(member).txn(current).await.unwrap().into_inner().succeeded);
    }
    let written = cluster.kv(0).range(get("guarded")).await.unwrap().into_inner();
    assert_eq!(written.kvs[0].value, new.to_string());
    // A request with an unknown lease does not enter the queue.
    let status = locks(&cluster, 1).await.lock(lock::LockRequest { name: "l".into(), lease: 99 }).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::NotFound, "etcdserver: requested lease not found"));
    let status = locks(&cluster, 1).await.unlock(lock::UnlockRequest::default()).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::InvalidArgument, "etcdserver: key is not provided"));
}

#[tokio::test(flavor = "multi_thread")]
async fn waiters_outlive_the_leader_and_the_member_that_they_asked() {
    let (mut cluster, _clock) = by_hand().await;
    for id in 1..=3 {
        grant(&cluster, id, 600).await;
    }
    let leader = cluster.leader().await;
    let others: Vec<_> = (0..3).filter(|member| *member != leader).collect();
    let held = within("it is free", queue_up(&cluster, others[0], "l", 1).await).await.unwrap().unwrap().into_inner();
    let at_follower = queue_up(&cluster, others[0], "l", 2).await;
    let at_leader = queue_up(&cluster, leader, "l", 3).await;
    cluster.crash(leader).await;
    within("the one that asked the dead member hears", at_leader).await.unwrap().unwrap_err();
    cluster.leader().await;
    // The contender keeps its place at another member.
    let elsewhere = lock_later(&cluster, others[1], "l", 3).await;
    locks(&cluster, others[1]).await.unlock(lock::UnlockRequest { key: held.key }).await.unwrap();
    let second = within("its turn", at_follower).await.unwrap().unwrap();
    assert_eq!(second.get_ref().key, "l/2");
    locks(&cluster, others[1]).await.unlock(lock::UnlockRequest { key: second.get_ref().key.clone() }).await.unwrap();
    let third = within("its turn", elsewhere).await.unwrap().unwrap();
    assert!(third.get_ref().key == "l/3" && token(&third) > token(&second));
}

async fn campaign(
    cluster: &Cluster,
    member: usize,
    lease: i64,
    value: &'static str,
) -> Waiting<election::CampaignResponse> {
    let mut client = elections(cluster, member).await;
    let request = election::CampaignRequest { name: "e".into(), lease, value: value.into() };
    tokio::spawn(async move { client.campaign(request).await })
}

/// The next message that an observer receives: the leader as `KEY=VALUE`, and the revision in the
/// header.
async fn next_leader(observer: &mut Streaming<election::LeaderResponse>) -> (String, i64) {
    let response = within("a change", observer.message()).await.unwrap().unwrap();
    let (kv, revision) = (response.kv.unwrap(), response.header.unwrap().revision);
    assert!(kv.mod_revision <= revision);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (format!("{}={}", text(&kv.key), text(&kv.value)), revision)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_election_is_campaigned_for_observed_and_resigned() {
    let (cluster, _clock) = by_hand().await;
    for id in 1..=2 {
        grant(&cluster, id, 60).await;
    }
    let name = || election::LeaderRequest { name: "e".into() };
    let mut clients = Vec::new();
    let mut observers = Vec::new();
    for member in 0..3 {
        let mut client = elections(&cluster, member).await;
        let status = client.leader(name()).await.unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::Unknown, "election: no leader"));
        let status = client.proclaim(election::ProclaimRequest::default()).await.unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::Unknown, "\"leader\" field must be provided"));
        let status = client.resign(election::ResignRequest::default()).await.unwrap_err();
        assert_eq!(status.message(), "\"leader\" field must be provided");
        observers.push(client.observe(name()).await.unwrap().into_inner());
        clients.push(client);
    }
    let elected = within("nobody else stands", campaign(&cluster, 0, 1, "one").await).await.unwrap().unwrap();
    let first_token = token(&elected);
    // Every observer has seen the leaders from the first one on.
    for observer in &mut observers {
        assert_eq!(next_leader(observer).await.0, "e/1=one");
    }
    let first = elected.into_inner().leader.unwrap();
    assert_eq!((first.name.as_ref(), first.key.as_ref(), first.lease), (&b"e"[..], &b"e/1"[..], 1));
    assert_eq!(first.rev, first_token);
    let waiting = campaign(&cluster, 1, 2, "two").await;
    wait_until("it stands", async || queue(&cluster, 2, "e/").await.len() == 2).await;
    for client in &mut clients {
        let leader = client.leader(name()).await.unwrap().into_inner().kv.unwrap();
        assert_eq!((leader.key.as_ref(), leader.value.as_ref()), (&b"e/1"[..], &b"one"[..]));
    }
    // A repeated campaign with another value proclaims that value.
    let again = within("at once", campaign(&cluster, 2, 1, "uno").await).await.unwrap().unwrap();
    assert_eq!(again.into_inner().leader.unwrap(), first);
    let proclaim = |leader: &election::LeaderKey, value: &'static str| election::ProclaimRequest {
        leader: Some(leader.clone()),
        value: value.into(),
    };
    clients[1].proclaim(proclaim(&first, "eins")).await.unwrap();
    clients[2].resign(election::ResignRequest { leader: Some(first.clone()) }).await.unwrap();
    let second = within("its turn", waiting).await.unwrap().unwrap().into_inner().leader.unwrap();
    assert!(second.rev > first.rev);
    for client in &mut clients {
        let status = client.proclaim(proclaim(&first, "late")).await.unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::Unknown, "election: not leader"));
        client.resign(election::ResignRequest { leader: Some(first.clone()) }).await.expect("nothing to give up");
    }
    leases(&cluster).await.lease_revoke(pb::LeaseRevokeRequest { id: 2 }).await.unwrap();
    wait_until("nobody leads", async || clients[0].leader(name()).await.is_err()).await;
    // Every observer has seen every leader and every proclamation, in order.
    for (member, observer) in observers.iter_mut().enumerate() {
        let mut last = first.rev;
        for wanted in ["e/1=uno", "e/1=eins", "e/2=two"] {
            let (leader, revision) = next_leader(observer).await;
            assert_eq!(leader, wanted, "member {member}");
            assert!(revision > last, "member {member}: {revision} after {last}");
            last = revision;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_that_holds_a_lock_ends_when_somebody_removes_its_key() {
    let cluster = Cluster::three().await;
    let endpoint = cluster.client_url(1).replace("http://", "");
    let lock = ["lock", "l", "--ttl", "600", "--", "sh", "-c", "echo held; exec sleep 1000"];
    for arguments in [&lock[..], &["elect", "l", "me", "--ttl", "600"]] {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_headwater"));
        command.args(["--endpoints", &endpoint, "--timeout", "60s"]).args(arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut holder = command.spawn().unwrap();
        let mut said = BufReader::new(holder.stdout.take().unwrap()).lines();
        within("it is held", said.next_line()).await.unwrap().unwrap();
        if arguments[0] == "lock" {
            let mut other = tokio::process::Command::new(env!("CARGO_BIN_EXE_headwater"));
            other.args([
                "--endpoints",
                &endpoint,
                "--timeout",
                "60s",
                "lock",
                "l",
                "--wait",
                "1s",
                "--",
                "echo",
                "ran",
            ]);
            let other = within("it gives up", other.output()).await.unwrap();
            let said = String::from_utf8(other.stderr).unwrap();
            assert_eq!((other.status.code(), &other.stdout[..]), (Some(1), &b""[..]), "{said}");
            assert!(said.contains("did not come free within 1s"), "{said}");
            assert_eq!(queue(&cluster, 0, "l/").await.len(), 1, "whoever gave up is out of the queue");
        }
        let held = queue(&cluster, 0, "l/").await.remove(0);
        let remove = pb::DeleteRangeRequest { key: held.into(), ..Default::default() };
        cluster.kv(2).delete_range(remove).await.unwrap();
        let ended = within("it hears", holder.wait_with_output()).await.unwrap();
        let said = String::from_utf8(ended.stderr).unwrap();
        assert!(!ended.status.success() && said.contains("somebody has removed its key"), "{said}");
    }
}
