//! Requests of Consul's HTTP API over the connections that the other commands use (HTTP/2).

use bytes::Bytes;
use http::{Method, StatusCode, header};
use http_body_util::{BodyExt, Full};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use tonic::body::Body;
use tonic::{Response, Status};
use tower::{Service, ServiceExt};

use crate::connect::Cluster;
use crate::error::CliError;
use headwater_client::{Attempt, Repeat};

/// Characters that [`encode`] encodes: all but ASCII letters, digits and `-._~`.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A request. Callers encode the path; [`get`](Self::get) encodes the values of its query.
pub(crate) struct Call {
    method: Method,
    path: String,
    body: Bytes,
    repeat: Repeat,
}

impl Call {
    /// A `GET`, which only reads.
    pub(crate) fn get(path: &str, query: &[(&str, &str)]) -> Self {
        Self { method: Method::GET, path: with_query(path, query), body: Bytes::new(), repeat: Repeat::Harmless }
    }

    /// A `PUT` that leaves the same behind when it is repeated.
    pub(crate) fn put(path: &str, body: &Value) -> Self {
        Self { method: Method::PUT, path: path.to_owned(), body: body.to_string().into(), repeat: Repeat::Harmless }
    }

    /// A `PUT` that makes something new each time.
    pub(crate) fn create(path: &str, body: &Value) -> Self {
        Self { repeat: Repeat::Harmful, ..Self::put(path, body) }
    }

    /// A `POST` that only reads.
    pub(crate) fn post(path: &str, body: &Value) -> Self {
        Self { method: Method::POST, ..Self::put(path, body) }
    }

    /// A `DELETE`, which leaves the same behind when it is repeated.
    pub(crate) fn delete(path: &str) -> Self {
        Self { method: Method::DELETE, ..Self::get(path, &[]) }
    }

    /// Sends the request to one endpoint after the other until one answers ([`Cluster::call`]), and
    /// reads the answer as JSON. A request of [`create`](Self::create) is not repeated once it may
    /// have been carried out.
    pub(crate) async fn send(self, cluster: &Cluster) -> Result<Value, CliError> {
        cluster.call(self.repeat, async |attempt| self.attempt(attempt, cluster.token()).await).await
    }

    async fn attempt(&self, attempt: Attempt, token: Option<&str>) -> Result<Response<Value>, Status> {
        let mut channel = attempt.http();
        let mut request = http::Request::builder()
            .method(self.method.clone())
            .uri(&self.path)
            .header(header::CONTENT_TYPE, "application/json");
        if let Some(token) = token {
            request = request.header("x-consul-token", token);
        }
        let request = request
            .body(Body::new(Full::new(self.body.clone())))
            .map_err(|error| Status::invalid_argument(error.to_string()))?;
        let broken = |error| Status::from_error(Box::new(error));
        let response = channel.ready().await.map_err(broken)?.call(request).await.map_err(broken)?;
        let (parts, body) = response.into_parts();
        let body = body.collect().await?.to_bytes();
        if parts.status != StatusCode::OK {
            return Err(refused(parts.status, String::from_utf8_lossy(&body).trim_end()));
        }
        let value = serde_json::from_slice(&body)
            .map_err(|error| Status::data_loss(format!("the answer to {} is not JSON: {error}", self.path)))?;
        Ok(Response::new(value))
    }
}

/// The gRPC status for an answer with an HTTP status other than 200: calls are repeated by the
/// rules for gRPC statuses. `text` is the body of the answer.
fn refused(status: StatusCode, text: &str) -> Status {
    match status {
        StatusCode::SERVICE_UNAVAILABLE if text == "No cluster leader" => Status::unavailable("no leader"),
        StatusCode::SERVICE_UNAVAILABLE => Status::unavailable(text),
        StatusCode::TOO_MANY_REQUESTS => Status::resource_exhausted("too many requests"),
        StatusCode::NOT_FOUND => Status::not_found(text),
        StatusCode::FORBIDDEN => Status::permission_denied(text),
        StatusCode::UNAUTHORIZED => Status::unauthenticated(text),
        StatusCode::METHOD_NOT_ALLOWED => Status::unimplemented(text),
        status if status.is_client_error() => Status::invalid_argument(text),
        _ => Status::internal(text),
    }
}

/// `path` with `query` appended. Percent-encodes the values, not the names.
fn with_query(path: &str, query: &[(&str, &str)]) -> String {
    let mut whole = path.to_owned();
    for (number, (name, value)) in query.iter().enumerate() {
        whole.push(if number == 0 { '?' } else { '&' });
        whole.push_str(name);
        whole.push('=');
        whole.push_str(&encode(value));
    }
    whole
}

/// Percent-encodes all characters but the unreserved ones (RFC 3986 §2.3).
pub(crate) fn encode(text: &str) -> String {
    utf8_percent_encode(text, RESERVED).to_string()
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;

    #[test]
    fn names_are_encoded() {
        assert_eq!(encode("web-1.a_b~"), "web-1.a_b~");
        assert_eq!(encode("a b/ü?&="), "a%20b%2F%C3%BC%3F%26%3D");
        assert_eq!(
            with_query("/v1/x", &[("filter", "a == b"), ("passing", "1")]),
            "/v1/x?filter=a%20%3D%3D%20b&passing=1"
        );
    }

    #[test]
    fn answers_have_the_status_that_says_the_same() {
        for (status, text, code) in [
            (503, "No cluster leader", Code::Unavailable),
            (429, "rate limit exceeded", Code::ResourceExhausted),
            (400, "Must provide node", Code::InvalidArgument),
            (403, "Permission denied", Code::PermissionDenied),
            (401, "ACL support disabled", Code::Unauthenticated),
            (404, "nothing", Code::NotFound),
            (405, "method GET not allowed", Code::Unimplemented),
            (500, "write is indeterminate", Code::Internal),
        ] {
            assert_eq!(refused(StatusCode::from_u16(status).unwrap(), text).code(), code, "{status}");
        }
    }
}
