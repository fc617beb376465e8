//! The calling side: one [`PeerClient`] per connection, handed to openraft by [`Peers`].

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures::{Stream, StreamExt, TryStreamExt};
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
use super::reachable::Reachability;
use super::{Lineage, Route, lazy_channel, snapshot_sender};
use crate::pb::peer as pb;
use crate::pb::peer::peer_client::PeerClient as Grpc;
use crate::raft::convert;
use crate::raft::metrics::{PeerMetrics, RaftMetrics};
use crate::raft::roster::Roster;
use crate::raft::snapshot::SnapshotFiles;
use crate::raft::types::{MemberInfo, Snapshot, TypeConfig, Vote};
use crate::types::limits::PEER_MESSAGE_BYTES_MAX;
use crate::types::{ClusterId, NodeId};

/// Makes clients for openraft, and keeps one shared connection a peer for forwarded proposals and read indexes.
#[derive(Clone)]
pub(crate) struct Peers {
    inner: Arc<PeersInner>,
}

struct PeersInner {
    cluster: ClusterId,
    me: NodeId,
    lineage: Lineage,
    shared: Mutex<BTreeMap<u64, PeerClient>>,
    /// Where each member is reached, for connections that outlive a move.
    addresses: Arc<Addresses>,
    /// This member leads, and has no majority.
    is_blocked: AtomicBool,
    reachable: Reachability,
    metrics: Arc<RaftMetrics>,
    /// Marked as changed when the log waits for somebody.
    silence_ends: watch::Sender<()>,
}

impl Peers {
    pub(crate) fn new(cluster: ClusterId, me: NodeId, lineage: Lineage, metrics: Arc<RaftMetrics>) -> Self {
        let route = Route { cluster, from: me, to: me, lineage: lineage.clone() };
        let inner = PeersInner {
            cluster,
            me,
            lineage,
            shared: Mutex::default(),
            addresses: Addresses::new(route),
            is_blocked: AtomicBool::new(false),
            reachable: Reachability::default(),
            metrics,
            silence_ends: watch::Sender::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Notes where the members are by the latest membership. Connections go to a new address from their next call on, once the
    /// member has answered there.
    pub(crate) fn learn_addresses(&self, roster: &Roster) {
        for member in &roster.members {
            self.inner.addresses.learn(member.id, &member.info);
        }
        self.inner.addresses.keep(|id| roster.find(id).is_some());
    }

    /// Where calls to a member go.
    pub(crate) fn address(&self, member: NodeId, info: &MemberInfo) -> Arc<str> {
        self.inner.addresses.used(member).unwrap_or_else(|| info.peer_url.as_str().into())
    }

    /// Whether `member` itself answers at an address.
    pub(crate) async fn answers_at(&self, member: NodeId, url: &str) -> bool {
        self.inner.addresses.answers(member, url).await
    }

    /// Notes whether this member leads without a majority, which its heartbeats tell the followers that it still has.
    pub(crate) fn set_blocked(&self, is_blocked: bool) {
        self.inner.is_blocked.store(is_blocked, Ordering::Relaxed);
    }

    /// Ends the replication sessions in which a request has gone without any answer for a while: openraft keeps every entry that
    /// a session may still want to send, for a member whose disk hangs without end.
    pub(crate) fn end_silent_sessions(&self) {
        self.inner.silence_ends.send_replace(());
    }

    fn client(&self, target: u64, info: &MemberInfo, lane: Lane) -> PeerClient {
        // Somebody may ask for a client before the membership that names its address is seen here.
        self.inner.addresses.learn_if_unknown(NodeId(target), info);
        let PeersInner { cluster, me, lineage, metrics, .. } = &*self.inner;
        let metrics = Some(metrics.peer(*me, NodeId(target)));
        let route = Route { cluster: *cluster, from: *me, to: NodeId(target), lineage: lineage.clone() };
        let connection = Arc::new(Mutex::new(Connection::to(self.address(route.to, info))));
        PeerClient { route, peers: Some(self.clone()), connection, lane, metrics }
    }

    /// Whose store this member has.
    pub(crate) fn lineage(&self) -> &Lineage {
        &self.inner.lineage
    }

    /// The connection for everything that is not replication.
    pub(crate) fn shared(&self, target: u64, info: &MemberInfo) -> PeerClient {
        let mut shared = self.inner.shared.lock();
        shared.entry(target).or_insert_with(|| self.client(target, info, Lane::Unary)).clone()
    }
}

impl RaftNetworkFactory<TypeConfig> for Peers {
    type Network = PeerClient;

    async fn new_client(&mut self, target: u64, node: &MemberInfo) -> PeerClient {
        self.client(target, node, Lane::Stream)
    }

    async fn new_heartbeat_client(&mut self, target: u64, node: &MemberInfo) -> PeerClient {
        self.client(target, node, Lane::Unary)
    }

    async fn new_snapshot_client(&mut self, target: u64, node: &MemberInfo) -> PeerClient {
        self.client(target, node, Lane::Unary)
    }
}

/// How appends travel on this connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lane {
    /// Pipelined over one long-lived stream: replication.
    Stream,
    /// One call each: heartbeats, which openraft hands over as streams of one.
    Unary,
}

/// One connection to one member; clones share it.
#[derive(Clone)]
pub(crate) struct PeerClient {
    route: Route,
    /// Whom to ask where the member is now; nobody, if the connection was made for one address.
    peers: Option<Peers>,
    connection: Arc<Mutex<Connection>>,
    lane: Lane,
    /// None outside of any membership.
    metrics: Option<Arc<PeerMetrics>>,
}

/// The generated client with the address that it connects to, or why that address cannot be used.
struct Connection {
    url: Arc<str>,
    grpc: Result<Grpc<Channel>, String>,
}

impl Connection {
    fn to(url: Arc<str>) -> Self {
        let grpc = lazy_channel(&url).map(|channel| {
            Grpc::new(channel)
                // Requests are bounded; outcomes of forwarded writes (removed pairs, ranges) are as large as they are.
                .max_decoding_message_size(usize::MAX)
                .max_encoding_message_size(PEER_MESSAGE_BYTES_MAX)
        });
        Self { url, grpc }
    }
}

impl PeerClient {
    /// A connection to one address, outside of any membership.
    pub(crate) fn to_address(route: Route, url: &str) -> Self {
        let connection = Arc::new(Mutex::new(Connection::to(url.into())));
        Self { route, peers: None, connection, lane: Lane::Unary, metrics: None }
    }

    pub(crate) fn route(&self) -> &Route {
        &self.route
    }

    /// The generated client, or why the configured address cannot be used.
    pub(crate) fn grpc(&self) -> Result<Grpc<Channel>, String> {
        let mut connection = self.connection.lock();
        if let Some(url) = self.peers.as_ref().and_then(|peers| peers.inner.addresses.used(self.route.to))
            && url != connection.url
        {
            *connection = Connection::to(url);
        }
        connection.grpc.clone()
    }

    /// Notes whether a heartbeat was answered.
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

    /// Notes whether a call was answered.
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
        let answered = tokio::time::timeout(limit, call).await;
        self.note(matches!(answered, Ok(Ok(_))));
        match answered {
            Ok(Ok(response)) => Ok(response.into_inner()),
            Ok(Err(status)) => Err(rpc_error(&status)),
            Err(_) => Err(RPCError::Timeout(Timeout {
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
        // The first request comes before the connection: openraft holds it back while it backs off from a peer that is
        // down, and without it a dead peer would be called thousands of times a second.
        let Some(first) = input.next().await else { return Ok(Box::pin(futures::stream::empty())) };
        let mut grpc = self.connected()?;
        // Dropping the answers ends the outgoing side as well: openraft opens the next session only when this one has let
        // go of the log, and a stuck connection must not hold it.
        let (session, session_ended) = oneshot::channel::<()>();
        let requests = futures::stream::iter([first]).chain(input);
        let unanswered = Arc::new(Mutex::new(Unanswered::default()));
        let sent = Arc::clone(&unanswered);
        let metrics = self.metrics.clone();
        let requests = requests.map(move |request| {
            fail_point!(LeaderSend);
            sent.lock().asked(Instant::now());
            let message = convert::append_to_pb(&request);
            if let Some(metrics) = &metrics {
                metrics.sent_bytes.inc_by(message.encoded_len() as u64);
            }
            message
        });
        let outgoing = requests.take_until(session_ended);
        let call = grpc.append_stream(self.route.request(outgoing));
        // Opening the stream is bounded; the answers are not, unless the log has to wait for them: a slow disk is no reason to
        // send everything again, and a dead peer is noticed by the connection's keep-alive.
        let incoming = self.within(RPCTypes::AppendEntries, super::CONNECT_TIMEOUT, call).await?;
        let silence_ends = self.peers.as_ref().map(|peers| peers.inner.silence_ends.subscribe());
        let metrics = self.metrics.clone();
        let answers = Answers { incoming, silence_ends, unanswered, metrics, _session: session };
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
        convert::vote_response_from_pb(response).map_err(|error| RPCError::Network(NetworkError::new(&error)))
    }
}

/// Requests of a session that wait for their answers.
#[derive(Default)]
struct Unanswered {
    requests: usize,
    /// When the first of them was sent, or anything was answered since.
    since: Option<Instant>,
}

impl Unanswered {
    fn asked(&mut self, now: Instant) {
        self.requests += 1;
        self.since.get_or_insert(now);
    }

    fn answered(&mut self, now: Instant) {
        self.requests = self.requests.saturating_sub(1);
        self.since = (self.requests > 0).then_some(now);
    }

    /// For how long nothing was answered although something was to be.
    fn silence(&self, now: Instant) -> Duration {
        self.since.map_or(Duration::ZERO, |since| now - since)
    }
}

/// The answers of a replication session.
struct Answers {
    incoming: tonic::Streaming<pb::AppendResponse>,
    /// From whom it hears that the log waits for somebody.
    silence_ends: Option<watch::Receiver<()>>,
    unanswered: Arc<Mutex<Unanswered>>,
    metrics: Option<Arc<PeerMetrics>>,
    /// The outgoing side ends with it.
    _session: oneshot::Sender<()>,
}

impl Answers {
    async fn next(&mut self) -> Option<Result<StreamAppendResult<TypeConfig>, RPCError<TypeConfig>>> {
        loop {
            let silence_ends = async {
                match &mut self.silence_ends {
                    Some(ends) => ends.changed().await.is_ok(),
                    None => false,
                }
            };
            tokio::select! {
                biased;
                item = self.incoming.next() => {
                    self.unanswered.lock().answered(Instant::now());
                    return Some(match item? {
                        Ok(response) => {
                            if let Some(metrics) = &self.metrics {
                                metrics.received_bytes.inc_by(response.encoded_len() as u64);
                            }
                            convert::append_result_from_pb(response)
                                .map_err(|error| RPCError::Network(NetworkError::new(&error)))
                        }
                        Err(status) => Err(rpc_error(&status)),
                    });
                }
                true = silence_ends => {
                    let silence = self.unanswered.lock().silence(Instant::now());
                    if silence >= super::SILENCE_MAX {
                        let why = format!("no answer for {silence:?}, and the log waits for it");
                        return Some(Err(RPCError::Network(NetworkError::from_string(why))));
                    }
                }
            }
        }
    }
}

/// Sorts a status by what openraft should do next: back off, or try again at once.
fn rpc_error(status: &tonic::Status) -> RPCError<TypeConfig> {
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
        let result =
            convert::append_result_from_pb(response).map_err(|error| RPCError::Network(NetworkError::new(&error)))?;
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
        if self.lane == Lane::Unary {
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
        if let (Some(transfer), Ok(_)) = (transfer, &sent) {
            transfer.arrived();
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

    #[test]
    fn only_who_owes_an_answer_is_silent() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let silence = |unanswered: &Unanswered, seconds| unanswered.silence(at(seconds)).as_secs();
        let mut unanswered = Unanswered::default();
        assert_eq!(silence(&unanswered, 100), 0, "nobody asked");
        unanswered.asked(at(100));
        unanswered.asked(at(103));
        assert_eq!(silence(&unanswered, 105), 5);
        unanswered.answered(at(106));
        assert_eq!(silence(&unanswered, 108), 2, "it answers, slowly");
        unanswered.answered(at(109));
        assert_eq!(silence(&unanswered, 200), 0, "it has answered everything");
        unanswered.asked(at(200));
        assert_eq!(silence(&unanswered, 201), 1);
    }
}
