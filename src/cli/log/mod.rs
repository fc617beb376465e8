//! `headwater log`: looks at the Raft log in a data directory whose node does not run.

mod describe;
mod inspect;

use clap::Subcommand;

use super::ClientArgs;
use super::error::CliError;
use headwater_types::Supported;

/// Look at the log in the data directory of a node that does not run
#[derive(Clone, Debug, clap::Args)]
pub(super) struct LogArgs {
    #[command(subcommand)]
    command: LogCommand,
}

#[derive(Clone, Debug, Subcommand)]
enum LogCommand {
    /// Print what is in a data directory, and name all damage; changes nothing
    Inspect(inspect::InspectArgs),
}

pub(super) fn run(args: LogArgs, client: &ClientArgs, supported: Supported) -> Result<(), CliError> {
    match args.command {
        LogCommand::Inspect(args) => inspect::run(&args, client.write_out, supported),
    }
}
