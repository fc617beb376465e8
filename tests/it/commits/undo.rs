//! The command `headwater undo`: the changes that it takes back, those that it leaves, and its
//! questions and messages.

use std::process::Stdio;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::cli::{good, headwater, index};
use super::ready;
use crate::cluster::{Cluster, Settings, wait_until, within};

async fn cluster() -> Cluster {
    let cluster = Cluster::start(Settings::alone()).await;
    ready(&cluster).await;
    cluster
}

/// Commits a document, and returns the index of the commit.
async fn commit(cluster: &Cluster, document: &str) -> u64 {
    let done = headwater(cluster, 0, "commit -f -", document).await;
    assert!(done.is_good, "{}", done.error);
    index(&done.out)
}

/// The output of `headwater show` for an entity, as JSON; empty if the entity does not exist.
async fn shown(cluster: &Cluster, path: &str) -> String {
    headwater(cluster, 0, &format!("show {path}?children=false -w json"), "").await.out
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_owner_comes_back_with_what_it_owned() {
    let cluster = cluster().await;
    good(&cluster, 0, "resource apply -f examples/demo-types.yaml").await;
    // In the order of paths, the album comes before the artist that owns it.
    let artist = "type: demo.v2.Artist\nname: b\ndata: {name: B}\n";
    let album = "type: demo.v2.Album\nname: a\nowner: {type: demo.v2.Artist, name: b}\ndata: {title: A}\n";
    let applied = headwater(&cluster, 0, "resource apply -f -", &format!("{artist}---\n{album}")).await;
    assert!(applied.is_good, "{}", applied.error);
    let then = commit(&cluster, "operations:\n- put: {key: now, value: x}\n").await;
    good(&cluster, 0, "resource delete demo.v2.Artist b").await;
    wait_until("the album is reaped", async || {
        !headwater(&cluster, 0, "resource read demo.v2.Album a", "").await.is_good
    })
    .await;
    good(&cluster, 0, &format!("undo /resources --to {then} --yes")).await;
    let owned = good(&cluster, 0, "resource list-by-owner demo.v2.Artist b").await;
    assert!(owned.contains("demo.v2.Album") && owned.contains(" a"), "{owned}");
    assert_eq!(good(&cluster, 0, &format!("undo /resources --to {then} --yes")).await, "nothing to undo\n");
    // Both together go again, too: what is owned first.
    let before = then - 2;
    let gone = good(&cluster, 0, &format!("undo /resources/demo --to {before} --yes")).await;
    assert!(gone.contains("resource deleted"), "{gone}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deregistered_node_comes_back_with_its_own_checks() {
    let cluster = cluster().await;
    let instance = |id: &str, checks: &str| {
        format!(
            "- register:\n    node: {{Node: N1, Address: 10.0.0.1}}\n    service: {{Service: web, ID: {id}, Port: 80}}\n    \
             checks:\n    - {{Node: N1, CheckID: own-{id}, Name: own, ServiceID: {id}, Status: passing}}\n{checks}"
        )
    };
    let of_node = "    - {Node: N1, CheckID: serfHealth, Name: serf, Status: warning}\n";
    let document = format!("operations:\n{}{}", instance("web-1", of_node), instance("web-2", ""));
    let then = commit(&cluster, &document).await;
    let has_checks = async |id: &str, wanted: &[&str]| {
        let shown = shown(&cluster, &format!("/services/web/n1/{id}")).await;
        wanted.iter().all(|check| shown.contains(check))
    };
    // With the node among what is undone, and without it.
    for target in ["/", "/services"] {
        commit(&cluster, "operations:\n- deregister: {node: n1}\n").await;
        assert_eq!(good(&cluster, 0, "services").await, "");
        let undone = good(&cluster, 0, &format!("undo {target} --to {then} --yes")).await;
        assert_eq!(undone.matches("  + /nodes/n1\n").count(), 1, "{undone}");
        assert!(has_checks("web-1", &["own-web-1", "serfHealth", "warning"]).await, "{target}");
        assert!(has_checks("web-2", &["own-web-2", "serfHealth"]).await, "{target}");
    }
    // The checks of a node that is there stay as they are.
    let better = "operations:\n- register:\n    node: {Node: N1, Address: 10.0.0.1}\n    checks:\n    \
        - {Node: N1, CheckID: serfHealth, Name: serf, Status: critical}\n- deregister: {node: n1, serviceId: web-1}\n";
    commit(&cluster, better).await;
    good(&cluster, 0, &format!("undo /services --to {then} --yes")).await;
    assert!(has_checks("web-1", &["own-web-1", "critical"]).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_has_come_stays_with_what_came_later() {
    let cluster = cluster().await;
    let then = commit(&cluster, "operations:\n- put: {key: now, value: x}\n").await;
    let document = "operations:\n- register: {node: {Node: n1, Address: 10.0.0.1}, service: {Service: web, ID: w}}\n";
    commit(&cluster, document).await;
    let undone = good(&cluster, 0, &format!("undo / --to {then} --yes")).await;
    assert!(undone.contains("left as it is: /nodes/n1: ") && undone.contains("deregistered"), "{undone}");
    assert!(shown(&cluster, "/nodes/n1").await.contains("10.0.0.1"));
}

#[tokio::test(flavor = "multi_thread")]
async fn too_many_operations_are_named_before_it_asks() {
    let cluster = cluster().await;
    let mut then = 0;
    for folder in ["a", "b"] {
        let put = |number| format!("- put: {{key: many/{folder}/{number}, value: x}}\n");
        let puts: String = (0..65).map(put).collect();
        then = commit(&cluster, &format!("operations:\n{puts}")).await;
    }
    for command in ["undo /kv --yes --to", "undo / --yes --to", "show /kv --at"] {
        let early = headwater(&cluster, 0, &format!("{command} 2020-01-01"), "").await;
        assert!(!early.is_good && early.error.contains("the store has no history before 20"), "{}", early.error);
    }
    good(&cluster, 0, "del many --prefix").await;
    let asked = headwater(&cluster, 0, &format!("undo /kv/many --to {then}"), "").await;
    assert!(asked.out.starts_with("130 operations in one commit"), "{}", asked.out);
    assert!(
        asked.out.contains("max-txn-ops") && asked.out.contains("a smaller target is /kv/many/a\n"),
        "{}",
        asked.out
    );
    let refused = headwater(&cluster, 0, &format!("undo /kv/many --to {then} --yes"), "").await;
    assert!(!refused.is_good && refused.error.contains("max-txn-ops"), "{}", refused.error);
    for folder in ["a", "b"] {
        let undone = good(&cluster, 0, &format!("undo /kv/many/{folder} --to {then} --yes")).await;
        assert!(!undone.contains("max-txn-ops"), "{undone}");
    }
    assert_eq!(good(&cluster, 0, &format!("undo /kv/many --to {then} --yes")).await, "nothing to undo\n");
}

/// Runs `headwater undo` at a terminal, which script(1) makes. Its question is answered only after
/// another write below the target, so the undo is refused.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_made_meanwhile_is_not_undone() {
    let cluster = cluster().await;
    let then = commit(&cluster, "operations:\n- put: {key: m/a, value: then}\n").await;
    good(&cluster, 0, "put m/a now").await;
    let program = env!("CARGO_BIN_EXE_headwater");
    let url = cluster.client_url(0);
    let undo = format!("{program} undo /kv/m --to {then} --endpoints {url}");
    let mut child = tokio::process::Command::new("script")
        .args(["--quiet", "--return", "--command", &undo, "/dev/null"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let (mut input, mut output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let mut text = Vec::new();
    within("it asks", async {
        while !String::from_utf8_lossy(&text).contains("[y/N]") {
            assert_ne!(output.read_buf(&mut text).await.unwrap(), 0, "{}", String::from_utf8_lossy(&text));
        }
    })
    .await;
    good(&cluster, 0, "put m/b meanwhile").await;
    input.write_all(b"y\n").await.unwrap();
    let ended = within("it ends", async {
        output.read_to_end(&mut text).await.unwrap();
        child.wait().await.unwrap()
    })
    .await;
    let text = String::from_utf8_lossy(&text);
    assert!(!ended.success() && text.contains("something below /kv/m changed at #"), "{text}");
    assert!(text.contains("nothing was undone; run it again"), "{text}");
    assert!(good(&cluster, 0, "get m/ --prefix").await.contains("now"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_undo_that_nobody_sees_is_not_made() {
    let cluster = cluster().await;
    let then = commit(&cluster, "operations:\n- put: {key: p/a, value: then}\n").await;
    good(&cluster, 0, "put p/a now").await;
    let closed = || {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        Stdio::from(writer)
    };
    let run = async |args: &str, out: Stdio, error: Stdio| {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_headwater"));
        command.args(args.split(' ')).args(["--endpoints", &cluster.client_url(0), "--timeout", "60s"]);
        let child = command.stdin(Stdio::null()).stdout(out).stderr(error).spawn().unwrap();
        within("the command ends", child.wait_with_output()).await.unwrap()
    };
    let undo = format!("undo /kv/p --to {then} --yes");
    let unseen = run(&undo, closed(), Stdio::piped()).await;
    let error = String::from_utf8(unseen.stderr).unwrap();
    assert!(unseen.status.code() == Some(1) && error.contains("nothing was undone"), "{error}");
    assert!(good(&cluster, 0, "get p/a").await.contains("now"));
    // A refusal keeps its status if nobody reads why.
    let unread = run("log /nosuch", Stdio::piped(), closed()).await;
    assert_eq!(unread.status.code(), Some(1));
    run(&undo, Stdio::piped(), closed()).await;
    assert!(good(&cluster, 0, "get p/a").await.contains("then"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_keeps_the_lease_that_it_has() {
    let cluster = cluster().await;
    commit(&cluster, "operations:\n- grantLease: {ID: 7, TTL: 600}\n- grantLease: {ID: 8, TTL: 600}\n").await;
    let put = |key: &str, value: &str, lease: i64| format!("- put: {{key: l/{key}, value: {value}, lease: {lease}}}\n");
    let first = format!("operations:\n{}{}{}", put("same", "then", 7), put("other", "then", 7), put("gone", "then", 8));
    let then = commit(&cluster, &first).await;
    let second = format!("operations:\n{}{}- revokeLease: {{ID: 8}}\n", put("same", "now", 7), put("other", "now", 0));
    commit(&cluster, &second).await;
    let undone = good(&cluster, 0, &format!("undo / --to {then} --yes")).await;
    assert!(undone.contains("left as it is: /leases/0000000000000008: "), "{undone}");
    for (key, wanted) in [("same", true), ("other", false), ("gone", false)] {
        let json: serde_json::Value =
            serde_json::from_str(&good(&cluster, 0, &format!("get l/{key} -w json")).await).unwrap();
        let pair = &json["kvs"][0];
        assert_eq!(pair["value"], "dGhlbg==", "{key}: {json}");
        assert_eq!(pair["lease"].as_i64() == Some(7), wanted, "{key}: {json}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_of_consul_keeps_its_lock() {
    const SESSION: &str = "10000000-0000-0000-0000-000000000001";
    let cluster = cluster().await;
    let lock = |value: &str| format!("- consulKv: {{verb: lock, path: a/lock, value: {value}, session: {SESSION}}}\n");
    let session = format!(
        "- register: {{node: {{Node: n1, Address: 10.0.0.1}}}}\n\
         - createSession: {{id: {SESSION}, node: n1, noDefaultCheck: true}}\n"
    );
    let then = commit(&cluster, &format!("operations:\n{session}{}", lock("then"))).await;
    commit(&cluster, &format!("operations:\n{}", lock("now"))).await;
    good(&cluster, 0, &format!("undo /kv/consul --to {then} --yes")).await;
    assert!(good(&cluster, 0, "get consul/kv/a/lock").await.contains("then"));
    let held = format!("operations:\n- consulKv: {{verb: check-session, path: a/lock, session: {SESSION}}}\n");
    let held = headwater(&cluster, 0, "commit -f -", &held).await;
    assert!(held.is_good, "{}", held.error);
}
