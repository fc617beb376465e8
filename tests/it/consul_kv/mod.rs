//! `/v1/kv`, `/v1/session` and `/v1/txn` on clusters, over HTTP as clients speak it (spec: consul
//! §8.3).

mod blocking;
mod checks;
mod keys;
mod locks;

use bytes::Bytes;
use http::{HeaderMap, Request, Version};
use http_body_util::{BodyExt, Full};
use serde_json::Value;
use tonic::body::Body;

use crate::cluster::{Cluster, within};
use crate::gateway::client::Connection;

/// The answer to a request.
#[derive(Debug)]
struct Answer {
    status: u16,
    headers: HeaderMap,
    body: Bytes,
}

impl Answer {
    fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    fn json(&self) -> Value {
        assert_eq!(self.headers["content-type"], "application/json");
        serde_json::from_slice(&self.body).unwrap()
    }

    /// The header `X-Consul-Index`. Panics without it.
    fn index(&self) -> u64 {
        self.headers["x-consul-index"].to_str().unwrap().parse().unwrap()
    }
}

/// Sends one request to a member. `path` is the part after `/v1/`.
async fn call(cluster: &Cluster, member: usize, method: &str, path: &str, body: impl Into<Bytes>) -> Answer {
    call_url(&cluster.client_url(member), method, path, body).await
}

async fn call_url(url: &str, method: &str, path: &str, body: impl Into<Bytes>) -> Answer {
    let mut connection = Connection::open(url, Version::HTTP_11).await;
    let body = Body::new(Full::new(body.into()));
    let request = Request::builder().method(method).uri(format!("/v1/{path}")).body(body).unwrap();
    let (parts, body) = connection.send(request).await.into_parts();
    let body = within("an answer ends", body.collect()).await.unwrap().to_bytes();
    Answer { status: parts.status.as_u16(), headers: parts.headers, body }
}

async fn get(cluster: &Cluster, member: usize, path: &str) -> Answer {
    call(cluster, member, "GET", path, "").await
}

/// Sends a PUT, which must be answered with 200; returns the JSON of the answer.
async fn put(cluster: &Cluster, member: usize, path: &str, body: impl Into<Bytes>) -> Value {
    let answer = call(cluster, member, "PUT", path, body).await;
    assert_eq!(answer.status, 200, "{path}: {answer:?}");
    answer.json()
}

/// Creates a session; returns its id.
async fn session(cluster: &Cluster, member: usize, body: Value) -> String {
    put(cluster, member, "session/create", body.to_string()).await["ID"].as_str().unwrap().to_owned()
}
