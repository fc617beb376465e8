//! Routes of plain HTTP on the client port and on the metrics port: health, probes, version and
//! metrics (spec: etcd §4.6, §4.7).
//!
//! One file for each path, but `probes` for two; `browsers` has the rules for web pages, which
//! apply to all requests of the port. The formats are etcd's, because load balancers, kubelets and
//! dashboards already parse them.

pub(super) mod browsers;
mod health;
mod metrics;
mod probes;
mod version;

use std::sync::Arc;

use axum::Router;
use axum::http::{Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use prometheus::{IntCounter, Registry};

use headwater_api_shared::ApiOptions;
use headwater_node::{Consistency, Node, NodeError, RequestContext};

/// The routes of the client port and of the metrics port. Both share the counters.
pub(super) struct Routes {
    state: Arc<HttpState>,
}

impl Routes {
    /// Registers the metrics of the routes, of the node and of the process in `registry`.
    pub(super) fn new(node: Node, registry: &Registry, options: ApiOptions) -> Result<Self, prometheus::Error> {
        metrics::register(&node, registry)?;
        let state = HttpState {
            healthy: counter(registry, "etcd_server_health_success", "Health checks that succeeded.")?,
            unhealthy: counter(registry, "etcd_server_health_failures", "Health checks that failed.")?,
            scrapes: metrics::Scrapes::register(registry)?,
            checks: probes::CheckMetrics::register(registry)?,
            registry: registry.clone(),
            node,
            options,
        };
        Ok(Self { state: Arc::new(state) })
    }

    /// The routes of the client port, with `/metrics` if `shows_metrics`.
    pub(super) fn of_client_port(&self, shows_metrics: bool) -> Router {
        match shows_metrics {
            true => self.of_metrics_port(),
            false => self.finish(health_routes()),
        }
    }

    /// The routes of the metrics port.
    pub(super) fn of_metrics_port(&self) -> Router {
        self.finish(health_routes().route("/metrics", any(metrics::metrics)))
    }

    fn finish(&self, routes: Router<Arc<HttpState>>) -> Router {
        routes.fallback(not_found).with_state(Arc::clone(&self.state))
    }
}

/// Health, probes and version.
fn health_routes() -> Router<Arc<HttpState>> {
    Router::new()
        .route("/health", any(health::health))
        .route("/livez", any(probes::livez))
        .route("/livez/{check}", any(probes::livez_one))
        .route("/readyz", any(probes::readyz))
        .route("/readyz/{check}", any(probes::readyz_one))
        .route("/version", any(version::version))
}

/// State that the routes share.
struct HttpState {
    node: Node,
    options: ApiOptions,
    registry: Registry,
    healthy: IntCounter,
    unhealthy: IntCounter,
    scrapes: metrics::Scrapes,
    checks: probes::CheckMetrics,
}

impl HttpState {
    /// Checks that this member can answer a read of this consistency now. The error is that of the
    /// read.
    async fn check_read(&self, consistency: Consistency) -> Result<(), NodeError> {
        // The node's own context, not the client's: health checks use a reserve.
        let ctx = RequestContext::own(self.options.request_timeout);
        match consistency {
            Consistency::Linearizable => self.node.check_linearizable(&ctx).await,
            Consistency::Serializable => self.node.check_serializable(&ctx).await,
        }
    }
}

fn counter(registry: &Registry, name: &str, help: &str) -> Result<IntCounter, prometheus::Error> {
    let counter = IntCounter::new(name, help)?;
    registry.register(Box::new(counter.clone()))?;
    Ok(counter)
}

async fn not_found() -> Response {
    text(StatusCode::NOT_FOUND, "404 page not found\n")
}

fn text(status: StatusCode, body: impl Into<String>) -> Response {
    let headers = [(header::CONTENT_TYPE, "text/plain; charset=utf-8"), (header::X_CONTENT_TYPE_OPTIONS, "nosniff")];
    (status, headers, body.into()).into_response()
}

/// The refusal of a method other than GET; `None` for GET.
fn only_get(method: &Method) -> Option<Response> {
    (method != Method::GET).then(|| {
        let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed\n");
        response.headers_mut().insert(header::ALLOW, header::HeaderValue::from_static("GET"));
        response
    })
}

/// Query parameters in the order in which they were given.
type Params = Vec<(String, String)>;

fn values<'a>(params: &'a Params, name: &'a str) -> impl Iterator<Item = &'a str> {
    params.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_get_is_allowed() {
        assert!(only_get(&Method::GET).is_none());
        for method in [Method::POST, Method::HEAD, Method::PUT, Method::DELETE, Method::OPTIONS] {
            let response = only_get(&method).unwrap();
            assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED);
            assert_eq!(response.headers()[header::ALLOW], "GET");
        }
    }

    #[test]
    fn parameters_may_repeat() {
        let params = vec![("a".into(), "1".into()), ("b".into(), "2".into()), ("a".into(), "3".into())];
        assert_eq!(values(&params, "a").collect::<Vec<_>>(), ["1", "3"]);
        assert_eq!(values(&params, "c").count(), 0);
    }
}
