//! `/v1/catalog`: register, deregister and read nodes, services and checks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;

use super::access::Right;
use super::answer::{Answer, Refusal};
use super::call::Call;
use super::decode::Object;
use super::filter::{Filter, shape};
use super::lookup::{InstanceFilter, Reach, instances, look_up, look_up_while};
use super::registration::{check_tenancy, health_check, locality, service as read_service};
use super::rights;
use super::shapes;
use headwater_node::CatalogSubject;
use headwater_types::Access;
use headwater_types::catalog::{
    self, CatalogTable, CheckServiceNode, Deregistration, DeregistrationTarget, Registration,
};

/// Registers a node, and optionally an instance on it and checks, in one log entry.
pub(super) async fn register(call: Call) -> Result<Answer, Refusal> {
    let registration = read_registration(&call, &Object::of(&call.json()?)?)?;
    rights::require_registration(&call, &registration).await?;
    let done = call.node().catalog().register(&call.context()?, registration).await?;
    Ok(call.answer(&true).at(done.index))
}

fn read_registration(call: &Call, body: &Object<'_>) -> Result<Registration, Refusal> {
    call.check_datacenter(&body.text("Datacenter")?)?;
    check_tenancy(body)?;
    let node = catalog::CatalogNode {
        name: body.text("Node")?,
        id: body.text("ID")?,
        address: body.text("Address")?,
        tagged_addresses: body.text_map("TaggedAddresses")?,
        meta: body.text_map("NodeMeta")?,
        locality: locality(body)?,
        ..catalog::CatalogNode::default()
    };
    let service = body.object("Service")?.map(|service| read_service(&service, "Service")).transpose()?;
    let mut checks = body.objects("Checks")?.iter().map(health_check).collect::<Result<Vec<_>, _>>()?;
    if let Some(check) = body.object("Check")? {
        checks.push(health_check(&check)?);
    }
    Ok(Registration {
        node,
        skip_node_update: body.flag("SkipNodeUpdate")?,
        service,
        checks,
        ..Registration::default()
    })
}

/// Removes the instance `ServiceID` with its checks; else the check `CheckID`; without both, the
/// node with everything on it. A missing one counts as removed.
pub(super) async fn deregister(call: Call) -> Result<Answer, Refusal> {
    let json = call.json()?;
    let body = Object::of(&json)?;
    call.check_datacenter(&body.text("Datacenter")?)?;
    check_tenancy(&body)?;
    let (service, check) = (body.text("ServiceID")?, body.text("CheckID")?);
    let what = match (service.is_empty(), check.is_empty()) {
        (false, _) => DeregistrationTarget::Service(service),
        (true, false) => DeregistrationTarget::Check(check),
        (true, true) => DeregistrationTarget::Node,
    };
    let node = body.text("Node")?;
    rights::require_deregistration(&call, &node, &what).await?;
    let deregistration = Deregistration { node: body.text("Node")?, what, ..Deregistration::default() };
    let done = call.node().catalog().deregister(&call.context()?, deregistration).await?;
    Ok(call.answer(&true).at(done.index))
}

/// A list with the name of this datacenter alone.
pub(super) async fn datacenters(call: Call) -> Result<Answer, Refusal> {
    Ok(call.answer(&[call.node().datacenter()]))
}

/// The nodes of the catalog that the request may see and that match `?filter` and `?node-meta`.
pub(super) async fn nodes(call: Call) -> Result<Answer, Refusal> {
    let (filter, narrow) = (Filter::of(&call, shape::NODE)?, InstanceFilter::of(&call));
    let subjects = vec![CatalogSubject::Table(CatalogTable::Nodes)];
    let mut look_up =
        look_up(&call, subjects, async |node, ctx, consistency| node.catalog().nodes(&ctx, consistency).await).await?;
    let visibility = call.visibility()?;
    visibility.keep(&mut look_up.found.value, |node| visibility.sees_node(&node.name));
    let datacenter = call.node().datacenter();
    let nodes = look_up.found.value.iter().filter(|node| narrow.matches_node(node));
    Ok(look_up.answer(&call, &filter.keep(nodes.map(|node| shapes::node(node, datacenter)).collect())))
}

type NodeAndServices = Option<(Arc<catalog::CatalogNode>, Vec<Arc<catalog::Service>>)>;

async fn read_node(call: &Call) -> Result<super::lookup::LookUp<NodeAndServices>, Refusal> {
    let name = call.rest("Missing node name")?.to_owned();
    let mut look_up = look_up(call, vec![CatalogSubject::node(&name)], |node, ctx, consistency| {
        let name = name.clone();
        async move { node.catalog().node_with_services(&ctx, consistency, name).await }
    })
    .await?;
    let visibility = call.visibility()?;
    if !visibility.sees_node(&name) && look_up.found.value.take().is_some() {
        visibility.note_hidden();
    }
    if let Some((_, services)) = &mut look_up.found.value {
        visibility.keep(services, |service| visibility.sees_service(&service.name));
    }
    Ok(look_up)
}

/// A node, and by id the instances on it that match `?filter` and that the request may see. `null`
/// if there is no such node, or the request may not see it.
pub(super) async fn node(call: Call) -> Result<Answer, Refusal> {
    let filter = Filter::of(&call, shape::SERVICE)?;
    let look_up = read_node(&call).await?;
    let Some((node, services)) = &look_up.found.value else { return Ok(look_up.answer(&call, &Value::Null)) };
    #[derive(Serialize)]
    #[serde(rename_all = "PascalCase")]
    struct Body<'a> {
        node: shapes::NodeJson<'a>,
        services: BTreeMap<&'a str, shapes::ServiceJson<'a>>,
    }
    let services = services.iter().map(|it| (it.id.as_str(), shapes::service(it)));
    let services = services.filter(|(_, service)| filter.takes_element(service)).collect();
    Ok(look_up.answer(&call, &Body { node: shapes::node(node, call.node().datacenter()), services }))
}

/// A node, and a list of the instances on it that match `?filter` and that the request may see. A
/// null node and an empty list if there is no such node, or the request may not see it.
pub(super) async fn node_services(call: Call) -> Result<Answer, Refusal> {
    let filter = Filter::of(&call, shape::SERVICE)?;
    let look_up = read_node(&call).await?;
    #[derive(Serialize)]
    #[serde(rename_all = "PascalCase")]
    struct Body<'a> {
        node: Option<shapes::NodeJson<'a>>,
        services: Vec<shapes::ServiceJson<'a>>,
    }
    let body = match &look_up.found.value {
        None => Body { node: None, services: Vec::new() },
        Some((node, services)) => Body {
            node: Some(shapes::node(node, call.node().datacenter())),
            services: filter.keep(services.iter().map(|it| shapes::service(it)).collect()),
        },
    };
    Ok(look_up.answer(&call, &body))
}

/// The names of the services that the request may see, each with the tags of its instances. With
/// `?filter` or `?node-meta`, only of instances that match.
pub(super) async fn services(call: Call) -> Result<Answer, Refusal> {
    let (filter, narrow) = (Filter::of(&call, shape::CATALOG_SERVICE)?, InstanceFilter::of(&call));
    let mut subjects = vec![CatalogSubject::Table(CatalogTable::Services)];
    if filter.takes_all() && !narrow.has_meta() {
        let mut look_up = look_up(&call, subjects, async |node, ctx, consistency| {
            node.catalog().service_names(&ctx, consistency).await
        })
        .await?;
        let visibility = call.visibility()?;
        visibility.keep(&mut look_up.found.value, |service| visibility.sees_service(&service.name));
        let names: BTreeMap<&str, &BTreeSet<String>> =
            look_up.found.value.iter().map(|service| (service.name.as_str(), &service.tags)).collect();
        return Ok(look_up.answer(&call, &names));
    }
    subjects.push(CatalogSubject::Table(CatalogTable::Nodes));
    let mut look_up =
        look_up(&call, subjects, async |node, ctx, consistency| node.catalog().all_instances(&ctx, consistency).await)
            .await?;
    let visibility = call.visibility()?;
    visibility.keep(&mut look_up.found.value, |instance| visibility.sees_instance(instance));
    let datacenter = call.node().datacenter();
    let mut names: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for instance in look_up.found.value.iter().filter(|instance| narrow.matches_node(&instance.node)) {
        if filter.takes_element(&shapes::catalog_service(instance, datacenter)) {
            let tags = names.entry(&instance.service.name).or_default();
            tags.extend(instance.service.tags.iter().map(String::as_str));
        }
    }
    Ok(look_up.answer(&call, &names))
}

/// The instances of a service with their nodes.
pub(super) async fn service(call: Call) -> Result<Answer, Refusal> {
    service_of(call, Reach::Direct).await
}

/// The instances through which clients reach a service in the mesh, with their nodes.
pub(super) async fn connect(call: Call) -> Result<Answer, Refusal> {
    service_of(call, Reach::Connect).await
}

async fn service_of(call: Call, reach: Reach) -> Result<Answer, Refusal> {
    let filter = Filter::of(&call, shape::CATALOG_SERVICE)?;
    let datacenter = call.node().datacenter();
    let json = |instance: &CheckServiceNode| {
        serde_json::to_value(shapes::catalog_service(instance, datacenter)).expect("its maps have texts for keys")
    };
    let look_up = instances(&call, reach, &filter, json).await?;
    let services = look_up.found.value.iter().map(|it| shapes::catalog_service(it, datacenter));
    Ok(look_up.answer(&call, &services.collect::<Vec<_>>()))
}

/// The services that a terminating gateway stands in for, each with the TLS settings of its link.
/// Empty if there is no such gateway.
pub(super) async fn gateway_services(call: Call) -> Result<Answer, Refusal> {
    let filter = Filter::of(&call, shape::GATEWAY_SERVICE)?;
    let name = call.rest("Missing gateway name")?.to_owned();
    call.require(&Right::service(&name, Access::READ))?;
    let subjects = vec![CatalogSubject::Table(CatalogTable::Config)];
    let permitted = || call.require(&Right::service(&name, Access::READ));
    let look_up = look_up_while(&call, subjects, permitted, |node, ctx, consistency| {
        let name = name.clone();
        async move { node.catalog().gateway(&ctx, consistency, name).await }
    })
    .await?;
    #[derive(Serialize)]
    #[serde(rename_all = "PascalCase")]
    struct Name<'a> {
        name: &'a str,
    }
    #[derive(Serialize)]
    #[serde(rename_all = "PascalCase")]
    struct Link<'a> {
        gateway: Name<'a>,
        service: Name<'a>,
        gateway_kind: &'static str,
        #[serde(rename = "CAFile", skip_serializing_if = "str::is_empty")]
        ca_file: &'a str,
        #[serde(skip_serializing_if = "str::is_empty")]
        cert_file: &'a str,
        #[serde(skip_serializing_if = "str::is_empty")]
        key_file: &'a str,
        #[serde(rename = "SNI", skip_serializing_if = "str::is_empty")]
        sni: &'a str,
        create_index: u64,
        modify_index: u64,
    }
    call.require(&Right::service(&name, Access::READ))?;
    let visibility = call.visibility()?;
    let mut linked: Vec<_> =
        look_up.found.value.iter().flat_map(|gateway| gateway.services.iter().map(move |it| (gateway, it))).collect();
    visibility.keep(&mut linked, |(_, service)| visibility.sees_service(&service.name));
    let links = linked.into_iter().map(|(gateway, service)| Link {
        gateway: Name { name: &gateway.name },
        service: Name { name: &service.name },
        gateway_kind: "terminating-gateway",
        ca_file: &service.ca_file,
        cert_file: &service.cert_file,
        key_file: &service.key_file,
        sni: &service.sni,
        create_index: gateway.created.get(),
        modify_index: gateway.modified.get(),
    });
    Ok(look_up.answer(&call, &filter.keep(links.collect())))
}
