//! The child process, which ends at a fail point: a cluster of three on the data that the previous
//! child left, and its clients. A child without a case takes some writes, verifies again, and
//! exits.

use std::net::IpAddr;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use futures::FutureExt;
use headwater::node::LeaseClock;
use headwater::raft::{Consensus, Timing};

use super::cluster::{Cluster, Settings};
use super::load::{self, Part};
use super::{Action, CHILD_MAX, Case, SAYS, Since, verify};
use headwater_fail_points::Point;

/// Environment variable with the directory of the members' data.
pub(super) const DIR: &str = "HEADWATER_CRASH_DIR";
/// Environment variable with the IP address of all members.
pub(super) const HOST: &str = "HEADWATER_CRASH_HOST";
/// Environment variable with the case (`Case`) as text: name of the point, action, number of the
/// hit, and the moment from which on hits are counted (`Since`).
pub(super) const CASE: &str = "HEADWATER_CRASH_CASE";

/// Length of [`Action::Delay`]: longer than an election takes.
const DELAY: Duration = Duration::from_secs(1);
/// Least time between the end of a delay and the abort of the process, which comes at the next hit
/// of the point.
const AFTER_DELAY: Duration = Duration::from_millis(300);

/// Longest time from the panic of a fail point to the end of the process.
const ABORT_MAX: Duration = Duration::from_secs(20);

/// Set when the fail point has panicked: then the end of consensus is expected.
static PANICKED: AtomicBool = AtomicBool::new(false);

/// Sends a line to the parent: prints it with the prefix [`SAYS`].
pub(super) fn say(what: std::fmt::Arguments<'_>) {
    println!("{SAYS}{what}");
}

fn abort() -> ! {
    say(format_args!("abort"));
    std::process::abort()
}

fn read_case(text: &str) -> Case {
    let mut words = text.split(' ');
    let mut word = || words.next().expect("four words");
    let name = word();
    let point = *Point::ALL.iter().find(|point| point.name() == name).expect("a point");
    let action = match word() {
        "Abort" => Action::Abort,
        "Panic" => Action::Panic,
        "Delay" => Action::Delay,
        other => panic!("{other} is no action"),
    };
    let hit = word().parse().expect("a number");
    let since = if word() == "Start" { Since::Start } else { Since::Load };
    Case { point, action, hit, since }
}

/// Arms the fail point of the case: at the hit that the case names, its action is carried out.
fn arm(case: Case) {
    let (hits, woken) = (AtomicU32::new(0), OnceLock::<Instant>::new());
    let act = move || {
        let hit = hits.fetch_add(1, Ordering::SeqCst) + 1;
        if woken.get().is_some_and(|at| at.elapsed() > AFTER_DELAY) {
            abort();
        }
        if hit != case.hit {
            return;
        }
        match case.action {
            Action::Abort => abort(),
            // Blocks the whole thread, not only its task, as a slow disk or a machine without
            // processor time does.
            Action::Delay => {
                std::thread::sleep(DELAY);
                woken.set(Instant::now()).expect("invariant: one hit is delayed");
            }
            Action::Panic => {
                PANICKED.store(true, Ordering::SeqCst);
                panic!("here the process of the test should end");
            }
        }
    };
    fail::cfg_callback(case.point.name(), act).expect("a point can be given something to do");
}

/// Ends the process when consensus ends after a panic, as the server does.
pub(super) fn follow_end(consensus: Consensus) {
    tokio::spawn(async move {
        let why = consensus.ended().await;
        if PANICKED.load(Ordering::SeqCst) {
            say(format_args!("consensus ended: {why}"));
            abort();
        }
    });
}

fn settings() -> Settings {
    Settings {
        snapshot_every: 100,
        keep: 30,
        timing: Timing {
            heartbeat: Duration::from_millis(50),
            election_min: Duration::from_millis(200),
            election_max: Duration::from_millis(400),
        },
        ..Settings::default()
    }
}

/// The body of a child process. Does nothing in an ordinary run of the tests, which lacks its
/// environment variables.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn plays_its_part() {
    let Ok(dir) = std::env::var(DIR) else { return };
    let host: IpAddr = std::env::var(HOST).unwrap().parse().unwrap();
    let case = std::env::var(CASE).ok().map(|text| read_case(&text));
    let lived = AssertUnwindSafe(live(dir.into(), host, case)).catch_unwind();
    let lived = tokio::time::timeout(CHILD_MAX, lived).await.expect("the point is come to in time");
    if let Err(panicked) = lived {
        if PANICKED.load(Ordering::SeqCst) {
            // A wait for the cluster may notice the end of consensus before `follow_end`, which
            // ends this process.
            let _ended = tokio::time::timeout(ABORT_MAX, std::future::pending::<()>()).await;
        }
        std::panic::resume_unwind(panicked);
    }
    say(format_args!("end"));
}

async fn live(dir: PathBuf, host: IpAddr, case: Option<Case>) {
    if let Some(case) = case.filter(|case| case.since == Since::Start) {
        arm(case);
    }
    let (clock, hand) = LeaseClock::by_hand();
    let mut cluster = Cluster::start_again(settings(), clock, dir, host).await;
    for member in 0..3 {
        follow_end(cluster.node(member).consensus().clone());
    }
    let counts = verify::check(&cluster).await;
    if let Some(case) = case.filter(|case| case.since == Since::Load) {
        arm(case);
    }
    let mut load = load::start(&cluster, counts, hand);
    match case {
        Some(case) => {
            let part = load::play(&mut cluster, Part::of(case.point));
            tokio::select! {
                () = part => unreachable!("a part goes on until the point is come to"),
                ended = load.join_next() => panic!("a client has ended: {ended:?}"),
            }
        }
        None => {
            super::cluster::wait_until("it takes writes", async || load::WRITES.load(Ordering::SeqCst) > 30).await;
            load.shutdown().await;
            let _counts = verify::check(&cluster).await;
        }
    }
}
