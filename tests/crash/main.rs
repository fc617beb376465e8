//! Ends a process at every fail point (`src/fail_points`), and verifies the state that the next
//! process finds (spec: etcd §8.4).
//!
//! A child process (this test binary again) runs a cluster of three, writes, and reports
//! acknowledged writes. At the n-th hit of a point it aborts, with all three members. The next
//! child starts on their data: everything that was acknowledged or delivered must be there,
//! complete, and nothing else; the members must be equal; and they must accept writes. Then that
//! child runs to the next point. So damage adds up over a chain of children.
//!
//! `HEADWATER_CRASH_SEED` (default 1) determines the order of the points and each n;
//! `HEADWATER_CRASH_POINTS` names the points, separated by commas (default: all).

// The whole program is a test; clippy knows only test functions.
#![allow(clippy::unwrap_used)]

#[path = "../it/certs.rs"]
#[allow(dead_code, unreachable_pub, reason = "shared with tests/it")]
mod certs;
mod child;
#[path = "../it/cluster.rs"]
#[allow(dead_code, unreachable_pub, unused_imports, reason = "shared with the tests of whole clusters")]
mod cluster;
mod load;
#[path = "../it/requests.rs"]
#[allow(dead_code, unreachable_pub, reason = "shared with the tests of whole clusters")]
mod requests;
#[path = "../it/settings.rs"]
#[allow(dead_code, unreachable_pub, reason = "shared with the tests of whole clusters")]
mod settings;
#[path = "../it/sockets.rs"]
#[allow(dead_code, unreachable_pub, reason = "shared with the tests of whole clusters")]
mod sockets;
mod verify;
#[path = "../it/waits.rs"]
#[allow(dead_code, unreachable_pub, reason = "shared with the tests of whole clusters")]
mod waits;
#[path = "../it/watch/client.rs"]
#[allow(dead_code, unreachable_pub, reason = "shared with the tests of watches")]
mod watch;

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};

use headwater_fail_points::Point;

/// Number of writing clients.
const CLIENTS: usize = 3;
/// Number of cases with [`Action::Abort`] at each point.
const ROUNDS: usize = 2;
/// Number of chains of children that run in parallel.
const CHAINS: usize = 2;
/// Longest time until a child reaches its point on a loaded machine.
const CHILD_MAX: Duration = Duration::from_secs(240);

/// Prefix that distinguishes a child's lines from those of the test harness.
const SAYS: &str = "@ ";

/// Action at a fail point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    /// The process aborts.
    Abort,
    /// The thread at the point panics; consensus must end, and the process with it.
    Panic,
    /// The thread at the point sleeps while others continue, then continues, too; later the process
    /// aborts, at another hit of the point.
    Delay,
}

/// The moment from which on hits of the point are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Since {
    /// The start of the child: it may end while it recovers from the end of the child before.
    Start,
    /// The end of the verification, when the load begins.
    Load,
}

/// The end of one child: the action at a hit of a fail point.
#[derive(Clone, Copy, Debug)]
struct Case {
    point: Point,
    action: Action,
    /// Number of the hit at which the action is taken, from 1.
    hit: u32,
    since: Since,
}

/// Points for panics, in order: on openraft's core task, on its state machine's task, on the thread
/// that writes the log, and on a thread that installs a snapshot.
const PANICS: [Point; 4] = [Point::LogPurge, Point::StateCommit, Point::LogWrite, Point::InstallSwitch];

/// Points for delays: at writes to disk, at changes of the membership, and where events were read
/// and not yet sent.
const DELAYS: [Point; 6] = [
    Point::LogWrite,
    Point::LogSynced,
    Point::StateCommit,
    Point::MembershipApply,
    Point::WatchSend,
    Point::CatchUpRead,
];

/// Largest number of the hit at which the action is taken. It is small for points that are hit
/// seldom.
fn hits_max(point: Point) -> u32 {
    use Point as P;
    match point {
        P::LogTruncate | P::LogTruncated => 1,
        P::MembershipApply
        | P::LeaseExpire
        | P::InstallRename
        | P::InstallRenamed
        | P::InstallOpened
        | P::InstallSwitch
        | P::InstallSwitched
        | P::InstallPublished
        | P::SnapshotOffered
        | P::SnapshotReceived
        | P::LogConvert
        | P::LogConverted => 2,
        P::LogPurge
        | P::LogPurged
        | P::LogReclaim
        | P::LogReclaimed
        | P::LogSegment
        | P::StateReclaim
        | P::StateReclaimed
        | P::SnapshotCheckpoint
        | P::SnapshotBuilt
        | P::CatchUpRead
        | P::CatchUpAnswer => 5,
        P::SnapshotChunkSent | P::SnapshotChunkReceived | P::SnapshotFileReceived => 10,
        P::LogWrite
        | P::LogSynced
        | P::LogMarked
        | P::StateCommit
        | P::StateCommitted
        | P::StatePublished
        | P::LeaderSend
        | P::FollowerAnswer
        | P::FollowerForward
        | P::WatchSend => 60,
    }
}

/// Least values of one client's counter that a child must find, from all children so far.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// Highest value that was acknowledged to the client, or that a child found.
    acknowledged: u64,
    /// Highest value that a watcher received.
    watched: u64,
}

/// One data directory of a cluster, and the children that run on it, one after the other.
struct Chain {
    dir: PathBuf,
    host: Ipv4Addr,
    known: [Known; CLIENTS],
    /// Successful verifications, count.
    verified: usize,
}

/// Kills the child when the test drops this value.
struct Guard(Child);

impl Drop for Guard {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ended = self.0.kill().is_err();
        let _waited = self.0.wait().is_err();
    }
}

impl Chain {
    fn new(number: usize, dir: &Path) -> Self {
        let [high, low] = (std::process::id() as u16).to_be_bytes();
        // Each chain has a loopback address of its own, so that its fixed ports do not collide.
        let host = Ipv4Addr::new(127, 100 + number as u8, high, low.max(1));
        let dir = dir.join(number.to_string());
        std::fs::create_dir_all(&dir).unwrap();
        Self { dir, host, known: Default::default(), verified: 0 }
    }

    /// Runs one child to its end. Without a case the child verifies, takes some writes, verifies
    /// again, and exits.
    fn run(&mut self, case: Option<Case>) {
        let stderr_path = self.dir.join("stderr");
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["child::plays_its_part", "--exact", "--nocapture", "--test-threads=1"])
            .env(child::DIR, &self.dir)
            .env(child::HOST, self.host.to_string())
            .env("RUST_BACKTRACE", "0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(&stderr_path).unwrap());
        if let Some(Case { point, action, hit, since }) = case {
            command.env(child::CASE, format!("{} {action:?} {hit} {since:?}", point.name()));
        }
        let mut child = Guard(command.spawn().unwrap());
        let lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
        let mut said = Vec::new();
        for line in lines {
            let Ok(line) = line else { break };
            let Some((_, line)) = line.split_once(SAYS) else { continue };
            self.record(line, &case);
            if !line.starts_with("acknowledged") && !line.starts_with("watched") {
                said.push(line.to_owned());
            }
        }
        let status = child.0.wait().unwrap();
        let as_it_should = match case {
            None => status.success() && said.last().is_some_and(|last| last == "end"),
            Some(_) => said.last().is_some_and(|last| last == "abort"),
        };
        if !as_it_should {
            let stderr = std::fs::read_to_string(&stderr_path).unwrap_or_default();
            let (from, bytes) = (stderr.len().saturating_sub(4000), stderr.as_bytes());
            panic!("{case:?} ended with {status} after {said:?}:\n{}", String::from_utf8_lossy(&bytes[from..]));
        }
    }

    fn record(&mut self, line: &str, case: &Option<Case>) {
        let mut words = line.split(' ');
        let (what, mut number) = (words.next().unwrap(), || words.next().unwrap().parse::<u64>().unwrap());
        match what {
            "acknowledged" | "watched" | "found" => {
                let (client, count) = (number() as usize, number());
                let known = &mut self.known[client];
                match what {
                    "acknowledged" => known.acknowledged = known.acknowledged.max(count),
                    "watched" => known.watched = known.watched.max(count),
                    _ => {
                        assert!(
                            count >= known.acknowledged.max(known.watched),
                            "of client {client} {known:?} was known, and {count} is there, before {case:?}"
                        );
                        assert!(
                            count <= known.acknowledged + 1,
                            "client {client} wrote {known:?}, and {count} is there"
                        );
                        known.acknowledged = count;
                    }
                }
            }
            "verified" => self.verified += 1,
            _ => {}
        }
    }
}

fn seed() -> u64 {
    std::env::var("HEADWATER_CRASH_SEED").map_or(1, |seed| seed.parse().expect("HEADWATER_CRASH_SEED is a number"))
}

/// All cases in a random order, divided among the chains.
fn cases(rng: &mut SmallRng) -> Vec<Vec<Case>> {
    let only = std::env::var("HEADWATER_CRASH_POINTS").ok();
    let is_wanted = |point: Point| only.as_ref().is_none_or(|only| only.split(',').any(|name| name == point.name()));
    let points: Vec<Point> = Point::ALL.iter().copied().filter(|point| is_wanted(*point)).collect();
    assert!(!points.is_empty(), "no such point: {only:?}");
    let mut cases = Vec::new();
    for point in points {
        for round in 0..ROUNDS {
            let since = if round == 0 { Since::Load } else { Since::Start };
            cases.push(Case { point, action: Action::Abort, hit: rng.random_range(1..=hits_max(point)), since });
        }
        if PANICS.contains(&point) {
            cases.push(Case { point, action: Action::Panic, hit: 1, since: Since::Load });
        }
        if DELAYS.contains(&point) {
            let hit = rng.random_range(1..=hits_max(point));
            cases.push(Case { point, action: Action::Delay, hit, since: Since::Load });
        }
    }
    cases.shuffle(rng);
    let each = cases.len().div_ceil(CHAINS);
    cases.chunks(each).map(<[Case]>::to_vec).collect()
}

#[test]
fn nothing_is_lost_at_any_fail_point() {
    let (seed, began) = (seed(), Instant::now());
    let mut rng = SmallRng::seed_from_u64(seed);
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    println!("seed {seed}");
    std::thread::scope(|scope| {
        for (number, cases) in cases(&mut rng).into_iter().enumerate() {
            let dir = dir.path();
            scope.spawn(move || {
                let mut chain = Chain::new(number, dir);
                for case in &cases {
                    let began = Instant::now();
                    chain.run(Some(*case));
                    println!("{case:?} after {:.1} s", began.elapsed().as_secs_f64());
                }
                chain.run(None);
                assert!(chain.verified > cases.len() / 2, "looked at only {} times", chain.verified);
                println!("chain {number}: {:?}", chain.known);
            });
        }
    });
    println!("{:.1} s", began.elapsed().as_secs_f64());
}
