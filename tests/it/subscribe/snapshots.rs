//! The messages of a snapshot: of names of services, and of a reused list after more changes than
//! are merged into it.

use std::collections::BTreeSet;

use headwater::pb::subscribe::Topic;
use headwater::types::catalog::{DeregistrationTarget, Service};
use headwater::types::consul::{CatalogVerb, TxnOp, TxnRow};
use headwater::types::limits::{
    CATALOG_NAME_BYTES_MAX, LISTING_MERGED_CHANGES_MAX, SUBSCRIBE_LIST_BYTES_MAX, TXN_OPS_MAX,
};

use super::client::{Delivery, Subscriber, ctx, deregister, health, reg, register, wildcard};
use crate::cluster::{Cluster, Settings};

/// Number of commits with `TXN_OPS_MAX` changes each: two more than can be merged into a list.
const COMMITS: usize = LISTING_MERGED_CHANGES_MAX / TXN_OPS_MAX + 2;

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_is_of_one_index_however_much_has_changed_since_it_was_kept() {
    let cluster = Cluster::three().await;
    let member = cluster.follower().await;
    register(&cluster, member, "n1", "first", "web").await;
    let mut names: BTreeSet<String> = BTreeSet::from(["n1/first".to_owned()]);
    // On a busy machine the snapshot may be too old to be reused.
    for attempt in 0.. {
        let mut keeper = Subscriber::open(&cluster, member, health("web")).await.unwrap();
        keeper.snapshot().await;
        for commit in 0..COMMITS {
            let ids = (0..TXN_OPS_MAX).map(|number| format!("{attempt}-{commit}-{number}"));
            let set = |id: String| {
                names.insert(format!("n1/{id}"));
                let service = Service { node: "n1".to_owned(), id, name: "web".to_owned(), ..Service::default() };
                TxnOp::Catalog(CatalogVerb::Set, TxnRow::Service(Box::new(service)))
            };
            cluster.node(member).consul().txn(&ctx(), ids.map(set).collect()).await.unwrap().value.unwrap();
        }
        let mut late = Subscriber::open(&cluster, member, health("web")).await.unwrap();
        let (mut found, mut indexes, mut has_changes) = (BTreeSet::new(), BTreeSet::new(), false);
        loop {
            let delivered = late.next().await;
            indexes.insert(delivered.index());
            match delivered {
                Delivery::Reg(_, name) => {
                    found.insert(name);
                }
                Delivery::Batch(_, changes) => {
                    has_changes = true;
                    let name = |change| if let Delivery::Reg(_, name) = change { name } else { panic!("{change:?}") };
                    found.extend(changes.into_iter().map(name));
                }
                Delivery::End(_) => break,
                other => panic!("{other:?} in a snapshot"),
            }
        }
        assert_eq!(indexes.len(), 1, "{indexes:?}");
        assert_eq!(found, names);
        let next = register(&cluster, member, "n1", &format!("next-{attempt}"), "web").await;
        names.insert(format!("n1/next-{attempt}"));
        let delivered = late.next().await;
        assert_eq!(delivered.index(), next);
        assert!(indexes.into_iter().all(|index| index < next));
        if has_changes {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn names_come_in_one_message() {
    let cluster = Cluster::start(Settings::alone()).await;
    let list = async || Subscriber::open(&cluster, 0, wildcard(Topic::ServiceList)).await.unwrap();
    // No name: the end alone. This stream stays open.
    let mut live = list().await;
    assert!(matches!(live.next().await, Delivery::End(_)));
    // One name: an event. The reused snapshot is brought up to date.
    let first = register(&cluster, 0, "n1", "a", "a").await;
    assert_eq!(live.next().await, reg(first, "a"));
    let mut one = list().await;
    let delivered = one.next().await;
    assert_eq!(delivered, reg(delivered.index(), "a"));
    assert_eq!(one.next().await, Delivery::End(delivered.index()));
    // Several names: a batch.
    register(&cluster, 0, "n1", "c", "c").await;
    register(&cluster, 0, "n1", "b", "b").await;
    deregister(&cluster, 0, "n1", DeregistrationTarget::Service("a".to_owned())).await;
    let mut several = list().await;
    let delivered = several.next().await;
    let index = delivered.index();
    assert_eq!(delivered, Delivery::Batch(index, vec![reg(index, "b"), reg(index, "c")]));
    assert_eq!(several.next().await, Delivery::End(index));
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_are_too_much_for_one_message_come_in_several() {
    let cluster = Cluster::start(Settings::alone()).await;
    register(&cluster, 0, "n1", "web", "web").await;
    let mut wanted = BTreeSet::from(["web".to_owned()]);
    let count = SUBSCRIBE_LIST_BYTES_MAX / CATALOG_NAME_BYTES_MAX;
    let ids: Vec<usize> = (0..count).collect();
    for ids in ids.chunks(TXN_OPS_MAX) {
        let set = |id: &usize| {
            let name = format!("{id:0>width$}", width = CATALOG_NAME_BYTES_MAX);
            wanted.insert(name.clone());
            let service = Service { node: "n1".to_owned(), id: id.to_string(), name, ..Service::default() };
            TxnOp::Catalog(CatalogVerb::Set, TxnRow::Service(Box::new(service)))
        };
        cluster.node(0).consul().txn(&ctx(), ids.iter().map(set).collect()).await.unwrap().value.unwrap();
    }
    let mut list = Subscriber::open(&cluster, 0, wildcard(Topic::ServiceList)).await.unwrap();
    let (mut found, mut messages, mut indexes) = (BTreeSet::new(), 0, BTreeSet::new());
    loop {
        let delivered = list.next().await;
        indexes.insert(delivered.index());
        let names = match delivered {
            Delivery::Batch(_, names) => names,
            Delivery::Reg(..) => vec![delivered],
            Delivery::End(_) => break,
            other => panic!("{other:?} in a snapshot"),
        };
        messages += 1;
        let name = |one| if let Delivery::Reg(_, name) = one { name } else { panic!("{one:?}") };
        found.extend(names.into_iter().map(name));
    }
    assert_eq!(indexes.len(), 1, "{indexes:?}");
    assert!(found == wanted, "{} of {}", found.len(), wanted.len());
    // The names alone have the limit's size: the encoding around them needs a second message.
    assert_eq!(messages, 2);
}
