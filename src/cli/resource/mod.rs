//! `headwater resource`: typed resources, written, read, watched.
//!
//! Owns their arguments and output. Talks to `hashicorp.consul.resource.ResourceService` only, so
//! it works against any server of that API; types that are registered (`headwater.v1.ResourceType`)
//! are Headwater's own. Data is shown and taken as proto-JSON, by the descriptors with which its
//! type was registered.

mod apply;
mod catalogue;
mod diff;
pub(crate) mod manifest;
mod read;
mod show;
mod types;
mod watch;

pub(super) use catalogue::Catalogue;
pub(super) use show::Data;

use clap::Subcommand;

use super::ClientArgs;
use super::connect::Cluster;
use super::error::CliError;
use catalogue::KnownType;
use headwater_client::controller::wire;
use headwater_types::resource::{ResourceId, Scope, Tenancy, WILDCARD};

/// Typed resources: apply, read, list, delete, watch
#[derive(Clone, Debug, clap::Args)]
pub(super) struct ResourceArgs {
    #[command(subcommand)]
    command: ResourceCommand,
}

#[derive(Clone, Debug, Subcommand)]
enum ResourceCommand {
    Apply(apply::ApplyArgs),
    Read(read::ReadArgs),
    List(read::ListArgs),
    ListByOwner(read::OwnedArgs),
    Delete(read::DeleteArgs),
    Watch(watch::WatchArgs),
    Types(types::TypesArgs),
}

pub(super) async fn run(args: ResourceArgs, cluster: &Cluster, client: &ClientArgs) -> Result<(), CliError> {
    match args.command {
        ResourceCommand::Apply(args) => apply::run(args, cluster, client).await,
        ResourceCommand::Read(args) => read::read(args, cluster, client).await,
        ResourceCommand::List(args) => read::list(args, cluster, client).await,
        ResourceCommand::ListByOwner(args) => read::list_by_owner(args, cluster, client).await,
        ResourceCommand::Delete(args) => read::delete(args, cluster, client).await,
        ResourceCommand::Watch(args) => watch::run(args, cluster, client).await,
        ResourceCommand::Types(args) => types::run(args, cluster, client).await,
    }
}

/// One resource by its name.
#[derive(Clone, Debug, clap::Args)]
struct NameArgs {
    /// The type: group.version.Kind; or version.Kind, group.Kind or Kind, if it fits one type only
    #[arg(value_name = "TYPE")]
    type_: String,
    /// The name
    name: String,
    #[command(flatten)]
    units: UnitArgs,
}

impl NameArgs {
    fn id(&self, known: &KnownType) -> ResourceId {
        ResourceId {
            uid: String::new(),
            name: self.name.clone(),
            type_: known.type_().clone(),
            tenancy: self.units.tenancy(known.scope()),
        }
    }
}

/// Units of tenancy. `*` means every unit, in lists and watches.
#[derive(Clone, Debug, Default, clap::Args)]
struct UnitArgs {
    /// The partition [default: default, in types that have one]
    #[arg(long, value_name = "NAME")]
    partition: Option<String>,
    /// The namespace [default: default, in types that have one]
    #[arg(long, short, value_name = "NAME")]
    namespace: Option<String>,
}

impl UnitArgs {
    /// Wildcards for all units that a scope has.
    fn every(scope: Scope) -> Self {
        let every = |is_there: bool| is_there.then(|| WILDCARD.to_owned());
        let is_undefined = scope == Scope::Undefined;
        Self {
            partition: every(scope.has_partition() || is_undefined),
            namespace: every(scope.has_namespace() || is_undefined),
        }
    }

    fn is_given(&self) -> bool {
        self.partition.is_some() || self.namespace.is_some()
    }

    fn tenancy(&self, scope: Scope) -> Tenancy {
        wire::default_tenancy(scope, self.partition.as_deref(), self.namespace.as_deref())
    }
}
