//! Proposals on their way from a follower to the leader: one long-lived stream a leader, batches
//! answered in order.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use super::gather::{Batch, Gatherer, InFlight, Queue, Results, Shares};
use super::network::{PeerClient, Peers};
use super::propose::{WriteError, result_from_pb};
use super::types::MemberInfo;
use headwater_proto::pb::peer as pb;
use headwater_types::NodeId;

/// Messages that may wait for the connection; more than are under way while the leader answers.
const MESSAGES_QUEUED: usize = 16;
/// How often it is looked whether an answer is overdue.
const LOOK: Duration = Duration::from_millis(250);

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
            Ok(answers) => stream(&client, first, &mut gatherer, outgoing, answers).await,
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
    client.answer(super::network::CONNECT_TIMEOUT, call).await
}

/// Serves batches over one stream until it breaks.
async fn stream(
    client: &PeerClient,
    first: Batch,
    gatherer: &mut Gatherer,
    outgoing: mpsc::Sender<pb::ProposeRequest>,
    answers: Streaming<pb::ProposeResponse>,
) {
    let (pending_tx, pending) = mpsc::unbounded_channel();
    // Answers are handed out by a task of their own: the gatherer waits for them while it gathers.
    let reader = tokio::spawn(settle_in_order(client.clone(), answers, pending));
    let mut next = Some(first);
    while let Some(batch) = next {
        let request = pb::ProposeRequest { commands: batch.commands };
        // In this order: a batch that is on its way must be among the pending ones. If the reader
        // has ended, the batch comes back and was not sent.
        if let Err(unsent) = pending_tx.send((batch.shares, batch.in_flight)) {
            unsent.0.0.settle(Vec::new(), &WriteError::NotLeader(None));
            break;
        }
        headwater_fail_points::fail_point!(FollowerForward);
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
    client: PeerClient,
    mut answers: Streaming<pb::ProposeResponse>,
    mut pending: mpsc::UnboundedReceiver<(Shares, InFlight)>,
) {
    // A leader answers when a majority has the entries, or when it leads no more, which it notices
    // within two elections.
    let mut wait = Wait::new(client.answer_max() * 2);
    let mut looks = tokio::time::interval(LOOK);
    loop {
        let answer = tokio::select! {
            biased;
            answer = answers.message() => answer,
            _ = looks.tick() => {
                if let Some(silence) = wait.look(!pending.is_empty(), Instant::now()) {
                    client.give_up("forwarding proposals", silence);
                    break;
                }
                continue;
            }
        };
        let response = match answer {
            Ok(Some(response)) => response,
            Ok(None) => break,
            Err(status) => {
                client.hear_failure(&status);
                break;
            }
        };
        client.note_answer();
        wait.answered();
        let Some((shares, _in_flight)) = pending.recv().await else { break };
        let results = response.results.into_iter().map(result_from_pb).collect();
        shares.settle(results, &WriteError::ConnectionLost);
    }
    pending.close();
    while let Some((shares, _in_flight)) = pending.recv().await {
        shares.settle(Vec::new(), &WriteError::ConnectionLost);
    }
}

/// Notices that batches wait and nothing is answered.
struct Wait {
    limit: Duration,
    since: Option<Instant>,
}

impl Wait {
    fn new(limit: Duration) -> Self {
        Self { limit, since: None }
    }

    fn answered(&mut self) {
        self.since = None;
    }

    /// For how long nothing was answered, once that is too long.
    fn look(&mut self, is_waiting: bool, now: Instant) -> Option<Duration> {
        if !is_waiting {
            self.since = None;
            return None;
        }
        let silence = now - *self.since.get_or_insert(now);
        (silence >= self.limit).then_some(silence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_begins_with_what_waits_and_again_with_every_answer() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let mut wait = Wait::new(Duration::from_secs(6));
        assert_eq!(wait.look(false, at(0)), None);
        assert_eq!(wait.look(true, at(10)), None);
        assert_eq!(wait.look(true, at(15)), None);
        wait.answered();
        assert_eq!(wait.look(true, at(16)), None);
        assert_eq!(wait.look(true, at(22)), Some(Duration::from_secs(6)));
        assert_eq!(wait.look(false, at(23)), None);
        assert_eq!(wait.look(true, at(24)), None);
    }
}
