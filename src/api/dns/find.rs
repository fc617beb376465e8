//! Look-ups of subjects in the catalog and in the membership.
//!
//! Owns the choice of instances: those without a critical check, of the node or of the instance.
//! Must not know records. Invariant: one question reads one view of this node's own state, and
//! finds only nodes and instances that the DNS token may read.

use std::net::IpAddr;

use rand::seq::SliceRandom;

use super::records::{Address, Found, Instance};
use super::zone::Subject;
use headwater_node::{Authorizer, Consistency, Member, Node, NodeError, Read, RequestContext};
use headwater_types::catalog::{self, CheckServiceNode, CheckStatus};
use headwater_types::{Access, Refusal, Space};

/// Names of the tagged addresses for clients in the local network, one for each address family, as
/// in Consul.
const LOCAL_ADDRESSES: [&str; 2] = ["lan_ipv4", "lan_ipv6"];

/// Looks `subject` up in this node's applied state. Instances are in random order, without those
/// that have a critical check. With `only_passing`, also without those that have a warning. A row
/// that the DNS token may not read counts as missing.
///
/// # Errors
///
/// Those of a serializable read, such as that this node does not serve yet.
pub(super) async fn find(
    node: &Node,
    ctx: &RequestContext,
    subject: Subject,
    only_passing: bool,
) -> Result<Read<Found>, NodeError> {
    let local = Consistency::Serializable;
    let read = match subject {
        Subject::Service { name, tag } => {
            let read = node.catalog().instances(ctx, local, name).await?;
            let authorizer = authorizer(node, ctx)?;
            map(read, |indexed| instances(&visible(&authorizer, indexed.value), tag.as_deref(), only_passing))
        }
        Subject::Connect { name } => {
            let read = node.catalog().connect_instances(ctx, local, name).await?;
            let authorizer = authorizer(node, ctx)?;
            map(read, |indexed| instances(&visible(&authorizer, indexed.value), None, only_passing))
        }
        Subject::Node { name } => {
            let read = node.catalog().node(ctx, local, name).await?;
            let authorizer = authorizer(node, ctx)?;
            map(read, |indexed| match indexed.value.filter(|node| sees(&authorizer, Space::CatalogNode, &node.name)) {
                Some(node) => Found::Node { address: address_of_node(&node), meta: node.meta.clone() },
                None => Found::Nothing,
            })
        }
        Subject::Apex => map(node.members().named(ctx, local).await?, |members| Found::Apex(servers(&members))),
        Subject::Servers => map(node.members().named(ctx, local).await?, |members| Found::Servers(servers(&members))),
        // Nothing is read for these, but a node that is not serving must not answer.
        Subject::Between => map(node.members().named(ctx, local).await?, |_| Found::Between),
        Subject::Nothing => map(node.members().named(ctx, local).await?, |_| Found::Nothing),
        Subject::Address(address) => map(node.members().named(ctx, local).await?, |_| Found::Address(address)),
    };
    Ok(read)
}

/// The rights of the DNS token. `None` if the token is refused, for example as unknown: it then has
/// no rights, as in Consul.
fn authorizer(node: &Node, ctx: &RequestContext) -> Result<Option<Authorizer>, NodeError> {
    match node.authorizer(ctx) {
        Ok(authorizer) => Ok(Some(authorizer)),
        Err(NodeError::Refused(Refusal::Auth(_))) => Ok(None),
        Err(error) => Err(error),
    }
}

fn sees(authorizer: &Option<Authorizer>, space: Space, name: &str) -> bool {
    authorizer.as_ref().is_some_and(|authorizer| authorizer.allows(space, &space.key_of(name), Access::READ))
}

/// The instances of which the token may read both the node and the service.
fn visible<T: AsRef<CheckServiceNode>>(authorizer: &Option<Authorizer>, mut all: Vec<T>) -> Vec<T> {
    all.retain(|instance| {
        let instance = instance.as_ref();
        sees(authorizer, Space::CatalogNode, &instance.node.name)
            && sees(authorizer, Space::CatalogService, &instance.service.name)
    });
    all
}

fn map<T, U>(read: Read<T>, with: impl FnOnce(T) -> U) -> Read<U> {
    Read { index: read.index, revision: read.revision, value: with(read.value) }
}

/// The healthy instances in random order; with `tag`, only those that have it. An instance with a
/// critical check is not healthy; with `only_passing`, neither is one with a warning.
pub(super) fn instances(all: &[impl AsRef<CheckServiceNode>], tag: Option<&str>, only_passing: bool) -> Found {
    let worst = if only_passing { CheckStatus::Passing } else { CheckStatus::Warning };
    let mut chosen: Vec<Instance> = all
        .iter()
        .map(AsRef::as_ref)
        .filter(|instance| tag.is_none_or(|tag| has_tag(&instance.service, tag)))
        .filter(|instance| instance.worst() <= worst)
        .map(instance)
        .collect();
    chosen.shuffle(&mut rand::rng());
    Found::Instances(chosen)
}

/// Whether the service has a tag, compared without the case of ASCII letters, as all names of DNS.
fn has_tag(service: &catalog::Service, tag: &str) -> bool {
    service.tags.iter().any(|own| own.eq_ignore_ascii_case(tag))
}

fn instance(found: &CheckServiceNode) -> Instance {
    let (node, service) = (&found.node, &found.service);
    let is_at_node = service.address.is_empty();
    let address = if is_at_node {
        address_of_node(node)
    } else {
        let tagged = LOCAL_ADDRESSES.iter().filter_map(|tag| service.tagged_addresses.get(*tag));
        Address::new(&service.address, tagged.map(|tagged| tagged.address.as_str()))
    };
    let weight = if found.worst() == CheckStatus::Passing { service.weights.passing } else { service.weights.warning };
    Instance { node: node.name.clone(), address, is_at_node, port: word(service.port), weight: word(weight) }
}

fn address_of_node(node: &catalog::CatalogNode) -> Address {
    let tagged = LOCAL_ADDRESSES.iter().filter_map(|tag| node.tagged_addresses.get(*tag));
    Address::new(&node.address, tagged.map(String::as_str))
}

/// The number as a field of a record: 0 for a negative one, 65535 for one that is too large.
fn word(number: i32) -> u16 {
    u16::try_from(number.max(0)).unwrap_or(u16::MAX)
}

/// The IP addresses in the members' client URLs, each once, in ascending order. URLs with a host
/// name are left out.
fn servers(members: &[Member]) -> Vec<IpAddr> {
    let mut addresses: Vec<IpAddr> =
        members.iter().flat_map(|member| &member.client_urls).filter_map(|url| address_of(url)).collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}

/// The IP address in `http://ADDRESS:PORT`. `None` for a host name, and for a text that is no URL.
fn address_of(url: &str) -> Option<IpAddr> {
    let uri: http::Uri = url.parse().ok()?;
    let host = uri.host()?;
    host.trim_start_matches('[').trim_end_matches(']').parse().ok()
}

#[cfg(test)]
#[path = "find_tests.rs"]
mod tests;
