//! A crash loses no acknowledged write, and after a restart a member never serves an older state.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use headwater::pb::etcdserverpb as pb;
use http::Method;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::cluster::{Cluster, Settings, get, get_local, put, wait_until, within};
use crate::consul_http;

#[tokio::test(flavor = "multi_thread")]
async fn writes_go_on_after_the_leader_crashed() {
    let mut cluster = Cluster::three().await;
    let leader = cluster.leader().await;
    cluster.kv(leader).put(put("before", "1")).await.unwrap();
    cluster.crash(leader).await;
    let survivor = cluster.running().next().unwrap();
    let mut kv = cluster.kv(survivor);
    wait_until("a survivor takes writes", async || kv.put(put("after", "2")).await.is_ok()).await;
    let found = kv.range(get("before")).await.unwrap().into_inner();
    assert_eq!(found.kvs.len(), 1);
    cluster.restart(leader).await;
    cluster.wait_healthy().await;
    let found = cluster.kv(leader).range(get("after")).await.unwrap().into_inner();
    assert_eq!(found.kvs[0].value, "2");
    let hashes = cluster.hashes().await;
    assert!(hashes.windows(2).all(|pair| pair[0] == pair[1]), "{hashes:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn all_members_crash_and_nothing_acknowledged_is_lost() {
    let mut cluster = Cluster::three().await;
    let mut revision = 0;
    for round in 0..3 {
        let mut members = [0, 1, 2].map(|member| cluster.kv(member));
        for key in 0..200 {
            let answer = members[key % 3].put(put(format!("{round}-{key}"), "v")).await.unwrap().into_inner();
            let now = answer.header.unwrap().revision;
            assert!(now > revision, "revisions never go back");
            revision = now;
        }
        for member in 0..3 {
            cluster.crash(member).await;
        }
        for member in 0..3 {
            cluster.restart(member).await;
        }
        cluster.wait_healthy().await;
        let mut members = [0, 1, 2].map(|member| cluster.kv(member));
        for key in 0..200 {
            let found = members[key % 3].range(get(format!("{round}-{key}"))).await.unwrap().into_inner();
            assert_eq!(found.kvs.len(), 1, "{round}-{key}");
        }
    }
    let hashes = cluster.hashes().await;
    assert!(hashes.windows(2).all(|pair| pair[0] == pair[1]), "{hashes:?}");
}

// A leader sends entries before they are on its own disk. After a crash that lost some, it must not
// lead in the same term: it would give their log ids to other entries.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_crashed_leads_again_only_in_a_new_term() {
    let mut cluster = Cluster::three().await;
    let leader = cluster.leader().await;
    cluster.kv(leader).put(put("before", "1")).await.unwrap();
    let term = cluster.node(leader).leadership().term;
    for member in 0..3 {
        cluster.crash(member).await;
    }
    // The old leader first, so that it can be elected.
    for member in [leader, (leader + 1) % 3, (leader + 2) % 3] {
        cluster.restart(member).await;
    }
    cluster.wait_healthy().await;
    let leader = cluster.leader().await;
    let now = cluster.node(leader).leadership().term;
    assert!(now > term, "term {now} after {term}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_never_shows_an_older_state_across_a_crash() {
    let mut cluster = Cluster::three().await;
    let follower = cluster.follower().await;
    for round in 0..5 {
        for key in 0..50 {
            cluster.kv(follower).put(put("counter", format!("{}", round * 50 + key))).await.unwrap();
        }
        let before = cluster.kv(follower).range(get_local("counter")).await.unwrap().into_inner();
        cluster.crash(follower).await;
        cluster.restart(follower).await;
        let after = cluster.kv(follower).range(get_local("counter")).await.unwrap().into_inner();
        assert!(after.kvs[0].mod_revision >= before.kvs[0].mod_revision, "round {round}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wiped_member_rejoins_by_snapshot_under_load() {
    let mut cluster = Cluster::start(Settings { snapshot_every: 500, keep: 100, ..Settings::default() }).await;
    let follower = cluster.follower().await;
    let leader = cluster.leader().await;
    let mut kv = cluster.kv(leader);
    for key in 0..2000 {
        kv.put(put(format!("key-{key}"), "x".repeat(100))).await.unwrap();
    }
    cluster.crash(follower).await;
    cluster.wipe(follower);
    let writer = tokio::spawn(async move {
        for key in 0..2000 {
            kv.put(put(format!("more-{key}"), "y")).await.unwrap();
        }
    });
    cluster.restart(follower).await;
    writer.await.unwrap();
    cluster.wait_healthy().await;
    let found = cluster.kv(follower).range(get("more-1999")).await.unwrap().into_inner();
    assert_eq!(found.kvs.len(), 1);
    let hashes = cluster.hashes().await;
    assert!(hashes.windows(2).all(|pair| pair[0] == pair[1]), "{hashes:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wiped_member_of_a_small_idle_cluster_comes_back() {
    let mut cluster = Cluster::three().await;
    let (leader, follower) = (cluster.leader().await, cluster.follower().await);
    for key in 0..10 {
        cluster.kv(leader).put(put(format!("key-{key}"), "v")).await.unwrap();
    }
    cluster.crash(follower).await;
    cluster.wipe(follower);
    cluster.restart(follower).await;
    cluster.wait_healthy().await;
    let found = cluster.kv(follower).range(get_local("key-9")).await.unwrap().into_inner();
    assert_eq!(found.kvs.len(), 1);
    let hashes = cluster.hashes().await;
    assert!(hashes.windows(2).all(|pair| pair[0] == pair[1]), "{hashes:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_graceful_stop_hands_leadership_over_first() {
    let mut cluster = Cluster::start(Settings::calm()).await;
    let leader = cluster.leader().await;
    let (id, other) = (cluster.id(leader), cluster.follower().await);
    cluster.stop(leader).await;
    // No election timeout has passed yet: the stopped leader must have handed over.
    let leads = cluster.node(other).leadership().leader.expect("somebody leads");
    assert_ne!(leads.get(), id);
    within("a write", cluster.kv(other).put(put("k", "v"))).await.unwrap();
}

/// The largest table file of a member's state: it has the written values.
fn largest_table(data_dir: &Path) -> PathBuf {
    let generations = std::fs::read_dir(data_dir.join("state")).unwrap().flatten().map(|entry| entry.path());
    let files = generations.filter(|path| path.is_dir()).flat_map(|path| std::fs::read_dir(path).unwrap().flatten());
    let tables = files.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|kind| kind == "sst"));
    tables.max_by_key(|path| path.metadata().unwrap().len()).expect("a file of the state")
}

#[tokio::test(flavor = "multi_thread")]
async fn who_cannot_read_its_state_says_what_to_do_and_must_stop() {
    let mut cluster = Cluster::three().await;
    let follower = cluster.follower().await;
    let mut rng = StdRng::seed_from_u64(1);
    for key in 0..100 {
        // Incompressible: the largest file is that of the values.
        let value: String = (0..1000).map(|_| rng.random_range('a'..='z')).collect();
        cluster.kv(follower).put(put(key.to_string(), value)).await.unwrap();
    }
    cluster.stop(follower).await;
    cluster.restart(follower).await;
    cluster.wait_healthy().await;
    let file = largest_table(&cluster.data_dir(follower));
    let file = File::options().read(true).write(true).open(file).unwrap();
    let middle = file.metadata().unwrap().len() / 2;
    let mut byte = [0];
    file.read_exact_at(&mut byte, middle).unwrap();
    file.write_all_at(&[byte[0] ^ 1], middle).unwrap();
    // Applying does not read the damaged file, so a read meets it first. The node must really stop
    // when it tells a reader so.
    let refused = cluster.maintenance(follower).hash(pb::HashRequest {}).await.unwrap_err();
    assert!(refused.message().contains("this member's storage failed and it is stopping"), "{refused}");
    let why = within("the node must stop", cluster.ended(follower)).await;
    for part in ["the state cannot be read", "move this node's data directory away"] {
        assert!(why.contains(part), "{why}");
    }
    // Following the advice repairs the member.
    cluster.crash(follower).await;
    cluster.wipe(follower);
    cluster.restart(follower).await;
    cluster.wait_healthy().await;
    let hashes = cluster.hashes().await;
    assert!(hashes.windows(2).all(|pair| pair[0] == pair[1]), "{hashes:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_majority_only_a_member_that_was_not_restarted_answers_serializable_reads() {
    let mut cluster = Cluster::start(Settings { request_timeout: Duration::from_secs(2), ..Settings::default() }).await;
    wait_until("the write is done", async || cluster.kv(0).put(put("k", "v")).await.is_ok()).await;
    cluster.hashes().await;
    cluster.crash(0).await;
    cluster.crash(1).await;
    let read =
        async |cluster: &Cluster| cluster.kv(2).range(get_local("k")).await.map(|found| found.into_inner().count);
    assert_eq!(read(&cluster).await.unwrap(), 1, "it knows what it showed before");
    cluster.crash(2).await;
    cluster.restart(2).await;
    let refused = read(&cluster).await.unwrap_err();
    assert_eq!((refused.code(), refused.message()), (tonic::Code::Unavailable, "etcdserver: no leader"));
    // A restart would not help, so the member stays live.
    for (path, wanted) in [("/livez", 200), ("/readyz", 503)] {
        assert_eq!(consul_http::ask(&cluster, 2, Method::GET, path, "").await.status, wanted, "{path}");
    }
    cluster.restart(0).await;
    wait_until("a leader tells how much is committed", async || read(&cluster).await.is_ok()).await;
    assert_eq!(read(&cluster).await.unwrap(), 1);
}
