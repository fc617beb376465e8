//! The examples of docs/resources.md: each curl command must print the block below it.

use std::path::Path;
use std::process::Stdio;

use serde_json::Value;
use tokio::process::Command;

use super::good;
use crate::cluster::{Cluster, within};

/// The curl commands of the page, each with its printed output, in order.
fn examples() -> Vec<(String, String)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/resources.md");
    let page = std::fs::read_to_string(path).unwrap();
    let mut examples: Vec<(String, String)> = Vec::new();
    let mut command = None;
    for (at, block) in page.split("```").enumerate() {
        if at % 2 == 0 {
            continue;
        }
        let (language, text) = block.split_once('\n').unwrap();
        match (language, command.take()) {
            ("sh", _) if text.contains("curl") => command = Some(text.trim().to_owned()),
            ("json" | "text", Some(command)) => examples.push((command, text.trim().to_owned())),
            _ => {}
        }
    }
    examples
}

/// The JSON of an output, with the page's placeholders in place of values that differ between
/// clusters (`U` for a uid, and so on).
fn masked(text: &str) -> String {
    fn mask(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    match name.as_str() {
                        "uid" => *value = "U".into(),
                        "version" => *value = "V".into(),
                        "generation" => *value = "G".into(),
                        _ => mask(value),
                    }
                }
            }
            Value::Array(values) => values.iter_mut().for_each(mask),
            _ => {}
        }
    }
    match serde_json::from_str::<Value>(text) {
        Ok(mut value) if value.is_object() => {
            mask(&mut value);
            value.to_string()
        }
        _ => text.trim().to_owned(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_on_resources_holds() {
    let cluster = Cluster::three().await;
    let follower = cluster.follower().await;
    good(&cluster, &[follower], &["apply", "-f", "examples/demo-types.yaml"]).await;
    let url = cluster.client_url(follower);
    let examples = examples();
    assert!(examples.len() >= 6, "only {} examples were found", examples.len());
    for (command, wanted) in examples {
        let line = command.replace("http://127.0.0.1:2379", &url);
        assert!(line.contains(&url), "{command} asks another address than http://127.0.0.1:2379");
        let run = Command::new("bash").args(["-c", &line]).stdout(Stdio::piped()).kill_on_drop(true).output();
        let ran = within(&command, run).await.expect("bash and curl are installed: scripts/setup test");
        let found = String::from_utf8(ran.stdout).unwrap();
        assert_eq!(masked(&found), masked(&wanted), "{command}");
    }
}

/// Runs curl with these arguments; returns status and body of the answer.
async fn curl(args: &[&str]) -> (u16, String) {
    let run = Command::new("curl").args(["-s", "-w", "\n%{http_code}"]).args(args).output();
    let ran = within("curl", run).await.unwrap();
    let text = String::from_utf8(ran.stdout).unwrap();
    let (body, code) = text.rsplit_once('\n').unwrap();
    (code.parse().unwrap(), body.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn http_says_what_is_wrong_by_its_status() {
    let cluster = Cluster::three().await;
    good(&cluster, &[0], &["apply", "-f", "examples/"]).await;
    for member in [cluster.leader().await, cluster.follower().await] {
        let base = format!("{}/api/demo", cluster.client_url(member));
        let at = |path: &str| format!("{base}/{path}");
        for (args, code, text) in [
            (vec!["-X", "PUT", "-d", "{", &at("v2/artist/x")], 400, "the body is not"),
            (vec!["-X", "PUT", "-d", "{\"data\":{}}", &at("v2/artist/x")], 400, "artist.name required"),
            (vec!["-X", "PUT", "-d", "{}", &at("v2/artist/X")], 400, "name"),
            (vec!["-X", "PUT", "-d", "{}", &at("v1/concept/x?ns=nowhere")], 400, "namespace"),
            (vec!["-X", "PUT", "-d", "{}", &at("v1/executive/x?partition=p")], 400, "cannot have a partition"),
            (vec!["-X", "PUT", "-d", "{}", &at("v1/concept/y?version=7")], 409, ""),
            (vec![&at("v2/artist/nobody")], 404, ""),
            (vec![&at("v2/painter/x")], 404, "there is nothing at"),
            (vec![&at("v2/Artist/korn")], 404, "there is nothing at"),
            (vec!["-X", "POST", "-d", "{}", &at("v2/artist/x")], 405, "POST is not allowed"),
            (vec!["-X", "DELETE", &at("v2/artist")], 405, "there are GET"),
            (vec!["-X", "DELETE", &at("v2/artist/nobody")], 204, ""),
            (vec!["-X", "DELETE", &at("v2/artist/korn?version=7")], 409, ""),
            (vec!["-X", "DELETE", &at("v2/artist/nobody?version=7")], 204, ""),
            (vec![&at("v2/album?page_size=1")], 200, "\"resources\":["),
            (vec![&at("v2/artist/korn?consistent")], 200, "\"name\":\"korn\""),
        ] {
            let (found, body) = curl(&args).await;
            assert!(found == code && body.contains(text), "{args:?}: {found} {body}");
        }
    }
    // A delete is not preceded by a read: the state of a member may be too old.
    let follower = cluster.client_url(cluster.follower().await);
    let calls = async || {
        let metrics = curl(&[&format!("{follower}/metrics")]).await.1;
        let of = |method: &str| {
            let wanted = format!("grpc_method=\"{method}\"");
            let mut lines = metrics.lines().filter(|line| line.contains("ResourceService") && line.contains(&wanted));
            let counted = lines.clone().filter(|line| line.starts_with("grpc_server_started_total"));
            assert!(lines.next().is_some(), "no {method} in {metrics}");
            counted.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum::<f64>()
        };
        (of("Read"), of("Delete"))
    };
    let (reads, deletes) = calls().await;
    let stale = format!("{follower}/api/demo/v2/artist/korn?version=7");
    assert_eq!(curl(&["-X", "DELETE", &stale]).await.0, 409);
    assert_eq!(calls().await, (reads, deletes + 1.0));
    // A type may opt out of HTTP.
    let hidden =
        "type: ResourceType\ndata: {group: demo, groupVersion: v1, kind: Secret, scope: cluster, dontMapHttp: true}\n";
    assert!(super::headwater(&cluster, &[0], &["apply", "-f", "-"], hidden).await.is_good);
    assert_eq!(curl(&[&format!("{}/api/demo/v1/secret", cluster.client_url(0))]).await.0, 404);
    let metrics = curl(&[&format!("{}/metrics", cluster.client_url(cluster.leader().await))]).await.1;
    assert!(metrics.contains("headwater_rest_requests_total{code=\"409\",method=\"PUT\"} 1"), "{metrics}");
}
