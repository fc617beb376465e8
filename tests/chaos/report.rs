//! The evidence of a run, its judgement by every checker, and the report that is printed and kept.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::io::Write;
use std::path::Path;

use anyhow::Context;
use serde::Serialize;

use crate::args::Plan;
use crate::check::crash::Incarnation;
use crate::check::elections::Loss;
use crate::check::enemy::Siege;
use crate::check::outage::{self, Window, percentile, seconds};
use crate::check::replay::Log;
use crate::check::usage::Usage;
use crate::check::{
    Finding, Findings, commit, crash, durable, elections, elle, enemy, leases, linear, lock, owners, raft, replay,
    rights, set, stats, usage, watch,
};
use crate::commit::CommitEvidence;
use crate::history::{Micros, Outcome, Record, WatchLog};
use crate::raft_log::LogEntry;
use crate::resource::{ResourceRecord, StoredResource};
use crate::rig::TimelineSpan;
use crate::rights::Rights;
use crate::timeline;

/// Most characters of a finding's detail that are printed; the report has all.
const SHORT: usize = 300;

/// All evidence of a run.
pub(crate) struct Evidence<'a> {
    pub plan: &'a Plan,
    /// Answered requests a second before the first fault.
    pub rate: f64,
    /// Least such rate with which the run is accepted.
    pub rate_min: f64,
    pub records: Vec<Record>,
    pub watchers: Vec<WatchLog>,
    pub short_watches: Vec<WatchLog>,
    /// The changes of the store by revision, the time at which a watcher first received each
    /// revision, and findings about members that delivered different changes.
    pub ground: (Log, BTreeMap<i64, Micros>, Findings),
    /// The history that each member delivers at the end of the run.
    pub pasts: Vec<WatchLog>,
    /// Highest revision in the answers to the last requests: watchers and members must have it. 0
    /// if the cluster did not come back.
    pub until: i64,
    /// The elements of all sets at the end, with the number of the member that was asked.
    pub sets: Vec<(usize, BTreeSet<String>)>,
    /// Comparison of views of the catalog with reads; `None` if the cluster did not come back.
    pub views: Option<Findings>,
    /// Changes that the views had shown before the first fault.
    pub shown_before: usize,
    /// Leases that still exist at the end, after the wait for them to run out.
    pub leases: BTreeSet<i64>,
    /// The highest revision of a requested compaction.
    pub compacted: i64,
    /// Compaction requests that were acknowledged, count. One without an answer is not counted.
    pub compactions: u64,
    /// Commits, and how readers, histories and watchers saw them.
    pub commits: CommitEvidence,
    /// Requests about resources.
    pub deeds: Vec<ResourceRecord>,
    /// The resources of each member at the end, with the member's number.
    pub resources: Vec<(usize, Vec<StoredResource>)>,
    /// Changes of users' rights, and the watches of these users.
    pub rights: Rights,
    /// The Raft log on each member's disk, with the member's number.
    pub raft_logs: Vec<(usize, Vec<LogEntry>)>,
    pub incarnations: Vec<Incarnation>,
    /// The period of each injected fault, oldest first.
    pub windows: Vec<Window>,
    /// By fault: the reason why its last attempt was skipped.
    pub vain: BTreeMap<&'static str, String>,
    /// Planned moves of leadership within the windows. They have bounds of their own.
    pub moments: Vec<Window>,
    pub losses: Vec<Loss>,
    pub marks: Vec<TimelineSpan>,
    pub usage: Usage,
    /// Evidence about the enemy; `None` if the run had none, or was rejected before the enemy
    /// began.
    pub siege: Option<Siege>,
    /// Time at which the run ended.
    pub ends: Micros,
    /// Findings of the run itself, such as a fault that failed.
    pub findings: Findings,
}

/// The verdict about a run.
#[derive(Clone, Debug)]
pub(crate) enum Verdict {
    Pass,
    Fail(String),
}

impl Verdict {
    pub(crate) fn passed(&self) -> bool {
        matches!(self, Self::Pass)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pass => f.write_str("PASS"),
            Self::Fail(what) => write!(f, "FAIL: {what}"),
        }
    }
}

impl Evidence<'_> {
    /// Runs every checker, prints the findings, writes the evidence into the run's folder, and
    /// returns the verdict.
    ///
    /// # Errors
    ///
    /// If the evidence cannot be written.
    pub(crate) fn judge(mut self) -> anyhow::Result<Verdict> {
        let (log, delivered_at, agree) =
            std::mem::replace(&mut self.ground, (Log::new(), BTreeMap::new(), Findings::new("")));
        let records = &self.records;
        let leases = match self.until {
            0 => not_judged("leases"),
            _ => leases::check(records, &log, &delivered_at, &self.leases),
        };
        let lock = lock::check(&log);
        let commits = commit::check(&self.commits);
        let raft = raft::check(&self.raft_logs, records, &log);
        let (registers, transactions) = (linear::check(records, &log), elle::check(records));
        let judged = stats::Judged {
            locked: lock.judged,
            ran_out: (self.until > 0).then_some(leases.judged),
            registers: registers.judged,
            commits: commits.judged,
            transactions: transactions.judged,
            replayed: self.plan.whole_log.then_some(raft.judged),
        };
        let all: Vec<Findings> = vec![
            self.findings.clone().scope(format!("{} struck", self.windows.len())),
            self.rate_check(),
            self.stats_check(judged),
            agree,
            durable::check(records, &self.pasts, self.until, self.compacted),
            replay::check(records, &log).scope(format!("{} requests, {} revisions", records.len(), log.len())),
            raft,
            registers,
            transactions,
            set::check(records, &self.sets),
            watch::check(
                &self.watchers.iter().chain(&self.pasts).collect::<Vec<_>>(),
                &log,
                self.until,
                self.compacted,
            ),
            watch::check(&self.short_watches.iter().collect::<Vec<_>>(), &log, 0, self.compacted).by("short watches"),
            self.views.clone().unwrap_or_else(|| not_judged("views")),
            leases,
            lock,
            owners::check(&self.deeds, &self.resources),
            commits,
            self.rights_check(),
            crash::check(&self.incarnations),
            usage::check(&self.usage),
            enemy::check(self.siege.as_ref()),
            outage::check(records, &self.windows, &self.moments),
            elections::check(records, &self.losses),
        ];
        let mut outages = outage::measure(records, &self.windows);
        outages.extend(outage::measure(records, &self.moments));
        print!("{}", self.text(&all, &outages, SHORT));
        let verdict = verdict(&all);
        let text = format!("{}verdict: {verdict}\n", self.text(&all, &outages, usize::MAX));
        self.keep(&all, &text)?;
        if !verdict.passed() {
            println!("again: {}", self.plan.again);
        }
        Ok(verdict)
    }

    /// Rejects a run with too few answered requests before the first fault: it proves nothing.
    /// Else, if the run has no findings of its own, rejects each chosen fault that was never
    /// injected.
    fn rate_check(&self) -> Findings {
        let mut findings = Findings::new("rate");
        if self.rate < self.rate_min {
            let what = format!("rejected: {:.0} answered requests a second before the first fault", self.rate);
            findings
                .add(Finding::new(what, format!("at least {:.0} are needed: the machine is too busy", self.rate_min)));
        }
        if self.rate >= self.rate_min {
            let was_struck = |name: &str| self.windows.iter().any(|window| window.fault == name);
            for name in self.plan.faults.iter().filter(|name| !was_struck(name) && self.findings.count == 0) {
                let why = self.vain.get(name).map_or("its turn did not come", String::as_str);
                findings.add(Finding::new(format!("rejected: {name} was never struck"), why));
            }
        }
        findings.scope(format!("{:.0} answered a second", self.rate))
    }

    /// Rejects a run in which a workload did too little: it proves nothing for that workload. Not
    /// judged if the cluster did not come back.
    fn stats_check(&self, judged: stats::Judged) -> Findings {
        let Some(views) = &self.views else {
            return not_judged("stats");
        };
        stats::check(&stats::Done {
            workloads: &self.plan.workloads,
            records: &self.records,
            deeds: &self.deeds,
            watchers: &self.watchers,
            short: self.short_watches.len(),
            shown: (self.shown_before, views.judged),
            first_fault: self.windows.first().map_or(self.ends, |window| window.begin),
            last_fault: self.windows.last().map_or(0, |window| window.begin),
            compactions: self.compactions,
            judged,
        })
    }

    /// Judges rights. The end of a watch is not judged while a fault was active at its node or at
    /// the whole cluster.
    fn rights_check(&self) -> Findings {
        let is_chosen = self.plan.workloads.contains(&crate::work::rights::NAME);
        let broken = self.marks.iter().map(|mark| rights::Broken {
            node: mark.node,
            begin: mark.begin,
            end: mark.end.unwrap_or(self.ends),
        });
        rights::check(&self.records, &self.rights, &broken.collect::<Vec<_>>(), is_chosen)
    }

    fn text(&self, all: &[Findings], outages: &outage::Outages, detail_max: usize) -> String {
        let mut out = String::new();
        let mut line = |text: String| {
            out.push_str(&text);
            out.push('\n');
        };
        let count = |wanted: fn(&Outcome) -> bool| self.records.iter().filter(|record| wanted(&record.outcome)).count();
        line(format!(
            "{} requests: {} answered, {} refused, {} unknown; {:.0} s",
            self.records.len(),
            count(|outcome| matches!(outcome, Outcome::Ok(_))),
            count(|outcome| matches!(outcome, Outcome::Failed(_))),
            count(|outcome| matches!(outcome, Outcome::Unknown(_))),
            seconds(self.ends),
        ));
        if !outages.is_empty() {
            line(format!(
                "{:<18} {:>5} {:>9} {:>9} {:>9}   writes stood still, seconds",
                "fault", "times", "p50", "p99", "longest"
            ));
        }
        for (fault, list) in outages {
            let (p50, p99) = (seconds(percentile(list, 50)), seconds(percentile(list, 99)));
            let longest = seconds(list.last().copied().unwrap_or(0));
            line(format!("{fault:<18} {:>5} {p50:>9.2} {p99:>9.2} {longest:>9.2}", list.len()));
        }
        for (name, why) in &self.plan.skipped {
            line(format!("skipped: {name}: {why}"));
        }
        for findings in all {
            line(format!("{:<4} {:<14} {}", findings.word(), findings.checker, findings.scope));
            for finding in &findings.kept {
                let detail: String = finding.detail.chars().take(detail_max).collect();
                line(format!("       {}: {detail}", finding.what));
            }
            if findings.count > findings.kept.len() {
                line(format!("       and {} more", findings.count - findings.kept.len()));
            }
        }
        out
    }

    fn keep(&self, all: &[Findings], text: &str) -> anyhow::Result<()> {
        let dir = &self.plan.dir;
        write_file(dir, "report.txt", format!("seed {}\n{}\n{text}", self.plan.seed, self.plan.again).as_bytes())?;
        write_file(
            dir,
            "watchers.jsonl",
            &json_lines(self.watchers.iter().chain(&self.pasts).chain(&self.short_watches))?,
        )?;
        write_file(dir, "resources.jsonl", &json_lines(&self.deeds)?)?;
        write_file(dir, "commits.jsonl", &json_lines(&self.commits.commits)?)?;
        write_file(dir, "commit-watchers.jsonl", &json_lines(&self.commits.watched)?)?;
        write_file(dir, "rights.jsonl", &json_lines(&self.rights.changes)?)?;
        write_file(dir, "rights-watches.jsonl", &json_lines(&self.rights.watches)?)?;
        let picture =
            timeline::picture(&self.records, &self.marks, &self.windows, &self.usage, self.plan.nodes, self.ends);
        write_file(dir, "timeline.html", timeline::page(&self.plan.again, &picture, all, text).as_bytes())?;
        println!("timeline {}", dir.join("timeline.html").display());
        Ok(())
    }
}

/// Passes if no checker has a finding. Else fails with the first finding and the names of the
/// checkers that have findings.
fn verdict(all: &[Findings]) -> Verdict {
    let bad: Vec<&Findings> = all.iter().filter(|findings| findings.count > 0).collect();
    let Some((findings, first)) = bad.iter().find_map(|findings| findings.kept.first().map(|first| (findings, first)))
    else {
        return Verdict::Pass;
    };
    let checkers: Vec<&str> = bad.iter().map(|findings| findings.checker).collect();
    Verdict::Fail(format!("{}: {} ({})", findings.checker, first.what, checkers.join(", ")))
}

fn not_judged(checker: &'static str) -> Findings {
    Findings::new(checker).scope("not judged: the cluster did not come back").nothing_if(true)
}

fn json_lines<T: Serialize>(values: impl IntoIterator<Item = T>) -> anyhow::Result<Vec<u8>> {
    let mut lines = Vec::new();
    for value in values {
        serde_json::to_writer(&mut lines, &value)?;
        lines.write_all(b"\n")?;
    }
    Ok(lines)
}

fn write_file(dir: &Path, name: &str, bytes: &[u8]) -> anyhow::Result<()> {
    let path = dir.join(name);
    fs::write(&path, bytes).with_context(|| path.display().to_string())
}
