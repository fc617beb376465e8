//! `headwater member invite`, `invitations` and `uninvite`: the right of nodes to join the cluster.
//!
//! Invariant: a token is printed once, or written to a new file that its owner alone may read.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::connect::Cluster;
use super::error::CliError;
use super::output::{self, WriteOut};
use super::{ClientArgs, Freshness, parse_ttl};
use headwater_client::Repeat;
use headwater_proto::pb::headwater_v1 as pb;

/// Mode of a file with a token.
const TOKEN_MODE: u32 = 0o600;

/// Properties of a new invitation.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct InviteArgs {
    /// Name of the invitation, for people
    #[arg(long, default_value = "")]
    name: String,
    /// Number of nodes that may join by the invitation, at most 64
    #[arg(long, default_value_t = 1, value_name = "N", conflicts_with = "reusable")]
    uses: u32,
    /// Any number of nodes may join by it
    #[arg(long)]
    reusable: bool,
    /// Time for which the invitation can be used, at most 30 days; in seconds, or with a unit
    #[arg(long, default_value = "1h", value_parser = parse_ttl)]
    ttl: i64,
    /// Nodes that join by it stay learners until they are promoted
    #[arg(long)]
    learner: bool,
    /// Write the token to this new file, which only you may read, instead of printing it
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

#[derive(Serialize)]
struct Invited<'a> {
    id: u64,
    #[serde(skip_serializing_if = "str::is_empty")]
    token: &'a str,
    expires: String,
}

#[derive(Serialize)]
struct Row {
    id: u64,
    name: String,
    expires: String,
    /// Most nodes that may join by the invitation. Absent for any number.
    #[serde(skip_serializing_if = "Option::is_none")]
    uses: Option<u32>,
    used: u64,
    learner: bool,
    used_by: Vec<UsedBy>,
}

#[derive(Serialize)]
struct UsedBy {
    node: String,
    at: String,
    joined: bool,
}

pub(super) async fn invite(args: InviteArgs, cluster: &Cluster, client: &ClientArgs) -> Result<(), CliError> {
    let ttl_seconds = u64::try_from(args.ttl)
        .map_err(|_| CliError::Usage("--ttl is a time from now on: it is not negative".to_owned()))?;
    // Before the invitation: otherwise its token would be lost.
    let file = args.out.as_deref().map(new_file).transpose()?;
    let request = pb::CreateInvitationRequest {
        name: args.name,
        ttl_seconds,
        uses: (!args.reusable).then_some(args.uses),
        learner: args.learner,
    };
    let call = async |a: headwater_client::Attempt| a.invitations().create_invitation(a.request(request.clone())).await;
    let made = match cluster.call(Repeat::Harmful, call).await {
        Ok(made) => made,
        Err(error) => {
            if let Some(path) = &args.out {
                // The new file is still empty.
                drop(std::fs::remove_file(path));
            }
            return Err(error);
        }
    };
    let expires = time(made.expires_unix_ms);
    let mut out = std::io::stdout().lock();
    let printed = match (file, &args.out) {
        (Some(mut file), Some(path)) => {
            writeln!(file, "{}", made.token)?;
            file.sync_all()?;
            if client.write_out != WriteOut::Json {
                writeln!(out, "invitation {} until {expires}, its token is in {}", made.id, path.display())?;
            }
            ""
        }
        _ => made.token.as_str(),
    };
    match client.write_out {
        WriteOut::Json => output::print_json(&mut out, &Invited { id: made.id, token: printed, expires }),
        WriteOut::Simple | WriteOut::Table if !printed.is_empty() => {
            writeln!(out, "{printed}")?;
            // Not among the output: a script takes that for the token.
            let endpoints = cluster.names().collect::<Vec<_>>().join(",");
            writeln!(
                std::io::stderr(),
                "invitation {} until {expires}; the token is not shown again. Put it into a file of mode 600, and start the \
                 node with:  headwater serve --join {endpoints} --join-token-file FILE …",
                made.id
            )?;
            Ok(())
        }
        WriteOut::Simple | WriteOut::Table => Ok(()),
    }
}

fn new_file(path: &Path) -> Result<std::fs::File, CliError> {
    let options = OpenOptions::new().write(true).create_new(true).mode(TOKEN_MODE).open(path);
    options.map_err(|error| CliError::Usage(format!("--out {}: {error}", path.display())))
}

pub(super) async fn list(cluster: &Cluster, client: &ClientArgs) -> Result<(), CliError> {
    let request = pb::ListInvitationsRequest { linearizable: client.consistency == Freshness::Linearizable };
    let call = async |a: headwater_client::Attempt| a.invitations().list_invitations(a.request(request)).await;
    let found = cluster.call(Repeat::Harmless, call).await?;
    let rows = found.invitations.into_iter().map(row);
    let mut out = std::io::stdout().lock();
    match client.write_out {
        WriteOut::Json => output::print_json(&mut out, &rows.collect::<Vec<_>>()),
        WriteOut::Simple => {
            for row in rows {
                writeln!(out, "{}", cells(row).join(", "))?;
            }
            Ok(())
        }
        WriteOut::Table => {
            output::print_table(&mut out, &["ID", "NAME", "EXPIRES", "USES", "IS LEARNER", "USED BY"], rows.map(cells))
        }
    }
}

pub(super) async fn uninvite(id: u64, cluster: &Cluster, client: &ClientArgs) -> Result<(), CliError> {
    let request = pb::DeleteInvitationRequest { id };
    let call = async |a: headwater_client::Attempt| a.invitations().delete_invitation(a.request(request)).await;
    cluster.call(Repeat::Harmful, call).await?;
    let mut out = std::io::stdout().lock();
    match client.write_out {
        WriteOut::Json => output::print_json(&mut out, &serde_json::json!({ "id": id })),
        WriteOut::Simple | WriteOut::Table => Ok(writeln!(out, "invitation {id} withdrawn")?),
    }
}

fn row(invitation: pb::Invitation) -> Row {
    let used_by = |one: pb::InvitationUse| UsedBy { node: one.node, at: time(one.unix_ms), joined: one.joined };
    Row {
        id: invitation.id,
        name: invitation.name,
        expires: time(invitation.expires_unix_ms),
        uses: invitation.uses,
        used: invitation.used,
        learner: invitation.learner,
        used_by: invitation.used_by.into_iter().map(used_by).collect(),
    }
}

fn cells(row: Row) -> Vec<String> {
    let uses = match row.uses {
        Some(uses) => format!("{} of {uses}", row.used),
        None => format!("{} of any", row.used),
    };
    let nodes: Vec<String> = row.used_by.into_iter().map(|one| one.node).collect();
    vec![row.id.to_string(), row.name, row.expires, uses, row.learner.to_string(), nodes.join(" ")]
}

/// A time in UTC as RFC 3339 writes it, in whole seconds. A negative one is shown as
/// 1970-01-01T00:00:00Z.
fn time(unix_ms: i64) -> String {
    output::human_date(u64::try_from(unix_ms).unwrap_or(0), humantime::format_rfc3339_seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn invitation() -> pb::Invitation {
        let one = |node: &str, joined| pb::InvitationUse { node: node.into(), unix_ms: 1_700_000_000_000, joined };
        pb::Invitation {
            id: 57,
            name: "rack 2".into(),
            expires_unix_ms: 1_700_000_060_000,
            uses: Some(3),
            learner: false,
            used: 2,
            used_by: vec![one("node4", true), one("node5", false)],
        }
    }

    #[test]
    fn an_invitation_is_one_line() {
        let line = cells(row(invitation())).join(", ");
        assert_eq!(line, "57, rack 2, 2023-11-14T22:14:20Z, 2 of 3, false, node4 node5");
        assert_eq!(time(i64::MAX), i64::MAX.to_string(), "no calendar has it");
        let any = pb::Invitation { uses: None, used_by: vec![], ..invitation() };
        assert_eq!(cells(row(any)).join(", "), "57, rack 2, 2023-11-14T22:14:20Z, 2 of any, false, ");
    }

    #[test]
    fn a_file_with_a_token_is_new_and_private() {
        use std::os::unix::fs::MetadataExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        assert_eq!(new_file(&path).unwrap().metadata().unwrap().mode() & 0o777, TOKEN_MODE);
        let again = new_file(&path).unwrap_err().to_string();
        assert!(again.contains("--out") && again.contains("exists"), "{again}");
    }
}
