//! Nodes become members by invitation: each token admits its number of nodes, also if joins are
//! repeated or interrupted, and no other node joins.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use headwater::node::{NodeError, RequestContext};
use headwater::pb::etcdserverpb as pb;
use headwater::pb::etcdserverpb::lease_client::LeaseClient;
use headwater::pb::headwater_v1 as v1;
use headwater::pb::headwater_v1::invitations_client::InvitationsClient;
use headwater::server::{JoinOptions, join};
use headwater::storage::data_dir::DataDir;
use headwater::types::{
    Command, Feature, InvitationCommand, InvitationRefusal, Outcome, Refusal, Supported, TokenHash, Version,
};
use http::Method;
use sha2::{Digest, Sha256};
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

use crate::auth::{by, enable_auth};
use crate::cluster::{Cluster, Settings, put, wait_until, within};
use crate::consul_http::ask;

/// A cluster that new nodes can join only by invitation. Waits until its version supports
/// invitations.
async fn cluster_of(members: usize, tls: bool) -> Cluster {
    let cluster = Cluster::start(Settings { members, invited_only: true, tls, ..Settings::default() }).await;
    wait_for_invitations(&cluster).await;
    cluster
}

async fn wait_for_invitations(cluster: &Cluster) {
    wait_until("the cluster has invitations", async || {
        cluster.running().all(|member| Feature::Invitations.is_in(cluster.node(member).versions().cluster().version))
    })
    .await;
}

fn client(cluster: &Cluster, member: usize) -> InvitationsClient<Channel> {
    InvitationsClient::new(cluster.channel(member))
}

fn hour(uses: Option<u32>) -> v1::CreateInvitationRequest {
    v1::CreateInvitationRequest { name: "test".into(), ttl_seconds: 3600, uses, learner: false }
}

async fn invite(
    cluster: &Cluster,
    member: usize,
    request: v1::CreateInvitationRequest,
) -> Result<v1::CreateInvitationResponse, Status> {
    client(cluster, member).create_invitation(request).await.map(tonic::Response::into_inner)
}

async fn invitations(cluster: &Cluster, member: usize) -> Vec<v1::Invitation> {
    let request = v1::ListInvitationsRequest { linearizable: true };
    client(cluster, member).list_invitations(request).await.unwrap().into_inner().invitations
}

/// Options with which `node` joins. It shows `token`; if that is empty, it shows none.
fn options(cluster: &Cluster, node: usize, token: &str) -> JoinOptions {
    let token_file = (!token.is_empty()).then(|| token_file(cluster, node, token));
    JoinOptions { token_file, ..cluster.join_options(node, false) }
}

fn token_file(cluster: &Cluster, node: usize, token: &str) -> PathBuf {
    let path = cluster.data_dir(node).with_extension("token");
    std::fs::write(&path, token).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    path
}

/// Joins; returns the id that the node gets, or the text of the refusal.
async fn try_join(options: JoinOptions) -> Result<u64, String> {
    let joined = within("an answer to a node", join(options)).await;
    joined.map(|owner| owner.node_id.get()).map_err(|error| error.to_string())
}

async fn members(cluster: &Cluster) -> Vec<pb::Member> {
    let request = pb::MemberListRequest { linearizable: true };
    cluster.members(0).member_list(request).await.unwrap().into_inner().members
}

async fn metrics(cluster: &Cluster, member: usize) -> String {
    ask(cluster, member, Method::GET, "/metrics", "").await.text
}

fn hash(token: &str) -> TokenHash {
    TokenHash(Sha256::digest(token.as_bytes()).into())
}

const WRONG: &str = "hwj-0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

#[tokio::test(flavor = "multi_thread")]
async fn only_announced_and_invited_nodes_join() {
    let mut cluster = cluster_of(1, false).await;
    let node = cluster.new_node(false).await;
    let uninvited = try_join(options(&cluster, node, "")).await.unwrap_err();
    assert!(
        uninvited.contains("headwater member invite")
            && uninvited.contains("--join-token-file")
            && uninvited.contains("headwater member add"),
        "{uninvited}"
    );
    let before = cluster.node(0).consensus().progress().points().last;
    let wrong = try_join(options(&cluster, node, WRONG)).await.unwrap_err();
    assert!(wrong.contains("not that of an invitation") && !wrong.contains(&WRONG[4..]), "{wrong}");
    assert_eq!(cluster.node(0).consensus().progress().points().last, before, "an outsider adds nothing to the log");
    assert_eq!(members(&cluster).await.len(), 1, "nothing changed");
    let shown = metrics(&cluster, 0).await;
    for line in ["headwater_joins_total{result=\"uninvited\"} 1", "headwater_joins_total{result=\"unknown-token\"} 1"] {
        assert!(shown.contains(line), "{line}");
    }

    let made = invite(&cluster, 0, hour(Some(1))).await.unwrap();
    let id = try_join(options(&cluster, node, &made.token)).await.unwrap();
    assert_eq!(id, 2);
    cluster.restart(node).await;
    cluster.wait_healthy().await;
    let list = invitations(&cluster, node).await;
    assert_eq!((list[0].id, list[0].used, list[0].uses), (made.id, 1, Some(1)));
    let used_by: Vec<_> = list[0].used_by.iter().map(|one| (one.node.as_str(), one.joined)).collect();
    assert_eq!(used_by, [("node2", true)]);

    let other = cluster.new_node(false).await;
    let used = try_join(options(&cluster, other, &made.token)).await.unwrap_err();
    assert!(used.contains("used by another node"), "{used}");
    // The same node, wiped, is another one.
    let announced = pb::MemberAddRequest { peer_ur_ls: vec![cluster.peer_url(other)], is_learner: false };
    let announced = cluster.members(node).member_add(announced).await.unwrap().into_inner().member.unwrap();
    assert_eq!(try_join(options(&cluster, other, "")).await, Ok(announced.id), "announced: it needs no token");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invitation_lets_in_as_many_nodes_as_it_says_for_as_long_as_it_says() {
    let mut cluster = cluster_of(1, false).await;
    let reusable = invite(&cluster, 0, v1::CreateInvitationRequest { learner: true, ..hour(None) }).await.unwrap();
    let short = invite(&cluster, 0, v1::CreateInvitationRequest { ttl_seconds: 1, ..hour(None) }).await.unwrap();
    let withdrawn = invite(&cluster, 0, hour(Some(3))).await.unwrap();
    client(&cluster, 0).delete_invitation(v1::DeleteInvitationRequest { id: withdrawn.id }).await.unwrap();
    let again = client(&cluster, 0).delete_invitation(v1::DeleteInvitationRequest { id: withdrawn.id }).await;
    assert_eq!(again.unwrap_err().code(), Code::NotFound);
    for _ in 0..2 {
        let node = cluster.new_node(false).await;
        let id = try_join(options(&cluster, node, &reusable.token)).await.unwrap();
        let member = members(&cluster).await.into_iter().find(|member| member.id == id).unwrap();
        assert!(member.is_learner, "as the invitation says, though the node wants a vote");
        cluster.restart(node).await;
    }
    let list = invitations(&cluster, 0).await;
    let reusable_now = list.iter().find(|one| one.id == reusable.id).unwrap();
    assert_eq!((reusable_now.used, reusable_now.uses), (2, None));

    let node = cluster.new_node(false).await;
    wait_until("the short one has expired", async || {
        !invitations(&cluster, 0).await.iter().any(|one| one.id == short.id)
    })
    .await;
    for token in [&short.token, &withdrawn.token] {
        let refused = try_join(options(&cluster, node, token)).await.unwrap_err();
        assert!(refused.contains("has expired or was withdrawn"), "{refused}");
    }
    for request in [
        v1::CreateInvitationRequest { ttl_seconds: 0, ..hour(None) },
        v1::CreateInvitationRequest { ttl_seconds: 31 * 24 * 3600, ..hour(None) },
        hour(Some(0)),
        hour(Some(65)),
    ] {
        assert_eq!(
            invite(&cluster, 0, request.clone()).await.unwrap_err().code(),
            Code::InvalidArgument,
            "{request:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_nodes_with_one_token_exactly_one_joins() {
    let mut cluster = cluster_of(3, false).await;
    for round in 0..3 {
        let made = invite(&cluster, round % 3, hour(Some(1))).await.unwrap();
        let nodes = [cluster.new_node(false).await, cluster.new_node(false).await];
        // Through different members; both reach the leader.
        let joining = nodes.map(|node| {
            let mut options = options(&cluster, node, &made.token);
            options.endpoints.rotate_left(node % 3);
            try_join(options)
        });
        let results = futures::future::join_all(joining).await;
        let joined = results.iter().filter(|result| result.is_ok()).count();
        assert_eq!(joined, 1, "{results:?}");
        let refused = results.iter().find_map(|result| result.as_ref().err()).unwrap();
        assert!(refused.contains("used by another node"), "{refused}");
        // The node that joined repeats its request, as if the answer had been lost, and gets the
        // same id.
        let winner = results.iter().position(Result::is_ok).unwrap();
        let again = try_join(options(&cluster, nodes[winner], &made.token)).await;
        assert_eq!(again, results[winner]);
        let used = invitations(&cluster, 0).await.into_iter().find(|one| one.id == made.id).unwrap();
        assert_eq!((used.used, used.used_by.len()), (1, 1));
        let id = *results[winner].as_ref().unwrap();
        cluster.members(0).member_remove(pb::MemberRemoveRequest { id }).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_join_that_lost_its_leader_after_the_use_goes_on_and_counts_once() {
    let mut cluster = cluster_of(3, false).await;
    let made = invite(&cluster, 0, hour(Some(1))).await.unwrap();
    let node = cluster.new_node(false).await;
    let other = cluster.new_node(false).await;
    // The leader has put the use into the log, and dies before it changes the membership.
    let incarnation = DataDir::incarnation(&cluster.data_dir(node)).unwrap();
    let name = format!("node{}", node + 1);
    let used = InvitationCommand::Use { hash: hash(&made.token), incarnation, node: name };
    let leader = cluster.leader().await;
    let ctx = RequestContext::within(Duration::from_secs(20));
    let applied = cluster.node(leader).propose(&ctx, Command::Invitation(used)).await.unwrap();
    assert!(matches!(applied.outcome, Outcome::Invitation(_)), "{applied:?}");
    cluster.crash(leader).await;

    let refused = try_join(options(&cluster, other, &made.token)).await.unwrap_err();
    assert!(refused.contains("used by another node"), "{refused}");
    let id = try_join(options(&cluster, node, &made.token)).await.unwrap();
    let asked = cluster.running().next().unwrap();
    let list = invitations(&cluster, asked).await;
    assert_eq!((list[0].used, list[0].used_by.len(), list[0].used_by[0].joined), (1, 1, true));
    // A node that was a member and is none any more has spent its use.
    cluster.restart(leader).await;
    cluster.wait_healthy().await;
    cluster.members(asked).member_remove(pb::MemberRemoveRequest { id }).await.unwrap();
    let spent = try_join(options(&cluster, node, &made.token)).await.unwrap_err();
    assert!(spent.contains("used by another node"), "{spent}");
}

#[tokio::test(flavor = "multi_thread")]
async fn invitations_are_replicated_and_hold_no_token() {
    let mut cluster = cluster_of(3, false).await;
    let made = invite(&cluster, 1, hour(Some(2))).await.unwrap();
    let list = invitations(&cluster, 2).await;
    assert_eq!((list[0].id, list[0].name.as_str(), list[0].used), (made.id, "test", 0));
    assert!(!format!("{list:?}").contains(&made.token[4..]));
    cluster.stop(0).await;
    cluster.restart(0).await;
    cluster.wait_healthy().await;
    assert_eq!(invitations(&cluster, 0).await, list, "from disk");
    let hashes = cluster.hashes().await;
    assert!(hashes.windows(2).all(|pair| pair[0] == pair[1]), "{hashes:?}");
    for member in 0..3 {
        cluster.stop(member).await;
        assert!(!holds(&cluster.data_dir(member), &made.token.as_bytes()[4..]), "the token is on a disk");
    }
}

/// Whether any file below `dir` contains these bytes.
fn holds(dir: &std::path::Path, wanted: &[u8]) -> bool {
    std::fs::read_dir(dir).unwrap().any(|entry| {
        let path = entry.unwrap().path();
        if path.is_dir() {
            return holds(&path, wanted);
        }
        match std::fs::read(&path) {
            Ok(bytes) => bytes.windows(wanted.len()).any(|window| window == wanted),
            // A database that closes removes files that it needs no more.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => false,
            Err(error) => panic!("{}: {error}", path.display()),
        }
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_shown_by_tls_too() {
    let mut cluster = cluster_of(1, true).await;
    let node = cluster.new_node(false).await;
    let uninvited = try_join(options(&cluster, node, "")).await.unwrap_err();
    assert!(uninvited.contains("headwater member invite"), "a certificate alone is no invitation: {uninvited}");
    let made = invite(&cluster, 0, hour(Some(1))).await.unwrap();
    assert_eq!(try_join(options(&cluster, node, &made.token)).await, Ok(2));
}

/// The versions of a program that has no invitations.
const OLD: Supported = Supported { lowest: Version::V0_3, highest: Version::V0_3 };

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_of_the_version_before_is_joined_as_before() {
    let settings = Settings { members: 1, invited_only: true, ..Settings::default() };
    let mut cluster = Cluster::start(settings).await;
    wait_for_invitations(&cluster).await;
    let downgrade = pb::DowngradeRequest {
        action: pb::downgrade_request::DowngradeAction::Enable.into(),
        version: Version::V0_3.to_string(),
    };
    let made = invite(&cluster, 0, hour(None)).await.unwrap();
    cluster.maintenance(0).downgrade(downgrade).await.unwrap();
    let node = cluster.new_node(false).await;
    cluster.supported.insert(node, OLD);
    assert_eq!(try_join(options(&cluster, node, "")).await, Ok(2), "no version, no invitations");
    assert_eq!(invitations(&cluster, 0).await, [], "they went with the version");
    let refused = invite(&cluster, 0, hour(None)).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().contains("needs cluster version 0.4"), "{refused}");
    cluster.restart(node).await;
    cluster.wait_healthy().await;
    cluster.kv(node).put(put("k", "v")).await.unwrap();

    // Back: the program of this version, on all members.
    cluster.stop(node).await;
    cluster.supported.remove(&node);
    cluster.restart(node).await;
    let cancel =
        pb::DowngradeRequest { action: pb::downgrade_request::DowngradeAction::Cancel.into(), version: String::new() };
    cluster.maintenance(0).downgrade(cancel).await.unwrap();
    wait_for_invitations(&cluster).await;
    let other = cluster.new_node(false).await;
    let refused = try_join(options(&cluster, other, &made.token)).await.unwrap_err();
    assert!(refused.contains("not that of an invitation"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_use_of_no_invitation_is_refused_by_apply_too() {
    let cluster = cluster_of(1, false).await;
    let used = InvitationCommand::Use { hash: hash(WRONG), incarnation: 1, node: "n".into() };
    let ctx = RequestContext::within(Duration::from_secs(20));
    let refused = cluster.node(0).propose(&ctx, Command::Invitation(used)).await.unwrap_err();
    assert_eq!(refused, NodeError::Refused(Refusal::Invitation(InvitationRefusal::NotFound)));
}

/// Number of members in the list that a request with this metadata gets, or the code of the
/// refusal. An empty `value` means no metadata.
async fn listed(cluster: &Cluster, name: &'static str, value: &str) -> Result<usize, Code> {
    let mut request = Request::new(pb::MemberListRequest { linearizable: false });
    if !value.is_empty() {
        request.metadata_mut().insert(name, value.parse().unwrap());
    }
    let answer = cluster.members(0).member_list(request).await;
    answer.map(|answer| answer.into_inner().members.len()).map_err(|status| status.code())
}

#[tokio::test(flavor = "multi_thread")]
async fn invitations_are_for_those_who_may_change_the_cluster_once_requests_are_judged() {
    let cluster = cluster_of(3, false).await;
    let made = invite(&cluster, 0, hour(None)).await.unwrap();
    let (root, user) = enable_auth(&cluster).await;
    let mut client = client(&cluster, 0);
    for (token, wanted) in [
        ("", Some(Code::Unauthenticated)),
        (made.token.as_str(), Some(Code::Unauthenticated)),
        (user.as_str(), Some(Code::PermissionDenied)),
        (root.as_str(), None),
    ] {
        let create = client.create_invitation(by(token, hour(Some(1)))).await;
        let list = client.list_invitations(by(token, v1::ListInvitationsRequest { linearizable: true })).await;
        let id = create.as_ref().map_or(made.id, |done| done.get_ref().id);
        let delete = client.delete_invitation(by(token, v1::DeleteInvitationRequest { id })).await;
        let codes = [create.err(), list.err(), delete.err()].map(|error| error.map(|status| status.code()));
        assert_eq!(codes, [wanted; 3]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn announced_and_invited_nodes_join_while_requests_are_judged() {
    let mut cluster = cluster_of(3, false).await;
    let made = invite(&cluster, 0, hour(Some(1))).await.unwrap();
    let withdrawn = invite(&cluster, 0, hour(Some(1))).await.unwrap();
    let (root, _) = enable_auth(&cluster).await;
    let withdraw = v1::DeleteInvitationRequest { id: withdrawn.id };
    client(&cluster, 0).delete_invitation(by(&root, withdraw)).await.unwrap();
    let (invited, announced) = (cluster.new_node(false).await, cluster.new_node(false).await);
    let url = cluster.peer_url(announced);

    // Only these two nodes get the list of members, and they get nothing else.
    assert_eq!(listed(&cluster, "token", "").await, Err(Code::InvalidArgument));
    for token in [WRONG, &withdrawn.token] {
        assert_eq!(listed(&cluster, "token", token).await, Err(Code::Unauthenticated));
    }
    assert_eq!(listed(&cluster, "headwater-peer-url", &url).await, Err(Code::InvalidArgument));
    assert_eq!(listed(&cluster, "token", &made.token).await, Ok(3));
    let range = pb::RangeRequest { key: "u/a".into(), ..Default::default() };
    let grant = pb::LeaseGrantRequest { ttl: 60, id: 0 };
    let read = cluster.kv(0).range(by(&made.token, range)).await;
    assert_eq!(read.unwrap_err().code(), Code::Unauthenticated);
    let granted = LeaseClient::new(cluster.channel(0)).lease_grant(by(&made.token, grant)).await;
    assert_eq!(granted.unwrap_err().code(), Code::Unauthenticated);

    let joined = try_join(options(&cluster, invited, &made.token)).await.unwrap();
    let add = pb::MemberAddRequest { peer_ur_ls: vec![url.clone()], is_learner: true };
    let refused = cluster.members(0).member_add(add.clone()).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
    let added = cluster.members(0).member_add(by(&root, add)).await.unwrap().into_inner().member.unwrap();
    assert_eq!(listed(&cluster, "headwater-peer-url", &url).await, Ok(5));
    assert_eq!(try_join(options(&cluster, announced, "")).await, Ok(added.id));
    wait_until("the URL of a member that has joined opens nothing", async || {
        listed(&cluster, "headwater-peer-url", &url).await == Err(Code::InvalidArgument)
    })
    .await;
    let list = cluster.members(0).member_list(by(&root, pb::MemberListRequest { linearizable: true })).await;
    let ids: Vec<u64> = list.unwrap().into_inner().members.into_iter().map(|member| member.id).collect();
    assert!(ids.contains(&joined) && ids.contains(&added.id), "{ids:?}");
}
