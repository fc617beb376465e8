//! HTTP/1 on the client port: paths of every API with odd queries and bodies, and requests that
//! break the protocol.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use base64::Engine;
use futures::future::BoxFuture;
use prost_reflect::{DescriptorPool, MethodDescriptor};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{Attack, Outcome};
use crate::dice::Dice;
use crate::mutate;
use crate::rig::Rig;
use crate::wire::{harm, message, reflection};

/// Longest wait for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(400);
/// Most bytes of an answer that are read.
const ANSWER_BYTES_MAX: usize = 64 << 10;

const METHODS: &[&str] =
    &["GET", "PUT", "POST", "DELETE", "HEAD", "OPTIONS", "PATCH", "CONNECT", "TRACE", "BREW", "get"];

/// Paths of Consul's API, of REST, of the watcher and of the node itself. A text replaces each
/// `{}`.
const PATHS: &[&str] = &[
    "/v1/kv/{}",
    "/v1/txn",
    "/v1/agent/check/register",
    "/v1/agent/check/pass/{}",
    "/v1/agent/check/update/{}",
    "/v1/agent/service/register",
    "/v1/agent/service/deregister/{}",
    "/v1/agent/service/maintenance/{}",
    "/v1/agent/service/{}",
    "/v1/agent/services",
    "/v1/agent/self",
    "/v1/agent/health/service/name/{}",
    "/v1/catalog/register",
    "/v1/catalog/deregister",
    "/v1/catalog/nodes",
    "/v1/catalog/node/{}",
    "/v1/catalog/service/{}",
    "/v1/catalog/services",
    "/v1/config",
    "/v1/config/{}/{}",
    "/v1/health/service/{}",
    "/v1/health/state/{}",
    "/v1/health/node/{}",
    "/v1/health/checks/{}",
    "/v1/session/create",
    "/v1/session/destroy/{}",
    "/v1/session/renew/{}",
    "/v1/session/info/{}",
    "/v1/session/list",
    "/v1/status/leader",
    "/v1/watch",
    "/v1/watch/{}",
    "/api/demo/v2/artist/{}",
    "/api/demo/v2/artist",
    "/api/{}/{}/{}/{}",
    "/health",
    "/livez/{}",
    "/readyz?exclude={}",
    "/metrics",
    "/version",
    "/{}",
];

const QUERIES: &[&str] = &[
    "recurse",
    "keys",
    "raw",
    "cas",
    "flags",
    "acquire",
    "release",
    "index",
    "wait",
    "filter",
    "dc",
    "passing",
    "near",
    "node-meta",
    "separator",
    "stale",
    "consistent",
    "token",
    "ns",
    "partition",
    "enable",
    "reason",
    "status",
    "note",
    "target",
    "resume_marker",
    "name_prefix",
    "owner",
    "limit",
];

/// Requests that break the protocol. A length or a text replaces each `{}`.
const BROKEN: &[&str] = &[
    "GET /livez HTTP/9.9\r\n\r\n",
    "GET /livez\r\n\r\n",
    "GET  /livez  HTTP/1.1\r\n\r\n",
    "GET /livez HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    "GET /livez HTTP/1.1\r\nNo colon here\r\n\r\n",
    "GET /livez HTTP/1.1\r\n Folded: yes\r\n\r\n",
    "GET /livez HTTP/1.1\nHost: a\n\n",
    "GET http://evil.example/livez HTTP/1.1\r\nHost: a\r\n\r\n",
    "PUT /v1/kv/k HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\nx",
    "PUT /v1/kv/k HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
    "PUT /v1/kv/k HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /livez HTTP/1.1\r\n\r\n",
    "PUT /v1/kv/k HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n5\r\nabcde\r\n0\r\n\r\n",
    "PUT /v1/kv/k HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n5\r\nabcde\r\n0\r\n\r\n",
    "PUT /v1/kv/k HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{}\r\nabcde\r\n0\r\n\r\n",
    "PUT /v1/kv/k HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFF1\r\nabcde\r\n",
    "PUT /v1/kv/k HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;{}\r\nabcde\r\n0\r\nTrailer: {}\r\n\r\n",
    "PUT /v1/kv/k HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: {}\r\n\r\n",
    "PUT /v1/kv/k HTTP/1.1\r\nHost: a\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc",
    "GET /livez HTTP/1.1\r\nHost: a\r\nUpgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: {}\r\n\r\n",
    "GET /v1/catalog/nodes HTTP/1.1\r\nHost: {}\r\nOrigin: {}\r\n\r\n",
    "GET /{} HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET /livez HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n",
    "GET /livez HTTP/1.1\r\nHost: a\r\n\r\nGET /livez HTTP/1.1\r\nHost: a\r\n\r\nGET /nothing HTTP/1.1\r\nHost: a\r\n\r\n",
    "PRI * HTTP/2.0\r\n\r\n",
    "\r\n\r\n\r\n",
    "\0\0\0",
];

/// The cluster, and all gRPC methods of its client port; the JSON gateway serves some of them.
pub(super) struct Http1 {
    rig: Arc<Rig>,
    pool: DescriptorPool,
    methods: Vec<MethodDescriptor>,
}

pub(super) async fn prepare(rig: Arc<Rig>) -> anyhow::Result<Http1> {
    let channel = rig.reach.channel(rig.node(0).client)?;
    let (pool, methods) = reflection::served(channel).await.context("reflection")?;
    Ok(Http1 { rig, pool, methods })
}

impl Attack for Http1 {
    fn input<'a>(&'a self, mut dice: Dice) -> BoxFuture<'a, anyhow::Result<Outcome>> {
        Box::pin(async move {
            let dice = &mut dice;
            let request = match dice.below(4) {
                0 => self.gateway(dice),
                1 => Some(broken(dice)),
                _ => Some(consul(dice)),
            };
            let Some(mut request) = request else { return Ok(Outcome::of("not sent")) };
            // Damage must not turn a request into one that may legally delete keys.
            if dice.once_in(6) && !request.windows(6).any(|part| part == b"delete" || part == b"/v3/kv") {
                mutate::bytes(&mut request, dice);
            }
            let is_cut = dice.once_in(20);
            if is_cut {
                request.truncate(dice.below(request.len()));
            }
            let answer = self.send(&request, dice.below(3)).await;
            Ok(judge(&request, &answer))
        })
    }
}

impl Http1 {
    /// Sends a request; returns the first bytes of the answer, empty if none came in time.
    async fn send(&self, request: &[u8], node: usize) -> Vec<u8> {
        let mut answer = Vec::new();
        let exchange = async {
            let mut connection = self.rig.reach.open(self.rig.node(node).client).await?;
            connection.write_all(request).await?;
            let mut part = [0; 8192];
            while answer.len() < ANSWER_BYTES_MAX {
                match connection.read(&mut part).await? {
                    0 => break,
                    read => answer.extend_from_slice(&part[..read]),
                }
            }
            anyhow::Ok(())
        };
        // At the timeout the server has left the connection open: everything that came counts.
        let _ends = tokio::time::timeout(ANSWER_TIMEOUT, exchange).await.is_ok();
        answer
    }

    /// A request to the JSON gateway; `None` if it may legally do harm (`wire::harm`).
    fn gateway(&self, dice: &mut Dice) -> Option<Vec<u8>> {
        let method = dice.pick(&self.methods);
        let made = message::message(&self.pool, &method.input(), dice);
        if harm::harms(&made) {
            return None;
        }
        let mut body = serde_json::to_vec(&made).ok()?;
        if dice.once_in(3) && !method.name().contains("Txn") && !method.name().contains("Delete") {
            mutate::bytes(&mut body, dice);
        }
        let service = method.parent_service().name().to_lowercase();
        let paths = [
            format!("/v3/{service}/{}", method.name().to_lowercase()),
            format!("/v3/kv/{}", method.name().to_lowercase()),
            format!("/v3/{service}/{}", method.name().to_lowercase().trim_start_matches(&service)),
            "/v3/watch".to_owned(),
        ];
        let path = dice.pick(&paths).clone();
        Some(request("POST", &path, &body, dice))
    }
}

/// A request to one of [`PATHS`], with a random query and body.
fn consul(dice: &mut Dice) -> Vec<u8> {
    let mut path = String::new();
    for part in dice.pick(PATHS).split_inclusive("{}") {
        path.push_str(part.trim_end_matches("{}"));
        if part.ends_with("{}") {
            path.push_str(&in_url(&message::text(dice)));
        }
    }
    for number in 0..dice.below(4) {
        path.push(if number == 0 && !path.contains('?') { '?' } else { '&' });
        let query: &&str = dice.pick(QUERIES);
        path.push_str(query);
        if !dice.once_in(3) {
            let value = if dice.once_in(2) { dice.number().to_string() } else { message::text(dice) };
            path.push('=');
            path.push_str(&in_url(&value));
        }
    }
    path.truncate(path.floor_char_boundary(40_000));
    let body = body(dice);
    let methods = if dice.once_in(8) { METHODS } else { &METHODS[..4] };
    let method = *dice.pick(methods);
    request(method, &path, &body, dice)
}

/// The text, percent-encoded for a URL.
fn in_url(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' => (byte as char).to_string(),
            _ => format!("%{byte:02X}"),
        })
        .collect()
}

/// Names of JSON members in the bodies of Consul's endpoints and of REST.
const MEMBERS: &[&str] = &[
    "Node",
    "Address",
    "Service",
    "Check",
    "Checks",
    "ID",
    "Name",
    "Port",
    "Tags",
    "Meta",
    "Weights",
    "Status",
    "TTL",
    "Kind",
    "Proxy",
    "Connect",
    "KV",
    "Verb",
    "Key",
    "Value",
    "Index",
    "Flags",
    "Session",
    "Behavior",
    "LockDelay",
    "NodeChecks",
    "ServiceChecks",
    "TaggedAddresses",
    "EnableTagOverride",
    "CheckID",
    "ServiceID",
    "Output",
    "metadata",
    "data",
    "owner",
    "target",
    "Datacenter",
    "NodeMeta",
    "Definition",
    "Passing",
    "Warning",
];

fn body(dice: &mut Dice) -> Vec<u8> {
    match dice.below(5) {
        0 => Vec::new(),
        1 => {
            let length = dice.length();
            dice.bytes(length)
        }
        _ => {
            let value = json(dice, 0);
            value.to_string().into_bytes()
        }
    }
}

fn json(dice: &mut Dice, depth: usize) -> serde_json::Value {
    use serde_json::Value;
    let kind = if depth == 0 { 6 + dice.below(2) } else { dice.below(if depth < 6 { 9 } else { 6 }) };
    match kind {
        0 => Value::Null,
        1 => Value::Bool(dice.once_in(2)),
        2 => dice.number().into(),
        3 => (dice.number() as i64).into(),
        4 => f64::from_bits(dice.number()).into(),
        5 => {
            let text = message::text(dice);
            if dice.once_in(4) { base64::prelude::BASE64_STANDARD.encode(text).into() } else { text.into() }
        }
        6 => (0..dice.below(4)).map(|_| json(dice, depth + 1)).collect::<Vec<_>>().into(),
        _ => {
            let members = 1 + dice.below(6);
            let object = (0..members).map(|_| ((*dice.pick(MEMBERS)).to_owned(), json(dice, depth + 1)));
            Value::Object(object.collect())
        }
    }
}

fn request(method: &str, path: &str, body: &[u8], dice: &mut Dice) -> Vec<u8> {
    let mut head = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
    match dice.below(10) {
        0 => head.push_str("Transfer-Encoding: chunked\r\n\r\n"),
        1 => head.push_str(&format!("Content-Length: {}\r\n\r\n", dice.number())),
        2 => head.push_str("Accept: text/event-stream\r\nAccept-Encoding: gzip\r\n\r\n"),
        _ => head.push_str(&format!("Content-Length: {}\r\n\r\n", body.len())),
    }
    if head.contains("chunked") {
        head.push_str(&format!("{:x}\r\n", body.len()));
        return [head.as_bytes(), body, b"\r\n0\r\n\r\n"].concat();
    }
    [head.as_bytes(), body].concat()
}

fn broken(dice: &mut Dice) -> Vec<u8> {
    let mut request = Vec::new();
    for part in dice.pick(BROKEN).split_inclusive("{}") {
        request.extend_from_slice(part.trim_end_matches("{}").as_bytes());
        if part.ends_with("{}") {
            let text = if dice.once_in(2) { dice.number().to_string() } else { message::text(dice) };
            request.extend_from_slice(text.as_bytes());
        }
    }
    request
}

/// Texts of refusals that Consul and etcd's gateway send with status 500, because their clients
/// compare the texts.
const AS_OTHERS: &[&str] = &[
    "No path to datacenter",
    "node name is reserved",
    "Missing node registration",
    "Missing service registration",
    "Missing check registration",
    "check is of another node",
    "Check is in critical state",
    "missing session",
    "invalid session",
    "session already exists",
    "election: no leader",
    "election: session expired",
    "election: not leader",
    "field must be provided",
    "mutex: session is expired",
];

/// Judges an answer: it must be HTTP/1, or frames after a preface of HTTP/2. Its status must be
/// below 500, one of 501, 503, 504 and 505, or come with a text of [`AS_OTHERS`]. No answer is no
/// finding.
fn judge(request: &[u8], answer: &[u8]) -> Outcome {
    if answer.is_empty() {
        return Outcome::of("nothing");
    }
    let text = String::from_utf8_lossy(answer);
    let first = text.lines().next().unwrap_or_default();
    let asked = String::from_utf8_lossy(request);
    let asked: String = asked.lines().next().unwrap_or_default().chars().take(300).collect();
    if !first.starts_with("HTTP/1.") {
        // The preface of HTTP/2 is answered by frames.
        let is_preface = request.starts_with(b"PRI");
        let shown: String = first.chars().take(80).collect();
        return match is_preface {
            true => Outcome::of("HTTP/2"),
            false => Outcome::finding("no HTTP", format!("{asked:?} is answered by {shown:?}")),
        };
    }
    match first.split(' ').nth(1).and_then(|status| status.parse::<u16>().ok()) {
        Some(501 | 503..=505) => Outcome::of("overload"),
        Some(status @ 500..) => {
            let body = text.split_once("\r\n\r\n").map(|(_, body)| body).unwrap_or_default();
            if AS_OTHERS.iter().any(|text| body.contains(text)) {
                return Outcome::of("HTTP 500 of others");
            }
            let body: String = body.chars().take(200).collect();
            let path = asked.split(['?', ' ']).nth(1).unwrap_or_default();
            Outcome::finding(format!("HTTP {status}"), format!("{path} answers {status} {body:?} to {asked:?}"))
        }
        Some(status) => Outcome::of(format!("HTTP {status}")),
        None => Outcome::finding("no status", format!("{asked:?} is answered by {first:?}")),
    }
}
