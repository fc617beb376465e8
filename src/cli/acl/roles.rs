//! `headwater acl role`.

use clap::Subcommand;
use serde_json::json;

use super::grants::GrantArgs;
use super::{id_of, set, show};
use crate::catalog::http::{Call, encode};
use crate::connect::Cluster;
use crate::error::CliError;
use crate::output::WriteOut;

#[derive(Clone, Debug, Subcommand)]
pub(super) enum RoleCommand {
    /// Make a role
    Create {
        /// The name
        #[arg(long, value_name = "NAME")]
        name: String,
        /// Purpose of the role, for people
        #[arg(long, value_name = "TEXT")]
        description: Option<String>,
        #[command(flatten)]
        grants: GrantArgs,
    },
    /// Show a role
    Read {
        /// The role's id
        #[arg(long, value_name = "ID", required_unless_present = "name")]
        id: Option<String>,
        /// The role's name, in place of its id
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
    },
    /// List all roles
    List,
    /// Change the given fields of a role; the others stay
    Update {
        /// The role's id
        #[arg(long, value_name = "ID")]
        id: String,
        /// The new name
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
        /// Purpose of the role, for people
        #[arg(long, value_name = "TEXT")]
        description: Option<String>,
        /// Add the given policies and identities to those of the role; without this option, they
        /// replace those of their kind. A kind that is not given stays
        #[arg(long)]
        merge: bool,
        #[command(flatten)]
        grants: GrantArgs,
    },
    /// Remove a role
    Delete {
        /// The role's id
        #[arg(long, value_name = "ID", required_unless_present = "name")]
        id: Option<String>,
        /// The role's name, in place of its id
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
    },
}

fn path(id: &str) -> String {
    format!("/v1/acl/role/{}", encode(id))
}

pub(super) async fn run(command: RoleCommand, cluster: &Cluster, out: WriteOut) -> Result<(), CliError> {
    match command {
        RoleCommand::Create { name, description, grants } => {
            let mut body = json!({"Name": name});
            set(&mut body, "Description", description);
            grants.apply(&mut body, false)?;
            show::one(&Call::create("/v1/acl/role", &body).send(cluster).await?, out)
        }
        RoleCommand::Read { id, name } => {
            let id = id_of("role", id, name, cluster).await?;
            show::one(&Call::get(&path(&id), &[]).send(cluster).await?, out)
        }
        RoleCommand::List => show::list(&Call::get("/v1/acl/roles", &[]).send(cluster).await?, out),
        RoleCommand::Update { id, name, description, merge, grants } => {
            let mut body = Call::get(&path(&id), &[]).send(cluster).await?;
            set(&mut body, "Name", name);
            set(&mut body, "Description", description);
            grants.apply(&mut body, merge)?;
            show::one(&Call::put(&path(&id), &body).send(cluster).await?, out)
        }
        RoleCommand::Delete { id, name } => {
            let id = id_of("role", id, name, cluster).await?;
            Call::delete(&path(&id)).send(cluster).await?;
            show::done(&format!("role {id} removed"), out)
        }
    }
}
