//! `headwater user`: users, their passwords, and their roles.

use std::io::Write;

use clap::Subcommand;

use super::super::ClientArgs;
use super::super::connect::Cluster;
use super::super::error::CliError;
use super::super::output::{self, WriteOut, json};
use super::{done, names, role};
use headwater_client::Repeat;
use headwater_proto::pb::{authpb, etcdserverpb as pb};
use headwater_terminal::ask_password;

/// Add, remove and list users, change passwords, give and take roles
#[derive(Clone, Debug, clap::Args)]
pub(in super::super) struct UserArgs {
    #[command(subcommand)]
    command: UserCommand,
}

#[derive(Clone, Debug, Subcommand)]
enum UserCommand {
    /// Add a user; asks for the password if it is not given
    Add {
        /// The name, perhaps with a colon and the password
        #[arg(value_name = "NAME[:PASSWORD]")]
        name: String,
        /// The password
        #[arg(long, value_name = "PASSWORD")]
        new_user_password: Option<String>,
        /// The user has no password, and authenticates by the common name of a certificate
        #[arg(long)]
        no_password: bool,
        /// Whether the password is asked for twice; otherwise it is one line of the input
        #[arg(long, default_value_t = true, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = clap::ArgAction::Set)]
        interactive: bool,
    },
    /// Remove a user
    Delete {
        /// The name
        name: String,
    },
    /// Show the roles of a user
    Get {
        /// The name
        name: String,
        /// Show the permissions of the roles
        #[arg(long)]
        detail: bool,
    },
    /// List the users
    List,
    /// Change the password of a user
    Passwd {
        /// The name
        name: String,
        /// Whether the password is asked for twice; otherwise it is one line of the input
        #[arg(long, default_value_t = true, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = clap::ArgAction::Set)]
        interactive: bool,
    },
    /// Give a role to a user
    GrantRole {
        /// The user
        user: String,
        /// The role
        role: String,
    },
    /// Take a role from a user
    RevokeRole {
        /// The user
        user: String,
        /// The role
        role: String,
    },
}

pub(in super::super) async fn run(args: UserArgs, cluster: &Cluster, client: &ClientArgs) -> Result<(), CliError> {
    let mut out = std::io::stdout();
    let format = client.write_out;
    match args.command {
        UserCommand::Add { name, new_user_password, no_password, interactive } => {
            let (name, password) = split(name, new_user_password);
            if name.is_empty() {
                return Err(CliError::Usage("empty user name is not allowed".to_owned()));
            }
            let password = match (no_password, password) {
                (true, _) => String::new(),
                (false, Some(password)) => password,
                (false, None) => new_password(&name, interactive)?,
            };
            let options = Some(authpb::UserAddOptions { no_password });
            let add = pb::AuthUserAddRequest { name: name.clone(), password, options, hashed_password: String::new() };
            let call = async |a: headwater_client::Attempt| a.auth().user_add(a.request(add.clone())).await;
            let header = cluster.call(Repeat::Harmful, call).await?.header;
            done(&mut out, format, header.as_ref(), &format!("User {name} created"))
        }
        UserCommand::Delete { name } => {
            let delete = pb::AuthUserDeleteRequest { name: name.clone() };
            let call = async |a: headwater_client::Attempt| a.auth().user_delete(a.request(delete.clone())).await;
            let header = cluster.call(Repeat::Harmful, call).await?.header;
            done(&mut out, format, header.as_ref(), &format!("User {name} deleted"))
        }
        UserCommand::Get { name, detail } => get(cluster, &mut out, format, name, detail).await,
        UserCommand::List => {
            let call =
                async |a: headwater_client::Attempt| a.auth().user_list(a.request(pb::AuthUserListRequest {})).await;
            let list = cluster.call(Repeat::Harmless, call).await?;
            names(&mut out, format, &json::Named::users(list.header.as_ref(), &list.users))
        }
        UserCommand::Passwd { name, interactive } => {
            let password = new_password(&name, interactive)?;
            let change = pb::AuthUserChangePasswordRequest { name, password, hashed_password: String::new() };
            let call =
                async |a: headwater_client::Attempt| a.auth().user_change_password(a.request(change.clone())).await;
            let header = cluster.call(Repeat::Harmless, call).await?.header;
            done(&mut out, format, header.as_ref(), "Password updated")
        }
        UserCommand::GrantRole { user, role } => {
            let grant = pb::AuthUserGrantRoleRequest { user: user.clone(), role: role.clone() };
            let call = async |a: headwater_client::Attempt| a.auth().user_grant_role(a.request(grant.clone())).await;
            let header = cluster.call(Repeat::Harmless, call).await?.header;
            done(&mut out, format, header.as_ref(), &format!("Role {role} is granted to user {user}"))
        }
        UserCommand::RevokeRole { user, role } => {
            let revoke = pb::AuthUserRevokeRoleRequest { name: user.clone(), role: role.clone() };
            let call = async |a: headwater_client::Attempt| a.auth().user_revoke_role(a.request(revoke.clone())).await;
            let header = cluster.call(Repeat::Harmful, call).await?.header;
            done(&mut out, format, header.as_ref(), &format!("Role {role} is revoked from user {user}"))
        }
    }
}

/// Splits `NAME:PASSWORD` at the first colon, as etcdctl does. If `password` is given or there is
/// no colon, returns both as they are.
fn split(name: String, password: Option<String>) -> (String, Option<String>) {
    match name.split_once(':') {
        Some((name, given)) if password.is_none() => (name.to_owned(), Some(given.to_owned())),
        _ => (name, password),
    }
}

fn new_password(name: &str, interactive: bool) -> Result<String, CliError> {
    let password = ask_password(&format!("Password of {name}: "), interactive)?;
    if interactive && ask_password(&format!("Type password of {name} again for confirmation: "), true)? != password {
        return Err(CliError::Usage("given passwords are different".to_owned()));
    }
    Ok(password)
}

async fn get(
    cluster: &Cluster,
    out: &mut impl Write,
    format: WriteOut,
    name: String,
    detail: bool,
) -> Result<(), CliError> {
    let request = pb::AuthUserGetRequest { name: name.clone() };
    let call = async |a: headwater_client::Attempt| a.auth().user_get(a.request(request.clone())).await;
    let user = cluster.call(Repeat::Harmless, call).await?;
    if let WriteOut::Json = format {
        return output::print_json(out, &json::Named::roles(user.header.as_ref(), &user.roles));
    }
    if !detail {
        write!(out, "User: {name}\nRoles:")?;
        user.roles.iter().try_for_each(|role| write!(out, " {role}"))?;
        return Ok(writeln!(out)?);
    }
    writeln!(out, "User: {name}")?;
    for role in &user.roles {
        writeln!(out)?;
        role::get(cluster, out, WriteOut::Simple, role.clone()).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_may_follow_a_colon() {
        let split = |name: &str, password: Option<&str>| split(name.to_owned(), password.map(str::to_owned));
        assert_eq!(split("u", None), ("u".to_owned(), None));
        assert_eq!(split("u:p:q", None), ("u".to_owned(), Some("p:q".to_owned())));
        assert_eq!(split("u:", None), ("u".to_owned(), Some(String::new())));
        assert_eq!(split("u:p", Some("q")), ("u:p".to_owned(), Some("q".to_owned())));
    }
}
