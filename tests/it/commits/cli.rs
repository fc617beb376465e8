//! The command `headwater commit`, also with `examples/move.yaml`, which moves an instance; and the
//! undo of that move.

use std::process::Stdio;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;

use super::ready;
use crate::cluster::{Cluster, Settings, within};

pub(super) struct Ran {
    pub(super) is_good: bool,
    pub(super) out: String,
    pub(super) error: String,
}

pub(super) async fn headwater(cluster: &Cluster, member: usize, args: &str, input: &str) -> Ran {
    let mut child = tokio::process::Command::new(env!("CARGO_BIN_EXE_headwater"))
        .args(args.split(' '))
        .args(["--endpoints", &cluster.client_url(member), "--timeout", "60s"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input.as_bytes()).await.unwrap();
    drop(stdin);
    let output = within("the command ends", child.wait_with_output()).await.unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ran { is_good: output.status.success(), out: text(output.stdout), error: text(output.stderr) }
}

pub(super) async fn good(cluster: &Cluster, member: usize, args: &str) -> String {
    let ran = headwater(cluster, member, args, "").await;
    assert!(ran.is_good, "{args}: {}{}", ran.out, ran.error);
    ran.out
}

/// The log index in the output of `headwater commit`.
pub(super) fn index(out: &str) -> u64 {
    out.strip_prefix("index ").and_then(|rest| rest.split(',').next()).unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_moves_with_its_key_and_its_resource_and_back() {
    let cluster = Cluster::start(Settings::calm()).await;
    ready(&cluster).await;
    good(&cluster, 0, "resource apply -f examples/demo-types.yaml").await;
    good(&cluster, 1, "register web --id web-1 --node n1 --node-address 10.0.0.1 --port 80 --status warning").await;
    let done = good(&cluster, 2, "commit -f examples/move.yaml").await;
    let moved = index(&done);
    let results =
        format!("operations[0]: registered\noperations[1]: put\noperations[2]: Artist web-1 version {moved}\n");
    assert!(done.ends_with(&results), "{done}");
    // All of it is one entry of the log.
    let log = good(&cluster, 0, &format!("log --since {} -w json", moved - 1)).await;
    let commands: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let command = commands.iter().find(|command| command["index"] == moved).unwrap_or_else(|| panic!("{log}"));
    let paths: Vec<_> =
        command["changes"].as_array().unwrap().iter().map(|change| change["path"].as_str().unwrap()).collect();
    for path in [
        "/kv/config/web-1/service",
        "/resources/demo/v2/Artist/default/default/web-1",
        "/services/api/n1/web-1",
        "/services/web/n1/web-1",
    ] {
        assert!(paths.contains(&path), "{paths:?}");
    }
    // A second time its conditions do not hold, and the line of the first that does not is named.
    let again = headwater(&cluster, 1, "commit -f examples/move.yaml", "").await;
    assert!(!again.is_good && again.error.contains("examples/move.yaml:8:3: conditions[0]"), "{}", again.error);
    assert!(again.error.contains(" does not hold for /"), "{}", again.error);
    assert!(again.error.contains("nothing was changed"), "{}", again.error);

    // Without a terminal, undoing has to be confirmed.
    let asked = headwater(&cluster, 1, &format!("undo /services --to {}", moved - 1), "y\n").await;
    assert!(!asked.is_good && asked.out.contains("+ /services/web/n1/web-1"), "{}", asked.out);
    assert!(asked.error.contains("nothing was undone: confirm"), "{}", asked.error);
    for target in ["/services", "/kv/config", "/resources/demo"] {
        let undone = good(&cluster, 1, &format!("undo {target} --to {} --yes", moved - 1)).await;
        assert!(undone.contains("index "), "{undone}");
    }
    assert_eq!(good(&cluster, 2, "services").await, "web, \n");
    let health = good(&cluster, 2, "health web").await;
    assert!(health.contains("web-1, warning, n1, 10.0.0.1:80"), "{health}");
    for target in ["/services", "/kv/config", "/resources/demo"] {
        let nothing = good(&cluster, 0, &format!("undo {target} --to {} --yes", moved - 1)).await;
        assert_eq!(nothing, "nothing to undo\n");
        let json = good(&cluster, 0, &format!("undo {target} --to {} --yes -w json", moved - 1)).await;
        let json: Value = serde_json::from_str(&json).unwrap();
        assert_eq!((&json["changes"], &json["commit"]), (&Value::Array(Vec::new()), &Value::Null));
    }
    good(&cluster, 1, "put config/web-1/more x").await;
    let json = good(&cluster, 0, &format!("undo /kv/config --to {} --yes -w json", moved - 1)).await;
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["changes"][0]["path"], "/kv/config/web-1/more");
    assert_eq!(json["commit"]["results"][0]["operation"], "deleteRange");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mistake_in_a_file_has_its_line() {
    let cluster = Cluster::start(Settings::alone()).await;
    ready(&cluster).await;
    let file = "operations:\n- put: {key: a, value: b}\n- revokeLease: {ID: 77}\n";
    let refused = headwater(&cluster, 0, "commit -f -", file).await;
    assert!(!refused.is_good && refused.error.contains("standard input:3:3: operations[1]: "), "{}", refused.error);
    let wrong = headwater(&cluster, 0, "commit -f -", "operations:\n- putt: {key: a}\n").await;
    assert!(!wrong.is_good && wrong.error.contains("standard input:2:3: "), "{}", wrong.error);
    let put = "operations:\n- put: {key: a, value: b}\n";
    let first = headwater(&cluster, 0, "commit -f - --idempotency-key k", put).await;
    let again = headwater(&cluster, 0, "commit -f - --idempotency-key k", put).await;
    assert!(again.out.contains("(done before)"), "{}", again.out);
    assert_eq!(index(&first.out), index(&again.out));
    let json = headwater(&cluster, 0, "commit -f - -w json", put).await;
    let json = serde_json::from_str::<Value>(&json.out).unwrap();
    assert_eq!((&json["done_before"], &json["results"][0]["operation"]), (&false.into(), &"put".into()));
}

#[tokio::test]
async fn a_commit_that_nobody_answers_says_so() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut child = tokio::process::Command::new(env!("CARGO_BIN_EXE_headwater"))
        .args(["commit", "-f", "-", "--endpoints", &silent.local_addr().unwrap().to_string()])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let document = b"operations:\n- put: {key: a, value: b}\n";
    child.stdin.take().unwrap().write_all(document).await.unwrap();
    let mut told = BufReader::new(child.stderr.take().unwrap()).lines();
    let line = within("it is said", told.next_line()).await.unwrap();
    assert_eq!(line.as_deref(), Some("no outcome yet; trying for up to 30 s"));
}
