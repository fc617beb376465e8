//! The node's function below blocking queries: it waits for a change of a subject after an index.

use std::time::{Duration, Instant};

use headwater::node::{CatalogSubject, Consistency};
use headwater::types::LogIndex;
use headwater::types::catalog::{CatalogTable, CheckStatus};

use super::client::{check, ctx, register};
use crate::cluster::{Cluster, within};

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_ends_with_a_change_of_its_subjects_and_of_no_other() {
    let cluster = Cluster::three().await;
    let (reader, writer) = (cluster.follower().await, cluster.leader().await);
    register(&cluster, writer, "n1", "web-1", "web").await;
    register(&cluster, writer, "n1", "db-1", "db").await;
    let node = cluster.node(reader);
    let seen = async || {
        let read = node.catalog().instances(&ctx(), Consistency::Linearizable, "web".to_owned()).await.unwrap();
        (read.index, read.value.index)
    };
    let soon = || Instant::now() + Duration::from_millis(200);
    let (index, query_index) = seen().await;
    let web = [CatalogSubject::service("WEB")];
    assert!(!node.follow().wait_for_catalog(&web, index, soon()).await.unwrap(), "nothing happens");
    register(&cluster, writer, "n2", "db-2", "db").await;
    assert!(!node.follow().wait_for_catalog(&web, index, soon()).await.unwrap(), "nothing happens to it");
    // A change between the read and the wait ends the wait at once, like one during it.
    let far = Instant::now() + Duration::from_secs(600);
    let changed = check(&cluster, writer, "n1", "web-1", CheckStatus::Passing).await;
    assert!(within("what has happened", node.follow().wait_for_catalog(&web, index, far)).await.unwrap());
    let (_, moved) = seen().await;
    assert!(moved > query_index && moved == LogIndex(changed), "{moved} after {query_index}");
    let before = node.follow().catalog_stats().subscriptions;
    let wishes = [
        (vec![CatalogSubject::service("web"), CatalogSubject::service("db")], true),
        (vec![CatalogSubject::EveryService], true),
        (vec![CatalogSubject::node("N1")], true),
        (vec![CatalogSubject::Table(CatalogTable::Checks)], true),
        (vec![CatalogSubject::Table(CatalogTable::Config), CatalogSubject::ServiceList], false),
        (vec![CatalogSubject::connect("web"), CatalogSubject::node("n2")], false),
    ];
    for (turn, (subjects, is_wanted)) in wishes.into_iter().enumerate() {
        let (index, _) = seen().await;
        let status = [CheckStatus::Warning, CheckStatus::Critical][turn % 2];
        let until = if is_wanted { far } else { soon() };
        let (woken, _) = tokio::join!(
            within("a change", node.follow().wait_for_catalog(&subjects, index, until)),
            check(&cluster, writer, "n1", "web-1", status)
        );
        assert_eq!(woken.unwrap(), is_wanted, "{subjects:?}");
    }
    assert_eq!(node.follow().catalog_stats().subscriptions, before, "a wait that is over leaves nothing behind");
}
