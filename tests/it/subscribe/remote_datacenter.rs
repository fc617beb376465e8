//! Streams from a remote datacenter (spec: consul §1.12).

use std::convert::Infallible;

use bytes::Bytes;
use headwater::pb::subscribe::SubscribeRequest;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tonic::Code;

use super::client::{Delivery, Subscriber, after, health, reg, register};
use crate::cluster::{Cluster, Settings};

fn at(datacenter: &str, request: SubscribeRequest) -> SubscribeRequest {
    SubscribeRequest { datacenter: datacenter.to_owned(), ..request }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_of_another_datacenter_is_passed_on_as_it_is() {
    let mut far = Cluster::start(Settings { datacenter: "dc2", ..Settings::alone() }).await;
    let mut near = Cluster::start(Settings::alone()).await;
    let dead = "127.0.0.1:1".to_owned();
    let alive = far.client_url(0).trim_start_matches("http://").to_owned();
    let (noise, web) = (talker(b"\x15\x03\x03\x00\x02\x02\x46").await, web_server().await);
    let first = vec![dead.clone(), noise.clone(), web.clone(), alive.clone()];
    near.remote_datacenters.insert("dc2".to_owned(), first);
    near.remote_datacenters.insert("gone".to_owned(), vec![dead.clone(), noise.clone(), web.clone()]);
    // `dc3` is not the name of the cluster at this address.
    near.remote_datacenters.insert("dc3".to_owned(), vec![alive.clone()]);
    near.crash(0).await;
    near.restart(0).await;
    near.wait_healthy().await;

    let there = register(&far, 0, "n", "web-1", "web").await;
    register(&near, 0, "n", "web-here", "web").await;
    let mut passed_on = Subscriber::open(&near, 0, at("dc2", health("web"))).await.unwrap();
    let direct = Subscriber::open(&far, 0, at("dc2", health("web"))).await.unwrap();
    assert_eq!(passed_on.epoch, direct.epoch, "the lineage is theirs");
    assert_eq!(passed_on.snapshot().await.0, ["n/web-1"]);
    let next = register(&far, 0, "n", "web-2", "web").await;
    assert_eq!(passed_on.next().await, reg(next, "n/web-2"));
    let resumed = at("dc2", after(there, health("web")));
    let mut resumed = Subscriber::open_with(&near, 0, resumed, Some(&direct.epoch)).await.unwrap();
    assert_eq!(resumed.next().await, reg(next, "n/web-2"));
    let stale = at("dc2", after(there, health("web")));
    let mut stale = Subscriber::open_with(&near, 0, stale, Some("1")).await.unwrap();
    assert_eq!(stale.next().await, Delivery::StartOver);

    let refused = async |request| Subscriber::open(&near, 0, request).await.err().unwrap();
    let theirs = refused(at("dc2", health(""))).await;
    assert_eq!(theirs.code(), Code::InvalidArgument, "errors are theirs");
    assert!(theirs.message().starts_with(&format!("datacenter \"dc2\" at {alive}: either")), "{theirs:?}");
    assert_eq!(refused(at("dc9", health("web"))).await.code(), Code::InvalidArgument);
    assert_eq!(refused(at("dc3", health("web"))).await.code(), Code::InvalidArgument, "it is not passed on again");
    let gone = refused(at("gone", health("web"))).await;
    assert_eq!(gone.code(), Code::Unavailable);
    for part in ["datacenter \"gone\"", &format!("{dead}: "), "refused", &format!("{noise}: "), &format!("{web}: ")] {
        assert!(gone.message().contains(part), "{part}: {gone:?}");
    }
    // Both streams end with a status.
    far.stop(0).await;
    let ended = passed_on.end().await;
    assert_eq!(ended.code(), Code::Unavailable);
    assert!(ended.message().starts_with(&format!("datacenter \"dc2\" at {alive}: ")), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_of_another_datacenter_is_passed_on_by_tls() {
    let far = Cluster::start(Settings { datacenter: "dc2", tls: true, ..Settings::alone() }).await;
    let mut near = Cluster::start(Settings::alone()).await;
    let alive = far.client_url(0);
    assert!(alive.starts_with("https://"));
    let plain = alive.trim_start_matches("https://").to_owned();
    near.remote_dialer = far.certs.as_ref().unwrap().client();
    near.remote_datacenters.insert("dc2".to_owned(), vec![plain.clone(), alive]);
    near.remote_datacenters.insert("plain".to_owned(), vec![plain]);
    near.crash(0).await;
    near.restart(0).await;
    near.wait_healthy().await;

    register(&far, 0, "n", "web-1", "web").await;
    let mut passed_on = Subscriber::open(&near, 0, at("dc2", health("web"))).await.unwrap();
    assert_eq!(passed_on.snapshot().await.0, ["n/web-1"]);
    let next = register(&far, 0, "n", "web-2", "web").await;
    assert_eq!(passed_on.next().await, reg(next, "n/web-2"));
    let refused = Subscriber::open(&near, 0, at("plain", health("web"))).await.err().unwrap();
    assert_eq!(refused.code(), Code::Unavailable, "{refused:?}");
}

/// Starts a server that sends these bytes to every client and closes the connection; returns its
/// address.
async fn talker(words: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            // The client may have closed.
            drop(stream.write_all(words).await);
            drop(stream.shutdown().await);
        }
    });
    address
}

/// Starts an HTTP/2 server that is no gRPC server; returns its address.
async fn web_server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let answer = service_fn(|_: http::Request<Incoming>| async {
                let response = http::Response::builder().status(404).header("content-type", "text/html");
                Ok::<_, Infallible>(response.body(Full::new(Bytes::from_static(b"<p>not here</p>"))).unwrap())
            });
            let connection = http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), answer);
            tokio::spawn(async move { drop(connection.await) });
        }
    });
    address
}
