//! `/version`: the compatible etcd, this member's program, and the version of the cluster.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::Method;
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::{HttpState, only_get};
use headwater_api_shared::{ETCD_CLUSTER_VERSION, ETCD_COMPATIBLE_VERSION};
use headwater_node::Node;

#[derive(Serialize)]
struct Versions {
    etcdserver: &'static str,
    etcdcluster: &'static str,
    storage: &'static str,
    /// This member's program.
    headwater: String,
    /// The version that the cluster has agreed on.
    headwatercluster: String,
}

impl Versions {
    fn of(node: &Node) -> Self {
        let versions = node.versions();
        Self {
            etcdserver: ETCD_COMPATIBLE_VERSION,
            etcdcluster: ETCD_CLUSTER_VERSION,
            storage: ETCD_CLUSTER_VERSION,
            headwater: versions.own().program,
            headwatercluster: versions.cluster().version.to_string(),
        }
    }
}

pub(super) async fn version(State(state): State<Arc<HttpState>>, method: Method) -> Response {
    only_get(&method).unwrap_or_else(|| Json(Versions::of(&state.node)).into_response())
}
