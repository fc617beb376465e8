//! Leases compared with an oracle while members crash (spec: etcd §3.2): they never end early, end
//! late by at most a bound, and their keys are removed exactly once, in the same revision on every
//! member. The test moves the clock. Tests of a leader that is stopped and wakes up are in
//! `src/node/lease/tests.rs` and, with real processes, in `scripts/lease-failover`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use headwater::node::{LeaseClock, ManualClock};
use headwater::pb::etcdserverpb as pb;
use headwater::pb::etcdserverpb::lease_client::LeaseClient;

use crate::cluster::{Cluster, Settings, get, get_local, put, wait_until, within};
use crate::watch::client::{Stream, prefix, show};

/// Longest time by which one change of leader extends a lease, milliseconds, with the timing of
/// these tests: twice the longest election timeout, and the renewals that were not in the log yet.
const LATE_MAX_MS: u64 = (2 + 6) * 1000;
const STEP_MS: u64 = 500;
const LEASES: i64 = 40;

struct Lease {
    ttl_ms: u64,
    /// Earliest time at which the lease may end.
    due_ms: u64,
    /// Terms that began since the lease was last kept alive: at least as many as changes of leader.
    changes: u64,
}

impl Lease {
    /// Time from which on the lease must be gone.
    fn gone_ms(&self) -> u64 {
        self.due_ms + self.changes * LATE_MAX_MS
    }
}

struct Oracle {
    cluster: Cluster,
    clock: ManualClock,
    now_ms: u64,
    leases: BTreeMap<i64, Lease>,
    /// The highest term of a member so far.
    term: u64,
}

fn key(id: i64) -> String {
    format!("oracle/{id:03}")
}

impl Oracle {
    async fn new() -> Self {
        let (lease_clock, clock) = LeaseClock::by_hand();
        // Few entries behind a snapshot, so that a member that is away for long needs one.
        let settings = Settings { snapshot_every: 100, keep: 20, ..Settings::default() };
        let cluster = Cluster::start_with_clock(settings, lease_clock).await;
        let mut oracle = Self { cluster, clock, now_ms: 0, leases: BTreeMap::new(), term: 0 };
        oracle.term = oracle.highest_term();
        for id in 1..=LEASES {
            let ttl = 8 + 2 * id;
            let mut client = oracle.client().await;
            client.lease_grant(pb::LeaseGrantRequest { id, ttl }).await.unwrap();
            let attached = pb::PutRequest { lease: id, ..put(key(id), "v") };
            oracle.cluster.kv((id % 3) as usize).put(attached).await.unwrap();
            let ttl_ms = ttl as u64 * 1000;
            oracle.leases.insert(id, Lease { ttl_ms, due_ms: ttl_ms, changes: 0 });
        }
        // Each member's own state is checked: all must have the leases.
        oracle.cluster.hashes().await;
        oracle
    }

    fn highest_term(&self) -> u64 {
        let terms = self.cluster.running().map(|member| self.cluster.node(member).leadership().term.get());
        terms.max().expect("a member runs")
    }

    async fn client(&self) -> LeaseClient<tonic::transport::Channel> {
        let member = self.cluster.leader().await;
        LeaseClient::connect(self.cluster.client_url(member)).await.unwrap()
    }

    async fn keep_alive(&mut self, id: i64) {
        let requests = futures::stream::iter([pb::LeaseKeepAliveRequest { id }]);
        let mut answers = self.client().await.lease_keep_alive(requests).await.unwrap().into_inner();
        let answer = within("an answer", answers.message()).await.unwrap().unwrap();
        let lease = self.leases.get_mut(&id).unwrap();
        if answer.ttl > 0 {
            assert_eq!(answer.ttl as u64 * 1000, lease.ttl_ms);
            (lease.due_ms, lease.changes) = (self.now_ms + lease.ttl_ms, 0);
        } else {
            assert!(lease.due_ms <= self.now_ms, "lease {id} is said to be gone before its time");
        }
    }

    /// Adds the number of new terms since the last call to `changes` of every lease.
    fn count_changes(&mut self) {
        // A member with the highest term may be down.
        let term = self.highest_term().max(self.term);
        self.leases.values_mut().for_each(|lease| lease.changes += term - self.term);
        self.term = term;
    }

    /// The keys of leases in a member's own state.
    async fn keys(&self, member: usize) -> BTreeSet<String> {
        let request = pb::RangeRequest { range_end: "oracle0".into(), keys_only: true, ..get_local("oracle/") };
        let kvs = self.cluster.kv(member).range(request).await.unwrap().into_inner().kvs;
        kvs.into_iter().map(|kv| String::from_utf8(kv.key.to_vec()).unwrap()).collect()
    }

    /// Moves the clock by `seconds`, in steps. Checks after every step that no lease has ended
    /// early on any running member. Waits until leases that must be gone have ended there, or a new
    /// term begins.
    async fn pass(&mut self, seconds: u64) {
        for _ in 0..seconds * 1000 / STEP_MS {
            self.clock.advance(Duration::from_millis(STEP_MS));
            self.now_ms += STEP_MS;
            self.count_changes();
            for member in self.cluster.running().collect::<Vec<_>>() {
                let there = self.keys(member).await;
                for (id, lease) in &self.leases {
                    let is_there = there.contains(&key(*id));
                    if lease.due_ms > self.now_ms {
                        assert!(is_there, "lease {id} ended early, says member {member}");
                    } else if is_there && lease.gone_ms() <= self.now_ms {
                        // A change of leader since the count extends the lease.
                        let gone =
                            async || !self.keys(member).await.contains(&key(*id)) || self.highest_term() > self.term;
                        wait_until(&format!("lease {id} is gone at member {member}"), gone).await;
                    }
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn leases_are_exact_through_kill_transfer_snapshot_and_restart() {
    let mut oracle = Oracle::new().await;
    let from = oracle.cluster.kv(0).range(get("x")).await.unwrap().into_inner().header.unwrap().revision + 1;
    oracle.pass(6).await;
    for id in (1..=LEASES).step_by(3) {
        oracle.keep_alive(id).await;
    }
    oracle.pass(6).await;

    // The leader dies, and comes back.
    let leader = oracle.cluster.leader().await;
    oracle.cluster.crash(leader).await;
    oracle.cluster.wait_healthy().await;
    oracle.pass(10).await;
    oracle.cluster.restart(leader).await;
    oracle.cluster.wait_healthy().await;
    for id in (2..=LEASES).step_by(5) {
        oracle.keep_alive(id).await;
    }

    // The leader hands over.
    let leader = oracle.cluster.leader().await;
    oracle.cluster.stop(leader).await;
    oracle.cluster.wait_healthy().await;
    oracle.pass(10).await;
    oracle.cluster.restart(leader).await;
    oracle.cluster.wait_healthy().await;

    // A follower is away for so long that it needs a snapshot, while leases expire; then it leads.
    let follower = oracle.cluster.follower().await;
    oracle.cluster.crash(follower).await;
    let leader = oracle.cluster.leader().await;
    let mut kv = oracle.cluster.kv(leader);
    for number in 0..300 {
        kv.put(put("filler", number.to_string())).await.unwrap();
    }
    oracle.pass(10).await;
    oracle.cluster.restart(follower).await;
    oracle.cluster.wait_healthy().await;
    oracle.cluster.hashes().await;
    let third = (0..3).find(|member| *member != follower && *member != leader).unwrap();
    oracle.cluster.crash(leader).await;
    oracle.cluster.wait_healthy().await;
    oracle.pass(6).await;
    oracle.cluster.restart(leader).await;

    // All are down at once; that time does not count.
    oracle.cluster.wait_healthy().await;
    for member in [leader, follower, third] {
        oracle.cluster.crash(member).await;
    }
    for member in [leader, follower, third] {
        oracle.cluster.restart(member).await;
    }
    oracle.cluster.wait_healthy().await;
    oracle.pass(90).await;
    while oracle.leases.values().any(|lease| lease.gone_ms() > oracle.now_ms) {
        oracle.pass(5).await;
    }

    // Each lease was removed once, in a revision of its own, the same at every member.
    let all = pb::RangeRequest { range_end: "oracle0".into(), count_only: true, ..get("oracle/") };
    assert_eq!(oracle.cluster.kv(0).range(all).await.unwrap().into_inner().count, 0, "all have ended");
    let mut delivered = Vec::new();
    for member in 0..3 {
        let mut stream = Stream::open(&oracle.cluster.client_url(member)).await.unwrap();
        stream.create(pb::WatchCreateRequest { start_revision: from, ..prefix("oracle/") }).await;
        delivered.push(show(&stream.events(LEASES as usize).await));
    }
    let mut keys: Vec<_> = delivered[0].iter().map(|event| event.split('@').next().unwrap().to_owned()).collect();
    keys.sort_unstable();
    assert_eq!(keys, (1..=LEASES).map(|id| format!("-{}", key(id))).collect::<Vec<_>>());
    let mut revisions: Vec<_> = delivered[0].iter().map(|event| event.split('@').nth(1).unwrap().to_owned()).collect();
    revisions.dedup();
    assert_eq!(revisions.len(), LEASES as usize);
    assert!(delivered.iter().all(|events| *events == delivered[0]), "{delivered:?}");
    let hashes = oracle.cluster.hashes().await;
    assert!(hashes.windows(2).all(|pair| pair[0] == pair[1]), "{hashes:?}");
}
