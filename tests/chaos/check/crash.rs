//! The nodes' own logs: no panic, no end that no fault explains.

use std::collections::BTreeMap;

use super::{Finding, Findings};

/// Texts that never stand in the log of a healthy node.
const MARKS: &[&str] = &["panicked at", "SIGSEGV", "stack overflow", "memory allocation of", "consensus ended"];

/// Lines that a node may log in a second: more hides everything else, and fills disks.
const LINES_A_SECOND_MAX: usize = 300;
/// Characters of a line that tell date, hour, minute and second.
const SECOND: usize = 19;

/// The part of a node's log that one life of it wrote.
pub(crate) struct Life {
    pub node: usize,
    pub text: String,
    /// Why the process ended, if nobody ended it.
    pub ended: Option<String>,
    /// Whether it was a signal, which nobody of the rig had sent.
    pub by_signal: bool,
    /// Whether a fault of its disk was under way, for which a node must end.
    pub excused: bool,
}

/// Judges all lives of all nodes. A panic is never excused, nor is a signal: a node that gives up
/// because of its disk exits.
pub(crate) fn check(lives: &[Life]) -> Findings {
    let mut findings = Findings::new("crash");
    for life in lives {
        for line in life.text.lines() {
            let Some(mark) = MARKS.iter().find(|mark| line.contains(**mark)) else { continue };
            if *mark == "consensus ended" && life.excused {
                continue;
            }
            findings.add(Finding::new("a crash in a node's log", format!("node {}: {}", life.node + 1, line.trim())));
        }
        let mut seconds: BTreeMap<&str, usize> = BTreeMap::new();
        for line in life.text.lines().filter(|line| line.starts_with("20")) {
            *seconds.entry(line.get(..SECOND).unwrap_or(line)).or_default() += 1;
        }
        if let Some((second, lines)) = seconds.into_iter().max_by_key(|(_, lines)| *lines)
            && lines > LINES_A_SECOND_MAX
        {
            let detail = format!("node {}: {lines} lines in the second {second}", life.node + 1);
            findings.add(Finding::new("a node floods its log", detail));
        }
        if let Some(why) = &life.ended
            && (!life.excused || life.by_signal)
        {
            let what = if life.by_signal { "a signal ended a node" } else { "a node ended by itself" };
            findings.add(Finding::new(what, format!("node {}: {why}", life.node + 1)));
        }
    }
    findings.scope(format!("{} lives", lives.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn life(text: &str, ended: Option<&str>, excused: bool) -> Life {
        let by_signal = ended.is_some_and(|why| why.starts_with("signal"));
        Life { node: 0, text: text.into(), ended: ended.map(Into::into), by_signal, excused }
    }

    #[test]
    fn panics_and_unexplained_ends_are_found() {
        for (life, wanted) in [
            (life("INFO started\nWARN slow\n", None, false), 0),
            (life("thread 'x' panicked at src/y.rs:1:2:\n", None, true), 1),
            (life("", Some("exit status: 1"), false), 1),
            (life("", Some("exit status: 1"), true), 0),
            (life("", Some("signal: 6 (SIGABRT)"), false), 1),
            (life("", Some("signal: 11 (SIGSEGV)"), true), 1),
            (life("Error: consensus ended: disk\n", Some("exit status: 1"), true), 0),
            (life("Error: consensus ended: defect\n", Some("exit status: 1"), false), 2),
        ] {
            assert_eq!(check(&[life]).count, wanted);
        }
        let flood = "2026-01-02T03:04:05.000006Z  WARN again\n".repeat(LINES_A_SECOND_MAX + 1);
        assert_eq!(check(&[life(&flood, None, false)]).count, 1);
        assert_eq!(check(&[life(&flood[40..], None, false)]).count, 0);
    }
}
