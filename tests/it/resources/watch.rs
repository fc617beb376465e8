//! Watches (spec: consul §5.13): the first list, the order of changes, resuming, many watches.

use std::collections::BTreeMap;
use std::time::Duration;

use headwater::pb::pbresource as pb;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tonic::Code;

use super::client::{
    Client, Delivery, Done, Scope, artist, artist_type, artist_v1_type, executive_type, id_of, label_type, name_of,
    named, names_of, refused, type_of,
};
use crate::cluster::{Cluster, Settings};

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_sees_what_it_asked_for() {
    let cluster = Cluster::three().await;
    let client = Client::of(&cluster, cluster.follower().await);
    client.register_demo().await;
    let mut v1 = client.watch(artist_v1_type(), None, "").await.unwrap();
    let mut all = client.watch(artist_type(), None, "").await.unwrap();
    let mut labels = client.watch(label_type(), Some(("", "")), "").await.unwrap();
    let mut executives = client.watch(executive_type(), None, "").await.unwrap();
    for watch in [&mut v1, &mut all, &mut labels, &mut executives] {
        assert_eq!(watch.next().await, Delivery::End);
    }
    let stored = client.write(artist("a")).await.unwrap();
    assert_eq!(all.next().await, Delivery::Upsert(stored.clone()));
    // A write without a change is an event, and so is a status.
    let again = client.write(artist("a")).await.unwrap();
    assert_eq!(all.next().await, Delivery::Upsert(again.clone()));
    let status = pb::WriteStatusRequest {
        id: stored.id.clone(),
        key: "k".into(),
        status: Some(pb::Status { observed_generation: again.generation.clone(), ..Default::default() }),
        ..Default::default()
    };
    let reported = client.write_status(status).await.unwrap();
    assert_eq!(all.next().await, Delivery::Upsert(reported.clone()));
    client.delete(id_of(&stored)).await.unwrap();
    assert_eq!(all.next().await, Delivery::Delete(reported));
    let label = client.write(named(label_type(), ("", ""), "label")).await.unwrap();
    assert_eq!(labels.next().await, Delivery::Upsert(label));
    let executive = client.write(named(executive_type(), ("", ""), "executive")).await.unwrap();
    assert_eq!(executives.next().await, Delivery::Upsert(executive));
    // The watch of the other version got no event so far: this is its first.
    let mut as_v1 = named(artist_v1_type(), ("", ""), "b");
    as_v1.data = None;
    let as_v1 = client.write(as_v1).await.unwrap();
    assert_eq!(v1.next().await, Delivery::Upsert(as_v1));
    let unknown: Done<_> = client.watch(type_of("demo", "v9", "Artist"), None, "").await.map(|_| ());
    refused(unknown, Code::InvalidArgument, "not registered");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_that_is_shared_is_still_the_newest() {
    let cluster = Cluster::start(Settings::alone()).await;
    let client = Client::of(&cluster, 0);
    let type_ = type_of("demo", "v1", "Thing");
    client.register(&type_, Scope::Namespace).await;
    let thing = |name: &str| named(type_.clone(), ("", ""), name);
    for name in ["a", "b", "c"] {
        client.write(thing(name)).await.unwrap();
    }
    let (listed, first) = client.watch(type_.clone(), None, "").await.unwrap().list().await;
    assert_eq!(names_of(&listed), ["a", "b", "c"]);
    // The snapshot is reused, with later changes merged into it.
    let changed = client.write(thing("b")).await.unwrap();
    client.delete(id_of(&client.write(thing("c")).await.unwrap())).await.unwrap();
    let new = client.write(thing("d")).await.unwrap();
    let mut watch = client.watch(type_.clone(), None, "").await.unwrap();
    let (listed, second) = watch.list().await;
    assert_eq!(names_of(&listed), ["a", "b", "d"]);
    assert!(listed.contains(&changed) && listed.contains(&new) && second > first);
    let later = client.write(thing("e")).await.unwrap();
    assert_eq!(
        watch.next_with_index().await.unwrap(),
        (Delivery::Upsert(later.clone()), later.version.parse().unwrap())
    );
    // With more changes than are merged into a list, the rest comes before its end, with the same
    // result.
    for number in 0..1100 {
        client.write(thing(&format!("many-{number}"))).await.unwrap();
    }
    let mut watch = client.watch(type_.clone(), None, "").await.unwrap();
    let mut seen = BTreeMap::new();
    loop {
        match watch.next().await {
            Delivery::Upsert(resource) => seen.insert(name_of(&resource).to_owned(), resource),
            Delivery::Delete(resource) => seen.remove(name_of(&resource)),
            Delivery::End => break,
        };
    }
    let listed = client.list(type_, ("", ""), "").await.unwrap();
    assert_eq!(seen.into_values().collect::<Vec<_>>(), listed);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_goes_on_where_another_ended() {
    let settings = Settings { request_timeout: Duration::from_secs(7), ..Settings::default() };
    let mut cluster = Cluster::start(settings).await;
    let leader = cluster.leader().await;
    let follower = cluster.follower().await;
    let client = Client::of(&cluster, leader);
    let type_ = type_of("demo", "v1", "Thing");
    client.register(&type_, Scope::Namespace).await;
    let (_, start) = client.watch(type_.clone(), None, "").await.unwrap().list().await;
    let mut written = Vec::new();
    for number in 0..50 {
        written.push(client.write(named(type_.clone(), ("", ""), &format!("t-{}", number % 7))).await.unwrap());
    }
    let check = async |cluster: &Cluster, index: usize| {
        for from in [0, 1, 25, 49] {
            let after = if from == 0 { start } else { written[from - 1].version.parse().unwrap() };
            let resuming = Client::of(cluster, index).with("headwater-resume-index", after.to_string());
            let mut watch = resuming.watch(type_.clone(), None, "").await.unwrap();
            assert_eq!(watch.next_with_index().await.unwrap(), (Delivery::End, after), "no list");
            for resource in &written[from..] {
                let index = resource.version.parse().unwrap();
                assert_eq!(watch.next_with_index().await.unwrap(), (Delivery::Upsert(resource.clone()), index));
            }
        }
    };
    check(&cluster, leader).await;
    check(&cluster, follower).await;
    cluster.crash(follower).await;
    cluster.restart(follower).await;
    cluster.wait_healthy().await;
    check(&cluster, follower).await;
    // The member waits for an index that it has not reached, as long as the request may take.
    let ahead = Client::of(&cluster, follower).with("headwater-resume-index", "99999999");
    let ahead = ahead.watch(type_.clone(), None, "").await;
    assert_eq!(ahead.err().map(|status| status.code()), Some(Code::Unavailable));
    // An index of another lineage is refused at once, however high it is.
    for index in ["1", "99999999"] {
        let other = Client::of(&cluster, follower).with("headwater-resume-index", index).with("headwater-epoch", "1");
        assert_eq!(
            other.watch(type_.clone(), None, "").await.err().map(|status| status.code()),
            Some(Code::OutOfRange)
        );
    }
    let garbled = Client::of(&cluster, follower).with("headwater-resume-index", "soon");
    assert_eq!(garbled.watch(type_, None, "").await.err().map(|status| status.code()), Some(Code::InvalidArgument));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_that_is_replayed_comes_to_the_state() {
    let cluster = Cluster::three().await;
    let leader = Client::of(&cluster, cluster.leader().await);
    let follower = Client::of(&cluster, cluster.follower().await);
    let type_ = type_of("demo", "v1", "Thing");
    leader.register(&type_, Scope::Namespace).await;
    leader.make_unit("default", "other").await;
    let mut watches = Vec::new();
    for client in [&leader, &follower] {
        watches.push((client.watch(type_.clone(), None, "").await.unwrap(), ("*", "*"), ""));
        watches.push((client.watch(type_.clone(), Some(("*", "other")), "t").await.unwrap(), ("*", "other"), "t"));
    }
    let mut random = StdRng::seed_from_u64(7);
    for _ in 0..400 {
        let client = if random.random_bool(0.5) { &leader } else { &follower };
        let namespace = if random.random_bool(0.5) { "default" } else { "other" };
        let name = format!("{}-{}", if random.random_bool(0.5) { "t" } else { "u" }, random.random_range(0..10));
        let resource = named(type_.clone(), ("default", namespace), &name);
        if random.random_bool(0.6) {
            client.write(resource).await.unwrap();
        } else {
            client.delete(id_of(&resource)).await.unwrap();
        }
    }
    // After the event of this resource, a watch has delivered all earlier changes.
    let mark = leader.write(named(type_.clone(), ("default", "other"), "the-mark")).await.unwrap();
    for (watch, units, prefix) in &mut watches {
        let mut state: BTreeMap<(String, String), pb::Resource> = BTreeMap::new();
        let mut last = 0;
        loop {
            let (delivered, index) = watch.next_with_index().await.unwrap();
            assert!(index == 0 || index >= last, "in the order of the commits");
            last = last.max(index);
            let key = |resource: &pb::Resource| {
                let id = id_of(resource);
                (id.tenancy.unwrap().namespace, id.name)
            };
            match delivered {
                Delivery::Upsert(resource) if resource == mark => break,
                Delivery::Upsert(resource) => {
                    state.insert(key(&resource), resource);
                }
                Delivery::Delete(resource) => {
                    assert_eq!(state.remove(&key(&resource)), Some(resource), "as it was last");
                }
                Delivery::End => {}
            }
        }
        let mut listed = leader.consistent().list(type_.clone(), *units, prefix).await.unwrap();
        listed.retain(|resource| *resource != mark);
        assert_eq!(state.into_values().collect::<Vec<_>>(), listed);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crowd_shares_one_list() {
    let cluster = Cluster::start(Settings::alone()).await;
    let client = Client::of(&cluster, 0);
    let type_ = type_of("demo", "v1", "Thing");
    client.register(&type_, Scope::Namespace).await;
    let names: Vec<String> = (0..200).map(|number| format!("t-{number:03}")).collect();
    for name in &names {
        client.write(named(type_.clone(), ("", ""), name)).await.unwrap();
    }
    let watches = (0..200).map(|_| {
        let (client, type_) = (client.clone(), type_.clone());
        async move {
            let mut watch = client.watch(type_, None, "").await.unwrap();
            let (listed, _) = watch.list().await;
            (watch, listed)
        }
    });
    let mut watches = futures::future::join_all(watches).await;
    let last = client.write(named(type_, ("", ""), "last")).await.unwrap();
    for (watch, listed) in &mut watches {
        assert_eq!(names_of(listed), names);
        assert_eq!(watch.next().await, Delivery::Upsert(last.clone()));
    }
}
