//! `headwater diff`: the entities that differ between two points of the history.
//!
//! The changes between both points are folded: an entity's state before its first change is
//! compared with its state after the last one. The cost grows with the changes, not with the store.

use std::collections::BTreeMap;
use std::io::Write;

use prost::Message;
use serde_json::json;

use super::json::written_changes;
use super::point::{When, parse_when};
use super::refusal::{interval_error, stream_error};
use super::render::{Style, data_of, lines, print_change};
use super::{WHEN_HELP, recursive, store};
use crate::ClientArgs;
use crate::connect::Cluster;
use crate::entity::{Types, name};
use crate::error::CliError;
use crate::output::{WriteOut, print_json};
use headwater_proto::pb::headwater_v1 as pb;
use headwater_proto::pb::headwater_v1::entity_change::Kind;
use headwater_proto::pb::{mvccpb, pbservice};

/// Print the differences between two points of the history
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = WHEN_HELP)]
pub(crate) struct DiffArgs {
    /// Path to compare, with everything below it; all of the store without it
    target: Option<String>,
    /// The old point, such as 10m
    #[arg(long, value_name = "WHEN", value_parser = parse_when)]
    from: When,
    /// The new point
    #[arg(long, value_name = "WHEN", default_value = "now", value_parser = parse_when)]
    to: When,
}

pub(crate) async fn run(args: DiffArgs, cluster: &Cluster, client: &ClientArgs) -> Result<(), CliError> {
    if args.from == When::Now {
        return Err(CliError::Usage("--from now: there is nothing after now".to_owned()));
    }
    let request = pb::HistoryRequest {
        targets: vec![recursive(args.target.as_deref())],
        from: args.from.point(),
        to: args.to.point(),
        ..Default::default()
    };
    let found = differences(request, cluster).await.map_err(|error| interval_error(error, "--from", "--to"))?;
    let Differences { changes, types, reached, epoch } = found;
    let style = Style::of_stdout(true);
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    match client.write_out {
        WriteOut::Json => {
            let changes = written_changes(&changes, &types);
            print_json(&mut out, &json!({"index": reached, "epoch": epoch, "changes": changes}))?;
        }
        WriteOut::Simple | WriteOut::Table => {
            for change in &changes {
                print_change(&mut out, change, &types, style)?;
            }
        }
    }
    Ok(out.flush()?)
}

/// The entities that differ between two points.
pub(super) struct Differences {
    /// One change for each entity that differs, in the order of their paths.
    pub(super) changes: Vec<pb::EntityChange>,
    /// The types of the resources in `changes`.
    pub(super) types: Types,
    /// The log index up to which the changes are known.
    pub(super) reached: u64,
    /// The lineage of `reached`, as the server writes its epoch.
    pub(super) epoch: String,
}

/// Reads the changes between the points of `request`, and folds them into one change for each
/// entity.
pub(super) async fn differences(request: pb::HistoryRequest, cluster: &Cluster) -> Result<Differences, CliError> {
    let mut history = store(cluster).history(request);
    let (mut types, mut folded, mut reached, mut epoch) = (Types::new(), BTreeMap::new(), 0, String::new());
    while let Some(message) = history.next().await.map_err(stream_error)? {
        types.learn(message.commands.iter().flat_map(data_of), cluster).await;
        (reached, epoch) = (message.reached, message.epoch);
        for change in message.commands.into_iter().flat_map(|command| command.changes) {
            fold(&mut folded, change);
        }
    }
    let changes = folded.into_values().filter_map(|change| settle(change, &types)).collect();
    Ok(Differences { changes, types, reached, epoch })
}

/// Merges `change` with the earlier change of its entity: the earlier state before stays, the later
/// state after takes its place.
fn fold(folded: &mut BTreeMap<String, pb::EntityChange>, change: pb::EntityChange) {
    match folded.get_mut(&change.path) {
        Some(earlier) => (earlier.after, earlier.expired) = (change.after, change.expired),
        None => {
            folded.insert(change.path.clone(), change);
        }
    }
}

/// Sets the kind of a folded change by its two states. `None` if both are the same to people, or
/// there is neither.
fn settle(change: pb::EntityChange, types: &Types) -> Option<pb::EntityChange> {
    let kind = match (&change.before, &change.after) {
        (None, None) => return None,
        (None, Some(_)) => Kind::Created,
        (Some(_), None) => Kind::Removed,
        (Some(before), Some(after)) if is_same(before, after, types) => return None,
        (Some(_), Some(_)) => Kind::Updated,
    };
    Some(pb::EntityChange { kind: kind.into(), ..change })
}

/// Whether both states are the same to people: keys by their values, nodes and instances but for
/// their log indexes, others by their lines.
fn is_same(before: &pb::Entity, after: &pb::Entity, types: &Types) -> bool {
    let value = |entity: &pb::Entity| {
        let data = entity.data.as_ref().filter(|data| name(data) == "mvccpb.KeyValue")?;
        mvccpb::KeyValue::decode(&data.value[..]).ok().map(|kv| kv.value)
    };
    if let (Some(before), Some(after)) = (value(before), value(after)) {
        return before == after;
    }
    match (before.data.as_ref().and_then(without_indexes), after.data.as_ref().and_then(without_indexes)) {
        (Some(before), Some(after)) => before == after,
        _ => lines(before, types) == lines(after, types),
    }
}

/// A node, or an instance, without the log indexes of its rows. `None` for other entities.
fn without_indexes(data: &prost_types::Any) -> Option<pbservice::CheckServiceNode> {
    let whole = match name(data) {
        "hashicorp.consul.internal.service.Node" => {
            let node = Some(pbservice::Node::decode(&data.value[..]).ok()?);
            pbservice::CheckServiceNode { node, ..Default::default() }
        }
        "hashicorp.consul.internal.service.CheckServiceNode" => {
            pbservice::CheckServiceNode::decode(&data.value[..]).ok()?
        }
        _ => return None,
    };
    Some(pbservice::CheckServiceNode {
        node: whole.node.map(|node| pbservice::Node { raft_index: None, ..node }),
        service: whole.service.map(|service| pbservice::NodeService { raft_index: None, ..service }),
        checks: whole.checks.into_iter().map(|check| pbservice::HealthCheck { raft_index: None, ..check }).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_proto::pb::pbcommon;

    fn key(value: &str) -> Option<pb::Entity> {
        let kv = mvccpb::KeyValue { value: value.to_owned().into(), ..Default::default() };
        let type_url = "type.googleapis.com/mvccpb.KeyValue".to_owned();
        let data = Some(prost_types::Any { type_url, value: kv.encode_to_vec() });
        Some(pb::Entity { path: "/kv/a".to_owned(), data, index: 7 })
    }

    fn instance(index: u64, meta: &str) -> Option<pb::Entity> {
        let raft_index = Some(pbcommon::RaftIndex { create_index: 1, modify_index: index });
        let meta = [(meta.to_owned(), String::new())].into();
        let service = Some(pbservice::NodeService { meta, raft_index, ..Default::default() });
        let found = pbservice::CheckServiceNode { service, ..Default::default() };
        let type_url = "type.googleapis.com/hashicorp.consul.internal.service.CheckServiceNode".to_owned();
        let data = Some(prost_types::Any { type_url, value: found.encode_to_vec() });
        Some(pb::Entity { path: "/services/w/n/w".to_owned(), data, index })
    }

    #[test]
    fn log_indexes_of_an_instance_do_not_count_and_its_meta_does() {
        let types = Types::new();
        let is_same = |a: Option<pb::Entity>, b: Option<pb::Entity>| is_same(&a.unwrap(), &b.unwrap(), &types);
        assert!(is_same(instance(5, "RaftIndex"), instance(9, "RaftIndex")));
        assert!(!is_same(instance(5, "RaftIndex"), instance(5, "other")));
    }

    #[test]
    fn only_the_first_state_and_the_last_one_count() {
        let types = Types::new();
        let kind = |steps: &[(Option<pb::Entity>, Option<pb::Entity>)]| {
            let mut folded = BTreeMap::new();
            for (before, after) in steps.iter().cloned() {
                fold(&mut folded, pb::EntityChange { path: "/kv/a".to_owned(), before, after, ..Default::default() });
            }
            folded.into_values().next().and_then(|change| settle(change, &types)).map(|change| change.kind())
        };
        assert_eq!(kind(&[(None, key("1")), (key("1"), key("2"))]), Some(Kind::Created));
        assert_eq!(kind(&[(key("1"), key("2")), (key("2"), None)]), Some(Kind::Removed));
        assert_eq!(kind(&[(key("1"), key("2")), (key("2"), key("3"))]), Some(Kind::Updated));
        assert_eq!(kind(&[(key("1"), key("2")), (key("2"), key("1"))]), None);
        assert_eq!(kind(&[(None, key("1")), (key("1"), None)]), None);
        // The lines are the same, the bytes are not.
        for (before, after) in [("1", "1\n"), ("{}", "{ }")] {
            assert_eq!(kind(&[(key(before), key(after))]), Some(Kind::Updated), "{after:?}");
        }
    }
}
