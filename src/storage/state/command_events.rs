//! The events of a commit, made of the changes of its commands.
//!
//! Invariant: commands in the order of the log, each with its changes in the order of writing.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::overlay::{Change, EventValue};
use headwater_types::catalog::CatalogEvent;
use headwater_types::{ClusterEvent, CommandEvents, KvEvent, LogIndex, ResourceEvent};

/// The events of each command, in the order of the log. A command is included if it has a change,
/// or an event of the catalog or of the cluster.
pub(super) fn command_events(
    changes: Vec<Change>,
    catalog: BTreeMap<LogIndex, Arc<[CatalogEvent]>>,
    cluster: BTreeMap<LogIndex, Vec<ClusterEvent>>,
) -> Vec<CommandEvents> {
    let mut commits: BTreeMap<LogIndex, Parts> = BTreeMap::new();
    for Change { index, kind, kv, event_value, .. } in changes {
        // A command that changed only rows gets its `CommandEvents`, too, even without an event.
        let parts = commits.entry(index).or_default();
        match event_value {
            EventValue::Resource(resource) => parts.resources.push(ResourceEvent { kind, resource }),
            EventValue::Value => parts.keys.push(KvEvent { kind, kv }),
            EventValue::Row => {}
        }
    }
    for (index, events) in catalog {
        commits.entry(index).or_default().catalog = events;
    }
    for (index, events) in cluster {
        commits.entry(index).or_default().cluster = events;
    }
    let whole = |(index, parts): (LogIndex, Parts)| CommandEvents {
        index,
        revision: parts.keys.last().map(|event| event.kv.mod_revision),
        kv: parts.keys.into(),
        resources: parts.resources.into(),
        catalog: parts.catalog,
        cluster: parts.cluster.into(),
    };
    commits.into_iter().map(whole).collect()
}

/// The events of one command.
#[derive(Default)]
struct Parts {
    keys: Vec<KvEvent>,
    resources: Vec<ResourceEvent>,
    catalog: Arc<[CatalogEvent]>,
    cluster: Vec<ClusterEvent>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_types::catalog::{CatalogBody, CatalogOp, CatalogTable, CatalogTopic};
    use headwater_types::{ChangeKind, KeyValue, LeaseId, Revision};

    use super::super::keys::Table;

    #[test]
    fn commands_without_a_changed_row_keep_their_events() {
        let kv = KeyValue { key: "a".into(), mod_revision: Revision(9), ..KeyValue::default() };
        let change = |index, event_value| Change {
            index: LogIndex(index),
            position: 0,
            table: Table::Kv,
            kind: ChangeKind::Put,
            kv: kv.clone(),
            event_value,
        };
        let event = CatalogEvent {
            topic: CatalogTopic::Table,
            op: CatalogOp::Register,
            key: "".into(),
            body: CatalogBody::Table(CatalogTable::Nodes),
        };
        let ended = ClusterEvent::LeaseEnded(LeaseId(5));
        let commits = command_events(
            vec![change(4, EventValue::Value), change(4, EventValue::Row), change(6, EventValue::Row)],
            BTreeMap::from([(LogIndex(3), [event.clone()].into()), (LogIndex(6), [event.clone()].into())]),
            BTreeMap::from([(LogIndex(4), vec![ended.clone()]), (LogIndex(5), vec![ended])]),
        );
        let seen: Vec<_> = commits
            .iter()
            .map(|commit| {
                (commit.index.get(), commit.revision, commit.kv.len(), commit.catalog.len(), commit.cluster.len())
            })
            .collect();
        let revision = Some(Revision(9));
        assert_eq!(seen, [(3, None, 0, 1, 0), (4, revision, 1, 0, 1), (5, None, 0, 0, 1), (6, None, 0, 1, 0)]);
    }
}
