//! Typed resources by way of the command line, HTTP, and a controller.

mod cli;
mod controller;
mod page;

use std::process::Stdio;

use tokio::process::Command;

use crate::cluster::{Cluster, within};

/// Result of a run of the program. `is_good`: the exit status was 0.
#[derive(Debug)]
struct Ran {
    is_good: bool,
    out: String,
    error: String,
}

/// Runs `headwater resource ARGS` with these members as endpoints, in this order, and `input` as
/// standard input. Its working directory is the root of the project.
async fn headwater(cluster: &Cluster, members: &[usize], args: &[&str], input: &str) -> Ran {
    let endpoints: Vec<_> = members.iter().map(|member| cluster.client_url(*member)).collect();
    let mut child = Command::new(env!("CARGO_BIN_EXE_headwater"))
        .arg("resource")
        .args(args)
        .args(["--endpoints", &endpoints.join(","), "--timeout", "60s"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut stdin, input.as_bytes()).await.unwrap();
    drop(stdin);
    let ran = within("a command ends", child.wait_with_output()).await.unwrap();
    Ran {
        is_good: ran.status.success(),
        out: String::from_utf8(ran.stdout).unwrap(),
        error: String::from_utf8(ran.stderr).unwrap(),
    }
}

/// The standard output of `headwater resource ARGS` with empty standard input, run by
/// [`headwater`]. Panics if the command fails.
async fn good(cluster: &Cluster, members: &[usize], args: &[&str]) -> String {
    let ran = headwater(cluster, members, args, "").await;
    assert!(ran.is_good, "{args:?}: {ran:#?}");
    ran.out
}
