//! Answers of a member that knows no leader, and their delay: to clients of etcd, of Consul, and to
//! load balancers.

use std::time::{Duration, Instant};

use headwater::pb::PUBLIC_DESCRIPTORS;
use headwater::pb::etcdserverpb as pb;
use headwater::pb::etcdserverpb::lease_client::LeaseClient;
use http::Method;
use prost::Message;
use tokio::net::TcpListener;
use tonic::metadata::MetadataValue;
use tonic::transport::Channel;
use tonic::{Code, Status};

use crate::cluster::{Cluster, Settings, get, get_local, put, wait_until};
use crate::consul_http::ask;

/// Settings with a request timeout far above the time in which a missing leader is noticed.
fn settings(members: usize) -> Settings {
    Settings { members, request_timeout: Duration::from_secs(20), ..Settings::default() }
}

/// Time without contact after which a follower knows no leader, and a leader without a majority
/// stops serving.
fn leader_timeout() -> Duration {
    2 * Settings::default().timing.election_max
}

const SLACK: Duration = Duration::from_secs(2);

fn code_and_text<T: std::fmt::Debug>(result: Result<T, Status>) -> (Code, String) {
    let status = result.unwrap_err();
    (status.code(), status.message().to_owned())
}

fn no_leader() -> (Code, String) {
    (Code::Unavailable, "etcdserver: no leader".to_owned())
}

/// A cluster of five of which three members have crashed. Returns it with the numbers of the leader
/// and of the other follower.
async fn blocked() -> (Cluster, usize, usize) {
    let mut cluster = Cluster::start(settings(5)).await;
    cluster.kv(0).put(put("k", "v")).await.unwrap();
    let leader = cluster.leader().await;
    let follower = cluster.follower().await;
    for member in (0..5).filter(|member| *member != leader && *member != follower) {
        cluster.crash(member).await;
    }
    (cluster, leader, follower)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_without_a_majority_and_its_follower_refuse_as_soon_as_it_is_known() {
    let (cluster, leader, follower) = blocked().await;
    let began = Instant::now();
    for member in [leader, follower] {
        // The first read waits until the loss is known.
        assert_eq!(code_and_text(cluster.kv(member).range(get("k")).await), no_leader());
        assert!(began.elapsed() < leader_timeout() + 2 * SLACK, "{:?}", began.elapsed());
        wait_until("the member knows", async || cluster.node(member).live_leader().is_none()).await;
        let began = Instant::now();
        assert_eq!(code_and_text(cluster.kv(member).range(get("k")).await), no_leader());
        let written = cluster.kv(member).put(put("x", "v")).await.unwrap_err();
        assert!(!written.metadata().contains_key("headwater-indeterminate"), "it was never proposed: {written:?}");
        assert_eq!((written.code(), written.message()), (Code::Unavailable, "etcdserver: no leader"));
        let mut leases = LeaseClient::connect(cluster.client_url(member)).await.unwrap();
        assert_eq!(code_and_text(leases.lease_grant(pb::LeaseGrantRequest { ttl: 60, id: 7 }).await), no_leader());
        assert_eq!(
            code_and_text(leases.lease_time_to_live(pb::LeaseTimeToLiveRequest { id: 7, keys: false }).await),
            no_leader()
        );
        let removal = cluster.members(member).member_remove(pb::MemberRemoveRequest { id: 1 }).await;
        assert_eq!(code_and_text(removal), no_leader());
        for (method, path) in [
            (Method::GET, "/v1/catalog/nodes"),
            (Method::GET, "/v1/catalog/nodes?consistent"),
            (Method::GET, "/v1/kv/x?consistent"),
            (Method::PUT, "/v1/kv/x"),
            (Method::PUT, "/v1/session/create"),
        ] {
            let refused = ask(&cluster, member, method, path, "").await;
            assert_eq!((refused.status, refused.text.trim()), (503, "No cluster leader"), "{path}");
            assert!(!refused.headers.contains_key("headwater-indeterminate"), "{path}");
        }
        assert!(began.elapsed() < SLACK, "{:?}", began.elapsed());
        let stale = ask(&cluster, member, Method::GET, "/v1/catalog/nodes?stale", "").await;
        assert_eq!(stale.status, 200, "what may be stale is answered");
        assert_eq!(cluster.kv(member).range(get_local("k")).await.unwrap().into_inner().count, 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_hears_of_a_majority_again_serves_again() {
    let (mut cluster, leader, follower) = blocked().await;
    for member in [leader, follower] {
        wait_until("the member knows", async || cluster.node(member).live_leader().is_none()).await;
    }
    let back = (0..5).find(|member| !cluster.running().any(|running| running == *member)).unwrap();
    cluster.restart(back).await;
    cluster.wait_healthy().await;
    for member in [leader, follower, back] {
        cluster.kv(member).put(put("x", "v")).await.unwrap();
        assert_eq!(cluster.kv(member).range(get("x")).await.unwrap().into_inner().count, 1);
    }
}

/// The methods of etcd's services: path, and true if the client streams.
fn methods() -> Vec<(String, bool)> {
    let set = prost_types::FileDescriptorSet::decode(PUBLIC_DESCRIPTORS).unwrap();
    let mut methods = Vec::new();
    for file in &set.file {
        for service in &file.service {
            let name = format!("{}.{}", file.package(), service.name());
            if ["etcdserverpb.", "v3lockpb.", "v3electionpb."].iter().any(|package| name.starts_with(package)) {
                for method in &service.method {
                    let path = format!("/{name}/{}", method.name());
                    methods.push((path, method.client_streaming()));
                }
            }
        }
    }
    assert!(methods.len() > 30, "{methods:?}");
    methods
}

/// Calls a method as a stream, with an empty message and the metadata `hasleader`; returns the
/// status at its end.
async fn call(url: &str, path: &str) -> Status {
    let channel = Channel::from_shared(url.to_owned()).unwrap().connect().await.unwrap();
    let mut grpc = tonic::client::Grpc::new(channel);
    grpc.ready().await.unwrap();
    // The client side stays open.
    let messages = futures::StreamExt::chain(futures::stream::iter([()]), futures::stream::pending());
    let request = demanding(messages);
    let codec = tonic_prost::ProstCodec::<(), ()>::default();
    let mut answers = match grpc.streaming(request, path.parse().unwrap(), codec).await {
        Ok(answers) => answers.into_inner(),
        Err(status) => return status,
    };
    loop {
        match answers.message().await {
            Ok(Some(())) => {}
            Ok(None) => return Status::ok("the end"),
            Err(status) => return status,
        }
    }
}

/// Calls a unary method with an empty message and the metadata `hasleader`; returns the status,
/// `Ok` for an answer.
async fn call_unary(url: &str, path: &str) -> Status {
    let channel = Channel::from_shared(url.to_owned()).unwrap().connect().await.unwrap();
    let mut grpc = tonic::client::Grpc::new(channel);
    grpc.ready().await.unwrap();
    let request = demanding(());
    let codec = tonic_prost::ProstCodec::<(), ()>::default();
    match grpc.unary(request, path.parse().unwrap(), codec).await {
        Ok(_) => Status::ok("answered"),
        Err(status) => status,
    }
}

async fn assert_every_method_says_so(cluster: &Cluster, member: usize) {
    let url = cluster.client_url(member);
    let (mut wrong, mut incomplete) = (Vec::new(), Vec::new());
    for (path, client_streams) in methods() {
        let began = Instant::now();
        let status = match client_streams {
            true => tokio::time::timeout(SLACK, call(&url, &path)).await.unwrap_or_else(|_| Status::ok("goes on")),
            false => call_unary(&url, &path).await,
        };
        match status.code() {
            _ if began.elapsed() > SLACK => wrong.push(format!("{path}: {status:?} after {:?}", began.elapsed())),
            Code::Unavailable if status.message() == no_leader().1 => {}
            // An invalid request is refused before the leader is checked.
            Code::InvalidArgument | Code::FailedPrecondition | Code::Unknown => incomplete.push(path),
            _ => wrong.push(format!("{path}: {status:?}")),
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    // These need more than an empty message.
    let urls = vec!["http://127.0.0.1:9".to_owned()];
    let (mut kv, mut members) = (cluster.kv(member), cluster.members(member));
    let delete = pb::DeleteRangeRequest { key: "k".into(), ..Default::default() };
    let whole = [
        ("/etcdserverpb.KV/Range", code_and_text(kv.range(demanding(get_local("k"))).await)),
        ("/etcdserverpb.KV/Put", code_and_text(kv.put(demanding(put("k", "v"))).await)),
        ("/etcdserverpb.KV/DeleteRange", code_and_text(kv.delete_range(demanding(delete)).await)),
        ("/etcdserverpb.KV/RangeStream", code_and_text(kv.range_stream(demanding(get_local("k"))).await)),
        (
            "/etcdserverpb.Cluster/MemberAdd",
            code_and_text(
                members
                    .member_add(demanding(pb::MemberAddRequest { peer_ur_ls: urls.clone(), is_learner: true }))
                    .await,
            ),
        ),
        (
            "/etcdserverpb.Cluster/MemberUpdate",
            code_and_text(members.member_update(demanding(pb::MemberUpdateRequest { id: 1, peer_ur_ls: urls })).await),
        ),
    ];
    for (path, said) in &whole {
        assert_eq!(*said, no_leader(), "{path}");
    }
    // Users without a name, grants without a permission, downgrades to no version, and keys of
    // impossible owners are refused by their form.
    let refused_for_another_reason = [
        "/etcdserverpb.Maintenance/Downgrade",
        "/etcdserverpb.Auth/UserAdd",
        "/etcdserverpb.Auth/UserChangePassword",
        "/etcdserverpb.Auth/RoleGrantPermission",
        "/v3electionpb.Election/Proclaim",
        "/v3electionpb.Election/Resign",
        "/v3lockpb.Lock/Unlock",
    ];
    incomplete.retain(|path| !whole.iter().any(|(tried, _)| tried == path));
    incomplete.retain(|path| !refused_for_another_reason.contains(&path.as_str()));
    assert!(incomplete.is_empty(), "{incomplete:#?}");
}

fn demanding<T>(message: T) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
    request
}

#[tokio::test(flavor = "multi_thread")]
async fn who_asks_for_a_leader_is_told_by_every_method_that_there_is_none() {
    let (cluster, leader, follower) = blocked().await;
    for member in [leader, follower] {
        wait_until("the member knows", async || cluster.node(member).live_leader().is_none()).await;
        assert_every_method_says_so(&cluster, member).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_whose_leader_is_gone_says_so() {
    // The server's request timeout; this client would wait longer.
    let limit = Duration::from_secs(5);
    let mut cluster = Cluster::start(Settings { request_timeout: limit, ..settings(3) }).await;
    let leader = cluster.leader().await;
    let others: Vec<_> = (0..3).filter(|member| *member != leader).collect();
    cluster.crash(others[0]).await;
    cluster.crash(leader).await;
    let alone = others[1];
    // The read begins while the leader still counts as live for the member, and is refused once it
    // does not.
    assert_eq!(code_and_text(cluster.kv(alone).range(demanding(get("k"))).await), no_leader());
    wait_until("the member knows", async || cluster.node(alone).live_leader().is_none()).await;
    assert_every_method_says_so(&cluster, alone).await;
}

/// Accepts connections in place of an ended member and never answers, which looks like a broken
/// link to the other members.
async fn black_hole(cluster: &Cluster, member: usize) -> TcpListener {
    cluster.listen_as_peer(member).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_is_cut_off_is_not_ready_for_longer_than_its_leader_timeout() {
    for cut_off_leader in [true, false] {
        let mut cluster = Cluster::start(settings(3)).await;
        let leader = cluster.leader().await;
        let member = if cut_off_leader { leader } else { cluster.follower().await };
        assert_eq!(ask(&cluster, member, Method::GET, "/readyz", "").await.status, 200);
        let mut holes = Vec::new();
        for other in (0..3).filter(|other| *other != member) {
            cluster.crash(other).await;
            holes.push(black_hole(&cluster, other).await);
        }
        let cut = Instant::now();
        let mut last_ready = Duration::ZERO;
        while cut.elapsed() < 3 * leader_timeout() {
            let asked = cut.elapsed();
            let asking = ask(&cluster, member, Method::GET, "/readyz", "");
            // For a load balancer, a member that does not answer in time is not ready.
            if let Ok(answer) = tokio::time::timeout(SLACK, asking).await
                && answer.status == 200
            {
                last_ready = asked;
            }
        }
        assert!(last_ready <= leader_timeout(), "ready {last_ready:?} after it was cut off (leads: {cut_off_leader})");
        assert_eq!(ask(&cluster, member, Method::GET, "/livez", "").await.status, 200);
    }
}
