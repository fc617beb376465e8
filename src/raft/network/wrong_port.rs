//! The answer to third-party calls on the peer port, mostly of clients with the wrong port.

use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode, header};
use tonic::Status;

const WRONG_PORT: &str = "headwater: this is the port of the members (listen-peer); \
    clients connect to listen-client, 2379 unless configured";

/// Fallback handler of the peer port. Rejects a call of an unknown service or path with a hint to
/// the client port: gRPC calls with `UNIMPLEMENTED`, others with 404.
pub(crate) async fn refuse(headers: HeaderMap) -> Response {
    let is_grpc =
        headers.get(header::CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"));
    if is_grpc {
        Status::unimplemented(WRONG_PORT).into_http::<tonic::body::Body>().into_response()
    } else {
        (StatusCode::NOT_FOUND, format!("{WRONG_PORT}\n")).into_response()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_client_is_sent_to_its_port() {
        let grpc = refuse(HeaderMap::from_iter([(header::CONTENT_TYPE, "application/grpc".parse().unwrap())])).await;
        let status = Status::from_header_map(grpc.headers()).unwrap();
        assert_eq!((grpc.status(), status.code()), (StatusCode::OK, tonic::Code::Unimplemented));
        assert!(status.message().contains("listen-client"), "{status:?}");
        assert_eq!(refuse(HeaderMap::new()).await.status(), StatusCode::NOT_FOUND);
    }
}
