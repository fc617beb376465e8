//! Rights, the quota, members that crash, and versions without commits.

use std::time::Duration;

use headwater::client::{CommitTimeouts, Endpoints};
use headwater::node::QuotaOptions;
use headwater::pb::authpb;
use headwater::pb::etcdserverpb as etcd;
use headwater::pb::etcdserverpb::auth_client::AuthClient;
use headwater::pb::etcdserverpb::downgrade_request::DowngradeAction;
use headwater::pb::headwater_v1 as pb;
use headwater::pb::headwater_v1::store_client::StoreClient;
use headwater::types::{Supported, Version};
use tonic::Code;

use super::operations::*;
use super::ready;
use crate::acl::Guarded;
use crate::auth;
use crate::backup;
use crate::cluster::{Cluster, Settings, get, wait_until, within};
use crate::resources::client::{Client as Resources, Scope, artist_type, registration};
use crate::store::client::{Member, Via, changes};

fn member(cluster: &Cluster, index: usize) -> Member<'_> {
    Member { cluster, index, via: Via::Grpc }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_commits_of_a_cluster_wait_for_its_version() {
    let cluster = Cluster::three().await;
    let channel = auth::channel(&cluster, 0).await;
    for index in cluster.running() {
        let mut client = StoreClient::new(auth::channel(&cluster, index).await);
        client.commit(commit(vec![put(&format!("first/{index}"), "1")])).await.unwrap();
    }
    let request = pb::HistoryRequest { targets: vec!["/kv/first".to_owned()], ..Default::default() };
    let mut stream = StoreClient::new(channel).history(request).await.unwrap().into_inner();
    let found = within("the history", stream.message()).await.unwrap().unwrap().commands;
    assert_eq!(found.len(), 3);
    assert!(found.iter().all(|command| !command.face.is_empty()), "{found:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_operation_and_condition_asks_for_its_right() {
    let cluster = auth::cluster(Settings::calm()).await;
    Resources::of(&cluster, 0).register_demo().await;
    let (root, user) = auth::enable_auth(&cluster).await;
    let lease = 0x9500;
    let setup = vec![put_with("secret", "s", lease), grant(lease), put("u/a", "1"), put("r/a", "1")];
    let mut client = StoreClient::new(auth::channel(&cluster, 0).await);
    client.commit(auth::by(&root, commit(setup))).await.unwrap();
    let allowed = pb::CommitRequest {
        conditions: vec![exists("/kv/r/a", true), version("u/a", 1)],
        operations: vec![put("u/a", "2"), delete("u/none"), grant(0)],
        ..Default::default()
    };
    for index in cluster.running() {
        let mut client = StoreClient::new(auth::channel(&cluster, index).await);
        for (request, wanted) in
            [(allowed.clone(), Code::Unauthenticated), (commit(vec![grant(0x9501)]), Code::Unauthenticated)]
        {
            let refused = client.commit(request).await.unwrap_err();
            assert_eq!(refused.code(), wanted, "{refused:?}");
        }
        for denied in [
            put("secret", "x"),
            put("r/a", "x"),
            delete_prefix("u"),
            revoke(lease),
            put_with("u/b", "x", lease),
            artist("any"),
            delete_artist("any"),
            register("n", "1", "web"),
            deregister("n", "1"),
            session("", "n"),
            consul("set", "u/a", "x"),
        ] {
            let refused = client.commit(auth::by(&user, commit(vec![put("u/a", "3"), denied.clone()]))).await;
            let refused = refused.map(drop).expect_err("denied");
            assert_eq!(refused.code(), Code::PermissionDenied, "{denied:?}: {refused:?}");
            assert!(refused.message().starts_with("operations[1]: "), "{denied:?}: {refused:?}");
        }
        for condition in [
            exists("/kv/secret", false),
            version("secret", 0),
            unchanged("/kv?recursive=true", 0),
            exists("/nodes/n", false),
            exists("/services/web/n/1", false),
            exists("/leases/0000000000009500", false),
            exists("/resources/demo/v2/Artist/default/default/any", false),
        ] {
            let request = pb::CommitRequest { conditions: vec![condition.clone()], ..commit(vec![put("u/a", "3")]) };
            let refused = client.commit(auth::by(&user, request)).await.unwrap_err();
            assert_eq!(refused.code(), Code::PermissionDenied, "{condition:?}: {refused:?}");
            assert!(refused.message().starts_with("conditions[0]: "), "{condition:?}: {refused:?}");
        }
    }
    let done = client.commit(auth::by(&user, allowed)).await.unwrap().into_inner();
    assert_eq!(done.results.len(), 3);

    // A right that was lost is gone for a repeated commit, too.
    let keyed = pb::CommitRequest { idempotency_key: "once".into(), ..commit(vec![put("u/k", "1")]) };
    client.commit(auth::by(&user, keyed.clone())).await.unwrap();
    let mut admin = AuthClient::new(auth::channel(&cluster, 0).await);
    let perm = authpb::Permission { perm_type: 2, key: "u/".into(), range_end: "u0".into() };
    let revoke = etcd::AuthRoleRevokePermissionRequest { role: "u".into(), key: perm.key, range_end: perm.range_end };
    admin.role_revoke_permission(auth::by(&root, revoke)).await.unwrap();
    let refused = client.commit(auth::by(&user, keyed)).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_does_not_fit_changes_nothing() {
    const QUOTA: u64 = 100_000;
    let quota = QuotaOptions { bytes_max: Some(QUOTA), auto_disarm: true };
    let cluster = Cluster::start(Settings { quota, ..Settings::calm() }).await;
    ready(&cluster).await;
    let member = member(&cluster, 1);
    let big = || commit(vec![put("fits/a", &"x".repeat(60_000)), put("fits/b", &"x".repeat(60_000))]);
    wait_until("the quota counts", async || match member.commit(big()).await {
        Ok(_) => {
            member.commit(commit(vec![delete_prefix("fits/")])).await.unwrap();
            false
        }
        Err(status) => {
            (status.code(), status.message()) == (Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded")
        }
    })
    .await;
    let left = member.read(&["/kv/fits?recursive=true"], None).await.unwrap();
    assert_eq!(left.entities, []);
    // What frees space is accepted.
    member.commit(commit(vec![delete_prefix("fits/")])).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_repeats_a_commit_over_crashes_and_it_takes_effect_once() {
    let mut cluster = Cluster::three().await;
    ready(&cluster).await;
    let urls: Vec<_> = (0..3).map(|index| cluster.client_url(index)).collect();
    let before = member(&cluster, 0).put("repeated/before", "x").await.1;
    let writer = tokio::spawn(async move {
        let endpoints = Endpoints::new(&urls).unwrap();
        let timeouts = CommitTimeouts { attempt: Duration::from_secs(2), total: Duration::from_secs(120) };
        for number in 0..60 {
            let operations = vec![put("repeated/a", &number.to_string()), register("rep", "1", "repeated")];
            endpoints.commit(commit(operations), timeouts).await.unwrap();
        }
    });
    for _ in 0..2 {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let leader = cluster.leader().await;
        cluster.crash(leader).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        cluster.restart(leader).await;
        cluster.wait_healthy().await;
    }
    writer.await.unwrap();
    let answer = cluster.kv(0).range(get("repeated/a")).await.unwrap().into_inner();
    assert_eq!((answer.kvs[0].version, &answer.kvs[0].value[..]), (60, &b"59"[..]));
    for index in 0..3 {
        let found = member(&cluster, index).changes("/kv/repeated/a?children=false").await;
        assert_eq!(found.len(), 60);
        assert!(found.iter().all(|command| command.index > before && command.face == "store"));
        let last = changes(&found[59]);
        assert_eq!(last, ["/kv/repeated/a 58 -> 59"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn commits_begin_and_end_with_the_version() {
    let mut cluster = Cluster::start(Settings::calm()).await;
    let version = |cluster: &Cluster, wanted| {
        cluster.running().all(|index| cluster.node(index).versions().cluster().version == wanted)
    };
    wait_until("the version has risen", async || version(&cluster, Version::V0_4)).await;
    let keyed = || pb::CommitRequest { idempotency_key: "k".into(), ..commit(vec![put("versioned", "1")]) };
    assert!(!member(&cluster, 0).commit(keyed()).await.unwrap().done_before);
    assert!(member(&cluster, 1).commit(keyed()).await.unwrap().done_before);
    let lower = etcd::DowngradeRequest { action: DowngradeAction::Enable.into(), version: "0.3".to_owned() };
    cluster.maintenance(0).downgrade(lower).await.unwrap();
    wait_until("the version has fallen", async || version(&cluster, Version::V0_3)).await;
    for index in 0..3 {
        let refused = member(&cluster, index).commit(keyed()).await.unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition, "{refused:?}");
        assert!(refused.message().contains("version is too low"), "{refused:?}");
    }
    let supported = Supported { lowest: Version::V0_3, highest: Version::V0_3 };
    for lowers in [true, false] {
        for index in 0..3 {
            if lowers {
                wait_until("the data is ready for the older program", async || {
                    std::fs::read_to_string(cluster.data_dir(index).join("STAMP")).unwrap().contains("format = 3")
                })
                .await;
            }
            cluster.stop(index).await;
            match lowers {
                true => drop(cluster.supported.insert(index, supported)),
                false => drop(cluster.supported.remove(&index)),
            }
            cluster.restart(index).await;
            cluster.wait_healthy().await;
        }
        wait_until("the downgrade is complete", async || {
            cluster.running().all(|index| !cluster.node(index).versions().cluster().is_downgrading)
        })
        .await;
    }
    wait_until("the version has risen again", async || version(&cluster, Version::V0_4)).await;
    // The keys have gone with the version.
    assert!(!member(&cluster, 2).commit(keyed()).await.unwrap().done_before);
    let hashes = cluster.hashes().await;
    assert!(hashes.windows(2).all(|pair| pair[0] == pair[1]), "{hashes:?}");
}

/// A request with the secret of a token of Consul.
fn by<T>(token: &str, message: T) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    request.metadata_mut().insert("x-consul-token", token.parse().unwrap());
    request
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_of_consul_has_its_rights_and_its_own_keys() {
    let guarded = Guarded::start().await;
    ready(&guarded.cluster).await;
    let write = |prefix: &str| format!("key_prefix \"{prefix}/\" {{ policy = \"write\" }}");
    let (accessor, one) = guarded.token("one", &write("one")).await;
    let (_, two) = guarded.token("two", &format!("{}\n{}", write("one"), write("two"))).await;
    let (_, reader) = guarded.token("reader", "key_prefix \"one/\" { policy = \"read\" }").await;
    let keyed = |value: &str| pb::CommitRequest {
        idempotency_key: "same".into(),
        conditions: vec![exists("/kv/consul/kv/one/none?children=false", false)],
        ..commit(vec![consul("set", "one/a", value), put("consul/kv/one/b", value)])
    };
    let denied = || {
        let condition = exists("/kv/consul/kv/two/a?children=false", false);
        let watches = pb::CommitRequest { conditions: vec![condition], ..commit(vec![consul("set", "one/a", "x")]) };
        let others = [consul("set", "two/a", "x"), put("free", "x"), register("n", "1", "web")];
        let last = others.into_iter().map(|denied| commit(vec![consul("set", "one/a", "x"), denied]));
        std::iter::once(watches).chain(last).collect::<Vec<_>>()
    };
    for index in guarded.cluster.running() {
        let mut client = StoreClient::new(auth::channel(&guarded.cluster, index).await);
        guarded.settled(index).await;
        for request in denied() {
            let refused = client.commit(by(&one, request.clone())).await.map(drop).expect_err("denied");
            assert_eq!(refused.code(), Code::PermissionDenied, "{request:?}: {refused:?}");
        }
        let refused = client.commit(by(&reader, keyed("1"))).await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied, "{refused:?}");
        // The same key by two tokens: neither meets the other.
        for (token, value) in [(&one, "1"), (&two, "2")] {
            let done = client.commit(by(token, keyed(value))).await.unwrap().into_inner();
            assert_eq!(done.done_before, index > 0, "{index}");
            let other = client.commit(by(token, keyed("other"))).await.unwrap_err();
            assert_eq!(other.code(), Code::AlreadyExists, "{other:?}");
        }
        // The history of it.
        let all = |target: &str| crate::store::client::of(target);
        for target in ["/kv/consul/kv/two?recursive=true", "/kv", "/services/web", "/nodes/n"] {
            let refused = client.history(by(&reader, all(target))).await.map(drop).unwrap_err();
            assert_eq!(refused.code(), Code::PermissionDenied, "{target}: {refused:?}");
        }
        let target = "/kv/consul/kv/one/a?children=false";
        let mut stream = client.history(by(&reader, all(target))).await.unwrap().into_inner();
        let message = within("a message", stream.message()).await.unwrap().unwrap();
        let made: Vec<_> = message.commands.iter().flat_map(changes).collect();
        let path = "/kv/consul/kv/one/a";
        assert_eq!(made, [format!("{path} - -> 1"), format!("{path} 1 -> 2")]);
        assert_eq!(message.commands[0].author, format!("token:{accessor}"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restored_store_has_forgotten_all_keys() {
    let old = Cluster::start(Settings::alone()).await;
    ready(&old).await;
    let keyed = || pb::CommitRequest { idempotency_key: "k".into(), ..commit(vec![put("restored", "1")]) };
    assert!(!member(&old, 0).commit(keyed()).await.unwrap().done_before);
    assert!(member(&old, 0).commit(keyed()).await.unwrap().done_before);
    let dir = tempfile::tempdir().unwrap();
    let file = backup::save(&old, 0, &dir).await;
    let new = Cluster::restored(Settings::alone(), &file, &backup::options()).await;
    ready(&new).await;
    let again = member(&new, 0).commit(keyed()).await.unwrap();
    assert!(!again.done_before);
    assert!(member(&new, 0).commit(keyed()).await.unwrap().done_before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_condition_about_a_compacted_past_is_refused() {
    let cluster = Cluster::start(Settings::calm()).await;
    ready(&cluster).await;
    let member = member(&cluster, 1);
    let (_, first) = member.put("compacted/a", "1").await;
    let (revision, second) = member.put("compacted/a", "2").await;
    cluster.kv(1).compact(etcd::CompactionRequest { revision, physical: true }).await.unwrap();
    let guarded = |since| pb::CommitRequest {
        conditions: vec![unchanged("/kv/compacted/a", since)],
        ..commit(vec![put("compacted/b", "1")])
    };
    let refused = member.commit(guarded(first)).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused:?}");
    assert!(refused.message().contains(&format!("only those after {second}: read again")), "{refused:?}");
    member.commit(guarded(second)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_commit_has_its_answer_though_its_type_is_gone() {
    let cluster = Cluster::start(Settings::alone()).await;
    ready(&cluster).await;
    let resources = Resources::of(&cluster, 0);
    resources.register_demo().await;
    let keyed = || pb::CommitRequest { idempotency_key: "k".into(), ..commit(vec![artist("gone"), put("gone", "1")]) };
    let first = member(&cluster, 0).commit(keyed()).await.unwrap();
    member(&cluster, 0).commit(commit(vec![delete_artist("gone")])).await.unwrap();
    wait_until("no artist is left", async || {
        resources.list(artist_type(), UNITS, "").await.is_ok_and(|found| found.is_empty())
    })
    .await;
    let type_ = registration(&artist_type(), Scope::Namespace, None);
    resources.delete(type_.id.unwrap()).await.unwrap();
    wait_until("the type is gone", async || member(&cluster, 0).commit(commit(vec![artist("another")])).await.is_err())
        .await;
    let again = member(&cluster, 0).commit(keyed()).await.unwrap();
    assert_eq!((again.index, again.done_before), (first.index, true));
    // Another commit is refused for its type.
    let other = pb::CommitRequest { idempotency_key: "k".into(), ..commit(vec![artist("gone")]) };
    let refused = member(&cluster, 0).commit(other).await.unwrap_err();
    assert!(refused.message().starts_with("operations[0]: "), "{refused:?}");
}
