//! A run: for each target a cluster, an attack, and a verdict.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures::{StreamExt, TryStreamExt};
use tokio::task::JoinSet;

use crate::args::{Args, Extent};
use crate::dice::Dice;
use crate::oracle::{self, memory, process, sentinel::Sentinels};
use crate::report::Report;
use crate::rig::Rig;
use crate::target::{Attack, Outcome, Target};

/// Interval at which the processes are checked.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);
/// Interval of lines about the progress.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(10);
/// Longest time of one input. Only a defect of the fuzzer exceeds it.
const INPUT_TIMEOUT: Duration = Duration::from_secs(120);

/// Options of an attack, and whether the run was interrupted.
struct Manner {
    extent: Extent,
    verbose: bool,
    interrupted: Interrupted,
}

/// Whether Ctrl-C was pressed. Then attacks end, and are judged. The second Ctrl-C ends this
/// process.
#[derive(Clone, Default)]
struct Interrupted(Arc<AtomicBool>);

impl Interrupted {
    fn listen() -> Self {
        let this = Self::default();
        let set = this.clone();
        tokio::spawn(async move {
            while tokio::signal::ctrl_c().await.is_ok() {
                if set.0.swap(true, Ordering::Relaxed) {
                    std::process::exit(130);
                }
            }
        });
        this
    }

    fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Attacks all chosen targets and prints the verdict. True if all were attacked without a finding;
/// false also after an interruption.
pub(crate) async fn run(args: &Args) -> anyhow::Result<bool> {
    let (binary, dir, extent) = (args.binary()?, args.dir()?, args.extent());
    let targets = args.targets()?;
    let interrupted = Interrupted::listen();
    let tried = futures::stream::iter(&targets).map(|target| async {
        if interrupted.is_set() {
            return Ok(None);
        }
        let folder = dir.join(target.name);
        let manner = Manner { extent, verbose: args.verbose, interrupted: interrupted.clone() };
        let is_sound = attack(target, &binary, &folder, &manner).await?;
        if is_sound {
            std::fs::remove_dir_all(&folder)?;
        } else {
            println!("  evidence of {}: {}", target.name, folder.display());
        }
        anyhow::Ok((!is_sound).then_some(target.name))
    });
    let tried = tried.buffered(args.jobs()).try_filter_map(|broken| std::future::ready(Ok(broken)));
    let broken: Vec<&str> = tried.try_collect().await?;
    if broken.is_empty() {
        // Removes the folder only if it is empty.
        let _kept = std::fs::remove_dir(&dir).is_err();
        if interrupted.is_set() {
            println!("verdict: none: interrupted, and nothing was found before");
            return Ok(false);
        }
        println!("verdict: PASS: {} targets, seed {}", targets.len(), extent.seed);
        return Ok(true);
    }
    println!("verdict: FAIL: {}", broken.join(", "));
    Ok(false)
}

/// Attacks one target on a new cluster, and prints its report. True without a finding.
async fn attack(target: &Target, binary: &Path, dir: &Path, manner: &Manner) -> anyhow::Result<bool> {
    let rig = Rig::start(dir.to_owned(), binary.to_owned(), target.needs).await?;
    let attack = (target.prepare)(Arc::clone(&rig)).await?;
    let sentinels = Sentinels::start(Arc::clone(&rig)).await?;
    let before = oracle::before(&rig)?;
    let mut report = Report::new(target.name, manner.extent);
    let mut peak = memory::resident(&rig)?;
    let began = Instant::now();
    throw(target, &attack, &rig, manner, &mut report, &mut peak).await?;
    let elapsed = began.elapsed();
    drop(attack);
    sentinels.stop();
    for finding in oracle::after(&rig, &before, &peak, &sentinels).await {
        report.add(finding, None);
    }
    report.print(elapsed, sentinels.count());
    rig.stop().await;
    Ok(report.is_sound())
}

/// Sends inputs, several at a time, until the extent is reached, the run is interrupted, or a
/// process has ended. Adds to `report`, and raises `peak`, the highest memory of each node.
async fn throw(
    target: &Target,
    attack: &Arc<dyn Attack>,
    rig: &Arc<Rig>,
    Manner { extent, verbose, interrupted }: &Manner,
    report: &mut Report,
    peak: &mut [u64],
) -> anyhow::Result<()> {
    let began = Instant::now();
    let (mut looked, mut shown) = (began, began);
    let lanes = extent.lanes.unwrap_or(target.lanes).max(1);
    let mut under_way = JoinSet::new();
    let mut next = extent.first;
    let is_wanted = |next: u64| extent.inputs.is_none_or(|inputs| next - extent.first < inputs);
    let is_in_time = || {
        let has_time = extent.inputs.is_some() || began.elapsed() < Duration::from_secs(extent.seconds);
        has_time && !interrupted.is_set()
    };
    loop {
        while under_way.len() < lanes && is_wanted(next) && is_in_time() {
            if *verbose {
                println!("input {next}");
            }
            let (attack, number) = (Arc::clone(attack), next);
            let dice = Dice::new(extent.seed, target.name, number);
            under_way.spawn(async move {
                let outcome = tokio::time::timeout(INPUT_TIMEOUT, attack.input(dice)).await;
                (number, outcome.unwrap_or_else(|_| Ok(Outcome::finding("stuck", "an input does not come to an end"))))
            });
            next += 1;
        }
        match tokio::time::timeout(LOOK_INTERVAL, under_way.join_next()).await {
            Ok(None) => return Ok(()),
            Ok(Some(done)) => {
                let (number, outcome) = done?;
                let Outcome { answer, finding } = outcome?;
                report.count(answer);
                if let Some(finding) = finding
                    && report.add(finding.clone(), Some(number))
                {
                    eprintln!("{}: input {number}: {finding}", target.name);
                }
            }
            Err(_) => {}
        }
        if looked.elapsed() < LOOK_INTERVAL {
            continue;
        }
        looked = Instant::now();
        if process::has_ended(rig) {
            return Ok(());
        }
        // An error means that a process has ended: the next check notices that.
        if let Ok(resident) = memory::resident(rig) {
            peak.iter_mut().zip(resident).for_each(|(peak, now)| *peak = now.max(*peak));
        }
        if shown.elapsed() >= PROGRESS_INTERVAL {
            shown = Instant::now();
            eprintln!("{}", report.progress(began.elapsed()));
        }
    }
}
