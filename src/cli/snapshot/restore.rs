//! `headwater snapshot restore`: a data directory for one member of a new cluster.
//!
//! The member and its cluster are described as for `serve`, by the same file, variables and flags,
//! so that the restored files are those that `serve` will look for.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, ArgMatches};
use serde::Serialize;

use super::Summary;
use crate::error::CliError;
use crate::output::{self, WriteOut};
use crate::serve;
use headwater_server::backup::{self, Restored};
use headwater_server::config::{Config, SETTINGS, Setting, Sources};
use headwater_types::limits::RESTORE_BUMP_INDEX_DEFAULT;

/// [`RESTORE_BUMP_INDEX_DEFAULT`] as it is written on the command line.
const BUMP_INDEX_DEFAULT: &str = "1099511627776";

/// Make the data directory of a member of a new cluster from a backup
///
/// The new cluster has the keys, revisions and leases of the backup, another name (choose another
/// cluster.token) and another store epoch. Run it once for every member of cluster.initial, with
/// the same backup and the same options but for the member's own, then start them all. An existing
/// data directory is never touched.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct RestoreArgs {
    /// The backup
    file: PathBuf,
    #[command(flatten)]
    target: RestoreTarget,
}

/// The member to make, and the differences of its state from the backup.
#[derive(Clone, Debug, Default)]
pub(crate) struct RestoreTarget {
    /// File with settings of the member.
    config: Option<PathBuf>,
    /// Number of log indexes that are skipped.
    bump_index: u64,
    /// Number of revisions that are skipped.
    bump_revision: i64,
    /// Whether the revisions of the backup become unreadable.
    mark_compacted: bool,
    /// Whether etcd's authentication is turned off.
    disable_auth: bool,
    /// Settings of the member that were given by flags, each as its key and the text of its value.
    flags: Vec<(&'static str, String)>,
}

/// Settings that `restore` accepts as flags: the identity, addresses, data directory and cluster of
/// the new member.
fn settings() -> impl Iterator<Item = &'static Setting> {
    const SECTIONS: &[&str] = &["node.", "data-dir", "listen-", "advertise-", "cluster."];
    SETTINGS.iter().filter(|setting| SECTIONS.iter().any(|section| setting.key.starts_with(section)))
}

impl clap::Args for RestoreTarget {
    fn augment_args(command: clap::Command) -> clap::Command {
        command
            .arg(
                Arg::new("bump-index")
                    .long("bump-index")
                    .value_name("N")
                    .value_parser(clap::value_parser!(u64).range(1..))
                    .default_value(BUMP_INDEX_DEFAULT)
                    .help("Leave N log indexes out, more than the old cluster can have given out since the backup"),
            )
            .arg(
                Arg::new("bump-revision")
                    .long("bump-revision")
                    .value_name("N")
                    .value_parser(clap::value_parser!(i64).range(0..))
                    .default_value("0")
                    .help("Leave N revisions out, so that none that clients have seen is given out again"),
            )
            .arg(
                Arg::new("mark-compacted")
                    .long("mark-compacted")
                    .action(ArgAction::SetTrue)
                    .help("Make older revisions unreadable: watchers from before the restore are told to start over"),
            )
            .arg(
                Arg::new("disable-auth").long("disable-auth").action(ArgAction::SetTrue).help(
                    "Turn etcd's authentication off, users and roles stay: the way back if nobody has the role root",
                ),
            )
            .arg(serve::config_file_arg())
            .args(settings().map(serve::setting_arg))
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for RestoreTarget {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut args = Self::default();
        args.update_from_arg_matches(matches)?;
        Ok(args)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.config = matches.get_one::<PathBuf>("config").cloned();
        self.bump_index = matches.get_one::<u64>("bump-index").copied().unwrap_or(RESTORE_BUMP_INDEX_DEFAULT);
        self.bump_revision = matches.get_one::<i64>("bump-revision").copied().unwrap_or_default();
        self.mark_compacted = matches.get_flag("mark-compacted");
        self.disable_auth = matches.get_flag("disable-auth");
        self.flags = serve::given_settings(settings(), matches);
        Ok(())
    }
}

#[derive(Serialize)]
struct Done {
    data_dir: String,
    node: String,
    cluster: String,
    members: usize,
    index: u64,
    revision: i64,
    compact_revision: i64,
    backup: Summary,
}

impl RestoreTarget {
    /// The configuration of the member to make. An error if it is invalid or has `join`.
    pub(crate) fn config(&self) -> Result<Config, CliError> {
        let sources =
            Sources { file: self.config.clone(), environment: serve::environment(), flags: self.flags.clone() };
        let config = Config::load(&sources).map_err(|error| CliError::Usage(error.to_string()))?;
        if config.join.is_some() {
            return Err(CliError::Usage(
                "a restored member does not join: take `join` out of the configuration, and describe the new cluster with \
                 cluster.initial and node.id"
                    .to_owned(),
            ));
        }
        Ok(config)
    }

    /// Makes the data directory of the member that `config` describes, from the backup `file`, and
    /// prints the result.
    pub(crate) fn restore(&self, file: &Path, config: &Config, format: WriteOut) -> Result<(), CliError> {
        let (index, revision) = (self.bump_index, self.bump_revision);
        let restored = backup::restore(file, config, index, revision, self.mark_compacted, self.disable_auth)
            .map_err(|error| CliError::Finding(format!("nothing was restored: {error}")))?;
        print(config, &restored, format)
    }
}

pub(super) fn run(args: &RestoreArgs, format: WriteOut) -> Result<(), CliError> {
    args.target.restore(&args.file, &args.target.config()?, format)
}

fn print(config: &Config, restored: &Restored, format: WriteOut) -> Result<(), CliError> {
    let done = Done {
        data_dir: config.data_dir.display().to_string(),
        node: config.node.id.to_string(),
        cluster: format!("{:x}", backup::cluster_of(config)),
        members: config.cluster.initial.len(),
        index: restored.index.get(),
        revision: restored.revision.get(),
        compact_revision: restored.compact_revision.map_or(0, |revision| revision.get()),
        backup: Summary::from(&restored.backup),
    };
    let mut out = std::io::stdout().lock();
    match format {
        WriteOut::Json => output::print_json(&mut out, &done),
        WriteOut::Table => {
            let header = ["DATA DIR", "NODE", "CLUSTER", "MEMBERS", "REVISION", "COMPACTED", "KEYS"];
            let row = vec![
                done.data_dir,
                done.node,
                done.cluster,
                done.members.to_string(),
                done.revision.to_string(),
                done.compact_revision.to_string(),
                done.backup.total_key.to_string(),
            ];
            output::print_table(&mut out, &header, [row])
        }
        WriteOut::Simple => {
            writeln!(out, "restored {} into {}", done.backup.line(), done.data_dir)?;
            let Done { node, cluster, members, index, revision, .. } = &done;
            writeln!(
                out,
                "node {node} of the new cluster {cluster} ({members} members) begins at revision {revision}, log index {index}"
            )?;
            if *members > 1 {
                writeln!(out, "restore the other members from the same backup before you start any")?;
            }
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_that_of_the_store() {
        assert_eq!(BUMP_INDEX_DEFAULT.parse(), Ok(RESTORE_BUMP_INDEX_DEFAULT));
    }
}
