//! Consul's HTTP API (spec: consul §8), on real members over real connections.

mod agent;
mod answers;
mod blocking;
mod cli;
mod refusals;

use http::{HeaderMap, Method, Request, Version};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tonic::body::Body;

use crate::cluster::{Cluster, within};
use crate::gateway::client::Connection;

/// The answer to a request. `json` is null if the body is not JSON.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub text: String,
    pub json: Value,
}

impl Answer {
    /// The header `X-Consul-Index`. A blocking query with this index waits for a later change.
    pub fn index(&self) -> u64 {
        let value = self.headers.get("x-consul-index").unwrap_or_else(|| panic!("no index: {self:?}"));
        value.to_str().unwrap().parse().unwrap()
    }

    /// The header `headwater-index`: the log index of the state that was read, or of the write.
    pub fn state(&self) -> u64 {
        let value = self.headers.get("headwater-index").unwrap_or_else(|| panic!("no state: {self:?}"));
        value.to_str().unwrap().parse().unwrap()
    }
}

/// Sends a request to a member, on a connection of its own.
pub async fn ask(cluster: &Cluster, member: usize, method: Method, path: &str, body: impl ToString) -> Answer {
    ask_url(&cluster.client_url(member), method, path, body).await
}

/// As [`ask`], by the URL of the member.
pub async fn ask_url(url: &str, method: Method, path: &str, body: impl ToString) -> Answer {
    let mut connection = Connection::open(url, Version::HTTP_11).await;
    let body = Body::new(Full::new(body.to_string().into()));
    let response = connection.send(Request::builder().method(method).uri(path).body(body).unwrap()).await;
    let (parts, body) = response.into_parts();
    let bytes = within("an answer ends", body.collect()).await.unwrap().to_bytes();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let json = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
    Answer { status: parts.status.as_u16(), headers: parts.headers, text, json }
}

pub async fn get(cluster: &Cluster, member: usize, path: &str) -> Answer {
    let answer = ask(cluster, member, Method::GET, path, "").await;
    assert_eq!(answer.status, 200, "{path}: {answer:?}");
    answer
}

pub async fn put(cluster: &Cluster, member: usize, path: &str, body: impl ToString) -> Answer {
    let answer = ask(cluster, member, Method::PUT, path, body).await;
    assert_eq!(answer.status, 200, "{path}: {answer:?}");
    answer
}

/// Registers the instance `SERVICE-1` on the catalog's node `node`, with one check of this status.
pub async fn register(cluster: &Cluster, member: usize, node: &str, service: &str, status: &str) {
    let body = json!({
        "Node": node, "Address": "10.0.0.1", "NodeMeta": {"rack": node},
        "Service": {"Service": service, "ID": format!("{service}-1"), "Port": 80, "Tags": ["Main", node]},
        "Check": {"CheckID": format!("service:{service}"), "Name": "alive", "Status": status, "ServiceID": format!("{service}-1")},
    });
    let answer = put(cluster, member, "/v1/catalog/register", body).await;
    assert_eq!(answer.json, json!(true));
}

/// Names of the fields of an object, sorted.
pub fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap_or_else(|| panic!("no object: {value}")).keys().map(String::as_str).collect()
}
