//! Blocking queries and streams during changes of rights.

use std::time::{Duration, Instant};

use http::Method;
use serde_json::json;
use tonic::Code;

use headwater::pb::subscribe::SubscribeRequest;
use headwater::pb::subscribe::event::Payload;

use super::Guarded;
use crate::cluster::{Cluster, Settings, within};
use crate::subscribe::client::{Delivery, Subscriber, after, health, register};

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_waits_ends_with_its_token() {
    let guarded = Guarded::start().await;
    guarded.done(Method::PUT, "/v1/kv/a", "1").await;
    let (accessor, token) = guarded.token("a", "key \"a\" { policy = \"read\" }").await;
    let found = guarded.ask(guarded.follower, &token, Method::GET, "/v1/kv/a", "").await;
    let path = format!("/v1/kv/a?index={}&wait=60s", found.index());
    let began = Instant::now();
    let waits = guarded.ask(guarded.follower, &token, Method::GET, &path, "");
    let deletes = async {
        guarded.done(Method::DELETE, &format!("/v1/acl/token/{accessor}"), "").await;
    };
    let (answer, ()) = tokio::join!(waits, deletes);
    assert_eq!((answer.status, answer.text.as_str()), (403, "ACL not found"));
    assert!(began.elapsed() < Duration::from_secs(30), "it did not wait to its end");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_waits_for_one_object_ends_with_its_right() {
    let guarded = Guarded::start().await;
    guarded.done(Method::PUT, "/v1/kv/a", "1").await;
    for (name, path, rules, lacks) in [
        ("key", "/v1/kv/a", "key \"a\" { policy = \"read\" }", "'key:read' on \"a\""),
        ("gateway", "/v1/catalog/gateway-services/g", "service \"g\" { policy = \"read\" }", "'service:read' on \"g\""),
        ("entry", "/v1/config/terminating-gateway/g", "service \"g\" { policy = \"read\" }", "'service:read' on \"g\""),
    ] {
        let policy = guarded.policy(name, rules).await;
        let made = guarded.done(Method::PUT, "/v1/acl/token", json!({"Policies": [{"ID": policy}]})).await;
        let token = made["SecretID"].as_str().unwrap();
        let found = guarded.ask(guarded.follower, token, Method::GET, path, "").await;
        let waiting = format!("{path}?index={}&wait=60s", found.index());
        let began = Instant::now();
        let waits = guarded.ask(guarded.follower, token, Method::GET, &waiting, "");
        // No data that the request reads changes.
        let withdraws = async {
            let body = json!({"Name": name, "Rules": ""});
            guarded.done(Method::PUT, &format!("/v1/acl/policy/{policy}"), body).await;
        };
        let (answer, ()) = tokio::join!(waits, withdraws);
        assert_eq!(answer.status, 403, "{path}: {answer:?}");
        assert!(answer.text.ends_with(&format!("lacks permission {lacks}")), "{path}: {answer:?}");
        assert!(began.elapsed() < Duration::from_secs(30), "{path}: it did not wait to its end");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_shows_what_may_be_read_and_ends_when_that_changes() {
    let guarded = Guarded::start().await;
    guarded.register("n1", "web").await;
    guarded.register("n2", "web").await;
    let policy =
        guarded.policy("one", "node \"n1\" { policy = \"read\" }\nservice \"web\" { policy = \"read\" }").await;
    let made = guarded.done(Method::PUT, "/v1/acl/token", json!({"Policies": [{"ID": policy}]})).await;
    let token = made["SecretID"].as_str().unwrap().to_owned();
    let request = |token: &str| {
        let mut request = health("web");
        request.token = token.to_owned();
        request
    };
    for member in guarded.cluster.running() {
        let refused = Subscriber::open(&guarded.cluster, member, request("none")).await.err().map(|it| it.code());
        assert_eq!(refused, Some(Code::Unauthenticated));
        let mut anonymous = Subscriber::open(&guarded.cluster, member, request("")).await.unwrap();
        assert!(anonymous.snapshot().await.0.is_empty());
    }
    let mut stream = Subscriber::open(&guarded.cluster, guarded.follower, request(&token)).await.unwrap();
    let (seen, _) = stream.snapshot().await;
    assert_eq!(seen, ["n1/web"], "one of two nodes");
    // An event of the other node is not sent, the next one of this node is.
    for node in ["n2", "n1"] {
        let update = json!({"Node": node, "Address": "10.0.0.1", "Service": {"Service": "web", "Port": 81}});
        guarded.done(Method::PUT, "/v1/catalog/register", update).await;
    }
    let event = within("an event comes", stream.event()).await.unwrap();
    let Some(Payload::ServiceHealth(event)) = event.payload else { panic!("{event:?}") };
    assert_eq!(event.check_service_node.unwrap().node.unwrap().node, "n1");
    // The right is withdrawn. Then an event comes that must not be delivered.
    let began = Instant::now();
    guarded.done(Method::PUT, &format!("/v1/acl/policy/{policy}"), json!({"Name": "one", "Rules": ""})).await;
    let update = json!({"Node": "n1", "Address": "10.0.0.1", "Service": {"Service": "web", "Port": 82}});
    guarded.done(Method::PUT, "/v1/catalog/register", update).await;
    let end = stream.event().await.expect_err("no event comes after the right is gone");
    assert_eq!(end.code(), Code::Aborted, "{end:?}");
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_subscription_ends_with_its_token() {
    let guarded = Guarded::start().await;
    let (accessor, token) =
        guarded.token("all", "node_prefix \"\" { policy = \"read\" }\nservice_prefix \"\" { policy = \"read\" }").await;
    let mut request = health("web");
    request.token = token;
    let mut stream = Subscriber::open(&guarded.cluster, guarded.follower, request).await.unwrap();
    stream.snapshot().await;
    guarded.done(Method::DELETE, &format!("/v1/acl/token/{accessor}"), "").await;
    let end = within("the stream ends", stream.end()).await;
    assert_eq!(end.code(), Code::Aborted, "{end:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_does_not_resume_over_a_change_of_rights() {
    let guarded = Guarded::start().await;
    guarded.register("n1", "web").await;
    let rules = "node_prefix \"\" { policy = \"read\" }\nservice \"web\" { policy = \"read\" }";
    let policy = guarded.policy("one", rules).await;
    let made = guarded.done(Method::PUT, "/v1/acl/token", json!({"Policies": [{"ID": policy}]})).await;
    let mut request = health("web");
    request.token = made["SecretID"].as_str().unwrap().to_owned();
    let open = async |index, member| {
        let request = if index == 0 { request.clone() } else { after(index, request.clone()) };
        Subscriber::open(&guarded.cluster, member, request).await.unwrap()
    };
    let (_, start) = open(0, guarded.follower).await.snapshot().await;
    let change = async |rules: &str| {
        guarded.done(Method::PUT, &format!("/v1/acl/policy/{policy}"), json!({"Name": "one", "Rules": rules})).await;
    };
    // The right is gone while the instance changes, and comes back.
    change("").await;
    guarded.register("n2", "web").await;
    change(rules).await;
    for member in guarded.cluster.running() {
        guarded.ask(member, &guarded.root, Method::GET, "/v1/catalog/nodes", "").await;
        let mut stream = open(start, member).await;
        assert_eq!(stream.next().await, Delivery::StartOver);
        let (seen, now) = stream.snapshot().await;
        assert_eq!(seen, ["n1/web", "n2/web"]);
        // Without a change of rights since the position, the stream resumes.
        let mut resumed = open(now, member).await;
        let update = json!({"Node": "n1", "Address": "10.0.0.1", "Service": {"Service": "web", "Port": 100 + member}});
        guarded.done(Method::PUT, "/v1/catalog/register", update).await;
        assert_ne!(resumed.next().await, Delivery::StartOver);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_to_another_datacenter_is_judged_before_it_is_passed_on() {
    let far = Cluster::start(Settings { datacenter: "dc2", ..Settings::alone() }).await;
    register(&far, 0, "n", "web-1", "web").await;
    let mut near = Guarded::start().await;
    let address = far.client_url(0).trim_start_matches("http://").to_owned();
    near.cluster.remote_datacenters.insert("dc2".to_owned(), vec![address]);
    near.cluster.crash(near.follower).await;
    near.cluster.restart(near.follower).await;
    near.cluster.wait_healthy().await;
    let open = async |token: &str| {
        let request = SubscribeRequest { datacenter: "dc2".to_owned(), token: token.to_owned(), ..health("web") };
        Subscriber::open(&near.cluster, near.follower, request).await
    };
    for token in ["", "none"] {
        let refused = open(token).await.err().map(|it| it.code());
        assert_eq!(refused, Some(Code::Unauthenticated), "{token:?}");
    }
    assert_eq!(open(&near.root).await.unwrap().snapshot().await.0, ["n/web-1"]);
}
