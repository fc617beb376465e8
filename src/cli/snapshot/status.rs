//! `headwater snapshot status`: whether a backup is whole, and its content.

use std::io::Write;
use std::path::PathBuf;

use super::Summary;
use crate::error::CliError;
use crate::output::{self, WriteOut, human_bytes};
use headwater_server::backup;

/// Check a backup from end to end and show its content
#[derive(Clone, Debug, clap::Args)]
pub(super) struct StatusArgs {
    /// The backup
    file: PathBuf,
}

pub(super) fn run(args: &StatusArgs, format: WriteOut) -> Result<(), CliError> {
    let verified = backup::inspect(&args.file).map_err(|error| CliError::Finding(error.to_string()))?;
    let summary = Summary::from(&verified);
    let mut out = std::io::stdout().lock();
    match format {
        WriteOut::Json => output::print_json(&mut out, &summary),
        WriteOut::Table => {
            let header = ["HASH", "REVISION", "TOTAL KEYS", "TOTAL SIZE", "LEASES", "CLUSTER", "EPOCH"];
            let row = vec![
                format!("{:x}", summary.hash),
                summary.revision.to_string(),
                summary.total_key.to_string(),
                human_bytes(summary.total_size),
                summary.leases.to_string(),
                summary.cluster,
                summary.epoch,
            ];
            output::print_table(&mut out, &header, [row])
        }
        WriteOut::Simple => {
            let size = human_bytes(summary.total_size);
            let epoch = if summary.epoch.is_empty() { "none yet".to_owned() } else { summary.epoch };
            for (name, value) in [
                ("sha-256", summary.sha256),
                ("revision", summary.revision.to_string()),
                ("compacted", summary.compact_revision.to_string()),
                ("keys", summary.total_key.to_string()),
                ("leases", summary.leases.to_string()),
                ("size", size),
                ("cluster", format!("{}, member {}", summary.cluster, summary.member)),
                ("epoch", epoch),
                ("log index", format!("{} of term {}", summary.index, summary.term)),
                ("taken", format!("{} by headwater {}", summary.taken, summary.version)),
                ("restores", format!("with headwater {} or newer", summary.needs)),
            ] {
                writeln!(out, "{name:<10} {value}")?;
            }
            Ok(())
        }
    }
}
