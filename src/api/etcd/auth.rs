//! `etcdserverpb.Auth` of a cluster that never enabled it (spec: etcd §4.3). Clients with a
//! configured user ask here first, and continue without a token when none is needed.

use tonic::{Request, Response, Status};

use super::errors::{Failure, Invalid};
use super::header;
use crate::ApiOptions;
use crate::shared::context::{open, reply};
use headwater_node::Node;
use headwater_proto::pb::etcdserverpb as pb;
use headwater_proto::pb::etcdserverpb::auth_server::Auth;

/// The revision of users and roles that were never changed.
const FIRST_AUTH_REVISION: u64 = 1;

/// Serves `etcdserverpb.Auth`.
pub(crate) struct AuthService {
    node: Node,
    options: ApiOptions,
}

impl AuthService {
    pub(crate) fn new(node: Node, options: ApiOptions) -> Self {
        Self { node, options }
    }
}

#[tonic::async_trait]
impl Auth for AuthService {
    async fn auth_status(
        &self,
        request: Request<pb::AuthStatusRequest>,
    ) -> Result<Response<pb::AuthStatusResponse>, Status> {
        let (ctx, pb::AuthStatusRequest {}) = open(request, self.options.request_timeout)?;
        self.node.wait_ready(&ctx).await.map_err(Failure::Node)?;
        let point = self.node.follow().published();
        let header = Some(header::full(&self.node, point.revision));
        let response = pb::AuthStatusResponse { header, enabled: false, auth_revision: FIRST_AUTH_REVISION };
        Ok(reply(point.index, response))
    }

    async fn authenticate(
        &self,
        request: Request<pb::AuthenticateRequest>,
    ) -> Result<Response<pb::AuthenticateResponse>, Status> {
        open(request, self.options.request_timeout)?;
        Err(Failure::from(Invalid::AuthNotEnabled).into())
    }
}
