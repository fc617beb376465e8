//! Random writes, and materialized views that go on through reconnects and crashes: in the end
//! every view has the state of the cluster (spec: consul §3.5, watcher S40).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use headwater::client::{Endpoints, MaterializedView, ServiceHealth, ServiceList};
use headwater::pb::pbservice::CheckServiceNode;
use headwater::types::catalog::{Check, CheckStatus, Deregistration, DeregistrationTarget, Registration, Service};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::client::{ctx, name_of, on, read};
use crate::cluster::{Cluster, wait_until};

const SERVICES: [&str; 4] = ["web", "api", "db", "Cache"];

fn random_registration(random: &mut StdRng) -> Registration {
    let id = format!("i-{}", random.random_range(0..6));
    let service = Service {
        id: id.clone(),
        name: SERVICES[random.random_range(0..SERVICES.len())].to_owned(),
        port: random.random_range(1..4),
        ..Service::default()
    };
    let check = Check {
        id: format!("c-{id}"),
        service_id: id,
        status: CheckStatus::ALL[random.random_range(0..3)],
        ..Check::default()
    };
    let node_check =
        Check { id: "serf".to_owned(), status: CheckStatus::ALL[random.random_range(0..3)], ..Check::default() };
    let checks = if random.random_bool(0.2) { vec![check, node_check] } else { vec![check] };
    let node = format!("n-{}", random.random_range(0..4));
    Registration { service: Some(service), checks, ..on(&node) }
}

fn random_deregistration(random: &mut StdRng) -> Deregistration {
    let id = format!("i-{}", random.random_range(0..6));
    let what = match random.random_range(0..6) {
        0 => DeregistrationTarget::Node,
        1 => DeregistrationTarget::Check(format!("c-{id}")),
        _ => DeregistrationTarget::Service(id),
    };
    Deregistration { node: format!("n-{}", random.random_range(0..4)), what, guard: None }
}

/// The state of a view, in the form that [`read`] returns.
fn shown<'a>(instances: impl Iterator<Item = &'a Arc<CheckServiceNode>>) -> BTreeMap<String, Vec<String>> {
    instances.map(|it| (name_of(it), it.checks.iter().map(|check| check.status.clone()).collect())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn views_converge_through_crashes_and_reconnects() {
    let mut cluster = Cluster::three().await;
    let urls: Vec<String> = (0..3).map(|member| cluster.client_url(member)).collect();
    let endpoints = Endpoints::new(&urls).unwrap();
    let names = MaterializedView::start(ServiceList, endpoints.clone());
    let all = MaterializedView::start(ServiceHealth::of_all(), endpoints.clone());
    let mut views = Vec::new();
    for service in SERVICES {
        for _ in 0..4 {
            let view = MaterializedView::start(ServiceHealth::of(service), endpoints.clone());
            // Indexes of one lineage never go back, through all crashes of members.
            let watched = view.clone();
            let watching = tokio::spawn(async move {
                let mut last = 0;
                loop {
                    if let Ok(shown) = watched.query(last, Duration::from_secs(1)).await {
                        assert!(shown.index >= last, "{} after {last}", shown.index);
                        last = shown.index;
                    }
                }
            });
            views.push((service, view, watching));
        }
    }
    for round in 0..3 {
        let writers = (0..3).filter(|member| cluster.running().any(|running| running == *member)).map(|member| {
            let node = cluster.node(member).clone();
            tokio::spawn(async move {
                let mut random = StdRng::seed_from_u64(round * 10 + member as u64);
                for _ in 0..80 {
                    // A write without an answer may have been carried out; the final state shows
                    // it.
                    if random.random_bool(0.7) {
                        drop(node.catalog().register(&ctx(), random_registration(&mut random)).await);
                    } else {
                        drop(node.catalog().deregister(&ctx(), random_deregistration(&mut random)).await);
                    }
                }
            })
        });
        let writers: Vec<_> = writers.collect();
        for writer in writers {
            writer.await.unwrap();
        }
        // First the leader, then a follower.
        let gone = if round == 0 { cluster.leader().await } else { cluster.follower().await };
        cluster.crash(gone).await;
        cluster.leader().await;
        let survivor = cluster.running().next().unwrap();
        let mut random = StdRng::seed_from_u64(100 + round);
        for _ in 0..20 {
            drop(cluster.node(survivor).catalog().register(&ctx(), random_registration(&mut random)).await);
        }
        cluster.restart(gone).await;
        cluster.wait_healthy().await;
    }
    let member = cluster.leader().await;
    for (service, view, watching) in &views {
        let wanted = read(&cluster, member, service).await;
        wait_until(&format!("the view of {service} shows what is there"), async || {
            view.latest().is_some_and(|view| shown(view.state.instances()) == wanted)
        })
        .await;
        assert!(!watching.is_finished(), "an index went back");
        watching.abort();
    }
    let mut everything = BTreeMap::new();
    for service in SERVICES {
        everything.extend(read(&cluster, member, service).await);
    }
    wait_until("the view of everything shows it", async || {
        all.latest().is_some_and(|view| shown(view.state.instances()) == everything)
    })
    .await;
    let wanted = cluster.node(member).catalog().service_names(&ctx(), Default::default()).await.unwrap().value.value;
    let wanted: std::collections::BTreeSet<String> = wanted.into_iter().map(|it| it.name).collect();
    wait_until("the list of names is right", async || names.latest().is_some_and(|view| *view.state == wanted)).await;
}
