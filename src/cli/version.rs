//! `headwater version` and `headwater downgrade`: the versions of the cluster and of its members'
//! programs, and the way back to an older version.

use std::io::Write;

use serde::Serialize;

use super::ClientArgs;
use super::connect::Cluster;
use super::error::CliError;
use super::output::{self, WriteOut};
use headwater_client::{Attempt, Repeat};
use headwater_proto::pb::etcdserverpb::DowngradeRequest;
use headwater_proto::pb::etcdserverpb::downgrade_request::DowngradeAction;
use headwater_proto::pb::headwater_v1::{GetVersionsRequest, GetVersionsResponse};
use headwater_terminal::Freshness;

/// Show the version of the cluster and the program of each member
///
/// The cluster's version is the newest that all members support; it rises by itself once the last
/// member was upgraded. `headwater --version` shows the version of this program alone.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct VersionArgs {}

/// Go back to the version before: check, begin, or give it up
#[derive(Clone, Debug, clap::Args)]
pub(super) struct DowngradeArgs {
    #[command(subcommand)]
    command: DowngradeCommand,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum DowngradeCommand {
    /// Check whether the cluster can go back to a version; change nothing
    Validate {
        /// MAJOR.MINOR, one minor version below the cluster's
        version: String,
    },
    /// Lower the cluster's version, so that members can be replaced by older programs one by one
    Enable {
        /// MAJOR.MINOR, one minor version below the cluster's
        version: String,
    },
    /// Give a downgrade up: the version rises again once all members support it
    Cancel,
}

#[derive(Serialize)]
struct Versions<'a> {
    client: &'a str,
    cluster: String,
    downgrading: bool,
    members: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    id: String,
    name: String,
    program: String,
    lowest: String,
    highest: String,
}

/// Reads the versions of the cluster and of its members at the first endpoint that answers.
pub(super) async fn fetch(cluster: &Cluster, linearizable: bool) -> Result<GetVersionsResponse, CliError> {
    let request = GetVersionsRequest { linearizable };
    cluster.call(Repeat::Harmless, async |a| a.versions().get_versions(a.request(request)).await).await
}

pub(super) async fn run(
    VersionArgs {}: VersionArgs,
    program: &str,
    cluster: &Cluster,
    client: &ClientArgs,
) -> Result<(), CliError> {
    let found = fetch(cluster, client.consistency == Freshness::Linearizable).await?;
    let row = |member: headwater_proto::pb::headwater_v1::MemberVersion| Row {
        id: format!("{:x}", member.id),
        name: member.name,
        program: member.program,
        lowest: member.lowest,
        highest: member.highest,
    };
    let versions = Versions {
        client: program,
        cluster: found.cluster_version,
        downgrading: found.downgrading,
        members: found.members.into_iter().map(row).collect(),
    };
    let mut out = std::io::stdout().lock();
    if client.write_out == WriteOut::Json {
        return output::print_json(&mut out, &versions);
    }
    writeln!(out, "client:  {}", versions.client)?;
    let state = if versions.downgrading { " (downgrading: it does not rise by itself)" } else { "" };
    writeln!(out, "cluster: {}{state}", versions.cluster)?;
    let header = ["ID", "NAME", "PROGRAM", "SUPPORTS"];
    let cells = versions.members.iter().map(|member| {
        let supports = match (member.lowest.as_str(), member.highest.as_str()) {
            ("", _) => "has not said yet".to_owned(),
            (lowest, highest) if lowest == highest => highest.to_owned(),
            (lowest, highest) => format!("{lowest} to {highest}"),
        };
        vec![member.id.clone(), member.name.clone(), member.program.clone(), supports]
    });
    if client.write_out == WriteOut::Table {
        return output::print_table(&mut out, &header, cells);
    }
    for cells in cells {
        writeln!(out, "{}", cells.join(", "))?;
    }
    Ok(())
}

pub(super) async fn downgrade(args: DowngradeArgs, cluster: &Cluster) -> Result<(), CliError> {
    let (action, version) = match &args.command {
        DowngradeCommand::Validate { version } => (DowngradeAction::Validate, version.clone()),
        DowngradeCommand::Enable { version } => (DowngradeAction::Enable, version.clone()),
        DowngradeCommand::Cancel => (DowngradeAction::Cancel, String::new()),
    };
    let request = DowngradeRequest { action: action.into(), version: version.clone() };
    let repeat = if action == DowngradeAction::Validate { Repeat::Harmless } else { Repeat::Harmful };
    let call = |a: Attempt| {
        let request = request.clone();
        async move { a.maintenance().downgrade(a.request(request)).await }
    };
    let answer = cluster.call(repeat, call).await?;
    let mut out = std::io::stdout().lock();
    match action {
        DowngradeAction::Validate => {
            writeln!(out, "the cluster has version {} and can go back to {version}", answer.version)?;
        }
        DowngradeAction::Enable => writeln!(
            out,
            "the cluster has version {} now: replace the members' programs one by one, as in an upgrade",
            answer.version
        )?,
        DowngradeAction::Cancel => {
            writeln!(out, "the cluster has version {}; it rises again once all members support it", answer.version)?;
        }
    }
    Ok(())
}
