//! A stream of server-sent events for tests, read as a browser's `EventSource` reads it.

use http::{HeaderMap, Request, Version};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::Value;
use tonic::body::Body;

use super::client::encode;
use crate::cluster::within;
use crate::gateway::client::Connection;

/// An open stream of server-sent events.
pub struct Events {
    /// Headers of the answer.
    pub headers: HeaderMap,
    _connection: Connection,
    body: Incoming,
    buffer: String,
}

impl Events {
    /// Follows `target` by a request with these additional headers. The error is the HTTP status of
    /// a refusal.
    pub async fn open(url: &str, target: &str, headers: &[(&str, &str)]) -> Result<Self, u16> {
        let mut connection = Connection::open(url, Version::HTTP_11).await;
        let path = format!("/v1/watch?target={}", encode(target));
        let mut request = Request::get(path).header("accept", "text/event-stream");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = connection.send(request.body(Body::empty()).unwrap()).await;
        if response.status() != 200 {
            return Err(response.status().as_u16());
        }
        let (parts, body) = response.into_parts();
        assert_eq!(parts.headers["content-type"], "text/event-stream");
        Ok(Self { headers: parts.headers, _connection: connection, body, buffer: String::new() })
    }

    /// Name and value of each field of the next block; `None` at the end of the stream.
    pub async fn block(&mut self) -> Option<Vec<(String, String)>> {
        loop {
            if let Some((block, rest)) = self.buffer.split_once("\n\n") {
                let field = |line: &str| {
                    let (name, value) = line.split_once(": ").unwrap();
                    (name.to_owned(), value.to_owned())
                };
                let block = block.lines().map(field).collect();
                self.buffer = rest.to_owned();
                return Some(block);
            }
            let frame = within("an event comes", self.body.frame()).await?;
            self.buffer.push_str(std::str::from_utf8(&frame.unwrap().into_data().unwrap()).unwrap());
        }
    }
}

/// The value of a field of a block; empty if there is none.
pub fn field<'a>(block: &'a [(String, String)], name: &str) -> &'a str {
    block.iter().find(|(other, _)| other == name).map_or("", |(_, value)| value)
}

/// The changes in a block; empty for a block of another kind.
pub fn changes(block: &[(String, String)]) -> Vec<Value> {
    let data = serde_json::from_str::<Value>(field(block, "data")).unwrap_or_default();
    data["changes"].as_array().cloned().unwrap_or_default()
}
