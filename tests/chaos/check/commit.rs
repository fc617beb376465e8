//! Commits: every reader and every history sees the whole of a commit or nothing of it, at one log
//! index. An acknowledged commit took effect once, a refused one never, any other at most once.

use std::collections::{BTreeMap, BTreeSet};

use super::{Finding, Findings};
use crate::commit::{
    CommitEvidence, CommitFace, CommitOutcome, CommitRecord, GroupChange, GroupState, Values, WatchedCommit,
};

/// Judges the workload `commit`.
pub(crate) fn check(evidence: &CommitEvidence) -> Findings {
    let mut findings = Findings::new("commits");
    let CommitEvidence { commits, states, changes, watched, ids } = evidence;
    let known: BTreeMap<&str, &CommitRecord> = commits.iter().map(|it| (it.value.as_str(), it)).collect();
    for state in states {
        whole_state(state, &known, &mut findings);
    }
    fresh(commits, states, &mut findings);
    let mut at: BTreeMap<&str, u64> = BTreeMap::new();
    for (index, members) in changes {
        agree(*index, members, &mut findings);
        let Some(change) = members.values().next() else { continue };
        let Some(value) = whole_change(*index, change, &known, &mut findings) else { continue };
        if let Some(other) = at.insert(value, *index) {
            let detail = format!("{value} at index {other} and at {index}");
            findings.add(Finding::new("a commit took effect twice", detail));
        }
    }
    for told in watched {
        whole_watched(told, &known, &at, &mut findings);
    }
    for commit in commits {
        one(commit, at.get(commit.value.as_str()), ids.as_ref(), &mut findings);
    }
    let done = commits.iter().filter(|commit| matches!(commit.became, CommitOutcome::Done { .. })).count();
    findings
        .scope(format!(
            "{} commits, {done} of them done, {} reads, {} changes, {} by watchers",
            commits.len(),
            states.len(),
            changes.len(),
            watched.len()
        ))
        .judged(done.min(states.len()).min(changes.len()).min(watched_least(watched)))
        .nothing_if(commits.is_empty())
}

/// The value that all entities of a group have; `Ok(None)` if all are absent. `Err` if they differ.
fn one_value(values: &Values) -> Result<Option<&str>, ()> {
    let first = values[0].as_deref();
    if values.iter().all(|value| value.as_deref() == first) { Ok(first) } else { Err(()) }
}

fn whole_state(state: &GroupState, known: &BTreeMap<&str, &CommitRecord>, findings: &mut Findings) {
    let GroupState { node, group, index, values, .. } = state;
    let detail = || format!("group {group} at index {index}, read at node {}: {values:?}", node + 1);
    match one_value(values) {
        Err(()) => findings.add(Finding::new("a reader saw half a commit", detail())),
        Ok(Some(value)) if known.get(value).is_none_or(|commit| commit.group != *group) => {
            findings.add(Finding::new("nobody committed what was read", detail()));
        }
        Ok(_) => {}
    }
}

/// Checks that a linearizable read is at or past the log index of every commit that was
/// acknowledged before the read began.
fn fresh(commits: &[CommitRecord], states: &[GroupState], findings: &mut Findings) {
    let mut answered: Vec<(u64, u64)> = commits
        .iter()
        .filter_map(|commit| match commit.became {
            CommitOutcome::Done { index, .. } => Some((commit.done, index)),
            CommitOutcome::Failed(_) | CommitOutcome::Unknown(_) => None,
        })
        .collect();
    answered.sort_unstable();
    let mut reads: Vec<&GroupState> = states.iter().filter(|state| state.is_linearizable).collect();
    reads.sort_by_key(|state| state.call);
    let (mut floor, mut next) = (0, 0);
    for state in reads {
        while next < answered.len() && answered[next].0 < state.call {
            floor = floor.max(answered[next].1);
            next += 1;
        }
        if state.index < floor {
            let detail = format!("index {} at node {}, after a commit at {floor}", state.index, state.node + 1);
            findings.add(Finding::new("a read misses a commit", detail));
        }
    }
}

/// Adds a finding for each member whose history has another change at `index` than that of the
/// first member.
fn agree(index: u64, members: &BTreeMap<usize, GroupChange>, findings: &mut Findings) {
    let mut all = members.iter();
    let Some((first, wanted)) = all.next() else { return };
    for (node, change) in all.filter(|(_, change)| *change != wanted) {
        let detail = format!("index {index}: node {} tells {wanted:?}, node {} {change:?}", first + 1, node + 1);
        findings.add(Finding::new("members tell different histories", detail));
    }
}

/// The value of a command that is one whole commit of one client. Anything else is a finding, and
/// `None`.
fn whole_change<'c>(
    index: u64,
    change: &'c GroupChange,
    known: &BTreeMap<&str, &CommitRecord>,
    findings: &mut Findings,
) -> Option<&'c str> {
    let mut groups = change.groups.iter();
    let (Some((group, values)), None, [id]) = (groups.next(), groups.next(), &change.ids[..]) else {
        findings.add(Finding::new("a command has half a commit", format!("index {index}: {change:?}")));
        return None;
    };
    match one_value(values) {
        Ok(Some(value)) if value == id => match known.get(value) {
            Some(commit) if commit.group == *group => Some(value),
            Some(_) | None => {
                findings.add(Finding::new("nobody asked for a commit", format!("index {index}: {change:?}")));
                None
            }
        },
        Ok(_) | Err(()) => {
            findings.add(Finding::new("a command has half a commit", format!("index {index}: {change:?}")));
            None
        }
    }
}

/// Checks that a watcher's record has all of a commit's entities of its face. A watch of keys must
/// be at the commit's revision, any other at its log index. An unknown one is not compared.
fn whole_watched(
    told: &WatchedCommit,
    known: &BTreeMap<&str, &CommitRecord>,
    at: &BTreeMap<&str, u64>,
    findings: &mut Findings,
) {
    let mut add = |what: &str| findings.add(Finding::new(what, format!("{told:?}")));
    let [value, rest @ ..] = &told.values[..] else {
        return add("a watcher saw half a commit");
    };
    if told.values.len() != told.face.parts() || rest.iter().any(|other| other != value) {
        return add("a watcher saw half a commit");
    }
    let Some(commit) = known.get(value.as_str()) else {
        return add("nobody committed what a watcher told");
    };
    let wanted = match (told.face, &commit.became) {
        (CommitFace::Keys, CommitOutcome::Done { revision, .. }) => Some(revision.cast_unsigned()),
        (CommitFace::Keys, CommitOutcome::Failed(_) | CommitOutcome::Unknown(_)) => None,
        (CommitFace::Resources | CommitFace::Services, _) => at.get(value.as_str()).copied(),
    };
    if wanted.is_some_and(|wanted| told.point != wanted) {
        add("a watcher tells a commit at another index");
    }
}

/// Number of records of the face whose watchers have the fewest; zero if a face has none.
fn watched_least(watched: &BTreeSet<WatchedCommit>) -> usize {
    let of = |face| watched.iter().filter(|told| told.face == face).count();
    of(CommitFace::Keys).min(of(CommitFace::Resources)).min(of(CommitFace::Services))
}

fn one(commit: &CommitRecord, at: Option<&u64>, ids: Option<&BTreeMap<String, i64>>, findings: &mut Findings) {
    let version = ids.map(|ids| ids.get(&commit.value).copied().unwrap_or(0));
    let mut add = |what: &str| {
        let detail = format!("{commit:?}, in the history at {at:?}, version {version:?} in the end");
        findings.add(Finding::new(what, detail));
    };
    if version.is_some_and(|version| version > 1) {
        add("a commit took effect twice");
    }
    match &commit.became {
        CommitOutcome::Done { index, .. } => {
            if version == Some(0) {
                add("an acknowledged commit is lost");
            }
            if at.is_some_and(|at| at != index) {
                add("a commit was answered with another index");
            }
            if commit.again.is_some_and(|(again, was_before)| again != *index || !was_before) {
                add("a repeated commit was answered otherwise");
            }
        }
        CommitOutcome::Failed(_) => {
            if at.is_some() || version.is_some_and(|version| version > 0) {
                add("a refused commit took effect");
            }
        }
        CommitOutcome::Unknown(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commit::PARTS;

    fn values(value: &str) -> Values {
        [const { None }; PARTS].map(|_: Option<String>| Some(value.to_owned()))
    }

    fn state(call: u64, index: u64, value: &str) -> GroupState {
        GroupState { node: 0, call, group: 1, index, is_linearizable: true, values: values(value) }
    }

    fn done(value: &str, index: u64) -> CommitRecord {
        let became = CommitOutcome::Done { index, revision: 2 };
        let value = value.to_owned();
        CommitRecord { process: 1, call: index, done: index + 1, group: 1, value, became, again: None }
    }

    fn change(value: &str) -> GroupChange {
        GroupChange { groups: [(1, values(value))].into(), ids: vec![value.to_owned()] }
    }

    fn watched(value: &str, at: u64) -> [WatchedCommit; 3] {
        let told = |face: CommitFace, point| WatchedCommit {
            face,
            node: 0,
            point,
            values: vec![value.to_owned(); face.parts()],
        };
        [told(CommitFace::Keys, 2), told(CommitFace::Resources, at), told(CommitFace::Services, at)]
    }

    /// Applies `lie` to the first record of a watcher of `face`, which is about the commit `x`.
    fn watcher_lies(evidence: &mut CommitEvidence, face: CommitFace, lie: fn(&mut WatchedCommit)) {
        let told = evidence.watched.iter().find(|told| told.face == face).unwrap().clone();
        let mut changed = told.clone();
        lie(&mut changed);
        evidence.watched.remove(&told);
        evidence.watched.insert(changed);
    }

    /// Two commits, done at 10 and 20, and everything that shows them.
    fn good() -> CommitEvidence {
        let both = |value| BTreeMap::from([(0, change(value)), (1, change(value))]);
        CommitEvidence {
            commits: vec![done("x", 10), CommitRecord { again: Some((20, true)), ..done("y", 20) }],
            states: vec![state(5, 10, "x"), state(12, 12, "x"), state(30, 25, "y")],
            changes: [(10, both("x")), (20, both("y"))].into(),
            watched: [("x", 10), ("y", 20)].into_iter().flat_map(|(value, at)| watched(value, at)).collect(),
            ids: Some([("x".to_owned(), 1), ("y".to_owned(), 1)].into()),
        }
    }

    #[test]
    fn what_is_right_passes() {
        let findings = check(&good());
        assert_eq!((findings.count, findings.judged), (0, 2), "{:?}", findings.kept);
        assert_eq!(check(&CommitEvidence::default()).word(), "-");
    }

    #[test]
    fn each_defect_is_found() {
        type Lie = fn(&mut CommitEvidence);
        let lies: [(Lie, &str); 20] = [
            (|it| watcher_lies(it, CommitFace::Keys, |told| drop(told.values.pop())), "a watcher saw half a commit"),
            (
                |it| watcher_lies(it, CommitFace::Keys, |told| told.values[1] = "y".to_owned()),
                "a watcher saw half a commit",
            ),
            (
                |it| watcher_lies(it, CommitFace::Resources, |told| told.values[0] = "z".to_owned()),
                "nobody committed what a watcher told",
            ),
            (
                |it| watcher_lies(it, CommitFace::Keys, |told| told.point = 3),
                "a watcher tells a commit at another index",
            ),
            (
                |it| watcher_lies(it, CommitFace::Resources, |told| told.point = 11),
                "a watcher tells a commit at another index",
            ),
            (
                |it| watcher_lies(it, CommitFace::Services, |told| told.point = 9),
                "a watcher tells a commit at another index",
            ),
            (|it| it.states[1].values[2] = Some("y".to_owned()), "a reader saw half a commit"),
            (|it| it.states[1].values[3] = None, "a reader saw half a commit"),
            (|it| it.states[1].values = values("z"), "nobody committed what was read"),
            (|it| it.states[2].index = 19, "a read misses a commit"),
            (
                |it| it.changes.get_mut(&10).unwrap().get_mut(&1).unwrap().ids.clear(),
                "members tell different histories",
            ),
            (
                |it| {
                    for change in it.changes.get_mut(&10).unwrap().values_mut() {
                        change.groups.get_mut(&1).unwrap()[0] = None;
                    }
                },
                "a command has half a commit",
            ),
            (
                |it| drop(it.changes.insert(15, [(0, GroupChange { ids: Vec::new(), ..change("x") })].into())),
                "a command has half a commit",
            ),
            (|it| drop(it.changes.insert(15, [(0, change("x"))].into())), "a commit took effect twice"),
            (|it| drop(it.changes.insert(15, [(0, change("z"))].into())), "nobody asked for a commit"),
            (|it| _ = it.ids.as_mut().unwrap().insert("x".to_owned(), 2), "a commit took effect twice"),
            (|it| _ = it.ids.as_mut().unwrap().remove("x"), "an acknowledged commit is lost"),
            (
                |it| it.commits[0].became = CommitOutcome::Done { index: 9, revision: 2 },
                "a commit was answered with another index",
            ),
            (|it| it.commits[1].again = Some((21, true)), "a repeated commit was answered otherwise"),
            (|it| it.commits[0].became = CommitOutcome::Failed("no".to_owned()), "a refused commit took effect"),
        ];
        for (lie, wanted) in lies {
            let mut evidence = good();
            lie(&mut evidence);
            let whats = check(&evidence).kept.into_iter().map(|finding| finding.what).collect::<Vec<_>>();
            assert!(whats.iter().any(|what| what == wanted), "{wanted}: {whats:?}");
        }
        let mut evidence = good();
        evidence.commits[0].became = CommitOutcome::Unknown("?".to_owned());
        assert_eq!(check(&evidence).count, 0);
    }
}
