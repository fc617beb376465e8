//! Access control on the client port, on leader and follower: every method and path without a
//! token, with the token of a user without rights, and with that of root; credentials in every
//! form; streams that end when their right is withdrawn; the audit log.

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::path::Path;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use h2::client::SendRequest;
use headwater::node::{AuditLevel, AuditOptions};
use headwater::pb::authpb;
use headwater::pb::etcdserverpb as pb;
use headwater::pb::etcdserverpb::auth_client::AuthClient;
use headwater::pb::etcdserverpb::kv_client::KvClient;
use headwater::pb::google::watcher::v1 as pbwatcher;
use headwater::pb::google::watcher::v1::watcher_client::WatcherClient;
use headwater::pb::v3lockpb::LockRequest;
use headwater::pb::v3lockpb::lock_client::LockClient;
use http::Version;
use prost::Message;
use prost_types::FileDescriptorSet;
use tokio::net::TcpStream;
use tonic::Code;

use crate::acl::Guarded;
use crate::auth::{authenticate, by, channel, cluster, enable_auth};
use crate::cluster::{Cluster, Settings, get, put, within};
use crate::gateway::client::Connection;

/// Methods that do not refuse an empty message without a token. A watch stream refuses each watch
/// by itself. A subscription may have its token in the message, so the form of the message is
/// checked first (`acl::streams` tests its refusals).
const OPEN: &[&str] = &[
    "/etcdserverpb.Auth/AuthStatus",
    "/etcdserverpb.Auth/Authenticate",
    "/etcdserverpb.Watch/Watch",
    "/watch/Watch",
    "/subscribe.StateChangeSubscription/Subscribe",
];

/// Methods that may serve an empty message of a user without rights. Some need a user and no right.
/// Others check the right to each part of the message, and an empty one has none.
const OF_USERS: &[&str] = &[
    "/etcdserverpb.KV/Txn",
    "/etcdserverpb.Lease/LeaseGrant",
    "/etcdserverpb.Lease/LeaseRevoke",
    "/etcdserverpb.Lease/LeaseKeepAlive",
    "/etcdserverpb.Lease/LeaseTimeToLive",
    "/etcdserverpb.Lease/LeaseLeases",
    "/etcdserverpb.Cluster/MemberList",
    "/etcdserverpb.Maintenance/Alarm",
    "/etcdserverpb.Maintenance/Status",
    "/etcdserverpb.Auth/UserGet",
    "/etcdserverpb.Auth/RoleGet",
    "/etcd/Txn",
    "/etcd/LeaseCreate",
    "/etcd/LeaseRevoke",
    "/etcd/LeaseTxn",
    "/etcd/LeaseKeepAlive",
    "/google.watcher.v1.Watcher/Watch",
    "/subscribe.StateChangeSubscription/Subscribe",
    "/headwater.v1.Members/GetStatus",
    "/headwater.v1.Versions/GetVersions",
    "/headwater.v1.Store/Commit",
    "/headwater.v1.Store/Read",
];

/// Methods that are not called as root: they would disable authentication, or wait.
const NOT_BY_ROOT: &[&str] = &[
    "/etcdserverpb.Auth/AuthDisable",
    "/v3lockpb.Lock/Lock",
    "/v3electionpb.Election/Campaign",
    "/v3electionpb.Election/Observe",
];

/// Options of the audit log of the member with this data directory: the file is beside it.
pub(crate) fn audit_options(data_dir: &Path) -> AuditOptions {
    let file = data_dir.with_extension("audit");
    AuditOptions { file, rotate_bytes: 64 << 20, keep: 1, level: AuditLevel::All }
}

/// Every method of the public protos.
fn methods() -> BTreeSet<String> {
    let files = FileDescriptorSet::decode(headwater::pb::PUBLIC_DESCRIPTORS).unwrap();
    let mut methods = BTreeSet::new();
    for file in &files.file {
        for service in &file.service {
            let package = if file.package().is_empty() { String::new() } else { format!("{}.", file.package()) };
            methods
                .extend(service.method.iter().map(|method| format!("/{package}{}/{}", service.name(), method.name())));
        }
    }
    assert!(methods.len() > 60, "{methods:?}");
    methods
}

async fn connect(cluster: &Cluster, member: usize) -> SendRequest<Bytes> {
    let address = cluster.client_url(member).trim_start_matches("http://").to_owned();
    let socket = TcpStream::connect(address).await.unwrap();
    let (requests, connection) = h2::client::handshake(socket).await.unwrap();
    tokio::spawn(connection);
    requests
}

/// Calls a method with an empty message. Returns gRPC code and status text in the headers of the
/// answer; 0 and an empty text without them, as after a success.
async fn call(requests: &mut SendRequest<Bytes>, method: &str, token: Option<&str>) -> (i32, String) {
    poll_fn(|cx| requests.poll_ready(cx)).await.unwrap();
    let mut request = http::Request::post(format!("http://member{method}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers");
    if let Some(token) = token {
        request = request.header("token", token);
    }
    let (answer, mut body) = requests.send_request(request.body(()).unwrap(), false).unwrap();
    // A refusal may have ended the stream before the message.
    let _is_refused_already = body.send_data(Bytes::from_static(&[0; 5]), true).is_err();
    let answer = within(method, answer).await.unwrap();
    let header = |name: &str| answer.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
    let code = header("grpc-status").map_or(0, |code| code.parse().unwrap());
    (code, header("grpc-message").unwrap_or_default())
}

fn is_nobody((code, text): &(i32, String)) -> bool {
    *code == Code::Unauthenticated as i32
        || text.contains("user%20name%20is%20empty")
        || text.contains("user name is empty")
}

#[tokio::test(flavor = "multi_thread")]
async fn every_method_has_a_lock() {
    let cluster = cluster(Settings::calm()).await;
    let (root, _) = enable_auth(&cluster).await;
    let mut auth = AuthClient::new(channel(&cluster, 0).await);
    let add = pb::AuthUserAddRequest { name: "n".to_owned(), password: "n".to_owned(), ..Default::default() };
    auth.user_add(by(&root, add)).await.unwrap();
    let without_right = authenticate(&cluster, 0, "n", "n").await.unwrap();
    sweep(&cluster, &root, &without_right).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_method_has_a_lock_under_access_control_lists() {
    let guarded = Guarded::start().await;
    let (_, without_right) = guarded.token("nothing", "").await;
    sweep(&guarded.cluster, &guarded.root, &without_right).await;
}

/// Calls every method on leader and follower: without a token, with an unknown token, with the
/// token `without_right` of a user without rights, and with the token `root`. Asserts that the
/// first three are refused and the last is not; the lists at the beginning of this file have the
/// exceptions.
async fn sweep(cluster: &Cluster, root: &str, without_right: &str) {
    for member in [cluster.leader().await, cluster.follower().await] {
        let mut requests = connect(cluster, member).await;
        for method in methods() {
            let is_open = OPEN.contains(&method.as_str());
            let nobody = call(&mut requests, &method, None).await;
            assert_eq!(is_nobody(&nobody), !is_open, "{method} for nobody on {member}: {nobody:?}");
            let wrong = call(&mut requests, &method, Some("abcdefghijklmnop.1")).await;
            let is_unknown = wrong.0 == Code::Unauthenticated as i32;
            assert_eq!(is_unknown, !is_open, "{method} with a wrong token on {member}: {wrong:?}");
            let denied = call(&mut requests, &method, Some(without_right)).await;
            let is_denied = denied.0 == Code::PermissionDenied as i32;
            if !OF_USERS.contains(&method.as_str()) {
                assert_eq!(is_denied, !is_open, "{method} without a right on {member}: {denied:?}");
            }
            if NOT_BY_ROOT.contains(&method.as_str()) {
                continue;
            }
            let allowed = call(&mut requests, &method, Some(root)).await;
            let is_denied = allowed.0 == Code::PermissionDenied as i32;
            // The same text may be about the user to change, as an empty message names none.
            let names_none = method.starts_with("/etcdserverpb.Auth/User") && allowed.0 == Code::InvalidArgument as i32;
            let is_nobody = is_nobody(&allowed) && !names_none;
            assert!(!is_denied && !is_nobody, "{method} for root on {member}: {allowed:?}");
        }
    }
}

/// Refusals are the same whether the hidden data exists or not.
#[tokio::test(flavor = "multi_thread")]
async fn refusals_do_not_depend_on_what_exists() {
    let cluster = cluster(Settings::calm()).await;
    let (root, user) = enable_auth(&cluster).await;
    let member = cluster.follower().await;
    let mut kv = KvClient::new(channel(&cluster, member).await);
    let mut http = Connection::open(&cluster.client_url(member), Version::HTTP_11).await;
    let mut answers = Vec::new();
    for _ in 0..2 {
        let mut seen = Vec::new();
        let status = kv.range(by(&user, get("hidden"))).await.unwrap_err();
        seen.push(format!("{:?} {}", status.code(), status.message()));
        for path in [
            "/v1/watch?target=%2Fkv%2Fhidden",
            "/v1/kv/hidden",
            "/api/headwater/v1/partition/hidden",
            "/api/no/such/type",
            "/nothing",
            "/v1/nothing",
        ] {
            let (status, text) = http.get_with(path, &[("token", &user)]).await;
            assert_eq!(status, 403, "{path}: {text}");
            seen.push(format!("{path} {status} {text}"));
        }
        answers.push(seen);
        kv.put(by(&root, put("hidden", "canary"))).await.unwrap();
        kv.put(by(&root, put("consul/kv/hidden", "canary"))).await.unwrap();
    }
    assert_eq!(answers[0], answers[1]);
    let text = |path: &str| {
        let found = answers[0].iter().find(|answer| answer.starts_with(path)).unwrap();
        found.split_once(' ').unwrap().1.to_owned()
    };
    assert_eq!(text("/api/headwater/v1/partition"), text("/api/no/such/type"), "whether a type is registered");
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_count_wherever_they_are() {
    let cluster = cluster(Settings::calm()).await;
    let (root, _) = enable_auth(&cluster).await;
    KvClient::new(channel(&cluster, 0).await).put(by(&root, put("u/a", "v"))).await.unwrap();
    let basic = |password: &str| format!("Basic {}", STANDARD.encode(format!("u:{password}")));
    let token = authenticate(&cluster, 0, "u", "u-canary").await.unwrap();
    let bearer = format!("Bearer {token}");
    let range = |key: &str| format!(r#"{{"key":"{}"}}"#, STANDARD.encode(key));
    for member in [cluster.leader().await, cluster.follower().await] {
        let mut http = Connection::open(&cluster.client_url(member), Version::HTTP_11).await;
        for (name, value) in [
            ("token", token.as_str()),
            ("authorization", token.as_str()),
            ("authorization", bearer.as_str()),
            ("authorization", basic("u-canary").as_str()),
            ("x-consul-token", token.as_str()),
            ("grpc-metadata-token", token.as_str()),
        ] {
            let headers = [(name, value)];
            assert_eq!(http.post_with("/v3/kv/range", range("u/a"), &headers).await.status, 200, "{name}: {value}");
            assert_eq!(http.post_with("/v3/kv/range", range("x"), &headers).await.status, 403, "{name}: {value}");
        }
        let wrong = http.post_with("/v3/kv/range", range("u/a"), &[("authorization", &basic("wrong"))]).await;
        assert_eq!(wrong.status, 400, "{:?}", wrong.json);
        assert!(wrong.json.to_string().contains("invalid user ID or password"), "{:?}", wrong.json);
        let health = http.get_with("/health", &[]).await;
        assert_eq!(health.0, 200, "as with etcd: {health:?}");
        assert_eq!(http.get_with("/metrics", &[]).await.0, 200);
        assert_eq!(http.get_with("/ui/", &[]).await.0, 200, "the files of the console hold no data");
    }
}

async fn change_role(auth: &mut AuthClient<tonic::transport::Channel>, root: &str, key: &str, end: &str, grants: bool) {
    let role = "u".to_owned();
    if grants {
        let perm_type = authpb::permission::Type::Read.into();
        let perm = authpb::Permission { perm_type, key: key.to_owned().into(), range_end: end.to_owned().into() };
        let grant = pb::AuthRoleGrantPermissionRequest { name: role, perm: Some(perm) };
        auth.role_grant_permission(by(root, grant)).await.unwrap();
    } else {
        let (key, range_end) = (key.to_owned().into(), end.to_owned().into());
        let revoke = pb::AuthRoleRevokePermissionRequest { role, key, range_end };
        auth.role_revoke_permission(by(root, revoke)).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_followed_subtree_ends_with_its_right() {
    let cluster = cluster(Settings::calm()).await;
    let (root, user) = enable_auth(&cluster).await;
    let member = cluster.follower().await;
    let mut auth = AuthClient::new(channel(&cluster, 0).await);
    let mut kv = KvClient::new(channel(&cluster, 0).await);
    let mut watcher = WatcherClient::new(channel(&cluster, member).await);
    let ask = |target: &str, marker: Bytes| pbwatcher::Request { target: target.to_owned(), resume_marker: marker };
    let recursive = "/kv/f?recursive=true";
    let refused = watcher.watch(by(&user, ask(recursive, Bytes::new()))).await.unwrap_err();
    assert_eq!((refused.code(), refused.message()), (Code::PermissionDenied, "permission denied"));
    let refused = watcher.watch(ask(recursive, Bytes::new())).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated);
    change_role(&mut auth, &root, "f", "f0", true).await;
    // An unrelated right that is given and taken away ends nothing.
    let index = kv.put(by(&root, put("f/a", "0"))).await.unwrap().metadata().get("headwater-index").unwrap().clone();
    let mut request = by(&user, ask(recursive, Bytes::new()));
    request.metadata_mut().insert("headwater-min-index", index);
    let mut changes = watcher.watch(request).await.unwrap().into_inner();
    let mut seen = String::new();
    let mut marker = Bytes::new();
    let mut read = async |changes: &mut tonic::Streaming<pbwatcher::ChangeBatch>, until: &str| {
        while !seen.contains(until) {
            let batch = within(until, changes.message()).await.unwrap().unwrap();
            for change in batch.changes {
                seen.push_str(&change.element);
                seen.push('\n');
                if !change.resume_marker.is_empty() {
                    marker = change.resume_marker;
                }
            }
        }
        marker.clone()
    };
    read(&mut changes, "a\n").await;
    change_role(&mut auth, &root, "g", "h", true).await;
    kv.put(by(&root, put("f/b", "1"))).await.unwrap();
    let marker = read(&mut changes, "b\n").await;
    change_role(&mut auth, &root, "f", "f0", false).await;
    let withdrawn = Instant::now();
    kv.put(by(&root, put("f/secret", "2"))).await.unwrap();
    let ended = loop {
        match within("the end", changes.message()).await {
            Ok(Some(batch)) => assert!(batch.changes.iter().all(|change| change.element != "secret"), "{batch:?}"),
            Ok(None) => panic!("ended without a status"),
            Err(status) => break status,
        }
    };
    assert_eq!(ended.code(), Code::PermissionDenied, "{ended:?}");
    assert!(withdrawn.elapsed() < Duration::from_secs(1), "{:?}", withdrawn.elapsed());
    // When the right is given back, the client must begin anew: it has missed changes meanwhile.
    change_role(&mut auth, &root, "f", "f0", true).await;
    let resumed = watcher.watch(by(&user, ask(recursive, marker))).await.unwrap_err();
    assert_eq!(resumed.code(), Code::FailedPrecondition, "{resumed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_stream_ends_within_a_second() {
    let cluster = cluster(Settings::calm()).await;
    let (root, user) = enable_auth(&cluster).await;
    let mut auth = AuthClient::new(channel(&cluster, 0).await);
    let member = cluster.follower().await;
    let mut watcher = WatcherClient::new(channel(&cluster, member).await);
    let target = "/kv/r?recursive=true".to_owned();
    let request = pbwatcher::Request { target, resume_marker: Bytes::new() };
    let refused = watcher.watch(by(&user, request.clone())).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied, "the key itself is not in r/*: {refused:?}");
    change_role(&mut auth, &root, "r", "", true).await;
    let mut changes = within("the right", async {
        loop {
            match watcher.watch(by(&user, request.clone())).await {
                Ok(answer) => break answer.into_inner(),
                Err(status) => assert_eq!(status.code(), Code::PermissionDenied, "{status:?}"),
            }
        }
    })
    .await;
    changes.message().await.unwrap().unwrap();
    change_role(&mut auth, &root, "r", "", false).await;
    let withdrawn = Instant::now();
    let status = within("the end", changes.message()).await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied);
    assert!(withdrawn.elapsed() < Duration::from_secs(1), "{:?}", withdrawn.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_contender_ends_with_its_right() {
    let cluster = cluster(Settings::calm()).await;
    let (root, user) = enable_auth(&cluster).await;
    let mut auth = AuthClient::new(channel(&cluster, 0).await);
    let mut kv = KvClient::new(channel(&cluster, 0).await);
    let mut locks = LockClient::new(channel(&cluster, cluster.follower().await).await);
    let request = || LockRequest { name: "u/l".into(), lease: 0 };
    locks.lock(by(&root, request())).await.unwrap();
    let mut waits = Box::pin(locks.lock(by(&user, request())));
    let range = || pb::RangeRequest { range_end: "u/l0".into(), count_only: true, ..get("u/l/") };
    let mut count = async || kv.range(by(&root, range())).await.unwrap().into_inner().count;
    while count().await < 2 {
        let _waits = tokio::time::timeout(Duration::from_millis(20), &mut waits).await.unwrap_err();
    }
    change_role(&mut auth, &root, "u/", "u0", false).await;
    let status = within("the end", waits).await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied, "{status:?}");
    within("its key is removed", async { while count().await > 1 {} }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_audit_log_has_names_and_keys_and_nothing_else() {
    let cluster = cluster(Settings { audit: Some(audit_options), ..Settings::calm() }).await;
    let (root, user) = enable_auth(&cluster).await;
    let mut kv = KvClient::new(channel(&cluster, 0).await);
    let put_answer = kv.put(by(&root, put("u/audited", "value-canary"))).await.unwrap();
    let index = put_answer.metadata().get("headwater-index").unwrap().to_str().unwrap().to_owned();
    kv.range(by(&user, get("u/audited"))).await.unwrap();
    let mut parts = kv.range_stream(by(&user, get("u/streamed"))).await.unwrap().into_inner();
    while parts.message().await.unwrap().is_some() {}
    let read = pb::RequestOp { request: Some(pb::request_op::Request::RequestRange(get("u/in-txn"))) };
    kv.txn(by(&user, pb::TxnRequest { success: vec![read], ..Default::default() })).await.unwrap();
    for _ in 0..50 {
        kv.put(by(&user, put("x/denied", "value-canary"))).await.unwrap_err();
    }
    kv.put(put("x/nobody", "value-canary")).await.unwrap_err();
    authenticate(&cluster, 0, "u", "wrong-canary").await.unwrap_err();
    let basic = format!("Basic {}", STANDARD.encode("u:wrong-canary"));
    let mut http = Connection::open(&cluster.client_url(0), Version::HTTP_11).await;
    http.post_with("/v3/kv/range", "{}".to_owned(), &[("authorization", &basic)]).await;
    http.get_with("/v1/kv/canary", &[("authorization", &basic)]).await;
    let file = audit_options(&cluster.data_dir(0)).file;
    let text = within("all lines", async {
        loop {
            let text = std::fs::read_to_string(&file).unwrap();
            if text.contains("\"repeated\":") && text.contains("anonymous") && text.contains("GET /v1/kv/") {
                break text;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    let has = |parts: &[&str]| text.lines().any(|line| parts.iter().all(|part| line.contains(part)));
    let index = format!("\"index\":{index}");
    assert!(
        has(&[r#""user":"root""#, "KV/Put", r#""key":"u/audited","rights":"write""#, "\"allowed\":true", &index]),
        "{text}"
    );
    assert!(has(&[r#""user":"u""#, "KV/Range", r#""key":"u/audited","rights":"read""#, "\"allowed\":true"]), "{text}");
    for (method, key) in [("KV/RangeStream", "u/streamed"), ("KV/Txn", "u/in-txn")] {
        let on = format!(r#""key":"{key}","rights":"read""#);
        assert!(has(&[r#""user":"u""#, method, &on, "\"allowed\":true"]), "{text}");
    }
    assert!(has(&[r#""user":"u""#, "KV/Put", r#""key":"x/denied""#, "\"allowed\":false"]), "{text}");
    assert!(has(&[r#""who":"anonymous""#, "KV/Put", "\"allowed\":false"]), "{text}");
    assert!(has(&[r#""from":"127.0.0.1:"#]), "{text}");
    for method in ["Auth/Authenticate", "KV/Range", "GET /v1/kv/"] {
        assert!(has(&[method, "\"allowed\":false"]), "{method}: {text}");
    }
    for secret in ["canary", root.as_str(), user.as_str(), root.split('.').next().unwrap()] {
        assert!(!text.contains(secret), "the log has a secret or a value");
    }
    let denied = text.lines().filter(|line| line.contains("x/denied")).count();
    assert!(denied < 20, "{denied} lines for 50 refusals");
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
}
