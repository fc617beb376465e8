//! `headwater auth`, `user` and `role`: the switch of authentication, users, and their roles.
//! Output is etcdctl's.

pub(super) mod role;
pub(super) mod user;

use std::io::Write;

use clap::Subcommand;

use super::ClientArgs;
use super::connect::Cluster;
use super::error::CliError;
use super::output::{self, WriteOut, json};
use headwater_client::Repeat;
use headwater_proto::pb::etcdserverpb as pb;
use headwater_types::auth::ROOT;

/// Turn authentication on or off, or show whether it is on
#[derive(Clone, Debug, clap::Args)]
pub(super) struct AuthArgs {
    #[command(subcommand)]
    command: AuthCommand,
}

#[derive(Clone, Debug, Subcommand)]
enum AuthCommand {
    /// Turn authentication on: there must be a user root
    Enable,
    /// Turn authentication off
    Disable,
    /// Show whether authentication is on, and the revision of users and roles
    Status,
}

pub(super) async fn run(args: AuthArgs, cluster: &Cluster, client: &ClientArgs) -> Result<(), CliError> {
    let mut out = std::io::stdout().lock();
    match args.command {
        AuthCommand::Enable => {
            let header = enable(cluster).await?;
            done(&mut out, client.write_out, header.as_ref(), "Authentication Enabled")
        }
        AuthCommand::Disable => {
            let call =
                async |a: headwater_client::Attempt| a.auth().auth_disable(a.request(pb::AuthDisableRequest {})).await;
            let header = cluster.call(Repeat::Harmless, call).await?.header;
            done(&mut out, client.write_out, header.as_ref(), "Authentication Disabled")
        }
        AuthCommand::Status => {
            let call =
                async |a: headwater_client::Attempt| a.auth().auth_status(a.request(pb::AuthStatusRequest {})).await;
            let status = cluster.call(Repeat::Harmless, call).await?;
            match client.write_out {
                WriteOut::Json => output::print_json(&mut out, &json::AuthStatus::from(&status)),
                WriteOut::Simple | WriteOut::Table => {
                    writeln!(out, "Authentication Status: {}", status.enabled)?;
                    Ok(writeln!(out, "AuthRevision: {}", status.auth_revision)?)
                }
            }
        }
    }
}

/// Enables authentication. If the user root lacks the role root, grants it first, as etcdctl does;
/// also makes the role if there is none.
async fn enable(cluster: &Cluster) -> Result<Option<pb::ResponseHeader>, CliError> {
    loop {
        let call = async |a: headwater_client::Attempt| a.auth().auth_enable(a.request(pb::AuthEnableRequest {})).await;
        match cluster.call(Repeat::Harmless, call).await {
            Ok(enabled) => return Ok(enabled.header),
            Err(CliError::Refused { status, .. })
                if status.message() == "etcdserver: root user does not have root role" => {}
            Err(error) => return Err(error),
        }
        let add = pb::AuthRoleAddRequest { name: ROOT.to_owned() };
        match cluster.call(Repeat::Harmful, async |a| a.auth().role_add(a.request(add.clone())).await).await {
            Ok(_) => {}
            Err(CliError::Refused { status, .. }) if status.message() == "etcdserver: role name already exists" => {}
            Err(error) => return Err(error),
        }
        let grant = pb::AuthUserGrantRoleRequest { user: ROOT.to_owned(), role: ROOT.to_owned() };
        cluster.call(Repeat::Harmless, async |a| a.auth().user_grant_role(a.request(grant.clone())).await).await?;
    }
}

/// Prints `words`, which describe the completed change. As JSON, prints the response's header
/// instead.
fn done(
    out: &mut impl Write,
    format: WriteOut,
    header: Option<&pb::ResponseHeader>,
    words: &str,
) -> Result<(), CliError> {
    match format {
        WriteOut::Json => output::print_json(out, &json::HeaderOnly::from(header)),
        WriteOut::Simple | WriteOut::Table => Ok(writeln!(out, "{words}")?),
    }
}

/// Prints the names in `list`, one a line or as a table. As JSON, prints `list` itself.
fn names(out: &mut impl Write, format: WriteOut, list: &json::Named<'_>) -> Result<(), CliError> {
    match format {
        WriteOut::Json => output::print_json(out, list),
        WriteOut::Simple => Ok(list.names().iter().try_for_each(|name| writeln!(out, "{name}"))?),
        WriteOut::Table => output::print_table(out, &["NAME"], list.names().iter().map(|name| vec![name.clone()])),
    }
}
