//! `headwater log`: the history of a cluster, and with `inspect` the Raft log in a data directory
//! whose node does not run.

mod describe;
mod inspect;

use clap::Subcommand;

use super::error::CliError;
use super::history;
use super::{ClientArgs, on_cluster};
use headwater_types::Supported;

/// Print changes and their authors, newest first; with `inspect`, look into a data directory
///
/// TARGET is a path, as for `follow`: /kv/app, /services/web. Everything below it counts; without
/// it, all of the store.
#[derive(Clone, Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, after_help = history::WHEN_HELP)]
pub(super) struct LogArgs {
    #[command(subcommand)]
    command: Option<LogCommand>,
    #[command(flatten)]
    history: history::log::HistoryArgs,
}

#[derive(Clone, Debug, Subcommand)]
enum LogCommand {
    /// Print the content of the data directory of a node that does not run, and name all damage;
    /// changes nothing
    Inspect(inspect::InspectArgs),
}

pub(super) fn run(args: LogArgs, client: &ClientArgs, supported: Supported) -> Result<(), CliError> {
    match args.command {
        Some(LogCommand::Inspect(args)) => inspect::run(&args, client.write_out, supported),
        None => on_cluster(client, async |c| history::log::run(args.history, c, client).await),
    }
}
