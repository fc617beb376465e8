//! Events from history equal the published ones.

use super::*;
use crate::tests::bed::compact;

/// Events that catch-up reads, from the first command or the compaction point on.
pub(super) fn recorded(store: &Store) -> Vec<(LogIndex, Arc<[CatalogEvent]>)> {
    store.view(|view| {
        let from = view.head().compacted_index();
        let mut found = Vec::new();
        view.history(from, |command| {
            let events = view.catalog_events(&command).unwrap();
            if !events.is_empty() {
                found.push((command.index, events));
            }
            true
        })
        .unwrap();
        found
    })
}

/// Checks that history gives the published events, from cached rows and from those on disk.
pub(super) fn assert_replays(store: Store, name: &str) -> Store {
    let delivered: Vec<_> = store.delivered.iter().filter(|(_, events)| !events.is_empty()).cloned().collect();
    assert_eq!(recorded(&store), delivered, "{name}");
    let store = store.reopened();
    assert_eq!(recorded(&store), delivered, "{name}, from disk");
    store
}

#[test]
fn events_are_read_again_as_they_were_published() {
    let mut store = Store::new();
    store.register(on("n1", typical("web"))).unwrap();
    store.register(checks("n1", [check("alive", ""), check("ping", "web")])).unwrap();
    store.register(on("n1", Service { port: 80, ..typical("web") })).unwrap();
    store.register(checks("n1", [Check { output: "slow".to_owned(), ..check("ping", "web") }])).unwrap();
    store.deregister("n1", DeregistrationTarget::Node).unwrap();
    let store = assert_replays(store, "a life");
    let events = recorded(&store);
    let CatalogBody::Instance(instance) = &events[1].1[0].body else { panic!("{events:?}") };
    assert_eq!((instance.service.port, instance.checks[1].output.as_str()), (0, ""), "as of the command");
}

#[test]
fn events_outlive_what_is_compacted_before_them() {
    let mut store = Store::new();
    store.register(on("n1", typical("web"))).unwrap();
    store.register(on("n1", Service { port: 80, ..typical("web") })).unwrap();
    // The compaction point is a revision of the KV face: commands about the catalog have none.
    store.bed.apply(crate::tests::bed::put("k", "v"));
    store.bed.apply(compact(2));
    let point = store.view(|view| view.head().compacted_index());
    assert_eq!(point, LogIndex(3));
    store.register(checks("n1", [check("alive", "")])).unwrap();
    store.deregister("n1", DeregistrationTarget::Service("web".to_owned())).unwrap();
    let before = recorded(&store);
    assert_eq!(before.len(), 2);
    store.bed.reclaim(1);
    assert_eq!(recorded(&store), before);
    let delivered: Vec<_> =
        store.delivered.iter().filter(|(index, events)| *index > point && !events.is_empty()).cloned().collect();
    assert_eq!(before, delivered);
}
