//! `headwater log`, `show` and `diff`, run as programs against a cluster.

use std::process::Stdio;

use headwater::types::Feature;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

use super::client::{Member, Via};
use crate::cluster::{Cluster, Settings, wait_until, within};

fn command(cluster: &Cluster, members: &[usize], args: &[&str]) -> Command {
    let endpoints: Vec<_> = members.iter().map(|member| cluster.client_url(*member)).collect();
    let mut command = Command::new(env!("CARGO_BIN_EXE_headwater"));
    command.args(args).args(["--endpoints", &endpoints.join(","), "--timeout", "60s"]).kill_on_drop(true);
    command
}

/// The standard output of a command; its standard error if it fails.
async fn run(cluster: &Cluster, args: &[&str]) -> Result<String, String> {
    let ran = within("a command ends", command(cluster, &[0, 1, 2], args).output()).await.unwrap();
    let (out, error) = (String::from_utf8(ran.stdout).unwrap(), String::from_utf8(ran.stderr).unwrap());
    if ran.status.success() { Ok(out) } else { Err(error) }
}

async fn cluster() -> Cluster {
    let cluster = Cluster::start(Settings::calm()).await;
    wait_until("every member has the version that has authors", async || {
        let version = |index| cluster.node(index).versions().cluster().version;
        cluster.running().all(|index| Feature::Authors.is_in(version(index)))
    })
    .await;
    cluster
}

#[tokio::test(flavor = "multi_thread")]
async fn the_history_is_printed_for_people_and_for_programs() {
    let cluster = cluster().await;
    let member = Member { cluster: &cluster, index: 0, via: Via::Grpc };
    let (_, first) = member.put("cli/a", r#"{"x":1,"y":2}"#).await;
    let (_, second) = member.put("cli/a", r#"{"x":1,"y":3}"#).await;
    let (_, third) = member.put("cli/b", "text").await;
    let fourth = member.delete("cli/b").await;

    let log = run(&cluster, &["log", "/kv/cli"]).await.unwrap();
    let heads: Vec<_> = log.lines().filter(|line| line.starts_with('#')).collect();
    let newest_first = [fourth, third, second, first].map(|index| format!("#{index}  "));
    assert_eq!(heads.len(), 4, "{log}");
    for (head, wanted) in heads.iter().zip(&newest_first) {
        assert!(head.starts_with(wanted.as_str()) && head.contains("etcd  revision "), "{log}");
    }
    assert!(log.contains("  - /kv/cli/b  text\n") && !log.contains('\x1b'), "{log}");
    let patch = run(&cluster, &["log", "/kv/cli/a", "--patch", "-n", "1"]).await.unwrap();
    assert!(patch.ends_with("        \"x\": 1,\n    -   \"y\": 2\n    +   \"y\": 3\n      }\n"), "{patch}");
    let json = run(&cluster, &["log", "/kv/cli", "-w", "json", "--face", "etcd"]).await.unwrap();
    let lines: Vec<Value> = json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 4);
    assert_eq!((&lines[3]["index"], &lines[3]["changes"][0]["kind"]), (&first.into(), &"CREATED".into()));
    assert_eq!(run(&cluster, &["log", "/kv/cli", "--face", "consul"]).await.unwrap(), "");
    let since = run(&cluster, &["log", "/kv/cli", "--since", &second.to_string()]).await.unwrap();
    assert_eq!(since.lines().filter(|line| line.starts_with('#')).count(), 2, "{since}");

    let then = run(&cluster, &["show", "/kv/cli", "--at", &third.to_string()]).await.unwrap();
    assert_eq!(then, "/kv/cli/a  {\"x\":1,\"y\":3}\n/kv/cli/b  text\n");
    let alone = run(&cluster, &["show", "/kv/cli/b?children=false", "--at", &third.to_string()]).await.unwrap();
    assert_eq!(alone, "/kv/cli/b\n  text\n");
    let json = run(&cluster, &["show", "/kv/cli", "-r", "-w", "json"]).await.unwrap();
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["entities"].as_array().unwrap().len(), 1, "{json}");
    let nothing = run(&cluster, &["show", "/kv/cli/none"]).await.unwrap_err();
    assert!(nothing.contains("nothing is there"), "{nothing}");
    let future = run(&cluster, &["show", "/kv/cli", "--at", "999999"]).await.unwrap_err();
    assert!(future.contains("index 999999 is in the future"), "{future}");

    let diff = run(&cluster, &["diff", "--from", &first.to_string(), "/kv/cli"]).await.unwrap();
    assert!(diff.starts_with("  ~ /kv/cli/a\n") && !diff.contains("/kv/cli/b"), "{diff}");
    let (from, to) = (second.to_string(), third.to_string());
    let diff = run(&cluster, &["diff", "--from", &from, "--to", &to, "/kv/cli"]).await.unwrap();
    assert_eq!(diff, "  + /kv/cli/b\n    + text\n");
    let wrong = run(&cluster, &["diff", "--from", "now", "/kv/cli"]).await.unwrap_err();
    assert!(wrong.contains("nothing after now"), "{wrong}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_followed_log_goes_on_at_another_endpoint() {
    let mut cluster = cluster().await;
    let leader = cluster.leader().await;
    let (first, other) = ((leader + 1) % 3, (leader + 2) % 3);
    let start = { Member { cluster: &cluster, index: other, via: Via::Grpc }.put("moved/0", "v").await.1 };
    let args = ["log", "/kv/moved", "--follow", "--since", &start.to_string()];
    let mut child = command(&cluster, &[first, other], &args).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = async || loop {
        let line = within("a line of the log", lines.next_line()).await.unwrap().expect("the log goes on");
        if let Some(change) = line.strip_prefix("  + ") {
            return change.to_owned();
        }
    };
    for number in 1..3 {
        Member { cluster: &cluster, index: other, via: Via::Grpc }.put(&format!("moved/{number}"), "v").await;
        assert_eq!(next().await, format!("/kv/moved/{number}  v"));
    }
    cluster.stop(first).await;
    for number in 3..5 {
        Member { cluster: &cluster, index: other, via: Via::Grpc }.put(&format!("moved/{number}"), "v").await;
        assert_eq!(next().await, format!("/kv/moved/{number}  v"));
    }
    child.kill().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_command_is_printed_with_one_head() {
    let cluster = cluster().await;
    let member = Member { cluster: &cluster, index: 0, via: Via::Grpc };
    let value = "x".repeat(500_000);
    for number in 0..4 {
        member.put(&format!("large/{number}"), &value).await;
    }
    run(&cluster, &["del", "large/", "--prefix"]).await.unwrap();
    let log = run(&cluster, &["log", "/kv/large", "-n", "1"]).await.unwrap();
    let lines: Vec<_> = log.lines().map(|line| line.split("  x").next().unwrap()).collect();
    assert!(lines[0].starts_with('#'), "{}", lines[0]);
    assert_eq!(lines[1..], ["  - /kv/large/0", "  - /kv/large/1", "  - /kv/large/2", "  - /kv/large/3"]);
    let json = run(&cluster, &["log", "/kv/large", "-n", "1", "-w", "json"]).await.unwrap();
    let parts: Vec<Value> = json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let continued: Vec<_> = parts.iter().map(|part| part["continued"] == true).collect();
    assert!(continued.len() > 1 && !continued[continued.len() - 1], "{continued:?}");
    assert_eq!(continued.iter().filter(|it| **it).count(), continued.len() - 1);
    // The difference is that of all parts.
    let before = (parts[0]["index"].as_u64().unwrap() - 1).to_string();
    let diff = run(&cluster, &["diff", "/kv/large", "--from", &before]).await.unwrap();
    assert_eq!(diff.lines().filter(|line| line.starts_with("  - /kv/large/")).count(), 4);
}
