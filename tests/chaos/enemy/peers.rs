//! Attacks on the peer port by calls that the node accepts from members only.

use headwater_proto::pb::internal;
use headwater_proto::pb::peer::{self, change_members_request::Change, peer_client::PeerClient};
use prost::Message;
use rand::Rng;
use rand::seq::IndexedRandom;
use tonic::transport::Channel;
use tonic::{Code, Status};

use super::attack::{Outcome, Raid};
use super::ground::{ENEMY, Facts, Identity, Port};
use crate::client::is_broken;

/// Id that no member ever had. It is so high that not even a member with an old membership takes
/// it for the id of a member that was added since.
const INVENTED: u64 = 1 << 40;
/// Added to the highest id of a member: an id that a member with an old membership may take for one
/// that was added since, and that no run gives to a member.
const AHEAD: u64 = 1000;
/// A log index far beyond the end of any log.
const FAR: u64 = u64::MAX / 4;
/// Codes that refuse a join for lack of a valid invitation (`MemberRefusal` of
/// proto/internal/peer.proto).
const UNINVITED: std::ops::RangeInclusive<i32> = 11..=13;

/// A client of one node's peer port with a claimed member id.
struct Caller {
    grpc: PeerClient<Channel>,
    facts: Facts,
    from: u64,
}

impl Caller {
    /// A caller with the certificate of `identity` and the member id `from` in its calls.
    async fn new(raid: &Raid<'_>, facts: Facts, identity: Identity, from: u64) -> Result<Self, Outcome> {
        let channel = raid.ground.grpc(raid.node, Port::Peer, identity).await.map_err(Outcome::Unclear)?;
        Ok(Self { grpc: PeerClient::new(channel), facts, from })
    }

    /// A caller that is no member. Its id is random: 0 (that of a joining node), [`INVENTED`], or
    /// one that could have been added just now.
    async fn outsider(raid: &mut Raid<'_>) -> Result<Self, Outcome> {
        let facts = facts(raid).await?;
        let highest = facts.others.iter().map(|(id, _)| *id).fold(facts.own, u64::max);
        let from = [0, INVENTED, highest + AHEAD][raid.rng.random_range(0..3)];
        Self::new(raid, facts, Identity::Stranger, from).await
    }

    /// Whether a member with an old membership could take the caller for a member.
    fn is_plausible(&self) -> bool {
        ![0, INVENTED].contains(&self.from)
    }

    /// The status code with which the node must refuse a call that only members may make, except a
    /// change of members.
    fn refusal(&self) -> Code {
        if self.is_plausible() { Code::Unavailable } else { Code::PermissionDenied }
    }

    fn request<T>(&self, message: T) -> tonic::Request<T> {
        let mut request = tonic::Request::new(message);
        let ids = [
            ("headwater-cluster", self.facts.cluster_id),
            ("headwater-from", self.from),
            ("headwater-to", self.facts.own),
        ];
        for (key, value) in ids {
            request.metadata_mut().insert(key, value.into());
        }
        request
    }
}

async fn facts(raid: &Raid<'_>) -> Result<Facts, Outcome> {
    raid.ground.facts(raid.node).await.map_err(Outcome::Unclear)
}

/// A caller with the id of another member. With TLS it shows, by chance, that member's certificate
/// (stolen), or that of a node that is no member. The bool is true in the second case, and false
/// without TLS.
async fn impostor(raid: &mut Raid<'_>) -> Result<(Caller, bool), Outcome> {
    let facts = facts(raid).await?;
    let others = facts.others.clone();
    let Some((from, index)) = others.choose(raid.rng).copied() else {
        return Err(Outcome::Unclear("there is no other member".to_owned()));
    };
    let stolen = index.filter(|_| raid.rng.random_range(0..2) == 0);
    let is_stranger = raid.ground.has_tls() && stolen.is_none();
    let identity = stolen.map_or(Identity::Stranger, Identity::Member);
    Ok((Caller::new(raid, facts, identity, from).await?, is_stranger))
}

/// The outcome of the call `what`, which must be refused with the code `wanted`. Another error, or
/// one of the connection, is unclear.
fn judge<T: std::fmt::Debug>(what: &str, answer: Result<T, Status>, wanted: Code) -> Outcome {
    match answer {
        Ok(answer) => Outcome::LetThrough(format!("{what}: {answer:?}")),
        Err(status) if !is_broken(&status) && status.code() == wanted => Outcome::Refused(words(&status)),
        Err(status) => Outcome::Unclear(format!("{what}: {}", words(&status))),
    }
}

fn words(status: &Status) -> String {
    format!("{} ({:?})", status.message(), status.code())
}

/// The first attack that was let through, else the last unclear outcome, else the last refusal.
/// Unclear for an empty list.
pub(super) fn worst(outcomes: impl IntoIterator<Item = Outcome>) -> Outcome {
    let mut last = Outcome::Unclear("nothing was tried".to_owned());
    let mut unclear = None;
    for outcome in outcomes {
        match outcome {
            Outcome::LetThrough(_) => return outcome,
            Outcome::Unclear(_) => unclear = Some(outcome),
            Outcome::Refused(_) => last = outcome,
        }
    }
    unclear.unwrap_or(last)
}

/// The value of an `Ok`. The outcome in an `Err` is returned from the function.
macro_rules! attempt {
    ($attempt:expr) => {
        match $attempt {
            Ok(value) => value,
            Err(outcome) => return outcome,
        }
    };
}

/// An encoded put of a key without the lease field, which every put in the log has: applying it
/// would stop every member.
fn put_without_a_lease() -> Vec<u8> {
    let value = Some(internal::put::Value::Set("v".into()));
    let put = internal::Put { key: "enemy".into(), value, lease: None, ..Default::default() };
    let proposal = internal::Proposal { command: Some(internal::proposal::Command::Put(put)), ..Default::default() };
    let format = 1;
    [vec![format], proposal.encode_to_vec()].concat()
}

pub(super) async fn proposal(raid: &mut Raid<'_>) -> Outcome {
    use peer::propose_result::Result as Fate;

    let (mut caller, is_stranger) = attempt!(impostor(raid).await);
    let random: Vec<u8> = std::iter::repeat_with(|| raid.rng.random()).take(16).collect();
    // The first byte names the format: 1 exists and is followed by bytes that cannot be decoded.
    let commands = [put_without_a_lease(), vec![1, 255, 255, 255], vec![9, 1, 2, 3], [vec![1, 255], random].concat()];
    let count = commands.len();
    let message = peer::ProposeRequest { commands: commands.map(Into::into).into() };
    let request = caller.request(tokio_stream::iter([message]));
    let answered = async { caller.grpc.propose(request).await?.into_inner().message().await };
    let answer = answered.await;
    if is_stranger {
        return judge("propose", answer, Code::PermissionDenied);
    }
    let results = match answer {
        Ok(Some(answer)) => answer.results,
        Ok(None) => return Outcome::Unclear("the stream ended without an answer".to_owned()),
        Err(status) => return Outcome::Unclear(words(&status)),
    };
    if results.len() != count {
        return Outcome::Unclear(format!("{} results of {count}", results.len()));
    }
    worst(results.into_iter().map(|result| match result.result {
        Some(Fate::Unreadable(why)) => Outcome::Refused(why),
        Some(fate @ (Fate::Applied(_) | Fate::Discarded(_))) => Outcome::LetThrough(format!("proposed: {fate:?}")),
        fate @ (Some(Fate::NotLeader(_) | Fate::Stopped(_)) | None) => Outcome::Unclear(format!("{fate:?}")),
    }))
}

pub(super) async fn last_term(raid: &mut Raid<'_>) -> Outcome {
    let (mut caller, is_stranger) = attempt!(impostor(raid).await);
    let wanted = if is_stranger { Code::PermissionDenied } else { Code::InvalidArgument };
    let mut outcomes = Vec::new();
    for pre_vote in [false, true] {
        let vote = Some(peer::Vote { term: u64::MAX, node_id: caller.from, committed: false });
        let last = Some(peer::LogId { term: 1, index: INVENTED });
        let request = caller.request(peer::VoteRequest { vote, last, leadership_transfer: true, pre_vote });
        outcomes.push(judge("vote", caller.grpc.vote(request).await, wanted));
    }
    worst(outcomes)
}

pub(super) async fn far_commit(raid: &mut Raid<'_>) -> Outcome {
    let facts = attempt!(facts(raid).await);
    let mut caller = attempt!(Caller::new(raid, facts, Identity::Stranger, INVENTED).await);
    let message = peer::AppendRequest {
        vote: Some(peer::Vote { term: 1 << 20, node_id: INVENTED, committed: true }),
        leader_commit: Some(peer::LogId { term: 1, index: FAR }),
        ..peer::AppendRequest::default()
    };
    let request = caller.request(message.clone());
    let once = judge("append", caller.grpc.append(request).await, Code::PermissionDenied);
    let request = caller.request(tokio_stream::iter([message]));
    let streamed = async { caller.grpc.append_stream(request).await?.into_inner().message().await };
    let streamed = streamed.await;
    worst([once, judge("append on a stream", streamed, Code::PermissionDenied)])
}

pub(super) async fn outsider_change(raid: &mut Raid<'_>) -> Outcome {
    let mut caller = attempt!(Caller::outsider(raid).await);
    let Some((victim, _)) = caller.facts.others.first().copied() else {
        return Outcome::Unclear("there is no other member".to_owned());
    };
    let nowhere = || "http://127.0.0.1:9".to_owned();
    let mut outcomes = Vec::new();
    for change in [
        Change::Remove(victim),
        Change::Promote(victim),
        Change::Add(peer::AddMember { peer_url: nowhere(), learner: true }),
        Change::Update(peer::UpdateMember { id: victim, peer_url: nowhere() }),
    ] {
        let request = caller.request(peer::ChangeMembersRequest { timeout_ms: 5000, change: Some(change) });
        // This code says that the change was certainly not made, and that the member may retry.
        let refusal = if caller.is_plausible() { Code::FailedPrecondition } else { Code::PermissionDenied };
        outcomes.push(judge("change", caller.grpc.change_members(request).await, refusal));
    }
    worst(outcomes)
}

pub(super) async fn outsider_call(raid: &mut Raid<'_>) -> Outcome {
    let mut caller = attempt!(Caller::outsider(raid).await);
    let denied = caller.refusal();
    let request = caller.request(peer::ReadIndexRequest {});
    let mut outcomes = vec![judge("read index", caller.grpc.read_index(request).await, denied)];
    let request = caller.request(peer::AskRequest { questions: vec![] });
    outcomes.push(judge("ask", caller.grpc.ask(request).await, denied));
    let request = caller.request(tokio_stream::iter([peer::ProposeRequest { commands: vec![] }]));
    outcomes.push(judge("propose", caller.grpc.propose(request).await.map(drop), denied));
    if caller.is_plausible() {
        // While it has no leader, a member accepts a leader or candidate that it does not know yet.
        return worst(outcomes);
    }
    let request = caller.request(tokio_stream::iter([peer::SnapshotMessage { message: None }]));
    outcomes.push(judge("snapshot", caller.grpc.snapshot(request).await.map(drop), denied));
    let vote = Some(peer::Vote { term: 2, node_id: caller.from, committed: false });
    let request = caller.request(peer::VoteRequest { vote, ..peer::VoteRequest::default() });
    outcomes.push(judge("vote", caller.grpc.vote(request).await, denied));
    worst(outcomes)
}

pub(super) async fn join(raid: &mut Raid<'_>) -> Outcome {
    use peer::change_members_response::Result as Answer;

    let facts = attempt!(facts(raid).await);
    if facts.has_enemy {
        return Outcome::LetThrough("join: the enemy is in the list of members".to_owned());
    }
    let mut caller = attempt!(Caller::new(raid, facts, Identity::Stranger, 0).await);
    let joining = peer::JoiningNode {
        incarnation: raid.rng.random(),
        name: ENEMY.to_owned(),
        peer_url: "http://127.0.0.1:9".to_owned(),
        client_url: "http://127.0.0.1:9".to_owned(),
        learner: raid.rng.random(),
        lowest_version: 1,
        highest_version: 255,
        ..peer::JoiningNode::default()
    };
    let change = Some(Change::Join(joining));
    let request = caller.request(peer::ChangeMembersRequest { timeout_ms: 5000, change });
    let answer = caller.grpc.change_members(request).await;
    match answer.map(|answer| answer.into_inner().result) {
        Ok(Some(Answer::Refused(why))) if UNINVITED.contains(&why) => {
            Outcome::Refused("it needs an invitation".to_owned())
        }
        // The next attack shows by the list of members whether such a join has succeeded.
        Ok(Some(answer @ (Answer::Refused(_) | Answer::NotLeader(_) | Answer::Interrupted(_)))) => {
            Outcome::Unclear(format!("{answer:?}"))
        }
        other => judge("join", other, Code::PermissionDenied),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_attempt_that_is_let_through_decides() {
        let [refused, through, unclear]: [Outcome; 3] = [Outcome::Refused, Outcome::LetThrough, Outcome::Unclear]
            .map(|make: fn(String) -> Outcome| make("x".to_owned()));
        for (outcomes, wanted) in [
            (vec![refused.clone(), through.clone(), unclear.clone()], &through),
            (vec![unclear.clone(), refused.clone()], &unclear),
            (vec![refused.clone(), refused.clone()], &refused),
        ] {
            assert_eq!(worst(outcomes.clone()), *wanted, "{outcomes:?}");
        }
        assert!(matches!(worst([]), Outcome::Unclear(_)));
    }

    #[test]
    fn no_other_refusal_will_do() {
        let denied = || Status::permission_denied("no");
        assert!(matches!(judge("a call", Ok(()), Code::PermissionDenied), Outcome::LetThrough(_)));
        assert!(matches!(judge::<()>("a call", Err(denied()), Code::PermissionDenied), Outcome::Refused(_)));
        assert!(matches!(judge::<()>("a call", Err(denied()), Code::InvalidArgument), Outcome::Unclear(_)));
    }

    #[test]
    fn the_put_is_one_that_no_member_can_apply() {
        let decoded =
            headwater_proto::codec::decode_proposal(put_without_a_lease().into(), headwater_types::Supported::RELEASE);
        assert!(decoded.unwrap_err().to_string().contains("lease is missing"));
    }
}
