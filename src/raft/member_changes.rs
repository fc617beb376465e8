//! Membership changes on the wire: from member to leader, and from a joining node to a member.
//!
//! Owns [`MembershipService`] and the conversions; the rules of a change are above this layer.
//! Invariant: an answer says whether anything may have changed.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tonic::Status;

use super::network::{Lineage, PeerClient, Route};
use super::roster::Members;
use headwater_proto::pb::peer as pb;
use headwater_tls::Dialer;
use headwater_types::{
    ClusterId, Joining, LogIndex, MemberChange, MemberChanged, MemberRefusal, NodeId, Secret, Supported, Version,
};

/// The sender of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeFrom {
    /// Another member that takes this one for the leader. Its change is not forwarded.
    Member,
    /// A node that joins. It may not know the leader's address, so the change is forwarded.
    Outsider,
}

/// The reason for a change without a result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    /// Nothing changed. For example, the receiver does not lead, no quorum confirmed that it does,
    /// or it refused the connection or the call.
    #[error("no leader")]
    NotLeader,
    /// Nothing changed: a rule forbids it.
    #[error(transparent)]
    Refused(#[from] MemberRefusal),
    /// The change may have been made, or may still be made. The text is the reason.
    #[error("the change was interrupted: {0}")]
    Interrupted(String),
}

/// Serves membership changes that other members and joining nodes request.
pub trait MembershipService: Send + Sync + 'static {
    /// Makes a change within `limit`, or says by [`ChangeError`] whether anything may have changed.
    fn change(
        &self,
        from: ChangeFrom,
        change: MemberChange,
        limit: Duration,
    ) -> BoxFuture<'static, Result<MemberChanged, ChangeError>>;
}

impl<'a> Members<'a> {
    /// Registers this member's service for membership changes; only the first call has an effect.
    pub fn serve(self, service: Arc<dyn MembershipService>) {
        self.consensus.inner().services.membership.get_or_init(|| service);
    }

    /// The registered service; `None` while the member starts.
    pub(super) fn service(self) -> Option<&'a Arc<dyn MembershipService>> {
        self.consensus.inner().services.membership.get()
    }

    /// Sends a change to another member, which should lead.
    ///
    /// # Errors
    ///
    /// [`ChangeError`] says whether anything may have changed.
    pub async fn request_change(
        self,
        leader: NodeId,
        change: MemberChange,
        limit: Duration,
    ) -> Result<MemberChanged, ChangeError> {
        let info = self.consensus.member_info(leader).ok_or(ChangeError::NotLeader)?;
        let client = self.consensus.inner().peers.shared(leader.get(), &info);
        send(&client, change, limit).await
    }
}

/// Asks `member`, at `peer_url`, to make the node `joining` a member of `cluster`.
///
/// # Errors
///
/// As [`Members::request_change`].
pub async fn ask_to_join(
    cluster: ClusterId,
    member: NodeId,
    peer_url: &str,
    dialer: Dialer,
    joining: Joining,
    limit: Duration,
) -> Result<MemberChanged, ChangeError> {
    let route = Route { cluster, from: NodeId(0), to: member, lineage: Lineage::default(), dialer };
    let client = PeerClient::to_address(route, peer_url);
    send(&client, MemberChange::Join(joining), limit).await
}

async fn send(client: &PeerClient, change: MemberChange, limit: Duration) -> Result<MemberChanged, ChangeError> {
    use pb::change_members_response::Result as R;
    // Without a valid address nothing was sent.
    let mut grpc = client.grpc().map_err(|_| ChangeError::NotLeader)?;
    let request = pb::ChangeMembersRequest { timeout_ms: limit.as_millis() as u64, change: Some(change_to_pb(change)) };
    let answer = match client.answer(limit, grpc.change_members(client.route().request(request))).await {
        Ok(answer) => answer,
        Err(status) if is_certainly_not_done(&status) => return Err(ChangeError::NotLeader),
        Err(status) => return Err(ChangeError::Interrupted(status.message().to_owned())),
    };
    match answer.result {
        Some(R::Changed(done)) => Ok(MemberChanged { id: NodeId(done.id), index: LogIndex(done.index) }),
        Some(R::NotLeader(_)) => Err(ChangeError::NotLeader),
        Some(R::Refused(refusal)) => Err(match refusal_from_pb(refusal) {
            Some(refusal) => ChangeError::Refused(refusal),
            None => ChangeError::Interrupted("refused for a reason that this version does not know".to_owned()),
        }),
        Some(R::Interrupted(why)) => Err(ChangeError::Interrupted(why)),
        None => Err(ChangeError::Interrupted("an empty answer".to_owned())),
    }
}

/// Whether the change was surely not begun: the connection was refused, or the receiver refused the
/// call because it is another member, is still starting, or found the request invalid. An answer
/// that cannot be decoded has another code.
fn is_certainly_not_done(status: &Status) -> bool {
    let mut source = std::error::Error::source(status);
    while let Some(error) = source {
        if error.downcast_ref::<std::io::Error>().is_some_and(|io| io.kind() == std::io::ErrorKind::ConnectionRefused) {
            return true;
        }
        source = error.source();
    }
    matches!(status.code(), tonic::Code::FailedPrecondition | tonic::Code::InvalidArgument)
}

fn change_to_pb(change: MemberChange) -> pb::change_members_request::Change {
    use pb::change_members_request::Change as C;
    match change {
        MemberChange::Add { peer_url, learner } => C::Add(pb::AddMember { peer_url, learner }),
        MemberChange::Join(Joining { incarnation, name, peer_url, client_url, learner, supported, token }) => {
            let (lowest_version, highest_version) = (supported.lowest.byte().into(), supported.highest.byte().into());
            C::Join(pb::JoiningNode {
                incarnation,
                name,
                peer_url,
                client_url,
                learner,
                lowest_version,
                highest_version,
                token: token.map(|Secret(token)| token),
            })
        }
        MemberChange::Promote(id) => C::Promote(id.get()),
        MemberChange::Remove(id) => C::Remove(id.get()),
        MemberChange::Update { id, peer_url } => C::Update(pb::UpdateMember { id: id.get(), peer_url }),
        MemberChange::Describe { id, name, client_url } => {
            C::Describe(pb::DescribeMember { id: id.get(), name, client_url })
        }
    }
}

/// The change of a request; `None` if there is none, or one that this version does not know.
pub(super) fn change_from_pb(change: Option<pb::change_members_request::Change>) -> Option<MemberChange> {
    use pb::change_members_request::Change as C;
    Some(match change? {
        C::Add(pb::AddMember { peer_url, learner }) => MemberChange::Add { peer_url, learner },
        C::Join(joining) => {
            let version = |number: u32| Version::from_byte(u8::try_from(number).unwrap_or(u8::MAX));
            let supported =
                Supported { lowest: version(joining.lowest_version), highest: version(joining.highest_version) };
            let pb::JoiningNode { incarnation, name, peer_url, client_url, learner, token, .. } = joining;
            let token = token.map(Secret);
            MemberChange::Join(Joining { incarnation, name, peer_url, client_url, learner, supported, token })
        }
        C::Promote(id) => MemberChange::Promote(NodeId(id)),
        C::Remove(id) => MemberChange::Remove(NodeId(id)),
        C::Update(pb::UpdateMember { id, peer_url }) => MemberChange::Update { id: NodeId(id), peer_url },
        C::Describe(pb::DescribeMember { id, name, client_url }) => {
            MemberChange::Describe { id: NodeId(id), name, client_url }
        }
    })
}

/// The result of a change, for the wire.
pub(super) fn answer_to_pb(answer: Result<MemberChanged, ChangeError>) -> pb::ChangeMembersResponse {
    use pb::change_members_response::Result as R;
    let result = match answer {
        Ok(done) => R::Changed(pb::MembersChanged { id: done.id.get(), index: done.index.get() }),
        Err(ChangeError::NotLeader) => R::NotLeader(true),
        Err(ChangeError::Refused(refusal)) => R::Refused(refusal_to_pb(refusal).into()),
        Err(ChangeError::Interrupted(why)) => R::Interrupted(why),
    };
    pb::ChangeMembersResponse { result: Some(result) }
}

fn refusal_to_pb(refusal: MemberRefusal) -> pb::MemberRefusal {
    match refusal {
        MemberRefusal::NotFound => pb::MemberRefusal::NotFound,
        MemberRefusal::PeerUrlExists => pb::MemberRefusal::PeerUrlExists,
        MemberRefusal::NotLearner => pb::MemberRefusal::NotLearner,
        MemberRefusal::LearnerNotReady => pb::MemberRefusal::LearnerNotReady,
        MemberRefusal::NotEnoughStarted => pb::MemberRefusal::NotEnoughStarted,
        MemberRefusal::Unhealthy => pb::MemberRefusal::Unhealthy,
        MemberRefusal::TooManyLearners => pb::MemberRefusal::TooManyLearners,
        MemberRefusal::TooManyVoters => pb::MemberRefusal::TooManyVoters,
        MemberRefusal::StillRuns => pb::MemberRefusal::StillRuns,
        MemberRefusal::Version => pb::MemberRefusal::Version,
        MemberRefusal::Uninvited => pb::MemberRefusal::Uninvited,
        MemberRefusal::InvitationUnknown => pb::MemberRefusal::InvitationUnknown,
        MemberRefusal::InvitationUsedUp => pb::MemberRefusal::InvitationUsedUp,
    }
}

fn refusal_from_pb(refusal: i32) -> Option<MemberRefusal> {
    MemberRefusal::ALL.into_iter().find(|known| refusal_to_pb(*known) as i32 == refusal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_change_survives_the_wire() {
        let joining = Joining {
            incarnation: 9,
            name: "n".into(),
            peer_url: "p".into(),
            client_url: "c".into(),
            learner: true,
            supported: Supported::RELEASE,
            token: Some(Secret("t".into())),
        };
        for change in [
            MemberChange::Add { peer_url: "p".into(), learner: true },
            MemberChange::Join(joining),
            MemberChange::Promote(NodeId(4)),
            MemberChange::Remove(NodeId(5)),
            MemberChange::Update { id: NodeId(6), peer_url: "q".into() },
            MemberChange::Describe { id: NodeId(7), name: "n".into(), client_url: "c".into() },
        ] {
            assert_eq!(change_from_pb(Some(change_to_pb(change.clone()))), Some(change));
        }
        assert_eq!(change_from_pb(None), None);
    }

    #[test]
    fn every_refusal_survives_the_wire_and_unknown_ones_are_noticed() {
        for refusal in MemberRefusal::ALL {
            assert_eq!(refusal_from_pb(refusal_to_pb(refusal) as i32), Some(refusal));
        }
        assert_eq!(refusal_from_pb(0), None);
        assert_eq!(refusal_from_pb(99), None);
    }
}
