//! Requests at a member that applies a change of the ACLs late. The rights that count are those in
//! the state from which the answer comes.

use std::time::Duration;

use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use http::Method;
use serde_json::json;

use super::Guarded;
use crate::auth::by;
use crate::cluster::{get_local, within};
use crate::subscribe::client::{Subscriber, health};

/// Time for which requests at a held member (`auth::start_held`) must stay unanswered. It is enough
/// for each of them to get as far as its read, which waits for the end of the hold.
const REACHED: Duration = Duration::from_secs(1);

#[tokio::test(flavor = "multi_thread")]
async fn a_withdrawn_right_tells_nothing_at_a_member_that_hears_of_it_late() {
    let (guarded, holds) = Guarded::start_held().await;
    let (leader, follower) = (guarded.cluster.leader().await, guarded.follower);
    let id = "11111111-2222-3333-4444-555555555555";
    let absent = "99999999-2222-3333-4444-555555555555";
    let victim =
        json!({"Node": "victim", "ID": id, "Address": "10.0.0.1", "Service": {"Service": "hidden", "ID": "s"}});
    guarded.done(Method::PUT, "/v1/catalog/register", victim).await;
    let rules = "acl = \"write\"\nkey \"a\" { policy = \"read\" }\nnode \"mine\" { policy = \"write\" }\n\
                 node \"victim\" { policy = \"read\" }\nservice \"hidden\" { policy = \"read\" }";
    let policy = guarded.policy("all", rules).await;
    let made = guarded.done(Method::PUT, "/v1/acl/token", json!({"Policies": [{"ID": policy}]})).await;
    let token = made["SecretID"].as_str().unwrap();
    guarded.settled(follower).await;
    let linked = json!({"Name": "r", "Policies": [{"Name": "none"}]});
    let cases = [
        (Method::PUT, "/v1/txn".to_owned(), json!([{"KV": {"Verb": "get", "Key": "a"}}]), 409, "'key:read'"),
        (Method::PUT, format!("/v1/acl/token/{absent}"), json!({}), 403, "'acl:write'"),
        (Method::PUT, format!("/v1/acl/token/{absent}/clone"), json!({}), 403, "'acl:write'"),
        (Method::DELETE, format!("/v1/acl/token/{absent}"), json!(""), 403, "'acl:write'"),
        (Method::PUT, "/v1/acl/token".to_owned(), linked.clone(), 403, "'acl:write'"),
        (Method::PUT, "/v1/acl/role".to_owned(), linked, 403, "'acl:write'"),
        (Method::GET, "/v1/acl/policy/name/none".to_owned(), json!(""), 403, "'acl:read'"),
        (Method::GET, "/v1/acl/role/name/none".to_owned(), json!(""), 403, "'acl:read'"),
        // The refusal does not name the stored row, which the token could read before.
        (
            Method::PUT,
            "/v1/catalog/deregister".to_owned(),
            json!({"Node": "victim", "ServiceID": "s"}),
            403,
            "'node:write' on \"victim\"",
        ),
        (
            Method::PUT,
            "/v1/catalog/register".to_owned(),
            json!({"Node": "mine", "ID": id, "Address": "10.0.0.2"}),
            403,
            "lacks permission 'node:write'",
        ),
    ];
    holds[follower].send_replace(true);
    let less = json!({"Name": "all", "Rules": "node \"mine\" { policy = \"write\" }"});
    let path = format!("/v1/acl/policy/{policy}");
    let withdrawn = guarded.ask(leader, &guarded.root, Method::PUT, &path, less).await;
    assert_eq!(withdrawn.status, 200, "{withdrawn:?}");
    let asked = &guarded;
    let asking = cases.iter().map(|case| async move {
        let (method, path, body, ..) = case;
        (case, asked.ask(follower, token, method.clone(), path, body).await)
    });
    let mut asking: FuturesUnordered<_> = asking.collect();
    let early = tokio::time::timeout(REACHED, asking.next()).await;
    assert!(early.is_err(), "none is answered by a state of before: {early:?}");
    holds[follower].send_replace(false);
    while let Some(((_, path, body, status, text), answer)) = within("an answer", asking.next()).await {
        assert_eq!(answer.status, *status, "{path} {body}: {answer:?}");
        assert!(answer.text.contains(text), "{path} {body}: {answer:?}");
        for hidden in ["exist", "hidden", "on \"mine\"", "No such"] {
            assert!(!answer.text.contains(hidden), "{path} {body}: {answer:?}");
        }
        let is_named = answer.text.contains("victim");
        assert_eq!(is_named, body["Node"] == "victim", "only the name of the request: {answer:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_token_is_known_to_a_member_that_hears_of_it_late() {
    let (guarded, holds) = Guarded::start_held().await;
    let (leader, follower) = (guarded.cluster.leader().await, guarded.follower);
    guarded.done(Method::PUT, "/v1/kv/a", "1").await;
    let policy = guarded.policy("a", "key \"a\" { policy = \"read\" }").await;
    guarded.settled(follower).await;
    holds[follower].send_replace(true);
    let body = json!({"Policies": [{"ID": policy}]});
    let made = guarded.ask(leader, &guarded.root, Method::PUT, "/v1/acl/token", body).await;
    assert_eq!(made.status, 200, "{made:?}");
    let token = made.json["SecretID"].as_str().unwrap();
    let asked = &guarded;
    let mut asking = FuturesUnordered::new();
    for path in ["/v1/kv/a?stale", "/v1/acl/token/self"] {
        let answer = asked.ask(follower, token, Method::GET, path, "");
        asking.push(async move { (path, answer.await.status == 200) }.boxed_local());
    }
    let range = async {
        let mut kv = asked.cluster.kv(follower);
        ("etcd", kv.range(by(token, get_local("consul/kv/a"))).await.is_ok())
    };
    asking.push(range.boxed_local());
    let subscribe = async {
        let mut request = health("web");
        request.token = token.to_owned();
        ("subscribe", Subscriber::open(&asked.cluster, follower, request).await.is_ok())
    };
    asking.push(subscribe.boxed_local());
    let early = tokio::time::timeout(REACHED, asking.next()).await;
    assert!(early.is_err(), "none is refused by a state of before: {early:?}");
    holds[follower].send_replace(false);
    while let Some((what, is_admitted)) = within("an answer", asking.next()).await {
        assert!(is_admitted, "{what}");
    }
    let unknown = guarded.ask(follower, "no-such-secret", Method::GET, "/v1/kv/a", "").await;
    assert_eq!((unknown.status, unknown.text.as_str()), (403, "ACL not found"));
}
