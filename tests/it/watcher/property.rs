//! Random writes, removals and transactions through all members, while members crash and followers
//! reconnect. A follower that obeys the rules of the watcher's specification ends with the state of
//! a linearizable read.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use headwater::pb::etcdserverpb as etcd;
use headwater::pb::etcdserverpb::request_op::Request as Op;
use headwater::stream::FeedOptions;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::task::JoinSet;
use tonic::Code;

use super::cases::put_op;
use super::client::{Follower, Via, View};
use crate::cluster::{Cluster, Settings, within};

const FOLLOWERS: u64 = 16;
const ROUNDS: u64 = 300;
const PAUSE: Duration = Duration::from_millis(20);
/// Time without a change after which a follower checks whether the test is over.
const LOOK: Duration = Duration::from_millis(200);

/// A random key of a small tree. Some of its names sort between a key and the children of that key.
fn key(random: &mut StdRng) -> String {
    const PARTS: [&str; 5] = ["a", "b", "a-b", "c", "~"];
    let depth = random.random_range(1..=3);
    let parts: Vec<_> = (0..depth).map(|_| PARTS[random.random_range(0..PARTS.len())]).collect();
    format!("t/{}", parts.join("/"))
}

fn operation(random: &mut StdRng, number: u64) -> Op {
    let delete = |key: String, range_end: String| {
        Op::RequestDeleteRange(etcd::DeleteRangeRequest {
            key: key.into(),
            range_end: range_end.into(),
            ..Default::default()
        })
    };
    let key = key(random);
    match random.random_range(0..10) {
        0..6 => put_op(key, &number.to_string()),
        6..8 => delete(key, String::new()),
        // A subtree without its root; or with its root, and with all keys that sort between these.
        8 => delete(format!("{key}/"), format!("{key}0")),
        _ => delete(key.clone(), format!("{key}0")),
    }
}

/// Follows a part of the tree at random members until `over`, with a new stream and slow reads now
/// and then. Returns the target and the final state.
async fn follow(
    urls: Vec<String>,
    target: String,
    seed: u64,
    over: Arc<AtomicBool>,
) -> (String, BTreeMap<String, Option<Vec<u8>>>) {
    let mut random = StdRng::seed_from_u64(seed);
    let mut view = View::default();
    loop {
        let is_over = over.load(Ordering::Acquire);
        let url = &urls[random.random_range(0..urls.len())];
        let via = if random.random_bool(0.5) { Via::Grpc } else { Via::Http };
        view.cut_off();
        let reachable = tokio::net::TcpStream::connect(url.strip_prefix("http://").unwrap()).await.is_ok();
        let opened = if reachable {
            // A member may crash at any moment; then there is no stream.
            let (url, target, marker) = (url.clone(), target.clone(), view.marker.clone());
            tokio::spawn(async move { Follower::open(&url, via, &target, &marker).await }).await.ok()
        } else {
            None
        };
        let mut stream = match opened {
            Some(Ok(stream)) => stream,
            Some(Err(status)) if status.code() == Code::FailedPrecondition => {
                view = View::default();
                continue;
            }
            Some(Err(_)) | None => {
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        if view.marker.is_empty() {
            view = View::default();
        }
        let mut groups = random.random_range(1..60);
        let slow = random.random_bool(0.3);
        while groups > 0 {
            // There may be no more changes.
            match tokio::time::timeout(LOOK, stream.try_next()).await {
                Ok(Ok(Some(seen))) => {
                    if view.take(seen) {
                        groups -= 1;
                        if slow {
                            tokio::time::sleep(PAUSE).await;
                        }
                        // The first group of a stream that began after the end is complete.
                        if is_over {
                            return (target, view.elements);
                        }
                    }
                }
                Ok(Ok(None) | Err(_)) => break,
                Err(_) => {}
            }
            if over.load(Ordering::Acquire) && !is_over {
                break;
            }
        }
    }
}

/// The elements that a follower of `root` must have if these pairs exist; keys have their value.
fn tree(pairs: &BTreeMap<String, Vec<u8>>, root: &str, recursive: bool) -> BTreeMap<String, Option<Vec<u8>>> {
    use headwater::types::entity::{name_of, parent, relative};
    let mut tree = BTreeMap::new();
    for (key, value) in pairs {
        let name = name_of(key.as_bytes());
        let Some(element) = relative(&name, root) else { continue };
        let mut above = parent(element);
        while let Some(here) = above {
            tree.entry(here.to_owned()).or_insert(None);
            above = parent(here);
        }
        tree.insert(element.to_owned(), Some(value.clone()));
    }
    tree.retain(|name, _| recursive || !name.contains('/'));
    tree
}

async fn run(feed: FeedOptions, seed: u64) {
    let mut cluster = Cluster::start(Settings { feed, ..Settings::default() }).await;
    let urls: Vec<_> = (0..3).map(|index| cluster.client_url(index)).collect();
    let over = Arc::new(AtomicBool::new(false));
    let mut followers = JoinSet::new();
    for number in 0..FOLLOWERS {
        let root = ["t", "t/a", "t/b/a", "t/~~"][number as usize % 4];
        let target = format!("/kv/{root}?recursive={}", number % 8 < 4);
        followers.spawn(follow(urls.clone(), target, seed + number, over.clone()));
    }
    let mut random = StdRng::seed_from_u64(seed);
    for round in 0..ROUNDS {
        let running: Vec<_> = cluster.running().collect();
        let mut kv = cluster.kv(running[random.random_range(0..running.len())]);
        let operations = if random.random_bool(0.3) { random.random_range(2..5) } else { 1 };
        let success =
            (0..operations).map(|_| etcd::RequestOp { request: Some(operation(&mut random, round)) }).collect();
        // A transaction that names a key twice is refused, and one may be lost with its leader.
        let _refused = kv.txn(etcd::TxnRequest { success, ..Default::default() }).await.is_err();
        if round % 100 == 50 {
            let index = running[random.random_range(0..running.len())];
            cluster.crash(index).await;
            cluster.restart(index).await;
            cluster.wait_healthy().await;
        }
        if round % 60 == 59
            && let Ok(answer) = kv.range(crate::cluster::get("any")).await
        {
            let revision = answer.into_inner().header.unwrap().revision;
            let _refused = kv.compact(etcd::CompactionRequest { revision, physical: false }).await.is_err();
        }
    }
    cluster.wait_healthy().await;
    let mut kv = cluster.kv(0);
    let everything = etcd::RangeRequest { key: "t".into(), range_end: "u".into(), ..Default::default() };
    let pairs = kv.range(everything).await.unwrap().into_inner().kvs;
    let pairs = pairs.into_iter().map(|kv| (String::from_utf8(kv.key.to_vec()).unwrap(), kv.value.to_vec())).collect();
    over.store(true, Ordering::Release);
    while let Some(ended) = within("every follower reaches the end", followers.join_next()).await {
        let (target, seen) = ended.unwrap();
        let (root, recursive) = target.strip_prefix("/kv/").unwrap().split_once("?recursive=").unwrap();
        assert_eq!(seen, tree(&pairs, root, recursive == "true"), "{target}, seed {seed}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_follower_ends_with_the_state() {
    run(FeedOptions::default(), 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_follower_ends_with_the_state_though_the_window_is_too_small() {
    run(FeedOptions { window_items_max: 2, ..FeedOptions::default() }, 1000).await;
}
