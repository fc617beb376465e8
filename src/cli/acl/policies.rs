//! `headwater acl policy` and `headwater acl templated-policy`.

use clap::Subcommand;
use serde_json::json;

use super::{id_of, read_text, set, show};
use crate::catalog::http::{Call, encode};
use crate::connect::Cluster;
use crate::error::CliError;
use crate::output::WriteOut;

#[derive(Clone, Debug, Subcommand)]
pub(super) enum PolicyCommand {
    /// Make a policy
    Create {
        /// The name
        #[arg(long, value_name = "NAME")]
        name: String,
        /// Purpose of the policy, for people
        #[arg(long, value_name = "TEXT")]
        description: Option<String>,
        /// The rules in HCL or JSON: a text, @FILE, or - for the standard input
        #[arg(long, value_name = "RULES|@FILE|-")]
        rules: Option<String>,
        /// A datacenter in which the policy is valid; may be given several times [default: all]
        #[arg(long, value_name = "NAME")]
        valid_datacenter: Vec<String>,
    },
    /// Show a policy with its rules
    Read {
        /// The id
        #[arg(long, value_name = "ID", required_unless_present = "name")]
        id: Option<String>,
        /// The name
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
    },
    /// List all policies
    List,
    /// Change a policy; the rest stays
    Update {
        /// The id
        #[arg(long, value_name = "ID")]
        id: String,
        /// The name
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
        /// Purpose of the policy, for people
        #[arg(long, value_name = "TEXT")]
        description: Option<String>,
        /// The rules in HCL or JSON: a text, @FILE, or - for the standard input
        #[arg(long, value_name = "RULES|@FILE|-")]
        rules: Option<String>,
    },
    /// Remove a policy
    Delete {
        /// The id
        #[arg(long, value_name = "ID", required_unless_present = "name")]
        id: Option<String>,
        /// The name
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
    },
}

#[derive(Clone, Debug, Subcommand)]
pub(super) enum TemplateCommand {
    /// List the templates
    List,
    /// Show a template
    Read {
        /// The template's name
        #[arg(long, value_name = "TEMPLATE")]
        name: String,
    },
    /// Show the rules that a template gives
    Preview {
        /// The template's name
        #[arg(long, value_name = "TEMPLATE")]
        name: String,
        /// The name that is put into the template
        #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
        var: String,
    },
}

fn path(id: &str) -> String {
    format!("/v1/acl/policy/{}", encode(id))
}

pub(super) async fn run(command: PolicyCommand, cluster: &Cluster, out: WriteOut) -> Result<(), CliError> {
    match command {
        PolicyCommand::Create { name, description, rules, valid_datacenter } => {
            let mut body = json!({"Name": name});
            set(&mut body, "Description", description);
            set(&mut body, "Rules", rules.as_deref().map(read_text).transpose()?);
            if !valid_datacenter.is_empty() {
                body["Datacenters"] = valid_datacenter.into();
            }
            show::one(&Call::create("/v1/acl/policy", &body).send(cluster).await?, out)
        }
        PolicyCommand::Read { id, name } => {
            let id = id_of("policy", id, name, cluster).await?;
            show::one(&Call::get(&path(&id), &[]).send(cluster).await?, out)
        }
        PolicyCommand::List => show::list(&Call::get("/v1/acl/policies", &[]).send(cluster).await?, out),
        PolicyCommand::Update { id, name, description, rules } => {
            let mut body = Call::get(&path(&id), &[]).send(cluster).await?;
            set(&mut body, "Name", name);
            set(&mut body, "Description", description);
            set(&mut body, "Rules", rules.as_deref().map(read_text).transpose()?);
            show::one(&Call::put(&path(&id), &body).send(cluster).await?, out)
        }
        PolicyCommand::Delete { id, name } => {
            let id = id_of("policy", id, name, cluster).await?;
            Call::delete(&path(&id)).send(cluster).await?;
            show::done(&format!("policy {id} removed"), out)
        }
    }
}

pub(super) async fn run_template(command: TemplateCommand, cluster: &Cluster, out: WriteOut) -> Result<(), CliError> {
    match command {
        TemplateCommand::List => show::list(&Call::get("/v1/acl/templated-policies", &[]).send(cluster).await?, out),
        TemplateCommand::Read { name } => {
            show::one(&Call::get(&format!("/v1/acl/templated-policy/name/{name}"), &[]).send(cluster).await?, out)
        }
        TemplateCommand::Preview { name, var } => {
            let path = format!("/v1/acl/templated-policy/preview/{name}");
            show::one(&Call::post(&path, &json!({"Name": var})).send(cluster).await?, out)
        }
    }
}
