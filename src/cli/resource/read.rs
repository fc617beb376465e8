//! `headwater resource read`, `list`, `list-by-owner` and `delete`.

use std::io::Write;

use tonic::{Code, Response};

use super::catalogue::{Catalogue, KnownType, page};
use super::show::{Output, Printer};
use super::{NameArgs, UnitArgs};
use crate::connect::Cluster;
use crate::error::CliError;
use crate::{ClientArgs, Freshness};
use headwater_client::controller::wire;
use headwater_client::{Attempt, Repeat};
use headwater_proto::pb::pbresource;
use headwater_types::resource::ResourceId;

/// Print one resource
#[derive(Clone, Debug, clap::Args)]
pub(super) struct ReadArgs {
    #[command(flatten)]
    resource: NameArgs,
    /// Format of the output
    #[arg(long, short, value_enum)]
    output: Option<Output>,
}

/// List the resources of a type
#[derive(Clone, Debug, clap::Args)]
pub(super) struct ListArgs {
    /// The type: group.version.Kind; or version.Kind, group.Kind or Kind, if it fits one type only
    #[arg(value_name = "TYPE")]
    type_: String,
    /// Only names that begin with this
    #[arg(long, default_value = "", value_name = "PREFIX")]
    prefix: String,
    #[command(flatten)]
    units: UnitArgs,
    /// In every partition and namespace
    #[arg(long, short = 'A', conflicts_with_all = ["partition", "namespace"])]
    all: bool,
    /// Format of the output
    #[arg(long, short, value_enum)]
    output: Option<Output>,
}

/// List the resources that a resource owns
#[derive(Clone, Debug, clap::Args)]
pub(super) struct OwnedArgs {
    #[command(flatten)]
    owner: NameArgs,
    /// Format of the output
    #[arg(long, short, value_enum)]
    output: Option<Output>,
}

/// Delete a resource, and in time the resources that it owns
#[derive(Clone, Debug, clap::Args)]
pub(super) struct DeleteArgs {
    #[command(flatten)]
    resource: NameArgs,
    /// Only if this is its version
    #[arg(long, value_name = "VERSION")]
    version: Option<String>,
}

/// Reads the resource `id`; `None` if there is none. `consistent` asks for a linearizable read.
pub(super) async fn find(
    id: &ResourceId,
    cluster: &Cluster,
    consistent: bool,
) -> Result<Option<pbresource::Resource>, CliError> {
    let request = pbresource::ReadRequest { id: Some(wire::id_to_pb(id)) };
    let call = async |attempt: Attempt| {
        let mut read = attempt.request(request.clone());
        if consistent {
            wire::consistent(&mut read);
        }
        match attempt.resources().read(read).await {
            Ok(answer) => Ok(Response::new(answer.into_inner().resource)),
            Err(status) if status.code() == Code::NotFound => Ok(Response::new(None)),
            Err(status) => Err(status),
        }
    };
    cluster.call(Repeat::Harmless, call).await
}

async fn find_named(
    name: &NameArgs,
    cluster: &Cluster,
    client: &ClientArgs,
) -> Result<(Catalogue, pbresource::Resource), CliError> {
    let catalogue = Catalogue::read(cluster, client.consistency).await?;
    let id = name.id(known(&catalogue, &name.type_)?);
    match find(&id, cluster, client.consistency == Freshness::Linearizable).await? {
        Some(resource) => Ok((catalogue, resource)),
        None => Err(missing(&id)),
    }
}

pub(super) fn known<'a>(catalogue: &'a Catalogue, type_: &str) -> Result<&'a KnownType, CliError> {
    catalogue.resolve(type_).map_err(CliError::Usage)
}

fn missing(id: &ResourceId) -> CliError {
    let name = wire::name(id);
    CliError::Finding(format!("there is no {name}; `headwater resource list {} --all` shows what there is", id.type_))
}

pub(super) async fn read(args: ReadArgs, cluster: &Cluster, client: &ClientArgs) -> Result<(), CliError> {
    let (catalogue, resource) = find_named(&args.resource, cluster, client).await?;
    let output = Output::choose(args.output, client.write_out, Output::Yaml);
    super::apply::print_one(&resource, output, &catalogue)
}

pub(super) async fn list(args: ListArgs, cluster: &Cluster, client: &ClientArgs) -> Result<(), CliError> {
    let catalogue = Catalogue::read(cluster, client.consistency).await?;
    let known = known(&catalogue, &args.type_)?;
    let units = if args.all { UnitArgs::every(known.scope()) } else { args.units };
    let request = pbresource::ListRequest {
        r#type: Some(wire::type_to_pb(known.type_())),
        tenancy: Some(wire::tenancy_to_pb(&units.tenancy(known.scope()))),
        name_prefix: args.prefix,
    };
    let output = Output::choose(args.output, client.write_out, Output::Table);
    let mut printer = Printer::new(std::io::stdout(), output, &catalogue);
    let mut token = None;
    loop {
        let consistent = client.consistency == Freshness::Linearizable;
        let (answer, next) = page(cluster, request.clone(), token.as_deref(), consistent).await?;
        for resource in &answer.resources {
            printer.print(resource)?;
        }
        match next {
            Some(next) => token = Some(next),
            None => return printer.finish(),
        }
    }
}

pub(super) async fn list_by_owner(args: OwnedArgs, cluster: &Cluster, client: &ClientArgs) -> Result<(), CliError> {
    let (catalogue, owner) = find_named(&args.owner, cluster, client).await?;
    let request = pbresource::ListByOwnerRequest { owner: owner.id };
    let call = async |a: Attempt| a.resources().list_by_owner(a.request(request.clone())).await;
    let owned = cluster.call(Repeat::Harmless, call).await?;
    let output = Output::choose(args.output, client.write_out, Output::Table);
    let mut printer = Printer::new(std::io::stdout(), output, &catalogue);
    for resource in &owned.resources {
        printer.print(resource)?;
    }
    printer.finish()
}

pub(super) async fn delete(args: DeleteArgs, cluster: &Cluster, client: &ClientArgs) -> Result<(), CliError> {
    let (_, resource) = find_named(&args.resource, cluster, client).await?;
    let id = wire::id_from_pb(resource.id.as_ref());
    let name = wire::name(&id);
    // With the uid, so that exactly the found resource is deleted, not a later one of its name.
    let request = pbresource::DeleteRequest { id: resource.id, version: args.version.unwrap_or_default() };
    let call = async |a: Attempt| a.resources().delete(a.request(request.clone())).await;
    // The uid makes it idempotent: a later resource of the same name is not deleted.
    cluster.call(Repeat::Harmless, call).await.map_err(|error| match error {
        CliError::Refused { status, .. } if status.code() == Code::Aborted => {
            CliError::Finding(format!("{name} has changed since that version ({}): read it again", status.message()))
        }
        other => other,
    })?;
    let finalizers = resource.metadata.get(headwater_types::resource::FINALIZERS).map(|it| it.trim());
    let mut out = std::io::stdout();
    match finalizers.filter(|names| !names.is_empty()) {
        None => writeln!(out, "{name} deleted")?,
        Some(names) => writeln!(
            out,
            "{name} is marked for deletion; it goes when nobody holds it any more and it is deleted again. Finalizers: \
             {names}"
        )?,
    }
    Ok(())
}
