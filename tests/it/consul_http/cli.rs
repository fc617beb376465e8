//! The commands `headwater register`, `deregister`, `nodes`, `services` and `health`.

use std::process::Output;

use serde_json::{Value, json};

use crate::cluster::{Cluster, within};

async fn headwater(cluster: &Cluster, member: usize, args: &str) -> Output {
    let running = tokio::process::Command::new(env!("CARGO_BIN_EXE_headwater"))
        .args(args.split(' '))
        .args(["--endpoints", &cluster.client_url(member), "--timeout", "60s"])
        .output();
    within("the command ends", running).await.unwrap()
}

async fn good(cluster: &Cluster, member: usize, args: &str) -> String {
    let output = headwater(cluster, member, args).await;
    assert!(output.status.success(), "{args}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_registered_by_one_member_is_listed_by_another() {
    let cluster = Cluster::three().await;
    let said = good(&cluster, 0, "register web --port 80 --tag a --tag b --status passing").await;
    let node = said.trim().strip_prefix("web is registered on ").and_then(|it| it.strip_suffix(" as web")).unwrap();
    good(&cluster, 1, "register web --id web-2 --port 81 --node n2 --node-address 10.0.0.2 --node-meta rack=r --status warning --output high").await;

    let nodes = good(&cluster, 2, "nodes").await;
    assert!(nodes.contains("n2, 10.0.0.2") && nodes.contains(&format!("{node}, 127.0.0.1")), "{nodes}");
    assert_eq!(good(&cluster, 2, "services").await, "web, a b\n");
    let health = good(&cluster, 2, "health web").await;
    assert!(health.contains("web-2, warning, n2, 10.0.0.2:81, , service:web-2=warning (high)\n"), "{health}");
    assert!(health.contains(&format!("web, passing, {node}, 127.0.0.1:80, a b, service:web=passing\n")), "{health}");
    assert_eq!(good(&cluster, 2, "health web --passing").await.lines().count(), 1);
    let json: Value = serde_json::from_str(&good(&cluster, 2, "health web --node-meta rack:r -w json").await).unwrap();
    assert_eq!(json[0]["Service"]["ID"], json!("web-2"));
    let table = good(&cluster, 2, "health web -w table --filter Service.Port==81").await;
    assert!(table.contains("| web-2 ") && table.contains("| INSTANCE |"), "{table}");

    good(&cluster, 1, "deregister web-2 --node n2").await;
    assert_eq!(good(&cluster, 2, "health web").await.lines().count(), 1);
    good(&cluster, 1, "deregister --node n2").await;
    assert!(!good(&cluster, 2, "nodes").await.contains("n2"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_refused_says_why() {
    let cluster = Cluster::three().await;
    let refused = headwater(&cluster, 0, "health web --filter Nothing==1").await;
    assert_eq!(refused.status.code(), Some(1));
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(said.contains("Failed to create filter") && said.contains("not valid"), "{said}");
    let nothing = headwater(&cluster, 0, "health web").await;
    assert!(nothing.status.success() && nothing.stdout.is_empty());
    assert!(String::from_utf8_lossy(&nothing.stderr).contains("headwater services"));
}
