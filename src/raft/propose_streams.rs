//! Proposals on their way from a follower to the leader: one long-lived stream to each leader,
//! batches answered in order.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use super::batcher::{Batch, BatchJobs, Batcher, FORWARDED_BATCHES_MAX, InFlight, Queue, Results};
use super::network::{PeerClient, Peers};
use super::propose::{WriteError, result_from_pb};
use super::types::MemberInfo;
use headwater_proto::pb::peer as pb;
use headwater_types::NodeId;

/// Most messages that wait for the connection, count. While the leader answers, fewer batches are
/// under way.
const MESSAGES_QUEUED: usize = 16;
const _: () = assert!(FORWARDED_BATCHES_MAX < MESSAGES_QUEUED);
/// Time between two checks for an overdue answer.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// The queue of proposals to each leader, with the leader's address, by the leader's id. A queue is
/// replaced when the leader has moved to another address.
#[derive(Default)]
pub(super) struct ProposeStreams {
    streams: Mutex<BTreeMap<u64, (Arc<str>, Queue)>>,
}

impl ProposeStreams {
    pub(super) async fn propose(
        &self,
        peers: &Peers,
        leader: NodeId,
        info: &MemberInfo,
        commands: Vec<Bytes>,
    ) -> Results {
        self.stream_to(peers, leader, info).run(commands, WriteError::ConnectionLost).await
    }

    fn stream_to(&self, peers: &Peers, leader: NodeId, info: &MemberInfo) -> Queue {
        let address = peers.address(leader, info);
        let mut streams = self.streams.lock();
        match streams.get(&leader.get()) {
            Some((url, stream)) if *url == address && !stream.is_closed() => stream.clone(),
            _ => {
                let (stream, batcher) = Queue::forwarding();
                tokio::spawn(run(peers.shared(leader.get(), info), batcher));
                streams.insert(leader.get(), (address, stream.clone()));
                stream
            }
        }
    }
}

async fn run(client: PeerClient, mut batcher: Batcher) {
    while let Some(first) = batcher.next().await {
        let (outgoing, requests) = mpsc::channel(MESSAGES_QUEUED);
        match open(&client, requests).await {
            Ok(answers) => stream(&client, first, &mut batcher, outgoing, answers).await,
            Err(status) => {
                // Nothing was sent, so nothing can take effect.
                tracing::debug!(to = %client.route().to, %status, "leader not reachable");
                first.jobs.answer(Vec::new(), &WriteError::NotLeader(None));
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

/// Sends `first` and further batches over one stream until it breaks, and waits until all of them
/// have their results.
async fn stream(
    client: &PeerClient,
    first: Batch,
    batcher: &mut Batcher,
    outgoing: mpsc::Sender<pb::ProposeRequest>,
    answers: Streaming<pb::ProposeResponse>,
) {
    let (pending_tx, pending) = mpsc::unbounded_channel();
    // Answers are handed out by a task of their own: the batcher waits for them while it fills a
    // batch.
    let reader = tokio::spawn(answer_in_order(client.clone(), answers, pending));
    let mut next = Some(first);
    while let Some(batch) = next {
        let request = pb::ProposeRequest { commands: batch.commands };
        // Pending first, then sent, so that the answer finds its batch. If the reader has ended,
        // the batch comes back and was not sent.
        if let Err(unsent) = pending_tx.send((batch.jobs, batch.in_flight)) {
            unsent.0.0.answer(Vec::new(), &WriteError::NotLeader(None));
            break;
        }
        headwater_fail_points::fail_point!(FollowerForward);
        if outgoing.send(request).await.is_err() {
            break;
        }
        next = batcher.next().await;
    }
    drop((outgoing, pending_tx));
    if let Err(error) = reader.await {
        tracing::warn!(%error, "the reader of a stream to the leader failed");
    }
}

async fn answer_in_order(
    client: PeerClient,
    mut answers: Streaming<pb::ProposeResponse>,
    mut pending: mpsc::UnboundedReceiver<(BatchJobs, InFlight)>,
) {
    // A leader answers when a majority has the entries, or when it no longer leads, which it
    // notices within two election timeouts.
    let mut wait = AnswerWait::new(client.answer_max() * 2);
    let mut checks = tokio::time::interval(CHECK_INTERVAL);
    loop {
        let answer = tokio::select! {
            biased;
            answer = answers.message() => answer,
            _ = checks.tick() => {
                if let Some(silence) = wait.check(!pending.is_empty(), Instant::now()) {
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
                client.record_failure(&status);
                break;
            }
        };
        client.note_answer();
        wait.answered();
        let Some((jobs, _in_flight)) = pending.recv().await else { break };
        let results = response.results.into_iter().map(result_from_pb).collect();
        jobs.answer(results, &WriteError::ConnectionLost);
    }
    pending.close();
    while let Some((jobs, _in_flight)) = pending.recv().await {
        jobs.answer(Vec::new(), &WriteError::ConnectionLost);
    }
}

/// Detects that no batch is answered for too long while batches wait for answers.
struct AnswerWait {
    limit: Duration,
    since: Option<Instant>,
}

impl AnswerWait {
    fn new(limit: Duration) -> Self {
        Self { limit, since: None }
    }

    fn answered(&mut self) {
        self.since = None;
    }

    /// The time without an answer if it has reached the limit, else `None`. `is_waiting`: batches
    /// wait for answers.
    fn check(&mut self, is_waiting: bool, now: Instant) -> Option<Duration> {
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
        let mut wait = AnswerWait::new(Duration::from_secs(6));
        assert_eq!(wait.check(false, at(0)), None);
        assert_eq!(wait.check(true, at(10)), None);
        assert_eq!(wait.check(true, at(15)), None);
        wait.answered();
        assert_eq!(wait.check(true, at(16)), None);
        assert_eq!(wait.check(true, at(22)), Some(Duration::from_secs(6)));
        assert_eq!(wait.check(false, at(23)), None);
        assert_eq!(wait.check(true, at(24)), None);
    }
}
