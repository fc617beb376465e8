//! `headwater compact`: gives up the history below a revision.

use std::io::Write;

use crate::ClientArgs;
use crate::connect::Cluster;
use crate::error::CliError;
use crate::output::{self, WriteOut, json};
use headwater_client::Repeat;
use headwater_proto::pb::etcdserverpb::CompactionRequest;

/// Give up the history below a revision
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct CompactArgs {
    /// Revisions below this one become unreadable
    revision: i64,
    /// Wait until the space is reclaimed on the asked node
    #[arg(long)]
    physical: bool,
}

pub(crate) async fn run(args: CompactArgs, cluster: &Cluster, client: &ClientArgs) -> Result<(), CliError> {
    let request = CompactionRequest { revision: args.revision, physical: args.physical };
    let response = cluster.call(Repeat::Harmful, async |a| a.kv().compact(a.request(request)).await).await?;
    let mut out = std::io::stdout().lock();
    match client.write_out {
        WriteOut::Json => output::print_json(&mut out, &json::Compaction::from(&response)),
        WriteOut::Simple | WriteOut::Table => Ok(writeln!(out, "compacted revision {}", args.revision)?),
    }
}
