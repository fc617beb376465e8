//! `headwater acl`: tokens, policies, roles and logins of Consul's access control lists, over
//! Consul's HTTP API, with the commands of `consul acl`.
//!
//! Owns its arguments and output. Works against any server of that API.

mod grants;
mod login;
mod methods;
mod policies;
mod roles;
mod show;
mod tokens;

use std::io::Read;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::ClientArgs;
use super::catalog::http::Call;
use super::connect::Cluster;
use super::error::CliError;

/// Tokens, policies and roles of Consul's access control lists
#[derive(Clone, Debug, Args)]
pub(super) struct AclArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Clone, Debug, Subcommand)]
enum Command {
    /// Make the first token, which has all rights
    Bootstrap {
        /// File with the secret that the token gets [default: a random one]
        #[arg(long, value_name = "FILE")]
        secret_file: Option<String>,
    },
    /// Make, show, change and remove tokens
    #[command(subcommand)]
    Token(tokens::TokenCommand),
    /// Make, show, change and remove policies
    #[command(subcommand)]
    Policy(policies::PolicyCommand),
    /// Make, show, change and remove roles
    #[command(subcommand)]
    Role(roles::RoleCommand),
    /// Make, show, change and remove auth methods
    #[command(subcommand)]
    AuthMethod(methods::MethodCommand),
    /// Make, show, change and remove binding rules
    #[command(subcommand)]
    BindingRule(methods::BindingCommand),
    /// Show the templates of policies
    #[command(subcommand)]
    TemplatedPolicy(policies::TemplateCommand),
    /// Get a token for a JSON web token
    Login(login::LoginArgs),
    /// Remove the token that a login has made
    Logout,
}

pub(super) async fn run(args: AclArgs, cluster: &Cluster, client: &ClientArgs) -> Result<(), CliError> {
    let out = client.write_out;
    match args.command {
        Command::Bootstrap { secret_file } => {
            let secret = secret_file.as_deref().map(|file| read_text(&format!("@{file}"))).transpose()?;
            let body = secret.map_or_else(|| json!({}), |secret| json!({"BootstrapSecret": secret.trim()}));
            show::one(&Call::create("/v1/acl/bootstrap", &body).send(cluster).await?, out)
        }
        Command::Token(command) => tokens::run(command, cluster, out).await,
        Command::Policy(command) => policies::run(command, cluster, out).await,
        Command::Role(command) => roles::run(command, cluster, out).await,
        Command::AuthMethod(command) => methods::run(command, cluster, out).await,
        Command::BindingRule(command) => methods::run_binding(command, cluster, out).await,
        Command::TemplatedPolicy(command) => policies::run_template(command, cluster, out).await,
        Command::Login(args) => login::login(args, cluster, out).await,
        Command::Logout => {
            Call::create("/v1/acl/logout", &json!({})).send(cluster).await?;
            show::done("logged out", out)
        }
    }
}

/// The text of an argument: itself, the content of `@FILE`, or with `-` the standard input.
fn read_text(argument: &str) -> Result<String, CliError> {
    let failed = |what: &str, error: std::io::Error| CliError::Usage(format!("{what}: {error}"));
    match argument.strip_prefix('@') {
        Some(file) => std::fs::read_to_string(file).map_err(|error| failed(file, error)),
        None if argument == "-" => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).map_err(|error| failed("the standard input", error))?;
            Ok(text)
        }
        None => Ok(argument.to_owned()),
    }
}

/// The id of an object of `kind` (such as `policy`): `id`, or else the one that the server gives
/// for `name`. A usage error if both are `None`.
async fn id_of(kind: &str, id: Option<String>, name: Option<String>, cluster: &Cluster) -> Result<String, CliError> {
    match (id, name) {
        (Some(id), _) => Ok(id),
        (None, Some(name)) => {
            let path = format!("/v1/acl/{kind}/name/{}", super::catalog::http::encode(&name));
            let found = Call::get(&path, &[]).send(cluster).await?;
            Ok(found["ID"].as_str().unwrap_or_default().to_owned())
        }
        (None, None) => Err(CliError::Usage("give --id or --name".to_owned())),
    }
}

/// Sets the field `member` of a body if the user gave a value.
fn set(body: &mut Value, member: &str, value: Option<impl Into<Value>>) {
    if let Some(value) = value {
        body[member] = value.into();
    }
}
