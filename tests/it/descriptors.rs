//! A process that may open few files: connections are refused before the store is in need.

use std::process::Stdio;
use std::time::Duration;

use headwater::pb::etcdserverpb::kv_client::KvClient;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;

use crate::cluster::{get, put, wait_until, within};

/// An address that nobody listens on now.
async fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().to_string()
}

/// Whether the server has closed the connection.
async fn is_closed(stream: &mut TcpStream) -> bool {
    // An open one is silent (HTTP/2 speaks after the client); a closed one ends at once.
    let read = tokio::time::timeout(Duration::from_millis(1), stream.read(&mut [0; 64])).await;
    matches!(read, Ok(Ok(0) | Err(_)))
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
    // 112 places for clients, one of them taken.
    wait_until("those beyond the limit are closed", async || {
        let mut closed = 0;
        for stream in &mut crowd {
            closed += usize::from(is_closed(stream).await);
        }
        closed >= 400 - 111
    })
    .await;
    // Snapshots and flushes go on beside the crowd.
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
