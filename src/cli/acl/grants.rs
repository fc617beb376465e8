//! The policies, roles and identities that a token or role is linked to, as arguments.

use clap::Args;
use serde_json::{Value, json};

use crate::error::CliError;

#[derive(Clone, Debug, Args)]
pub(super) struct GrantArgs {
    /// Id of a policy; may be given several times
    #[arg(long, value_name = "ID")]
    policy_id: Vec<String>,
    /// Name of a policy; may be given several times
    #[arg(long, value_name = "NAME")]
    policy_name: Vec<String>,
    /// A service that the token or role may act as; may be given several times
    #[arg(long, value_name = "NAME[:DATACENTER,…]")]
    service_identity: Vec<String>,
    /// A node that the token or role may act as; may be given several times
    #[arg(long, value_name = "NAME:DATACENTER")]
    node_identity: Vec<String>,
    /// A template of policies; may be given several times
    #[arg(long, value_name = "TEMPLATE[:NAME]")]
    templated_policy: Vec<String>,
}

#[derive(Clone, Debug, Args)]
pub(super) struct RoleLinkArgs {
    /// Id of a role; may be given several times
    #[arg(long, value_name = "ID")]
    role_id: Vec<String>,
    /// Name of a role; may be given several times
    #[arg(long, value_name = "NAME")]
    role_name: Vec<String>,
}

fn links(ids: &[String], names: &[String]) -> Vec<Value> {
    ids.iter().map(|id| json!({"ID": id})).chain(names.iter().map(|name| json!({"Name": name}))).collect()
}

/// Sets the list `member` of a body to `links`; with `keep`, appends them to it. Changes nothing if
/// there are no links.
fn put(body: &mut Value, member: &str, links: Vec<Value>, keep: bool) {
    if links.is_empty() {
        return;
    }
    let mut all = if keep { body[member].as_array().cloned().unwrap_or_default() } else { Vec::new() };
    all.extend(links);
    body[member] = all.into();
}

impl RoleLinkArgs {
    /// Puts the given roles into a token. With `keep`, the roles that it has stay. Changes nothing
    /// if no role was given.
    pub(super) fn apply(&self, body: &mut Value, keep: bool) {
        put(body, "Roles", links(&self.role_id, &self.role_name), keep);
    }
}

impl GrantArgs {
    /// Puts the given links into a token or role. With `keep`, those that it has stay. A kind of
    /// link of which none was given is not changed.
    pub(super) fn apply(&self, body: &mut Value, keep: bool) -> Result<(), CliError> {
        let service = |text: &String| match text.split_once(':') {
            None => json!({"ServiceName": text}),
            Some((name, datacenters)) => {
                json!({"ServiceName": name, "Datacenters": datacenters.split(',').collect::<Vec<_>>()})
            }
        };
        let node = |text: &String| match text.split_once(':') {
            Some((name, datacenter)) => Ok(json!({"NodeName": name, "Datacenter": datacenter})),
            None => Err(CliError::Usage(format!("--node-identity {text}: write NAME:DATACENTER"))),
        };
        let template = |text: &String| match text.split_once(':') {
            None => json!({"TemplateName": text}),
            Some((template, name)) => json!({"TemplateName": template, "TemplateVariables": {"Name": name}}),
        };
        put(body, "Policies", links(&self.policy_id, &self.policy_name), keep);
        put(body, "ServiceIdentities", self.service_identity.iter().map(service).collect(), keep);
        let nodes = self.node_identity.iter().map(node).collect::<Result<_, _>>()?;
        put(body, "NodeIdentities", nodes, keep);
        put(body, "TemplatedPolicies", self.templated_policy.iter().map(template).collect(), keep);
        Ok(())
    }
}
