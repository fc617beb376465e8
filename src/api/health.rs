//! `grpc.health.v1.Health`: whether this member serves. The only known service name is the empty
//! one (spec: etcd §0).

use futures::stream::{self, BoxStream, StreamExt};
use tokio_stream::wrappers::WatchStream;
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus::{self, NotServing, ServiceUnknown, Serving};
use tonic_health::pb::health_server::Health;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use headwater_node::Node;

/// Serves `grpc.health.v1.Health`.
pub(super) struct HealthService {
    node: Node,
}

impl HealthService {
    pub(super) fn new(node: Node) -> Self {
        Self { node }
    }
}

fn serving(node: &Node) -> ServingStatus {
    match node.status() {
        Ok(status) if status.serving => Serving,
        Ok(_) | Err(_) => NotServing,
    }
}

fn response(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse { status: status.into() }
}

#[tonic::async_trait]
impl Health for HealthService {
    async fn check(&self, request: Request<HealthCheckRequest>) -> Result<Response<HealthCheckResponse>, Status> {
        if !request.get_ref().service.is_empty() {
            return Err(Status::not_found("unknown service"));
        }
        Ok(Response::new(response(serving(&self.node))))
    }

    type WatchStream = BoxStream<'static, Result<HealthCheckResponse, Status>>;

    async fn watch(&self, request: Request<HealthCheckRequest>) -> Result<Response<Self::WatchStream>, Status> {
        if !request.get_ref().service.is_empty() {
            // The protocol wants this to stay open: the service might become known. Here it never
            // does.
            let unknown = stream::iter([Ok(response(ServiceUnknown))]);
            return Ok(Response::new(unknown.chain(stream::pending()).boxed()));
        }
        // Recovery ends once. A failed disk or a stop ends the process, and this stream with it.
        let statuses = WatchStream::new(self.node.serving()).map(|serving| if serving { Serving } else { NotServing });
        Ok(Response::new(statuses.map(|status| Ok(response(status))).boxed()))
    }
}
