//! Hostile messages at the peer port: they are refused, and every member still works and can
//! restart.

use headwater::pb::etcdserverpb as pb;
use headwater::pb::headwater::peer::{self, peer_client::PeerClient};
use tonic::Code;
use tonic::transport::Channel;

use crate::cluster::{Cluster, get_local, put, wait_until};

/// A client of one member's peer port (`to`) that claims to be the member `from`.
struct Caller {
    grpc: PeerClient<Channel>,
    cluster_id: u64,
    from: u64,
    to: u64,
}

impl Caller {
    async fn of(cluster: &Cluster, to: usize, from: u64) -> Self {
        let list = pb::MemberListRequest { linearizable: false };
        let header = cluster.members(to).member_list(list).await.unwrap().into_inner().header.unwrap();
        let grpc = PeerClient::connect(cluster.peer_url(to)).await.unwrap();
        Self { grpc, cluster_id: header.cluster_id, from, to: cluster.id(to) }
    }

    fn request<T>(&self, message: T) -> tonic::Request<T> {
        let mut request = tonic::Request::new(message);
        for (key, value) in
            [("headwater-cluster", self.cluster_id), ("headwater-from", self.from), ("headwater-to", self.to)]
        {
            request.metadata_mut().insert(key, value.into());
        }
        request
    }

    async fn vote(&mut self, message: peer::VoteRequest) -> Result<peer::VoteResponse, tonic::Status> {
        let request = self.request(message);
        self.grpc.vote(request).await.map(tonic::Response::into_inner)
    }

    async fn append(&mut self, message: peer::AppendRequest) -> Result<peer::AppendResponse, tonic::Status> {
        let request = self.request(message);
        self.grpc.append(request).await.map(tonic::Response::into_inner)
    }

    /// Sends an append on a stream; returns the status of the first answer.
    async fn append_on_a_stream(&mut self, message: peer::AppendRequest) -> Result<(), tonic::Status> {
        let request = self.request(tokio_stream::iter([message]));
        let mut answers = self.grpc.append_stream(request).await?.into_inner();
        answers.message().await.map(drop)
    }
}

async fn term(cluster: &Cluster, member: usize) -> u64 {
    cluster.maintenance(member).status(pb::StatusRequest {}).await.unwrap().into_inner().raft_term
}

/// Asserts that the cluster works: writes through every member, reads the last write from each
/// member's own state, and restarts the members one after the other.
async fn goes_on(cluster: &mut Cluster, key: &str) {
    for writer in 0..3 {
        cluster.kv(writer).put(put(format!("{key}-{writer}"), "v")).await.unwrap();
    }
    let everywhere = async || {
        let mut found = 0;
        for reader in 0..3 {
            found += cluster.kv(reader).range(get_local(format!("{key}-2"))).await.unwrap().into_inner().kvs.len();
        }
        found == 3
    };
    wait_until("every member applies the writes", everywhere).await;
    for member in 0..3 {
        cluster.crash(member).await;
        cluster.restart(member).await;
        cluster.wait_healthy().await;
    }
    cluster.kv(0).put(put(format!("{key}-again"), "v")).await.unwrap();
}

/// The highest id of the three members plus 1: the id of the next new member, if no member was
/// added or replaced before.
fn never_given(cluster: &Cluster) -> u64 {
    1 + (0..3).map(|member| cluster.id(member)).max().expect("three members")
}

fn vote(term: u64, node_id: u64, committed: bool) -> Option<peer::Vote> {
    Some(peer::Vote { term, node_id, committed })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vote_that_no_member_can_ask_for_is_refused() {
    let mut cluster = Cluster::three().await;
    let leader = cluster.leader().await;
    let before = term(&cluster, leader).await;
    for to in 0..3 {
        let from = cluster.id((to + 1) % 3);
        let mut caller = Caller::of(&cluster, to, from).await;
        let last = Some(peer::LogId { term: 1, index: 1 << 40 });
        for pre_vote in [false, true] {
            for (vote, last) in [
                (vote(u64::MAX, from, false), last),
                (vote(before + (1 << 33), from, false), last),
                (vote(before + 1, cluster.id(to), false), last),
                (vote(before + 1, from, true), last),
                (vote(before + 1, from, false), Some(peer::LogId { term: u64::MAX, index: u64::MAX })),
                (None, last),
            ] {
                let request = peer::VoteRequest { vote, last, leadership_transfer: true, pre_vote };
                let refusal = caller.vote(request).await.unwrap_err();
                assert_eq!(refusal.code(), Code::InvalidArgument, "{vote:?} {last:?}: {refusal}");
            }
        }
    }
    // A member in contact with its leader knows all members, so it refuses an unknown id.
    let newer = never_given(&cluster);
    for to in 0..3 {
        let mut caller = Caller::of(&cluster, to, newer).await;
        for pre_vote in [false, true] {
            let vote = vote(before + 1, newer, false);
            let request = peer::VoteRequest { vote, last: None, leadership_transfer: true, pre_vote };
            let refusal = caller.vote(request).await.unwrap_err();
            assert_eq!(refusal.code(), Code::Unavailable, "{refusal}");
            assert!(refusal.message().contains("has announced no member"), "{refusal}");
        }
    }
    assert_eq!(term(&cluster, cluster.leader().await).await, before, "nobody was deposed");
    goes_on(&mut cluster, "k").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_append_that_no_leader_can_send_is_refused() {
    let mut cluster = Cluster::three().await;
    let (leader, follower) = (cluster.leader().await, cluster.follower().await);
    let other = (0..3).find(|member| *member != leader && *member != follower).expect("three members");
    let now = term(&cluster, leader).await;
    let (leader, other) = (cluster.id(leader), cluster.id(other));
    let far = Some(peer::LogId { term: now, index: u64::MAX / 4 });
    let entry = |index, payload: &'static [u8]| peer::Entry {
        log_id: Some(peer::LogId { term: now, index }),
        kind: peer::entry::Kind::Normal as i32,
        payload: payload.into(),
    };
    let append =
        |vote, prev, entries, leader_commit| peer::AppendRequest { vote, prev, entries, leader_commit, blocked: false };
    let of_leader = vote(now, leader, true);
    let newer = never_given(&cluster);
    for (from, what, request, code) in [
        (newer, "an id that is next", append(vote(now + 1, newer, true), None, vec![], far), Code::Unavailable),
        (1 << 40, "a stranger", append(vote(now + 1, 1 << 40, true), None, vec![], far), Code::PermissionDenied),
        (
            cluster.id(follower),
            "itself",
            append(vote(now, cluster.id(follower), true), None, vec![], far),
            Code::PermissionDenied,
        ),
        (other, "another member with the leader's vote", append(of_leader, None, vec![], far), Code::InvalidArgument),
        (leader, "a term far ahead", append(vote(u64::MAX, leader, true), None, vec![], far), Code::InvalidArgument),
        (leader, "no election", append(vote(now, leader, false), None, vec![], far), Code::InvalidArgument),
        (
            leader,
            "the last index",
            append(of_leader, Some(peer::LogId { term: now, index: u64::MAX }), vec![entry(0, b"")], far),
            Code::InvalidArgument,
        ),
        (
            leader,
            "a gap",
            append(of_leader, Some(peer::LogId { term: now, index: 7 }), vec![entry(9, b"")], None),
            Code::InvalidArgument,
        ),
        (
            leader,
            "a commit of a later term",
            append(of_leader, None, vec![], Some(peer::LogId { term: now + 1, index: 1 })),
            Code::InvalidArgument,
        ),
    ] {
        let mut caller = Caller::of(&cluster, follower, from).await;
        let refusal = caller.append(request.clone()).await.expect_err(what);
        assert_eq!(refusal.code(), code, "{what}: {refusal}");
        let refusal = caller.append_on_a_stream(request).await.expect_err(what);
        assert_eq!(refusal.code(), code, "{what}, on a stream: {refusal}");
    }
    // A commit index from the leader's id, for entries that were not in an append.
    let mut caller = Caller::of(&cluster, follower, leader).await;
    caller.append(append(of_leader, None, vec![], far)).await.unwrap();
    goes_on(&mut cluster, "k").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_members_make_calls_of_members() {
    use peer::change_members_request::Change;

    let mut cluster = Cluster::three().await;
    let joined = cluster.join(true).await;
    let former = cluster.id(joined);
    let remove = pb::MemberRemoveRequest { id: former };
    cluster.members(0).member_remove(remove).await.unwrap();
    cluster.stop(joined).await;
    let leader = cluster.leader().await;
    let victim = cluster.id((leader + 1) % 3);
    let denied = Code::PermissionDenied;
    for (from, what, code) in [
        (0, "a node that is no member", denied),
        (1 << 40, "an invented member", denied),
        (former, "a former member", denied),
        (former + 1, "an id that is next", Code::Unavailable),
    ] {
        let mut caller = Caller::of(&cluster, leader, from).await;
        for change in [
            Change::Remove(victim),
            Change::Promote(victim),
            Change::Add(peer::AddMember { peer_url: "http://127.0.0.1:9".into(), learner: true }),
            Change::Update(peer::UpdateMember { id: victim, peer_url: "http://127.0.0.1:9".into() }),
        ] {
            let message = peer::ChangeMembersRequest { timeout_ms: 5000, change: Some(change) };
            let request = caller.request(message);
            let refusal = caller.grpc.change_members(request).await.unwrap_err();
            // `FailedPrecondition` says that the change was certainly not made, so that the sender
            // retries.
            let code = if code == Code::Unavailable { Code::FailedPrecondition } else { code };
            assert_eq!(refusal.code(), code, "{what}: {refusal}");
            assert!(refusal.message().contains("--join"), "{what}: {refusal}");
        }
        let request = caller.request(peer::ReadIndexRequest {});
        assert_eq!(caller.grpc.read_index(request).await.unwrap_err().code(), code, "{what}");
        let request = caller.request(peer::AskRequest { questions: vec![] });
        assert_eq!(caller.grpc.ask(request).await.unwrap_err().code(), code, "{what}");
        let request = caller.request(tokio_stream::iter([peer::ProposeRequest { commands: vec![] }]));
        assert_eq!(caller.grpc.propose(request).await.unwrap_err().code(), code, "{what}");
        let request = caller.request(tokio_stream::iter([peer::SnapshotMessage { message: None }]));
        assert_eq!(caller.grpc.snapshot(request).await.unwrap_err().code(), code, "{what}");
        let ended = peer::LeaderEndedRequest { leader: vote(1, cluster.id(leader), true) };
        let request = caller.request(ended);
        assert_eq!(caller.grpc.leader_ended(request).await.unwrap_err().code(), code, "{what}");
    }
    // The description of a joining node has bounded fields.
    let node = || peer::JoiningNode {
        incarnation: 7,
        name: "n".into(),
        peer_url: "http://127.0.0.1:9".into(),
        client_url: "http://127.0.0.1:8".into(),
        ..Default::default()
    };
    for (what, node) in [
        ("no number", peer::JoiningNode { incarnation: 0, ..node() }),
        ("no name", peer::JoiningNode { name: String::new(), ..node() }),
        ("a long name", peer::JoiningNode { name: "n".repeat(257), ..node() }),
        ("a long URL", peer::JoiningNode { client_url: "u".repeat(1025), ..node() }),
        ("no URL", peer::JoiningNode { peer_url: String::new(), ..node() }),
        ("a long token", peer::JoiningNode { token: Some("t".repeat(100)), ..node() }),
    ] {
        let mut caller = Caller::of(&cluster, leader, 0).await;
        let change = Some(Change::Join(node));
        let request = caller.request(peer::ChangeMembersRequest { timeout_ms: 5000, change });
        let refusal = caller.grpc.change_members(request).await.unwrap_err();
        assert_eq!(refusal.code(), Code::InvalidArgument, "{what}: {refusal}");
    }
    // A follower hands over no leadership.
    let follower = cluster.follower().await;
    let now = term(&cluster, leader).await;
    let mut caller = Caller::of(&cluster, leader, cluster.id(follower)).await;
    let message =
        peer::TransferLeaderRequest { from: vote(now, cluster.id(leader), true), to: cluster.id(follower), last: None };
    let request = caller.request(message);
    assert_eq!(caller.grpc.transfer_leader(request).await.unwrap_err().code(), Code::InvalidArgument);
    goes_on(&mut cluster, "k").await;
}
