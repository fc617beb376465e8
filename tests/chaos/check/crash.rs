//! The nodes' own logs and ends: no panic, no flood of lines, and no end without a fault that
//! explains it.

use std::collections::BTreeMap;

use super::{Finding, Findings};

/// Texts that a healthy node never logs.
const MARKS: &[&str] = &["panicked at", "SIGSEGV", "stack overflow", "memory allocation of", "consensus ended"];

/// Most lines that one incarnation may log within one second of its clock: more would hide other
/// lines, and fill disks.
const LINES_A_SECOND_MAX: usize = 300;
/// Length of a log line's date and time down to the second, bytes.
const SECOND: usize = 19;

/// One incarnation of a node's process, with the lines that it logged.
pub(crate) struct Incarnation {
    pub node: usize,
    pub text: String,
    /// The reason why the process ended, if the rig did not end it.
    pub ended: Option<String>,
    /// Whether a signal that the rig had not sent ended the process.
    pub by_signal: bool,
    /// Whether a fault gave the node a reason to end by itself, such as a broken disk.
    pub excused: bool,
}

/// Judges all incarnations of all nodes. An end by a signal that the rig did not send, a flood of
/// log lines, and each text of [`MARKS`] but `consensus ended` are never excused. Any other end is
/// excused by a fault, such as a broken disk: the node exits by itself.
pub(crate) fn check(incarnations: &[Incarnation]) -> Findings {
    let mut findings = Findings::new("crash");
    for incarnation in incarnations {
        for line in incarnation.text.lines() {
            let Some(mark) = MARKS.iter().find(|mark| line.contains(**mark)) else { continue };
            if *mark == "consensus ended" && incarnation.excused {
                continue;
            }
            findings.add(Finding::new(
                "a crash in a node's log",
                format!("node {}: {}", incarnation.node + 1, line.trim()),
            ));
        }
        let mut seconds: BTreeMap<&str, usize> = BTreeMap::new();
        for line in incarnation.text.lines().filter(|line| line.starts_with("20")) {
            *seconds.entry(line.get(..SECOND).unwrap_or(line)).or_default() += 1;
        }
        if let Some((second, lines)) = seconds.into_iter().max_by_key(|(_, lines)| *lines)
            && lines > LINES_A_SECOND_MAX
        {
            let detail = format!("node {}: {lines} lines in the second {second}", incarnation.node + 1);
            findings.add(Finding::new("a node floods its log", detail));
        }
        if let Some(why) = &incarnation.ended
            && (!incarnation.excused || incarnation.by_signal)
        {
            let what = if incarnation.by_signal { "a signal ended a node" } else { "a node ended by itself" };
            findings.add(Finding::new(what, format!("node {}: {why}", incarnation.node + 1)));
        }
    }
    findings.scope(format!("{} lives", incarnations.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn incarnation(text: &str, ended: Option<&str>, excused: bool) -> Incarnation {
        let by_signal = ended.is_some_and(|why| why.starts_with("signal"));
        Incarnation { node: 0, text: text.into(), ended: ended.map(Into::into), by_signal, excused }
    }

    #[test]
    fn panics_and_unexplained_ends_are_found() {
        for (incarnation, wanted) in [
            (incarnation("INFO started\nWARN slow\n", None, false), 0),
            (incarnation("thread 'x' panicked at src/y.rs:1:2:\n", None, true), 1),
            (incarnation("", Some("exit status: 1"), false), 1),
            (incarnation("", Some("exit status: 1"), true), 0),
            (incarnation("", Some("signal: 6 (SIGABRT)"), false), 1),
            (incarnation("", Some("signal: 11 (SIGSEGV)"), true), 1),
            (incarnation("Error: consensus ended: disk\n", Some("exit status: 1"), true), 0),
            (incarnation("Error: consensus ended: defect\n", Some("exit status: 1"), false), 2),
        ] {
            assert_eq!(check(&[incarnation]).count, wanted);
        }
        let flood = "2026-01-02T03:04:05.000006Z  WARN again\n".repeat(LINES_A_SECOND_MAX + 1);
        assert_eq!(check(&[incarnation(&flood, None, false)]).count, 1);
        assert_eq!(check(&[incarnation(&flood[40..], None, false)]).count, 0);
    }
}
