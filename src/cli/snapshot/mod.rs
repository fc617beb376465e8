//! `headwater snapshot`: takes backups, looks at them, and makes data directories of them.

pub(crate) mod restore;
pub(crate) mod salvage;
mod save;
mod status;

use clap::Subcommand;
use serde::Serialize;

use super::ClientArgs;
use super::connect::Cluster;
use super::error::CliError;
use super::output::{human_bytes, human_date};
use headwater_server::backup::Verified;
use headwater_types::Supported;

/// Backups: one file that holds a whole store
#[derive(Clone, Debug, clap::Args)]
pub(super) struct SnapshotArgs {
    #[command(subcommand)]
    command: SnapshotCommand,
}

#[derive(Clone, Debug, Subcommand)]
enum SnapshotCommand {
    /// Save a backup of a running member, or out of the data directory of a dead one
    Save(save::SaveArgs),
    /// Check a backup from end to end and show its content
    Status(status::StatusArgs),
    /// Make the data directory of a member of a new cluster from a backup
    Restore(restore::RestoreArgs),
}

pub(super) fn run(args: SnapshotArgs, client: &ClientArgs, supported: Supported) -> Result<(), CliError> {
    match args.command {
        SnapshotCommand::Save(args) => match args.from.clone() {
            Some(dir) => save::run_offline(&args, &dir, client, supported),
            None => super::on_cluster(client, async |cluster: &Cluster| save::run(args, cluster, client).await),
        },
        SnapshotCommand::Status(args) => status::run(&args, client.write_out),
        SnapshotCommand::Restore(args) => restore::run(&args, client.write_out),
    }
}

/// Content of a backup, as it is printed. The first four are named as etcd's tools name them.
#[derive(Debug, Serialize)]
pub(crate) struct Summary {
    /// First four bytes of the backup's checksum (`sha256`), as a big-endian number.
    hash: u32,
    revision: i64,
    #[serde(rename = "totalKey")]
    total_key: u64,
    #[serde(rename = "totalSize")]
    total_size: u64,
    sha256: String,
    cluster: String,
    member: String,
    /// Store epoch, hexadecimal; empty if the store had none yet.
    epoch: String,
    compact_revision: i64,
    leases: u64,
    index: u64,
    term: u64,
    /// Time at which the backup was taken, in UTC.
    taken: String,
    /// Version of the program that took the backup.
    version: String,
    /// The lowest version of a program that can restore it.
    needs: String,
}

impl From<&Verified> for Summary {
    fn from(verified: &Verified) -> Self {
        let Verified { info, digest, total_bytes } = verified;
        Self {
            hash: u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]),
            revision: info.revision.get(),
            total_key: info.live_keys,
            total_size: *total_bytes,
            sha256: digest.iter().map(|byte| format!("{byte:02x}")).collect(),
            cluster: format!("{:x}", info.cluster_id.get()),
            member: format!("{:x}", info.node_id.get()),
            epoch: info.epoch.map(|epoch| format!("{:016x}", epoch.get())).unwrap_or_default(),
            compact_revision: info.compact_revision.map_or(0, |revision| revision.get()),
            leases: info.leases,
            index: info.index.get(),
            term: info.term.get(),
            taken: human_date(info.taken_unix_ms, humantime::format_rfc3339_seconds),
            version: info.version.clone(),
            needs: info.needs.to_string(),
        }
    }
}

impl Summary {
    /// One line, for people.
    pub(crate) fn line(&self) -> String {
        let Self { revision, total_key, leases, total_size, .. } = self;
        format!("revision {revision}, {total_key} keys, {leases} leases, {}", human_bytes(*total_size))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_types::{BackupInfo, ClusterId, LogIndex, NodeId, Revision, StoreEpoch, Term, Version};

    #[test]
    fn a_summary_has_etcds_names_first() {
        let info = BackupInfo {
            cluster_id: ClusterId(0xabc),
            node_id: NodeId(2),
            epoch: Some(StoreEpoch(0x1f)),
            term: Term(3),
            index: LogIndex(40),
            revision: Revision(5),
            compact_revision: None,
            live_keys: 6,
            live_bytes: 7,
            leases: 8,
            taken_unix_ms: 1_000_000_000_000,
            version: "1.2.3".into(),
            needs: Version::V0_3,
            files: vec![],
        };
        let summary = Summary::from(&Verified { info: info.clone(), digest: [0xab; 32], total_bytes: 2048 });
        let json = serde_json::to_string(&summary).unwrap();
        let wanted = r#"{"hash":2880154539,"revision":5,"totalKey":6,"totalSize":2048,"sha256":"abab"#;
        assert!(json.starts_with(wanted), "{json}");
        let rest = r#""cluster":"abc","member":"2","epoch":"000000000000001f","compact_revision":0,"leases":8,"index":40,"term":3,"taken":"2001-09-09T01:46:40Z","version":"1.2.3","needs":"0.3"}"#;
        assert!(json.ends_with(rest), "{json}");
        assert_eq!(summary.line(), "revision 5, 6 keys, 8 leases, 2.0 KiB");
        let far = BackupInfo { taken_unix_ms: u64::MAX, ..info };
        let summary = Summary::from(&Verified { info: far, digest: [0; 32], total_bytes: 0 });
        assert_eq!(summary.taken, u64::MAX.to_string());
    }
}
