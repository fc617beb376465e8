//! The messages of a snapshot: of names, and of one that was kept when more has changed since than
//! is put into its list.

use std::collections::BTreeSet;

use headwater::pb::subscribe::Topic;
use headwater::types::catalog::{Deregistered, Service};
use headwater::types::consul::{CatalogVerb, TxnOp, TxnRow};
use headwater::types::limits::{
    CATALOG_NAME_BYTES_MAX, LISTING_MERGED_CHANGES_MAX, SUBSCRIBE_LIST_BYTES_MAX, TXN_OPS_MAX,
};

use super::client::{Subscriber, Told, ctx, deregister, health, reg, register, wildcard};
use crate::cluster::{Cluster, Settings};

/// As many commits of as many changes as do not fit the list, and two more.
const COMMITS: usize = LISTING_MERGED_CHANGES_MAX / TXN_OPS_MAX + 2;

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_is_of_one_index_however_much_has_changed_since_it_was_kept() {
    let cluster = Cluster::three().await;
    let member = cluster.follower().await;
    register(&cluster, member, "n1", "first", "web").await;
    let mut names: BTreeSet<String> = BTreeSet::from(["n1/first".to_owned()]);
    // On a busy machine the snapshot may be too old by the time it is wanted.
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
            cluster.node(member).consul_txn(&ctx(), ids.map(set).collect()).await.unwrap().value.unwrap();
        }
        let mut late = Subscriber::open(&cluster, member, health("web")).await.unwrap();
        let (mut found, mut indexes, mut has_changes) = (BTreeSet::new(), BTreeSet::new(), false);
        loop {
            let told = late.next().await;
            indexes.insert(told.index());
            match told {
                Told::Reg(_, name) => {
                    found.insert(name);
                }
                Told::Batch(_, changes) => {
                    has_changes = true;
                    let name = |change| if let Told::Reg(_, name) = change { name } else { panic!("{change:?}") };
                    found.extend(changes.into_iter().map(name));
                }
                Told::End(_) => break,
                other => panic!("{other:?} in a snapshot"),
            }
        }
        assert_eq!(indexes.len(), 1, "{indexes:?}");
        assert_eq!(found, names);
        let next = register(&cluster, member, "n1", &format!("next-{attempt}"), "web").await;
        names.insert(format!("n1/next-{attempt}"));
        let told = late.next().await;
        assert_eq!(told.index(), next);
        assert!(indexes.into_iter().all(|index| index < next));
        if has_changes {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn names_come_in_one_message() {
    let cluster = Cluster::start(Settings { members: 1, ..Settings::default() }).await;
    let list = async || Subscriber::open(&cluster, 0, wildcard(Topic::ServiceList)).await.unwrap();
    // None: the end alone. This stream goes on meanwhile.
    let mut live = list().await;
    assert!(matches!(live.next().await, Told::End(_)));
    // One: an event. The snapshot that was kept is brought up to date.
    let first = register(&cluster, 0, "n1", "a", "a").await;
    assert_eq!(live.next().await, reg(first, "a"));
    let mut one = list().await;
    let told = one.next().await;
    assert_eq!(told, reg(told.index(), "a"));
    assert_eq!(one.next().await, Told::End(told.index()));
    // Several: a batch.
    register(&cluster, 0, "n1", "c", "c").await;
    register(&cluster, 0, "n1", "b", "b").await;
    deregister(&cluster, 0, "n1", Deregistered::Service("a".to_owned())).await;
    let mut several = list().await;
    let told = several.next().await;
    let index = told.index();
    assert_eq!(told, Told::Batch(index, vec![reg(index, "b"), reg(index, "c")]));
    assert_eq!(several.next().await, Told::End(index));
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_are_too_much_for_one_message_come_in_several() {
    let cluster = Cluster::start(Settings { members: 1, ..Settings::default() }).await;
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
        cluster.node(0).consul_txn(&ctx(), ids.iter().map(set).collect()).await.unwrap().value.unwrap();
    }
    let mut list = Subscriber::open(&cluster, 0, wildcard(Topic::ServiceList)).await.unwrap();
    let (mut found, mut messages, mut indexes) = (BTreeSet::new(), 0, BTreeSet::new());
    loop {
        let told = list.next().await;
        indexes.insert(told.index());
        let names = match told {
            Told::Batch(_, names) => names,
            Told::Reg(..) => vec![told],
            Told::End(_) => break,
            other => panic!("{other:?} in a snapshot"),
        };
        messages += 1;
        let name = |one| if let Told::Reg(_, name) = one { name } else { panic!("{one:?}") };
        found.extend(names.into_iter().map(name));
    }
    assert_eq!(indexes.len(), 1, "{indexes:?}");
    assert!(found == wanted, "{} of {}", found.len(), wanted.len());
    // Names alone are that large: what is around them makes it one more.
    assert_eq!(messages, 2);
}
