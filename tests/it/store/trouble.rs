//! History that is given up, rights, members that stop, and a version without authors.

use std::time::Duration;

use headwater::pb::etcdserverpb as etcd;
use headwater::pb::etcdserverpb::downgrade_request::DowngradeAction;
use headwater::pb::headwater_v1 as pb;
use headwater::types::{Supported, Version};
use tonic::Code;

use super::client::{BOTH, Changes, Member, Via, at, changes, of};
use crate::auth;
use crate::cluster::{Cluster, Settings, wait_until, within};

fn member(cluster: &Cluster, index: usize, via: Via) -> Member<'_> {
    Member { cluster, index, via }
}

async fn refused(stream: Result<Changes, tonic::Status>) -> tonic::Status {
    match stream {
        Ok(stream) => stream.rest().await.expect_err("the stream is refused"),
        Err(status) => status,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_compacted_is_refused_and_the_rest_is_whole() {
    let cluster = Cluster::start(Settings::calm()).await;
    for (number, via) in BOTH.into_iter().enumerate() {
        let member = member(&cluster, 1, via);
        let key = format!("compacted-{number}");
        let (_, first) = member.put(&key, "1").await;
        let (revision, second) = member.put(&key, "2").await;
        let (_, third) = member.put(&key, "3").await;
        let request = etcd::CompactionRequest { revision, physical: true };
        cluster.kv(1).compact(request).await.unwrap();
        let target = format!("/kv/{key}");
        let early = member.read(&[&target], at(first)).await.unwrap_err();
        assert_eq!(early.code(), Code::FailedPrecondition);
        assert!(early.message().contains(&format!("kept from index {second} on")), "{early:?}");
        let from = |index| pb::HistoryRequest { from: at(index), ..of(&target) };
        assert_eq!(refused(member.history(from(first)).await).await.code(), Code::FailedPrecondition);
        let (rest, _) = member.history(of(&target)).await.unwrap().rest().await.unwrap();
        assert_eq!(rest.iter().flat_map(changes).collect::<Vec<_>>(), [format!("{target} 2 -> 3")]);
        assert_eq!(member.history(from(second)).await.unwrap().rest().await.unwrap().0, rest);
        let mut stream = member.history(of(&target)).await.unwrap();
        assert_eq!(stream.next().await.unwrap().unwrap().oldest, second);
        assert_eq!(member.read(&[&target], at(second)).await.unwrap().entities[0].index, second);
        assert!(third > second);
        // Backward to the beginning is no error.
        let backward = pb::HistoryRequest { direction: 1, ..of(&target) };
        let (rest, reached) = member.history(backward).await.unwrap().rest().await.unwrap();
        assert_eq!((rest.len(), reached), (1, second));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_goes_on_at_another_member_when_its_own_stops() {
    let mut cluster = Cluster::start(Settings::calm()).await;
    let (leader, via) = (cluster.leader().await, Via::Grpc);
    let (first, other) = ((leader + 1) % 3, (leader + 2) % 3);
    let mut seen = Vec::new();
    let (mut stream, mut reached) = {
        let member = member(&cluster, first, via);
        let live = pb::HistoryRequest { live: true, ..of("/kv/moved?recursive=true") };
        let mut stream = member.history(live).await.unwrap();
        member.put("moved/0", "v").await;
        let (command, reached) = stream.command().await;
        seen.extend(changes(&command));
        (stream, reached)
    };
    cluster.stop(first).await;
    let ended = loop {
        match stream.next().await {
            Ok(Some(message)) => reached = message.reached,
            Ok(None) => panic!("a live stream ends with a reason"),
            Err(status) => break status,
        }
    };
    assert_eq!(ended.code(), Code::Unavailable, "{ended:?}");
    let member = member(&cluster, other, via);
    member.put("moved/1", "v").await;
    let live = pb::HistoryRequest { live: true, from: at(reached), ..of("/kv/moved?recursive=true") };
    let mut stream = member.history(live).await.unwrap();
    seen.extend(changes(&stream.command().await.0));
    assert_eq!(seen, ["/kv/moved/0 - -> v", "/kv/moved/1 - -> v"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_history_asks_for_rights_and_names_authors() {
    let cluster = auth::cluster(Settings::calm()).await;
    let (token, _) = auth::enable_auth(&cluster).await;
    let channel = auth::channel(&cluster, 0).await;
    let mut client = pb::store_client::StoreClient::new(channel.clone());
    let mut admin = etcd::auth_client::AuthClient::new(channel.clone());
    let mut kv = etcd::kv_client::KvClient::new(channel.clone());
    let by = auth::by::<etcd::PutRequest>;
    for key in ["u/a", "secret"] {
        let request = etcd::PutRequest { key: key.into(), value: "v".into(), ..Default::default() };
        kv.put(by(&token, request)).await.unwrap();
    }
    let user = etcd::AuthUserAddRequest { name: "reader".into(), password: "pw".into(), ..Default::default() };
    admin.user_add(auth::by(&token, user)).await.unwrap();
    admin.role_add(auth::by(&token, etcd::AuthRoleAddRequest { name: "one-key".into() })).await.unwrap();
    let permission = headwater::pb::authpb::Permission { perm_type: 0, key: "u/a".into(), range_end: "".into() };
    let grant = etcd::AuthRoleGrantPermissionRequest { name: "one-key".into(), perm: Some(permission) };
    admin.role_grant_permission(auth::by(&token, grant)).await.unwrap();
    let grant = etcd::AuthUserGrantRoleRequest { user: "reader".into(), role: "one-key".into() };
    admin.user_grant_role(auth::by(&token, grant)).await.unwrap();
    let login = etcd::AuthenticateRequest { name: "reader".into(), password: "pw".into() };
    let reader = admin.authenticate(login).await.unwrap().into_inner().token;

    let read = |target: &str| pb::ReadRequest { targets: vec![target.to_owned()], ..Default::default() };
    let denied = |result: Result<_, tonic::Status>| result.map(drop).map_err(|status| status.code());
    assert_eq!(denied(client.read(read("/kv/u/a?children=false")).await), Err(Code::Unauthenticated));
    assert_eq!(denied(client.read(auth::by(&reader, read("/kv/u/a?children=false"))).await), Ok(()));
    for (target, named) in [
        ("/kv/u/a", "/kv/u/a"),
        ("/kv/secret?children=false", "/kv/secret"),
        ("/kv", "/kv"),
        ("/?recursive=true", "/kv"),
        ("/leases", "/leases"),
        ("/nodes", "/nodes"),
    ] {
        // The target that lacks the right is named, also beside one that has it.
        let targets = vec!["/kv/u/a?children=false".to_owned(), target.to_owned()];
        let request = pb::ReadRequest { targets: targets.clone(), ..Default::default() };
        let refused = client.read(auth::by(&reader, request)).await.unwrap_err();
        let wanted = (Code::PermissionDenied, format!("{named}: etcdserver: permission denied"));
        assert_eq!((refused.code(), refused.message()), (wanted.0, &wanted.1[..]), "{target}");
        let request = pb::HistoryRequest { targets, ..Default::default() };
        let refused = client.history(auth::by(&reader, request)).await.map(drop).unwrap_err();
        assert_eq!((refused.code(), refused.message()), (wanted.0, &wanted.1[..]), "{target}");
    }
    let mut stream = client.history(auth::by(&reader, of("/kv/u/a?children=false"))).await.unwrap().into_inner();
    let first = within("a message", stream.message()).await.unwrap().unwrap();
    let authors: Vec<_> = first.commands.iter().map(|command| (&command.author[..], &command.face[..])).collect();
    assert_eq!(authors, [("user:root", "etcd")]);
    // A live stream ends when the right ends.
    let live = pb::HistoryRequest { live: true, ..of("/kv/u/a?children=false") };
    let mut stream = client.history(auth::by(&reader, live)).await.unwrap().into_inner();
    within("a message", stream.message()).await.unwrap();
    let revoke = etcd::AuthUserRevokeRoleRequest { name: "reader".into(), role: "one-key".into() };
    admin.user_revoke_role(auth::by(&token, revoke)).await.unwrap();
    let ended = loop {
        match within("the stream ends", stream.message()).await {
            Ok(message) => assert!(message.is_some_and(|message| message.commands.is_empty())),
            Err(status) => break status,
        }
    };
    assert_eq!(ended.code(), Code::PermissionDenied);
}

#[tokio::test(flavor = "multi_thread")]
async fn authors_go_and_come_with_the_version() {
    let mut cluster = Cluster::start(Settings::calm()).await;
    let version = |cluster: &Cluster, wanted| {
        cluster.running().all(|index| cluster.node(index).versions().cluster().version == wanted)
    };
    wait_until("the version has risen", async || version(&cluster, Version::V0_4)).await;
    let faces = async |cluster: &Cluster, index| {
        let found = member(cluster, index, Via::Grpc).changes("/kv/versioned").await;
        found.into_iter().map(|command| command.face).collect::<Vec<_>>()
    };
    member(&cluster, 0, Via::Grpc).put("versioned", "1").await;
    assert_eq!(faces(&cluster, 1).await, ["etcd"]);
    let lower = etcd::DowngradeRequest { action: DowngradeAction::Enable.into(), version: "0.3".to_owned() };
    cluster.maintenance(0).downgrade(lower).await.unwrap();
    wait_until("the version has fallen", async || version(&cluster, Version::V0_3)).await;
    // Each member then removes the authors from its history.
    for index in 0..3 {
        wait_until("no author is left", async || faces(&cluster, index).await == [""]).await;
    }
    member(&cluster, 1, Via::Grpc).put("versioned", "2").await;
    assert_eq!(faces(&cluster, 2).await, ["", ""]);
    let supported = Supported { lowest: Version::V0_3, highest: Version::V0_3 };
    for index in 0..3 {
        wait_until("the data is ready for the older program", async || {
            std::fs::read_to_string(cluster.data_dir(index).join("STAMP")).unwrap().contains("format = 3")
        })
        .await;
        cluster.stop(index).await;
        cluster.supported.insert(index, supported);
        cluster.restart(index).await;
        cluster.wait_healthy().await;
        assert_eq!(faces(&cluster, index).await, ["", ""]);
    }
    wait_until("the downgrade is complete", async || {
        cluster.running().all(|index| !cluster.node(index).versions().cluster().is_downgrading)
    })
    .await;
    for index in 0..3 {
        cluster.stop(index).await;
        cluster.supported.remove(&index);
        cluster.restart(index).await;
        cluster.wait_healthy().await;
    }
    wait_until("the version has risen again", async || version(&cluster, Version::V0_4)).await;
    member(&cluster, 1, Via::Grpc).put("versioned", "3").await;
    assert_eq!(faces(&cluster, 0).await, ["", "", "etcd"]);
    tokio::time::timeout(Duration::from_secs(60), cluster.hashes()).await.unwrap();
}
