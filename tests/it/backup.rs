//! Backups: taken under load, restored into other clusters, and refused if they are damaged.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use headwater::node::{ClientKey, RequestContext, RestoreError, RestoreOptions, restore};
use headwater::pb::etcdserverpb as pb;
use headwater::pb::etcdserverpb::auth_client::AuthClient;
use headwater::pb::etcdserverpb::lease_client::LeaseClient;
use headwater::pb::etcdserverpb::maintenance_client::MaintenanceClient;
use headwater::pb::etcdserverpb::watch_client::WatchClient;
use headwater::pb::etcdserverpb::watch_request::RequestUnion;
use headwater::server::backup::inspect;
use headwater::types::limits::{RESTORE_BUMP_INDEX_DEFAULT, RESTORED_INDEX_MAX, RESTORED_REVISION_MAX};
use headwater::types::{ClusterId, LogIndex, NodeId};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use sha2::{Digest, Sha256};
use tempfile::TempDir;
use tokio_stream::StreamExt;

use crate::auth;
use crate::cluster::{Cluster, Settings, get, put, wait_until, within};
use crate::consul_http;
use crate::resources::client::{Client, Scope, type_of};

/// Options of a restore, without file, directory and members: the test sets these.
pub fn options() -> RestoreOptions {
    RestoreOptions {
        file: PathBuf::new(),
        data_dir: PathBuf::new(),
        node_id: NodeId(1),
        cluster_id: ClusterId(8),
        members: BTreeMap::new(),
        bump_index: RESTORE_BUMP_INDEX_DEFAULT,
        bump_revision: 0,
        mark_compacted: false,
        disable_auth: false,
    }
}

/// Saves the backup that a member streams as a file in `dir`; returns its path.
pub async fn save(cluster: &Cluster, member: usize, dir: &TempDir) -> PathBuf {
    let mut client = MaintenanceClient::connect(cluster.client_url(member)).await.unwrap();
    let mut stream = client.snapshot(pb::SnapshotRequest {}).await.unwrap().into_inner();
    let mut bytes = Vec::new();
    let mut remaining = None;
    while let Some(chunk) = within("a piece of the backup", stream.next()).await {
        let chunk = chunk.unwrap();
        assert_eq!(chunk.header, None, "as in etcd");
        if let Some(remaining) = remaining {
            let checksum = if chunk.remaining_bytes == 0 && remaining == 0 { 32 } else { 0 };
            assert_eq!(chunk.remaining_bytes + chunk.blob.len() as u64, remaining + checksum);
        }
        remaining = Some(chunk.remaining_bytes);
        bytes.extend_from_slice(&chunk.blob);
    }
    assert_eq!((remaining, bytes.len() % 512), (Some(0), 32), "etcdctl looks for it");
    let file = dir.path().join("backup");
    std::fs::write(&file, bytes).unwrap();
    file
}

/// Revision of the store, and the answer to a linearizable read of all keys.
async fn everything(cluster: &Cluster, member: usize) -> (i64, Vec<pb::RangeResponse>) {
    let all = pb::RangeRequest { key: "\0".into(), range_end: "\0".into(), ..Default::default() };
    let found = cluster.kv(member).range(all).await.unwrap().into_inner();
    (found.header.unwrap().revision, vec![found])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_under_load_is_a_prefix_of_the_log() {
    let cluster = Cluster::three().await;
    let stop = Arc::new(AtomicBool::new(false));
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..6 {
        let (mut kv, stop) = (cluster.kv(writer % 3), Arc::clone(&stop));
        writers.spawn(async move {
            let mut written = Vec::new();
            for turn in 0.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                let (key, value) = (format!("{writer}/{turn}"), format!("{}", turn * 7));
                let answer = kv.put(put(key.clone(), value.clone())).await.unwrap().into_inner();
                written.push((answer.header.unwrap().revision, key, value));
            }
            written
        });
    }
    let follower = cluster.follower().await;
    let revision = async || cluster.node(follower).status().unwrap().revision.get();
    wait_until("there is something to back up", async || revision().await > 300).await;
    let dir = tempfile::tempdir().unwrap();
    let file = save(&cluster, follower, &dir).await;
    let at_backup = revision().await;
    wait_until("writes went on", async || revision().await > at_backup + 100).await;
    stop.store(true, Ordering::Relaxed);
    let mut written = BTreeMap::new();
    for (revision, key, value) in writers.join_all().await.into_iter().flatten() {
        assert!(written.insert(revision, (key, value)).is_none(), "one revision, one put");
    }

    let info = inspect(&file).unwrap().info;
    let last = info.revision.get();
    assert!((300..=at_backup).contains(&last), "{last} of {at_backup}");
    assert_eq!(info.live_keys, last as u64 - 1);
    let restored = Cluster::restored(Settings::alone(), &file, &options()).await;
    let (found, pages) = everything(&restored, 0).await;
    assert_eq!(found, last);
    let found: BTreeMap<i64, (String, String)> = pages[0]
        .kvs
        .iter()
        .map(|kv| {
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            (kv.mod_revision, (text(&kv.key), text(&kv.value)))
        })
        .collect();
    let wanted: BTreeMap<_, _> = written.into_iter().filter(|(revision, _)| *revision <= last).collect();
    assert_eq!(found, wanted, "all up to a point, and nothing after it");
}

/// After a loss of the passwords, an operator restores a backup with authentication disabled.
#[tokio::test(flavor = "multi_thread")]
async fn a_backup_is_restored_without_its_lock() {
    let old = auth::cluster(Settings::calm()).await;
    let (root, _) = auth::enable_auth(&old).await;
    old.kv(0).put(auth::by(&root, put("k", "v"))).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("backup");
    let mut client = MaintenanceClient::connect(old.client_url(0)).await.unwrap();
    let mut stream = client.snapshot(auth::by(&root, pb::SnapshotRequest {})).await.unwrap().into_inner();
    let mut bytes = Vec::new();
    while let Some(chunk) = within("a piece of the backup", stream.next()).await {
        bytes.extend_from_slice(&chunk.unwrap().blob);
    }
    std::fs::write(&file, bytes).unwrap();

    let locked = Cluster::restored(Settings::alone(), &file, &options()).await;
    let refused = locked.kv(0).range(get("k")).await.unwrap_err();
    assert_eq!(refused.message(), "etcdserver: user name is empty");

    let options = RestoreOptions { disable_auth: true, ..options() };
    let open = Cluster::restored(Settings::alone(), &file, &options).await;
    let read = open.kv(0).range(get("k")).await.unwrap().into_inner();
    assert_eq!(&read.kvs[0].value[..], b"v");
    let mut users = AuthClient::connect(open.client_url(0)).await.unwrap();
    let change = pb::AuthUserChangePasswordRequest {
        name: "root".to_owned(),
        password: "another".to_owned(),
        ..Default::default()
    };
    users.user_change_password(change).await.unwrap();
    users.auth_enable(pb::AuthEnableRequest {}).await.unwrap();
    auth::authenticate(&open, 0, "root", "root-canary").await.unwrap_err();
    let root = auth::authenticate(&open, 0, "root", "another").await.unwrap();
    assert_eq!(&open.kv(0).range(auth::by(&root, get("k"))).await.unwrap().into_inner().kvs[0].value[..], b"v");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_becomes_three_members_with_revisions_and_leases() {
    let old = Cluster::start(Settings::alone()).await;
    let mut kv = old.kv(0);
    let mut leases = LeaseClient::connect(old.client_url(0)).await.unwrap();
    let lease = pb::LeaseGrantRequest { ttl: 600, id: 77 };
    leases.lease_grant(lease).await.unwrap();
    for turn in 0..20 {
        kv.put(put("a", format!("{turn}"))).await.unwrap();
    }
    kv.put(pb::PutRequest { lease: 77, ..put("leased", "1") }).await.unwrap();
    kv.compact(pb::CompactionRequest { revision: 10, physical: true }).await.unwrap();
    kv.put(put("gone", "1")).await.unwrap();
    kv.delete_range(pb::DeleteRangeRequest { key: "gone".into(), ..Default::default() }).await.unwrap();
    let (revision, before) = everything(&old, 0).await;
    wait_until("the lineage has a name", async || old.node(0).status().unwrap().epoch.is_some()).await;
    let dir = tempfile::tempdir().unwrap();
    let file = save(&old, 0, &dir).await;

    let mut new = Cluster::restored(Settings::default(), &file, &options()).await;
    for member in 0..3 {
        let (now, after) = everything(&new, member).await;
        assert_eq!((now, &after[0].kvs), (revision, &before[0].kvs), "member {member}");
        let at_15 = pb::RangeRequest { revision: 15, ..get("a") };
        let past = new.kv(member).range(at_15.clone()).await.unwrap().into_inner();
        assert_eq!(past.kvs, kv.range(at_15).await.unwrap().into_inner().kvs);
        let compacted = new.kv(member).range(pb::RangeRequest { revision: 9, ..get("a") }).await.unwrap_err();
        assert_eq!(compacted.message(), "etcdserver: mvcc: required revision has been compacted");
    }
    let status = new.node(0).status().unwrap();
    wait_until("the new lineage has a name", async || new.node(0).status().unwrap().epoch.is_some()).await;
    assert_ne!(new.node(0).status().unwrap().epoch, old.node(0).status().unwrap().epoch);
    assert_eq!((status.revision.get(), status.compact_revision.get()), (revision, 10));

    let mut leases = LeaseClient::connect(new.client_url(1)).await.unwrap();
    let ask = pb::LeaseTimeToLiveRequest { id: 77, keys: true };
    let standing = leases.lease_time_to_live(ask).await.unwrap().into_inner();
    assert_eq!((standing.granted_ttl, standing.keys), (600, vec!["leased".into()]));
    assert!((1..=610).contains(&standing.ttl), "{}", standing.ttl);
    leases.lease_revoke(pb::LeaseRevokeRequest { id: 77 }).await.unwrap();
    assert_eq!(new.kv(2).range(get("leased")).await.unwrap().into_inner().count, 0);

    let answer = new.kv(2).put(put("a", "new")).await.unwrap().into_inner().header.unwrap();
    assert_eq!((answer.revision, answer.cluster_id), (revision + 2, 8));
    // A member that loses its disk is replaced as in any other cluster.
    let follower = new.follower().await;
    new.crash(follower).await;
    new.wipe(follower);
    new.restart(follower).await;
    new.wait_healthy().await;
    assert_eq!(new.kv(follower).range(get("a")).await.unwrap().into_inner().kvs[0].value, "new");
    let hashes = new.hashes().await;
    assert!(hashes.windows(2).all(|pair| pair[0] == pair[1]), "{hashes:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn bumped_revisions_are_new_and_old_watchers_start_over() {
    let old = Cluster::start(Settings::alone()).await;
    for turn in 0..9 {
        old.kv(0).put(put("a", format!("{turn}"))).await.unwrap();
    }
    let dir = tempfile::tempdir().unwrap();
    let file = save(&old, 0, &dir).await;
    // Clients have seen a revision after the backup.
    let seen = old.kv(0).put(put("a", "lost")).await.unwrap().into_inner().header.unwrap().revision;

    let bumped = RestoreOptions { bump_revision: 1000, mark_compacted: true, ..options() };
    let mut new = Cluster::restored(Settings::default(), &file, &bumped).await;
    for member in 0..3 {
        let found = new.kv(member).range(get("a")).await.unwrap().into_inner();
        assert_eq!((found.kvs[0].value.as_ref(), found.kvs[0].mod_revision), (&b"8"[..], 10));
        assert_eq!(found.header.unwrap().revision, 1010);
        let at = async |revision| new.kv(member).range(pb::RangeRequest { revision, ..get("a") }).await;
        assert_eq!(at(1010).await.unwrap().into_inner().kvs, found.kvs);
        for revision in [10, seen, 1009] {
            let refused = at(revision).await.unwrap_err();
            assert_eq!(refused.message(), "etcdserver: mvcc: required revision has been compacted", "{revision}");
        }
        let response = watch(&new, member, seen).await;
        assert!(response.canceled && response.compact_revision == 1010, "{response:?}");
    }
    let next = new.kv(1).put(put("a", "next")).await.unwrap().into_inner().header.unwrap().revision;
    assert_eq!(next, 1011);
    let response = watch(&new, 2, 1011).await;
    assert_eq!(response.events[0].kv.as_ref().unwrap().value, "next");
    for member in 0..3 {
        new.crash(member).await;
    }
    for member in 0..3 {
        new.restart(member).await;
    }
    new.wait_healthy().await;
    assert_eq!(new.kv(0).range(get("a")).await.unwrap().into_inner().header.unwrap().revision, 1011);
}

/// The first answer, after the confirmation, to a new watch of key `a` from `start_revision` on.
async fn watch(cluster: &Cluster, member: usize, start_revision: i64) -> pb::WatchResponse {
    let create = pb::WatchCreateRequest { key: "a".into(), start_revision, ..Default::default() };
    let request = pb::WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) };
    let (sender, requests) = tokio::sync::mpsc::channel(1);
    sender.send(request).await.unwrap();
    let mut client = WatchClient::connect(cluster.client_url(member)).await.unwrap();
    let requests = tokio_stream::wrappers::ReceiverStream::new(requests);
    let mut answers = client.watch(requests).await.unwrap().into_inner();
    assert!(within("the watch is made", answers.next()).await.unwrap().unwrap().created);
    within("the watch tells something", answers.next()).await.unwrap().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_restored_leaves_nothing_behind() {
    let old = Cluster::start(Settings::alone()).await;
    for turn in 0..50 {
        old.kv(0).put(put(format!("{turn}"), "x".repeat(100))).await.unwrap();
    }
    let dir = tempfile::tempdir().unwrap();
    let file = save(&old, 0, &dir).await;
    let good = std::fs::read(&file).unwrap();
    let damaged = |bytes: Vec<u8>| {
        let path = dir.path().join("damaged");
        std::fs::write(&path, bytes).unwrap();
        path
    };
    let parent = dir.path().join("place");
    std::fs::create_dir(&parent).unwrap();
    let data_dir = parent.join("data");
    let wanted =
        RestoreOptions { file: file.clone(), data_dir: data_dir.clone(), members: old.first_members(), ..options() };
    let names = || -> Vec<String> {
        let entries = std::fs::read_dir(&parent).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    };

    for at in (0..good.len()).step_by(good.len() / 40) {
        let mut bytes = good.clone();
        bytes[at] ^= 4;
        let error = restore(&RestoreOptions { file: damaged(bytes), ..wanted.clone() }).unwrap_err();
        assert!(matches!(error, RestoreError::Backup(_)), "byte {at}: {error}");
        assert_eq!(names(), [""; 0], "byte {at}");
    }
    let cut = RestoreOptions { file: damaged(good[..good.len() / 2].to_vec()), ..wanted.clone() };
    let same = RestoreOptions { cluster_id: ClusterId(7), ..wanted.clone() };
    let bumped = RestoreOptions { bump_revision: 1, ..wanted.clone() };
    let too_far = RestoreOptions { bump_revision: RESTORED_REVISION_MAX - 50, mark_compacted: true, ..wanted.clone() };
    let no_index = RestoreOptions { bump_index: 0, ..wanted.clone() };
    let index_too_far = RestoreOptions { bump_index: RESTORED_INDEX_MAX - 50, ..wanted.clone() };
    let absent = RestoreOptions { file: dir.path().join("absent"), ..wanted.clone() };
    for (options, part) in [
        (cut, "is damaged"),
        (same, "another cluster.token"),
        (bumped, "needs --mark-compacted"),
        (too_far, "the backup is at revision 51"),
        (no_index, "--bump-index must be at least 1"),
        (index_too_far, "the backup is at log index"),
        (absent, "No such file"),
    ] {
        let error = restore(&options).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
        assert_eq!(names(), [""; 0], "{part}");
    }

    // The leftovers of an interrupted restore do not block the next one.
    let left = parent.join("data.restoring");
    std::fs::create_dir_all(left.join("state/gen-1")).unwrap();
    std::fs::write(left.join("state/gen-1/CURRENT"), "half").unwrap();
    restore(&wanted).unwrap();
    assert_eq!(names(), ["data"]);
    let stamp = std::fs::read(data_dir.join("STAMP")).unwrap();
    let error = restore(&wanted).unwrap_err().to_string();
    assert!(error.contains("exists already") && error.contains("--data-dir"), "{error}");
    assert_eq!(std::fs::read(data_dir.join("STAMP")).unwrap(), stamp);

    // A restore does not follow a planted symbolic link: the files behind it stay.
    let victim = dir.path().join("victim");
    std::fs::create_dir(&victim).unwrap();
    std::fs::write(victim.join("file"), "mine").unwrap();
    for (link, part) in [("next.restoring", "symbolic link"), ("next", "exists already")] {
        std::os::unix::fs::symlink(&victim, parent.join(link)).unwrap();
        let error =
            restore(&RestoreOptions { data_dir: parent.join("next"), ..wanted.clone() }).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
        std::fs::remove_file(parent.join(link)).unwrap();
        assert_eq!(std::fs::read(victim.join("file")).unwrap(), b"mine");
        assert_eq!(std::fs::read_dir(&victim).unwrap().count(), 1);
    }
    let open = parent.join("open");
    std::fs::create_dir(&open).unwrap();
    std::fs::set_permissions(&open, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let error = restore(&RestoreOptions { data_dir: open.join("data"), ..wanted.clone() }).unwrap_err().to_string();
    assert!(error.contains("every user may write"), "{error}");
    assert_eq!(std::fs::read_dir(&open).unwrap().count(), 0);

    std::fs::create_dir(parent.join("empty")).unwrap();
    restore(&RestoreOptions { data_dir: parent.join("empty"), ..wanted.clone() }).unwrap();
    std::fs::write(parent.join("file"), "mine").unwrap();
    let error = restore(&RestoreOptions { data_dir: parent.join("file"), ..wanted }).unwrap_err();
    assert!(matches!(error, RestoreError::Exists(_)), "{error}");
    assert_eq!(std::fs::read(parent.join("file")).unwrap(), b"mine");
}

/// A backup with a correct checksum may have any content. A restore of damaged files of RocksDB
/// succeeds or returns an error, and leaves a complete data directory or nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_hostile_backup_with_a_correct_checksum_leaves_nothing_half_made() {
    let old = Cluster::start(Settings::alone()).await;
    for turn in 0..50 {
        old.kv(0).put(put(format!("{turn}"), "x".repeat(100))).await.unwrap();
    }
    let dir = tempfile::tempdir().unwrap();
    let good = std::fs::read(save(&old, 0, &dir).await).unwrap();
    let parent = dir.path().join("place");
    std::fs::create_dir(&parent).unwrap();
    let file = dir.path().join("hostile");
    let wanted =
        RestoreOptions { file: file.clone(), data_dir: parent.join("data"), members: old.first_members(), ..options() };
    let mut refused = 0;
    for seed in 0..80 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut bytes = good[..good.len() - 32].to_vec();
        for _ in 0..rng.random_range(1..30) {
            let at = rng.random_range(0..bytes.len());
            bytes[at] = rng.random();
        }
        let digest = Sha256::digest(&bytes);
        bytes.extend_from_slice(&digest);
        std::fs::write(&file, bytes).unwrap();
        match restore(&wanted) {
            Ok(_) => {
                assert!(wanted.data_dir.join("STAMP").is_file(), "seed {seed}");
                std::fs::remove_dir_all(&wanted.data_dir).unwrap();
            }
            Err(error) => {
                assert!(!error.to_string().is_empty(), "seed {seed}");
                refused += 1;
            }
        }
        assert_eq!(std::fs::read_dir(&parent).unwrap().count(), 0, "seed {seed}");
    }
    assert!(refused > 20, "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn too_many_backups_at_once_are_refused_and_leave_nothing() {
    let cluster = Cluster::start(Settings::alone()).await;
    let mut kv = cluster.kv(0);
    for turn in 0..200 {
        kv.put(put(format!("{turn}"), "x".repeat(10_000))).await.unwrap();
    }
    let ctx = |client: u8| RequestContext {
        client: ClientKey::of_address([127, 0, 0, client].into()),
        ..RequestContext::within(Duration::from_secs(30))
    };
    let refused = Some(headwater::node::NodeError::TooManyRequests);
    let mut open = Vec::new();
    for _ in 1..headwater::types::limits::BACKUPS_MAX {
        open.push(cluster.node(0).maintenance().backup(&ctx(1)).await.unwrap());
    }
    assert_eq!(cluster.node(0).maintenance().backup(&ctx(1)).await.err(), refused, "one is left to others");
    open.push(cluster.node(0).maintenance().backup(&ctx(2)).await.unwrap());
    assert_eq!(cluster.node(0).maintenance().backup(&ctx(3)).await.err(), refused, "no more at once");
    let folders = || std::fs::read_dir(cluster.data_dir(0).join("backups")).unwrap().count();
    assert_eq!(folders(), headwater::types::limits::BACKUPS_MAX);
    drop(open);
    wait_until("the files of backups that nobody reads are gone", async || folders() == 0).await;
    cluster.node(0).maintenance().backup(&ctx(1)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn no_log_index_of_before_is_taken_for_one_of_the_restored_store() {
    let paths = ["/v1/health/service/web", "/v1/catalog/nodes", "/v1/kv/key", "/v1/kv/?recurse", "/v1/session/list"];
    let old = Cluster::start(Settings::alone()).await;
    consul_http::register(&old, 0, "n", "web", "passing").await;
    Client::of(&old, 0).register(&type_of("demo", "v1", "Thing"), Scope::Namespace).await;
    consul_http::put(&old, 0, "/v1/kv/key", "kept").await;
    consul_http::put(&old, 0, "/v1/session/create", "{}").await;
    let mut before = Vec::new();
    for path in paths {
        before.push(consul_http::get(&old, 0, path).await.json);
    }
    let dir = tempfile::tempdir().unwrap();
    let file = save(&old, 0, &dir).await;
    // Writes after the backup: the new cluster lacks them, but its clients have seen their indexes.
    consul_http::register(&old, 0, "n", "web", "warning").await;
    consul_http::put(&old, 0, "/v1/kv/key", "lost").await;
    consul_http::put(&old, 0, "/v1/session/create", "{}").await;
    let mut lost = Vec::new();
    for path in paths {
        lost.push(consul_http::get(&old, 0, path).await.index());
    }
    let last = old.node(0).status().unwrap().applied.get();

    let mut new = Cluster::restored(Settings::default(), &file, &options()).await;
    // As many commands as the old cluster had, so that its indexes are within the new range.
    for turn in 0..last + 10 {
        new.kv(0).put(put("other", turn.to_string())).await.unwrap();
    }
    for member in 0..3 {
        for ((path, before), lost) in paths.iter().zip(&before).zip(&lost) {
            let with = if path.contains('?') { '&' } else { '?' };
            let at_once = format!("{path}{with}index={lost}&wait=600s");
            let answer = within(&at_once, consul_http::get(&new, member, &at_once)).await;
            assert!(answer.index() > *lost && answer.index() > last, "{path}: {answer:?}");
            assert_eq!(&answer.json, before, "{path}");
            // A client can wait with the index of the answer.
            let began = std::time::Instant::now();
            let again = format!("{path}{with}index={}&wait=200ms", answer.index());
            assert_eq!(consul_http::get(&new, member, &again).await.index(), answer.index(), "{path}");
            assert!(began.elapsed() >= Duration::from_millis(200), "{path}");
        }
        // A watch of resources is refused: it would keep resources that were lost.
        let client = Client::of(&new, member).with("headwater-resume-index", last.to_string());
        let refused = client.watch(type_of("demo", "v1", "Thing"), None, "").await.err().map(|status| status.code());
        assert_eq!(refused, Some(tonic::Code::OutOfRange));
        // A minimum index of the old cluster has no meaning here, so the request does not wait.
        let ctx = RequestContext { min_index: Some(LogIndex(last)), ..RequestContext::within(Duration::from_secs(30)) };
        new.node(member).catalog().service_names(&ctx, Default::default()).await.unwrap();
    }
    // A change raises the index.
    let answer = consul_http::get(&new, 0, paths[0]).await;
    consul_http::register(&new, 0, "n", "web", "critical").await;
    assert!(consul_http::get(&new, 1, paths[0]).await.index() > answer.index());

    // A restore of the restored cluster continues upwards.
    let highest = new.node(0).status().unwrap().applied.get();
    assert!((RESTORE_BUMP_INDEX_DEFAULT..1 << 53).contains(&highest), "{highest}");
    let file = save(&new, 0, &dir).await;
    let once_more = RestoreOptions { cluster_id: ClusterId(9), ..options() };
    let mut newest = Cluster::restored(Settings::default(), &file, &once_more).await;
    newest.kv(0).put(put("a", "1")).await.unwrap();
    assert!(newest.node(0).status().unwrap().applied.get() > highest + RESTORE_BUMP_INDEX_DEFAULT);
    // Members catch up, restart and are replaced as in any other cluster.
    for cluster in [&mut new, &mut newest] {
        let follower = cluster.follower().await;
        cluster.crash(follower).await;
        cluster.kv((follower + 1) % 3).put(put("a", "2")).await.unwrap();
        cluster.wipe(follower);
        cluster.restart(follower).await;
        cluster.wait_healthy().await;
        let leader = cluster.leader().await;
        cluster.crash(leader).await;
        cluster.restart(leader).await;
        cluster.wait_healthy().await;
        let hashes = cluster.hashes().await;
        assert!(hashes.windows(2).all(|pair| pair[0] == pair[1]), "{hashes:?}");
    }
}
