//! Members of two versions in one cluster: upgrades and downgrades under writes, and refusals of
//! everything that is too new, with texts that name it. Members with `Supported::NEXT` act as the
//! next version.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use headwater::node::{Consistency, NodeError, RequestContext};
use headwater::pb::etcdserverpb as pb;
use headwater::pb::etcdserverpb::downgrade_request::DowngradeAction;
use headwater::pb::headwater::peer::{self, peer_client::PeerClient, propose_result, snapshot_message};
use headwater::pb::headwater_v1::GetVersionsRequest;
use headwater::pb::headwater_v1::versions_client::VersionsClient;
use headwater::storage::data_dir::Layout;
use headwater::storage::log::LogForm;
use headwater::types::{Command, Feature, Proposal, Refusal, Supported, Version};
use tonic::Code;

use crate::cluster::{Cluster, Settings, get, put, wait_until, within};

const OLD: Version = Version::V0_4;
const NEW: Version = Version::V0_5;

fn version(cluster: &Cluster, member: usize) -> Version {
    cluster.node(member).versions().cluster().version
}

async fn wait_for_version(cluster: &Cluster, wanted: Version) {
    wait_until("every member has the version", async || {
        cluster.running().all(|member| version(cluster, member) == wanted)
    })
    .await;
}

/// Restarts a member with a program that supports these versions. Waits until the member has
/// announced that program.
async fn replace(cluster: &mut Cluster, member: usize, supported: Supported) {
    cluster.stop(member).await;
    cluster.supported.insert(member, supported);
    cluster.restart(member).await;
    let program = cluster.node(member).versions().own();
    let id = cluster.id(member).into();
    wait_until("the member has announced its program", async || {
        let ctx = RequestContext::within(Duration::from_secs(5));
        let read = cluster.node(member).versions().read(&ctx, Consistency::Serializable).await;
        read.is_ok_and(|versions| versions.programs.get(&id) == Some(&program))
    })
    .await;
}

/// Contents of all files below `dir`, by path; each path begins with `dir`. Without `LOCK` files.
fn contents(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(next) = dirs.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
            } else if path.file_name().unwrap() != "LOCK" {
                found.insert(path.display().to_string(), std::fs::read(&path).unwrap());
            }
        }
    }
    found
}

async fn assert_equal(cluster: &Cluster) {
    let hashes = cluster.hashes().await;
    assert!(hashes.windows(2).all(|pair| pair[0] == pair[1]), "{hashes:?}");
}

async fn downgrade(cluster: &Cluster, action: DowngradeAction, to: &str) -> Result<String, tonic::Status> {
    let request = pb::DowngradeRequest { action: action.into(), version: to.to_owned() };
    cluster.maintenance(0).downgrade(request).await.map(|answer| answer.into_inner().version)
}

#[tokio::test(flavor = "multi_thread")]
async fn members_are_upgraded_and_taken_back_one_by_one_under_writes() {
    let mut cluster = Cluster::start(Settings::calm()).await;
    wait_for_version(&cluster, OLD).await;
    let done = Arc::new(AtomicBool::new(false));
    // Held while states are compared.
    let pause = Arc::new(tokio::sync::Mutex::new(()));
    let last = Arc::new(AtomicI64::new(0));
    let endpoints: Vec<String> = (0..3).map(|member| cluster.client_url(member)).collect();
    let writing = tokio::spawn({
        let (done, last, pause) = (done.clone(), last.clone(), pause.clone());
        async move {
            let mut number = 0;
            while !done.load(Ordering::Relaxed) {
                let _paused = pause.lock().await;
                number += 1;
                // A member that stops refuses the write, so it is repeated at another member.
                for endpoint in endpoints.iter().cycle().skip(number as usize) {
                    let Ok(mut kv) = pb::kv_client::KvClient::connect(endpoint.clone()).await else { continue };
                    if kv.put(put("counter", number.to_string())).await.is_ok() {
                        break;
                    }
                }
                last.store(number, Ordering::Relaxed);
            }
        }
    });
    let steps = [(2, Supported::NEXT, OLD), (1, Supported::NEXT, OLD), (0, Supported::NEXT, NEW)];
    for (member, supported, then) in steps {
        replace(&mut cluster, member, supported).await;
        wait_for_version(&cluster, then).await;
        let _paused = pause.lock().await;
        assert_equal(&cluster).await;
    }
    // The features of the new version are used by now.
    let before = last.load(Ordering::Relaxed);
    wait_until("writes go on", async || last.load(Ordering::Relaxed) > before + 10).await;

    let refused = downgrade(&cluster, DowngradeAction::Enable, "0.3").await.unwrap_err();
    assert_eq!(refused.message(), "etcdserver: invalid downgrade target version");
    assert_eq!(downgrade(&cluster, DowngradeAction::Validate, "0.4").await.unwrap(), "0.5.0");
    assert_eq!(downgrade(&cluster, DowngradeAction::Enable, "0.4").await.unwrap(), "0.4.0");
    let again = downgrade(&cluster, DowngradeAction::Enable, "0.3").await.unwrap_err();
    assert_eq!(again.message(), "etcdserver: cluster has a downgrade job in progress");
    wait_for_version(&cluster, OLD).await;
    let status = cluster.maintenance(1).status(pb::StatusRequest {}).await.unwrap().into_inner();
    let info = status.downgrade_info.unwrap();
    assert_eq!((info.enabled, info.target_version.as_str()), (true, "0.4.0"));
    for member in 0..3 {
        wait_until("the data is ready for the older program", async || {
            std::fs::read_to_string(cluster.data_dir(member).join("STAMP")).unwrap().contains("format = 4")
        })
        .await;
        replace(&mut cluster, member, Supported::RELEASE).await;
        assert_eq!(version(&cluster, member), OLD);
        let _paused = pause.lock().await;
        assert_equal(&cluster).await;
    }
    wait_until("the downgrade is complete", async || {
        (0..3).all(|member| !cluster.node(member).versions().cluster().is_downgrading)
    })
    .await;
    done.store(true, Ordering::Relaxed);
    within("the writer ends", writing).await.unwrap();
    let stored = cluster.kv(0).range(get("counter")).await.unwrap().into_inner().kvs.remove(0);
    assert_eq!(stored.value, last.load(Ordering::Relaxed).to_string());
    let none = downgrade(&cluster, DowngradeAction::Cancel, "").await.unwrap_err();
    assert_eq!(none.message(), "etcdserver: no inflight downgrade job");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_versions_of_all_members_are_shown_by_each() {
    let mut cluster = Cluster::start(Settings::calm()).await;
    wait_for_version(&cluster, OLD).await;
    replace(&mut cluster, 1, Supported::NEXT).await;
    for member in 0..3 {
        let mut client = VersionsClient::connect(cluster.client_url(member)).await.unwrap();
        let versions = client.get_versions(GetVersionsRequest { linearizable: true }).await.unwrap().into_inner();
        assert_eq!((versions.cluster_version.as_str(), versions.downgrading), ("0.4", false));
        let shown: Vec<_> =
            versions.members.iter().map(|one| (one.id, one.program.as_str(), one.highest.as_str())).collect();
        assert_eq!(shown, [(1, "0.4.0 (test)", "0.4"), (2, "0.5.0 (test)", "0.5"), (3, "0.4.0 (test)", "0.4")]);
        assert_eq!(versions.program, versions.members[member].program);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_program_does_not_start_on_newer_data_and_changes_nothing() {
    let mut cluster = Cluster::start(Settings::calm()).await;
    wait_for_version(&cluster, OLD).await;
    for member in 0..3 {
        replace(&mut cluster, member, Supported::NEXT).await;
    }
    wait_for_version(&cluster, NEW).await;
    cluster.stop(2).await;
    let before = contents(&cluster.data_dir(2));
    cluster.supported.remove(&2);
    let error = format!("{:#}", cluster.try_start(2).await.unwrap_err());
    assert!(
        error.contains("needs version 0.5, and this program is version 0.4: run version 0.5 or a newer one"),
        "{error}"
    );
    assert!(!error.contains("damaged"), "{error}");
    assert!(contents(&cluster.data_dir(2)) == before, "a file changed");

    // A node without data of that version does not start either.
    let new = cluster.new_node(false).await;
    let joined = within("an answer", headwater::server::join(cluster.join_options(new, false))).await;
    let error = joined.unwrap_err().to_string();
    assert!(error.contains("does not support the cluster's version"), "{error}");

    cluster.supported.insert(2, Supported::NEXT);
    cluster.restart(2).await;
    assert_equal(&cluster).await;
}

fn request_to<T>(cluster: &Cluster, cluster_id: u64, to: usize, message: T) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    for (key, value) in [
        ("headwater-cluster", cluster_id),
        ("headwater-from", cluster.id((to + 1) % 3)),
        ("headwater-to", cluster.id(to)),
    ] {
        request.metadata_mut().insert(key, value.into());
    }
    request
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_leader_refuses_a_newer_command_and_an_older_member_a_newer_snapshot() {
    let mut cluster = Cluster::start(Settings::calm()).await;
    wait_for_version(&cluster, OLD).await;
    let header = cluster.kv(0).put(put("k", "v")).await.unwrap().into_inner().header.unwrap();
    let leader = cluster.leader().await;

    // A member that knows the command does not propose it before the cluster has it.
    let newer = (leader + 1) % 3;
    replace(&mut cluster, newer, Supported::NEXT).await;
    let leader = cluster.leader().await;
    let note = Command::Note("n".into());
    let ctx = RequestContext::within(Duration::from_secs(5));
    let refused = cluster.node(newer).propose(&ctx, note.clone()).await.unwrap_err();
    assert_eq!(refused, NodeError::Refused(Refusal::NeedsVersion { needs: Feature::Notes.since() }));

    // The leader refuses it, too.
    let encoded = headwater::codec::encode_proposal(&Proposal::new(1, note)).unwrap();
    let batch = tokio_stream::iter([peer::ProposeRequest { commands: vec![encoded] }]);
    let mut client = PeerClient::connect(cluster.peer_url(leader)).await.unwrap();
    let call = client.propose(request_to(&cluster, header.cluster_id, leader, batch));
    let mut answers = call.await.unwrap().into_inner();
    let result = answers.message().await.unwrap().unwrap().results.remove(0).result.unwrap();
    let propose_result::Result::Unreadable(why) = result else { panic!("{result:?}") };
    assert!(why.contains("the command needs version 0.5, and this program is version 0.4"), "{why}");

    // A snapshot is refused before a byte of it is sent.
    let old = (0..3).find(|member| *member != newer && *member != leader).unwrap();
    let offer = peer::SnapshotOffer { needs: NEW.byte().into(), ..Default::default() };
    let message = peer::SnapshotMessage { message: Some(snapshot_message::Message::Offer(offer)) };
    let mut client = PeerClient::connect(cluster.peer_url(old)).await.unwrap();
    let call = client.snapshot(request_to(&cluster, header.cluster_id, old, tokio_stream::iter([message])));
    let status = match call.await {
        Ok(answers) => answers.into_inner().message().await.unwrap_err(),
        Err(status) => status,
    };
    assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
    assert!(status.message().contains("the snapshot needs version 0.5, and this program is version 0.4"), "{status}");
    assert_equal(&cluster).await;
}

/// Waits until each member's log has this form.
async fn wait_for_form(cluster: &Cluster, wanted: LogForm) {
    wait_until("each member's log has the form", async || {
        cluster.running().all(|member| LogForm::of(&Layout::new(&cluster.data_dir(member)).log_dir()) == wanted)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_is_stored_as_the_version_allows_and_taken_back_with_it() {
    let mut cluster = Cluster::start(Settings::calm()).await;
    wait_for_version(&cluster, OLD).await;
    wait_for_form(&cluster, LogForm::Segments).await;
    let value = |turn: usize| format!("{turn:04}").repeat(100);
    let mut turns = 0..1000;
    for turn in turns.by_ref().take(400) {
        cluster.kv(turn % 3).put(put(format!("k{turn}"), value(turn))).await.unwrap();
    }
    for (action, form, format) in [
        (DowngradeAction::Enable, LogForm::RocksDb, "format = 3"),
        (DowngradeAction::Cancel, LogForm::Segments, "format = 4"),
    ] {
        downgrade(&cluster, action, "0.3").await.unwrap();
        wait_until("the stamp has the version", async || {
            (0..3)
                .all(|member| std::fs::read_to_string(cluster.data_dir(member).join("STAMP")).unwrap().contains(format))
        })
        .await;
        // The log is in RocksDB before the older program may start, and in segments only after.
        match form {
            LogForm::RocksDb => {
                for member in 0..3 {
                    assert_eq!(LogForm::of(&Layout::new(&cluster.data_dir(member)).log_dir()), form);
                }
            }
            LogForm::Segments => wait_for_form(&cluster, form).await,
        }
        for turn in turns.by_ref().take(200) {
            cluster.kv(turn % 3).put(put(format!("k{turn}"), value(turn))).await.unwrap();
        }
        // The older program finds its log, and nothing else.
        for member in 0..3 {
            cluster.crash(member).await;
            let log = Layout::new(&cluster.data_dir(member)).log_dir();
            assert_eq!((LogForm::of(&log), log.join("CURRENT").exists()), (form, form == LogForm::RocksDb));
            cluster.restart(member).await;
            cluster.wait_healthy().await;
        }
        assert_equal(&cluster).await;
    }
    for turn in 0..turns.start {
        let found = cluster.kv(turn % 3).range(get(format!("k{turn}"))).await.unwrap().into_inner().kvs.remove(0);
        assert_eq!(found.value, value(turn));
    }
}
