//! The policies, roles, identities and templates that tokens and roles name, as JSON.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::super::answer::Refusal;
use super::super::call::Call;
use super::super::decode::Object;
use super::require_write;
use headwater_node::{AclKind, Consistency, Template, is_identity_name};
use headwater_types::acl::{AclGrants, AclKey, AclRow, NodeIdentity, ServiceIdentity, TemplatedPolicy};

/// Names of policies and roles, by their ids, for answers that show links.
#[derive(Default)]
pub(super) struct Names {
    policies: BTreeMap<String, String>,
    roles: BTreeMap<String, String>,
}

impl Names {
    /// The names of all policies and roles: for a list.
    pub(super) async fn all(call: &Call) -> Result<Self, Refusal> {
        let (mut policies, mut roles) = (BTreeMap::new(), BTreeMap::new());
        for kind in [AclKind::Policy, AclKind::Role] {
            let read = call.node().acl().rows(&call.context()?, Consistency::Serializable, kind).await?;
            for row in read.value.value {
                match row {
                    AclRow::Policy(policy) => policies.insert(policy.id, policy.name),
                    AclRow::Role(role) => roles.insert(role.id, role.name),
                    AclRow::Token(_) | AclRow::Method(_) | AclRow::Binding(_) => None,
                };
            }
        }
        Ok(Self { policies, roles })
    }

    /// The names of the policies in `grants` and of the roles `of_roles`. Removed ones have no name
    /// here.
    pub(super) async fn of(call: &Call, grants: &AclGrants, of_roles: &[String]) -> Result<Self, Refusal> {
        let (mut policies, mut roles) = (BTreeMap::new(), BTreeMap::new());
        let keys =
            grants.policies.iter().cloned().map(AclKey::Policy).chain(of_roles.iter().cloned().map(AclKey::Role));
        for key in keys {
            match call.node().acl().row(&call.context()?, Consistency::Serializable, key).await?.value.value {
                Some(AclRow::Policy(policy)) => drop(policies.insert(policy.id, policy.name)),
                Some(AclRow::Role(role)) => drop(roles.insert(role.id, role.name)),
                _ => {}
            }
        }
        Ok(Self { policies, roles })
    }
}

fn links(ids: &[String], names: &BTreeMap<String, String>) -> Vec<Value> {
    // Removed policies and roles are not shown.
    ids.iter().filter_map(|id| Some(json!({"ID": id, "Name": names.get(id)?}))).collect()
}

/// Adds the links of a token or role to `body`. Empty lists are left out, as in Consul. Policies
/// and roles without a name in `names` are left out: they were removed.
pub(super) fn show(body: &mut Map<String, Value>, grants: &AclGrants, roles: &[String], names: &Names) {
    let service = |it: &ServiceIdentity| {
        let mut shown = json!({"ServiceName": it.name});
        if !it.datacenters.is_empty() {
            shown["Datacenters"] = json!(it.datacenters);
        }
        shown
    };
    let template = |it: &TemplatedPolicy| {
        let mut shown = json!({"TemplateName": it.template});
        if !it.name.is_empty() {
            shown["TemplateVariables"] = json!({"Name": it.name});
        }
        if !it.datacenters.is_empty() {
            shown["Datacenters"] = json!(it.datacenters);
        }
        shown
    };
    let lists = [
        ("Policies", links(&grants.policies, &names.policies)),
        ("Roles", links(roles, &names.roles)),
        ("ServiceIdentities", grants.services.iter().map(service).collect()),
        (
            "NodeIdentities",
            grants.nodes.iter().map(|it| json!({"NodeName": it.name, "Datacenter": it.datacenter})).collect(),
        ),
        ("TemplatedPolicies", grants.templates.iter().map(template).collect()),
    ];
    for (name, list) in lists.into_iter().filter(|(_, list)| !list.is_empty()) {
        body.insert(name.to_owned(), list.into());
    }
}

/// Adds `link` to `links`, unless an equal one is there.
pub(super) fn add_once<T: PartialEq>(links: &mut Vec<T>, link: T) {
    if !links.contains(&link) {
        links.push(link);
    }
}

/// The ids of the links to policies or roles in the list `member` of a body, each once. A link has
/// an id or a name; of both, the id counts. Refused (400) if a link names no existing row. Requires
/// the write right again after each read, because the answer reveals whether the row exists.
pub(super) async fn read_ids(
    call: &Call,
    body: &Object<'_>,
    member: &str,
    kind: AclKind,
) -> Result<Vec<String>, Refusal> {
    let word = if kind == AclKind::Policy { "policy" } else { "role" };
    let mut ids = Vec::new();
    for link in body.objects(member)? {
        let (id, name) = (link.text("ID")?, link.text("Name")?);
        let acl = call.node().acl();
        let found = if id.is_empty() {
            acl.id_of_name(&call.context()?, Consistency::Linearizable, kind, name.clone()).await?
        } else {
            let key = if kind == AclKind::Policy { AclKey::Policy(id.clone()) } else { AclKey::Role(id.clone()) };
            let row = acl.row(&call.context()?, Consistency::Linearizable, key).await?.value.value;
            row.map(|_| id.clone())
        };
        require_write(call)?;
        let missing = || match id.is_empty() {
            true => Refusal::bad(format!("No such ACL {word} with name {name:?}")),
            false => Refusal::bad(format!("No such ACL {word} with ID {id:?}")),
        };
        add_once(&mut ids, found.ok_or_else(missing)?);
    }
    Ok(ids)
}

/// The links of a token or role to policies, identities and templates. Links to roles are read by
/// [`read_ids`]. Refused (400) if a link is invalid.
pub(super) async fn read(call: &Call, body: &Object<'_>) -> Result<AclGrants, Refusal> {
    let mut grants =
        AclGrants { policies: read_ids(call, body, "Policies", AclKind::Policy).await?, ..AclGrants::default() };
    for identity in body.objects("ServiceIdentities")? {
        let name = identity.text("ServiceName")?;
        if !is_identity_name(&name) {
            return Err(Refusal::bad(format!(
                "Service identity {name:?} has an invalid name. Only alphanumeric characters, '-' and '_' are allowed"
            )));
        }
        grants.services.push(ServiceIdentity { name, datacenters: identity.texts("Datacenters")? });
    }
    for identity in body.objects("NodeIdentities")? {
        let (name, datacenter) = (identity.text("NodeName")?, identity.text("Datacenter")?);
        if datacenter.is_empty() {
            return Err(Refusal::bad("Node identity is missing the datacenter field on this token"));
        }
        if !is_identity_name(&name) {
            return Err(Refusal::bad(format!(
                "Node identity has an invalid name {name:?}. Only alphanumeric characters, '-' and '_' are allowed"
            )));
        }
        grants.nodes.push(NodeIdentity { name, datacenter });
    }
    for policy in body.objects("TemplatedPolicies")? {
        grants.templates.push(read_template(&policy, &policy.text("TemplateName")?)?);
    }
    Ok(grants)
}

/// The use of the template named `template`, with the variable and the datacenters from `policy`.
/// Refused (400) if there is no such template, or its variable is not a valid name.
pub(super) fn read_template(policy: &Object<'_>, template: &str) -> Result<TemplatedPolicy, Refusal> {
    let known = Template::named(template)
        .ok_or_else(|| Refusal::bad(format!("no such ACL templated policy with Name {template:?}")))?;
    let name = match policy.object("TemplateVariables")? {
        Some(variables) => variables.text("Name")?,
        None => String::new(),
    };
    if known.has_variable() && !is_identity_name(&name) {
        return Err(Refusal::bad(format!(
            "templated policy {template:?} needs the variable Name, a valid name: {name:?}"
        )));
    }
    let name = if known.has_variable() { name } else { String::new() };
    Ok(TemplatedPolicy { template: template.to_owned(), name, datacenters: policy.texts("Datacenters")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_links_are_one() {
        let mut nodes = Vec::new();
        for (name, datacenter) in [("n", "dc1"), ("n", "dc2"), ("m", "dc1"), ("n", "dc1")] {
            add_once(&mut nodes, NodeIdentity { name: name.to_owned(), datacenter: datacenter.to_owned() });
        }
        let names: Vec<_> = nodes.iter().map(|node| (node.name.as_str(), node.datacenter.as_str())).collect();
        assert_eq!(names, [("n", "dc1"), ("n", "dc2"), ("m", "dc1")]);
    }
}
