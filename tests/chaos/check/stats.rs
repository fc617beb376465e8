//! Rejects empty evidence: each workload must have answers from before the first fault, and from
//! after the last one began.
//!
//! Each kind of request of a workload must have been answered, too. This rule applies only to a
//! workload with many answers, as a rare kind may be missing by chance among few. All other rules
//! apply to every run.

use std::collections::BTreeMap;

use super::{Finding, Findings};
use crate::history::{Freshness, Micros, Note, Record, Request, Step, WatchLog};
use crate::resource::{ResourceOutcome, ResourceRecord};

/// Kinds of requests of each workload, each of which must be answered.
const KINDS: &[(&str, &[&str])] = &[
    ("register", &["read", "put", "txn"]),
    ("set", &["read", "put"]),
    ("append", &["look", "txn"]),
    ("watch", &["put", "delete", "txn"]),
    ("catalog", &[SHOWN]),
    ("lock", &["grant", "txn", "read", "revoke"]),
    (
        "leases",
        &[
            "grant",
            "put",
            "replace",
            "keep-alive",
            "revoke",
            "delete",
            "delete range",
            "txn",
            "read",
            "read of its own",
        ],
    ),
    ("follower", &["put", "read at least", "read of its own"]),
    ("resource", &["write", "delete"]),
    ("commit", &["txn"]),
    ("rights", &["read", "read of its own", "put"]),
];
/// Kind of the changes that views of the catalog have shown: they are not requests.
const SHOWN: &str = "change shown";
/// Least number of answers of each workload before the first fault.
const BEFORE_MIN: usize = 10;
/// Least number of a workload's answers for a judgement of the kinds among them: the rarest kind
/// is one request of twenty.
const KINDS_FROM: usize = 200;

/// The evidence of a run's work.
pub(crate) struct Done<'a> {
    /// The chosen workloads.
    pub workloads: &'a [&'a str],
    pub records: &'a [Record],
    /// Requests about resources.
    pub deeds: &'a [ResourceRecord],
    pub watchers: &'a [WatchLog],
    /// Number of short watches that were opened.
    pub short: usize,
    /// Numbers of changes that views of the catalog have shown: before the first fault, and in the
    /// whole run.
    pub shown: (usize, usize),
    pub first_fault: Micros,
    /// Time at which the last fault began.
    pub last_fault: Micros,
    /// Compactions carried out, count.
    pub compactions: u64,
    pub judged: Judged,
}

/// Amounts of evidence that other checkers have judged. A run is rejected if one is 0 and its
/// workload was chosen; `replayed` counts for every run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Judged {
    /// Number of writes under the lock.
    pub locked: usize,
    /// Number of leases that expired; `None` if leases could not be judged.
    pub ran_out: Option<usize>,
    /// Number of operations on registers.
    pub registers: usize,
    pub transactions: usize,
    /// The least of four numbers: acknowledged commits, reads, commands in histories, and records
    /// of watchers for the face with the fewest.
    pub commits: usize,
    /// Number of judged entries of the Raft logs, 0 if some are missing; `None` without
    /// `--whole-log`.
    pub replayed: Option<usize>,
}

/// Counts of answers to one kind of request: before the first fault, since the last fault began,
/// and in the whole run.
#[derive(Clone, Copy, Debug, Default)]
struct Times {
    before: usize,
    /// Answers since the last fault began. Equal to `all` for [`SHOWN`], whose times are not
    /// recorded.
    since: usize,
    all: usize,
}

/// Counts by workload and kind of request.
type Tally<'a> = BTreeMap<(&'a str, &'static str), Times>;

/// Judges the work of a run.
pub(crate) fn check(done: &Done<'_>) -> Findings {
    let mut findings = Findings::new("stats");
    let tally = tally(done);
    let mut scope = Vec::new();
    for name in done.workloads {
        let of = tally.iter().filter(|((workload, _), _)| workload == name);
        let sum = of.fold(Times::default(), |sum, (_, times)| Times {
            before: sum.before + times.before,
            since: sum.since + times.since,
            all: sum.all + times.all,
        });
        scope.push(format!("{name} {}", sum.all));
        if sum.all == 0 {
            findings.add(Finding::new("a workload did nothing", *name));
            continue;
        }
        if sum.before < BEFORE_MIN {
            let detail = format!("{name}: {}, at least {BEFORE_MIN}", sum.before);
            findings.add(Finding::new("a workload had hardly begun before the first fault", detail));
        }
        if sum.since == 0 {
            findings.add(Finding::new("a workload did nothing since the last fault", *name));
        }
        let kinds = KINDS.iter().find(|(workload, _)| workload == name).map_or(&[][..], |(_, kinds)| kinds);
        for kind in kinds.iter().filter(|kind| sum.all >= KINDS_FROM && !tally.contains_key(&(*name, **kind))) {
            findings.add(Finding::new("a workload never did what it is for", format!("{name}: {kind}")));
        }
        if *name == "watch" && done.short == 0 {
            findings.add(Finding::new("no watch began close to the newest revision", *name));
        }
        if *name == "leases" && done.compactions == 0 {
            findings.add(Finding::new("nothing was compacted", *name));
        }
        let (what, count) = match *name {
            "lock" => ("no write under the lock was judged", Some(done.judged.locked)),
            "leases" => ("no lease ran out", done.judged.ran_out),
            "register" => ("no operation of a register was judged", Some(done.judged.registers)),
            "commit" => ("no commit was judged", Some(done.judged.commits)),
            "append" => ("no transaction was judged", Some(done.judged.transactions)),
            "watch" => ("no watcher resumed", Some(resumed(done.watchers))),
            _ => continue,
        };
        if count == Some(0) {
            findings.add(Finding::new(what, *name));
        }
    }
    if done.judged.replayed == Some(0) {
        findings.add(Finding::new(
            "the Raft logs were not replayed",
            "--whole-log was asked for, and what is left is not whole",
        ));
    }
    findings.scope(scope.join(", "))
}

fn tally<'a>(done: &Done<'a>) -> Tally<'a> {
    let mut tally = Tally::new();
    let mut add = |workload, kind, at: Micros| {
        let times = tally.entry((workload, kind)).or_default();
        times.all += 1;
        times.before += usize::from(at < done.first_fault);
        times.since += usize::from(at >= done.last_fault);
    };
    for record in done.records.iter().filter(|record| record.outcome.answer().is_some()) {
        add(record.workload.as_str(), kind(&record.request), record.done);
    }
    for deed in done.deeds {
        match deed.became {
            ResourceOutcome::Written { .. } => add("resource", "write", deed.done),
            ResourceOutcome::Deleted => add("resource", "delete", deed.done),
            ResourceOutcome::Failed(_) | ResourceOutcome::Unknown(_) => {}
        }
    }
    let (before, all) = done.shown;
    if all > 0 {
        // The times of showing are not recorded; stalled views are found by their content in the
        // end.
        tally.insert(("catalog", SHOWN), Times { before, since: all, all });
    }
    tally
}

fn kind(request: &Request) -> &'static str {
    match request {
        Request::Read { freshness: Freshness::Linearizable, .. } => "read",
        Request::Read { freshness: Freshness::Serializable, .. } => "read of its own",
        Request::Read { freshness: Freshness::AtLeast(_), .. } => "read at least",
        Request::Put { .. } => "put",
        Request::Replace { .. } => "replace",
        Request::Delete { .. } => "delete",
        Request::DeleteRange { .. } => "delete range",
        Request::Txn { then, .. } if then.iter().all(|step| matches!(step, Step::Get { .. })) => "look",
        Request::Txn { .. } => "txn",
        Request::Grant { .. } => "grant",
        Request::KeepAlive { .. } => "keep-alive",
        Request::Revoke { .. } => "revoke",
    }
}

/// Number of streams that the workload's watchers opened after their first one. Collectors
/// (watchers of every key) do not count, because every run has them.
fn resumed(watchers: &[WatchLog]) -> usize {
    let opened =
        |log: &WatchLog| log.deliveries.iter().filter(|delivery| matches!(delivery.note, Note::Opened { .. })).count();
    watchers.iter().filter(|log| !log.key.is_empty()).map(|log| opened(log).saturating_sub(1)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Answer, Body, Delivery, Outcome};
    use crate::work::WORKLOADS;

    fn record(workload: &str, at: Micros, request: Request) -> Record {
        let outcome = Outcome::Ok(Answer { revision: 2, index: 2, body: Body::Put });
        Record { id: 1, workload: workload.into(), process: 0, node: 0, call: at, done: at, request, outcome }
    }

    fn put() -> Request {
        Request::Put { key: "k".into(), value: "v".into(), lease: 0 }
    }

    fn read() -> Request {
        Request::Read { key: "k".into(), prefix: true, freshness: Freshness::Linearizable }
    }

    /// `all` puts: the first `before` of them before the first fault, the others after the last
    /// one.
    fn puts(workload: &str, before: usize, all: usize) -> Vec<Record> {
        (0..all).map(|number| record(workload, if number < before { 1 } else { 99 }, put())).collect()
    }

    fn watcher(key: &str, opened: usize) -> WatchLog {
        let note = Note::Opened { from: 2 };
        let delivery = Delivery { at: 0, node: 0, revision: 1, events: vec![], note };
        let deliveries = vec![delivery; opened];
        WatchLog { name: "w".into(), key: key.into(), prefix: true, wants_before: false, deliveries }
    }

    /// Work of a run, for the tests to change.
    struct Given {
        records: Vec<Record>,
        watchers: Vec<WatchLog>,
        short: usize,
        shown: (usize, usize),
        compactions: u64,
        judged: Judged,
    }

    fn judge(workload: &str, change: impl FnOnce(&mut Given)) -> Vec<String> {
        let watchers = vec![watcher("", 9), watcher("watch/", 2)];
        // Changes of the catalog are not recorded.
        let records = if workload == "catalog" { Vec::new() } else { puts(workload, 10, 20) };
        let judged =
            Judged { locked: 1, ran_out: Some(1), registers: 1, transactions: 1, commits: 1, replayed: Some(1) };
        let mut given = Given { records, watchers, short: 1, shown: (10, 20), compactions: 1, judged };
        change(&mut given);
        let Given { records, watchers, short, shown, compactions, judged } = &given;
        let (short, shown, compactions, judged, workloads) = (*short, *shown, *compactions, *judged, &[workload]);
        let (first_fault, last_fault) = (50, 90);
        let findings = check(&Done {
            workloads,
            records,
            deeds: &[],
            watchers,
            short,
            shown,
            first_fault,
            last_fault,
            compactions,
            judged,
        });
        findings.whats().into_iter().map(str::to_owned).collect()
    }

    #[test]
    fn every_workload_has_kinds() {
        let known: Vec<&str> = KINDS.iter().map(|(workload, _)| *workload).collect();
        assert_eq!(known, WORKLOADS.iter().map(|workload| workload.name).collect::<Vec<_>>());
    }

    #[test]
    fn who_works_passes() {
        for workload in ["set", "watch", "lock", "leases", "catalog"] {
            assert!(judge(workload, |_| {}).is_empty(), "{workload}");
        }
    }

    #[test]
    fn who_does_nothing_is_found() {
        let nothing = "a workload did nothing";
        assert_eq!(judge("set", |done| done.records.clear()), [nothing]);
        assert_eq!(judge("catalog", |done| done.shown = (0, 0)), [nothing]);
        assert_eq!(judge("resource", |done| done.records.clear()), [nothing]);
        let in_vain = |done: &mut Given| {
            done.records.iter_mut().for_each(|record| record.outcome = Outcome::Unknown("?".into()));
        };
        assert_eq!(judge("set", in_vain), [nothing], "only answers count");
        let hardly = "a workload had hardly begun before the first fault";
        assert_eq!(judge("set", |done| done.records = puts("set", 9, 20)), [hardly]);
        assert_eq!(judge("catalog", |done| done.shown = (9, 20)), [hardly]);
        let ended = |done: &mut Given| done.records.iter_mut().for_each(|record| record.done = record.done.min(89));
        assert_eq!(judge("set", ended), ["a workload did nothing since the last fault"]);
    }

    #[test]
    fn what_is_never_done_is_found() {
        let never = "a workload never did what it is for";
        let few = puts("set", 10, KINDS_FROM - 1);
        let mut same = few.clone();
        same.push(record("set", 99, put()));
        let mut both = few.clone();
        both.push(record("set", 99, read()));
        assert_eq!(judge("set", |done| done.records = few).len(), 0, "by chance");
        assert_eq!(judge("set", |done| done.records = same), [never]);
        assert_eq!(judge("set", |done| done.records = both).len(), 0);
    }

    #[test]
    fn judges_without_anything_to_judge_are_found() {
        assert_eq!(judge("lock", |done| done.judged.locked = 0), ["no write under the lock was judged"]);
        assert_eq!(judge("leases", |done| done.judged.ran_out = Some(0)), ["no lease ran out"]);
        assert_eq!(judge("leases", |done| done.judged.ran_out = None).len(), 0, "nobody can tell");
        assert_eq!(judge("leases", |done| done.compactions = 0), ["nothing was compacted"]);
        assert_eq!(judge("register", |done| done.judged.registers = 0), ["no operation of a register was judged"]);
        assert_eq!(judge("append", |done| done.judged.transactions = 0), ["no transaction was judged"]);
        assert_eq!(judge("commit", |done| done.judged.commits = 0), ["no commit was judged"]);
        assert_eq!(judge("set", |done| done.judged.replayed = Some(0)), ["the Raft logs were not replayed"]);
        assert_eq!(judge("set", |done| done.judged.replayed = None).len(), 0, "nobody asked for it");
        let once = || vec![watcher("", 9), watcher("watch/", 1)];
        assert_eq!(judge("watch", |done| done.watchers = once()), ["no watcher resumed"]);
        assert_eq!(judge("watch", |done| done.short = 0), ["no watch began close to the newest revision"]);
        let nothing = Judged { locked: 0, ran_out: Some(0), registers: 0, transactions: 0, commits: 0, replayed: None };
        assert_eq!(judge("set", |done| (done.short, done.judged, done.watchers) = (0, nothing, once())).len(), 0);
    }
}
