//! Admission of requests by client: the paths that may use a reserve, and the refusal of a client
//! over its request rate.

use std::time::Duration;

use http::{HeaderMap, HeaderValue, Request, Response, header};
use tonic::body::Body;
use tonic::{Code, Status};

use headwater_api_consul::Consul;
use headwater_api_shared::caller::Connected;
use headwater_api_shared::{http_errors, is_grpc};
use headwater_node::ClientKey;

/// Exact paths of requests that may use the reserves.
const RESERVED: [&str; 10] = [
    "/etcdserverpb.Lease/LeaseKeepAlive",
    "/etcd/LeaseKeepAlive",
    "/grpc.health.v1.Health/Check",
    "/grpc.health.v1.Health/Watch",
    "/v3/lease/keepalive",
    "/v3beta/lease/keepalive",
    "/health",
    "/livez",
    "/readyz",
    "/v1/status/leader",
];
/// Prefixes of paths of requests that may use the reserves.
const RESERVED_BELOW: [&str; 7] = [
    "/livez/",
    "/readyz/",
    "/v1/session/renew/",
    "/v1/agent/check/pass/",
    "/v1/agent/check/warn/",
    "/v1/agent/check/fail/",
    "/v1/agent/check/update/",
];

/// Text of the refusal of a request over its client's rate, on the methods of etcd. Clients match
/// it (spec: etcd §6).
const TOO_MANY_REQUESTS: &str = "etcdserver: too many requests";

/// Whether requests to `path` may use the reserves of connections and of open requests. They do not
/// count for their client's rate.
pub fn has_reserve(path: &str) -> bool {
    RESERVED.contains(&path) || RESERVED_BELOW.iter().any(|prefix| path.starts_with(prefix))
}

/// The party for which a request counts, as the listener has put it into the extensions.
/// [`ClientKey::Unknown`] if the listener has not.
pub(super) fn client_of<B>(request: &Request<B>) -> ClientKey {
    request.extensions().get::<Connected>().map(|connected| connected.client).unwrap_or_default()
}

/// The refusal of a request over its client's rate, in the form of its protocol. It asks the client
/// to wait for `wait` before the next request.
pub(super) fn too_fast<B>(request: &Request<B>, wait: Duration) -> Response<Body> {
    let path = request.uri().path();
    let mut response = if is_grpc(request.version(), request.headers()) {
        let mut status = Status::resource_exhausted(text(path));
        // The wait before a retry, for clients that retry by themselves (gRPC, A6).
        let millis = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).saturating_add(1);
        status.metadata_mut().insert("grpc-retry-pushback-ms", millis.into());
        status.into_http()
    } else if Consul::owns(path) {
        Consul::too_fast()
    } else {
        http_errors::response(&Status::new(Code::ResourceExhausted, text(path)))
    };
    retry_after(response.headers_mut(), wait);
    response
}

fn text(path: &str) -> &'static str {
    let is_etcds = ["/etcd", "/v3", "/watch/"].iter().any(|prefix| path.starts_with(prefix));
    if is_etcds {
        return TOO_MANY_REQUESTS;
    }
    "headwater: this client makes more requests than limits.requests-per-second allows; wait before the next one"
}

/// Sets the header `Retry-After` to `wait` in whole seconds, rounded up, at least one.
fn retry_after(headers: &mut HeaderMap, wait: Duration) {
    let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
    headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds.max(1)));
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;

    #[test]
    fn health_and_keep_alives_have_a_reserve_and_nothing_else() {
        for (path, reserved) in [
            ("/etcdserverpb.Lease/LeaseKeepAlive", true),
            ("/etcdserverpb.Lease/LeaseTimeToLive", false),
            ("/etcdserverpb.KV/Put", false),
            ("/livez", true),
            ("/livez/serializable_read", true),
            ("/livezz", false),
            ("/v1/session/renew/7", true),
            ("/v1/session/create", false),
            ("/v1/agent/check/pass/web", true),
            ("/v1/agent/check/update/web", true),
            ("/v1/kv/a", false),
            ("/metrics", false),
        ] {
            assert_eq!(has_reserve(path), reserved, "{path}");
        }
    }

    #[test]
    fn each_protocol_says_when_to_come_back() {
        let ask = |path: &str, content: &'static str, version| {
            let request = Request::builder().uri(path).version(version).header(header::CONTENT_TYPE, content);
            too_fast(&request.body(()).unwrap(), Duration::from_millis(1200))
        };
        let grpc = ask("/etcdserverpb.KV/Put", "application/grpc", http::Version::HTTP_2);
        let status = Status::from_header_map(grpc.headers()).unwrap();
        assert_eq!((status.code(), status.message()), (Code::ResourceExhausted, TOO_MANY_REQUESTS));
        assert_eq!(grpc.headers()["grpc-retry-pushback-ms"], "1201");
        for path in ["/v3/kv/put", "/v1/kv/a", "/apis/types", "/v1/watch"] {
            let http = ask(path, "application/json", http::Version::HTTP_11);
            assert_eq!(
                (http.status(), &http.headers()[header::RETRY_AFTER]),
                (StatusCode::TOO_MANY_REQUESTS, &HeaderValue::from(2)),
                "{path}"
            );
        }
        let resource =
            ask("/hashicorp.consul.resource.ResourceService/Read", "application/grpc", http::Version::HTTP_2);
        let status = Status::from_header_map(resource.headers()).unwrap();
        assert!(status.message().contains("limits.requests-per-second"), "{}", status.message());
    }
}
