//! The server of the peer port.

use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use futures::{Stream, StreamExt};
use openraft::raft::{AppendEntriesRequest, StreamAppendError, TransferLeaderRequest};
use prost::Message;
use tonic::{Code, Request, Response, Status, Streaming};

use super::{admission, check_route, snapshot_receiver};
use crate::consensus::Consensus;
use crate::convert;
use crate::form::Participation;
use crate::leader_end::OpenSession;
use crate::member_changes::{self, ChangeFrom};
use crate::metrics::PeerMetrics;
use crate::propose::{WriteError, result_to_pb};
use crate::read_index::ReadIndexError;
use crate::types::TypeConfig;
use headwater_proto::codec;
use headwater_proto::pb::peer as pb;
use headwater_proto::pb::peer::peer_server::Peer;
use headwater_tls::Identity;
use headwater_types::invitation::is_token;
use headwater_types::limits::{MEMBER_NAME_BYTES_MAX, MEMBER_URL_BYTES_MAX};
use headwater_types::{Joining, LogIndex, MemberChange, NodeId, Secret};

type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// The peer service of one member.
#[derive(Clone)]
pub(crate) struct PeerService {
    consensus: Consensus,
}

impl PeerService {
    pub(crate) fn new(consensus: Consensus) -> Self {
        Self { consensus }
    }

    /// Checks a call by [`check_route`] and [`admission::check_certificate`]. If this member uses
    /// TLS, a call without a certificate is refused. Returns the sender; whether it is a member is
    /// not checked.
    fn check<T>(&self, request: &Request<T>) -> Result<NodeId, Status> {
        let from = check_route(
            request.metadata(),
            self.consensus.cluster_id(),
            self.consensus.node_id(),
            self.consensus.lineage(),
        )?;
        let checked = match request.extensions().get::<Identity>() {
            Some(identity) => admission::check_certificate(&self.consensus, from, identity),
            None if self.consensus.inner().peers.has_tls() => {
                Err(Status::unauthenticated("members show certificates to each other"))
            }
            None => Ok(()),
        };
        checked.inspect_err(|status| self.refused(from, status.message()))?;
        Ok(from)
    }

    /// As [`check`](Self::check), for calls of leaders and candidates. Accepts a sender that is not
    /// in this member's membership, unless another leader is live: the sender may have been added
    /// while this member was away.
    fn check_elector<T>(&self, request: &Request<T>) -> Result<NodeId, Status> {
        let from = self.check(request)?;
        self.admit(from, || admission::check_newcomer(&self.consensus, from))
            .inspect_err(|status| self.refused_call(from, status))?;
        Ok(from)
    }

    /// As [`check`](Self::check), for all other calls that only another member may make.
    fn check_member<T>(&self, request: &Request<T>) -> Result<NodeId, Status> {
        let from = self.check(request)?;
        self.admit_member(from).inspect_err(|status| self.refused_call(from, status))?;
        Ok(from)
    }

    /// Refuses senders that this member does not know as members, as [`admit`](Self::admit).
    fn admit_member(&self, from: NodeId) -> Result<(), Status> {
        self.admit(from, || admission::check_known(self.consensus.members(), from))
    }

    /// Refuses senders that cannot be members, and those that `check` refuses. A call that `check`
    /// refuses still shows that there may be a cluster (`form`); its sender is not a reached peer.
    fn admit(&self, from: NodeId, check: impl FnOnce() -> Result<(), Status>) -> Result<(), Status> {
        admission::check_sender(self.consensus.members(), self.consensus.node_id(), from)?;
        self.consensus.mark_called();
        check()?;
        self.peer(from).reached();
        Ok(())
    }

    /// Logs and counts a refused call. A call refused with `UNAVAILABLE` is not counted: its sender
    /// may be a member that this one does not know yet, and repeats the call.
    fn refused_call(&self, from: NodeId, status: &Status) {
        match status.code() {
            Code::Unavailable => tracing::debug!(%from, why = status.message(), "a call of an unknown member waits"),
            _ => self.refused(from, status.message()),
        }
    }

    /// As [`note_refused`], with the metrics of the sender `from`.
    fn refused(&self, from: NodeId, why: impl std::fmt::Display) {
        note_refused(&self.peer(from), from, why);
    }

    /// The metrics of a sender. Senders above both the highest known id and [`FIRST_IDS_MAX`] share
    /// those of id 0, so that invented ids fill no memory.
    fn peer(&self, from: NodeId) -> Arc<PeerMetrics> {
        let highest = self.consensus.members().highest_id().max(FIRST_IDS_MAX);
        let from = if from <= highest { from } else { NodeId(0) };
        self.consensus.metrics().peer(self.consensus.node_id(), from)
    }
}

impl PeerService {
    /// Refuses entries and snapshots while this member is [`Participation::Undecided`]: until it
    /// knows why it has no data, and has recorded that on disk.
    fn may_follow(&self) -> Result<(), Status> {
        match self.consensus.participation() {
            Participation::Member | Participation::Rejoining => Ok(()),
            Participation::Undecided => {
                self.consensus.mark_led();
                Err(Status::unavailable("this member is finding out whether there is a cluster already"))
            }
        }
    }

    fn may_elect(&self) -> Result<(), Status> {
        match self.consensus.participation() {
            Participation::Member => Ok(()),
            Participation::Undecided | Participation::Rejoining => {
                Err(Status::unavailable("this member is not yet back where it was: it takes no part in elections"))
            }
        }
    }
}

/// Checks the shape of a request to join, which any process may send.
fn check_joining(joining: &Joining) -> Result<(), Status> {
    let is_url = |url: &str| !url.is_empty() && url.len() <= MEMBER_URL_BYTES_MAX;
    let has_token = joining.token.as_ref().is_none_or(|Secret(token)| is_token(token));
    if joining.incarnation == 0
        || joining.name.is_empty()
        || joining.name.len() > MEMBER_NAME_BYTES_MAX
        || !is_url(&joining.peer_url)
        || !is_url(&joining.client_url)
        || !has_token
    {
        return Err(Status::invalid_argument(
            "a node that joins has a number, a name, two URLs and, if it was invited, a token, none of them too long",
        ));
    }
    Ok(())
}

/// Longest time for a change of the membership; a longer one in a request is cut to this.
const CHANGE_MAX: Duration = Duration::from_secs(600);

/// Counts a refused message of `from` in the metrics `peer`. Logs at most one a second for them.
fn note_refused(peer: &PeerMetrics, from: NodeId, why: impl std::fmt::Display) {
    peer.received_failures.inc();
    if let Some(messages) = peer.refusals.note() {
        tracing::warn!(%from, messages, %why, "refused messages of the peer port");
    }
}

/// Checks an append of the leader `from`, and lowers its commit index to its last entry. Records
/// the index that the leader calls committed.
fn admit_append(
    consensus: &Consensus,
    from: NodeId,
    request: pb::AppendRequest,
) -> Result<AppendEntriesRequest<TypeConfig>, convert::Malformed> {
    let mut request = convert::append_from_pb(request)?;
    admission::check_leader(from, &request.vote, consensus.current_term())?;
    admission::check_entries(&request)?;
    let committed = request.leader_commit.map_or(0, |id| id.index);
    admission::bound_commit(&mut request);
    consensus.progress().note_leader_commit(LogIndex(committed));
    Ok(request)
}

/// The status after consensus on this member has ended; the process is about to exit.
fn fatal(error: impl std::fmt::Display) -> Status {
    Status::unavailable(format!("consensus has ended on this member: {error}"))
}

/// Records a contact with the leader, unless the append was refused for a higher vote. With
/// `is_blocked`, records instead that the leader has reported the loss of its majority.
fn note_contact(consensus: &Consensus, result: &convert::AppendResult, is_blocked: bool) {
    match result {
        Err(StreamAppendError::HigherVote(_)) => {}
        _ if is_blocked => consensus.mark_leader_blocked(),
        Ok(_) | Err(StreamAppendError::Conflict(_)) => consensus.mark_leader_contact(),
    }
}

#[tonic::async_trait]
impl Peer for PeerService {
    type AppendStreamStream = Answers<pb::AppendResponse>;
    type SnapshotStream = Answers<pb::SnapshotAnswer>;
    type ProposeStream = Answers<pb::ProposeResponse>;

    async fn append(&self, request: Request<pb::AppendRequest>) -> Result<Response<pb::AppendResponse>, Status> {
        let from = self.check_elector(&request)?;
        self.may_follow()?;
        let peer = self.peer(from);
        peer.received_bytes.inc_by(request.get_ref().encoded_len() as u64);
        let request = request.into_inner();
        let is_blocked = request.blocked;
        let request =
            admit_append(&self.consensus, from, request).inspect_err(|error| note_refused(&peer, from, error))?;
        let mut answers = Box::pin(self.consensus.raft().stream_append(futures::stream::iter([request])));
        match answers.next().await {
            Some(Ok(result)) => {
                note_contact(&self.consensus, &result, is_blocked);
                let response = convert::append_result_to_pb(&result);
                peer.sent_bytes.inc_by(response.encoded_len() as u64);
                Ok(Response::new(response))
            }
            Some(Err(error)) => Err(fatal(error)),
            None => Err(fatal("no answer to an append")),
        }
    }

    async fn append_stream(
        &self,
        request: Request<Streaming<pb::AppendRequest>>,
    ) -> Result<Response<Self::AppendStreamStream>, Status> {
        let from = self.check_elector(&request)?;
        self.may_follow()?;
        let incoming = request.into_inner();
        let peer = self.peer(from);
        let [answered, failed] = [Arc::clone(&peer), Arc::clone(&peer)];
        // A broken, damaged or malformed request ends the stream with a status; the leader opens a
        // new stream and continues after the last answer.
        let failure = Arc::new(OnceLock::new());
        let first_failure = Arc::clone(&failure);
        let admitting = self.consensus.clone();
        let appends = incoming
            .map(move |item| {
                let message = item?;
                peer.received_bytes.inc_by(message.encoded_len() as u64);
                admission::check_newcomer(&admitting, from)?;
                admit_append(&admitting, from, message).map_err(Status::from)
            })
            .scan((), move |(), item| {
                let item = item.map_err(|status| {
                    match status.code() {
                        Code::InvalidArgument => note_refused(&failed, from, status.message()),
                        _ => {
                            tracing::debug!(%status, "append stream ended");
                            failed.received_failures.inc();
                        }
                    }
                    failure.get_or_init(|| status);
                });
                std::future::ready(item.ok())
            });
        let session = OpenSession::of(self.consensus.clone(), from);
        let answers = self.consensus.raft().stream_append(appends).map(move |item| match item {
            Ok(result) => {
                headwater_fail_points::fail_point!(FollowerAnswer);
                note_contact(session.consensus(), &result, false);
                let response = convert::append_result_to_pb(&result);
                answered.sent_bytes.inc_by(response.encoded_len() as u64);
                Ok(response)
            }
            Err(error) => Err(fatal(error)),
        });
        let why = futures::stream::once(async move { first_failure.get().cloned().map(Err) });
        Ok(Response::new(Box::pin(answers.chain(why.filter_map(std::future::ready)))))
    }

    async fn vote(&self, request: Request<pb::VoteRequest>) -> Result<Response<pb::VoteResponse>, Status> {
        let from = self.check_elector(&request)?;
        self.may_elect()?;
        let request = request.into_inner();
        let pre_vote = request.pre_vote;
        let request = convert::vote_request_from_pb(request)?;
        admission::check_candidate(from, &request.vote, self.consensus.current_term())
            .and_then(|()| admission::check_log_id(&request.vote, request.last_log_id.as_ref()))
            .inspect_err(|error| self.refused(from, error))?;
        let raft = self.consensus.raft();
        let response = if pre_vote { raft.pre_vote(request).await } else { raft.vote(request).await };
        Ok(Response::new(convert::vote_response_to_pb(&response.map_err(fatal)?)))
    }

    async fn hello(&self, request: Request<pb::HelloRequest>) -> Result<Response<pb::HelloResponse>, Status> {
        let from = self.check(&request)?;
        // A former member gets the answer that it was removed.
        let is_member = self.admit(from, || Ok(())).is_ok();
        let formed = self.consensus.has_had_a_leader();
        let removed = self.consensus.members().has_removed(from);
        let stopping = self.consensus.is_stopping();
        let wanted = request.get_ref().with_figures && is_member;
        let figures = wanted.then(|| self.consensus.figures().own()).flatten().map(Into::into);
        Ok(Response::new(pb::HelloResponse { formed, removed, stopping, asked_by: from.get(), figures }))
    }

    async fn change_members(
        &self,
        request: Request<pb::ChangeMembersRequest>,
    ) -> Result<Response<pb::ChangeMembersResponse>, Status> {
        let from = self.check(&request)?;
        let identity = request.extensions().get::<Identity>().cloned();
        let request = request.into_inner();
        let Some(change) = member_changes::change_from_pb(request.change) else {
            return Err(Status::invalid_argument(
                "this member does not know that change; it may be of an older version",
            ));
        };
        if let MemberChange::Join(joining) = &change {
            check_joining(joining).inspect_err(|status| self.refused(from, status.message()))?;
        }
        let from = match (from, &change) {
            (NodeId(0), MemberChange::Join(Joining { name, .. })) => {
                if let Some(identity) = &identity {
                    admission::check_joining_name(name, identity)
                        .inspect_err(|status| self.refused(from, status.message()))?;
                }
                ChangeFrom::Outsider
            }
            _ => {
                // The sender of a call that is to be repeated knows that nothing was changed.
                self.admit_member(from).inspect_err(|status| self.refused_call(from, status)).map_err(|status| {
                    match status.code() {
                        Code::Unavailable => Status::failed_precondition(status.message()),
                        _ => status,
                    }
                })?;
                ChangeFrom::Member
            }
        };
        let Some(service) = self.consensus.members().service() else {
            return Err(Status::failed_precondition("this member is starting"));
        };
        // In a task of its own: a cancelled call must not leave a change half made.
        let changing =
            tokio::spawn(service.change(from, change, Duration::from_millis(request.timeout_ms).min(CHANGE_MAX)));
        let answer = changing.await.map_err(|error| Status::internal(error.to_string()))?;
        Ok(Response::new(member_changes::answer_to_pb(answer)))
    }

    async fn transfer_leader(
        &self,
        request: Request<pb::TransferLeaderRequest>,
    ) -> Result<Response<pb::TransferLeaderResponse>, Status> {
        let from = self.check_elector(&request)?;
        self.may_elect()?;
        let request = request.into_inner();
        let vote = convert::required_vote(request.from)?;
        let last = request.last.map(convert::log_id_from_pb);
        admission::check_leader(from, &vote, self.consensus.current_term())
            .and_then(|()| admission::check_log_id(&vote, last.as_ref()))
            .inspect_err(|error| self.refused(from, error))?;
        let request = TransferLeaderRequest::new(vote, request.to, last);
        let verdict = self.consensus.raft().handle_transfer_leader(request).await.map_err(fatal)?;
        let refused = verdict.err().map(|error| error.to_string()).unwrap_or_default();
        Ok(Response::new(pb::TransferLeaderResponse { refused }))
    }

    async fn leader_ended(
        &self,
        request: Request<pb::LeaderEndedRequest>,
    ) -> Result<Response<pb::LeaderEndedResponse>, Status> {
        self.check_member(&request)?;
        let leader = convert::required_vote(request.into_inner().leader)?;
        Ok(Response::new(self.consensus.judge_leader(leader).await))
    }

    async fn snapshot(
        &self,
        request: Request<Streaming<pb::SnapshotMessage>>,
    ) -> Result<Response<Self::SnapshotStream>, Status> {
        let from = self.check_elector(&request)?;
        self.may_follow()?;
        let (consensus, peer) = (self.consensus.clone(), self.peer(from));
        let answers = snapshot_receiver::receive(consensus, from, peer, request.into_inner());
        Ok(Response::new(Box::pin(answers)))
    }

    async fn propose(
        &self,
        request: Request<Streaming<pb::ProposeRequest>>,
    ) -> Result<Response<Self::ProposeStream>, Status> {
        let from = self.check_member(&request)?;
        let (consensus, peer) = (self.consensus.clone(), self.peer(from));
        // Each batch is proposed when it arrives and answered in order; `buffered` keeps several
        // under way.
        let answers = request
            .into_inner()
            .map(move |item| {
                let (consensus, peer) = (consensus.clone(), Arc::clone(&peer));
                async move {
                    let results = propose_readable(&consensus, (from, &peer), item?.commands).await;
                    Ok(pb::ProposeResponse { results: results.into_iter().map(result_to_pb).collect() })
                }
            })
            .buffered(PROPOSE_BATCHES_MAX);
        Ok(Response::new(Box::pin(answers)))
    }

    async fn ask(&self, request: Request<pb::AskRequest>) -> Result<Response<pb::AskResponse>, Status> {
        self.check_member(&request)?;
        let Some(service) = self.consensus.queries().service() else {
            return Err(Status::unavailable("this member is starting"));
        };
        let answers = service.answer(request.into_inner().questions).await;
        Ok(Response::new(pb::AskResponse { answers }))
    }

    async fn read_index(
        &self,
        request: Request<pb::ReadIndexRequest>,
    ) -> Result<Response<pb::ReadIndexResponse>, Status> {
        use pb::read_index_response::Result as R;
        self.check_member(&request)?;
        let result = match self.consensus.read_index_here().await {
            Ok(index) => R::Index(index.get()),
            Err(ReadIndexError::NotLeader(leader)) => R::NotLeader(leader.map_or(0, |id| id.get())),
            Err(ReadIndexError::NoQuorum) => R::NoQuorum(true),
            Err(ReadIndexError::Stopped(why)) => return Err(fatal(why)),
        };
        Ok(Response::new(pb::ReadIndexResponse { result: Some(result) }))
    }
}

/// Proposes the commands of another member that decode, and refuses the others one by one. One
/// result for each command, in their order. An entry that cannot be decoded would stop every member
/// at apply, and again after each restart.
async fn propose_readable(
    consensus: &Consensus,
    (from, peer): (NodeId, &PeerMetrics),
    batch: Vec<Bytes>,
) -> Vec<Result<headwater_types::Applied, WriteError>> {
    let refused: Vec<Option<WriteError>> = batch.iter().map(|command| unreadable(consensus, command)).collect();
    if let Some(error) = refused.iter().flatten().next() {
        note_refused(peer, from, error);
    }
    let readable = batch.into_iter().zip(&refused).filter(|(_, refused)| refused.is_none());
    let readable: Vec<Bytes> = readable.map(|(command, _)| command).collect();
    if readable.is_empty() {
        return refused.into_iter().flatten().map(Err).collect();
    }
    let mut answers = consensus.propose_here(readable).await.into_iter();
    let lost = || Err(WriteError::Stopped("consensus has ended".to_owned()));
    refused.into_iter().map(|refused| refused.map_or_else(|| answers.next().unwrap_or_else(lost), Err)).collect()
}

/// The error for a command that this program cannot decode. `None` if it can, for an empty command,
/// and if the store is closed.
fn unreadable(consensus: &Consensus, command: &Bytes) -> Option<WriteError> {
    // A blank entry, proposed by a follower after a stall of its apply (`stalled`).
    if command.is_empty() {
        return None;
    }
    let supported = consensus.store()?.current().supported();
    let error = codec::decode_proposal(command.clone(), supported).err()?;
    Some(WriteError::Unreadable(error.to_string()))
}

/// Highest id that has metrics of its own although no known membership had it: this member may not
/// know the membership yet.
const FIRST_IDS_MAX: NodeId = NodeId(1024);
/// Most batches of one stream of proposals under way at once, count.
const PROPOSE_BATCHES_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::network::{Lineage, Route};
    use crate::start::{ConsensusOptions, Timing, start};
    use headwater_storage::data_dir::Layout;
    use headwater_storage::log::{LogDb, LogOptions};
    use headwater_storage::{StateOptions, StateStore};
    use headwater_stream::NoSubscribers;
    use headwater_tls::Dialer;
    use headwater_types::ClusterId;

    /// A member that knows no membership yet.
    async fn newcomer(layout: &Layout) -> PeerService {
        let ms = Duration::from_millis;
        let options = ConsensusOptions {
            cluster_id: ClusterId(1),
            node_id: NodeId(1),
            dialer: Dialer::default(),
            initial_members: BTreeMap::new(),
            timing: Timing { heartbeat: ms(50), election_min: ms(150), election_max: ms(300) },
            catch_up_max: ms(100),
            snapshot_every_entries: 1000,
            snapshot_every_bytes: u64::MAX,
            keep_entries: 1000,
            keep_bytes: u64::MAX,
            snapshot_dir: layout.snapshots_dir(),
            incoming_dir: layout.incoming_dir(),
            rejoining: layout.rejoining(),
            removed: layout.removed(),
            origin: 0,
        };
        let log = LogDb::open(&layout.log_dir(), LogOptions::default()).unwrap();
        let state = StateStore::open(&layout.state_dir(), &StateOptions::default()).unwrap();
        PeerService::new(start(options, log, Arc::new(state), Arc::new(NoSubscribers)).await.unwrap())
    }

    #[tokio::test]
    async fn a_sender_is_a_reached_peer_only_if_its_call_is_accepted() {
        let dir = tempfile::tempdir().unwrap();
        let service = newcomer(&Layout::new(dir.path())).await;
        let (cluster, from, to) = (ClusterId(1), NodeId(2), NodeId(1));
        let route = Route { cluster, from, to, lineage: Lineage::default(), dialer: Dialer::default() };
        let refused = service.read_index(route.request(pb::ReadIndexRequest {})).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unavailable, "{refused}");
        assert!(!service.peer(from).is_active(), "it is not in the membership");
        service.hello(route.request(pb::HelloRequest::default())).await.unwrap();
        assert!(service.peer(from).is_active());
    }
}
