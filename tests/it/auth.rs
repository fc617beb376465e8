//! Users, roles and rights of etcd's Auth on clusters: tokens on every member, the right of each
//! call, and streams that end when their right is withdrawn.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use etcd_client::{Client, ConnectOptions, GetOptions, Permission, RoleRevokePermissionOptions, WatchOptions};
use headwater::client::{Credentials, Endpoints, MaterializedView, ServiceHealth};
use headwater::node::{NodeError, RequestContext, Secret};
use headwater::pb::authpb;
use headwater::pb::etcdserverpb as pb;
use headwater::pb::etcdserverpb::auth_client::AuthClient;
use headwater::pb::etcdserverpb::lease_client::LeaseClient;
use headwater::pb::etcdserverpb::maintenance_client::MaintenanceClient;
use headwater::pb::etcdserverpb::watch_client::WatchClient;
use headwater::pb::etcdserverpb::watch_request::RequestUnion;
use headwater::types::{Feature, LogIndex};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

use crate::cluster::{Cluster, Settings, get, get_local, put, wait_until, within};

const FOLDED: &str = "etcdserver: permission denied";

/// Starts a cluster, and waits until its version supports users.
pub(crate) async fn cluster(settings: Settings) -> Cluster {
    let cluster = Cluster::start(settings).await;
    wait_for_users(&cluster).await;
    cluster
}

async fn wait_for_users(cluster: &Cluster) {
    wait_until("every member has the version that has users", async || {
        cluster.running().all(|member| Feature::Auth.is_in(cluster.node(member).versions().cluster().version))
    })
    .await;
}

pub(crate) async fn channel(cluster: &Cluster, member: usize) -> Channel {
    Channel::from_shared(cluster.client_url(member)).unwrap().connect().await.unwrap()
}

/// A request with a token in its metadata, or without one if `token` is empty.
pub(crate) fn by<T>(token: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    if !token.is_empty() {
        request.metadata_mut().insert("token", token.parse().unwrap());
    }
    request
}

fn denied(status: &Status) -> bool {
    (status.code(), status.message()) == (Code::PermissionDenied, FOLDED)
}

pub(crate) async fn authenticate(
    cluster: &Cluster,
    member: usize,
    name: &str,
    password: &str,
) -> Result<String, Status> {
    let request = pb::AuthenticateRequest { name: name.to_owned(), password: password.to_owned() };
    Ok(AuthClient::new(channel(cluster, member).await).authenticate(request).await?.into_inner().token)
}

/// Enables authentication. Makes root with the password `root-canary`, and the user `u` with the
/// password `u-canary` and the rights to read and write `u/*` and to read `r/*`. Returns the tokens
/// of root and `u`.
pub(crate) async fn enable_auth(cluster: &Cluster) -> (String, String) {
    enable_auth_as(cluster, "").await
}

/// As [`enable_auth`], by requests with `token`, a secret of Consul's ACLs; empty for none.
pub(crate) async fn enable_auth_as(cluster: &Cluster, token: &str) -> (String, String) {
    let mut auth = AuthClient::new(channel(cluster, 0).await);
    for (name, password) in [("root", "root-canary"), ("u", "u-canary")] {
        let add = pb::AuthUserAddRequest { name: name.to_owned(), password: password.to_owned(), ..Default::default() };
        auth.user_add(by(token, add)).await.unwrap();
        auth.role_add(by(token, pb::AuthRoleAddRequest { name: name.to_owned() })).await.unwrap();
        let grant = pb::AuthUserGrantRoleRequest { user: name.to_owned(), role: name.to_owned() };
        auth.user_grant_role(by(token, grant)).await.unwrap();
    }
    let permissions = [(authpb::permission::Type::Readwrite, "u/", "u0"), (authpb::permission::Type::Read, "r/", "r0")];
    for (kind, key, range_end) in permissions {
        let perm = authpb::Permission { perm_type: kind.into(), key: key.into(), range_end: range_end.into() };
        let grant = pb::AuthRoleGrantPermissionRequest { name: "u".to_owned(), perm: Some(perm) };
        auth.role_grant_permission(by(token, grant)).await.unwrap();
    }
    auth.auth_enable(by(token, pb::AuthEnableRequest {})).await.unwrap();
    let root = authenticate(cluster, 0, "root", "root-canary").await.unwrap();
    let user = authenticate(cluster, cluster.follower().await, "u", "u-canary").await.unwrap();
    (root, user)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_etcd_client_crate_takes_the_whole_tour() {
    let cluster = cluster(Settings::calm()).await;
    let endpoints: Vec<_> = (0..3).map(|member| cluster.client_url(member)).collect();
    let connect = async |user: Option<(&str, &str)>| {
        let options = user.map(|(name, password)| ConnectOptions::new().with_user(name, password));
        Client::connect(&endpoints, options).await
    };
    let mut nobody = connect(None).await.unwrap();
    nobody.user_add("root", "root-canary", None).await.unwrap();
    nobody.role_add("root").await.unwrap();
    nobody.user_grant_role("root", "root").await.unwrap();
    nobody.auth_enable().await.unwrap();
    let refused = nobody.put("k", "v", None).await.unwrap_err().to_string();
    assert!(refused.contains("user name is empty"), "{refused}");
    let wrong = connect(Some(("root", "wrong"))).await.err().unwrap().to_string();
    assert!(wrong.contains("authentication failed, invalid user ID or password"), "{wrong}");

    let mut root = connect(Some(("root", "root-canary"))).await.unwrap();
    root.put("k", "v", None).await.unwrap();
    root.user_add("u", "u-canary", None).await.unwrap();
    root.role_add("r").await.unwrap();
    for permission in [
        Permission::read("a"),
        Permission::read("b").with_range_end("c"),
        Permission::read("d").with_from_key(),
        Permission::read_write("e").with_prefix(),
    ] {
        root.role_grant_permission("r", permission).await.unwrap();
    }
    assert_eq!(root.role_get("r").await.unwrap().permissions().len(), 4);
    root.user_grant_role("u", "r").await.unwrap();
    assert_eq!(root.user_get("u").await.unwrap().roles(), ["r"]);
    assert_eq!(root.user_list().await.unwrap().users(), ["root", "u"]);
    assert_eq!(root.role_list().await.unwrap().roles(), ["r", "root"]);

    let mut user = connect(Some(("u", "u-canary"))).await.unwrap();
    user.put("e1", "v", None).await.unwrap();
    user.get("e", Some(GetOptions::new().with_prefix())).await.unwrap();
    user.get("d", Some(GetOptions::new().with_from_key())).await.unwrap();
    let refused = user.get("", Some(GetOptions::new().with_all_keys())).await.unwrap_err().to_string();
    assert!(refused.contains(FOLDED), "{refused}");
    let refused = user.put("a", "v", None).await.unwrap_err().to_string();
    assert!(refused.contains(FOLDED), "{refused}");
    let refused = user.user_list().await.unwrap_err().to_string();
    assert!(refused.contains(FOLDED), "{refused}");
    assert_eq!(user.user_get("u").await.unwrap().roles(), ["r"], "one's own");
    user.role_get("r").await.unwrap();

    let exact = RoleRevokePermissionOptions::new().with_range_end("c");
    root.role_revoke_permission("r", "b", Some(exact)).await.unwrap();
    let gone = root.role_revoke_permission("r", "b", None).await.unwrap_err().to_string();
    assert!(gone.contains("permission is not granted to the role"), "{gone}");
    let unknown = root.user_change_password("", "other").await.unwrap_err().to_string();
    assert!(unknown.contains("user name not found"), "{unknown}");
    root.user_change_password("u", "other").await.unwrap();
    let ended = user.put("e1", "v", None).await.unwrap_err().to_string();
    assert!(ended.contains("invalid auth token"), "{ended}");
    connect(Some(("u", "other"))).await.unwrap().put("e1", "v", None).await.unwrap();
    root.user_revoke_role("u", "r").await.unwrap();
    root.role_delete("r").await.unwrap();
    root.user_delete("u").await.unwrap();
    let stays = root.user_delete("root").await.unwrap_err().to_string();
    assert!(stays.contains("invalid auth management"), "{stays}");
    root.auth_disable().await.unwrap();
    nobody.put("k", "v", None).await.unwrap();
    let hashes = cluster.hashes().await;
    assert!(hashes.windows(2).all(|pair| pair[0] == pair[1]), "{hashes:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_call_needs_its_right_on_leader_and_follower() {
    let cluster = cluster(Settings::calm()).await;
    let (root, user) = enable_auth(&cluster).await;
    for member in [cluster.leader().await, cluster.follower().await] {
        let mut kv = cluster.kv(member);
        let channel = channel(&cluster, member).await;
        for key in ["u/1", "r/1", "x/1"] {
            kv.put(by(&root, put(key, "v"))).await.unwrap();
        }
        // No token, and an unknown token.
        let status = kv.range(get("u/1")).await.unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::InvalidArgument, "etcdserver: user name is empty"));
        let status = kv.range(by("abcdefghijklmnop.1", get_local("u/1"))).await.unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::Unauthenticated, "etcdserver: invalid auth token"));

        kv.range(by(&user, get("u/1"))).await.unwrap();
        kv.range(by(&user, get_local("r/1"))).await.unwrap();
        kv.put(by(&user, put("u/1", "v"))).await.unwrap();
        for request in [get("x/1"), get_local("x/1"), get("nothing")] {
            assert!(denied(&kv.range(by(&user, request)).await.unwrap_err()));
        }
        assert!(denied(&kv.put(by(&user, put("r/1", "v"))).await.unwrap_err()));
        let beyond = pb::RangeRequest { key: "u/".into(), range_end: "u1".into(), ..Default::default() };
        assert!(denied(&kv.range(by(&user, beyond.clone())).await.unwrap_err()));
        let streamed = kv.range_stream(by(&user, beyond)).await;
        assert!(denied(&streamed.unwrap_err()));
        // A transaction that changes nothing is not replicated, but its rights are checked.
        let read = |key: &'static str| pb::TxnRequest {
            success: vec![pb::RequestOp { request: Some(pb::request_op::Request::RequestRange(get(key))) }],
            ..Default::default()
        };
        kv.txn(by(&user, read("r/1"))).await.unwrap();
        assert!(denied(&kv.txn(by(&user, read("x/1"))).await.unwrap_err()));
        assert!(denied(
            &kv.compact(by(&user, pb::CompactionRequest { revision: 2, physical: false })).await.unwrap_err()
        ));

        let mut lease = LeaseClient::new(channel.clone());
        let granted =
            lease.lease_grant(by(&root, pb::LeaseGrantRequest { ttl: 600, id: 0 })).await.unwrap().into_inner().id;
        kv.put(by(&root, pb::PutRequest { lease: granted, ..put("x/leased", "v") })).await.unwrap();
        let keys = |keys| pb::LeaseTimeToLiveRequest { id: granted, keys };
        lease.lease_time_to_live(by(&user, keys(false))).await.unwrap();
        let answer = lease.lease_time_to_live(by(&user, keys(true))).await;
        assert!(denied(&answer.unwrap_err()), "names of keys are not told");
        assert!(denied(&lease.lease_leases(by(&user, pb::LeaseLeasesRequest {})).await.unwrap_err()));
        assert!(denied(&lease.lease_revoke(by(&user, pb::LeaseRevokeRequest { id: granted })).await.unwrap_err()));
        let renew = |token: &str| by(token, tokio_stream::iter([pb::LeaseKeepAliveRequest { id: granted }]));
        let mut renewed = lease.lease_keep_alive(renew(&user)).await.unwrap().into_inner();
        assert!(denied(&renewed.message().await.unwrap_err()));
        let mut renewed = lease.lease_keep_alive(renew(&root)).await.unwrap().into_inner();
        assert_eq!(renewed.message().await.unwrap().unwrap().ttl, 600);
        lease.lease_revoke(by(&root, pb::LeaseRevokeRequest { id: granted })).await.unwrap();
        lease.lease_leases(by(&user, pb::LeaseLeasesRequest {})).await.unwrap();

        let mut maintenance = MaintenanceClient::new(channel.clone());
        maintenance.status(by(&user, pb::StatusRequest {})).await.unwrap();
        maintenance.status(pb::StatusRequest {}).await.unwrap_err();
        assert!(denied(&maintenance.hash(by(&user, pb::HashRequest {})).await.unwrap_err()));
        assert!(denied(&maintenance.hash_kv(by(&user, pb::HashKvRequest { revision: 0 })).await.unwrap_err()));
        assert!(denied(&maintenance.defragment(by(&user, pb::DefragmentRequest {})).await.unwrap_err()));
        assert!(denied(&maintenance.snapshot(by(&user, pb::SnapshotRequest {})).await.unwrap_err()));
        assert!(denied(&maintenance.move_leader(by(&user, pb::MoveLeaderRequest { target_id: 1 })).await.unwrap_err()));
        maintenance.hash(by(&root, pb::HashRequest {})).await.unwrap();
        let mut members = cluster.members(member);
        members.member_list(by(&user, pb::MemberListRequest { linearizable: true })).await.unwrap();
        members.member_list(pb::MemberListRequest { linearizable: true }).await.unwrap_err();
        let remove = pb::MemberRemoveRequest { id: cluster.id(member) };
        assert!(denied(&members.member_remove(by(&user, remove)).await.unwrap_err()));
        let mut auth = AuthClient::new(channel);
        assert!(denied(&auth.auth_disable(by(&user, pb::AuthDisableRequest {})).await.unwrap_err()));
        let get_root = pb::AuthUserGetRequest { name: "root".to_owned() };
        assert!(denied(&auth.user_get(by(&user, get_root)).await.unwrap_err()));
        let status = auth.auth_status(pb::AuthStatusRequest {}).await.unwrap().into_inner();
        assert_eq!((status.enabled, status.auth_revision), (true, 9));
    }
}

async fn next(responses: &mut tonic::Streaming<pb::WatchResponse>) -> pb::WatchResponse {
    within("an answer of the watch", responses.message()).await.unwrap().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_ends_with_its_right_and_shows_nothing_that_came_after() {
    let cluster = cluster(Settings::calm()).await;
    let (root, user) = enable_auth(&cluster).await;
    let member = cluster.follower().await;
    let mut watch = WatchClient::new(channel(&cluster, member).await);
    let create = |key: &'static str, range_end: &'static str| pb::WatchRequest {
        request_union: Some(RequestUnion::CreateRequest(pb::WatchCreateRequest {
            key: key.into(),
            range_end: range_end.into(),
            ..Default::default()
        })),
    };
    let (requests, sent) = tokio::sync::mpsc::channel(8);
    requests.send(create("r/", "r0")).await.unwrap();
    let stream = tokio_stream::wrappers::ReceiverStream::new(sent);
    let mut responses = watch.watch(by(&user, stream)).await.unwrap().into_inner();
    assert!(next(&mut responses).await.created);
    // A watch without the right (all keys from `r/` on) is refused, and the stream goes on.
    requests.send(create("r/", "\0")).await.unwrap();
    let refused = next(&mut responses).await;
    assert!(refused.created && refused.canceled && refused.watch_id == -1);
    assert_eq!(refused.cancel_reason, "rpc error: code = PermissionDenied desc = etcdserver: permission denied");
    requests.send(create("u/", "u0")).await.unwrap();
    assert_eq!(next(&mut responses).await.watch_id, 1);

    let mut kv = cluster.kv(cluster.leader().await);
    kv.put(by(&root, put("r/1", "seen"))).await.unwrap();
    assert_eq!(next(&mut responses).await.events.len(), 1);
    // The right is withdrawn, and writes follow at once.
    let revoke = pb::AuthRoleRevokePermissionRequest { role: "u".to_owned(), key: "r/".into(), range_end: "r0".into() };
    let mut auth = AuthClient::new(channel(&cluster, 0).await);
    auth.role_revoke_permission(by(&root, revoke)).await.unwrap();
    let began = Instant::now();
    for number in 0..20 {
        kv.put(by(&root, put("r/1", format!("hidden {number}")))).await.unwrap();
    }
    let ended = next(&mut responses).await;
    assert!(began.elapsed() < Duration::from_secs(10), "it ended at once");
    assert!(ended.canceled && ended.watch_id == 0 && ended.events.is_empty(), "{ended:?}");
    assert_eq!(ended.cancel_reason, "rpc error: code = PermissionDenied desc = etcdserver: permission denied");
    // The other watch of the stream goes on.
    kv.put(by(&root, put("u/1", "seen"))).await.unwrap();
    let seen = next(&mut responses).await;
    assert_eq!((seen.watch_id, seen.events.len()), (1, 1));
    // An idle watch ends without a write, too.
    let delete = pb::AuthUserDeleteRequest { name: "u".to_owned() };
    auth.user_delete(by(&root, delete)).await.unwrap();
    let ended = next(&mut responses).await;
    assert!(ended.canceled && ended.watch_id == 1, "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_watch_command_takes_a_new_token_at_a_member_that_forgot_the_old_one() {
    use tokio::io::{AsyncBufReadExt, BufReader};
    let mut cluster = cluster(Settings::calm()).await;
    let (root, _) = enable_auth(&cluster).await;
    let member = cluster.follower().await;
    let url = cluster.client_url(member);
    let mut child = tokio::process::Command::new(env!("CARGO_BIN_EXE_headwater"))
        .args(["watch", "u/", "--prefix", "--rev", "1", "--user", "u:u-canary", "--endpoints", &url])
        .stdout(std::process::Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for value in ["before", "after"] {
        let mut kv = cluster.kv(cluster.leader().await);
        kv.put(by(&root, put("u/1", value))).await.unwrap();
        for wanted in ["PUT", "u/1", value] {
            let line = within("a line", lines.next_line()).await.unwrap();
            assert_eq!(line.as_deref(), Some(wanted));
        }
        cluster.crash(member).await;
        cluster.restart(member).await;
        cluster.wait_healthy().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_of_the_etcd_client_crate_is_refused_with_the_reason() {
    let cluster = cluster(Settings::calm()).await;
    enable_auth(&cluster).await;
    let options = Some(ConnectOptions::new().with_user("u", "u-canary"));
    let mut client = Client::connect([cluster.client_url(1)], options).await.unwrap();
    let mut watch = client.watch("u/", Some(WatchOptions::new().with_prefix())).await.unwrap();
    assert!(within("created", watch.message()).await.unwrap().unwrap().created());
    let mut refused = client.watch("x", None).await.unwrap();
    let refused = within("refused", refused.message()).await.unwrap().unwrap();
    assert!(refused.created() && refused.canceled(), "{refused:?}");
    assert!(refused.cancel_reason().contains("permission denied"), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_member_knows_a_token_until_it_runs_out_or_restarts() {
    let mut cluster = cluster(Settings { token_ttl: Duration::from_secs(4), ..Settings::calm() }).await;
    let (_, user) = enable_auth(&cluster).await;
    for member in 0..3 {
        cluster.kv(member).range(by(&user, get_local("u/1"))).await.unwrap();
    }
    // Use extends the life of a token, on each member by itself.
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(6) {
        cluster.kv(0).range(by(&user, get_local("u/1"))).await.unwrap();
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let ended = cluster.kv(1).range(by(&user, get_local("u/1"))).await.unwrap_err();
    assert_eq!(ended.message(), "etcdserver: invalid auth token");
    let again = authenticate(&cluster, 1, "u", "u-canary").await.unwrap();
    let member = cluster.follower().await;
    cluster.stop(member).await;
    cluster.restart(member).await;
    // The restarted member may have applied the log entry of `again` once more, and still issues a
    // new token.
    let fresh = authenticate(&cluster, member, "u", "u-canary").await.unwrap();
    assert_ne!(again, fresh);
    cluster.kv(member).range(by(&fresh, get("u/1"))).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_of_an_entry_that_is_not_there_holds_no_request_up() {
    let cluster = cluster(Settings::calm()).await;
    enable_auth(&cluster).await;
    for member in cluster.running() {
        let near = cluster.node(member).applied().borrow().get() + 100;
        for (index, longest) in [(u64::MAX, Duration::from_secs(2)), (near, Duration::from_secs(10))] {
            let token = format!("abcdefghijklmnop.{index}");
            let began = Instant::now();
            let status = cluster.kv(member).range(by(&token, get_local("u/1"))).await.unwrap_err();
            assert_eq!(status.message(), "etcdserver: invalid auth token");
            assert!(began.elapsed() < longest, "{index}: {:?}", began.elapsed());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_are_judged_where_they_are_applied() {
    let cluster = cluster(Settings::calm()).await;
    let (root, user) = enable_auth(&cluster).await;
    let (leader, follower) = (cluster.leader().await, cluster.follower().await);
    // Writers at a member that applies the revocation late, while the right is withdrawn.
    let mut writers = Vec::new();
    for number in 0..4 {
        let (mut kv, user) = (cluster.kv(follower), user.clone());
        writers.push(tokio::spawn(async move {
            let mut last = LogIndex(0);
            loop {
                match kv.put(by(&user, put(format!("u/{number}"), "v"))).await {
                    Ok(done) => {
                        let index = done.metadata().get("headwater-index").unwrap().to_str().unwrap();
                        last = LogIndex(index.parse().unwrap());
                    }
                    Err(status) => return (last, status),
                }
            }
        }));
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    let revoke = pb::AuthRoleRevokePermissionRequest { role: "u".to_owned(), key: "u/".into(), range_end: "u0".into() };
    let mut auth = AuthClient::new(channel(&cluster, leader).await);
    let done = auth.role_revoke_permission(by(&root, revoke)).await.unwrap();
    let revoked = LogIndex(done.metadata().get("headwater-index").unwrap().to_str().unwrap().parse().unwrap());
    for writer in writers {
        let (last, status) = within("the writer is refused", writer).await.unwrap();
        assert!(denied(&status), "{status:?}");
        assert!(last > LogIndex(0) && last < revoked, "{last} was written after {revoked}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_secret_is_on_disk() {
    let cluster = cluster(Settings::calm()).await;
    let (root, user) = enable_auth(&cluster).await;
    let node = cluster.node(0);
    let ctx = RequestContext::within(Duration::from_secs(30));
    let wrong = node.auth().authenticate(&ctx, "root", &Secret::new("wrong")).await.unwrap_err();
    assert!(matches!(wrong, NodeError::Refused(_)), "{wrong:?}");
    for secret in ["root-canary", "u-canary", root.split('.').next().unwrap(), user.split('.').next().unwrap()] {
        for member in 0..3 {
            let mut dirs = vec![cluster.data_dir(member)];
            while let Some(dir) = dirs.pop() {
                for entry in std::fs::read_dir(dir).unwrap() {
                    let path = entry.unwrap().path();
                    if path.is_dir() {
                        dirs.push(path);
                    } else if let Ok(bytes) = std::fs::read(&path) {
                        let found = bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
                        assert!(!found, "{secret} in {}", path.display());
                    }
                }
            }
        }
    }
}

/// Starts a relay, which passes connections on to a member but holds their bytes back while `held`
/// is true. Returns the address that it listens on.
async fn relay(member: SocketAddr, held: watch::Receiver<bool>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut incoming, _)) = listener.accept().await {
            let mut held = held.clone();
            tokio::spawn(async move {
                let Ok(mut outgoing) = TcpStream::connect(member).await else { return };
                let mut copy = pin!(tokio::io::copy_bidirectional(&mut incoming, &mut outgoing));
                loop {
                    let holds = *held.borrow_and_update();
                    tokio::select! {
                        changed = held.changed() => if changed.is_err() { return },
                        _ = &mut copy, if !holds => return,
                    }
                }
            });
        }
    });
    address
}

/// Starts a cluster with a switch for each member. While it is true, the member receives no
/// requests from other members, such as log entries, and so lags. Its own requests to them are
/// answered.
pub(crate) async fn start_held(settings: Settings) -> (Cluster, Vec<watch::Sender<bool>>) {
    let holds = Arc::new(tokio::sync::Mutex::new(Vec::new()));
    let made = Arc::clone(&holds);
    let cluster = Cluster::start_through(settings, async move |peer| {
        let (hold, held) = watch::channel(false);
        made.lock().await.push(hold);
        relay(peer, held).await
    })
    .await;
    let holds = std::mem::take(&mut *holds.lock().await);
    (cluster, holds)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_right_that_was_given_is_there_on_every_member() {
    let (cluster, holds) = start_held(Settings::calm()).await;
    wait_for_users(&cluster).await;
    let (root, user) = enable_auth(&cluster).await;
    let (leader, follower) = (cluster.leader().await, cluster.follower().await);
    let mut kv = cluster.kv(follower);
    assert!(denied(&kv.put(by(&user, put("given", "v"))).await.unwrap_err()));
    // Another user has no right at all, so that its reads are refused.
    let mut auth = AuthClient::new(channel(&cluster, leader).await);
    let add = pb::AuthUserAddRequest { name: "n".to_owned(), password: "n".to_owned(), ..Default::default() };
    auth.user_add(by(&root, add)).await.unwrap();
    let new = authenticate(&cluster, follower, "n", "n").await.unwrap();
    assert!(denied(&kv.range(by(&new, get("given"))).await.unwrap_err()));
    // The follower does not receive the grant, which the other members commit.
    holds[follower].send_replace(true);
    let perm_type = authpb::permission::Type::Readwrite.into();
    let perm = Some(authpb::Permission { perm_type, key: "given".into(), ..Default::default() });
    let grant = pb::AuthRoleGrantPermissionRequest { name: "u".to_owned(), perm };
    auth.role_grant_permission(by(&root, grant)).await.unwrap();
    let give = pb::AuthUserGrantRoleRequest { user: "n".to_owned(), role: "u".to_owned() };
    auth.user_grant_role(by(&root, give)).await.unwrap();
    let mut other = cluster.kv(follower);
    let mut writing = pin!(kv.put(by(&user, put("given", "v"))));
    let mut reading = pin!(other.range(by(&new, get("given"))));
    let early = tokio::time::timeout(Duration::from_secs(1), async {
        tokio::select! {
            written = &mut writing => format!("{written:?}"),
            read = &mut reading => format!("{read:?}"),
        }
    });
    let early = early.await;
    assert!(early.is_err(), "neither is answered by rights of before: {early:?}");
    holds[follower].send_replace(false);
    within("the write", writing).await.unwrap();
    within("the read", reading).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_view_gets_another_token_when_its_own_has_ended() {
    let mut cluster = cluster(Settings::calm()).await;
    let (root, _) = enable_auth(&cluster).await;
    let endpoints = Endpoints::new([cluster.client_url(1)]).unwrap();
    let endpoints = endpoints.as_user(Some(Credentials::new("root", "root-canary")));
    let view = MaterializedView::start(ServiceHealth::of("web"), endpoints);
    view.query(0, Duration::from_secs(30)).await.unwrap();
    // The stream of the view goes on: its token is not needed before the stream breaks.
    let (name, password) = ("root".to_owned(), "root-canary".to_owned());
    let change = pb::AuthUserChangePasswordRequest { name, password, ..Default::default() };
    AuthClient::new(channel(&cluster, 0).await).user_change_password(by(&root, change)).await.unwrap();
    cluster.stop(1).await;
    let is_whole = || view.latest().is_some_and(|view| !view.is_stale);
    wait_until("the view knows that its stream broke", async || !is_whole()).await;
    cluster.restart(1).await;
    wait_until("the view goes on, or has ended", async || is_whole() || view.has_ended()).await;
    assert!(!view.has_ended());
}
