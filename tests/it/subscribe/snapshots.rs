//! A snapshot that was kept, when more has changed since than is put into its list.

use std::collections::BTreeSet;

use headwater::types::catalog::Service;
use headwater::types::consul::{CatalogVerb, TxnOp, TxnRow};
use headwater::types::limits::{CATALOG_MERGED_CHANGES_MAX, TXN_OPS_MAX};

use super::client::{Subscriber, Told, ctx, health, register};
use crate::cluster::Cluster;

/// As many commits of as many changes as do not fit the list, and two more.
const COMMITS: usize = CATALOG_MERGED_CHANGES_MAX / TXN_OPS_MAX + 2;

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
