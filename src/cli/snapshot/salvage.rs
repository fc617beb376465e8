//! Backups out of the data directory of a node that does not run: for `snapshot save --from` and
//! `recover`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::error::CliError;
use crate::progress::Progress;
use headwater_server::backup::{self, EntryRun, Salvage, SalvageError, SalvageOptions, SalvageReport};
use headwater_types::{LogIndex, Supported};

/// Choice of the log entries of a salvaged state.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct EntryArgs {
    /// Leave out this entry of the log, which no member can apply, and go on behind it; may be
    /// repeated
    #[arg(long, value_name = "INDEX", requires = "from")]
    pub(crate) skip: Vec<u64>,
    /// Leave out entries that this member did not know to be committed: the last writes that
    /// clients were told of may be among them
    #[arg(long, requires = "from")]
    pub(crate) committed_only: bool,
}

/// `path` with `suffix` appended to its file name, or to `backup` if it has none.
pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.file_name().map_or_else(|| OsString::from("backup"), OsString::from);
    name.push(suffix);
    path.with_file_name(name)
}

/// Copies the state in `dir` to `work_dir`, and applies the log to it. Shows progress only if
/// `with_lines` is set.
pub(crate) fn salvage(
    dir: &Path,
    work_dir: PathBuf,
    entries: &EntryArgs,
    supported: Supported,
    with_lines: bool,
) -> Result<Salvage, CliError> {
    let options = SalvageOptions {
        data_dir: dir.to_owned(),
        work_dir,
        skip: entries.skip.iter().copied().map(LogIndex).collect(),
        committed_only: entries.committed_only,
        supported,
    };
    let mut progress = if with_lines { Progress::new("checking records", None) } else { Progress::Off };
    let salvaged = backup::salvage(&options, &mut |records| progress.set(records));
    progress.finish();
    salvaged.map_err(|error: SalvageError| CliError::Finding(format!("nothing was saved: {error}")))
}

/// Writes the salvaged backup to `file`, durably. Shows progress on a terminal; elsewhere only if
/// `with_lines` is set.
pub(crate) fn write(salvage: &Salvage, file: &Path, with_lines: bool) -> Result<(), CliError> {
    let mut progress = Progress::of_bytes("saving", salvage.backup.total_bytes(), with_lines);
    let written = backup::write_backup(&salvage.backup, file, &mut |bytes| progress.set(bytes));
    progress.finish();
    written.map_err(|error| CliError::Finding(format!("nothing was saved: {error}")))
}

/// The part of the log that was salvaged, and the damage that was found, as they are printed.
#[derive(Debug, Serialize)]
pub(crate) struct ReportText {
    node: u64,
    cluster: String,
    on_disk: u64,
    applied: u64,
    committed: Option<u64>,
    unconfirmed: Option<[u64; 2]>,
    skipped: Vec<u64>,
    left_out: Option<[u64; 2]>,
    why: Option<String>,
    log_damage: Vec<String>,
    state_damage: Vec<String>,
}

impl From<&SalvageReport> for ReportText {
    fn from(report: &SalvageReport) -> Self {
        let ends = |run: EntryRun| [run.first.get(), run.last.get()];
        Self {
            node: report.owner.node_id.get(),
            cluster: format!("{:016x}", report.owner.cluster_id.get()),
            on_disk: report.on_disk.get(),
            applied: report.applied.get(),
            committed: report.committed.map(LogIndex::get),
            unconfirmed: report.unconfirmed.map(ends),
            skipped: report.skipped.iter().map(|index| index.get()).collect(),
            left_out: report.left_out.map(ends),
            why: report.why.clone(),
            log_damage: report.log_damage.kept().iter().map(ToString::to_string).collect(),
            state_damage: report.state_damage.kept().iter().map(ToString::to_string).collect(),
        }
    }
}

impl ReportText {
    /// The report for people, one statement a line.
    pub(crate) fn lines(&self) -> Vec<String> {
        let run = |[first, last]: [u64; 2]| match last - first {
            0 => format!("log entry {first}"),
            more => format!("log entries {first} to {last} ({} in all)", more + 1),
        };
        let mut lines = vec![match self.state_damage.is_empty() {
            true => format!(
                "it has everything up to log entry {}: the state on disk up to {}, the log from there",
                self.applied, self.on_disk
            ),
            false => format!(
                "it has everything up to log entry {}, all of it from the log: the state on disk is damaged",
                self.applied
            ),
        }];
        if let Some(unconfirmed) = self.unconfirmed {
            lines.push(format!(
                "{}: node {} did not know whether the cluster had committed this. A client that wrote it was told that it \
                 succeeded, or got no answer. --committed-only leaves it out",
                run(unconfirmed),
                self.node
            ));
        }
        for skipped in &self.skipped {
            lines.push(format!("log entry {skipped} was left out, as --skip says"));
        }
        if let (Some(left_out), Some(why)) = (self.left_out, &self.why) {
            lines.push(format!("LEFT OUT: {}. {why}", run(left_out)));
        }
        let damage = self.log_damage.iter().chain(&self.state_damage);
        lines.extend(damage.map(|damage| format!("damage: {damage}")));
        lines.push("writes that this member had not received are not in it".to_owned());
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_says_what_is_missing() {
        let text = ReportText {
            node: 2,
            cluster: String::new(),
            on_disk: 5,
            applied: 9,
            committed: Some(7),
            unconfirmed: Some([8, 9]),
            skipped: vec![6],
            left_out: Some([10, 10]),
            why: Some("log entry 10 is missing or damaged".to_owned()),
            log_damage: vec![],
            state_damage: vec![],
        };
        let text = text.lines().join("\n");
        for part in
            ["up to log entry 9", "log entries 8 to 9 (2 in all)", "entry 6 was left out", "LEFT OUT: log entry 10."]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn a_working_folder_lies_beside_the_file() {
        assert_eq!(beside(Path::new("b.db"), ".work"), Path::new("b.db.work"));
        assert_eq!(beside(Path::new("x/b.db"), ".work"), Path::new("x/b.db.work"));
    }
}
