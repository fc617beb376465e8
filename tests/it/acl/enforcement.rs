//! The rights of a token on Consul's faces, on each member: keys, transactions, sessions, catalog,
//! health, agent, DNS.

use std::time::Duration;

use headwater::node::{Consistency, NodeError, Principal, RequestContext, Secret};
use headwater::pb::etcdserverpb as pb;
use headwater::pb::etcdserverpb::auth_client::AuthClient;
use headwater::pb::etcdserverpb::lease_client::LeaseClient;
use headwater::pb::etcdserverpb::maintenance_client::MaintenanceClient;
use headwater::pb::google::watcher::v1 as pbwatcher;
use headwater::pb::google::watcher::v1::watcher_client::WatcherClient;
use headwater::pb::headwater_v1::GetVersionsRequest;
use headwater::pb::headwater_v1::versions_client::VersionsClient;
use headwater::types::acl::{AclPolicy, AclRow};
use headwater::types::{Access, Feature, LeaseId, Refusal, Space, Version};
use http::Method;
use serde_json::{Value, json};

use super::{Guarded, allowing};
use crate::auth::{by, channel, enable_auth_as};
use crate::cluster::{Cluster, Settings, get, put, wait_until};
use crate::consul_http::ask;
use crate::dns::client::service_lines;

#[tokio::test(flavor = "multi_thread")]
async fn keys_need_rights_to_each_path() {
    let guarded = Guarded::start().await;
    let rules = "key_prefix \"app/\" { policy = \"write\" }\nkey \"app/secret\" { policy = \"deny\" }\n\
                 key_prefix \"shared/\" { policy = \"read\" }";
    let (accessor, token) = guarded.token("app", rules).await;
    for path in ["app/a", "app/secret", "shared/s", "other"] {
        guarded.done(Method::PUT, &format!("/v1/kv/{path}"), "1").await;
    }
    for member in guarded.cluster.running() {
        for (method, path, status) in [
            (Method::GET, "/v1/kv/app/a", 200),
            (Method::GET, "/v1/kv/app/none", 404),
            (Method::GET, "/v1/kv/app/secret", 403),
            (Method::GET, "/v1/kv/other", 403),
            (Method::GET, "/v1/kv/none", 403),
            (Method::PUT, "/v1/kv/app/a", 200),
            (Method::PUT, "/v1/kv/app/a?cas=0", 200),
            (Method::PUT, "/v1/kv/shared/s", 403),
            (Method::DELETE, "/v1/kv/shared/s", 403),
            (Method::DELETE, "/v1/kv/app/b", 200),
            (Method::DELETE, "/v1/kv/app/?recurse", 403),
            (Method::DELETE, "/v1/kv/app/b/?recurse", 200),
            (Method::PUT, "/v1/kv/app/secret?acquire=00000000-0000-0000-0000-000000000009", 403),
        ] {
            let answer = guarded.ask(member, &token, method.clone(), path, "2").await;
            assert_eq!(answer.status, status, "{method} {path}: {answer:?}");
        }
        let answer = guarded.ask(member, &token, Method::GET, "/v1/kv/other", "").await;
        let wanted =
            format!("Permission denied: token with AccessorID '{accessor}' lacks permission 'key:read' on \"other\"");
        assert_eq!(answer.text, wanted);
        let answer = guarded.ask(member, &token, Method::GET, "/v1/kv/?keys", "").await;
        assert_eq!(answer.json, json!(["app/a", "shared/s"]));
        assert_eq!(answer.headers["x-consul-results-filtered-by-acls"], "true");
        assert_eq!(answer.headers["x-consul-default-acl-policy"], "deny");
        let answer = guarded.ask(member, &token, Method::GET, "/v1/kv/shared/?recurse", "").await;
        assert_eq!(answer.json.as_array().map(Vec::len), Some(1));
        assert!(!answer.headers.contains_key("x-consul-results-filtered-by-acls"));
        // The answer to a request without a token does not say that rows were filtered out.
        let answer = guarded.ask(member, "", Method::GET, "/v1/kv/?recurse", "").await;
        assert_eq!(answer.status, 404);
        assert!(!answer.headers.contains_key("x-consul-results-filtered-by-acls"));
    }
    // A request can have the secret in three places.
    let query = format!("/v1/kv/app/a?token={token}");
    assert_eq!(guarded.ask(guarded.follower, "", Method::GET, &query, "").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_of_keys_are_judged_by_whole_paths() {
    let guarded = Guarded::start().await;
    for path in ["deep/a/b", "deep/c", "other/a"] {
        guarded.done(Method::PUT, &format!("/v1/kv/{path}"), "1").await;
    }
    let (_, token) = guarded.token("one", "key \"deep/a/b\" { policy = \"read\" }").await;
    for member in guarded.cluster.running() {
        for (path, wanted) in [
            ("/v1/kv/?keys&separator=/", json!(["deep/"])),
            ("/v1/kv/deep/?keys&separator=/", json!(["deep/a/"])),
            ("/v1/kv/deep/?keys", json!(["deep/a/b"])),
            ("/v1/kv/other/?keys", json!(null)),
            ("/v1/kv/other/?recurse", json!(null)),
        ] {
            let answer = guarded.ask(member, &token, Method::GET, path, "").await;
            assert_eq!(answer.json, wanted, "{path}: {answer:?}");
            if answer.status == 200 {
                assert_eq!(answer.headers["x-consul-results-filtered-by-acls"], "true", "{path}");
            }
        }
    }
    // A prefix of which nothing may be read keeps its index when something is written below.
    let index = async || guarded.ask(guarded.follower, &token, Method::GET, "/v1/kv/other/?keys", "").await.index();
    let before = index().await;
    guarded.done(Method::PUT, "/v1/kv/other/b", "1").await;
    assert_eq!(index().await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_is_judged_by_each_operation() {
    let guarded = Guarded::start().await;
    let (_, token) = guarded.token("app", "key_prefix \"app/\" { policy = \"write\" }").await;
    let body = json!([
        {"KV": {"Verb": "set", "Key": "app/a", "Value": "MQ=="}},
        {"KV": {"Verb": "set", "Key": "other", "Value": "MQ=="}},
        {"Node": {"Verb": "set", "Node": {"Node": "n", "Address": "10.0.0.1"}}},
    ]);
    for member in guarded.cluster.running() {
        let answer = guarded.ask(member, &token, Method::PUT, "/v1/txn", &body).await;
        assert_eq!(answer.status, 409);
        let errors = answer.json["Errors"].as_array().unwrap();
        let faults: Vec<_> = errors.iter().map(|error| error["OpIndex"].as_u64().unwrap()).collect();
        assert_eq!(faults, [1, 2]);
        let what = errors[0]["What"].as_str().unwrap();
        assert!(what.ends_with("lacks permission 'key:write' on \"other\""), "{what}");
        let answer =
            guarded.ask(member, &token, Method::PUT, "/v1/txn", json!([{"KV": {"Verb": "get", "Key": "app/a"}}])).await;
        assert_eq!(answer.status, 409, "nothing was written: {answer:?}");
        assert_eq!(answer.json["Errors"][0]["What"], "failed to get key \"app/a\": key doesn't exist");
    }
    let answer = guarded.ask(guarded.follower, &token, Method::PUT, "/v1/txn", json!([body[0]])).await;
    assert_eq!(answer.status, 200, "{answer:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_catalog_shows_what_a_token_may_read_and_takes_what_it_may_write() {
    let guarded = Guarded::start().await;
    guarded.register("n1", "web").await;
    guarded.register("n2", "db").await;
    let rules = "node \"n1\" { policy = \"read\" }\nservice \"web\" { policy = \"write\" }\nservice \"db\" { policy = \"read\" }";
    let (_, token) = guarded.token("web", rules).await;
    for member in guarded.cluster.running() {
        let get = async |path: &str| guarded.ask(member, &token, Method::GET, path, "").await;
        let names = |value: &Value, member: &str| -> Vec<String> {
            value.as_array().unwrap().iter().map(|it| it[member].as_str().unwrap().to_owned()).collect()
        };
        let nodes = get("/v1/catalog/nodes").await;
        assert_eq!(names(&nodes.json, "Node"), ["n1"]);
        assert_eq!(nodes.headers["x-consul-results-filtered-by-acls"], "true");
        assert_eq!(get("/v1/catalog/services").await.json, json!({"db": [], "web": []}));
        assert_eq!(names(&get("/v1/catalog/service/web").await.json, "Node"), ["n1"]);
        // The service may be read, its node may not.
        let hidden = get("/v1/health/service/db").await;
        assert_eq!((hidden.status, &hidden.json), (200, &json!([])));
        assert_eq!(hidden.headers["x-consul-results-filtered-by-acls"], "true");
        assert_eq!(get("/v1/health/service/web").await.json.as_array().map(Vec::len), Some(1));
        assert_eq!(get("/v1/catalog/node/n2").await.json, Value::Null);
        assert_eq!(get("/v1/catalog/node/n1").await.json["Services"]["web"]["Service"], "web");
        assert_eq!(names(&get("/v1/health/state/any").await.json, "CheckID"), ["service:web"]);
        assert_eq!(get("/v1/health/node/n2").await.json, json!([]));
        assert_eq!(get("/v1/health/checks/db").await.json, json!([]));
        for (body, status) in [
            // The node's row stays as it is, so the right to the service is enough.
            (json!({"Node": "n1", "Address": "10.0.0.1", "Service": {"Service": "web", "Port": 81}}), 200),
            (json!({"Node": "n1", "Address": "10.0.0.2", "Service": {"Service": "web"}}), 403),
            (json!({"Node": "n3", "Address": "10.0.0.3", "Service": {"Service": "web"}}), 403),
            (json!({"Node": "n1", "Address": "10.0.0.1", "Service": {"Service": "db"}}), 403),
            // Another service's instance does not become this one's.
            (json!({"Node": "n2", "Address": "10.0.0.1", "Service": {"Service": "web", "ID": "db"}}), 403),
            (json!({"Node": "n1", "Address": "10.0.0.1", "Check": {"Name": "c", "Status": "critical"}}), 403),
            (
                json!({"Node": "n1", "Address": "10.0.0.1", "Check": {"Name": "c", "ServiceID": "web", "Status": "passing"}}),
                200,
            ),
        ] {
            let answer = guarded.ask(member, &token, Method::PUT, "/v1/catalog/register", &body).await;
            assert_eq!(answer.status, status, "{body}: {answer:?}");
        }
        for (body, status) in [
            (json!({"Node": "n1"}), 403),
            (json!({"Node": "n2", "ServiceID": "db"}), 403),
            (json!({"Node": "n2", "ServiceID": "none"}), 403),
            (json!({"Node": "n1", "CheckID": "c"}), 200),
        ] {
            let answer = guarded.ask(member, &token, Method::PUT, "/v1/catalog/deregister", &body).await;
            assert_eq!(answer.status, status, "{body}: {answer:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_is_not_taken_over_by_its_id() {
    let guarded = Guarded::start().await;
    let id = "11111111-2222-3333-4444-555555555555";
    let victim = json!({"Node": "victim", "ID": id, "Address": "10.0.0.1", "Service": {"Service": "db"}});
    guarded.done(Method::PUT, "/v1/catalog/register", victim).await;
    let (_, token) = guarded.token("mine", "node \"mine\" { policy = \"write\" }").await;
    let (_, web) = guarded.token("web", "service \"web\" { policy = \"write\" }").await;
    for member in guarded.cluster.running() {
        for skips in [true, false] {
            let body = json!({"Node": "mine", "ID": id, "Address": "6.6.6.6", "SkipNodeUpdate": skips});
            let answer = guarded.ask(member, &token, Method::PUT, "/v1/catalog/register", body).await;
            assert_eq!(answer.status, 403, "{answer:?}");
            assert!(!answer.text.contains("victim"), "{answer:?}");
        }
        // A node that is missing is written, so the right to a service is not enough.
        let body = json!({"Node": "new", "Address": "6.6.6.6", "SkipNodeUpdate": true, "Service": {"Service": "web"}});
        let answer = guarded.ask(member, &web, Method::PUT, "/v1/catalog/register", body).await;
        assert_eq!(answer.status, 403, "{answer:?}");
    }
    let found = guarded.done(Method::GET, "/v1/catalog/node/victim", "").await;
    assert_eq!((&found["Node"]["Address"], &found["Services"]["db"]["Service"]), (&json!("10.0.0.1"), &json!("db")));
    assert_eq!(guarded.done(Method::GET, "/v1/catalog/node/mine", "").await, json!(null));
    let body = json!({"Node": "mine", "Address": "10.0.0.2", "SkipNodeUpdate": true});
    let answer = guarded.ask(guarded.follower, &token, Method::PUT, "/v1/catalog/register", body).await;
    assert_eq!(answer.status, 200, "{answer:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_belong_to_nodes() {
    let guarded = Guarded::start().await;
    guarded.register("n1", "web").await;
    guarded.register("n2", "db").await;
    let (_, token) = guarded.token("n1", "session \"N1\" { policy = \"write\" }").await;
    let ask = async |method, path: &str, body: Value| guarded.ask(guarded.follower, &token, method, path, body).await;
    let make = async |node: &str| ask(Method::PUT, "/v1/session/create", json!({"Node": node})).await;
    let own = make("n1").await;
    assert_eq!(own.status, 200, "{own:?}");
    assert_eq!(make("n2").await.status, 403);
    let other = guarded.done(Method::PUT, "/v1/session/create", json!({"Node": "n2"})).await;
    let (own, other) = (own.json["ID"].as_str().unwrap(), other["ID"].as_str().unwrap());
    let listed = ask(Method::GET, "/v1/session/list", Value::Null).await;
    assert_eq!((listed.json.as_array().map(Vec::len), &listed.json[0]["ID"]), (Some(1), &json!(own)));
    assert_eq!(ask(Method::GET, &format!("/v1/session/info/{other}"), Value::Null).await.json, json!([]));
    for (verb, session, status) in
        [("renew", other, 403), ("destroy", other, 403), ("renew", own, 200), ("destroy", own, 200)]
    {
        let answer = ask(Method::PUT, &format!("/v1/session/{verb}/{session}"), Value::Null).await;
        assert_eq!(answer.status, status, "{verb}: {answer:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_takes_services_that_a_token_may_write() {
    let guarded = Guarded::start().await;
    let body = json!({
        "ServiceIdentities": [{"ServiceName": "web"}],
    });
    let made = guarded.done(Method::PUT, "/v1/acl/token", body).await;
    let token = made["SecretID"].as_str().unwrap();
    let member = guarded.follower;
    for (method, path, body, status) in [
        (Method::PUT, "/v1/agent/service/register", json!({"Name": "web", "Check": {"TTL": "60s"}}), 200),
        (Method::PUT, "/v1/agent/service/register", json!({"Name": "web-sidecar-proxy"}), 200),
        (Method::PUT, "/v1/agent/service/register", json!({"Name": "db"}), 403),
        (Method::PUT, "/v1/agent/service/register", json!({"Name": "db", "ID": "web"}), 403),
        (Method::PUT, "/v1/agent/check/pass/service:web", json!({}), 200),
        (Method::PUT, "/v1/agent/check/register", json!({"Name": "c", "TTL": "60s"}), 403),
        (Method::PUT, "/v1/agent/check/register", json!({"Name": "c", "TTL": "60s", "ServiceID": "web"}), 200),
        (Method::PUT, "/v1/agent/maintenance?enable=true", json!({}), 403),
        (Method::PUT, "/v1/agent/service/maintenance/web?enable=true", json!({}), 200),
        (Method::GET, "/v1/agent/service/web", json!({}), 200),
        (Method::GET, "/v1/agent/self", json!({}), 403),
        (Method::PUT, "/v1/agent/service/deregister/web", json!({}), 200),
    ] {
        let answer = guarded.ask(member, token, method, path, &body).await;
        assert_eq!(answer.status, status, "{path} {body}: {answer:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_do_not_tell_of_stored_names() {
    let guarded = Guarded::start().await;
    let member = guarded.follower;
    let secret = json!({"Name": "hidden-name", "ID": "s", "Check": {"TTL": "60s"}});
    guarded.done(Method::PUT, "/v1/agent/service/register", secret).await;
    let session = guarded.done(Method::PUT, "/v1/session/create", json!({})).await;
    let session = session["ID"].as_str().unwrap();
    let own_node = guarded.cluster.node(member).name().to_owned();
    let (_, token) = guarded.token("web", "service \"web\" { policy = \"write\" }").await;
    let ask = async |method: &Method, path: &str, body: &Value| {
        let answer = guarded.ask(member, &token, method.clone(), path, body).await;
        assert!(!answer.text.contains("hidden-name"), "{path}: {answer:?}");
        (answer.status, answer.text)
    };
    // The answer does not depend on the existence of the service or check.
    for (method, path, body) in [
        (Method::GET, "/v1/agent/service/s", json!({})),
        (Method::PUT, "/v1/agent/service/deregister/s", json!({})),
        (Method::PUT, "/v1/agent/service/maintenance/s?enable=true", json!({})),
        (Method::GET, "/v1/agent/health/service/id/s", json!({})),
        (Method::PUT, "/v1/agent/check/pass/service:s", json!({})),
        (Method::PUT, "/v1/agent/check/deregister/service:s", json!({})),
        (Method::PUT, "/v1/agent/check/register", json!({"Name": "c", "TTL": "60s", "ServiceID": "s"})),
        (Method::PUT, "/v1/catalog/deregister", json!({"Node": own_node, "ServiceID": "s"})),
        (Method::PUT, "/v1/txn", json!([{"Service": {"Verb": "delete", "Service": {"ID": "s"}, "Node": own_node}}])),
    ] {
        let there = ask(&method, path, &body).await;
        let other: Value = serde_json::from_str(&body.to_string().replace("\"s\"", "\"none\"")).unwrap();
        let other_path = match path.contains("service:s") {
            true => path.replace("service:s", "none"),
            false => path.replace("/s", "/none").replace("/noneervice", "/service"),
        };
        let absent = ask(&method, &other_path, &other).await;
        assert!([403, 404, 409].contains(&there.0), "{path}: {there:?}");
        assert_eq!(
            (
                there.0,
                there
                    .1
                    .replace("service:s", "none")
                    .replace("\\\"s\\\"", "\\\"none\\\"")
                    .replace("\"s\"", "\"none\"")
                    .replace("Id s ", "Id none ")
            ),
            absent
        );
    }
    let (status, text) = ask(&Method::PUT, "/v1/agent/service/register", &json!({"Name": "web", "ID": "s"})).await;
    assert_eq!(status, 403, "{text}");
    let absent = "99999999-2222-3333-4444-555555555555";
    for token in ["", &token] {
        for verb in ["renew", "destroy"] {
            let ask = async |session: &str| {
                let path = format!("/v1/session/{verb}/{session}");
                let answer = guarded.ask(member, token, Method::PUT, &path, "").await;
                (answer.status, answer.text)
            };
            let there = ask(session).await;
            assert!(there.0 == 403 && !there.1.contains(&own_node), "{there:?}");
            assert!(there.1.contains("lacks permission 'session:write'"), "{there:?}");
            assert_eq!(ask(absent).await, there, "{verb}");
        }
    }
    // A right to some session is enough to learn that there is none.
    let (_, other) = guarded.token("other", "session \"other\" { policy = \"write\" }").await;
    for (verb, status) in [("renew", 404), ("destroy", 200)] {
        let answer = guarded.ask(member, &other, Method::PUT, &format!("/v1/session/{verb}/{absent}"), "").await;
        assert_eq!(answer.status, status, "{verb}: {answer:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn dns_questions_stand_for_the_anonymous_token() {
    let guarded = Guarded::start().await;
    guarded.register("n1", "web").await;
    let asked =
        async |member: usize| service_lines(guarded.cluster.dns_address(member), "web.service.consul.").await.len();
    let seen = async |lines: usize| {
        for member in guarded.cluster.running() {
            while asked(member).await != lines {
                tokio::task::yield_now().await;
            }
        }
    };
    crate::cluster::within("nothing is seen", seen(1)).await;
    guarded.policy("dns", "node_prefix \"\" { policy = \"read\" }\nservice_prefix \"\" { policy = \"read\" }").await;
    let path = "/v1/acl/token/00000000-0000-0000-0000-000000000002";
    guarded.done(Method::PUT, path, json!({"Policies": [{"Name": "dns"}]})).await;
    crate::cluster::within("the service is seen", seen(2)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_no_rule_speaks_of_is_the_default() {
    let guarded = Guarded::start_with(allowing).await;
    let (_, token) = guarded.token("not-here", "key_prefix \"secret/\" { policy = \"deny\" }").await;
    for (path, status) in [("/v1/kv/other", 200), ("/v1/kv/secret/a", 403), ("/v1/acl/policy", 403)] {
        let answer = guarded.ask(guarded.follower, &token, Method::PUT, path, "{}").await;
        assert_eq!(answer.status, status, "{path}: {answer:?}");
        assert!(answer.headers.get("x-consul-default-acl-policy").is_none_or(|policy| policy == "allow"));
    }
    assert_eq!(guarded.ask(guarded.follower, "", Method::PUT, "/v1/kv/secret/a", "1").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_principal_without_a_token_has_the_rights_of_the_anonymous_one() {
    let guarded = Guarded::start().await;
    let node = guarded.cluster.node(guarded.follower);
    for principal in [Principal::Anonymous, Principal::Certificate("ada".into()), Principal::Bearer(Secret::new(""))] {
        let ctx = RequestContext { principal, ..RequestContext::within(Duration::from_secs(1)) };
        let authorizer = node.authorizer(&ctx).unwrap();
        assert!(!authorizer.is_open() && !authorizer.allows(Space::Kv, b"consul/kv/a", Access::READ), "{ctx:?}");
        assert!(!authorizer.allows(Space::Kv, b"etcd", Access::READ), "{ctx:?}");
    }
    assert!(node.authorizer(&RequestContext::system(Duration::from_secs(1))).unwrap().is_open());
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_allowed_by_default_while_users_are_asked_for() {
    let guarded = Guarded::start_with(allowing).await;
    let cluster = &guarded.cluster;
    let (_, ruled) = guarded.token("etcd", "key_prefix \"a/\" { policy = \"read\" }").await;
    cluster.kv(0).put(put("x/1", "v")).await.unwrap();
    guarded.done(Method::PUT, "/v1/kv/a/1", "v").await;
    let (root, user) = enable_auth_as(cluster, &guarded.root).await;
    let mut auth = AuthClient::new(channel(cluster, 0).await);
    for member in cluster.running() {
        guarded.settled(member).await;
        let mut kv = cluster.kv(member);
        for refused in [kv.range(get("x/1")).await.map(drop), kv.put(put("x/1", "w")).await.map(drop)] {
            assert_eq!(refused.unwrap_err().message(), "etcdserver: user name is empty");
        }
        let mut lease = LeaseClient::new(channel(cluster, member).await);
        let refused = lease.lease_grant(pb::LeaseGrantRequest { ttl: 60, id: 0 }).await.unwrap_err();
        assert_eq!(refused.message(), "etcdserver: user name is empty");
        let refused = kv.range(by(&ruled, get("x/1"))).await.unwrap_err();
        assert_eq!(refused.message(), "etcdserver: permission denied", "no rule speaks of it");
        kv.range(by(&ruled, get("consul/kv/a/1"))).await.unwrap();
        let refused = kv.range(by(&user, get("x/1"))).await.unwrap_err();
        assert_eq!(refused.message(), "etcdserver: permission denied");
        for token in [&root, &guarded.root] {
            kv.range(by(token, get("x/1"))).await.unwrap();
        }
        let answer = guarded.ask(member, "", Method::GET, "/v1/kv/a/1", "").await;
        assert_eq!(answer.status, 403, "{answer:?}");
        let answer = guarded.ask(member, &guarded.root, Method::GET, "/v1/catalog/nodes", "").await;
        assert_eq!(answer.headers["x-consul-default-acl-policy"], "deny");
    }
    auth.auth_disable(by(&root, pb::AuthDisableRequest {})).await.unwrap();
    for member in cluster.running() {
        guarded.settled(member).await;
        cluster.kv(member).range(get("x/1")).await.unwrap();
        let answer = guarded.ask(member, "", Method::GET, "/v1/kv/a/1", "").await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let answer = guarded.ask(member, "", Method::GET, "/v1/catalog/nodes", "").await;
        assert_eq!(answer.headers["x-consul-default-acl-policy"], "allow");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_anonymous_token_is_nobody_whatever_it_may_read() {
    let guarded = Guarded::start().await;
    guarded.policy("keys", "key_prefix \"\" { policy = \"write\" }\nnode_prefix \"\" { policy = \"read\" }").await;
    let path = "/v1/acl/token/00000000-0000-0000-0000-000000000002";
    guarded.done(Method::PUT, path, json!({"Policies": [{"Name": "keys"}]})).await;
    let (_, named) = guarded.token("nothing", "").await;
    let cluster = &guarded.cluster;
    let free = by(&guarded.root, pb::LeaseGrantRequest { ttl: 600, id: 0 });
    let free = LeaseClient::new(channel(cluster, 0).await).lease_grant(free).await.unwrap().into_inner().id;
    for member in cluster.running() {
        guarded.settled(member).await;
        let own = cluster.kv(member).put(put("consul/kv/a", "v")).await;
        own.expect("the anonymous token may write keys");
        let (mut lease, mut members) = (LeaseClient::new(channel(cluster, member).await), cluster.members(member));
        let mut maintenance = MaintenanceClient::new(channel(cluster, member).await);
        let mut versions = VersionsClient::new(channel(cluster, member).await);
        let mut watcher = WatcherClient::new(channel(cluster, member).await);
        let target = pbwatcher::Request { target: "/cluster".to_owned(), resume_marker: "".into() };
        let standing = pb::LeaseTimeToLiveRequest { id: free, keys: false };
        for token in ["", &named] {
            let answers = [
                lease.lease_grant(by(token, pb::LeaseGrantRequest { ttl: 60, id: 0 })).await.map(drop),
                lease.lease_time_to_live(by(token, standing)).await.map(drop),
                members.member_list(by(token, pb::MemberListRequest { linearizable: true })).await.map(drop),
                maintenance.alarm(by(token, pb::AlarmRequest::default())).await.map(drop),
                maintenance.status(by(token, pb::StatusRequest {})).await.map(drop),
                versions.get_versions(by(token, GetVersionsRequest::default())).await.map(drop),
                watcher.watch(by(token, target.clone())).await.map(drop),
            ];
            for (number, answer) in answers.into_iter().enumerate() {
                let code = answer.as_ref().err().map(tonic::Status::code);
                let wanted = token.is_empty().then_some(tonic::Code::PermissionDenied);
                assert_eq!(code, wanted, "call {number} with {token:?} on {member}: {answer:?}");
            }
        }
        // Consul's faces list members to a request without a token, as Consul does.
        let answer = guarded.ask(member, "", Method::GET, "/v1/agent/members", "").await;
        assert_eq!(answer.json.as_array().map(Vec::len), Some(3), "{answer:?}");
        let answer = guarded.ask(member, "", Method::GET, "/v1/status/leader", "").await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let refused = lease.lease_revoke(pb::LeaseRevokeRequest { id: free }).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::PermissionDenied, "it has no keys");
        // Calls to the node itself, not through an API, which would check rights first.
        let (node, ctx) = (cluster.node(member), RequestContext::within(Duration::from_secs(10)));
        for answer in [
            node.members().list(&ctx, Consistency::Serializable).await.map(drop),
            node.maintenance().alarms(&ctx, Consistency::Serializable).await.map(drop),
            node.versions().read(&ctx, Consistency::Serializable).await.map(drop),
            node.leases().list(&ctx, Consistency::Serializable).await.map(drop),
            node.leases().grant(&ctx, LeaseId::NONE, 60).await.map(drop),
        ] {
            assert!(matches!(answer, Err(NodeError::Refused(Refusal::Auth(_)))), "{answer:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_that_cannot_be_read_takes_all_rights_from_its_tokens() {
    let guarded = Guarded::start_with(allowing).await;
    let node = guarded.cluster.node(guarded.follower);
    let context = RequestContext::system(Duration::from_secs(30));
    let policy = AclPolicy {
        id: "5d4f7a52-7d0c-4b43-9a0e-0b6a5f0a4a11".to_owned(),
        name: "newer".to_owned(),
        rules: "key_prefix \"secret/\" { policy = \"hidden\" }".to_owned(),
        ..AclPolicy::default()
    };
    node.acl().put(&context, AclRow::Policy(Box::new(policy)), true).await.unwrap();
    guarded.policy("keys", "key_prefix \"secret/\" { policy = \"write\" }").await;
    for policies in [
        json!([{"Name": "newer"}]),
        json!([{"Name": "newer"}, {"Name": "keys"}]),
        json!([{"Name": "newer"}, {"Name": "global-management"}]),
    ] {
        let made = guarded.done(Method::PUT, "/v1/acl/token", json!({"Policies": policies})).await;
        let token = made["SecretID"].as_str().unwrap();
        for member in guarded.cluster.running() {
            guarded.settled(member).await;
            for path in ["/v1/kv/secret/a", "/v1/kv/other"] {
                let answer = guarded.ask(member, token, Method::PUT, path, "1").await;
                assert_eq!(answer.status, 403, "{policies} {path}: {answer:?}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_of_a_version_without_lists_takes_writes() {
    let cluster = Cluster::start(Settings { members: 1, acl: allowing, ..Settings::calm() }).await;
    let node = cluster.node(0);
    wait_until("the cluster rises", async || Feature::Acl.is_in(node.versions().cluster().version)).await;
    let context = RequestContext::system(Duration::from_secs(30));
    node.versions().enable_downgrade(&context, Version::V0_3).await.unwrap();
    assert!(!Feature::Acl.is_in(node.versions().cluster().version));
    cluster.kv(0).put(put("k", "v")).await.unwrap();
    let refused = ask(&cluster, 0, Method::PUT, "/v1/acl/bootstrap", "").await;
    assert_ne!(refused.status, 200, "changes of the lists are too new");
}
