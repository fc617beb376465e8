//! Errors as JSON, and the table from gRPC codes to their HTTP statuses (spec: etcd §4.6). REST and
//! Consul's API have tables of their own. The form is that of etcd up to 3.5; later versions have
//! no field `error`.

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::Full;
use serde::Serialize;
use tonic::body::Body;
use tonic::{Code, Status};

use super::http_metadata;

/// The content type of an answer in JSON.
pub const JSON: HeaderValue = HeaderValue::from_static("application/json");

#[derive(Serialize)]
struct ErrorBody<'a> {
    error: &'a str,
    message: &'a str,
    code: i32,
}

#[derive(Serialize)]
struct ErrorLine<'a> {
    error: StreamError<'a>,
}

#[derive(Serialize)]
struct StreamError<'a> {
    grpc_code: i32,
    http_code: u16,
    message: &'a str,
    http_status: &'a str,
}

/// The answer to a failed request: the HTTP status of its code, a JSON body, and its metadata as
/// headers.
pub fn response(status: &Status) -> Response<Body> {
    with_status(http_status(status.code()), status)
}

/// As [`response`], with another HTTP status.
pub fn with_status(code: StatusCode, status: &Status) -> Response<Body> {
    let message = status.message();
    let body = ErrorBody { error: message, message, code: status.code() as i32 };
    let body = serde_json::to_vec(&body).expect("texts and a number are always JSON");
    let mut response = Response::new(Body::new(Full::new(Bytes::from(body))));
    *response.status_mut() = code;
    response.headers_mut().insert(header::CONTENT_TYPE, JSON);
    http_metadata::outgoing(status.metadata().as_ref(), response.headers_mut());
    response
}

/// The last line of a stream that ends with an error: one JSON object and a newline.
pub fn line(status: &Status) -> Vec<u8> {
    let http = http_status(status.code());
    let error = StreamError {
        grpc_code: status.code() as i32,
        http_code: http.as_u16(),
        message: status.message(),
        http_status: http.canonical_reason().unwrap_or_default(),
    };
    let mut line = serde_json::to_vec(&ErrorLine { error }).expect("texts and numbers are always JSON");
    line.push(b'\n');
    line
}

/// The HTTP status of a code, as in etcd 3.5 and later; 3.4 has 412 for `FAILED_PRECONDITION`.
fn http_status(code: Code) -> StatusCode {
    match code {
        Code::Ok => StatusCode::OK,
        Code::Cancelled => StatusCode::REQUEST_TIMEOUT,
        Code::InvalidArgument | Code::FailedPrecondition | Code::OutOfRange => StatusCode::BAD_REQUEST,
        Code::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
        Code::NotFound => StatusCode::NOT_FOUND,
        Code::AlreadyExists | Code::Aborted => StatusCode::CONFLICT,
        Code::PermissionDenied => StatusCode::FORBIDDEN,
        Code::Unauthenticated => StatusCode::UNAUTHORIZED,
        Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
        Code::Unimplemented => StatusCode::NOT_IMPLEMENTED,
        Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        Code::Unknown | Code::Internal | Code::DataLoss => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    #[test]
    fn every_code_has_its_status() {
        let wanted = [200, 408, 500, 400, 504, 404, 409, 403, 429, 400, 409, 400, 501, 500, 503, 500, 401];
        for (code, wanted) in wanted.into_iter().enumerate() {
            assert_eq!(http_status(Code::from(code as i32)).as_u16(), wanted, "code {code}");
        }
    }

    #[tokio::test]
    async fn errors_are_json() {
        let mut status = Status::not_found("no \"lease\"");
        status.metadata_mut().insert("headwater-index", "7".parse().unwrap());
        let response = response(&status);
        assert_eq!(response.status(), StatusCode::NOT_FOUND);
        assert_eq!(response.headers()[header::CONTENT_TYPE], "application/json");
        assert_eq!(response.headers()["grpc-metadata-headwater-index"], "7");
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(body, r#"{"error":"no \"lease\"","message":"no \"lease\"","code":5}"#);
        let line = String::from_utf8(line(&Status::deadline_exceeded("late"))).unwrap();
        let wanted = r#"{"error":{"grpc_code":4,"http_code":504,"message":"late","http_status":"Gateway Timeout"}}"#;
        assert_eq!(line, format!("{wanted}\n"));
    }
}
