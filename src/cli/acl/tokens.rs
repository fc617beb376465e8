//! `headwater acl token`.

use std::time::Duration;

use clap::Subcommand;
use serde_json::json;

use super::grants::{GrantArgs, RoleLinkArgs};
use super::{set, show};
use crate::catalog::http::{Call, encode};
use crate::connect::Cluster;
use crate::error::CliError;
use crate::output::WriteOut;

#[derive(Clone, Debug, Subcommand)]
pub(super) enum TokenCommand {
    /// Make a token; its secret is shown now and never again
    Create {
        /// Purpose of the token, for people
        #[arg(long, value_name = "TEXT")]
        description: Option<String>,
        /// The public id [default: a random UUID]
        #[arg(long, value_name = "UUID")]
        accessor: Option<String>,
        /// The secret [default: a random UUID]
        #[arg(long, value_name = "UUID")]
        secret: Option<String>,
        /// Time after which the token ends
        #[arg(long, value_parser = crate::parse_duration, value_name = "DURATION")]
        expires_ttl: Option<Duration>,
        /// Mark it as one of this datacenter alone
        #[arg(long)]
        local: bool,
        #[command(flatten)]
        grants: GrantArgs,
        #[command(flatten)]
        roles: RoleLinkArgs,
    },
    /// Show a token
    Read {
        /// The accessor id
        #[arg(long, value_name = "ACCESSOR", required_unless_present = "own", alias = "accessor-id")]
        id: Option<String>,
        /// The token of this request
        #[arg(long = "self", id = "own")]
        own: bool,
        /// With its policies and roles in full
        #[arg(long, conflicts_with = "own")]
        expanded: bool,
    },
    /// List all tokens
    List {
        /// Only those with this policy
        #[arg(long, value_name = "ID")]
        policy_id: Option<String>,
        /// Only those with this role
        #[arg(long, value_name = "ID")]
        role_id: Option<String>,
        /// Only those of this auth method
        #[arg(long, value_name = "NAME")]
        auth_method: Option<String>,
    },
    /// Change the given fields of a token; the others stay
    Update {
        /// The accessor id
        #[arg(long, value_name = "ACCESSOR", alias = "accessor-id")]
        id: String,
        /// Purpose of the token, for people
        #[arg(long, value_name = "TEXT")]
        description: Option<String>,
        /// Add the given links to those that the token has; without this option, the given links
        /// replace those of their kind
        #[arg(long)]
        merge: bool,
        #[command(flatten)]
        grants: GrantArgs,
        #[command(flatten)]
        roles: RoleLinkArgs,
    },
    /// Make a token with the policies, roles and identities of another one
    Clone {
        /// The accessor id of the token to clone
        #[arg(long, value_name = "ACCESSOR", alias = "accessor-id")]
        id: String,
        /// Purpose of the token, for people [default: as the other one]
        #[arg(long, value_name = "TEXT")]
        description: Option<String>,
    },
    /// Remove a token
    Delete {
        /// The accessor id
        #[arg(long, value_name = "ACCESSOR", alias = "accessor-id")]
        id: String,
    },
}

fn path(id: &str) -> String {
    format!("/v1/acl/token/{}", encode(id))
}

pub(super) async fn run(command: TokenCommand, cluster: &Cluster, out: WriteOut) -> Result<(), CliError> {
    match command {
        TokenCommand::Create { description, accessor, secret, expires_ttl, local, grants, roles } => {
            let mut body = json!({"Local": local});
            set(&mut body, "Description", description);
            set(&mut body, "AccessorID", accessor);
            set(&mut body, "SecretID", secret);
            set(&mut body, "ExpirationTTL", expires_ttl.map(|ttl| format!("{}ms", ttl.as_millis())));
            grants.apply(&mut body, false)?;
            roles.apply(&mut body, false);
            show::one(&Call::create("/v1/acl/token", &body).send(cluster).await?, out)
        }
        TokenCommand::Read { id, own, expanded } => {
            let path = if own { "/v1/acl/token/self".to_owned() } else { path(&id.unwrap_or_default()) };
            let query: &[(&str, &str)] = if expanded { &[("expanded", "true")] } else { &[] };
            show::one(&Call::get(&path, query).send(cluster).await?, out)
        }
        TokenCommand::List { policy_id, role_id, auth_method } => {
            let mut query = Vec::new();
            for (name, value) in [("policy", &policy_id), ("role", &role_id), ("authmethod", &auth_method)] {
                query.extend(value.as_deref().map(|value| (name, value)));
            }
            show::list(&Call::get("/v1/acl/tokens", &query).send(cluster).await?, out)
        }
        TokenCommand::Update { id, description, merge, grants, roles } => {
            let mut body = Call::get(&path(&id), &[]).send(cluster).await?;
            set(&mut body, "Description", description);
            grants.apply(&mut body, merge)?;
            roles.apply(&mut body, merge);
            show::one(&Call::put(&path(&id), &body).send(cluster).await?, out)
        }
        TokenCommand::Clone { id, description } => {
            let mut body = json!({});
            set(&mut body, "Description", description);
            show::one(&Call::create(&format!("{}/clone", path(&id)), &body).send(cluster).await?, out)
        }
        TokenCommand::Delete { id } => {
            Call::delete(&path(&id)).send(cluster).await?;
            show::done(&format!("token {id} removed"), out)
        }
    }
}
