//! Consul's HTTP API, below `/v1/` (spec: consul §8): the service catalog, health, this node as an
//! agent, keys, sessions, transactions, and access control lists.
//!
//! Owns paths, queries, bodies and headers as Consul's client libraries expect them. `fsm::catalog`
//! owns the rules of registrations, and the index of each change. One file for each group of
//! endpoints; `routes` lists them all.
//!
//! ```text
//! PUT /v1/catalog/register
//!     {"Node": "n1", "Address": "10.0.0.1", "Service": {"Service": "web", "Port": 80}}
//! 200 true
//! GET /v1/health/service/web?passing
//! 200, X-Consul-Index: 17   [{"Node": …, "Service": …, "Checks": […]}]
//! GET /v1/health/service/web?index=17&wait=60s
//! the same as soon as it has changed
//! ```

mod absent;
mod access;
mod acl;
mod agent;
mod answer;
mod blocking;
mod call;
mod catalog;
mod config;
mod decode;
mod filter;
mod health;
mod kv;
mod lookup;
mod registration;
mod rights;
mod routes;
mod session;
mod shapes;
mod status;
mod tree;
mod txn;

use std::convert::Infallible;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use prometheus::{IntCounterVec, Opts, Registry};
use tonic::body::Body;
use tower::ServiceExt;
use tower_http::compression::Compression;
use tower_http::compression::predicate::SizeAbove;

use answer::Refusal;
use call::Call;
use headwater_api_shared::ApiOptions;
use headwater_api_shared::caller::Caller;
use headwater_api_shared::timed_body::is_late;
use headwater_node::{Node, NodeError, Shares};
use headwater_types::limits::CONSUL_WAITING_MAX;
use routes::Endpoint;

/// Smallest body of an answer that is compressed, bytes.
const COMPRESSED_BYTES_MIN: u16 = 1400;

/// Serves Consul's paths.
#[derive(Clone)]
pub struct Consul {
    shared: Arc<Shared>,
    requests: IntCounterVec,
}

/// State that all requests share.
struct Shared {
    node: Node,
    options: ApiOptions,
    /// Shares of blocking queries that wait for a change; [`CONSUL_WAITING_MAX`] in all.
    waiting: Shares,
}

impl Consul {
    /// Serves the paths from `node`. Counts requests in `registry`.
    ///
    /// # Errors
    ///
    /// If `registry` already holds the counter.
    pub fn new(node: Node, options: ApiOptions, registry: &Registry) -> Result<Self, prometheus::Error> {
        let opts = Opts::new(
            "headwater_consul_requests_total",
            "Requests of Consul's HTTP API by endpoint, method and status code, once they are answered.",
        );
        let requests = IntCounterVec::new(opts, &["path", "method", "code"])?;
        registry.register(Box::new(requests.clone()))?;
        let shared = Shared { node, options, waiting: Shares::new(CONSUL_WAITING_MAX) };
        Ok(Self { shared: Arc::new(shared), requests })
    }

    /// Whether a path is `/v1` or below it, but is neither `/v1/watch` nor `/v1/store` nor below
    /// one of these. A path that it owns need not be served.
    pub fn owns(path: &str) -> bool {
        // The watcher serves `/v1/watch`, and the gateway serves the store's API below `/v1/store`.
        let below =
            |prefix: &str| path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        below("/v1") && !below("/v1/watch") && !below("/v1/store")
    }

    /// The refusal of a request over its client's rate limit (429), in Consul's words.
    pub fn too_fast() -> Response<Body> {
        Refusal::from(NodeError::TooManyRequests).into_response()
    }

    /// Answers a request; compressed if the client accepts that and the answer is large enough.
    pub fn call(&self, request: Request<Body>) -> BoxFuture<'static, Response<Body>> {
        if !request.headers().contains_key(header::ACCEPT_ENCODING) {
            return self.answer(request);
        }
        let this = self.clone();
        let plain = move |request| this.answer(request).map(Ok::<_, Infallible>);
        let compressed = Compression::new(tower::service_fn(plain))
            .compress_when(SizeAbove::new(COMPRESSED_BYTES_MIN))
            .oneshot(request);
        Box::pin(compressed.map(|answered| match answered {
            Ok(response) => response.map(Body::new),
        }))
    }

    fn answer(&self, request: Request<Body>) -> BoxFuture<'static, Response<Body>> {
        let (shared, requests) = (Arc::clone(&self.shared), self.requests.clone());
        Box::pin(async move {
            let found = routes::find(request.uri().path()).map(|(endpoint, rest)| (endpoint, rest.to_owned()));
            let method = request.method().clone();
            let path = found.as_ref().map_or("unknown", |(endpoint, _)| endpoint.path);
            let response = match found {
                None => nothing_at(request.uri().path()).into_response(),
                Some((endpoint, _)) if method == Method::OPTIONS => options(endpoint),
                Some((endpoint, rest)) => match serve(&shared, endpoint, &rest, request).await {
                    Ok(answer) => answer.into_response(&shared.node),
                    Err(refusal) => refusal.into_response(),
                },
            };
            let method = match method {
                Method::GET | Method::PUT | Method::POST | Method::DELETE | Method::OPTIONS => method.as_str(),
                _ => "other",
            };
            requests.with_label_values(&[path, method, response.status().as_str()]).inc();
            response
        })
    }
}

/// The refusal (404) of a path without an endpoint. Its text gives the reason if the path is one of
/// Consul's that is not served. Clients check for this code.
fn nothing_at(path: &str) -> Refusal {
    Refusal::not_found(absent::reason(path).unwrap_or_else(|| format!("there is nothing at {path}")))
}

/// The path of the endpoint that serves `path`, written as in the routes. `None` if none does.
pub fn served_path(path: &str) -> Option<&'static str> {
    routes::find(path).map(|(endpoint, _)| endpoint.path)
}

/// Every method of every path that is served; paths are written as in the routes.
pub fn served_paths() -> impl Iterator<Item = (&'static Method, &'static str)> {
    let methods = |endpoint: &'static Endpoint| endpoint.methods.iter().map(move |(method, _)| (method, endpoint.path));
    routes::ENDPOINTS.iter().flat_map(methods)
}

/// The answer to a request that the access checks refuse, in Consul's words. Unknown or outdated
/// credentials are 403 `ACL not found`.
pub fn refused(error: NodeError) -> Response<Body> {
    access::of_judging(error).into_response()
}

async fn serve(
    shared: &Arc<Shared>,
    endpoint: &Endpoint,
    rest: &str,
    request: Request<Body>,
) -> Result<answer::Answer, Refusal> {
    let (parts, body) = request.into_parts();
    let handler = endpoint.handler(&parts.method).ok_or_else(|| Refusal::method(&parts.method, endpoint.allow()))?;
    let body = Limited::new(body, endpoint.body_bytes_max).collect().await.map_err(|error| {
        if error.downcast_ref::<LengthLimitError>().is_some() {
            let text = format!("Request body too large, max size: {} bytes", endpoint.body_bytes_max);
            Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, text)
        } else {
            let code = if is_late(&*error) { StatusCode::REQUEST_TIMEOUT } else { StatusCode::BAD_REQUEST };
            Refusal::new(code, format!("the body cannot be read: {error}"))
        }
    })?;
    let call = Call::new(Arc::clone(shared), rest, parts.uri.query(), parts.headers, body.to_bytes())?;
    handler(call.made_by(Caller::of(&parts.extensions))).await
}

/// The answer to `OPTIONS`: the methods of the path, in `Allow`.
fn options(endpoint: &Endpoint) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    let allow = HeaderValue::from_str(&endpoint.allow()).expect("names of methods");
    response.headers_mut().insert(header::ALLOW, allow);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consuls_paths_are_told_from_the_watchers() {
        for (path, owned) in [
            ("/v1", true),
            ("/v1/catalog/nodes", true),
            ("/v1/nothing", true),
            ("/v1/watch", false),
            ("/v1/watch/x", false),
            ("/v1/watching", true),
            ("/v1x", false),
            ("/v3/kv/put", false),
        ] {
            assert_eq!(Consul::owns(path), owned, "{path}");
        }
    }
}
