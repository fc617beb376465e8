//! Bytes between members are lost or changed, which a middlebox may do and TCP never does. No
//! member takes over damaged data, and every member recovers by itself.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use headwater::raft::Timing;
use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

use crate::cluster::{Cluster, Settings, get, get_local, put, wait_until, within};

/// Length of the header of an HTTP/2 frame.
const FRAME_HEAD_BYTES: usize = 9;
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The type of HTTP/2 frames that carry messages.
const DATA: u8 = 0;

/// The damage that a proxy does to the bytes of its clients, on their way to the member.
enum Damage {
    None,
    /// The next DATA frame with this text loses the first byte of its content. The length in its
    /// header is corrected. Happens once.
    LoseOneByte(&'static [u8]),
    /// Replaces the first text by the second in the next DATA frame that contains the first.
    /// Happens once. Both texts have the same length.
    Change(&'static [u8], &'static [u8]),
    /// Every DATA frame with this text is dropped.
    Swallow(&'static [u8]),
    /// Random parts of the bytes are dropped, half of them on average. Unlike all other damage, in
    /// both directions.
    LoseHalf(Box<SmallRng>),
}

/// A proxy in front of the peer port of one member. `done` counts the damage done so far.
struct Proxy {
    address: SocketAddr,
    damage: Arc<Mutex<Damage>>,
    done: Arc<AtomicUsize>,
}

impl Proxy {
    async fn before(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (damage, done) = (Arc::new(Mutex::new(Damage::None)), Arc::new(AtomicUsize::new(0)));
        let (there, count) = (Arc::clone(&damage), Arc::clone(&done));
        tokio::spawn(async move {
            while let Ok((inbound, _)) = listener.accept().await {
                let (damage, done) = (Arc::clone(&there), Arc::clone(&count));
                tokio::spawn(async move {
                    let Ok(outbound) = TcpStream::connect(target).await else { return };
                    drop((inbound.set_nodelay(true), outbound.set_nodelay(true)));
                    let (in_read, in_write) = inbound.into_split();
                    let (out_read, out_write) = outbound.into_split();
                    let (back, counted) = (Arc::clone(&damage), Arc::clone(&done));
                    tokio::select! {
                        () = carry_frames(in_read, out_write, damage, done) => {}
                        () = carry_back(out_read, in_write, back, counted) => {}
                    }
                });
            }
        });
        Self { address, damage, done }
    }

    fn set(&self, damage: Damage) {
        *self.damage.lock() = damage;
    }

    /// How often damage was done so far.
    fn done(&self) -> usize {
        self.done.load(Ordering::Relaxed)
    }
}

/// Forwards a client's bytes frame by frame, so that single frames can be damaged.
async fn carry_frames(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    damage: Arc<Mutex<Damage>>,
    done: Arc<AtomicUsize>,
) {
    let (mut waiting, mut chunk, mut begun) = (Vec::new(), vec![0; 64 * 1024], false);
    loop {
        let Ok(length @ 1..) = from.read(&mut chunk).await else { return };
        waiting.extend_from_slice(&chunk[..length]);
        let mut out = Vec::new();
        if !begun && waiting.len() >= PREFACE.len() {
            out.extend(waiting.drain(..PREFACE.len()));
            begun = true;
        }
        while begun && waiting.len() >= FRAME_HEAD_BYTES {
            let length = u32::from_be_bytes([0, waiting[0], waiting[1], waiting[2]]) as usize;
            if waiting.len() < FRAME_HEAD_BYTES + length {
                break;
            }
            let frame: Vec<u8> = waiting.drain(..FRAME_HEAD_BYTES + length).collect();
            out.extend(damage_frame(frame, &mut damage.lock(), &done));
        }
        if to.write_all(&out).await.is_err() {
            return;
        }
    }
}

fn damage_frame(mut frame: Vec<u8>, damage: &mut Damage, done: &AtomicUsize) -> Vec<u8> {
    let find = |text: &[u8]| frame.windows(text.len()).position(|found| found == text);
    let is_data = frame[3] == DATA;
    match damage {
        Damage::LoseOneByte(text) if is_data && find(text).is_some() => {
            frame.remove(FRAME_HEAD_BYTES);
            let length = (frame.len() - FRAME_HEAD_BYTES) as u32;
            frame[..3].copy_from_slice(&length.to_be_bytes()[1..]);
            *damage = Damage::None;
        }
        Damage::Change(text, other) => {
            let Some(at) = find(text).filter(|_| is_data) else { return frame };
            frame[at..at + other.len()].copy_from_slice(other);
            *damage = Damage::None;
        }
        Damage::Swallow(text) if is_data && find(text).is_some() => frame.clear(),
        Damage::LoseHalf(dice) => frame = lose_half(&frame, dice),
        Damage::None | Damage::LoseOneByte(_) | Damage::Swallow(_) => return frame,
    }
    done.fetch_add(1, Ordering::Relaxed);
    frame
}

async fn carry_back(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    damage: Arc<Mutex<Damage>>,
    done: Arc<AtomicUsize>,
) {
    let mut chunk = vec![0; 64 * 1024];
    loop {
        let Ok(length @ 1..) = from.read(&mut chunk).await else { return };
        let out = match &mut *damage.lock() {
            Damage::LoseHalf(dice) => {
                done.fetch_add(1, Ordering::Relaxed);
                lose_half(&chunk[..length], dice)
            }
            _ => chunk[..length].to_vec(),
        };
        if to.write_all(&out).await.is_err() {
            return;
        }
    }
}

/// The bytes that are not dropped, by chance: all of them, none, or random parts.
fn lose_half(bytes: &[u8], dice: &mut SmallRng) -> Vec<u8> {
    if dice.random_bool(0.5) {
        return if dice.random_bool(0.5) { bytes.to_vec() } else { Vec::new() };
    }
    let (mut kept, mut rest) = (Vec::new(), bytes);
    while !rest.is_empty() {
        let (chunk, others) = rest.split_at(rest.len().min(1 << dice.random_range(0..13)));
        if dice.random_bool(0.5) {
            kept.extend_from_slice(chunk);
        }
        rest = others;
    }
    kept
}

/// A cluster with a proxy in front of each member's peer port. Members reach each other through
/// these.
async fn through_proxies() -> (Cluster, Vec<Proxy>) {
    let timing = Timing {
        heartbeat: Duration::from_millis(100),
        election_min: Duration::from_millis(400),
        election_max: Duration::from_millis(700),
    };
    let proxies = Arc::new(tokio::sync::Mutex::new(Vec::new()));
    let made = Arc::clone(&proxies);
    let settings = Settings { timing, ..Settings::default() };
    let cluster = Cluster::start_through(settings, async move |peer| {
        let proxy = Proxy::before(peer).await;
        let address = proxy.address;
        made.lock().await.push(proxy);
        address
    })
    .await;
    let proxies = std::mem::take(&mut *proxies.lock().await);
    (cluster, proxies)
}

/// Waits until a serializable read at a member finds this value.
async fn has(cluster: &Cluster, member: usize, key: &str, value: &str) {
    wait_until("the member has the value", async || {
        let mut kv = cluster.kv(member);
        let found = kv.range(get_local(key)).await.unwrap().into_inner().kvs;
        found.first().is_some_and(|pair| pair.value == value.as_bytes())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_that_waits_for_the_rest_of_a_message_is_not_waited_for() {
    let (cluster, proxies) = through_proxies().await;
    let (leader, follower) = (cluster.leader().await, cluster.follower().await);
    has_after_put(&cluster, leader, follower, "before").await;
    // The receiver takes other bytes for the length of the message, and waits for many kilobytes.
    proxies[follower].set(Damage::LoseOneByte(b"first-value"));
    cluster.kv(leader).put(put("first", "first-value")).await.unwrap();
    wait_until("the proxy has done damage", async || proxies[follower].done() == 1).await;
    let damaged = Instant::now();
    has(&cluster, follower, "first", "first-value").await;
    assert!(damaged.elapsed() < Duration::from_secs(20), "{:?}", damaged.elapsed());
    has_after_put(&cluster, leader, follower, "after").await;
}

async fn has_after_put(cluster: &Cluster, writer: usize, reader: usize, key: &str) {
    cluster.kv(writer).put(put(key, "v")).await.unwrap();
    has(cluster, reader, key, "v").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_waits_for_the_rest_of_a_proposal_is_not_waited_for() {
    let (cluster, proxies) = through_proxies().await;
    let (leader, follower) = (cluster.leader().await, cluster.follower().await);
    has_after_put(&cluster, follower, follower, "before").await;
    proxies[leader].set(Damage::LoseOneByte(b"lost-value"));
    // The outcome of the write is unknown. The answer must come in time.
    let asked = Instant::now();
    let lost = within("the write is answered", cluster.kv(follower).put(put("lost", "lost-value"))).await;
    assert!(lost.is_err(), "{lost:?}");
    assert!(asked.elapsed() < Duration::from_secs(25), "{:?}", asked.elapsed());
    has_after_put(&cluster, follower, follower, "after").await;
    let read = within("a linearizable read", cluster.kv(follower).range(get("after"))).await.unwrap();
    assert_eq!(read.into_inner().kvs.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_entry_is_not_believed() {
    let (cluster, proxies) = through_proxies().await;
    let (leader, follower) = (cluster.leader().await, cluster.follower().await);
    has_after_put(&cluster, leader, follower, "before").await;
    proxies[follower].set(Damage::Change(b"true-value", b"fake-value"));
    cluster.kv(leader).put(put("key", "true-value")).await.unwrap();
    wait_until("the proxy has done damage", async || proxies[follower].done() == 1).await;
    has(&cluster, follower, "key", "true-value").await;
    let hashes = cluster.hashes().await;
    assert!(hashes.windows(2).all(|pair| pair[0] == pair[1]), "{hashes:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_proposal_is_not_believed() {
    let (cluster, proxies) = through_proxies().await;
    let (leader, follower) = (cluster.leader().await, cluster.follower().await);
    has_after_put(&cluster, follower, follower, "before").await;
    proxies[leader].set(Damage::Change(b"true-value", b"fake-value"));
    let changed = within("the write is answered", cluster.kv(follower).put(put("key", "true-value"))).await;
    wait_until("the proxy has done damage", async || proxies[leader].done() == 1).await;
    assert!(changed.is_err(), "{changed:?}");
    let found = cluster.kv(leader).range(get("key")).await.unwrap().into_inner().kvs;
    assert!(found.is_empty(), "{found:?}");
    has_after_put(&cluster, follower, follower, "after").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gap_that_no_entry_closes_is_closed_by_a_snapshot() {
    let (cluster, proxies) = through_proxies().await;
    let (leader, follower) = (cluster.leader().await, cluster.follower().await);
    has_after_put(&cluster, leader, follower, "before").await;
    // The bytes of key and value as they are in a log entry, but not in a snapshot.
    proxies[follower].set(Damage::Swallow(b"unloved\x12\x0bunliked-too"));
    cluster.kv(leader).put(put("unloved", "unliked-too")).await.unwrap();
    cluster.kv(leader).put(put("behind", "it")).await.unwrap();
    wait_until("the proxy has done damage again and again", async || proxies[follower].done() > 3).await;
    wait_until("the member is known to stand still", async || cluster.node(follower).stands_still().is_some()).await;
    has(&cluster, follower, "behind", "it").await;
    has(&cluster, follower, "unloved", "unliked-too").await;
    wait_until("the member moves again", async || cluster.node(follower).stands_still().is_none()).await;
    has_after_put(&cluster, leader, follower, "after").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn half_of_the_bytes_may_be_lost_for_a_second() {
    let (cluster, proxies) = through_proxies().await;
    for seed in 1..=4_u64 {
        let struck = if seed % 2 == 0 { vec![0, 1, 2] } else { vec![cluster.follower().await] };
        let mut acknowledged = Vec::new();
        for member in &struck {
            proxies[*member].set(Damage::LoseHalf(Box::new(SmallRng::seed_from_u64(seed + *member as u64))));
        }
        let end = Instant::now() + Duration::from_secs(1);
        let mut count = 0;
        while Instant::now() < end {
            count += 1;
            let (key, value) = (format!("half/{seed}/{count}"), format!("{count}-").repeat(1 + count * 37 % 3000));
            let mut kv = cluster.kv(count % 3);
            let put = kv.put(put(&*key, &*value));
            if let Ok(Ok(_)) = tokio::time::timeout(Duration::from_millis(200), put).await {
                acknowledged.push((key, value));
            }
        }
        for member in struck {
            proxies[member].set(Damage::None);
        }
        wait_until("every member takes writes", async || {
            for member in 0..3 {
                let mut kv = cluster.kv(member);
                let put = kv.put(put(format!("probe/{member}"), "v"));
                if !matches!(tokio::time::timeout(Duration::from_secs(2), put).await, Ok(Ok(_))) {
                    return false;
                }
            }
            true
        })
        .await;
        for (key, value) in acknowledged {
            for member in 0..3 {
                has(&cluster, member, &key, &value).await;
            }
        }
        let hashes = cluster.hashes().await;
        assert!(hashes.windows(2).all(|pair| pair[0] == pair[1]), "{hashes:?}");
    }
}
