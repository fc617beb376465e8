//! `headwater register`, `deregister`, `nodes`, `services` and `health`: the service catalog, over
//! Consul's HTTP API.
//!
//! Owns its arguments and output. Works against any server of that API on the endpoints' ports.

pub(super) mod http;
mod show;
mod write;

use clap::Args;

use super::connect::Cluster;
use super::error::CliError;
use super::{ClientArgs, Freshness};
use http::{Call, encode};

pub(super) use write::{DeregisterArgs, RegisterArgs, deregister, register};

/// List the nodes of the service catalog
#[derive(Clone, Debug, Args)]
pub(super) struct NodesArgs {
    #[command(flatten)]
    narrow: NarrowArgs,
}

/// List the names of services and their tags
#[derive(Clone, Debug, Args)]
pub(super) struct ServicesArgs {
    #[command(flatten)]
    narrow: NarrowArgs,
}

/// Show the instances of a service and their health
#[derive(Clone, Debug, Args)]
pub(super) struct HealthArgs {
    /// The service's name
    name: String,
    /// Only instances with all checks passing
    #[arg(long)]
    passing: bool,
    /// Only instances with this tag; may be given several times, then with all of them
    #[arg(long, value_name = "TAG")]
    tag: Vec<String>,
    /// Show the instances through which the service is reached in the mesh instead
    #[arg(long)]
    connect: bool,
    #[command(flatten)]
    narrow: NarrowArgs,
}

#[derive(Clone, Debug, Args)]
struct NarrowArgs {
    /// Only rows for which this is true: 'rack in Meta' of nodes, 'ServicePort == 80' of services,
    /// 'Service.Port == 80' of health; docs/consul.md has the language
    #[arg(long, value_name = "EXPRESSION")]
    filter: Option<String>,
    /// Only on nodes with this metadata; may be given several times
    #[arg(long, value_name = "KEY:VALUE")]
    node_meta: Vec<String>,
}

impl NarrowArgs {
    fn query<'a>(&'a self, client: &ClientArgs) -> Vec<(&'a str, &'a str)> {
        let mut query = Vec::new();
        if client.consistency == Freshness::Serializable {
            query.push(("stale", "1"));
        }
        query.extend(self.filter.as_deref().map(|filter| ("filter", filter)));
        query.extend(self.node_meta.iter().map(|meta| ("node-meta", meta.as_str())));
        query
    }
}

pub(super) async fn nodes(args: NodesArgs, cluster: &Cluster, client: &ClientArgs) -> Result<(), CliError> {
    let found = Call::get("/v1/catalog/nodes", &args.narrow.query(client)).send(cluster).await?;
    show::nodes(&found, client.write_out)
}

pub(super) async fn services(args: ServicesArgs, cluster: &Cluster, client: &ClientArgs) -> Result<(), CliError> {
    let found = Call::get("/v1/catalog/services", &args.narrow.query(client)).send(cluster).await?;
    show::services(&found, client.write_out)
}

pub(super) async fn health(args: HealthArgs, cluster: &Cluster, client: &ClientArgs) -> Result<(), CliError> {
    let mut query = args.narrow.query(client);
    query.extend(args.tag.iter().map(|tag| ("tag", tag.as_str())));
    if args.passing {
        query.push(("passing", "1"));
    }
    let reach = if args.connect { "connect" } else { "service" };
    let path = format!("/v1/health/{reach}/{}", encode(&args.name));
    let found = Call::get(&path, &query).send(cluster).await?;
    show::instances(&found, &args.name, client.write_out)
}
