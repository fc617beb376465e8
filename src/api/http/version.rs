//! `/version`: the compatible etcd, and this program's own version.

use axum::Json;
use axum::http::Method;
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::only_get;
use crate::{ETCD_CLUSTER_VERSION, ETCD_COMPATIBLE_VERSION};

#[derive(Serialize)]
struct Versions {
    etcdserver: &'static str,
    etcdcluster: &'static str,
    storage: &'static str,
    headwater: &'static str,
}

const VERSIONS: Versions = Versions {
    etcdserver: ETCD_COMPATIBLE_VERSION,
    etcdcluster: ETCD_CLUSTER_VERSION,
    storage: ETCD_CLUSTER_VERSION,
    headwater: env!("CARGO_PKG_VERSION"),
};

pub(super) async fn version(method: Method) -> Response {
    only_get(&method).unwrap_or_else(|| Json(VERSIONS).into_response())
}

#[cfg(test)]
mod tests {
    use axum::http::header;
    use http_body_util::BodyExt;

    use super::*;

    #[tokio::test]
    async fn names_are_etcds_with_our_own_beside_them() {
        let response = version(Method::GET).await;
        assert_eq!(response.headers()[header::CONTENT_TYPE], "application/json");
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body["etcdserver"], ETCD_COMPATIBLE_VERSION);
        assert_eq!(body["etcdcluster"], ETCD_CLUSTER_VERSION);
        assert_eq!(body["headwater"], env!("CARGO_PKG_VERSION"));
    }
}
