//! The events of a commit, made of the changes of its commands.
//!
//! Invariant: commands in the order of the log, each with its changes in the order of writing.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::overlay::{Change, EventValue};
use headwater_types::catalog::CatalogEvent;
use headwater_types::{ClusterEvent, CommandEvents, KvEvent, LogIndex, ResourceEvent};

/// The events of each command, in the order of the log. A command is included if it has a change,
/// or an event of the catalog or of the cluster. `changes` are in the order of the log.
pub(super) fn command_events(
    changes: Vec<Change>,
    catalog: BTreeMap<LogIndex, Arc<[CatalogEvent]>>,
    cluster: BTreeMap<LogIndex, Vec<ClusterEvent>>,
) -> Vec<CommandEvents> {
    let mut commands = Vec::with_capacity(changes.len());
    let mut changes = changes.into_iter().peekable();
    let (mut keys, mut resources) = (Vec::new(), Vec::new());
    while let Some(first) = changes.next() {
        // A command that changed only rows gets its `CommandEvents`, too, even without an event.
        let index = first.index;
        let mut next = Some(first);
        while let Some(Change { kind, kv, event_value, .. }) = next {
            match event_value {
                EventValue::Resource(resource) => resources.push(ResourceEvent { kind, resource }),
                EventValue::Value => keys.push(KvEvent { kind, kv }),
                EventValue::Row => {}
            }
            next = changes.next_if(|change| change.index == index);
        }
        let revision = keys.last().map(|event: &KvEvent| event.kv.mod_revision);
        let (kv, resources) = (shared(&mut keys), shared(&mut resources));
        commands.push(CommandEvents { index, revision, kv, resources, ..of_nothing(index) });
    }
    for (index, events) in catalog {
        at(&mut commands, index).catalog = events;
    }
    for (index, events) in cluster {
        at(&mut commands, index).cluster = events.into();
    }
    commands
}

/// Moves `events` into shared memory of exactly their size. Most commands have one event, of one
/// topic, so this is kept cheap: nothing is allocated if there are none.
fn shared<E>(events: &mut Vec<E>) -> Arc<[E]> {
    match events.len() {
        0 => Arc::default(),
        _ => events.drain(..).collect(),
    }
}

fn of_nothing(index: LogIndex) -> CommandEvents {
    let (kv, resources, catalog, cluster) = (Arc::default(), Arc::default(), Arc::default(), Arc::default());
    CommandEvents { index, revision: None, kv, resources, catalog, cluster }
}

/// The events of the command at `index`, which are added if there are none yet.
fn at(commands: &mut Vec<CommandEvents>, index: LogIndex) -> &mut CommandEvents {
    let place = match commands.binary_search_by_key(&index, |command| command.index) {
        Ok(place) => place,
        Err(place) => {
            commands.insert(place, of_nothing(index));
            place
        }
    };
    &mut commands[place]
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
