//! One run from the first process to the verdict.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, bail};
use futures::FutureExt;
use headwater_proto::pb::etcdserverpb::LeaseLeasesRequest;
use headwater_proto::pb::etcdserverpb::lease_client::LeaseClient;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::args::Plan;
use crate::check::elections::Loss;
use crate::check::outage::Window;
use crate::check::usage::Usage;
use crate::check::{Finding, Findings};
use crate::client::Target;
use crate::commit::CommitEvidence;
use crate::fault::{self, Fault, Need, Scene, Skipped};
use crate::finish::finish;
use crate::hashes;
use crate::history::{Answer, Body, Clock, Freshness, HISTORY, Outcome, Recorder, Request, WatchLog};
use crate::raft_log::{self, LogEntry};
use crate::report::{Evidence, Verdict};
use crate::resource::{self, StoredResource};
use crate::retry_budget::{RetryBudget, retry, within};
use crate::rig::net::Kind as Network;
use crate::rig::{Rig, RigOptions, tool};
use crate::siege;
use crate::work::{Control, Lab, REQUEST_TIMEOUT, catalog, commit, set, watch};

/// Length of the phase before the first fault, in which the rate of answers is measured: the
/// cluster is whole.
const WARM_UP: Duration = Duration::from_secs(6);
/// Most measurements of the rate, of which the best counts: the machine may be busy.
const WARM_UPS_MAX: usize = 5;
/// Least answered requests a second before the first fault: a run with fewer is rejected.
const RATE_MIN: f64 = 100.0;
/// The same for a run with `--control`: it has few workloads, and often another run beside it.
const RATE_CONTROL_MIN: f64 = 10.0;
/// Most attempts to inject a fault that is not possible at the moment. Then the next fault follows.
const TRIES_MAX: usize = 3;
/// Longest time of one fault, with its healing and the wait until all nodes serve.
const FAULT_MAX: Duration = Duration::from_secs(240);
/// Bound of each wait after everything was healed, such as for the last leases, or until watchers
/// have caught up.
const SETTLE_MAX: Duration = Duration::from_secs(60);
/// The same for views: their longest pause between two attempts, two minutes with its jitter, and
/// their longest wait for the answer that opens the stream.
const VIEWS_SETTLE_MAX: Duration = Duration::from_secs(155);
/// The same for watchers, views and histories of a run with `--control`, in which lost data never
/// arrives. Also for views and histories after a watcher has not seen everything in time.
const SETTLE_CONTROL_MAX: Duration = Duration::from_secs(5);
const SAMPLE: Duration = Duration::from_secs(1);
/// Unit of the factor by which clients of a long run pause longer ([`pace`]): a run of twice this
/// length has twice the pauses.
const UNHURRIED: Duration = Duration::from_secs(600);
/// Highest factor of the pauses: [`RATE_MIN`] must still be reached.
const PACE_MAX: u64 = 4;
/// Log entries that nodes keep behind a snapshot: so few that a node needs a snapshot after a short
/// absence.
const LOG_KEEP: &str = "500";
/// The same with `--whole-log`: all entries.
const LOG_KEEP_WHOLE: &str = "1000000000";
/// Further arguments of every node: frequent snapshots and small buffers. History is dropped only
/// on request: otherwise lost history could not be distinguished from expired history.
const ARGUMENTS: &[&str] = &[
    "--history-retention",
    "off",
    "--raft-snapshot-every",
    "1000",
    "--watch-progress-interval",
    "500ms",
    "--storage-state-memtable",
    "1MiB",
    "--storage-log-memtable",
    "1MiB",
    "--log-level",
    "info",
];

/// Makes the run, from the first process to the verdict.
///
/// # Errors
///
/// The reason why the run could not be made. Violations by the cluster are no error: they are in
/// the verdict.
pub(crate) async fn run(plan: &Plan, mut signals: Signals) -> anyhow::Result<Verdict> {
    std::fs::create_dir_all(&plan.dir).with_context(|| plan.dir.display().to_string())?;
    println!("seed {}, evidence in {}", plan.seed, plan.dir.display());
    println!("again: {}", plan.again);
    if plan.control.is_some() {
        println!("made worse on purpose: the verdict must be FAIL");
    }
    for (name, why) in &plan.skipped {
        println!("skipped: {name}: {why}");
    }
    if plan.faults.is_empty() {
        bail!("none of the faults can run here");
    }
    let clock = Clock::start();
    let rig = Rig::make(options(plan, clock)).await?;
    let judged = tokio::select! {
        biased;
        why = signals.received() => Ok(Verdict::Fail(format!("{why}, nothing was judged"))),
        // A panic of this program must not leave mounts and networks behind either.
        judged = AssertUnwindSafe(with_rig(plan, &rig, clock)).catch_unwind() => {
            judged.unwrap_or_else(|_| Err(anyhow::anyhow!("this program has a defect; it is told above")))
        }
    };
    // A failed run keeps everything as evidence; a control fails on purpose.
    let failed = !judged.as_ref().is_ok_and(Verdict::passed);
    rig.stop(plan.keep_data || failed && plan.control.is_none()).await;
    judged
}

/// The signals that end a run early.
pub(crate) struct Signals([Signal; 3]);

impl Signals {
    /// Listens from now on; must be called in the runtime.
    pub(crate) fn new() -> std::io::Result<Self> {
        Ok(Self([signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?, signal(SignalKind::hangup())?]))
    }

    /// Waits for a signal; one that came since [`Self::new`] counts. Returns the reason, in words
    /// for the verdict.
    async fn received(&mut self) -> &'static str {
        let [interrupt, terminate, hangup] = &mut self.0;
        tokio::select! {
            _ = interrupt.recv() => "interrupted",
            _ = terminate.recv() => "told to stop",
            _ = hangup.recv() => "the terminal is gone",
        }
    }
}

fn options(plan: &Plan, clock: Clock) -> RigOptions {
    let needs =
        |need| plan.faults.iter().filter_map(|name| fault::named(name)).flatten().any(|fault| fault.needs(need));
    let network = if needs(Need::Proxies) || needs(Need::Network) && plan.proxies {
        Network::Proxies
    } else if needs(Need::Network) {
        fault::network()
    } else {
        Network::Loopback
    };
    let preload = match plan.control {
        Some(Control::NoFsync) => tool::library("libeatmydata.so")
            .map(|path| ("LD_PRELOAD".to_owned(), path.display().to_string()))
            .into_iter()
            .collect(),
        _ => Vec::new(),
    };
    RigOptions {
        binary: plan.binary.clone(),
        next: plan.next.clone(),
        dir: plan.dir.clone(),
        nodes: plan.nodes,
        first_port: plan.first_port,
        volumes: needs(Need::Volume),
        network,
        tls: plan.tls,
        auth: plan.auth,
        preload,
        arguments: [ARGUMENTS, &["--raft-log-keep", if plan.whole_log { LOG_KEEP_WHOLE } else { LOG_KEEP }]]
            .concat()
            .into_iter()
            .map(str::to_owned)
            .collect(),
        clock,
    }
}

async fn with_rig(plan: &Plan, rig: &Rig, clock: Clock) -> anyhow::Result<Verdict> {
    rig.start().await?;
    rig.enable_auth().await?;
    let recorder = Arc::new(Recorder::create(clock, &plan.dir.join(HISTORY))?);
    let lab = Lab {
        targets: rig.nodes.iter().map(|node| node.target.clone()).collect(),
        recorder: recorder.clone(),
        stop: CancellationToken::new(),
        control: plan.control,
        seed: plan.seed,
        pace: pace(plan.duration),
        watchers: watch::Watchers::default(),
        views: catalog::Views::default(),
        values: Arc::default(),
        deeds: Arc::default(),
        commits: Arc::default(),
        rights: Arc::default(),
        compacted: Arc::default(),
        compactions: Arc::default(),
    };
    watch::start_collectors(&lab);
    let mut clients = JoinSet::new();
    for name in &plan.workloads {
        lab.start(name, &mut clients);
    }
    crate::work::probe::start(&lab, &mut clients);

    let rate_min = if plan.control.is_some() { RATE_CONTROL_MIN } else { RATE_MIN };
    let mut rate: f64 = 0.0;
    for _ in 0..WARM_UPS_MAX {
        rate = rate.max(warm_up(plan, rig, &recorder).await);
        if rate >= rate_min {
            break;
        }
    }
    let shown_before = lab.views.changes();

    let usage = Mutex::new(Usage::default());
    let mut struck = FaultResults::default();
    let mut enemy = None;
    if rate >= rate_min {
        if plan.enemy {
            enemy = Some(siege::begin(plan, rig).await?);
        }
        tokio::select! {
            () = sample(rig, &usage) => {}
            () = strike_all(plan, rig, &lab, &mut struck) => {}
        }
    }
    let mut findings = struck.findings;
    let healed = heal_all(rig).await;
    let siege = match enemy {
        Some(enemy) => Some(siege::end(enemy, rig).await),
        None => None,
    };
    if let Err(error) = healed {
        findings.add(Finding::new("the cluster did not come back after everything was healed", format!("{error:#}")));
    }
    let whole = findings.count == 0;
    // A pause with everything healed, so that the recovery is part of the history.
    tokio::time::sleep(Duration::from_secs(2)).await;
    lab.stop.cancel();
    while let Some(ended) = clients.join_next().await {
        if let Err(error) = ended {
            findings.add(Finding::new("a client of this program has a defect", error.to_string()));
        }
    }
    let mut settled = match whole {
        true => settle(rig, &lab, &mut findings).await,
        false => FinalState::default(),
    };
    lab.watchers.stop();
    lab.views.stop();
    if whole {
        settled.raft_logs = raft_logs(rig, &mut findings).await;
    }
    let evidence = Evidence {
        plan,
        rate,
        rate_min,
        records: recorder.snapshot(),
        watchers: lab.watchers.logs(),
        short_watches: lab.watchers.short(),
        ground: lab.watchers.ground(),
        pasts: settled.pasts,
        until: settled.until,
        sets: settled.sets,
        views: settled.views,
        shown_before,
        leases: settled.leases,
        deeds: lab.deeds.snapshot(),
        commits: settled.commits,
        rights: lab.rights.snapshot(),
        compacted: lab.compacted.load(Ordering::Relaxed),
        compactions: lab.compactions.load(Ordering::Relaxed),
        resources: settled.resources,
        raft_logs: settled.raft_logs,
        incarnations: rig.incarnations(),
        windows: struck.windows,
        vain: struck.vain,
        moments: struck.moments,
        losses: struck.losses,
        marks: rig.marks(),
        usage: usage.into_inner(),
        siege,
        ends: clock.now(),
        findings,
    };
    tokio::task::block_in_place(|| evidence.judge())
}

/// Waits for [`WARM_UP`] and prints the rates of that time; returns the answered requests a second.
async fn warm_up(plan: &Plan, rig: &Rig, recorder: &Recorder) -> f64 {
    let (before, began) = (recorder.count(), rig.clock.now());
    tokio::time::sleep(WARM_UP).await;
    let (after, took) = (recorder.count(), (rig.clock.now() - began) as f64 / 1e6);
    let asked = (after.asked - before.asked) as f64 / took;
    let rate = (after.answered - before.answered) as f64 / took;
    let (nodes, network) = (plan.nodes, rig.net.kind());
    println!(
        "{asked:.0} requests a second before the first fault, {rate:.0} of them answered, {nodes} nodes, {network:?}"
    );
    rate
}

/// Factor of the clients' pauses, from 1 to [`PACE_MAX`]: a long run must not have too many
/// records, which are all in memory until the verdict, about a gigabyte for each million requests.
fn pace(duration: Duration) -> u32 {
    (duration.as_secs() / UNHURRIED.as_secs()).clamp(1, PACE_MAX) as u32
}

struct FaultResults {
    windows: Vec<Window>,
    /// Planned moves of leadership within the windows. The checker has bounds of their own for
    /// them.
    moments: Vec<Window>,
    losses: Vec<Loss>,
    /// By fault: the reason for which it was last skipped. Stays if a later attempt succeeds.
    vain: BTreeMap<&'static str, String>,
    findings: Findings,
}

impl Default for FaultResults {
    fn default() -> Self {
        Self {
            windows: Vec::new(),
            moments: Vec::new(),
            losses: Vec::new(),
            vain: BTreeMap::new(),
            findings: Findings::new("faults"),
        }
    }
}

/// Injects the faults of the plan in random orders, by the seed, until `plan.duration` is over. The
/// first round is always finished. Returns early if a fault fails, or the cluster does not recover
/// from it.
async fn strike_all(plan: &Plan, rig: &Rig, lab: &Lab, struck: &mut FaultResults) {
    let mut rng = StdRng::seed_from_u64(plan.seed);
    let give_up = tokio::time::Instant::now() + plan.duration;
    for round in 0.. {
        let mut names = plan.faults.clone();
        names.shuffle(&mut rng);
        for name in names {
            if tokio::time::Instant::now() > give_up && round > 0 {
                return;
            }
            let Some(fault) = fault::named(name).and_then(|found| found.first().copied()) else { continue };
            // A quarter of the pauses are long, so that a late effect of a fault is not blamed on
            // the next one.
            let calm = if rng.random_range(0..4) == 0 { 4000..7000 } else { 800..2500 };
            let calm = Duration::from_millis(rng.random_range(calm));
            // The draws of a fault depend on the cluster's state, and must not change later draws.
            let mut own = StdRng::seed_from_u64(rng.random());
            for _ in 0..TRIES_MAX {
                match strike(fault, rig, lab, &mut own, struck).await {
                    ControlFlow::Continue(true) => break,
                    ControlFlow::Continue(false) => {}
                    ControlFlow::Break(()) => return,
                }
            }
            tokio::time::sleep(calm).await;
        }
    }
}

/// Injects one fault and heals it: `Continue(true)`. `Continue(false)` if the fault is not possible
/// at the moment; `Break` if it failed, or the cluster did not recover from it.
async fn strike(
    fault: &'static Fault,
    rig: &Rig,
    lab: &Lab,
    rng: &mut StdRng,
    struck: &mut FaultResults,
) -> ControlFlow<(), bool> {
    let (name, begin) = (fault.name, rig.clock.now());
    let mut scene = Scene { rig, lab, rng, moments: Vec::new(), losses: Vec::new() };
    let done = within(FAULT_MAX, fault.strike(&mut scene)).await;
    let healed = rig.clock.now();
    let at = begin as f64 / 1e6;
    let failed = match done {
        Some(Ok(())) => {
            println!("{at:7.1} s  {name}, all nodes serve again after {:.1} s", (healed - begin) as f64 / 1e6);
            struck.moments.append(&mut scene.moments);
            struck.losses.append(&mut scene.losses);
            struck.windows.push(Window { fault: name.to_owned(), begin, healed });
            return ControlFlow::Continue(true);
        }
        Some(Err(error)) if error.is::<Skipped>() => {
            println!("{at:7.1} s  {name}, not now: {error}");
            struck.vain.insert(name, error.to_string());
            return ControlFlow::Continue(false);
        }
        Some(Err(error)) => format!("{error:#}"),
        None => format!("not healed within {FAULT_MAX:?}"),
    };
    println!("{at:7.1} s  {name}: {failed}");
    struck.findings.add(Finding::new(format!("after {name}"), failed));
    ControlFlow::Break(())
}

async fn sample(rig: &Rig, usage: &Mutex<Usage>) {
    let mut ticks = tokio::time::interval(SAMPLE);
    loop {
        ticks.tick().await;
        let samples = (0..rig.nodes.len()).map(|node| rig.usage(node));
        usage.lock().add(rig.clock.now(), samples.collect());
    }
}

/// Heals everything that is still broken, starts ended nodes, and waits until every node serves and
/// votes.
async fn heal_all(rig: &Rig) -> anyhow::Result<()> {
    rig.net.heal().await?;
    rig.thaw().await;
    for node in &rig.nodes {
        node.resume();
        if !node.runs() {
            rig.launch(node.number)?;
        }
    }
    rig.wait_all_serving().await
}

/// The evidence that is read from the members after everything was healed.
#[derive(Default)]
struct FinalState {
    until: i64,
    pasts: Vec<WatchLog>,
    sets: Vec<(usize, BTreeSet<String>)>,
    views: Option<Findings>,
    leases: BTreeSet<i64>,
    commits: CommitEvidence,
    resources: Vec<(usize, Vec<StoredResource>)>,
    raft_logs: Vec<(usize, Vec<LogEntry>)>,
}

async fn settle(rig: &Rig, lab: &Lab, findings: &mut Findings) -> FinalState {
    let mut settled = FinalState::default();
    let (mut budget, mut views_budget) = match lab.control {
        Some(_) => (SETTLE_CONTROL_MAX, SETTLE_CONTROL_MAX),
        None => (SETTLE_MAX, VIEWS_SETTLE_MAX),
    };
    match leases_left(rig).await {
        Ok(left) => settled.leases = left,
        Err(error) => findings.add(Finding::new("leases could not be listed", format!("{error:#}"))),
    }
    for (node, target) in lab.targets.iter().enumerate() {
        match retry(|| elements(target)).await {
            Ok(found) => settled.sets.push((node, found)),
            Err(why) => findings
                .add(Finding::new("a read fails on a cluster that is whole", format!("node {}: {why}", node + 1))),
        }
    }
    // After the sets were read: the values written now are no elements.
    let finished = finish(lab).await;
    println!("{} keys written and read once more, {} requests failed", finished.keys, finished.failed.len());
    if finished.keys == 0 {
        findings.add(Finding::new("nothing was written in the end", "no workload has left a key".to_owned()));
    }
    settled.until = finished.revision;
    finished.failed.into_iter().for_each(|failed| findings.add(failed));
    if !lab.watchers.wait_for(settled.until, budget).await {
        println!("some watcher has not seen everything within {budget:?}");
        // The rest will not arrive either; each member is judged by its present state.
        (budget, views_budget) = (SETTLE_CONTROL_MAX, SETTLE_CONTROL_MAX);
    }
    settled.views = Some(lab.views.settle(&lab.targets, views_budget).await);
    for (node, target) in lab.targets.iter().enumerate() {
        settled.pasts.push(watch::history_of(target, node, rig.clock, settled.until, budget).await);
    }
    settled.commits = commit::evidence(lab).await;
    match resources(lab).await {
        Ok(found) => settled.resources = found,
        Err(why) => findings.add(Finding::new("resources could not be listed", why)),
    }
    if let Err(error) = hashes::equal_keys(rig, settled.until).await {
        findings.add(Finding::new("the members differ", format!("{error:#}")));
    }
    if let Err(error) = hashes::equal_states(rig).await {
        findings.add(Finding::new("the members have different states", format!("{error:#}")));
    }
    settled
}

/// The keys of the elements of all sets, by a linearizable read at a node.
async fn elements(target: &Target) -> Result<BTreeSet<String>, String> {
    let read = Request::Read { key: set::PREFIX.into(), prefix: true, freshness: Freshness::Linearizable };
    match target.send(&read, SETTLE_MAX).await {
        Outcome::Ok(Answer { body: Body::Pairs(pairs), .. }) => Ok(pairs.into_iter().map(|pair| pair.key).collect()),
        other => Err(format!("{other:?}")),
    }
}

/// Each member's number, with its resources from a state at or past one log index. That is the
/// index of a read that found every named owner, or of the last read when [`SETTLE_MAX`] had
/// passed. Empty if the run sent no request about resources.
async fn resources(lab: &Lab) -> Result<Vec<(usize, Vec<StoredResource>)>, String> {
    if lab.deeds.snapshot().is_empty() {
        return Ok(Vec::new());
    }
    let mut budget = RetryBudget::new(SETTLE_MAX);
    let index = loop {
        let is_over = budget.is_spent();
        match resource::all(&lab.targets[0], 0, REQUEST_TIMEOUT).await {
            Ok((index, found)) => {
                let lives: BTreeSet<&resource::ResourceIdentity> = found.iter().map(|found| &found.life).collect();
                let has_owner = |found: &StoredResource| found.owner.as_ref().is_none_or(|owner| lives.contains(owner));
                if is_over || found.iter().all(has_owner) {
                    break index;
                }
            }
            Err(why) if is_over => return Err(why),
            Err(_) => {}
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    };
    let mut members = Vec::new();
    for (node, target) in lab.targets.iter().enumerate() {
        let result = retry(|| resource::all(target, index, SETTLE_MAX)).await;
        let (_, found) = result.map_err(|why| format!("node {}: {why}", node + 1))?;
        members.push((node, found));
    }
    Ok(members)
}

/// Kills every node and reads its Raft log from its disk. A log that cannot be read is a finding.
async fn raft_logs(rig: &Rig, findings: &mut Findings) -> Vec<(usize, Vec<LogEntry>)> {
    let mut logs = Vec::new();
    for node in &rig.nodes {
        node.kill().await;
        let data = rig.disks[node.number].data();
        match tokio::task::block_in_place(|| raft_log::read(&data)) {
            Ok(entries) => logs.push((node.number, entries)),
            Err(error) => {
                let detail = format!("node {}: {error:#}", node.number + 1);
                findings.add(Finding::new("a Raft log cannot be read", detail));
            }
        }
    }
    logs
}

/// Waits until no lease exists, at most [`SETTLE_MAX`]; returns the leases that still exist then.
async fn leases_left(rig: &Rig) -> anyhow::Result<BTreeSet<i64>> {
    let mut budget = RetryBudget::new(SETTLE_MAX);
    loop {
        let is_over = budget.is_spent();
        match leases(&rig.nodes[0].target).await {
            Ok(left) if left.is_empty() || is_over => return Ok(left),
            Err(error) if is_over => return Err(error),
            Ok(_) | Err(_) => tokio::time::sleep(Duration::from_millis(200)).await,
        }
    }
}

/// Ids of the existing leases, as a node lists them.
pub(crate) async fn leases(target: &Target) -> anyhow::Result<BTreeSet<i64>> {
    let channel = target.channel().await.map_err(anyhow::Error::msg)?;
    let list = LeaseClient::new(channel).lease_leases(LeaseLeasesRequest {}).await?;
    Ok(list.into_inner().leases.into_iter().map(|lease| lease.id).collect())
}
