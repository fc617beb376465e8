//! `headwater recover`: a new cluster of one member from the data directory of a survivor, when the
//! majority of the old cluster is lost for good.
//!
//! Owns the confirmation. The work is that of `snapshot save --from` and `snapshot restore`.
//! Invariant: the survivor's directory is not changed; the new one lies outside of it.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;

use super::error::CliError;
use super::notice;
use super::output::WriteOut;
use super::snapshot::restore::RestoreTarget;
use super::snapshot::salvage::{EntryArgs, ReportText, beside, salvage, write};
use headwater_server::config::Config;
use headwater_types::Supported;

/// The text that a user types on a terminal to confirm.
const CONFIRMATION: &str = "the majority is lost";

/// Go on as a new cluster from one survivor, when the majority is lost for good
///
/// Reads the data directory FROM of a node that does not run, and makes the directory --data-dir of
/// the only member of a new cluster, with everything that FROM has. FROM is left as it is. The new
/// cluster has one member in cluster.initial and another store epoch. Choose another cluster.token:
/// members of the old cluster are then refused. New members join with `serve --join`. Writes that
/// FROM had not received are lost.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct RecoverArgs {
    /// The data directory of the survivor, whose node does not run
    #[arg(id = "from", value_name = "FROM")]
    from: PathBuf,
    /// Confirm that the other members will never run again with their data
    #[arg(long)]
    yes_i_have_lost_the_majority: bool,
    #[command(flatten, next_help_heading = "Log entries")]
    entries: EntryArgs,
    #[command(flatten, next_help_heading = "The new member")]
    target: RestoreTarget,
}

pub(super) fn run(args: RecoverArgs, format: WriteOut, supported: Supported) -> Result<(), CliError> {
    let config = args.target.config()?;
    check_target(&args, &config)?;
    let salvaged = salvage(&args.from, beside(&config.data_dir, ".recovering"), &args.entries, supported, false)?;
    let report = ReportText::from(&salvaged.report);
    let mut out = std::io::stderr().lock();
    writeln!(
        out,
        "A new cluster of one member is made of {}, into {}:",
        args.from.display(),
        config.data_dir.display()
    )?;
    for line in report.lines() {
        writeln!(out, "  {line}")?;
    }
    writeln!(
        out,
        "If another member of the old cluster still runs or can be started, its writes and the new ones differ for ever."
    )?;
    confirm(&args, &mut out)?;
    drop(out);
    // The lock on the old directory is held until the new one is complete.
    let file = salvaged.work_dir().join("file");
    write(&salvaged, &file, false)?;
    args.target.restore(&file, &config, format)?;
    notice!("keep {} until the new cluster has proved itself; never start it again", args.from.display());
    Ok(())
}

fn check_target(args: &RecoverArgs, config: &Config) -> Result<(), CliError> {
    if config.cluster.initial.len() != 1 {
        return Err(CliError::Usage(format!(
            "a recovered cluster begins with one member, and cluster.initial has {}: name this member alone there, also in the \
             configuration that it is started with; others join it later with `serve --join`",
            config.cluster.initial.len()
        )));
    }
    let is_same = config.data_dir.exists() && config.data_dir.canonicalize().ok() == args.from.canonicalize().ok();
    if is_same || config.data_dir.starts_with(&args.from) {
        return Err(CliError::Usage(format!(
            "the new data directory must lie outside of {}, which stays as it is: name another --data-dir",
            args.from.display()
        )));
    }
    Ok(())
}

/// Fails unless the user has confirmed, by the flag or on the terminal.
fn confirm(args: &RecoverArgs, out: &mut impl Write) -> Result<(), CliError> {
    if args.yes_i_have_lost_the_majority {
        return Ok(());
    }
    let refused = || {
        CliError::Usage("nothing was made: confirm with --yes-i-have-lost-the-majority, or on a terminal".to_owned())
    };
    if !std::io::stdin().is_terminal() {
        return Err(refused());
    }
    write!(out, "Type \"{CONFIRMATION}\" to go on: ")?;
    out.flush()?;
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    if line.trim() == CONFIRMATION { Ok(()) } else { Err(refused()) }
}
