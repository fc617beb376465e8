//! Streams of another datacenter (spec: consul §1.12).

use headwater::pb::subscribe::SubscribeRequest;
use tonic::Code;

use super::client::{Subscriber, Told, after, health, reg, register};
use crate::cluster::{Cluster, Settings};

fn at(datacenter: &str, request: SubscribeRequest) -> SubscribeRequest {
    SubscribeRequest { datacenter: datacenter.to_owned(), ..request }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_of_another_datacenter_is_passed_on_as_it_is() {
    let mut far = Cluster::start(Settings { members: 1, datacenter: "dc2", ..Settings::default() }).await;
    let mut near = Cluster::start(Settings { members: 1, ..Settings::default() }).await;
    let dead = "127.0.0.1:1".to_owned();
    let alive = far.client_url(0).trim_start_matches("http://").to_owned();
    near.remote_datacenters.insert("dc2".to_owned(), vec![dead.clone(), alive.clone()]);
    near.remote_datacenters.insert("gone".to_owned(), vec![dead]);
    // What that cluster does not call itself.
    near.remote_datacenters.insert("dc3".to_owned(), vec![alive]);
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
    assert_eq!(stale.next().await, Told::StartOver);

    let refused = async |request| Subscriber::open(&near, 0, request).await.err().unwrap();
    assert_eq!(refused(at("dc2", health(""))).await.code(), Code::InvalidArgument, "errors are theirs");
    assert_eq!(refused(at("dc9", health("web"))).await.code(), Code::InvalidArgument);
    assert_eq!(refused(at("dc3", health("web"))).await.code(), Code::InvalidArgument, "it is not passed on again");
    assert_eq!(refused(at("gone", health("web"))).await.code(), Code::Unavailable);
    // Both ends of it end with a word.
    far.stop(0).await;
    assert_eq!(passed_on.end().await.code(), Code::Unavailable);
}
