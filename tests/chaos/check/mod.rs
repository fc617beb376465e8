//! The checkers: each judges one property of the records. Tests (`*_tests`, and those in the files)
//! show that a checker fails when it should; runs with `--control` show it for some.
//!
//! A checker judges by records, and does not depend on faults and processes. All of its findings
//! are counted, and the first [`KEPT_MAX`] are kept in full.

pub(crate) mod catalog;
pub(crate) mod commit;
pub(crate) mod crash;
pub(crate) mod durable;
pub(crate) mod elections;
pub(crate) mod elle;
pub(crate) mod enemy;
pub(crate) mod leases;
pub(crate) mod linear;
pub(crate) mod lock;
mod logged_rights;
pub(crate) mod model;
pub(crate) mod outage;
pub(crate) mod owners;
pub(crate) mod raft;
pub(crate) mod replay;
pub(crate) mod rights;
pub(crate) mod set;
pub(crate) mod stats;
pub(crate) mod usage;
pub(crate) mod watch;

use crate::history::Record;

/// Most findings of one checker that are kept in full.
const KEPT_MAX: usize = 10;

/// One violation: its kind in a few words, and its details.
#[derive(Clone, Debug)]
pub(crate) struct Finding {
    pub what: String,
    pub detail: String,
}

impl Finding {
    pub(crate) fn new(what: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { what: what.into(), detail: detail.into() }
    }

    /// A finding about one request.
    pub(crate) fn of(record: &Record, what: &str, detail: impl AsRef<str>) -> Self {
        let at = format!(
            "record {} of {} (client {}, node {}, {:.3} to {:.3} s): {}",
            record.id,
            record.workload,
            record.process,
            record.node + 1,
            record.call as f64 / 1e6,
            record.done as f64 / 1e6,
            detail.as_ref(),
        );
        Self::new(what, at)
    }
}

/// The findings of one checker: the first [`KEPT_MAX`], and the count of all.
#[derive(Clone, Debug)]
pub(crate) struct Findings {
    pub checker: &'static str,
    pub kept: Vec<Finding>,
    pub count: usize,
    /// Amount of judged evidence, in words, so that an empty check is noticed.
    pub scope: String,
    /// Amount of judged evidence as a number. 0 without any, and for checkers that do not count it.
    pub judged: usize,
    /// Whether the run had no evidence for this checker: the report shows that.
    nothing: bool,
}

impl Findings {
    pub(crate) fn new(checker: &'static str) -> Self {
        Self { checker, kept: Vec::new(), count: 0, scope: String::new(), judged: 0, nothing: false }
    }

    pub(crate) fn add(&mut self, finding: Finding) {
        self.count += 1;
        if self.kept.len() < KEPT_MAX {
            self.kept.push(finding);
        }
    }

    pub(crate) fn scope(mut self, scope: impl Into<String>) -> Self {
        self.scope = scope.into();
        self
    }

    pub(crate) fn judged(mut self, judged: usize) -> Self {
        self.judged = judged;
        self
    }

    /// Sets whether the run had no evidence for this checker.
    pub(crate) fn nothing_if(mut self, nothing: bool) -> Self {
        self.nothing = nothing;
        self
    }

    /// First word of the checker's line in the report: `BAD` with findings, `-` if there was
    /// nothing to judge, else `ok`.
    pub(crate) fn word(&self) -> &'static str {
        match (self.count, self.nothing) {
            (0, false) => "ok",
            (0, true) => "-",
            _ => "BAD",
        }
    }

    /// The same findings under another checker's name, for a checker that runs twice.
    pub(crate) fn by(mut self, checker: &'static str) -> Self {
        self.checker = checker;
        self
    }

    #[cfg(test)]
    pub(crate) fn whats(&self) -> Vec<&str> {
        self.kept.iter().map(|finding| finding.what.as_str()).collect()
    }
}
