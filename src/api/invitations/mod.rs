//! `headwater.v1.Invitations`: invitations for nodes to join the cluster.
//!
//! Owns the shapes and the codes; the rules are in `fsm::invitation`. Invariant: only the answer to
//! `CreateInvitation` contains a token.

use std::time::Duration;

use http::HeaderValue;
use tonic::{Code, Request, Response, Status};

use headwater_api_shared::ApiOptions;
use headwater_api_shared::context::{HEADWATER_INDETERMINATE, open, reply};
use headwater_api_shared::{errors, etcd_texts};
use headwater_node::{Consistency, InvitationRequest, Node, NodeError};
use headwater_proto::pb::headwater_v1 as pb;
use headwater_proto::pb::headwater_v1::invitations_server::Invitations;
use headwater_types::limits::{INVITATION_NAME_BYTES_MAX, INVITATION_TTL_MS_MAX, INVITATION_USES_MAX};
use headwater_types::{Invitation, InvitationId, InvitationRefusal, InvitationUse, Refusal};

/// Serves `headwater.v1.Invitations`.
pub(crate) struct InvitationsService {
    node: Node,
    options: ApiOptions,
}

impl InvitationsService {
    pub(crate) fn new(node: Node, options: ApiOptions) -> Self {
        Self { node, options }
    }
}

#[tonic::async_trait]
impl Invitations for InvitationsService {
    async fn create_invitation(
        &self,
        request: Request<pb::CreateInvitationRequest>,
    ) -> Result<Response<pb::CreateInvitationResponse>, Status> {
        let (ctx, request) = open(request, self.options.request_timeout)?;
        let made = self.node.invitations().create(&ctx, decode(request)?).await.map_err(|error| status(&error))?;
        let answer = pb::CreateInvitationResponse {
            id: made.value.id.0,
            token: made.value.token.0,
            expires_unix_ms: made.value.expires_unix_ms as i64,
        };
        Ok(reply(made.index, answer))
    }

    async fn list_invitations(
        &self,
        request: Request<pb::ListInvitationsRequest>,
    ) -> Result<Response<pb::ListInvitationsResponse>, Status> {
        let (ctx, request) = open(request, self.options.request_timeout)?;
        let consistency = if request.linearizable { Consistency::Linearizable } else { Consistency::Serializable };
        let list = self.node.invitations().list(&ctx, consistency).await.map_err(|error| status(&error))?;
        let invitations = list.value.into_iter().map(|(id, invitation)| encode(id, invitation)).collect();
        Ok(reply(list.index, pb::ListInvitationsResponse { invitations }))
    }

    async fn delete_invitation(
        &self,
        request: Request<pb::DeleteInvitationRequest>,
    ) -> Result<Response<pb::DeleteInvitationResponse>, Status> {
        let (ctx, request) = open(request, self.options.request_timeout)?;
        let id = InvitationId(request.id);
        let done = self.node.invitations().delete(&ctx, id).await.map_err(|error| status(&error))?;
        Ok(reply(done.index, pb::DeleteInvitationResponse {}))
    }
}

fn decode(request: pb::CreateInvitationRequest) -> Result<InvitationRequest, Status> {
    let pb::CreateInvitationRequest { name, ttl_seconds, uses, learner } = request;
    let ttl_seconds_max = INVITATION_TTL_MS_MAX / 1000;
    if !(1..=ttl_seconds_max).contains(&ttl_seconds) {
        return Err(Status::invalid_argument(format!(
            "headwater: an invitation lives for 1 s to {ttl_seconds_max} s, not {ttl_seconds} s"
        )));
    }
    if uses.is_some_and(|uses| !(1..=INVITATION_USES_MAX).contains(&uses)) {
        return Err(Status::invalid_argument(format!(
            "headwater: an invitation is for 1 to {INVITATION_USES_MAX} nodes, or for any number"
        )));
    }
    if name.len() > INVITATION_NAME_BYTES_MAX {
        return Err(Status::invalid_argument(format!(
            "headwater: the name of an invitation has at most {INVITATION_NAME_BYTES_MAX} bytes"
        )));
    }
    Ok(InvitationRequest { name, ttl: Duration::from_secs(ttl_seconds), uses_max: uses, learner })
}

fn encode(id: InvitationId, invitation: Invitation) -> pb::Invitation {
    let Invitation { name, hash: _, expires_unix_ms, uses_max, learner, used, uses } = invitation;
    let used_by =
        |one: InvitationUse| pb::InvitationUse { node: one.node, unix_ms: one.unix_ms as i64, joined: one.has_joined };
    pb::Invitation {
        id: id.0,
        name,
        expires_unix_ms: expires_unix_ms as i64,
        uses: uses_max,
        learner,
        used,
        used_by: uses.into_iter().map(used_by).collect(),
    }
}

fn status(error: &NodeError) -> Status {
    let code = match error {
        NodeError::Refused(Refusal::Invitation(refusal)) => refusal_code(*refusal),
        NodeError::Refused(refusal) => etcd_texts::refusal(refusal).0,
        error => errors::code(error.kind()),
    };
    let mut status = Status::new(code, format!("headwater: {error}"));
    if let NodeError::Indeterminate(_) = error {
        status.metadata_mut().as_mut().insert(HEADWATER_INDETERMINATE, HeaderValue::from_static("true"));
    }
    status
}

/// The gRPC code of a refusal by a rule of invitations.
fn refusal_code(refusal: InvitationRefusal) -> Code {
    match refusal {
        InvitationRefusal::TooMany => Code::ResourceExhausted,
        InvitationRefusal::Bounds => Code::InvalidArgument,
        InvitationRefusal::NotFound => Code::NotFound,
        // Of a node that joins, never of these methods.
        InvitationRefusal::Expired | InvitationRefusal::UsedUp => Code::FailedPrecondition,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_types::{TokenHash, Version};

    #[test]
    fn a_request_out_of_bounds_names_them() {
        let good = || pb::CreateInvitationRequest { name: "n".into(), ttl_seconds: 3600, uses: Some(1), learner: true };
        let decoded = decode(good()).unwrap();
        let wanted =
            InvitationRequest { name: "n".into(), ttl: Duration::from_secs(3600), uses_max: Some(1), learner: true };
        assert_eq!(decoded, wanted);
        assert_eq!(decode(pb::CreateInvitationRequest { uses: None, ..good() }).unwrap().uses_max, None);
        for (request, why) in [
            (pb::CreateInvitationRequest { ttl_seconds: 0, ..good() }, "1 s to 2592000 s"),
            (pb::CreateInvitationRequest { ttl_seconds: 2_592_001, ..good() }, "not 2592001 s"),
            (pb::CreateInvitationRequest { uses: Some(0), ..good() }, "1 to 64 nodes"),
            (pb::CreateInvitationRequest { uses: Some(65), ..good() }, "1 to 64 nodes"),
            (pb::CreateInvitationRequest { name: "x".repeat(257), ..good() }, "at most 256 bytes"),
        ] {
            let refused = decode(request).unwrap_err();
            assert_eq!(refused.code(), Code::InvalidArgument);
            assert!(refused.message().contains(why), "{refused}");
        }
    }

    #[test]
    fn errors_have_their_codes() {
        for (refusal, code) in [
            (Refusal::from(InvitationRefusal::TooMany), Code::ResourceExhausted),
            (InvitationRefusal::Bounds.into(), Code::InvalidArgument),
            (InvitationRefusal::NotFound.into(), Code::NotFound),
            (InvitationRefusal::Expired.into(), Code::FailedPrecondition),
            (InvitationRefusal::UsedUp.into(), Code::FailedPrecondition),
            (Refusal::NeedsVersion { needs: Version::V0_4 }, Code::FailedPrecondition),
        ] {
            assert_eq!(status(&NodeError::Refused(refusal)).code(), code, "{refusal:?}");
        }
        assert_eq!(status(&NodeError::NoLeader).code(), Code::Unavailable);
    }

    #[test]
    fn the_hash_stays_inside() {
        let one = InvitationUse { incarnation: 9, node: "m".into(), unix_ms: 4, has_joined: true };
        let invitation = Invitation {
            name: "n".into(),
            hash: TokenHash([7; 32]),
            expires_unix_ms: 5,
            uses_max: Some(2),
            learner: false,
            used: 1,
            uses: vec![one],
        };
        let wanted = pb::Invitation {
            id: 3,
            name: "n".into(),
            expires_unix_ms: 5,
            uses: Some(2),
            learner: false,
            used: 1,
            used_by: vec![pb::InvitationUse { node: "m".into(), unix_ms: 4, joined: true }],
        };
        assert_eq!(encode(InvitationId(3), invitation), wanted);
    }
}
