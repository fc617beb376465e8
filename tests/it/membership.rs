//! Changes of the membership: joining, promoting, removing and replacing members, and refusals
//! (spec: etcd §4.1).

use std::time::{Duration, Instant};

use headwater::pb::etcdserverpb as pb;
use headwater::raft::MembershipStep;
use headwater::server::join;
use headwater::types::NodeId;
use tonic::{Code, Status};

use crate::cluster::{Cluster, Settings, get, get_local, put, wait_until, within};
use crate::watch::client::{Stream, prefix};

async fn list(cluster: &Cluster, index: usize) -> Vec<pb::Member> {
    let request = pb::MemberListRequest { linearizable: true };
    cluster.members(index).member_list(request).await.unwrap().into_inner().members
}

/// Id of each member; true for learners.
async fn roles(cluster: &Cluster, index: usize) -> Vec<(u64, bool)> {
    list(cluster, index).await.into_iter().map(|member| (member.id, member.is_learner)).collect()
}

async fn wait_voter(cluster: &Cluster, id: u64) {
    let asked = cluster.running().next().expect("a member runs");
    wait_until("the member votes", async || {
        list(cluster, asked).await.iter().any(|member| member.id == id && !member.is_learner && !member.name.is_empty())
    })
    .await;
    // In a joint configuration, a majority of the former voters is needed as well.
    wait_until("no change is half done", async || !cluster.node(asked).consensus().members().roster().is_joint).await;
}

async fn add(cluster: &Cluster, index: usize, url: &str, is_learner: bool) -> Result<pb::Member, Status> {
    let request = pb::MemberAddRequest { peer_ur_ls: vec![url.to_owned()], is_learner };
    let answer = cluster.members(index).member_add(request).await?.into_inner();
    assert_eq!(answer.header.unwrap().revision, 0, "answers about members tell no revision");
    let member = answer.member.expect("the new member");
    assert!(answer.members.contains(&member));
    Ok(member)
}

async fn remove(cluster: &Cluster, index: usize, id: u64) -> Result<Vec<pb::Member>, Status> {
    let answer = cluster.members(index).member_remove(pb::MemberRemoveRequest { id }).await?;
    Ok(answer.into_inner().members)
}

async fn promote(cluster: &Cluster, index: usize, id: u64) -> Result<(), Status> {
    cluster.members(index).member_promote(pb::MemberPromoteRequest { id }).await.map(drop)
}

async fn move_leader(cluster: &Cluster, index: usize, target_id: u64) -> Result<(), Status> {
    cluster.maintenance(index).move_leader(pb::MoveLeaderRequest { target_id }).await.map(drop)
}

fn refusal<T: std::fmt::Debug>(result: Result<T, Status>) -> (Code, String) {
    let status = result.unwrap_err();
    (status.code(), status.message().to_owned())
}

fn term(cluster: &Cluster, index: usize) -> u64 {
    cluster.node(index).leadership().term.get()
}

async fn one() -> Cluster {
    Cluster::start(Settings { members: 1, ..Settings::default() }).await
}

/// As `one`, with the timing of [`Settings::calm`]. It is set by a restart, because a single member
/// waits for the leader timeout before it forms its cluster.
async fn calm_one() -> Cluster {
    let mut cluster = one().await;
    cluster.crash(0).await;
    cluster.settings.timing = Settings::calm().timing;
    cluster.restart(0).await;
    cluster.wait_healthy().await;
    cluster
}

async fn equal_hashes(cluster: &Cluster) {
    let hashes = cluster.hashes().await;
    assert!(hashes.windows(2).all(|pair| pair[0] == pair[1]), "{hashes:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_grows_from_one_to_three_and_shrinks_again_under_writes() {
    let mut cluster = calm_one().await;
    let before = term(&cluster, 0);
    let (stop, mut stopped) = tokio::sync::oneshot::channel::<()>();
    let mut kv = cluster.kv(0);
    let writer = tokio::spawn(async move {
        let mut count = 0;
        while stopped.try_recv().is_err() {
            kv.put(put(format!("key-{count}"), "v")).await.unwrap();
            count += 1;
        }
        count
    });
    let second = cluster.join(false).await;
    wait_voter(&cluster, cluster.id(second)).await;
    let third = cluster.join(false).await;
    wait_voter(&cluster, cluster.id(third)).await;
    assert_eq!(roles(&cluster, third).await, [(1, false), (2, false), (3, false)]);
    assert_eq!(term(&cluster, 0), before, "nobody had to be elected");
    remove(&cluster, second, cluster.id(third)).await.unwrap();
    within("a removed member notices", cluster.node(third).removed()).await;
    cluster.stop(third).await;
    stop.send(()).unwrap();
    let count = writer.await.unwrap();
    assert!(count > 0);
    for index in [0, second] {
        let all = pb::RangeRequest { count_only: true, range_end: "\0".into(), ..get("key-") };
        assert_eq!(cluster.kv(index).range(all).await.unwrap().into_inner().count, count);
    }
    equal_hashes(&cluster).await;
    assert_eq!(term(&cluster, 0), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_announced_voter_holds_nothing_up_and_votes_once_it_has_started() {
    let mut cluster = one().await;
    let index = cluster.new_node(false).await;
    let announced = add(&cluster, 0, &cluster.peer_url(index), false).await.unwrap();
    assert_eq!((announced.name.as_str(), announced.client_ur_ls.len(), announced.is_learner), ("", 0, false));
    // With etcd, one of two voters would be no quorum.
    within("a write", cluster.kv(0).put(put("k", "v"))).await.unwrap();
    assert_eq!(
        refusal(add(&cluster, 0, "http://127.0.0.1:9", false).await),
        (Code::FailedPrecondition, "etcdserver: re-configuration failed due to not enough started members".into()),
        "as etcd: one announced voter at a time"
    );
    cluster.restart(index).await;
    cluster.wait_healthy().await;
    assert_eq!(cluster.id(index), announced.id);
    wait_voter(&cluster, announced.id).await;
    let member = list(&cluster, index).await.into_iter().find(|member| member.id == announced.id).unwrap();
    assert_eq!((member.name, member.client_ur_ls), ("node2".to_owned(), vec![cluster.client_url(index)]));
    assert_eq!(cluster.kv(index).range(get_local("k")).await.unwrap().into_inner().kvs.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_etcd_refuses_is_refused_with_its_words_on_every_member() {
    let mut cluster = Cluster::three().await;
    let not_found = (Code::NotFound, "etcdserver: member not found".to_owned());
    let exists = (Code::FailedPrecondition, "etcdserver: Peer URLs already exists".to_owned());
    let not_ready = "etcdserver: can only promote a learner member which is in sync with leader".to_owned();
    let learner = add(&cluster, 0, "http://127.0.0.1:9", true).await.unwrap();
    assert!(learner.is_learner && learner.id == 4);
    for index in 0..3 {
        assert_eq!(refusal(remove(&cluster, index, 77).await), not_found);
        assert_eq!(refusal(promote(&cluster, index, 77).await), not_found);
        let moving = pb::MemberUpdateRequest { id: 77, peer_ur_ls: vec!["http://127.0.0.1:8".into()] };
        assert_eq!(refusal(cluster.members(index).member_update(moving).await), not_found);
        let moving = pb::MemberUpdateRequest { id: 1, peer_ur_ls: vec!["http://127.0.0.1:9".into()] };
        assert_eq!(refusal(cluster.members(index).member_update(moving).await), exists);
        assert_eq!(refusal(add(&cluster, index, &cluster.peer_url(1), false).await), exists);
        assert_eq!(
            refusal(add(&cluster, index, "127.0.0.1:9", false).await),
            (Code::InvalidArgument, "etcdserver: given member URLs are invalid".into())
        );
        assert_eq!(
            refusal(promote(&cluster, index, 1).await),
            (Code::FailedPrecondition, "etcdserver: can only promote a learner member".into())
        );
        assert_eq!(refusal(promote(&cluster, index, learner.id).await), (Code::FailedPrecondition, not_ready.clone()));
    }
    remove(&cluster, 0, learner.id).await.unwrap();

    let down = cluster.follower().await;
    let other = (0..3).find(|index| *index != down).unwrap();
    let down_id = cluster.id(down);
    cluster.crash(down).await;
    let leader = cluster.leader().await;
    let unhealthy = (Code::Unavailable, "etcdserver: unhealthy cluster".to_owned());
    wait_until("the leader misses the member", async || {
        cluster
            .node(leader)
            .consensus()
            .members()
            .progress()
            .get(&NodeId(down_id))
            .is_some_and(|progress| !progress.is_live)
    })
    .await;
    assert_eq!(refusal(add(&cluster, leader, "http://127.0.0.1:9", false).await), unhealthy);
    assert_eq!(refusal(remove(&cluster, leader, cluster.id(other)).await), unhealthy, "one of two would be left");
    let left = remove(&cluster, other, down_id).await.unwrap();
    assert!(left.iter().all(|member| member.id != down_id));
    let (leader, follower) = (cluster.leader().await, cluster.follower().await);
    remove(&cluster, leader, cluster.id(follower)).await.unwrap();
    assert_eq!(
        refusal(remove(&cluster, leader, cluster.id(leader)).await),
        (Code::FailedPrecondition, "etcdserver: re-configuration failed due to not enough started members".into())
    );
    cluster.kv(leader).put(put("k", "v")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn removing_the_leader_hands_leadership_over_first() {
    let mut cluster = Cluster::start(Settings::calm()).await;
    let leader = cluster.leader().await;
    let other = cluster.follower().await;
    let (before, id) = (term(&cluster, leader), cluster.id(leader));
    let mut kv = cluster.kv(other);
    let writer = tokio::spawn(async move {
        for key in 0..300 {
            kv.put(put(format!("key-{key}"), "v")).await.unwrap();
        }
    });
    let left = remove(&cluster, leader, id).await.unwrap();
    assert_eq!(left.len(), 2);
    writer.await.unwrap();
    within("the removed member notices", cluster.node(leader).removed()).await;
    let gone = (Code::Unavailable, "headwater: this member was removed from the cluster, ask another".to_owned());
    assert_eq!(refusal(cluster.kv(leader).put(put("k", "v")).await), gone);
    assert_eq!(refusal(cluster.kv(leader).range(get_local("key-0")).await), gone);
    cluster.stop(leader).await;
    cluster.wait_healthy().await;
    assert_eq!(term(&cluster, other), before + 1, "one transfer, one term");
    equal_hashes(&cluster).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removed_member_does_not_start_again_and_its_id_never_returns() {
    let mut cluster = one().await;
    let second = cluster.join(false).await;
    wait_voter(&cluster, cluster.id(second)).await;
    assert_eq!(cluster.id(second), 2);
    remove(&cluster, 0, 2).await.unwrap();
    within("the removed member notices", cluster.node(second).removed()).await;
    cluster.stop(second).await;
    let refused = cluster.try_start(second).await.expect_err("it was removed").to_string();
    assert!(refused.contains("node 2 was removed") && refused.contains("--join"), "{refused}");

    cluster.wipe(second);
    cluster.restart(second).await;
    cluster.wait_healthy().await;
    assert_eq!(cluster.id(second), 3, "the same node, another member");
    wait_voter(&cluster, 3).await;
    assert_eq!(roles(&cluster, second).await, [(1, false), (3, false)]);
    remove(&cluster, 0, 3).await.unwrap();
    cluster.stop(second).await;
    // Also if the highest id is free, and the member that assigned it has restarted.
    cluster.crash(0).await;
    cluster.restart(0).await;
    cluster.wait_healthy().await;
    assert_eq!(add(&cluster, 0, "http://127.0.0.1:9", true).await.unwrap().id, 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_removed_while_it_was_down_finds_out_when_it_comes_back() {
    let mut cluster = Cluster::start(Settings::calm()).await;
    let down = cluster.follower().await;
    let id = cluster.id(down);
    cluster.crash(down).await;
    let leader = cluster.leader().await;
    remove(&cluster, leader, id).await.unwrap();
    let before = term(&cluster, leader);
    // With a short election timeout it would soon disturb the others, if it did not notice.
    cluster.settings.timing = Settings::default().timing;
    cluster.restart(down).await;
    within("the removed member notices", cluster.node(down).removed()).await;
    assert_eq!(term(&cluster, leader), before, "it disturbed nobody");
    // A first member that has also lost its data must not come back under its old id.
    cluster.crash(down).await;
    cluster.wipe(down);
    cluster.restart(down).await;
    within("the wiped member notices", cluster.node(down).removed()).await;
    assert_eq!(roles(&cluster, leader).await.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wiped_node_comes_back_as_another_member() {
    let mut cluster = Cluster::start(Settings { members: 2, ..Settings::default() }).await;
    let third = cluster.join(false).await;
    wait_voter(&cluster, 3).await;
    cluster.kv(0).put(put("k", "v")).await.unwrap();
    cluster.crash(third).await;
    cluster.wipe(third);
    cluster.restart(third).await;
    cluster.wait_healthy().await;
    wait_voter(&cluster, 4).await;
    assert_eq!(roles(&cluster, third).await, [(1, false), (2, false), (4, false)]);
    assert_eq!(cluster.kv(third).range(get_local("k")).await.unwrap().into_inner().kvs.len(), 1);
    equal_hashes(&cluster).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_member_of_a_grown_cluster_does_not_begin_again_when_it_is_wiped() {
    let mut cluster = one().await;
    for id in [2, 3] {
        cluster.join(false).await;
        wait_voter(&cluster, id).await;
    }
    cluster.kv(0).put(put("k", "v")).await.unwrap();
    cluster.crash(0).await;
    cluster.wipe(0);
    cluster.restart(0).await;
    cluster.wait_healthy().await;
    assert_eq!(cluster.kv(0).range(get("k")).await.unwrap().into_inner().kvs.len(), 1);
    assert_eq!(roles(&cluster, 0).await, [(1, false), (2, false), (3, false)]);
    equal_hashes(&cluster).await;
}

// The other first members, which it would ask, are removed, and the members at their addresses have
// other ids.
#[tokio::test(flavor = "multi_thread")]
async fn the_last_of_the_first_members_comes_back_when_it_is_wiped() {
    let mut cluster = Cluster::three().await;
    for old in [1, 2] {
        let new = cluster.join(false).await;
        wait_voter(&cluster, cluster.id(new)).await;
        remove(&cluster, new, cluster.id(old)).await.unwrap();
        within("a removed member notices", cluster.node(old).removed()).await;
        cluster.stop(old).await;
    }
    cluster.kv(0).put(put("k", "v")).await.unwrap();
    cluster.crash(0).await;
    cluster.wipe(0);
    cluster.restart(0).await;
    cluster.wait_healthy().await;
    assert_eq!(cluster.kv(0).range(get("k")).await.unwrap().into_inner().kvs.len(), 1);
    assert_eq!(roles(&cluster, 0).await, [(1, false), (4, false), (5, false)]);
    equal_hashes(&cluster).await;
}

// No other member calls the first member in time, so it does not know of them. Its new data and the
// others' data must not mix.
#[tokio::test(flavor = "multi_thread")]
async fn a_first_member_that_begins_anew_never_mixes_with_those_who_kept_their_data() {
    let mut cluster = one().await;
    for id in [2, 3] {
        cluster.join(false).await;
        wait_voter(&cluster, id).await;
    }
    cluster.kv(1).put(put("kept", "1")).await.unwrap();
    // Members 1 and 2 must go on without the first: both know that all three vote.
    equal_hashes(&cluster).await;
    // The first member leads and is crashed last: calls of another leader could outlive that leader
    // in this process, and tell the first member of the cluster.
    assert_eq!(cluster.leader().await, 0);
    for member in [1, 2, 0] {
        cluster.crash(member).await;
    }
    cluster.wipe(0);
    cluster.restart(0).await;
    cluster.wait_healthy().await;
    cluster.kv(0).put(put("anew", "1")).await.unwrap();

    cluster.restart(1).await;
    cluster.restart(2).await;
    let wrote = Instant::now();
    let mut writes = 0;
    // Long enough for every member to have called every other one several times.
    while writes == 0 || wrote.elapsed() < Duration::from_secs(1) {
        writes += u32::from(cluster.kv(1).put(put("more", "1")).await.is_ok());
    }
    for (member, own, foreign) in [(0, "anew", "kept"), (1, "kept", "anew"), (2, "kept", "anew")] {
        let count = async |key| cluster.kv(member).range(get(key)).await.unwrap().into_inner().count;
        assert_eq!((count(own).await, count(foreign).await), (1, 0), "member {member}");
    }
    assert_eq!(roles(&cluster, 0).await, [(1, false)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn joining_can_be_broken_off_at_every_step() {
    let mut cluster =
        Cluster::start(Settings { members: 1, snapshot_every: 200, keep: 50, ..Settings::default() }).await;
    let mut kv = cluster.kv(0);
    for key in 0..1000 {
        kv.put(put(format!("key-{key}"), "x".repeat(100))).await.unwrap();
    }
    let index = cluster.new_node(false).await;
    // The answer is lost several times: the disk has nothing but the directory's incarnation.
    let mut given = Vec::new();
    for _ in 0..3 {
        given.push(join(cluster.join_options(index, false)).await.unwrap().node_id);
    }
    assert_eq!(given, [NodeId(2); 3]);
    assert_eq!(list(&cluster, 0).await.len(), 2);
    // The node crashes while it catches up.
    for _ in 0..3 {
        cluster.restart(index).await;
        cluster.crash(index).await;
    }
    cluster.restart(index).await;
    cluster.wait_healthy().await;
    wait_voter(&cluster, 2).await;
    assert_eq!(roles(&cluster, index).await, [(1, false), (2, false)]);
    assert_eq!(cluster.kv(index).range(get("key-999")).await.unwrap().into_inner().kvs.len(), 1);
    equal_hashes(&cluster).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_learner_serves_reads_and_watches_and_takes_writes_until_it_is_promoted() {
    let mut cluster = one().await;
    cluster.kv(0).put(put("k/0", "v")).await.unwrap();
    let learner = cluster.join(true).await;
    let id = cluster.id(learner);
    assert_eq!(roles(&cluster, learner).await, [(1, false), (id, true)]);
    let mut stream = Stream::open(&cluster.client_url(learner)).await.unwrap();
    stream.create(prefix("k/")).await;
    cluster.kv(0).put(put("k/1", "leader")).await.unwrap();
    cluster.kv(learner).put(put("k/2", "learner")).await.unwrap();
    assert_eq!(stream.events(2).await.len(), 2);
    for read in [get("k/2"), get_local("k/2")] {
        assert_eq!(cluster.kv(learner).range(read).await.unwrap().into_inner().kvs[0].value, "learner");
    }
    assert!(cluster.node(learner).status().unwrap().is_learner);
    cluster.crash(learner).await;
    within("a learner is not needed", cluster.kv(0).put(put("k/3", "v"))).await.unwrap();
    cluster.restart(learner).await;
    cluster.wait_healthy().await;
    wait_until("the learner can be promoted", async || promote(&cluster, learner, id).await.is_ok()).await;
    assert_eq!(roles(&cluster, 0).await, [(1, false), (id, false)]);
    remove(&cluster, learner, id).await.unwrap();
    within("the removed member notices", cluster.node(learner).removed()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn leadership_moves_where_it_is_told_to() {
    let mut cluster = Cluster::start(Settings::calm()).await;
    let learner = cluster.join(true).await;
    let leader = cluster.leader().await;
    let follower = cluster.running().find(|index| *index != leader && *index != learner).unwrap();
    let before = term(&cluster, leader);
    let target = cluster.id(follower);
    assert_eq!(
        refusal(move_leader(&cluster, follower, target).await),
        (Code::FailedPrecondition, "etcdserver: not leader".into())
    );
    for wrong in [77, cluster.id(learner)] {
        assert_eq!(
            refusal(move_leader(&cluster, leader, wrong).await),
            (Code::FailedPrecondition, "etcdserver: bad leader transferee".into())
        );
    }
    move_leader(&cluster, leader, cluster.id(leader)).await.unwrap();
    assert_eq!(term(&cluster, leader), before, "it leads already");
    move_leader(&cluster, leader, target).await.unwrap();
    assert_eq!(cluster.leader().await, follower);
    assert_eq!(term(&cluster, follower), before + 1);
    cluster.kv(leader).put(put("k", "v")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn leadership_is_not_offered_to_a_member_that_does_not_answer() {
    let mut cluster = Cluster::start(Settings::calm()).await;
    let leader = cluster.leader().await;
    let follower = cluster.follower().await;
    let (dead, before) = (cluster.id(follower), term(&cluster, leader));
    cluster.crash(follower).await;
    let progress = || cluster.node(leader).consensus().members().progress();
    wait_until("its silence is noticed", async || progress().iter().any(|(id, p)| id.get() == dead && !p.is_live))
        .await;
    assert_eq!(
        refusal(move_leader(&cluster, leader, dead).await),
        (Code::Unknown, "etcdserver: request timed out, leader transfer took too long".into())
    );
    assert_eq!((cluster.leader().await, term(&cluster, leader)), (leader, before), "it leads on");
    cluster.kv(leader).put(put("k", "v")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_cannot_be_made_in_time_says_so() {
    let settings = Settings { request_timeout: Duration::from_secs(7), ..Settings::default() };
    let mut cluster = Cluster::start(settings).await;
    let leader = cluster.leader().await;
    for other in cluster.running().filter(|index| *index != leader).collect::<Vec<_>>() {
        cluster.crash(other).await;
    }
    // The client sets no deadline; the member's own one applies.
    let request = pb::MemberAddRequest { peer_ur_ls: vec!["http://127.0.0.1:1".to_owned()], is_learner: true };
    let status = within("the deadline", cluster.members(leader).member_add(request)).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_moves_to_another_address() {
    let mut cluster = Cluster::three().await;
    let follower = cluster.follower().await;
    let id = cluster.id(follower);
    cluster.crash(follower).await;
    cluster.give_new_addresses(follower).await;
    let leader = cluster.leader().await;
    let moving = pb::MemberUpdateRequest { id, peer_ur_ls: vec![cluster.peer_url(follower)] };
    let members = cluster.members(leader).member_update(moving).await.unwrap().into_inner().members;
    assert!(members.iter().any(|member| member.id == id && member.peer_ur_ls == [cluster.peer_url(follower)]));
    cluster.restart(follower).await;
    cluster.wait_healthy().await;
    let client_url = cluster.client_url(follower);
    wait_until("the others know where its clients connect now", async || {
        list(&cluster, leader).await.iter().any(|member| member.id == id && member.client_ur_ls == [client_url.clone()])
    })
    .await;
    cluster.kv(follower).put(put("k", "v")).await.unwrap();
    equal_hashes(&cluster).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_needs_those_who_have_just_ended_is_refused_and_the_others_serve_on() {
    // With this timing a leader does not notice a dead follower for a long time.
    let mut cluster = Cluster::start(Settings { members: 5, ..Settings::calm() }).await;
    let leader = cluster.leader().await;
    let others: Vec<_> = cluster.running().filter(|index| *index != leader).collect();
    let (dead, third) = ([others[0], others[1]], cluster.id(others[2]));
    for member in dead {
        cluster.crash(member).await;
    }
    let unhealthy = (Code::Unavailable, "etcdserver: unhealthy cluster".to_owned());
    for asked in [leader, others[3]] {
        let began = Instant::now();
        assert_eq!(refusal(remove(&cluster, asked, third).await), unhealthy, "two of four would be left");
        assert_eq!(refusal(add(&cluster, asked, "http://127.0.0.1:9", false).await), unhealthy);
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    }
    for (key, member) in [leader, others[2], others[3]].into_iter().enumerate() {
        let key = format!("key-{key}");
        within("a write", cluster.kv(member).put(put(key.clone(), "v"))).await.unwrap();
        assert_eq!(within("a read", cluster.kv(member).range(get(key))).await.unwrap().into_inner().count, 1);
    }
    assert_eq!(list(&cluster, leader).await.len(), 5);
    cluster.restart(dead[0]).await;
    cluster.wait_healthy().await;
    remove(&cluster, leader, third).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_is_about_to_end_does_not_count_for_a_change() {
    let cluster = Cluster::start(Settings::calm()).await;
    let leader = cluster.leader().await;
    let others: Vec<_> = cluster.running().filter(|index| *index != leader).collect();
    cluster.node(others[0]).consensus().note_stopping();
    let unhealthy = (Code::Unavailable, "etcdserver: unhealthy cluster".to_owned());
    assert_eq!(refusal(remove(&cluster, leader, cluster.id(others[1])).await), unhealthy);
    remove(&cluster, leader, cluster.id(others[0])).await.unwrap();
}

// The future voters end between the check and the change. The change cannot be undone then: members
// that have it in their log form majorities by it.
#[tokio::test(flavor = "multi_thread")]
async fn a_half_done_change_comes_to_its_end_when_a_silent_member_is_back() {
    let settings = Settings { members: 5, request_timeout: Duration::from_secs(3), ..Settings::default() };
    let mut cluster = Cluster::start(settings).await;
    let leader = cluster.leader().await;
    let others: Vec<_> = cluster.running().filter(|index| *index != leader).collect();
    let (dead, third) = ([others[0], others[1]], cluster.id(others[2]));
    for member in dead {
        cluster.crash(member).await;
    }
    let consensus = cluster.node(leader).consensus().clone();
    // Without the check.
    let roster = consensus.members().roster();
    let changing = tokio::spawn({
        let consensus = consensus.clone();
        async move { consensus.members().take_step(&roster, MembershipStep::Drop(NodeId(third))).await }
    });
    wait_until("the leader hears of no majority of both", async || consensus.leadership().lacks_majority()).await;
    assert!(consensus.members().roster().is_joint);
    let began = Instant::now();
    let refused = (Code::Unavailable, "etcdserver: no leader".to_owned());
    assert_eq!(refusal(cluster.kv(leader).put(put("k", "v")).await), refused);
    assert_eq!(refusal(remove(&cluster, leader, cluster.id(others[3])).await), refused);
    assert!(began.elapsed() < Duration::from_secs(3), "it is said at once: {:?}", began.elapsed());

    cluster.restart(dead[0]).await;
    within("the change is made", changing).await.unwrap().ok();
    within("the removed member notices", cluster.node(others[2]).removed()).await;
    cluster.stop(others[2]).await;
    cluster.wait_healthy().await;
    wait_until("no change is half done", async || !cluster.node(leader).consensus().members().roster().is_joint).await;
    for member in cluster.running().collect::<Vec<_>>() {
        within("a write", cluster.kv(member).put(put("k", "v"))).await.unwrap();
        assert_eq!(list(&cluster, member).await.len(), 4);
    }
}

async fn move_to(cluster: &Cluster, asked: usize, id: u64, url: String) {
    cluster.members(asked).member_update(pb::MemberUpdateRequest { id, peer_ur_ls: vec![url] }).await.unwrap();
}

/// For `time`, writes and reads (linearizable) at every running member in turn. Panics if one of
/// these fails, or if a pair takes more than ten seconds.
async fn serves_for(cluster: &Cluster, time: Duration) {
    let began = Instant::now();
    while began.elapsed() < time {
        for member in cluster.running().collect::<Vec<_>>() {
            let serving = async {
                cluster.kv(member).put(put("k", "v")).await.unwrap();
                assert_eq!(cluster.kv(member).range(get("k")).await.unwrap().into_inner().count, 1);
            };
            tokio::time::timeout(Duration::from_secs(10), serving)
                .await
                .unwrap_or_else(|_| panic!("member {member} does not serve"));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_is_reached_where_it_was_until_it_answers_elsewhere() {
    let mut cluster = Cluster::three().await;
    let leader = cluster.leader().await;
    let (id, here) = (cluster.id(leader), cluster.peer_url(leader));
    // Longer than the time for which a leader without answers counts as live.
    let long = Duration::from_secs(3);
    let before = term(&cluster, leader);
    // First no process listens there; then another process does.
    let stranger = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    for elsewhere in ["http://127.0.0.1:9".to_owned(), format!("http://{}", stranger.local_addr().unwrap())] {
        move_to(&cluster, leader, id, elsewhere.clone()).await;
        assert!(list(&cluster, leader).await.iter().any(|member| member.peer_ur_ls == [elsewhere.clone()]));
        serves_for(&cluster, long).await;
    }
    assert_eq!((cluster.leader().await, term(&cluster, leader)), (leader, before), "nobody was elected");
    // A member that has never called the leader finds it, too.
    let follower = cluster.follower().await;
    cluster.stop(follower).await;
    cluster.restart(follower).await;
    cluster.wait_healthy().await;
    serves_for(&cluster, Duration::from_secs(1)).await;
    assert_eq!(cluster.leader().await, leader);

    move_to(&cluster, leader, id, here.clone()).await;
    serves_for(&cluster, Duration::from_secs(1)).await;

    // The member itself moves.
    let leader = cluster.leader().await;
    let id = cluster.id(leader);
    cluster.stop(leader).await;
    cluster.give_new_addresses(leader).await;
    let asked = cluster.leader().await;
    move_to(&cluster, asked, id, cluster.peer_url(leader)).await;
    cluster.restart(leader).await;
    cluster.wait_healthy().await;
    serves_for(&cluster, long).await;
    equal_hashes(&cluster).await;
}
