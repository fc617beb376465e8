//! A process with a low limit of open files: it refuses connections before the store cannot open
//! files any more.

use std::process::Stdio;
use std::time::Duration;

use headwater::pb::etcdserverpb::kv_client::KvClient;
use headwater::pb::etcdserverpb::lease_client::LeaseClient;
use headwater::pb::etcdserverpb::maintenance_client::MaintenanceClient;
use headwater::pb::etcdserverpb::{DefragmentRequest, LeaseKeepAliveRequest, RangeRequest};
use headwater::pb::headwater_v1::GetVersionsRequest;
use headwater::pb::headwater_v1::versions_client::VersionsClient;
use headwater::storage::data_dir::Layout;
use headwater::storage::log::LogForm;
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;

use crate::cluster::{get, put, wait_until, within};

/// A loopback address with a port that is free now.
async fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().to_string()
}

/// Whether the server has closed the connection: its end can be read now.
async fn is_closed(stream: &mut TcpStream) -> bool {
    // On an open connection the server sends nothing before the client does.
    let read = tokio::time::timeout(Duration::from_millis(1), stream.read(&mut [0; 64])).await;
    matches!(read, Ok(Ok(0) | Err(_)))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_soft_limit_of_open_files_is_raised_to_the_hard_one() {
    let dir = tempfile::tempdir().unwrap();
    let (client, peer) = (free_address().await, free_address().await);
    let mut node = Command::new("sh")
        .args(["-c", "ulimit -Sn 256; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_headwater"), "serve"])
        .args(["--listen-client", &client, "--listen-peer", &peer, "--data-dir"])
        .arg(dir.path().join("data"))
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    wait_until("the node serves", async || ask(1, &client, "/readyz").await.is_some_and(|line| line.contains("200")))
        .await;
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", node.id().unwrap())).unwrap();
    let files = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let mut fields = files.split_whitespace().skip(3);
    let (soft, hard) = (fields.next().unwrap(), fields.next().unwrap());
    assert_eq!(soft, hard, "{files}");
    assert_ne!(soft, "256", "the machine's hard limit is above the soft one of this test");
    node.kill().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crowd_of_silent_connections_does_not_end_a_node_with_few_descriptors() {
    let dir = tempfile::tempdir().unwrap();
    let (client, peer) = (free_address().await, free_address().await);
    let mut node = Command::new("sh")
        .args(["-c", "ulimit -n 256; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_headwater"), "serve"])
        .args(["--listen-client", &client, "--listen-peer", &peer, "--raft-snapshot-every", "20", "--data-dir"])
        .arg(dir.path().join("data"))
        .args(["--raft-log-keep", "5"])
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut kv = None;
    wait_until("the node serves", async || {
        kv = KvClient::connect(format!("http://{client}")).await.ok();
        kv.is_some()
    })
    .await;
    let mut kv = kv.expect("connected above");
    within("a first put", kv.put(put("before", "v"))).await.unwrap();

    let mut crowd = Vec::new();
    for _ in 0..400 {
        crowd.push(TcpStream::connect(&client).await.unwrap());
    }
    // 112 connections for clients, one of them taken.
    wait_until("those beyond the limit are closed", async || {
        let mut closed = 0;
        for stream in &mut crowd {
            closed += usize::from(is_closed(stream).await);
        }
        closed >= 400 - 111
    })
    .await;
    // Snapshots and flushes continue beside the crowd.
    for round in 0..100 {
        within("a put beside the crowd", kv.put(put(format!("k{round}"), "v"))).await.unwrap();
    }
    assert_eq!(node.try_wait().unwrap(), None, "the node goes on");

    drop(crowd);
    wait_until("there is room again", async || {
        let Ok(mut other) = KvClient::connect(format!("http://{client}")).await else { return false };
        other.range(get("k99")).await.is_ok_and(|answer| answer.into_inner().kvs.len() == 1)
    })
    .await;
    node.kill().await.unwrap();
}

/// Sets the soft limit of open files of a running process; returns the former one.
fn set_limit(pid: u32, count: u64) -> u64 {
    let pid = Pid::from_raw(pid as i32).unwrap();
    let maximum = getrlimit(Resource::Nofile).maximum;
    let before = prlimit(Some(pid), Resource::Nofile, Rlimit { current: Some(count), maximum }).unwrap();
    before.current.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_without_descriptors_goes_on_and_makes_its_snapshot_later() {
    let dir = tempfile::tempdir().unwrap();
    let (client, peer) = (free_address().await, free_address().await);
    let data = dir.path().join("data");
    let mut node = Command::new(env!("CARGO_BIN_EXE_headwater"))
        .args(["serve", "--listen-client", &client, "--listen-peer", &peer, "--raft-snapshot-every", "50"])
        .args(["--raft-log-keep", "5", "--data-dir"])
        .arg(&data)
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let pid = node.id().unwrap();
    let mut kv = None;
    wait_until("the node serves", async || {
        kv = KvClient::connect(format!("http://{client}")).await.ok();
        kv.is_some()
    })
    .await;
    let mut kv = kv.expect("connected above");
    within("a first put", kv.put(put("before", "v"))).await.unwrap();
    // The version of a new cluster rises by itself, which writes a file, and the log is stored
    // anew.
    let mut versions = VersionsClient::connect(format!("http://{client}")).await.unwrap();
    wait_until("the version has risen", async || {
        let found = versions.get_versions(GetVersionsRequest { linearizable: false }).await.unwrap().into_inner();
        found.cluster_version == found.members[0].highest
    })
    .await;
    wait_until("the log has its form", async || {
        let log = Layout::new(&data).log_dir();
        LogForm::of(&log) == LogForm::Segments && !log.join("CURRENT").exists()
    })
    .await;
    // RocksDB rewrites the first table of a new store at some time, which would fail without
    // descriptors. So it is made to do so now.
    let mut maintenance = MaintenanceClient::connect(format!("http://{client}")).await.unwrap();
    within("a defragmentation", maintenance.defragment(DefragmentRequest {})).await.unwrap();
    // Files that are open stay open; none can be opened.
    let soft = set_limit(pid, 3);
    for round in 0..200 {
        within("a put without descriptors", kv.put(put(format!("k{round}"), "v"))).await.unwrap();
    }
    let all = RangeRequest { range_end: "l".into(), ..get("k") };
    within("a read without descriptors", kv.range(all)).await.unwrap();
    assert_eq!(node.try_wait().unwrap(), None, "the node goes on");
    let snapshots = || std::fs::read_dir(data.join("snapshots")).map_or(0, |entries| entries.count());
    let made = snapshots();
    set_limit(pid, soft);
    wait_until("the snapshot is made", async || snapshots() > made).await;
    within("a last put", kv.put(put("after", "v"))).await.unwrap();
    assert_eq!(node.try_wait().unwrap(), None);
    node.kill().await.unwrap();
}

/// A connection to `to` from the loopback address `127.0.HOST.1`.
async fn connect_from(host: u8, to: &str) -> std::io::Result<TcpStream> {
    let socket = tokio::net::TcpSocket::new_v4()?;
    socket.bind(std::net::SocketAddr::from(([127, 0, host, 1], 0)))?;
    socket.connect(to.parse().unwrap()).await
}

/// Sends a GET from `127.0.HOST.1`; returns the status line of the answer. `None` if the connection
/// fails, or no answer comes within five seconds.
async fn ask(host: u8, to: &str, path: &str) -> Option<String> {
    let mut stream = connect_from(host, to).await.ok()?;
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: member\r\n\r\n").as_bytes()).await.ok()?;
    let mut answer = vec![0; 1024];
    let read = tokio::time::timeout(Duration::from_secs(5), stream.read(&mut answer)).await.ok()?.ok()?;
    let text = String::from_utf8_lossy(&answer[..read]).into_owned();
    text.lines().next().map(str::to_owned)
}

#[tokio::test(flavor = "multi_thread")]
async fn health_and_keep_alives_are_answered_while_a_crowd_holds_all_connections() {
    let dir = tempfile::tempdir().unwrap();
    let (client, peer) = (free_address().await, free_address().await);
    let mut node = Command::new("sh")
        .args(["-c", "ulimit -n 256; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_headwater"), "serve"])
        .args(["--listen-client", &client, "--listen-peer", &peer, "--data-dir"])
        .arg(dir.path().join("data"))
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    wait_until("the node serves", async || ask(9, &client, "/readyz").await.is_some_and(|line| line.contains("200")))
        .await;
    // 112 connections for clients, 14 of them kept; one address has 56 and 4 of the kept ones.
    let crowd = async |hosts: [u8; 2]| {
        let mut crowd = Vec::new();
        for host in hosts {
            for _ in 0..60 {
                crowd.push(connect_from(host, &client).await.unwrap());
            }
        }
        crowd
    };
    let mut refused = None;
    wait_until("a request finds no connection, and a check one", async || {
        // The server ends silent connections after ten seconds, so they are opened again.
        let _crowd = crowd([1, 2]).await;
        refused = ask(3, &client, "/v3/kv/range").await;
        let live = ask(4, &client, "/livez").await;
        refused.as_deref().is_some_and(|line| line.contains("503")) && live.is_some_and(|line| line.contains("200"))
    })
    .await;
    let _crowd = crowd([1, 2]).await;
    wait_until("gRPC says that other requests find no connection", async || {
        let from = std::net::IpAddr::from([127, 0, 5, 1]);
        let endpoint = tonic::transport::Endpoint::from_shared(format!("http://{client}")).unwrap();
        let Ok(channel) = endpoint.local_address(Some(from)).connect().await else { return false };
        let put = KvClient::new(channel.clone()).put(put("k", "v")).await;
        let keep = tokio_stream::iter([LeaseKeepAliveRequest { id: 1 }]);
        let kept = LeaseClient::new(channel).lease_keep_alive(keep).await;
        let Err(status) = put else { return false };
        assert_eq!(status.code(), tonic::Code::Unavailable, "clients ask another member");
        status.message().contains("keep-alives and health alone") && kept.is_ok()
    })
    .await;
    node.kill().await.unwrap();
}
