//! `/v1/config`: configuration entries, of the one kind `terminating-gateway`.

use http::StatusCode;
use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

use super::access::Right;
use super::answer::{Answer, Refusal};
use super::call::Call;
use super::decode::Object;
use super::lookup::{look_up, look_up_while};
use super::registration::check_tenancy;
use headwater_node::CatalogSubject;
use headwater_types::catalog::{CatalogTable, LinkedService, TerminatingGateway};
use headwater_types::{Access, Space};

const KIND: &str = "terminating-gateway";

fn check_kind(kind: &str) -> Result<(), Refusal> {
    match kind {
        KIND => Ok(()),
        "" => Err(Refusal::bad("Missing config entry kind")),
        other => Err(Refusal::bad(format!("config entries of kind {other:?} are not supported: there is {KIND:?}"))),
    }
}

/// Creates or replaces the entry of a terminating gateway. The answer is `true`.
pub(super) async fn put(call: Call) -> Result<Answer, Refusal> {
    if call.query.is_there("cas") {
        return Err(Refusal::bad("?cas is not supported for config entries"));
    }
    let json = call.json()?;
    let body = Object::of(&json)?;
    check_tenancy(&body)?;
    check_kind(&body.text("Kind")?)?;
    let mut services = Vec::new();
    for service in body.objects("Services")? {
        check_tenancy(&service)?;
        services.push(LinkedService {
            name: service.text("Name")?,
            ca_file: service.text("CAFile")?,
            cert_file: service.text("CertFile")?,
            key_file: service.text("KeyFile")?,
            sni: service.text("SNI")?,
            disable_auto_host_rewrite: service.flag("DisableAutoHostRewrite")?,
        });
    }
    let gateway = TerminatingGateway {
        name: body.text("Name")?,
        services,
        meta: body.text_map("Meta")?,
        ..TerminatingGateway::default()
    };
    call.require(&Right::whole(Space::Mesh, Access::WRITE))?;
    let done = call.node().catalog().set_gateway(&call.context()?, gateway).await?;
    Ok(call.answer(&true).at(done.index))
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Entry<'a> {
    kind: &'static str,
    name: &'a str,
    services: Vec<Link<'a>>,
    meta: &'a BTreeMap<String, String>,
    create_index: u64,
    modify_index: u64,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Link<'a> {
    name: &'a str,
    #[serde(rename = "CAFile", skip_serializing_if = "str::is_empty")]
    ca_file: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    cert_file: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    key_file: &'a str,
    #[serde(rename = "SNI", skip_serializing_if = "str::is_empty")]
    sni: &'a str,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    disable_auto_host_rewrite: bool,
}

fn show(gateway: &TerminatingGateway) -> Entry<'_> {
    Entry {
        kind: KIND,
        name: &gateway.name,
        services: gateway.services.iter().map(link_of).collect(),
        meta: &gateway.meta,
        create_index: gateway.created.get(),
        modify_index: gateway.modified.get(),
    }
}

fn link_of(service: &LinkedService) -> Link<'_> {
    Link {
        name: &service.name,
        ca_file: &service.ca_file,
        cert_file: &service.cert_file,
        key_file: &service.key_file,
        sni: &service.sni,
        disable_auto_host_rewrite: service.disable_auto_host_rewrite,
    }
}

/// One entry by kind and name, 404 if there is none. For a path without a name, the list of all
/// entries of the kind that the request may see.
pub(super) async fn get(call: Call) -> Result<Answer, Refusal> {
    let path = call.rest("Missing config entry kind")?;
    let (kind, name) = path.split_once('/').unwrap_or((path, ""));
    check_kind(kind)?;
    let subjects = vec![CatalogSubject::Table(CatalogTable::Config)];
    if name.is_empty() {
        let mut look_up = look_up(&call, subjects, |node, ctx, consistency| async move {
            node.catalog().gateways(&ctx, consistency).await
        })
        .await?;
        let visibility = call.visibility()?;
        visibility.keep(&mut look_up.found.value, |gateway| visibility.sees_service(&gateway.name));
        let entries: Vec<Entry<'_>> = look_up.found.value.iter().map(|it| show(it)).collect();
        return Ok(look_up.answer(&call, &entries));
    }
    call.require(&Right::service(name, Access::READ))?;
    let permitted = || call.require(&Right::service(name, Access::READ));
    let look_up = look_up_while(&call, subjects, permitted, |node, ctx, consistency| {
        let name = name.to_owned();
        async move { node.catalog().gateway(&ctx, consistency, name).await }
    })
    .await?;
    call.require(&Right::service(name, Access::READ))?;
    match &look_up.found.value {
        Some(gateway) => Ok(look_up.answer(&call, &show(gateway))),
        // With the headers for a blocking query.
        None => Ok(Answer::text(format!("Config entry not found for {kind:?} / {name:?}"))
            .status(StatusCode::NOT_FOUND)
            .meta(look_up.meta())),
    }
}

/// Removes an entry by kind and name, if it exists. The answer is an empty object.
pub(super) async fn delete(call: Call) -> Result<Answer, Refusal> {
    let path = call.rest("Missing config entry kind")?;
    let (kind, name) = path.split_once('/').unwrap_or((path, ""));
    check_kind(kind)?;
    if name.is_empty() {
        return Err(Refusal::bad("Missing config entry name"));
    }
    call.require(&Right::whole(Space::Mesh, Access::WRITE))?;
    let done = call.node().catalog().delete_gateway(&call.context()?, name.to_owned()).await?;
    Ok(call.answer(&Value::Object(Map::new())).at(done.index))
}
