//! The result of a target: counts, findings, and the command lines that replay them.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::args::Extent;

/// Most findings that are printed.
const SHOWN_MAX: usize = 40;
/// Number of a finding's first characters, without digits, that decide whether it equals another.
const KEY_CHARS: usize = 70;

/// The result of one target.
pub(crate) struct Report {
    name: &'static str,
    extent: Extent,
    pub(crate) inputs: u64,
    answers: BTreeMap<String, u64>,
    /// By text without digits, cut after [`KEY_CHARS`]: the first such finding, its input, and the
    /// number of such findings.
    findings: BTreeMap<String, (String, Option<u64>, u64)>,
}

impl Report {
    pub(crate) fn new(name: &'static str, extent: Extent) -> Self {
        Self { name, extent, inputs: 0, answers: BTreeMap::new(), findings: BTreeMap::new() }
    }

    pub(crate) fn count(&mut self, answer: String) {
        self.inputs += 1;
        *self.answers.entry(answer).or_default() += 1;
    }

    /// Adds a finding. `input` is the number of the input that caused it; `None` if that is
    /// unknown. True for the first finding of its text.
    pub(crate) fn add(&mut self, finding: String, input: Option<u64>) -> bool {
        let key = finding.chars().filter(|c| !c.is_ascii_digit()).take(KEY_CHARS).collect();
        let (_, _, count) = self.findings.entry(key).or_insert((finding, input, 0));
        *count += 1;
        *count == 1
    }

    pub(crate) fn is_sound(&self) -> bool {
        self.findings.is_empty()
    }

    /// A line about the progress of the attack.
    pub(crate) fn progress(&self, elapsed: Duration) -> String {
        let seconds = elapsed.as_secs();
        format!("{}: {seconds} s, {} inputs, {} findings", self.name, self.inputs, self.findings.len())
    }

    pub(crate) fn print(&self, elapsed: Duration, sentinels: usize) {
        let Self { name, extent: Extent { seed, .. }, inputs, .. } = self;
        let seconds = elapsed.as_secs_f64();
        println!("{name}: seed {seed}, {inputs} inputs in {seconds:.0} s, {sentinels} sentinels written");
        let mut answers: Vec<_> = self.answers.iter().collect();
        answers.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let answers: Vec<String> = answers.iter().map(|(answer, count)| format!("{answer} {count}")).collect();
        println!("  answers: {}", answers.join(", "));
        // Findings about the whole cluster come first: they matter more than those about an answer.
        let mut findings: Vec<_> = self.findings.values().collect();
        findings.sort_by_key(|(_, input, _)| input.is_some());
        for (finding, input, count) in findings.into_iter().take(SHOWN_MAX) {
            println!("  FINDING ({count}x): {finding}\n    replay: {}", self.replay(*input));
        }
        if self.findings.len() > SHOWN_MAX {
            println!("  and {} more findings", self.findings.len() - SHOWN_MAX);
        }
    }

    /// The command that replays a finding: with its input alone, or with all inputs of the run if
    /// the input is unknown.
    fn replay(&self, input: Option<u64>) -> String {
        let (first, inputs) = input.map_or((self.extent.first, self.inputs), |input| (input, 1));
        let from = if first == 0 { String::new() } else { format!(" --first {first}") };
        format!("scripts/fuzz {} --seed {}{from} --inputs {inputs}", self.name, self.extent.seed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_that_differ_in_numbers_alone_are_one() {
        let extent = Extent { seed: 7, first: 0, inputs: None, seconds: 1, lanes: None };
        let mut report = Report::new("dns", extent);
        assert!(report.is_sound());
        for input in [4, 9] {
            report.count("ok".into());
            assert_eq!(report.add(format!("node 1 answers {input}"), Some(input)), input == 4);
        }
        assert!(report.add("another".into(), None));
        assert_eq!(report.findings.len(), 2);
        assert_eq!(report.replay(Some(4)), "scripts/fuzz dns --seed 7 --first 4 --inputs 1");
        assert_eq!(report.replay(None), "scripts/fuzz dns --seed 7 --inputs 2");
    }
}
