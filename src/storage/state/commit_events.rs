//! The events of a commit, made of the changes of its commands.
//!
//! Invariant: commands in the order of the log, each with its changes in the order of writing.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::overlay::{Change, EventValue};
use headwater_types::catalog::CatalogEvent;
use headwater_types::{ClusterEvent, CommitEvents, KvEvent, LogIndex, ResourceEvent};

/// Groups changes by command. Catalog events come with the rows that a command changed. A command
/// may have events of the cluster alone.
pub(super) fn commit_events(
    changes: Vec<Change>,
    mut catalog: BTreeMap<LogIndex, Arc<[CatalogEvent]>>,
    mut cluster: BTreeMap<LogIndex, Vec<ClusterEvent>>,
) -> Vec<CommitEvents> {
    let mut events = Vec::new();
    let mut changes = changes.into_iter().peekable();
    let (mut keys, mut resources): (Vec<KvEvent>, Vec<ResourceEvent>) = Default::default();
    while let Some(Change { index, kind, kv, event_value, .. }) = changes.next() {
        match event_value {
            EventValue::Resource(resource) => resources.push(ResourceEvent { kind, resource }),
            EventValue::Value => keys.push(KvEvent { kind, kv }),
            EventValue::Row => {}
        }
        if changes.peek().is_none_or(|next| next.index != index) {
            let revision = keys.last().map(|event| event.kv.mod_revision);
            let (kv, resources) = (keys.drain(..).collect(), resources.drain(..).collect());
            let catalog = catalog.remove(&index).unwrap_or_default();
            let cluster = cluster.remove(&index).unwrap_or_default().into();
            events.push(CommitEvents { index, revision, kv, resources, catalog, cluster });
        }
    }
    if !cluster.is_empty() {
        let alone = |(index, cluster): (_, Vec<_>)| CommitEvents {
            index,
            revision: None,
            kv: [].into(),
            resources: [].into(),
            catalog: [].into(),
            cluster: cluster.into(),
        };
        events.extend(cluster.into_iter().map(alone));
        events.sort_unstable_by_key(|commit| commit.index);
    }
    events
}
