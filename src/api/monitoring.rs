//! The service of the metrics port: metrics, health, probes and versions, and nothing else.
//!
//! Owns the answers on a port that is not for clients. Knows no users: every path is open, so
//! credentials are not checked. The rules for browsers, the rate of a client and the audit log are
//! those of the client port. Invariant: no request here reads or changes a key.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use http::{Request, Response};
use hyper::body::Incoming;
use tonic::body::Body;
use tower::Service;

use super::access::AccessChecks;
use super::admission::{client_of, has_reserve, too_fast};
use super::http::browsers::{self, BrowserPolicy, Verdict};
use super::service::write_audit_line;
use headwater_api_shared::caller::Connected;
use headwater_node::Node;

/// Serves every request of the metrics port; cheap to clone.
#[derive(Clone)]
pub struct MonitoringService {
    inner: Arc<Inner>,
}

struct Inner {
    node: Node,
    browsers: BrowserPolicy,
    access: AccessChecks,
    routes: axum::Router,
}

impl fmt::Debug for MonitoringService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MonitoringService").finish_non_exhaustive()
    }
}

impl MonitoringService {
    pub(super) fn new(node: Node, browsers: BrowserPolicy, routes: axum::Router) -> Self {
        let access = AccessChecks::new(node.clone());
        Self { inner: Arc::new(Inner { node, browsers, access, routes }) }
    }
}

impl Inner {
    async fn answer(&self, request: Request<Body>) -> Response<Body> {
        let operation = self.access.plain(request.method(), request.uri().path());
        let line = self.access.line_of_anybody(&operation, request.extensions().get::<Connected>());
        let Ok(response) = self.routes.clone().call(request).await;
        write_audit_line(response.map(Body::new), line)
    }
}

impl Service<Request<Incoming>> for MonitoringService {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        let inner = Arc::clone(&self.inner);
        Box::pin(async move {
            let origin = match inner.browsers.judge(&request, inner.node.limit_counters()) {
                Verdict::Allowed(origin) => origin,
                Verdict::Refused(response) => return Ok(response),
            };
            let counted = match has_reserve(request.uri().path()) {
                true => Ok(()),
                false => inner.node.count_request(client_of(&request)),
            };
            let response = match counted {
                Ok(()) => inner.answer(request.map(Body::new)).await,
                Err(wait) => too_fast(&request, wait),
            };
            Ok(browsers::allow(response, origin))
        })
    }
}
