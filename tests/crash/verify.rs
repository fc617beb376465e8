//! Verification by the next process: the state and the history of every member have exactly the
//! data that the counters imply.

use std::collections::{BTreeMap, BTreeSet};

use headwater::pb::etcdserverpb as pb;
use headwater::pb::etcdserverpb::lease_client::LeaseClient;

use super::CLIENTS;
use super::child::say;
use super::cluster::{Cluster, get, get_local, wait_until, within};
use super::load::{KEPT, counter, element};
use super::watch::{self, Stream};

/// Number of revisions after the oldest one that is kept for the verification of history.
const LEFT: i64 = 40;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Verifies all members. Reports the counter of each client to the parent, and returns the
/// counters. Panics if data is missing, or should not exist. Before that, removes learners that
/// earlier processes left, and compacts history to its newest [`LEFT`] revisions.
///
/// A write of the earlier process whose outcome is unknown may still take effect and change a
/// counter: then everything is verified again.
pub(super) async fn check(cluster: &Cluster) -> [u64; CLIENTS] {
    forget_announced_members(cluster).await;
    let mut counts = counters(cluster).await;
    loop {
        let mut wrong = Vec::new();
        let hashes = cluster.hashes().await;
        if hashes.windows(2).any(|pair| pair[0] != pair[1]) {
            wrong.push(format!("members differ: {hashes:?}"));
        }
        let from = oldest(cluster).await;
        for member in 0..3 {
            wrong.extend(elements(cluster, member, &counts).await);
            leases(cluster, member).await;
            wrong.extend(history(cluster, member, from, &counts).await);
        }
        let now = counters(cluster).await;
        if now == counts {
            assert!(wrong.is_empty(), "with counters at {counts:?}: {wrong:#?}");
            break;
        }
        counts = now;
    }
    for (client, count) in counts.iter().enumerate() {
        say(format_args!("found {client} {count}"));
    }
    say(format_args!("verified"));
    counts
}

/// The counter of each client, by a linearizable read.
async fn counters(cluster: &Cluster) -> [u64; CLIENTS] {
    let mut counts = [0; CLIENTS];
    for (client, count) in counts.iter_mut().enumerate() {
        let found = within("a read", cluster.kv(0).range(get(counter(client)))).await.unwrap().into_inner().kvs;
        *count = found.first().map_or(0, |kv| text(&kv.value).parse().unwrap());
    }
    counts
}

/// Removes learners that an earlier process added and did not remove.
async fn forget_announced_members(cluster: &Cluster) {
    wait_until("nobody is a member who never was one", async || {
        let leader = cluster.leader().await;
        let mut members = cluster.members(leader);
        let Ok(listed) = members.member_list(pb::MemberListRequest::default()).await else { return false };
        let extra = listed.into_inner().members.into_iter().filter(|member| member.is_learner);
        let mut is_tidy = true;
        for member in extra {
            is_tidy = false;
            // The loop checks again in both cases.
            let _removed = members.member_remove(pb::MemberRemoveRequest { id: member.id }).await.is_ok();
        }
        is_tidy
    })
    .await;
}

/// The difference between the keys below `set/` at a member and the elements that should exist: for
/// each client, those of the last [`KEPT`] values of its counter. `None` if there is none.
async fn elements(cluster: &Cluster, member: usize, counts: &[u64; CLIENTS]) -> Option<String> {
    let request = pb::RangeRequest { range_end: "set0".into(), keys_only: true, ..get_local("set/") };
    let found = cluster.kv(member).range(request).await.unwrap().into_inner().kvs;
    let found: BTreeSet<String> = found.iter().map(|kv| text(&kv.key)).collect();
    let last = |client: usize, count: u64| (count.saturating_sub(KEPT) + 1..=count).map(move |at| element(client, at));
    let wanted = counts.iter().enumerate().flat_map(|(client, count)| last(client, *count)).collect();
    let differ: Vec<_> = found.symmetric_difference(&wanted).collect();
    (!differ.is_empty()).then(|| format!("member {member}: {differ:?}"))
}

/// Asserts that no key exists without its lease at a member.
async fn leases(cluster: &Cluster, member: usize) {
    let mut client = LeaseClient::connect(cluster.client_url(member)).await.unwrap();
    // Leases are listed before the keys are read: no lease is granted now, and some may expire in
    // between.
    let listed = client.lease_leases(pb::LeaseLeasesRequest {}).await.unwrap().into_inner().leases;
    let listed: BTreeSet<i64> = listed.iter().map(|lease| lease.id).collect();
    let request = pb::RangeRequest { range_end: "lease0".into(), ..get("lease/") };
    let keys = cluster.kv(member).range(request).await.unwrap().into_inner().kvs;
    for kv in keys {
        assert!(listed.contains(&kv.lease), "member {member}: {} is left of lease {}", text(&kv.key), kv.lease);
    }
}

/// Compacts to the revision that is [`LEFT`] before the newest one, or to 1. Returns that revision:
/// the oldest one that can still be read.
async fn oldest(cluster: &Cluster) -> i64 {
    let mut kv = cluster.kv(0);
    let now = kv.range(get("x")).await.unwrap().into_inner().header.map_or(0, |header| header.revision);
    let oldest = (now - LEFT).max(1);
    // Refused only if the process before has compacted at the same revision.
    let _done = kv.compact(pb::CompactionRequest { revision: oldest, ..Default::default() }).await.is_err();
    oldest
}

/// Watches the counters at a member from the revision `from` on: each value must come once, in
/// order, up to the last one. Panics at a gap or a repetition. Returns a description if the last
/// value is not the client's counter; else `None`.
async fn history(cluster: &Cluster, member: usize, from: i64, counts: &[u64; CLIENTS]) -> Option<String> {
    let mut stream = Stream::open(&cluster.client_url(member)).await.unwrap();
    stream.create(pb::WatchCreateRequest { start_revision: from, ..watch::prefix("counter/") }).await;
    let (responses, _) = stream.until_progress().await;
    let mut seen: BTreeMap<usize, u64> = BTreeMap::new();
    for response in &responses {
        assert!(!response.canceled, "member {member}: {response:?}");
        for kv in response.events.iter().filter_map(|event| event.kv.as_ref()) {
            let client: usize = text(&kv.key).rsplit('/').next().unwrap().parse().unwrap();
            let count: u64 = text(&kv.value).parse().unwrap();
            let before = seen.insert(client, count);
            assert!(before.is_none_or(|before| before + 1 == count), "member {member}: {count} after {before:?}");
        }
    }
    assert!(from == 1 || !seen.is_empty(), "member {member} tells nothing since {from}");
    let mut ends = seen.into_iter().filter(|(client, last)| *last != counts[*client]);
    ends.next().map(|(client, last)| format!("member {member} tells {last} as the end of client {client}"))
}
