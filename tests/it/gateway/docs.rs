//! Runs every example with curl in the documentation of the gateway: its output must be the printed
//! one.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Stdio;

use headwater::pb::PUBLIC_DESCRIPTORS;
use prost_reflect::DescriptorPool;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::cluster::{Cluster, within};

/// A command of the documentation, and the output lines that the page shows for it.
#[derive(Debug, Default)]
struct Example {
    command: String,
    wanted: Vec<String>,
}

/// The examples of a page, in order. Each is a block of `sh` that begins with `curl` and has a path
/// of the gateway, and the next block of `json`.
fn examples(page: &str) -> Vec<Example> {
    let mut examples: Vec<Example> = Vec::new();
    for block in page.split("\n```").skip(1) {
        let (kind, text) = block.split_once('\n').unwrap_or_default();
        match kind {
            "sh" if text.starts_with("curl ") && text.contains("/v3/") => {
                examples.push(Example { command: text.to_owned(), wanted: Vec::new() });
            }
            "json" => {
                let example = examples.last_mut().filter(|example| example.wanted.is_empty());
                let example = example.unwrap_or_else(|| panic!("no command before {text}"));
                example.wanted = text.lines().map(str::to_owned).collect();
            }
            _ => {}
        }
    }
    examples
}

fn page(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// The JSON of a line. Values that differ between clusters (ids of cluster and member, term) are
/// replaced by `N`.
fn masked(line: &str) -> Value {
    fn mask(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    match name.as_str() {
                        "cluster_id" | "member_id" | "raft_term" => *value = "N".into(),
                        _ => mask(value),
                    }
                }
            }
            Value::Array(values) => values.iter_mut().for_each(mask),
            _ => {}
        }
    }
    let mut value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    mask(&mut value);
    value
}

fn start(command: &str, url: &str) -> Child {
    let command = command.replace("http://127.0.0.1:2379", url);
    assert!(command.contains(url), "{command} asks another address than http://127.0.0.1:2379");
    Command::new("bash")
        .args(["-c", &format!("exec {command}")])
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("bash and curl are installed: scripts/setup test")
}

async fn line(child: &mut Child, lines: usize) -> Vec<String> {
    let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut found = Vec::new();
    while found.len() < lines {
        let Some(line) = output.next_line().await.unwrap() else { break };
        found.push(line);
    }
    found
}

async fn run(page_path: &str, least: usize) {
    let cluster = Cluster::three().await;
    let url = cluster.client_url(cluster.follower().await);
    let examples = examples(&page(page_path));
    assert!(examples.len() >= least, "{page_path}: only {} examples were found", examples.len());
    for Example { command, wanted } in examples {
        assert!(!wanted.is_empty(), "{page_path}: nothing is said about what {command} prints");
        let mut child = start(&command, &url);
        let found = within(&command, line(&mut child, wanted.len())).await;
        let shown = |lines: &[String]| lines.iter().map(|line| masked(line)).collect::<Vec<_>>();
        assert_eq!(shown(&found), shown(&wanted), "{page_path}: {command}");
        // A command that runs until its client ends it is ended here.
        if !command.contains("curl -N") {
            assert!(within(&command, child.wait()).await.unwrap().success(), "{command}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_on_http_holds() {
    run("docs/http.md", 12).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_tour_holds() {
    run("docs/getting-started.md", 3).await;
}

/// The paths for `POST` in the annotations of the public methods.
fn annotated_paths() -> BTreeSet<String> {
    let pool = DescriptorPool::decode(PUBLIC_DESCRIPTORS).unwrap();
    let http = pool.get_extension_by_name("google.api.http").unwrap();
    let mut paths = BTreeSet::new();
    for method in pool.services().flat_map(|service| service.methods().collect::<Vec<_>>()) {
        let options = method.options();
        // Empty for a method without an annotation.
        let main = options.get_extension(&http);
        let main = main.as_message().unwrap();
        let further = main.get_field_by_name("additional_bindings").unwrap();
        let further = further.as_list().unwrap().iter().filter_map(prost_reflect::Value::as_message);
        let posts = std::iter::once(main).chain(further).map(|rule| rule.get_field_by_name("post").unwrap());
        paths.extend(posts.map(|post| post.as_str().unwrap().to_owned()).filter(|path| !path.is_empty()));
    }
    paths
}

#[test]
fn every_path_is_on_the_page() {
    let text = page("docs/http.md");
    let paths = annotated_paths();
    assert!(paths.len() >= 32, "only {} paths were found", paths.len());
    for path in paths {
        assert!(text.contains(&format!("`{path}`")), "docs/http.md does not name {path}");
    }
}
