//! CORS: pages of all origins may call, as etcd allows by default (its `--cors=*`).

use http::{HeaderName, HeaderValue, Method, Request, Response, header};
use tonic::body::Body;

const HEADERS: [(HeaderName, HeaderValue); 3] = [
    (header::ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static("accept, content-type, authorization")),
    (header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("POST, GET, OPTIONS, PUT, DELETE")),
    (header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*")),
];

/// The answer to a preflight request of a browser, for any path.
pub(crate) fn preflight<B>(request: &Request<B>) -> Option<Response<Body>> {
    (request.method() == Method::OPTIONS).then(|| allow(Response::new(Body::empty())))
}

/// Lets a page read the answer.
pub(crate) fn allow(mut response: Response<Body>) -> Response<Body> {
    response.headers_mut().extend(HEADERS);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_browser_that_asks_is_let_in() {
        let request = |method| Request::builder().method(method).uri("/v3/kv/put").body(()).unwrap();
        assert!(preflight(&request("POST")).is_none());
        let response = preflight(&request("OPTIONS")).unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["access-control-allow-origin"], "*");
        assert_eq!(response.headers().len(), 3);
    }
}
