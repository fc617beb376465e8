//! An election at once after the end of the leader's process.
//!
//! A process that ends closes its connections, and its port then refuses new ones. A member that
//! sees both asks the other voters. If a majority of the voters sees both, the one with the longest
//! log stands for election, and openraft's leadership transfer lets it be elected in spite of the
//! running lease. Pauses, partitions and hosts that are gone refuse nothing, and are left to the
//! election timeout.
//!
//! Invariant: only Raft's own rules decide about votes and logs. A wrong guess costs one election.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use http::Uri;
use openraft::async_runtime::watch::WatchReceiver;
use openraft::raft::TransferLeaderRequest;
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::sync::Notify;

use super::consensus::Consensus;
use super::convert;
use super::roster::Roster;
use super::types::{LogId, Vote};
use headwater_proto::pb::peer as pb;
use headwater_types::NodeId;

/// Longest wait for a connection to the leader's port. A refusal is immediate.
const PROBE_TIMEOUT: Duration = Duration::from_millis(200);
/// Most attempts to connect to the leader's port, count: the first may reach a port that is about
/// to close.
const PROBES_MAX: u32 = 4;
/// Pause between two attempts to connect.
const PROBE_PAUSE: Duration = Duration::from_millis(10);
/// Longest wait for the answers of the other voters.
const ASK_TIMEOUT: Duration = Duration::from_millis(400);
/// Heartbeat intervals without contact with the leader after which its port is tried, even if no
/// replication session has closed, count.
const SILENT_HEARTBEATS: u32 = 3;

/// Open sessions by which other members replicate to this one, counted by member; and a wake-up
/// when the last session of a member closes, which may be the end of the leader's process.
#[derive(Debug, Default)]
pub(super) struct LeaderSessions {
    /// The number of open sessions by member.
    open: Mutex<BTreeMap<NodeId, usize>>,
    /// Notified when the last session of a member has closed, and when this member has told another
    /// voter that the leader's process has ended.
    doubt: Notify,
}

impl LeaderSessions {
    /// Whether `member` holds a session open.
    fn has(&self, member: NodeId) -> bool {
        self.open.lock().contains_key(&member)
    }
}

/// One open session. Dropping it records that the session has ended.
pub(crate) struct OpenSession {
    consensus: Consensus,
    from: NodeId,
}

impl OpenSession {
    /// Records a session that `from` has opened.
    pub(crate) fn of(consensus: Consensus, from: NodeId) -> Self {
        *consensus.inner().leader_sessions.open.lock().entry(from).or_default() += 1;
        Self { consensus, from }
    }

    /// The consensus that holds the session.
    pub(crate) fn consensus(&self) -> &Consensus {
        &self.consensus
    }
}

impl Drop for OpenSession {
    fn drop(&mut self) {
        let sessions = &self.consensus.inner().leader_sessions;
        let mut open = sessions.open.lock();
        if let Some(count) = open.get_mut(&self.from) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.from);
                sessions.doubt.notify_one();
            }
        }
    }
}

/// A voter that sees the end of the leader's process, with its last log entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Candidate {
    member: NodeId,
    last: Option<LogId>,
}

/// Watches for the end of the leader's process until consensus ends.
pub(super) async fn watch(consensus: Consensus, heartbeat: Duration) {
    tokio::select! {
        () = check_when_in_doubt(&consensus, heartbeat) => {}
        _ = consensus.ended() => {}
    }
}

async fn check_when_in_doubt(consensus: &Consensus, heartbeat: Duration) {
    let silence_max = heartbeat * SILENT_HEARTBEATS;
    loop {
        tokio::select! {
            () = consensus.inner().leader_sessions.doubt.notified() => {}
            // Polled: silence is no event.
            () = tokio::time::sleep(heartbeat) => {
                if consensus.leadership().last_contact().is_none_or(|contact| contact < silence_max) {
                    continue;
                }
            }
        }
        if stand_if_leader_ended(consensus, heartbeat).await {
            // The election has its time; a lost one is left to the next round.
            tokio::time::sleep(heartbeat).await;
        }
    }
}

/// Stands for election if the leader's process has ended, a majority of the voters sees that, and
/// no better candidate is elected first. True if this member may stand and sees the leader's
/// process as ended, whether it stood or not.
async fn stand_if_leader_ended(consensus: &Consensus, heartbeat: Duration) -> bool {
    let Some(leader) = followed(consensus) else { return false };
    let roster = consensus.members().roster();
    let me = consensus.node_id();
    if !roster.voters().any(|member| member.id == me) || !may_elect(consensus) || !has_ended(consensus, leader).await {
        return false;
    }
    let candidates = candidates(consensus, &roster, leader).await;
    let Some(rank) = rank(&candidates, me, roster.voters().count()) else {
        tracing::debug!(leader = %leader.id, "the leader's port refuses, but no majority sees that");
        return true;
    };
    // Better candidates go first.
    tokio::time::sleep(heartbeat * rank).await;
    if followed(consensus) != Some(leader) {
        return true;
    }
    tracing::info!(leader = %leader.id, "the leader's process has ended: standing for election at once");
    consensus.metrics().leader_ended();
    let to_me = TransferLeaderRequest::new(leader.vote, me.get(), None);
    match consensus.raft().handle_transfer_leader(to_me).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "the election was not begun"),
        Err(error) => tracing::debug!(%error, "consensus has ended on this member"),
    }
    true
}

/// The leader that a member follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Followed {
    vote: Vote,
    id: NodeId,
}

/// The leader that this member follows; `None` without a leader, and on the leader itself.
fn followed(consensus: &Consensus) -> Option<Followed> {
    let vote = consensus.raft().server_metrics().borrow_watched().vote;
    let id = NodeId(vote.leader_id.voted_for);
    (vote.committed && id != consensus.node_id()).then_some(Followed { vote, id })
}

fn may_elect(consensus: &Consensus) -> bool {
    matches!(consensus.participation(), super::form::Participation::Member) && !consensus.is_stopping()
}

/// Whether the process of the leader has ended, as far as this member can see: it holds no session
/// open here, and its port refuses connections.
async fn has_ended(consensus: &Consensus, leader: Followed) -> bool {
    let id = leader.id;
    let Some(info) = consensus.member_info(id) else { return false };
    let url = consensus.inner().peers.address(id, &info);
    let Some((host, port)) = host_and_port(&url) else { return false };
    for probe in 0..PROBES_MAX {
        if probe > 0 {
            tokio::time::sleep(PROBE_PAUSE).await;
        }
        if is_refused(&host, port).await && !consensus.inner().leader_sessions.has(id) {
            return true;
        }
    }
    false
}

/// Host and port of a member's URL.
fn host_and_port(url: &str) -> Option<(String, u16)> {
    let url: Uri = url.parse().ok()?;
    let host = url.host()?.trim_start_matches('[').trim_end_matches(']');
    Some((host.to_owned(), url.port_u16()?))
}

/// Whether a connection to the host is refused: nothing listens at its port. For a host with
/// several addresses: whether none accepts and the last one refuses. False if no answer comes in
/// time.
async fn is_refused(host: &str, port: u16) -> bool {
    let connecting = TcpStream::connect((host, port));
    match tokio::time::timeout(PROBE_TIMEOUT, connecting).await {
        Ok(Err(error)) => error.kind() == io::ErrorKind::ConnectionRefused,
        Ok(Ok(_)) | Err(_) => false,
    }
}

/// The voters that see the end of the leader's process, this member first. Waits until every other
/// voter has answered, at most [`ASK_TIMEOUT`].
async fn candidates(consensus: &Consensus, roster: &Roster, leader: Followed) -> Vec<Candidate> {
    let me = consensus.node_id();
    let mut candidates = vec![Candidate { member: me, last: last_log(consensus) }];
    let others = roster.voters().filter(|member| member.id != me && member.id != leader.id);
    let mut asking: FuturesUnordered<_> = others
        .map(|member| async move {
            let client = consensus.inner().peers.shared(member.id.get(), &member.info);
            let mut grpc = client.grpc().ok()?;
            let question = pb::LeaderEndedRequest { leader: Some(convert::vote_to_pb(&leader.vote)) };
            let asked = grpc.leader_ended(client.route().request(question));
            let answer = client.answer(ASK_TIMEOUT, asked).await.ok()?;
            answer.ended.then(|| Candidate { member: member.id, last: answer.last.map(convert::log_id_from_pb) })
        })
        .collect();
    while let Some(answer) = asking.next().await {
        candidates.extend(answer);
    }
    candidates
}

fn last_log(consensus: &Consensus) -> Option<LogId> {
    consensus.raft().data_metrics().borrow_watched().last_log
}

/// The rank of `me` among the candidates, from 0: the longest log first, then the lowest id. `None`
/// unless the candidates are a majority of the voters.
fn rank(candidates: &[Candidate], me: NodeId, voters: usize) -> Option<u32> {
    if candidates.len() * 2 <= voters {
        return None;
    }
    let order_key = |candidate: &Candidate| (candidate.last, Reverse(candidate.member));
    let own = order_key(candidates.iter().find(|candidate| candidate.member == me)?);
    Some(candidates.iter().filter(|candidate| order_key(candidate) > own).count() as u32)
}

impl Consensus {
    /// Answers another member's question whether the process of the leader with the vote `leader`
    /// has ended. `ended` is also false if this member follows another leader, or may not stand for
    /// election. If it is true, this member checks at once whether to stand itself.
    pub(crate) async fn judge_leader(&self, leader: Vote) -> pb::LeaderEndedResponse {
        let ended = match followed(self) {
            Some(followed) if followed.vote == leader && may_elect(self) => has_ended(self, followed).await,
            Some(_) | None => false,
        };
        if ended {
            // The better candidate may be this member.
            self.inner().leader_sessions.doubt.notify_one();
        }
        pb::LeaderEndedResponse { ended, last: last_log(self).as_ref().map(convert::log_id_to_pb) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::log_id;

    #[test]
    fn a_majority_must_see_it_and_the_longest_log_goes_first() {
        let candidate = |member, last: Option<(u64, u64)>| Candidate {
            member: NodeId(member),
            last: last.map(|(term, index)| log_id(term, index)),
        };
        let two = [candidate(2, Some((1, 7))), candidate(3, Some((1, 9)))];
        let rank = |candidates: &[Candidate], me, voters| rank(candidates, NodeId(me), voters);
        assert_eq!(rank(&two, 3, 3), Some(0));
        assert_eq!(rank(&two, 2, 3), Some(1));
        assert_eq!(rank(&two[..1], 2, 3), None, "one of three");
        assert_eq!(rank(&two, 3, 4), None, "two of four");
        assert_eq!(rank(&two, 3, 5), None, "two of five");
        assert_eq!(rank(&two[..1], 2, 1), Some(0));
        let even = [candidate(3, Some((2, 7))), candidate(2, Some((2, 7))), candidate(5, Some((1, 99)))];
        assert_eq!(rank(&even, 2, 5), Some(0), "of equal logs the lowest id");
        assert_eq!(rank(&even, 3, 5), Some(1));
        assert_eq!(rank(&even, 5, 5), Some(2), "the term counts before the index");
    }

    #[test]
    fn host_and_port_are_read_from_urls() {
        assert_eq!(host_and_port("http://127.0.0.1:2380"), Some(("127.0.0.1".to_owned(), 2380)));
        assert_eq!(host_and_port("https://node-1.example:7"), Some(("node-1.example".to_owned(), 7)));
        assert_eq!(host_and_port("http://[::1]:2380"), Some(("::1".to_owned(), 2380)));
        assert_eq!(host_and_port("http://node-1"), None);
        assert_eq!(host_and_port(""), None);
    }

    #[tokio::test]
    async fn only_a_port_without_a_listener_refuses() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(!is_refused("127.0.0.1", port).await);
        drop(listener);
        assert!(is_refused("127.0.0.1", port).await);
        assert!(!is_refused("no-such-host.invalid", port).await);
    }
}
