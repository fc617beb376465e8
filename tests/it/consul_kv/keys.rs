//! The endpoints of `/v1/kv`, row by row of the table in the spec, and transactions.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use super::{call, get, put};
use crate::cluster::{self, Cluster, wait_until};

#[tokio::test(flavor = "multi_thread")]
async fn every_row_of_the_table_on_any_member() {
    let cluster = Cluster::three().await;
    // A missing key has a query index, too.
    let missing = get(&cluster, 0, "kv/web/motd").await;
    assert_eq!((missing.status, missing.body.len()), (404, 0));
    assert!(missing.index() >= 1);
    assert_eq!(missing.headers["x-consul-knownleader"], "true");

    assert_eq!(put(&cluster, 1, "kv/web/motd?flags=18446744073709551615", "hi").await, json!(true));
    let found = get(&cluster, 2, "kv/web/motd").await;
    let entry = &found.json()[0];
    let index = found.index();
    assert_eq!(
        *entry,
        json!({
            "LockIndex": 0, "Key": "web/motd", "Flags": u64::MAX, "Value": "aGk=", "CreateIndex": index, "ModifyIndex": index
        })
    );
    let raw = get(&cluster, 0, "kv/web/motd?raw").await;
    assert_eq!((raw.text(), raw.headers["content-type"].to_str().unwrap()), ("hi", "text/plain"));
    assert_eq!(raw.headers["x-content-type-options"], "nosniff");
    assert_eq!(raw.headers["content-security-policy"], "sandbox");

    // An etcd client reads the raw value, and its writes are read here.
    let kvs = cluster.kv(0).range(cluster::get("consul/kv/web/motd")).await.unwrap().into_inner().kvs;
    assert_eq!(kvs[0].value, "hi");
    cluster.kv(2).put(cluster::put("consul/kv/web/motd", "etcd")).await.unwrap();
    let entry = &get(&cluster, 1, "kv/web/motd").await.json()[0];
    assert_eq!((&entry["Flags"], &entry["Value"]), (&json!(0), &json!(STANDARD.encode("etcd"))));
    assert_eq!(entry["CreateIndex"], index);

    // An empty value is null.
    put(&cluster, 0, "kv/web/empty", "").await;
    assert_eq!(get(&cluster, 0, "kv/web/empty").await.json()[0]["Value"], json!(null));
    for path in ["kv/a", "kv/web/x/1", "kv/web/x/2"] {
        put(&cluster, 1, path, "v").await;
    }
    let all = get(&cluster, 2, "kv/web?recurse").await;
    let paths: Vec<_> = all.json().as_array().unwrap().iter().map(|entry| entry["Key"].clone()).collect();
    assert_eq!(paths, ["web/empty", "web/motd", "web/x/1", "web/x/2"]);
    assert_eq!(get(&cluster, 2, "kv/?keys").await.json().as_array().unwrap().len(), 5);
    for spelling in ["separator", "seperator"] {
        let keys = get(&cluster, 0, &format!("kv/?keys&{spelling}=/")).await;
        assert_eq!(keys.json(), json!(["a", "web/"]));
    }
    assert_eq!(get(&cluster, 0, "kv/web/?keys&separator=/").await.json(), json!(["web/empty", "web/motd", "web/x/"]));
    for path in ["kv/nothing?recurse", "kv/nothing?keys"] {
        let none = get(&cluster, 1, path).await;
        assert_eq!((none.status, none.body.len()), (404, 0), "{path}");
    }

    // Conditional writes.
    let modified = get(&cluster, 0, "kv/a").await.index();
    assert_eq!(put(&cluster, 1, "kv/a?cas=0", "w").await, json!(false));
    assert_eq!(put(&cluster, 1, &format!("kv/a?cas={}", modified + 1), "w").await, json!(false));
    assert_eq!(put(&cluster, 1, &format!("kv/a?cas={modified}"), "w").await, json!(true));
    assert_eq!(put(&cluster, 1, "kv/new?cas=0", "w").await, json!(true));
    let delete = async |path: &str| call(&cluster, 2, "DELETE", path, "").await;
    assert_eq!(delete(&format!("kv/a?cas={modified}")).await.json(), json!(false));
    let modified = get(&cluster, 0, "kv/a").await.index();
    assert_eq!(delete(&format!("kv/a?cas={modified}")).await.json(), json!(true));
    assert_eq!(delete("kv/a").await.json(), json!(true));
    assert_eq!(delete("kv/web?recurse").await.json(), json!(true));
    assert_eq!(get(&cluster, 1, "kv/?keys").await.json(), json!(["new"]));
    assert_eq!(delete("kv/?recurse").await.json(), json!(true));
    assert_eq!(get(&cluster, 1, "kv/?keys").await.json(), json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_makes_no_sense_is_refused_and_changes_nothing() {
    let cluster = Cluster::start(cluster::Settings::alone()).await;
    let largest = vec![b'x'; 512 * 1024];
    assert_eq!(put(&cluster, 0, "kv/large", largest.clone()).await, json!(true));
    let too_large = [&largest[..], b"x"].concat();
    let long_path = format!("kv/{}", "p".repeat(2049));
    let before = get(&cluster, 0, "kv/?recurse").await.body;
    let cases: &[(&str, &str, &[u8], u16, &str)] = &[
        ("GET", "kv/", b"", 400, "Missing key name"),
        ("GET", "kv", b"", 400, "Missing key name"),
        ("PUT", "kv/", b"v", 400, "Missing key name"),
        ("DELETE", "kv/", b"", 400, "Missing key name"),
        ("PUT", "kv/a%00b", b"v", 400, "cannot be printed"),
        ("GET", "kv/a%0Ab", b"", 400, "cannot be printed"),
        ("DELETE", "kv/a%C2%A0b?recurse", b"", 400, "cannot be printed"),
        ("PUT", "kv/k?flags=x", b"v", 400, "?flags"),
        ("PUT", "kv/k?cas=-1", b"v", 400, "?cas"),
        ("PUT", "kv/k?cas=1&acquire=s", b"v", 400, "Conflicting flags: cas, acquire"),
        ("PUT", "kv/k?acquire=s&release=s", b"v", 400, "Conflicting flags: acquire, release"),
        ("DELETE", "kv/k?recurse&cas=1", b"", 400, "Conflicting flags: recurse, cas"),
        ("PUT", "kv/k", &too_large, 413, "too large"),
        ("PUT", &long_path, b"v", 400, "at most 2048 bytes"),
        ("PUT", "kv/k?acquire=no-such-session", b"v", 500, "invalid session"),
        ("PUT", "kv/k?acquire=", b"v", 500, "missing session"),
        ("GET", "kv/k?index=x", b"", 400, "Invalid index"),
        ("GET", "kv/k?wait=x", b"", 400, "Invalid wait time"),
        ("POST", "kv/k", b"v", 405, "not allowed"),
        ("PUT", "txn", b"{}", 400, "wanted a list"),
        ("PUT", "txn", br#"[{"KV":{"Verb":"take","Key":"k"}}]"#, 400, "unknown KV verb"),
        ("GET", "txn", b"", 405, "not allowed"),
        ("PUT", "session/create", br#"{"TTL":"1s"}"#, 400, "Invalid Session TTL"),
        ("PUT", "session/create", br#"{"Node":"no-such-node"}"#, 500, "Missing node registration"),
        ("PUT", "session/create", br#"{"NodeChecks":["no-such-check"]}"#, 500, "Missing check registration"),
        ("PUT", "session/renew/no-such-session", b"", 404, "not found"),
        ("GET", "session/info/", b"", 400, "Missing session"),
    ];
    for &(method, path, body, status, text) in cases {
        let answer = call(&cluster, 0, method, path, body.to_vec()).await;
        assert_eq!(answer.status, status, "{method} {path}: {}", answer.text());
        assert!(answer.text().contains(text), "{method} {path}: {}", answer.text());
    }
    assert_eq!(get(&cluster, 0, "kv/?recurse").await.body, before);
    // A space, letters of any language and bytes that are not UTF-8 are taken.
    assert_eq!(put(&cluster, 0, "kv/%20%C3%A4%E2%82%AC%FF", "v").await, json!(true));
    assert_eq!(get(&cluster, 0, "kv/%20%C3%A4%E2%82%AC%FF?raw").await.text(), "v");
    assert_eq!(get(&cluster, 0, "session/list").await.json(), json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn transactions_do_all_or_nothing() {
    let cluster = Cluster::three().await;
    let follower = cluster.follower().await;
    let done = put(
        &cluster,
        follower,
        "txn",
        json!([
            {"KV": {"Verb": "set", "Key": "a", "Value": STANDARD.encode("1"), "Flags": 7}},
            {"KV": {"Verb": "set", "Key": "b", "Value": STANDARD.encode("2")}},
            {"KV": {"Verb": "get", "Key": "a"}},
            {"KV": {"Verb": "delete", "Key": "b"}},
        ])
        .to_string(),
    )
    .await;
    assert_eq!(done["Errors"], json!(null));
    let results = done["Results"].as_array().unwrap();
    assert_eq!(results.len(), 3, "a delete has nothing to tell");
    let index = results[0]["KV"]["ModifyIndex"].clone();
    assert_eq!(
        results[2]["KV"],
        json!({"LockIndex": 0, "Key": "a", "Flags": 7, "Value": "MQ==", "CreateIndex": index, "ModifyIndex": index})
    );
    assert_eq!(results[0]["KV"]["Value"], json!(null), "what was written is not sent back");

    let refused = call(
        &cluster,
        follower,
        "PUT",
        "txn",
        json!([
            {"KV": {"Verb": "set", "Key": "c", "Value": "MQ=="}},
            {"KV": {"Verb": "cas", "Key": "a", "Value": "MQ==", "Index": 1}},
            {"KV": {"Verb": "check-not-exists", "Key": "a"}},
        ])
        .to_string(),
    )
    .await;
    assert_eq!(refused.status, 409);
    let body = refused.json();
    assert_eq!(body["Results"], json!(null));
    assert_eq!((&body["Errors"][0]["OpIndex"], &body["Errors"][1]["OpIndex"]), (&json!(1), &json!(2)));
    assert!(body["Errors"][0]["What"].as_str().unwrap().contains("index is stale"), "{body}");
    assert_eq!(get(&cluster, 0, "kv/?keys").await.json(), json!(["a"]));

    // A read-only transaction is not replicated. Commands of the members themselves are, and may
    // come in between.
    let committed = || cluster.node(follower).status().unwrap().committed;
    wait_until("nothing is committed meanwhile", async || {
        cluster.hashes().await;
        let before = committed();
        let read = r#"[{"KV":{"Verb":"get-tree","Key":""}}]"#;
        let read = call(&cluster, follower, "PUT", "txn", read).await;
        assert_eq!(read.json()["Results"][0]["KV"]["Key"], "a");
        assert_eq!(read.headers["x-consul-knownleader"], "true");
        assert!(read.headers.contains_key("x-consul-lastcontact") && !read.headers.contains_key("x-consul-index"));
        cluster.hashes().await;
        committed() == before
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_registers_and_writes_at_once() {
    let cluster = Cluster::three().await;
    let ops = json!([
        {"Node": {"Verb": "set", "Node": {"Node": "edge", "Address": "10.0.0.9"}}},
        {"Service": {"Verb": "set", "Node": "edge", "Service": {"Service": "web", "Port": 80}}},
        {"Check": {"Verb": "set", "Check": {"Node": "edge", "CheckID": "alive", "Status": "passing", "ServiceID": "web"}}},
        {"KV": {"Verb": "set", "Key": "deployed", "Value": "MQ=="}},
    ]);
    let done = put(&cluster, 1, "txn", ops.to_string()).await;
    let results = done["Results"].as_array().unwrap();
    let index = results[3]["KV"]["ModifyIndex"].clone();
    assert_eq!((&results[0]["Node"]["Node"], &results[0]["Node"]["ModifyIndex"]), (&json!("edge"), &index));
    assert_eq!((&results[1]["Service"]["ID"], &results[1]["Service"]["CreateIndex"]), (&json!("web"), &index));
    assert_eq!(
        (&results[2]["Check"]["ServiceName"], &results[2]["Check"]["Status"]),
        (&json!("web"), &json!("passing"))
    );
    let health = get(&cluster, 2, "health/service/web?passing").await.json();
    assert_eq!((&health[0]["Node"]["Node"], &health[0]["Service"]["Port"]), (&json!("edge"), &json!(80)));

    // All or nothing: the node is newer than the condition allows.
    let refused = json!([
        {"KV": {"Verb": "delete", "Key": "deployed"}},
        {"Node": {"Verb": "delete-cas", "Node": {"Node": "edge", "ModifyIndex": 1}}},
        {"Service": {"Verb": "get", "Node": "edge", "Service": {"ID": "none"}}},
    ]);
    let answer = call(&cluster, 0, "PUT", "txn", refused.to_string()).await;
    assert_eq!(answer.status, 409, "{}", answer.text());
    let errors = answer.json()["Errors"].clone();
    let what = |at: usize| errors[at]["What"].as_str().unwrap().to_owned();
    assert_eq!(what(0), "failed to delete-cas node \"edge\": index is stale");
    assert_eq!(what(1), "failed to get service \"none\" on node \"edge\": it doesn't exist");
    assert_eq!(get(&cluster, 2, "kv/deployed?raw").await.text(), "1");
    let gone = json!([
        {"Node": {"Verb": "delete-cas", "Node": {"Node": "edge", "ModifyIndex": index}}},
        {"KV": {"Verb": "delete", "Key": "deployed"}},
    ]);
    assert_eq!(put(&cluster, 2, "txn", gone.to_string()).await["Results"], json!([]));
    assert_eq!(get(&cluster, 0, "catalog/node/edge").await.json(), json!(null));
}
