//! Proposals on their way from a follower to the leader: one long-lived stream a leader, batches answered in order.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use super::consensus::WriteError;
use super::gather::{Batch, Gatherer, InFlight, Queue, Results, Shares};
use super::network::{PeerClient, Peers};
use super::types::MemberInfo;
use crate::codec;
use crate::pb::peer as pb;
use crate::types::{Applied, NodeId};

/// Messages that may wait for the connection; more than are under way while the leader answers.
const MESSAGES_QUEUED: usize = 16;

/// The lanes of one follower, by leader and address.
#[derive(Default)]
pub(super) struct ProposeLanes {
    lanes: Mutex<BTreeMap<u64, (Arc<str>, Queue)>>,
}

impl ProposeLanes {
    pub(super) async fn propose(
        &self,
        peers: &Peers,
        leader: NodeId,
        info: &MemberInfo,
        commands: Vec<Bytes>,
    ) -> Results {
        self.lane(peers, leader, info).run(commands, WriteError::ConnectionLost).await
    }

    fn lane(&self, peers: &Peers, leader: NodeId, info: &MemberInfo) -> Queue {
        let address = peers.address(leader, info);
        let mut lanes = self.lanes.lock();
        match lanes.get(&leader.get()) {
            Some((url, lane)) if *url == address && !lane.is_closed() => lane.clone(),
            _ => {
                let (lane, gatherer) = Queue::new();
                tokio::spawn(run(peers.shared(leader.get(), info), gatherer));
                lanes.insert(leader.get(), (address, lane.clone()));
                lane
            }
        }
    }
}

async fn run(client: PeerClient, mut gatherer: Gatherer) {
    while let Some(first) = gatherer.next().await {
        let (outgoing, requests) = mpsc::channel(MESSAGES_QUEUED);
        match open(&client, requests).await {
            Ok(answers) => stream(first, &mut gatherer, outgoing, answers).await,
            Err(status) => {
                // Nothing was sent, so nothing can take effect.
                tracing::debug!(to = %client.route().to, %status, "leader not reachable");
                first.shares.settle(Vec::new(), &WriteError::NotLeader(None));
            }
        }
    }
}

async fn open(
    client: &PeerClient,
    requests: mpsc::Receiver<pb::ProposeRequest>,
) -> Result<Streaming<pb::ProposeResponse>, tonic::Status> {
    let mut grpc = client.grpc().map_err(tonic::Status::unavailable)?;
    let call = grpc.propose(client.route().request(ReceiverStream::new(requests)));
    match tokio::time::timeout(super::network::CONNECT_TIMEOUT, call).await {
        Ok(answer) => answer.map(tonic::Response::into_inner),
        Err(_) => Err(tonic::Status::unavailable("the leader did not answer in time")),
    }
}

/// Serves batches over one stream until it breaks.
async fn stream(
    first: Batch,
    gatherer: &mut Gatherer,
    outgoing: mpsc::Sender<pb::ProposeRequest>,
    answers: Streaming<pb::ProposeResponse>,
) {
    let (pending_tx, pending) = mpsc::unbounded_channel();
    // Answers are handed out by a task of their own: the gatherer waits for them while it gathers.
    let reader = tokio::spawn(settle_in_order(answers, pending));
    let mut next = Some(first);
    while let Some(batch) = next {
        let request = pb::ProposeRequest { commands: batch.commands };
        // In this order: a batch that is on its way must be among the pending ones. If the reader has ended, the batch
        // comes back and was not sent.
        if let Err(unsent) = pending_tx.send((batch.shares, batch.in_flight)) {
            unsent.0.0.settle(Vec::new(), &WriteError::NotLeader(None));
            break;
        }
        fail_point!(FollowerForward);
        if outgoing.send(request).await.is_err() {
            break;
        }
        next = gatherer.next().await;
    }
    drop((outgoing, pending_tx));
    if let Err(error) = reader.await {
        tracing::warn!(%error, "the reader of a lane to the leader failed");
    }
}

async fn settle_in_order(
    mut answers: Streaming<pb::ProposeResponse>,
    mut pending: mpsc::UnboundedReceiver<(Shares, InFlight)>,
) {
    while let Ok(Some(response)) = answers.message().await {
        let Some((shares, _in_flight)) = pending.recv().await else { break };
        let results = response.results.into_iter().map(result_from_pb).collect();
        shares.settle(results, &WriteError::ConnectionLost);
    }
    pending.close();
    while let Some((shares, _in_flight)) = pending.recv().await {
        shares.settle(Vec::new(), &WriteError::ConnectionLost);
    }
}

fn result_from_pb(result: pb::ProposeResult) -> Result<Applied, WriteError> {
    use pb::propose_result::Result as R;
    match result.result {
        Some(R::Applied(record)) => {
            codec::decode_applied(record).map_err(|error| WriteError::Stopped(error.to_string()))
        }
        Some(R::NotLeader(id)) => Err(WriteError::NotLeader((id != 0).then_some(NodeId(id)))),
        Some(R::Discarded(_)) => Err(WriteError::Discarded),
        Some(R::Stopped(why)) => Err(WriteError::Stopped(why)),
        Some(R::Unreadable(why)) => Err(WriteError::Unreadable(why)),
        None => Err(WriteError::ConnectionLost),
    }
}
