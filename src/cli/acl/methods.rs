//! `headwater acl auth-method` and `headwater acl binding-rule`.

use std::time::Duration;

use clap::Subcommand;
use serde_json::{Value, json};

use super::{read_text, set, show};
use crate::catalog::http::{Call, encode};
use crate::connect::Cluster;
use crate::error::CliError;
use crate::output::WriteOut;

#[derive(Clone, Debug, Subcommand)]
pub(super) enum MethodCommand {
    /// Make an auth method
    Create {
        /// The name
        #[arg(long, value_name = "NAME")]
        name: String,
        /// The kind
        #[arg(long = "type", default_value = "jwt", value_name = "KIND")]
        kind: String,
        /// Purpose of the method, for people
        #[arg(long, value_name = "TEXT")]
        description: Option<String>,
        /// Time to live of the tokens that logins get
        #[arg(long, value_parser = crate::parse_duration, value_name = "DURATION")]
        max_token_ttl: Option<Duration>,
        /// The settings, a JSON object: a text, @FILE, or - for the standard input
        #[arg(long, value_name = "JSON|@FILE|-")]
        config: String,
    },
    /// Show an auth method
    Read {
        /// The name
        #[arg(long, value_name = "NAME")]
        name: String,
    },
    /// List all auth methods
    List,
    /// Change an auth method; the rest stays
    Update {
        /// The name
        #[arg(long, value_name = "NAME")]
        name: String,
        /// Purpose of the method, for people
        #[arg(long, value_name = "TEXT")]
        description: Option<String>,
        /// Time to live of the tokens that logins get
        #[arg(long, value_parser = crate::parse_duration, value_name = "DURATION")]
        max_token_ttl: Option<Duration>,
        /// The settings, a JSON object: a text, @FILE, or - for the standard input
        #[arg(long, value_name = "JSON|@FILE|-")]
        config: Option<String>,
    },
    /// Remove an auth method, with its tokens and binding rules
    Delete {
        /// The name
        #[arg(long, value_name = "NAME")]
        name: String,
    },
}

#[derive(Clone, Debug, Subcommand)]
pub(super) enum BindingCommand {
    /// Make a binding rule
    Create {
        /// The auth method
        #[arg(long, value_name = "NAME")]
        method: String,
        /// Purpose of the rule, for people
        #[arg(long, value_name = "TEXT")]
        description: Option<String>,
        /// The kind of link: service, node, role, policy or templated-policy
        #[arg(long, value_name = "KIND")]
        bind_type: String,
        /// The name that is linked, with ${value.NAME} for attributes
        #[arg(long, value_name = "NAME")]
        bind_name: String,
        /// The name that is put into a template
        #[arg(long, value_name = "NAME")]
        bind_var: Option<String>,
        /// Only for logins for which this is true, such as 'value.team == "web"'
        #[arg(long, value_name = "EXPRESSION")]
        selector: Option<String>,
    },
    /// Show a binding rule
    Read {
        /// The id
        #[arg(long, value_name = "ID")]
        id: String,
    },
    /// List binding rules
    List {
        /// Only those of this auth method
        #[arg(long, value_name = "NAME")]
        method: Option<String>,
    },
    /// Remove a binding rule
    Delete {
        /// The id
        #[arg(long, value_name = "ID")]
        id: String,
    },
}

fn config(argument: &str) -> Result<Value, CliError> {
    serde_json::from_str(&read_text(argument)?)
        .map_err(|error| CliError::Usage(format!("--config is no JSON: {error}")))
}

fn millis(duration: Duration) -> String {
    format!("{}ms", duration.as_millis())
}

pub(super) async fn run(command: MethodCommand, cluster: &Cluster, out: WriteOut) -> Result<(), CliError> {
    let path = |name: &str| format!("/v1/acl/auth-method/{}", encode(name));
    match command {
        MethodCommand::Create { name, kind, description, max_token_ttl, config: given } => {
            let mut body = json!({"Name": name, "Type": kind, "Config": config(&given)?});
            set(&mut body, "Description", description);
            set(&mut body, "MaxTokenTTL", max_token_ttl.map(millis));
            show::one(&Call::create("/v1/acl/auth-method", &body).send(cluster).await?, out)
        }
        MethodCommand::Read { name } => show::one(&Call::get(&path(&name), &[]).send(cluster).await?, out),
        MethodCommand::List => show::list(&Call::get("/v1/acl/auth-methods", &[]).send(cluster).await?, out),
        MethodCommand::Update { name, description, max_token_ttl, config: given } => {
            let mut body = Call::get(&path(&name), &[]).send(cluster).await?;
            set(&mut body, "Description", description);
            set(&mut body, "MaxTokenTTL", max_token_ttl.map(millis));
            set(&mut body, "Config", given.as_deref().map(config).transpose()?);
            show::one(&Call::put(&path(&name), &body).send(cluster).await?, out)
        }
        MethodCommand::Delete { name } => {
            Call::delete(&path(&name)).send(cluster).await?;
            show::done(&format!("auth method {name} removed"), out)
        }
    }
}

pub(super) async fn run_binding(command: BindingCommand, cluster: &Cluster, out: WriteOut) -> Result<(), CliError> {
    let path = |id: &str| format!("/v1/acl/binding-rule/{}", encode(id));
    match command {
        BindingCommand::Create { method, description, bind_type, bind_name, bind_var, selector } => {
            let mut body = json!({"AuthMethod": method, "BindType": bind_type, "BindName": bind_name});
            set(&mut body, "Description", description);
            set(&mut body, "Selector", selector);
            set(&mut body, "BindVars", bind_var.map(|name| json!({"Name": name})));
            show::one(&Call::create("/v1/acl/binding-rule", &body).send(cluster).await?, out)
        }
        BindingCommand::Read { id } => show::one(&Call::get(&path(&id), &[]).send(cluster).await?, out),
        BindingCommand::List { method } => {
            let query: Vec<_> = method.as_deref().map(|method| ("authmethod", method)).into_iter().collect();
            show::list(&Call::get("/v1/acl/binding-rules", &query).send(cluster).await?, out)
        }
        BindingCommand::Delete { id } => {
            Call::delete(&path(&id)).send(cluster).await?;
            show::done(&format!("binding rule {id} removed"), out)
        }
    }
}
