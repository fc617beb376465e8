//! The calling side: one [`PeerClient`] per connection, handed to openraft by [`Peers`].

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures::{Stream, StreamExt, TryFutureExt, TryStreamExt};
use openraft::base::BoxFuture;
use openraft::base::BoxStream;
use openraft::errors::{NetworkError, RPCError, ReplicationClosed, StreamingError, Timeout, Unreachable};
use openraft::network::RPCOption;

use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, StreamAppendResult, TransferLeaderRequest,
    TransferLeaderResponse, VoteRequest, VoteResponse,
};
use openraft::{OptionalSend, RPCTypes, RaftNetworkFactory, RaftNetworkV2};
use parking_lot::Mutex;
use prost::Message;
use tokio::sync::{oneshot, watch};
use tonic::Code;
use tonic::transport::Channel;

use super::addresses::Addresses;
use super::connection::{CallResult, Connection};
use super::reachable::Reachability;
use super::session::{AnswerTimeout, Answers, Requests, SessionEnd, Unanswered};
use super::{Lineage, Route, snapshot_sender};
use crate::convert;
use crate::metrics::{PeerMetrics, RaftMetrics};
use crate::roster::Roster;
use crate::snapshot::SnapshotFiles;
use crate::types::{MemberInfo, Snapshot, TypeConfig, Vote};
use headwater_proto::pb::peer as pb;
use headwater_proto::pb::peer::peer_client::PeerClient as Grpc;
use headwater_tls::Dialer;
use headwater_types::{ClusterId, NodeId};

/// Makes clients for openraft, and keeps one shared connection to each peer for all other calls,
/// such as forwarded proposals and read indexes.
#[derive(Clone)]
pub(crate) struct Peers {
    inner: Arc<PeersInner>,
}

struct PeersInner {
    cluster: ClusterId,
    me: NodeId,
    lineage: Lineage,
    dialer: Dialer,
    shared: Mutex<BTreeMap<u64, PeerClient>>,
    /// The address of each member. A connection looks it up for each call, so it follows a member
    /// that moves.
    addresses: Arc<Addresses>,
    /// Whether this member leads without a majority.
    is_blocked: AtomicBool,
    reachable: Reachability,
    metrics: Arc<RaftMetrics>,
    answer_max: Duration,
    /// The last order to end sessions. A new value ends the sessions that it selects.
    session_ends: watch::Sender<SessionEnd>,
}

impl Peers {
    /// `answer_max` is the longest wait for an answer to replication, unless the member is known to
    /// be slow.
    pub(crate) fn new(
        cluster: ClusterId,
        me: NodeId,
        lineage: Lineage,
        dialer: Dialer,
        metrics: Arc<RaftMetrics>,
        answer_max: Duration,
    ) -> Self {
        let route = Route { cluster, from: me, to: me, lineage: lineage.clone(), dialer: dialer.clone() };
        let inner = PeersInner {
            cluster,
            me,
            lineage,
            dialer,
            shared: Mutex::default(),
            addresses: Addresses::new(route),
            is_blocked: AtomicBool::new(false),
            reachable: Reachability::default(),
            metrics,
            answer_max,
            session_ends: watch::Sender::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Records the addresses of the latest membership, and drops those of former members.
    /// Connections use a new address from their next call on, once the member has answered there.
    pub(crate) fn learn_addresses(&self, roster: &Roster) {
        for member in &roster.members {
            self.inner.addresses.learn(member.id, &member.info);
        }
        self.inner.addresses.keep(|id| roster.find(id).is_some());
    }

    /// The address that calls to a member use; the peer URL of `info` if no address of the member
    /// is known here.
    pub(crate) fn address(&self, member: NodeId, info: &MemberInfo) -> Arc<str> {
        self.inner.addresses.used(member).unwrap_or_else(|| info.peer_url.as_str().into())
    }

    /// Whether `member` itself answers a hello call at `url`.
    pub(crate) async fn answers_at(&self, member: NodeId, url: &str) -> bool {
        self.inner.addresses.answers(member, url).await
    }

    /// Records whether this member is a leader that no majority of the voters has answered lately.
    /// Its heartbeats report that to the followers.
    pub(crate) fn set_blocked(&self, is_blocked: bool) {
        self.inner.is_blocked.store(is_blocked, Ordering::Relaxed);
    }

    /// Ends replication sessions with long overdue answers. openraft keeps all entries that a
    /// session may still send, and a member with a hanging disk would hold the log for ever.
    pub(crate) fn end_silent_sessions(&self) {
        self.inner.session_ends.send_replace(SessionEnd::Silent);
    }

    /// Ends the replication session with one member.
    pub(crate) fn end_session(&self, member: NodeId) {
        self.inner.session_ends.send_replace(SessionEnd::With(member));
    }

    fn client(&self, target: u64, info: &MemberInfo, append_transport: AppendTransport) -> PeerClient {
        // The client may be needed before the membership with its address is seen here.
        self.inner.addresses.learn_if_unknown(NodeId(target), info);
        let PeersInner { cluster, me, lineage, dialer, metrics, .. } = &*self.inner;
        let metrics = Some(metrics.peer(*me, NodeId(target)));
        let route = Route {
            cluster: *cluster,
            from: *me,
            to: NodeId(target),
            lineage: lineage.clone(),
            dialer: dialer.clone(),
        };
        let connection = Arc::new(Mutex::new(Connection::to(self.address(route.to, info), dialer)));
        let answer_timeout = Arc::new(Mutex::new(AnswerTimeout::new(self.inner.answer_max)));
        PeerClient { route, peers: Some(self.clone()), connection, answer_timeout, append_transport, metrics }
    }

    /// Whether this member calls the others by TLS. Then it also refuses their calls without a
    /// certificate.
    pub(crate) fn has_tls(&self) -> bool {
        self.inner.dialer.has_tls()
    }

    /// The lineage of this member's store.
    pub(crate) fn lineage(&self) -> &Lineage {
        &self.inner.lineage
    }

    /// The shared connection to a member, for calls that openraft does not make.
    pub(crate) fn shared(&self, target: u64, info: &MemberInfo) -> PeerClient {
        let mut shared = self.inner.shared.lock();
        shared.entry(target).or_insert_with(|| self.client(target, info, AppendTransport::Unary)).clone()
    }
}

impl RaftNetworkFactory<TypeConfig> for Peers {
    type Network = PeerClient;

    async fn new_client(&mut self, target: u64, node: &MemberInfo) -> PeerClient {
        self.client(target, node, AppendTransport::Stream)
    }

    async fn new_heartbeat_client(&mut self, target: u64, node: &MemberInfo) -> PeerClient {
        self.client(target, node, AppendTransport::Unary)
    }

    async fn new_snapshot_client(&mut self, target: u64, node: &MemberInfo) -> PeerClient {
        self.client(target, node, AppendTransport::Unary)
    }
}

/// The transport of appends on this connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AppendTransport {
    /// Pipelined over one long-lived stream: replication.
    Stream,
    /// One call each: heartbeats, which openraft hands over as streams of one.
    Unary,
}

/// One connection to one member; clones share it.
#[derive(Clone)]
pub(crate) struct PeerClient {
    route: Route,
    /// The source of the member's current address; `None` for a connection to one fixed address.
    peers: Option<Peers>,
    connection: Arc<Mutex<Connection>>,
    /// The current longest wait for an answer to replication.
    answer_timeout: Arc<Mutex<AnswerTimeout>>,
    append_transport: AppendTransport,
    /// Metrics about the member; `None` for a node outside of any membership.
    metrics: Option<Arc<PeerMetrics>>,
}

impl PeerClient {
    /// A connection to one address, outside of any membership.
    pub(crate) fn to_address(route: Route, url: &str) -> Self {
        let connection = Arc::new(Mutex::new(Connection::to(url.into(), &route.dialer)));
        let answer_timeout = Arc::new(Mutex::new(AnswerTimeout::new(super::CONNECT_TIMEOUT)));
        Self { route, peers: None, connection, answer_timeout, append_transport: AppendTransport::Unary, metrics: None }
    }

    pub(crate) fn route(&self) -> &Route {
        &self.route
    }

    /// The generated client; the error is the reason why the member's address cannot be used.
    pub(crate) fn grpc(&self) -> Result<Grpc<Channel>, String> {
        let url = self.peers.as_ref().and_then(|peers| peers.inner.addresses.used(self.route.to));
        self.connection.lock().grpc(url)
    }

    pub(super) fn answer_timeout(&self) -> &Mutex<AnswerTimeout> {
        &self.answer_timeout
    }

    /// Longest wait for the member's answer to a call that waits for no disk.
    pub(crate) fn answer_max(&self) -> Duration {
        self.peers.as_ref().map_or(super::CONNECT_TIMEOUT, |peers| peers.inner.answer_max)
    }

    /// Records the result of a call; true if it closed the connection.
    pub(super) fn record(&self, result: CallResult) -> bool {
        let is_over = self.connection.lock().record(result, Instant::now());
        if is_over {
            tracing::debug!(to = %self.route.to, ?result, "closed the connection to a member");
        }
        is_over
    }

    /// Records a failed call for the connection; counts and logs damage.
    pub(crate) fn record_failure(&self, status: &tonic::Status) {
        let is_damage = status.code() == Code::DataLoss;
        if let Some(metrics) = self.metrics.as_ref().filter(|_| is_damage) {
            metrics.damaged.inc();
        }
        // Logged once for each closed connection, not for each failed call.
        if self.record(CallResult::Failure(status.code())) && is_damage {
            tracing::warn!(to = %self.route.to, why = status.message(), "messages are damaged: connecting to the member anew");
        }
    }

    /// Counts a replication session that ended with `status` if that means damage.
    pub(super) fn note_session_failure(&self, status: &tonic::Status) {
        if status.code() == Code::DataLoss {
            self.note_session_end();
        }
    }

    /// Counts a replication session that ended because of damage, of an overdue answer, or by order
    /// of the log keeper.
    pub(super) fn note_session_end(&self) {
        if let Some(metrics) = &self.metrics {
            metrics.session_ended();
        }
    }

    /// Closes the connection, because an answer is overdue on it or its session is to end. The next
    /// call reconnects. `what` names the call in the log, `silence` is the time without an answer.
    pub(crate) fn give_up(&self, what: &str, silence: Duration) {
        tracing::warn!(to = %self.route.to, what, ?silence, "a member owes an answer: connecting to it anew");
        if let Some(metrics) = &self.metrics {
            metrics.overdue.inc();
        }
        self.connection.lock().renew();
    }

    /// Waits for the answer to a call on this connection, at most for `limit`; `DEADLINE_EXCEEDED`
    /// after that. Does not retry.
    pub(crate) async fn answer<T>(
        &self,
        limit: Duration,
        call: impl Future<Output = Result<tonic::Response<T>, tonic::Status>>,
    ) -> Result<T, tonic::Status> {
        match self.timed(limit, call).await {
            Some(answer) => answer,
            None => Err(tonic::Status::deadline_exceeded(format!("member {} did not answer in time", self.route.to))),
        }
    }

    /// The answer to a call, recorded for the connection; `None` after `limit`.
    async fn timed<T>(
        &self,
        limit: Duration,
        call: impl Future<Output = Result<tonic::Response<T>, tonic::Status>>,
    ) -> Option<Result<T, tonic::Status>> {
        // The caller may be cancelled before the answer: that, too, was silence.
        let silence = PendingCall { client: self, since: Instant::now(), is_over: false };
        let answered = tokio::time::timeout(limit, call).await.ok();
        match &answered {
            Some(Ok(_)) => silence.over(PeerClient::note_answer),
            Some(Err(status)) => silence.over(|client| client.record_failure(status)),
            None => drop(silence),
        }
        answered.map(|answer| answer.map(tonic::Response::into_inner))
    }

    /// Records that a call on this connection was answered.
    pub(crate) fn note_answer(&self) {
        let _kept = self.record(CallResult::Answer);
    }

    /// Logs a change of the member's reachability, and counts a heartbeat without an answer.
    fn report<T>(&self, result: &Result<T, RPCError<TypeConfig>>) {
        let Some(peers) = &self.peers else { return };
        peers.inner.reachable.report(self.route.to, result.as_ref().err());
        if result.is_err() {
            peers.inner.metrics.heartbeat_failed();
        }
    }

    /// Counts a message of `bytes` that goes out.
    fn count_sent(&self, bytes: usize) {
        if let Some(metrics) = &self.metrics {
            metrics.sent_bytes.inc_by(bytes as u64);
        }
    }

    /// Counts a message of `bytes` that came in.
    pub(super) fn count_received(&self, bytes: usize) {
        if let Some(metrics) = &self.metrics {
            metrics.received_bytes.inc_by(bytes as u64);
        }
    }

    /// Updates the peer's metrics after a call. Answered: the peer is active; nothing is counted.
    /// Failed: the failure is counted, and the peer is inactive.
    fn note(&self, was_answered: bool) {
        match &self.metrics {
            Some(metrics) if was_answered => metrics.reached(),
            Some(metrics) => metrics.missed(),
            None => {}
        }
    }

    fn connected(&self) -> Result<Grpc<Channel>, RPCError<TypeConfig>> {
        self.grpc().map_err(|error| RPCError::Unreachable(Unreachable::from_string(error)))
    }

    async fn within<T>(
        &self,
        action: RPCTypes,
        limit: Duration,
        call: impl Future<Output = Result<tonic::Response<T>, tonic::Status>>,
    ) -> Result<T, RPCError<TypeConfig>> {
        let answered = self.timed(limit, call).await;
        self.note(matches!(answered, Some(Ok(_))));
        match answered {
            Some(Ok(response)) => Ok(response),
            Some(Err(status)) => Err(rpc_error(&status)),
            None => Err(RPCError::Timeout(Timeout {
                action,
                id: self.route.from.get(),
                target: self.route.to.get(),
                timeout: limit,
            })),
        }
    }

    /// Opens a replication session with its first request.
    async fn open_append_stream<S>(
        &self,
        mut input: S,
    ) -> Result<BoxStream<'static, Result<StreamAppendResult<TypeConfig>, RPCError<TypeConfig>>>, RPCError<TypeConfig>>
    where
        S: Stream<Item = AppendEntriesRequest<TypeConfig>> + Send + Unpin + 'static,
    {
        // The first request comes before the connection: openraft holds it back while it backs off
        // from a peer that is down, and without it a dead peer would be called thousands of times a
        // second.
        let Some(first) = input.next().await else { return Ok(Box::pin(futures::stream::empty())) };
        let mut grpc = self.connected()?;
        // Dropping the answers ends the outgoing side as well: openraft opens the next session only
        // when this one has released the log, and a stuck connection must not hold it.
        let (session, session_ended) = oneshot::channel::<()>();
        let term = first.vote.leader_id.term;
        let requests = futures::stream::iter([first]).chain(input);
        let unanswered = Arc::new(Mutex::new(Unanswered::new(Instant::now())));
        let metrics = self.metrics.clone();
        let requests = Requests::new(requests, Arc::clone(&unanswered)).map(move |request| {
            headwater_fail_points::fail_point!(LeaderSend);
            let message = convert::append_to_pb(&request);
            if let Some(metrics) = &metrics {
                metrics.sent_bytes.inc_by(message.encoded_len() as u64);
            }
            message
        });
        let outgoing = requests.take_until(session_ended);
        let call = grpc.append_stream(self.route.request(outgoing));
        let call = call.inspect_err(|status| self.note_session_failure(status));
        let incoming = self.within(RPCTypes::AppendEntries, super::CONNECT_TIMEOUT, call).await?;
        let session_ends = self.peers.as_ref().map(|peers| peers.inner.session_ends.subscribe());
        let answers = Answers::new(self.clone(), term, incoming, session_ends, unanswered, session);
        Ok(Box::pin(futures::stream::unfold(answers, |mut answers| async {
            let answer = answers.next().await?;
            Some((answer, answers))
        })))
    }

    async fn call_vote(
        &self,
        request: VoteRequest<TypeConfig>,
        option: &RPCOption,
        pre_vote: bool,
    ) -> Result<VoteResponse<TypeConfig>, RPCError<TypeConfig>> {
        let mut grpc = self.connected()?;
        let message = self.route.request(convert::vote_request_to_pb(&request, pre_vote));
        let response = self.within(RPCTypes::Vote, option.hard_ttl(), grpc.vote(message)).await?;
        convert::vote_response_from_pb(response, request.vote.leader_id.term)
            .map_err(|error| RPCError::Network(NetworkError::new(&error)))
    }
}

/// A call under way. Dropped without [`over`](Self::over), it counts as silence.
struct PendingCall<'a> {
    client: &'a PeerClient,
    since: Instant,
    is_over: bool,
}

impl PendingCall<'_> {
    fn over(mut self, record: impl FnOnce(&PeerClient)) {
        self.is_over = true;
        record(self.client);
    }
}

impl Drop for PendingCall<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            let _closed = self.client.record(CallResult::Silence(self.since));
        }
    }
}

/// Maps a status to openraft's error: unreachable (back off) or network (retry at once).
pub(super) fn rpc_error(status: &tonic::Status) -> RPCError<TypeConfig> {
    match status.code() {
        Code::Cancelled | Code::DeadlineExceeded | Code::Aborted => RPCError::Network(NetworkError::new(status)),
        _ => RPCError::Unreachable(Unreachable::new(status)),
    }
}

impl RaftNetworkV2<TypeConfig> for PeerClient {
    type SnapshotData = SnapshotFiles;

    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<TypeConfig>, RPCError<TypeConfig>> {
        let mut grpc = self.connected()?;
        let mut message = convert::append_to_pb(&request);
        message.blocked = self.peers.as_ref().is_some_and(|peers| peers.inner.is_blocked.load(Ordering::Relaxed));
        let message = self.route.request(message);
        self.count_sent(message.get_ref().encoded_len());
        let began = Instant::now();
        let answer = self.within(RPCTypes::AppendEntries, option.hard_ttl(), grpc.append(message)).await;
        self.report(&answer);
        let response = answer?;
        if let Some(metrics) = &self.metrics {
            metrics.round_trip.observe(began.elapsed().as_secs_f64());
            metrics.received_bytes.inc_by(response.encoded_len() as u64);
        }
        let result = convert::append_result_from_pb(response, request.vote.leader_id.term)
            .map_err(|error| RPCError::Network(NetworkError::new(&error)))?;
        Ok(AppendEntriesResponse::from(result))
    }

    fn stream_append<'s, S>(
        &'s mut self,
        input: S,
        option: RPCOption,
    ) -> BoxFuture<
        's,
        Result<BoxStream<'s, Result<StreamAppendResult<TypeConfig>, RPCError<TypeConfig>>>, RPCError<TypeConfig>>,
    >
    where
        S: Stream<Item = AppendEntriesRequest<TypeConfig>> + OptionalSend + Unpin + 'static,
    {
        if self.append_transport == AppendTransport::Unary {
            return openraft::network::stream_append_sequential(self, input, option);
        }
        let answers = futures::stream::once(self.open_append_stream(input)).try_flatten();
        let answers: BoxStream<'s, _> = Box::pin(answers);
        Box::pin(std::future::ready(Ok(answers)))
    }

    async fn vote(
        &mut self,
        request: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RPCError<TypeConfig>> {
        self.call_vote(request, &option, false).await
    }

    async fn pre_vote(
        &mut self,
        request: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RPCError<TypeConfig>> {
        self.call_vote(request, &option, true).await
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: Snapshot,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        let grpc = self.grpc().map_err(|error| StreamingError::Unreachable(Unreachable::from_string(error)))?;
        let transfer = self.metrics.as_ref().map(|metrics| metrics.sending());
        let sent = tokio::select! {
            closed = cancel => Err(StreamingError::Closed(closed)),
            sent = snapshot_sender::send(&self.route, grpc, vote, snapshot, self.metrics.as_ref()) => sent,
        };
        match (transfer, &sent) {
            (Some(transfer), Ok(_)) => transfer.arrived(),
            (_, Err(StreamingError::Closed(_)) | Ok(_)) => {}
            // After any failure the connection is replaced, unless it is new, so that the next
            // attempt does not depend on it.
            (_, Err(_)) => {
                let _closed = self.record(CallResult::Failure(Code::Unknown));
            }
        }
        sent
    }

    async fn transfer_leader(
        &mut self,
        request: TransferLeaderRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<TransferLeaderResponse<TypeConfig>, RPCError<TypeConfig>> {
        let mut grpc = self.connected()?;
        let message = pb::TransferLeaderRequest {
            from: Some(convert::vote_to_pb(request.from_leader())),
            to: *request.to_node_id(),
            last: request.last_log_id().map(convert::log_id_to_pb),
        };
        // The receiver waits for its log to be flushed, which may take longer than a heartbeat.
        let limit = option.hard_ttl().max(super::CONNECT_TIMEOUT);
        let response =
            self.within(RPCTypes::TransferLeader, limit, grpc.transfer_leader(self.route.request(message))).await?;
        if response.refused.is_empty() {
            Ok(Ok(()))
        } else {
            Err(RPCError::Network(NetworkError::from_string(response.refused)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn damaged_calls_are_no_ended_sessions() {
        let (me, member, metrics) = (NodeId(1), NodeId(2), Arc::new(RaftMetrics::default()));
        let (lineage, dialer) = (Lineage::default(), Dialer::default());
        let peers = Peers::new(ClusterId(1), me, lineage, dialer, Arc::clone(&metrics), Duration::from_secs(1));
        let info = MemberInfo { peer_url: "http://127.0.0.1:1".into(), ..MemberInfo::default() };
        let client = peers.shared(member.get(), &info);
        let damage = tonic::Status::data_loss("damaged");
        for _ in 0..3 {
            client.record_failure(&damage);
        }
        let counted = metrics.peer(me, member);
        assert_eq!((counted.damaged.get(), counted.sessions_ended()), (3, 0));
        client.note_session_failure(&tonic::Status::unavailable("no connection"));
        assert_eq!(counted.sessions_ended(), 0);
        client.note_session_failure(&damage);
        assert_eq!(counted.sessions_ended(), 1);
    }
}
