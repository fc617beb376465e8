//! `headwater undo`: sets a part of the store back to an earlier state, by one commit.
//!
//! Owns the operations that undo a change. The commit has the conditions that no shown entity has
//! changed since the changes were read, so it undoes exactly the shown changes. Leases, members and
//! statuses of resources stay as they are, and so do nodes that were registered since.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

use prost::Message;

use super::diff::{Differences, differences};
use super::point::{When, parse_when};
use super::preview::{Preview, unseen_error};
use super::refusal::read_error;
use super::{WHEN_HELP, no_history_before, recursive, store};
use crate::ClientArgs;
use crate::commit;
use crate::connect::Cluster;
use crate::entity::name;
use crate::error::CliError;
use crate::notice;
use crate::output::{WriteOut, print_json};
use headwater_client::CommitError;
use headwater_proto::pb::etcdserverpb as etcd;
use headwater_proto::pb::headwater_v1 as pb;
use headwater_proto::pb::headwater_v1::entity_change::Kind;
use headwater_proto::pb::headwater_v1::operation::Operation as Op;
use headwater_proto::pb::{mvccpb, pbresource, pbservice};
use headwater_types::consul::consul_path;
use headwater_types::limits::{CONSUL_PATH_BYTES_MAX, CONSUL_VALUE_BYTES_MAX, TXN_OPS_MAX, TXN_OPS_SET_MAX};

/// Units that the store has from its first command on, and never removes.
const DEFAULT_UNITS: [&str; 2] =
    ["/resources/tenancy/v2beta1/Partition/~/~/default", "/resources/tenancy/v2beta1/Namespace/default/~/default"];
/// Targets in one request of the store.
const TARGETS_MAX: usize = 64;

/// Set a part of the store back to an earlier state
///
/// Shows the changes that it would make, and asks. All of it is one commit, which is refused if any
/// of it has changed meanwhile. Keys lose their leases, unless they still have the same one;
/// leases, locks, members and statuses of resources stay as they are.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = WHEN_HELP)]
pub(crate) struct UndoArgs {
    /// Path to set back, with everything below it
    target: String,
    /// The state to go back to, such as 10m
    #[arg(long, value_name = "WHEN", value_parser = parse_when)]
    to: When,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
}

pub(crate) async fn run(args: UndoArgs, cluster: &Cluster, client: &ClientArgs) -> Result<(), CliError> {
    if args.to == When::Now {
        return Err(CliError::Usage("--to now: that is the state already".to_owned()));
    }
    let is_json = client.write_out == WriteOut::Json;
    if is_json && !args.yes {
        return Err(CliError::Usage("-w json does not ask: confirm with --yes".to_owned()));
    }
    let target = recursive(Some(&args.target));
    require_history(args.to, &target, cluster).await?;
    let request = pb::HistoryRequest { targets: vec![target.clone()], from: args.to.point(), ..Default::default() };
    let Differences { changes, types, reached, epoch } = differences(request, cluster).await?;
    let mut changes: Vec<_> = changes.into_iter().filter(differs).collect();
    put_in_order(&mut changes);
    let mut checks = checks_of_nodes(&changes, reached, cluster).await?;
    let mut unseen: Vec<String> = checks.keys().map(|node| format!("/nodes/{node}")).collect();
    let (mut undone, mut left) = (Vec::new(), Vec::new());
    for change in changes {
        match undo(&change, &mut checks) {
            Ok(operation) => undone.push((reversed(change), operation)),
            Err(why) => left.push((change.path, why)),
        }
    }
    let paths: Vec<&str> = undone.iter().map(|(change, _)| change.path.as_str()).collect();
    unseen.retain(|node| !paths.contains(&node.as_str()));
    let request = pb::CommitRequest {
        conditions: conditions(&target, &paths, &unseen, (reached, &epoch)),
        operations: in_one(&undone),
        ..Default::default()
    };
    let warning = too_many(&request, &paths)?;
    let mut shown = nodes_that_return(&unseen, &undone);
    shown.extend(undone.into_iter().map(|(change, _)| change));
    let preview = Preview { changes: shown, left, types, epoch };
    let mut out = std::io::stdout().lock();
    if is_json && let Some(warning) = &warning {
        notice!("{warning}");
    }
    if !is_json {
        if let Some(warning) = &warning {
            writeln!(out, "{warning}").map_err(unseen_error)?;
        }
        preview.print(&mut out).map_err(unseen_error)?;
    }
    if preview.changes.is_empty() {
        return match is_json {
            true => print_json(&mut out, &preview.as_json(None)),
            false => Ok(writeln!(out, "nothing to undo")?),
        };
    }
    if !args.yes {
        preview.confirm(&mut out).map_err(unseen_error)?;
    }
    let wanted = request.conditions.clone();
    let done = commit::send(request, cluster, client).await.map_err(|error| explain(error, &wanted))?;
    match is_json {
        true => print_json(&mut out, &preview.as_json(Some(&done))),
        false => commit::print(&mut out, &done, client),
    }
}

/// Refuses a time before the first change of the store: the undo would remove everything. The log
/// index 0 says that on purpose.
async fn require_history(at: When, target: &str, cluster: &Cluster) -> Result<(), CliError> {
    // Leases and members of the past are expensive, not always known, and never undone.
    let is_undone = !["/leases", "/cluster"].iter().any(|space| target.starts_with(space));
    if !at.is_time() || !is_undone {
        return Ok(());
    }
    // The node need not exist.
    let target = if target.starts_with("/?") { "/nodes/n?children=false" } else { target };
    let request =
        pb::ReadRequest { targets: vec![target.to_owned()], at: at.point(), page_size: 1, ..Default::default() };
    if store(cluster).read(request).await.map_err(read_error)?.index > 0 {
        return Ok(());
    }
    Err(CliError::Finding(format!("{}; nothing was undone", no_history_before(cluster).await)))
}

/// The line about a commit of more operations than members take by default. `None` if they take it.
/// A setting of the members decides, which no API tells: so only a commit that is larger than the
/// setting can be is not sent.
fn too_many(request: &pb::CommitRequest, paths: &[&str]) -> Result<Option<String>, CliError> {
    let count = request.operations.len().max(request.conditions.len());
    if count <= TXN_OPS_MAX {
        return Ok(None);
    }
    let max = if count > TXN_OPS_SET_MAX { TXN_OPS_SET_MAX } else { TXN_OPS_MAX };
    let smaller = small_target(paths, max).map(|target| format!("; a smaller target is {target}"));
    if count > TXN_OPS_SET_MAX {
        let advice = smaller.unwrap_or_default();
        let text = format!("{count} operations are more than any commit takes, {max}{advice}; nothing was undone");
        return Err(CliError::Finding(text));
    }
    let advice = smaller
        .unwrap_or_else(|| "; no smaller target has several of them: start a member with more, and ask it".to_owned());
    Ok(Some(format!(
        "{count} operations in one commit: it is refused unless max-txn-ops of the member that is asked, {max} by \
         default, is as high{advice}"
    )))
}

/// The error of the commit, which has the conditions `wanted`. The user wrote none of them.
fn explain(error: CommitError, wanted: &[pb::Condition]) -> CliError {
    let failed = match &error {
        CommitError::Refused { status, .. } => commit::Failed::of(status, wanted),
        CommitError::Unreachable(_) | CommitError::Indeterminate { .. } => None,
    };
    match failed {
        Some(failed) => CliError::Finding(format!("{}; nothing was undone; run it again", failed.change())),
        None => commit::refused(error),
    }
}

/// Whether the states differ in their `content`. Other differences cannot be undone.
fn differs(change: &pb::EntityChange) -> bool {
    let content = |entity: &Option<pb::Entity>| entity.as_ref()?.data.as_ref().map(content);
    content(&change.before) != content(&change.after)
}

/// The part of the data that an undo sets back: without versions and log indexes, leases of keys,
/// statuses and uids of resources. An instance counts without its node and the checks of its node.
fn content(data: &prost_types::Any) -> Vec<u8> {
    match name(data) {
        "mvccpb.KeyValue" => mvccpb::KeyValue::decode(&data.value[..])
            .map(|kv| mvccpb::KeyValue { key: kv.key, value: kv.value, ..Default::default() }.encode_to_vec()),
        "hashicorp.consul.resource.Resource" => pbresource::Resource::decode(&data.value[..]).map(|resource| {
            let pbresource::Resource { owner, metadata, data, .. } = resource;
            let owner = owner.map(named);
            pbresource::Resource { owner, metadata, data, ..Default::default() }.encode_to_vec()
        }),
        "hashicorp.consul.internal.service.Node" => pbservice::Node::decode(&data.value[..])
            .map(|node| pbservice::Node { raft_index: None, ..node }.encode_to_vec()),
        "hashicorp.consul.internal.service.CheckServiceNode" => {
            pbservice::CheckServiceNode::decode(&data.value[..]).map(|it| {
                let service = it.service.map(|service| pbservice::NodeService { raft_index: None, ..service });
                let id = service.as_ref().map(|service| service.id.clone()).unwrap_or_default();
                let checks = it.checks.into_iter().filter(|check| check.service_id == id);
                let checks = checks.map(|check| pbservice::HealthCheck { raft_index: None, ..check }).collect();
                // The node is an entity of its own.
                pbservice::CheckServiceNode { node: None, service, checks }.encode_to_vec()
            })
        }
        _ => Ok(data.value.clone()),
    }
    .unwrap_or_else(|_| data.value.clone())
}

/// The path at or below which most of `paths` lie, at least two and at most `max`; the shortest and
/// first of several. `None` if there is none.
fn small_target<'p>(paths: &[&'p str], max: usize) -> Option<&'p str> {
    let mut below = BTreeMap::<&str, usize>::new();
    for path in paths {
        let ends = path.match_indices('/').skip(1).map(|(end, _)| end).chain([path.len()]);
        ends.for_each(|end| *below.entry(&path[..end]).or_default() += 1);
    }
    let fitting = below.into_iter().filter(|(_, count)| (2..=max).contains(count));
    // Of equals the last one is taken.
    fitting.rev().max_by_key(|(_, count)| *count).map(|(path, _)| path)
}

/// The change that an undo of `change` makes: states swapped, kind inverted.
fn reversed(change: pb::EntityChange) -> pb::EntityChange {
    let kind = match change.kind() {
        Kind::Created => Kind::Removed,
        Kind::Removed => Kind::Created,
        other @ (Kind::Updated | Kind::Unknown) => other,
    };
    let (before, after) = (change.after, change.before);
    pb::EntityChange { kind: kind.into(), before, after, expired: false, ..change }
}

/// The conditions that nothing has changed since `index` in the lineage `epoch`. One is about
/// everything below `target` if that is possible, else one about each of `paths`. One more is about
/// each path in `outside`.
fn conditions(target: &str, paths: &[&str], outside: &[String], (index, epoch): (u64, &str)) -> Vec<pb::Condition> {
    let is_whole = target.ends_with("?recursive=true")
        && ["/kv", "/resources", "/services"].iter().any(|space| target.starts_with(space));
    let targets = if is_whole { &[target][..] } else { paths };
    let targets = targets.iter().copied().chain(outside.iter().map(String::as_str));
    let unchanged = |target: &str| pb::Condition {
        target: target.to_owned(),
        condition: Some(pb::condition::Condition::UnchangedSince(index)),
        epoch: epoch.to_owned(),
        ..Default::default()
    };
    targets.map(unchanged).collect()
}

/// Checks of nodes, by the name that the node has in paths.
type NodeChecks = BTreeMap<String, Vec<pbservice::HealthCheck>>;

/// The nodes at `paths` as changes: each comes back with the first of its instances in `undone`.
fn nodes_that_return(paths: &[String], undone: &[(pb::EntityChange, Op)]) -> Vec<pb::EntityChange> {
    let of = |path: &String| {
        let name = path.strip_prefix("/nodes/")?;
        undone.iter().find_map(|(change, operation)| match operation {
            Op::Register(pb::Register { node: Some(node), .. }) if change.path.split('/').nth(3) == Some(name) => {
                let type_url = "type.googleapis.com/hashicorp.consul.internal.service.Node".to_owned();
                let data = Some(prost_types::Any { type_url, value: node.encode_to_vec() });
                let after = Some(pb::Entity { path: path.clone(), data, index: 0 });
                let kind = Kind::Created.into();
                Some(pb::EntityChange { path: path.clone(), kind, after, ..Default::default() })
            }
            _ => None,
        })
    };
    paths.iter().filter_map(of).collect()
}

/// The checks of nodes to restore: of each node that an instance comes back to and that does not
/// exist at `reached`. They are in the earlier states of the instances. A node that exists keeps
/// its checks, and is left out.
async fn checks_of_nodes(
    changes: &[pb::EntityChange],
    reached: u64,
    cluster: &Cluster,
) -> Result<NodeChecks, CliError> {
    let mut found = NodeChecks::new();
    for change in changes.iter().filter(|change| change.path.starts_with("/services/") && change.after.is_none()) {
        let instance = data(&change.before).and_then(|data| pbservice::CheckServiceNode::decode(data).ok());
        let checks = instance.into_iter().flat_map(|it| it.checks).filter(|check| check.service_id.is_empty());
        if let Some(node) = change.path.split('/').nth(3) {
            found.insert(node.to_owned(), checks.collect());
        }
    }
    let targets: Vec<_> = found.keys().map(|node| format!("/nodes/{node}?children=false")).collect();
    for targets in targets.chunks(TARGETS_MAX) {
        let at = Some(pb::Point { point: Some(pb::point::Point::Index(reached)), ..Default::default() });
        let request = pb::ReadRequest { targets: targets.to_vec(), at, ..Default::default() };
        for node in store(cluster).read_all(request).await?.entities {
            found.remove(node.path.trim_start_matches("/nodes/"));
        }
    }
    Ok(found)
}

/// Sorts changes in the order of the operations that undo them. A resource that others need (a
/// unit, an owner) is written first and deleted last.
fn put_in_order(changes: &mut [pb::EntityChange]) {
    const UNITS: [&str; 2] = ["/resources/tenancy/v2beta1/Partition/", "/resources/tenancy/v2beta1/Namespace/"];
    let resource = |change: &pb::EntityChange| {
        let data = data(&change.before).or(data(&change.after)).filter(|_| change.path.starts_with("/resources/"));
        data.and_then(|data| pbresource::Resource::decode(data).ok())
    };
    let name = |id: pbresource::Id| {
        let kind = id.r#type.map(|it| pbresource::Type { group_version: String::new(), ..it });
        pbresource::Id { uid: String::new(), r#type: kind, ..id }.encode_to_vec()
    };
    let owners: BTreeMap<_, _> =
        changes.iter().filter_map(resource).filter_map(|it| Some((name(it.id?), it.owner.map(name)))).collect();
    changes.sort_by_cached_key(|change| {
        let Some(resource) = resource(change) else { return 0 };
        let unit = UNITS.iter().position(|unit| change.path.starts_with(unit)).unwrap_or(UNITS.len());
        let above = std::iter::successors(resource.owner.map(name), |owner| owners.get(owner).cloned().flatten());
        // Owners form no ring; the bound holds if data says otherwise.
        let depth = above.take_while(|owner| owners.contains_key(owner)).take(owners.len()).count();
        let rank = i64::try_from(unit + depth).expect("bounded by the changes in memory");
        if change.before.is_some() { rank } else { -rank }
    });
}

/// The operation that undoes a change, or the reason why there is none. A registration takes the
/// checks of its node out of `checks`.
fn undo(change: &pb::EntityChange, checks: &mut NodeChecks) -> Result<Op, &'static str> {
    const DAMAGED: &str = "its data cannot be read; use the newest version of this program";
    let part = |number| change.path.split('/').nth(number).unwrap_or_default();
    let (then, now) = (data(&change.before), data(&change.after));
    match part(1) {
        "kv" => {
            let read = |data: Option<&[u8]>| data.map(mvccpb::KeyValue::decode).transpose().map_err(|_| DAMAGED);
            match (read(then)?, read(now)?) {
                (Some(then), now) => Ok(put(then, now)),
                (None, Some(now)) => {
                    Ok(Op::DeleteRange(etcd::DeleteRangeRequest { key: now.key, ..Default::default() }))
                }
                (None, None) => Err(DAMAGED),
            }
        }
        "resources" if part(2) == "internal" => Err("the store removes it by itself"),
        "resources" if then.is_none() && DEFAULT_UNITS.contains(&change.path.as_str()) => Err("it is never removed"),
        "resources" => {
            let read = |data: Option<&[u8]>| data.map(pbresource::Resource::decode).transpose().map_err(|_| DAMAGED);
            match (read(then)?, read(now)?) {
                (Some(then), now) => Ok(write(then, now)),
                (None, Some(now)) => {
                    Ok(Op::DeleteResource(pbresource::DeleteRequest { id: now.id, version: now.version }))
                }
                (None, None) => Err(DAMAGED),
            }
        }
        "services" => {
            let read =
                |data: Option<&[u8]>| data.map(pbservice::CheckServiceNode::decode).transpose().map_err(|_| DAMAGED);
            match (read(then)?, read(now)?) {
                (Some(then), now) => {
                    let of_node = checks.remove(part(3)).unwrap_or_default();
                    register(then, now.is_some(), of_node).ok_or(DAMAGED)
                }
                (None, Some(now)) => deregister(now).ok_or(DAMAGED),
                (None, None) => Err(DAMAGED),
            }
        }
        "nodes" => match then.map(pbservice::Node::decode).transpose().map_err(|_| DAMAGED)? {
            Some(then) => {
                let checks = checks.remove(part(2)).unwrap_or_default();
                Ok(Op::Register(pb::Register { node: Some(then), checks, ..Default::default() }))
            }
            None => Err("a node would go with everything on it; use headwater deregister --node NAME"),
        },
        "leases" => Err("leases cannot be undone"),
        _ => Err("only requests of its own change it"),
    }
}

fn data(entity: &Option<pb::Entity>) -> Option<&[u8]> {
    Some(&entity.as_ref()?.data.as_ref()?.value[..])
}

/// Writes a key back. It keeps its present lease if it had the same one then; otherwise it gets
/// none. A key of Consul keeps its present lock: a put of etcd would take it from its session.
fn put(then: mvccpb::KeyValue, now: Option<mvccpb::KeyValue>) -> Op {
    let has_lease = then.lease != 0 || now.as_ref().is_some_and(|now| now.lease != 0);
    if now.is_some()
        && !has_lease
        && then.value.len() <= CONSUL_VALUE_BYTES_MAX
        && let Some(path) = consul_path(&then.key).filter(|path| (1..=CONSUL_PATH_BYTES_MAX).contains(&path.len()))
    {
        return Op::ConsulKv(pb::ConsulKv { verb: "set".to_owned(), path, value: then.value, ..Default::default() });
    }
    let has_same_lease = now.is_some_and(|now| now.lease == then.lease && then.lease != 0);
    Op::Put(etcd::PutRequest { key: then.key, value: then.value, ignore_lease: has_same_lease, ..Default::default() })
}

/// `owner` without its uid: a resource that was made again has another one.
fn named(owner: pbresource::Id) -> pbresource::Id {
    pbresource::Id { uid: String::new(), ..owner }
}

/// Writes a resource back: as the same one if it still exists, else as a new one.
fn write(then: pbresource::Resource, now: Option<pbresource::Resource>) -> Op {
    let uid = now.as_ref().and_then(|now| now.id.as_ref()).map(|id| id.uid.clone()).unwrap_or_default();
    let resource = pbresource::Resource {
        id: then.id.map(|id| pbresource::Id { uid, ..id }),
        version: now.map(|now| now.version).unwrap_or_default(),
        owner: then.owner.map(named),
        metadata: then.metadata,
        data: then.data,
        ..Default::default()
    };
    Op::WriteResource(pbresource::WriteRequest { resource: Some(resource) })
}

/// Registers an instance as it was, with its own checks and the checks `of_node`. Its node stays as
/// it is if that exists. `exists` tells whether the instance exists now: then its other checks are
/// removed. `None` if the node or the service is missing in `then`.
fn register(then: pbservice::CheckServiceNode, exists: bool, of_node: Vec<pbservice::HealthCheck>) -> Option<Op> {
    let (node, service) = (then.node?, then.service?);
    let own = then.checks.into_iter().filter(|check| check.service_id == service.id);
    let checks = own.chain(of_node).collect();
    let (node, service) = (Some(node), Some(service));
    Some(Op::Register(pb::Register { node, service, checks, skip_node_update: true, replace_checks: exists }))
}

fn deregister(now: pbservice::CheckServiceNode) -> Option<Op> {
    let what = Some(pb::deregister::What::ServiceId(now.service?.id));
    Some(Op::Deregister(pb::Deregister { node: now.node?.node, what }))
}

/// The operations of the commit, without needless deregistrations. If an instance goes back to
/// another service, its registration removes it from the present one. If a node gets an earlier
/// name back, everything on it goes along.
fn in_one(undone: &[(pb::EntityChange, Op)]) -> Vec<pb::Operation> {
    let mut registered = BTreeSet::new();
    let mut renamed = BTreeSet::new();
    for (_, operation) in undone {
        let Op::Register(pb::Register { node: Some(node), service, .. }) = operation else { continue };
        if let Some(service) = service {
            registered.insert((node.node.to_lowercase(), service.id.as_str()));
        }
        if !node.id.is_empty() {
            renamed.insert((node.id.as_str(), node.node.to_lowercase()));
        }
    }
    let is_moved = |change: &pb::EntityChange, operation: &Op| match operation {
        Op::Deregister(pb::Deregister { node, what: Some(pb::deregister::What::ServiceId(id)) }) => {
            let (name, of) = (node.to_lowercase(), node_id(change));
            registered.contains(&(name.clone(), id.as_str()))
                || renamed.iter().any(|(id, other)| *id == of && *other != name)
        }
        _ => false,
    };
    let kept = undone.iter().filter(|(change, operation)| !is_moved(change, operation));
    kept.map(|(_, operation)| pb::Operation { operation: Some(operation.clone()) }).collect()
}

/// The id of the node of the instance that `removal` removes; empty if the node has none.
fn node_id(removal: &pb::EntityChange) -> String {
    let instance = data(&removal.before).and_then(|data| pbservice::CheckServiceNode::decode(data).ok());
    instance.and_then(|instance| instance.node).map(|node| node.id).unwrap_or_default()
}

#[cfg(test)]
#[path = "undo_tests.rs"]
mod tests;
