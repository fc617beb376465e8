//! Data directories of nodes that do not start: they are inspected and salvaged, and a new cluster
//! is made from the backup.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use bytes::Bytes;
use headwater::codec::{decode_proposal, encode_proposal};
use headwater::node::{RestoreOptions, Salvage, SalvageOptions, salvage, write_backup};
use headwater::pb::etcdserverpb as pb;
use headwater::pb::etcdserverpb::kv_client::KvClient;
use headwater::server::inspect::{Inspection, inspect};
use headwater::storage::data_dir::{DataDir, Layout};
use headwater::storage::log::{LogDb, LogInspector, LogOptions, LogRecord, RecordKind};
use headwater::types::limits::RESTORE_BUMP_INDEX_DEFAULT;
use headwater::types::{ClusterId, Command, LeaseChoice, LogIndex, NodeId, Proposal, Put, Supported, ValueChoice};
use tokio::net::TcpListener;
use tokio::process::Command as Process;
use tonic::transport::Channel;

use crate::cluster::{Cluster, Settings, get, put, wait_until, within};

/// An encoded put without the lease field, which every put in the log has. No member can apply it:
/// it stops each of them at every start.
const POISON: &[u8] = b"\x01\x5a\x06\x0a\x01k\x12\x01v";

/// Every file below `dir` with its content.
fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.insert(path.clone(), std::fs::read(&path).unwrap());
        }
    }
    found
}

/// Inspects the data directory `dir`, and asserts that its files stay the same.
fn inspected(dir: &Path) -> Inspection {
    let before = files(dir);
    let mut visit = |record: LogRecord| match record.kind {
        RecordKind::Normal if !record.payload.is_empty() => {
            decode_proposal(record.payload, Supported::RELEASE).map(drop)
        }
        RecordKind::Blank | RecordKind::Normal | RecordKind::Membership => Ok(()),
    };
    let found = inspect(dir, Supported::RELEASE, &mut visit, &mut |_| {}).unwrap();
    assert!(files(dir) == before, "an inspection changed the directory");
    found
}

fn damage(found: &Inspection) -> Vec<String> {
    found.damage.kept().iter().map(ToString::to_string).collect()
}

/// Salvages the data directory `dir` and asserts that its files stay the same. `change` adapts the
/// options. Returns the report and the backup file, or the text of the error.
fn salvaged(dir: &Path, change: impl FnOnce(&mut SalvageOptions)) -> Result<(Salvage, PathBuf), String> {
    let before = files(dir);
    let mut options = SalvageOptions {
        data_dir: dir.to_owned(),
        work_dir: dir.with_extension("work"),
        skip: BTreeSet::new(),
        committed_only: false,
        supported: Supported::RELEASE,
    };
    change(&mut options);
    let done = salvage(&options, &mut |_| {}).map_err(|error| error.to_string());
    let done = done.map(|salvage| {
        let file = dir.with_extension("backup");
        write_backup(&salvage.backup, &file, &mut |_| {}).unwrap();
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        (salvage, file)
    });
    assert!(files(dir) == before, "a backup changed the directory");
    done
}

/// A copy of the state's files of a member. An orderly end writes the whole state to disk; with the
/// copy put back, the directory is like that of a process that was killed.
struct EarlyState {
    dir: PathBuf,
    files: BTreeMap<PathBuf, Vec<u8>>,
}

impl EarlyState {
    fn of(dir: &Path) -> Self {
        let dir = Layout::new(dir).state_dir();
        Self { files: files(&dir), dir }
    }

    /// Replaces the present files of the state by the copy.
    fn put_back(&self) {
        std::fs::remove_dir_all(&self.dir).unwrap();
        for (path, content) in &self.files {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }
    }
}

async fn restored(file: &Path, members: usize) -> Cluster {
    let options = RestoreOptions {
        file: PathBuf::new(),
        data_dir: PathBuf::new(),
        node_id: NodeId(1),
        cluster_id: ClusterId(8),
        members: BTreeMap::new(),
        bump_index: RESTORE_BUMP_INDEX_DEFAULT,
        bump_revision: 0,
        mark_compacted: false,
        disable_auth: false,
    };
    Cluster::restored(Settings { members, ..Settings::default() }, file, &options).await
}

/// Revision of the store and all its pairs, by a linearizable read.
async fn everything(kv: &mut KvClient<Channel>) -> (i64, Vec<headwater::pb::mvccpb::KeyValue>) {
    let all = pb::RangeRequest { key: "\0".into(), range_end: "\0".into(), ..Default::default() };
    let found = within("a read", kv.range(all)).await.unwrap().into_inner();
    (found.header.unwrap().revision, found.kvs)
}

/// Appends entries with these payloads to the Raft log of a node that does not run; returns the log
/// index of the first one.
fn append(dir: &Path, payloads: &[Bytes]) -> LogIndex {
    let identity = DataDir::identity(dir, Supported::RELEASE).unwrap().unwrap();
    let options = LogOptions { store_id: identity.store_id, create: false, ..LogOptions::default() };
    let log = LogDb::open(&Layout::new(dir).log_dir(), options).unwrap();
    let last = log.state().unwrap().last.unwrap();
    let records = payloads.iter().zip(last.index.get() + 1..).map(|(payload, index)| LogRecord {
        term: last.term,
        index: LogIndex(index),
        kind: RecordKind::Normal,
        payload: payload.clone(),
    });
    log.append(records.collect(), |written| written.unwrap());
    log.close();
    last.index.next()
}

fn encoded_put(key: &'static str) -> Bytes {
    let put = Put {
        key: Bytes::from_static(key.as_bytes()),
        value: ValueChoice::Set(Bytes::from_static(b"v")),
        lease: LeaseChoice::KeepIfPresent,
        prev_kv: false,
    };
    encode_proposal(&Proposal::new(1, Command::Put(put))).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_acknowledged_write_is_saved_from_a_survivor_that_was_killed() {
    let mut old = Cluster::three().await;
    let mut early = Vec::new();
    for member in 0..3 {
        old.crash(member).await;
        early.push(EarlyState::of(&old.data_dir(member)));
        old.restart(member).await;
        old.wait_healthy().await;
    }
    let mut members = [0, 1, 2].map(|member| old.kv(member));
    for turn in 0..300 {
        members[turn % 3].put(put(format!("k{turn}"), format!("v{turn}"))).await.unwrap();
    }
    old.kv(0).delete_range(pb::DeleteRangeRequest { key: "k7".into(), ..Default::default() }).await.unwrap();
    let wanted = everything(&mut old.kv(0)).await;
    for member in 1..3 {
        assert_eq!(everything(&mut old.kv(member)).await, wanted, "every member has every write");
    }
    for member in 0..3 {
        old.crash(member).await;
    }
    // A leader may have sent a snapshot to a member after its early state was kept: the entries in
    // between are gone from that member's log.
    let is_whole = |member: &usize| inspected(&old.data_dir(*member)).log.first == Some(LogIndex::ZERO);
    let survivor = (0..3).find(is_whole).expect("a member that was sent no snapshot");
    early[survivor].put_back();
    let dir = old.data_dir(survivor);
    let found = inspected(&dir);
    assert!(found.damage.is_empty(), "{:?}", damage(&found));
    assert!(found.entries > 300 && found.log.vote.is_some(), "{found:?}");

    let (salvage, file) = salvaged(&dir, |_| {}).unwrap();
    let report = &salvage.report;
    assert_eq!((report.left_out, &report.why), (None, &None));
    assert_eq!(report.applied, found.log.last.unwrap().index, "all of the log");
    assert!(report.on_disk.get() + 300 < report.applied.get(), "most of it is in the log alone: {report:?}");
    // The directory is locked while the backup is in use, and free afterwards.
    assert!(inspect(&dir, Supported::RELEASE, &mut |_| Ok(()), &mut |_| {}).is_err());
    drop(salvage);
    assert!(!dir.with_extension("work").exists());

    let (salvage, _) = salvaged(&dir, |options| options.committed_only = true).unwrap();
    let known = report_known(&salvage);
    assert!(salvage.report.applied <= known && salvage.report.unconfirmed.is_none(), "{:?}", salvage.report);
    drop(salvage);

    for members in [1, 3] {
        let new = restored(&file, members).await;
        assert_eq!(everything(&mut new.kv(members - 1)).await, wanted, "{members} members");
        new.kv(0).put(put("new", "v")).await.unwrap();
    }
}

/// Index of the last log entry that is known to be committed: from the log's own record, or because
/// the state on disk has it. Zero if none is known.
fn report_known(salvage: &Salvage) -> LogIndex {
    salvage.report.committed.unwrap_or(LogIndex::ZERO).max(salvage.report.on_disk)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_that_no_member_can_apply_is_named_and_can_be_left_out() {
    let mut old = Cluster::start(Settings::alone()).await;
    for turn in 0..20 {
        old.kv(0).put(put(format!("k{turn}"), "v")).await.unwrap();
    }
    old.crash(0).await;
    let dir = old.data_dir(0);
    let poison = append(&dir, &[Bytes::from_static(POISON), encoded_put("behind")]);

    // The node ends at every start, and says why.
    old.try_start(0).await.unwrap();
    let why = within("the node ends", old.ended(0)).await;
    let wanted = format!("log entry {poison} cannot be applied: Put.lease is missing");
    assert!(why.contains(&wanted), "{why}");
    old.crash(0).await;

    let found = inspected(&dir);
    let named = format!("log/entries/{poison}: whole, but no member can apply it: Put.lease is missing");
    assert_eq!(damage(&found), [named]);

    let (salvage, file) = salvaged(&dir, |_| {}).unwrap();
    assert_eq!(salvage.report.applied.next(), poison);
    let left_out = salvage.report.left_out.unwrap();
    assert!(left_out.first == poison && left_out.last > poison, "{left_out:?}");
    assert!(salvage.report.why.as_ref().unwrap().contains(&wanted), "{:?}", salvage.report);
    let new = restored(&file, 1).await;
    let (_, pairs) = everything(&mut new.kv(0)).await;
    assert_eq!(pairs.len(), 20);
    drop(salvage);

    let (salvage, file) = salvaged(&dir, |options| options.skip.extend([poison])).unwrap();
    assert_eq!((salvage.report.left_out, &salvage.report.skipped), (None, &vec![poison]));
    let new = restored(&file, 1).await;
    assert_eq!(new.kv(0).range(get("behind")).await.unwrap().into_inner().count, 1);
    assert_eq!(everything(&mut new.kv(0)).await.1.len(), 21);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_was_damaged_by_hand_is_saved_as_far_as_it_is_whole() {
    let mut old = Cluster::start(Settings::alone()).await;
    old.crash(0).await;
    let early = EarlyState::of(&old.data_dir(0));
    old.restart(0).await;
    old.wait_healthy().await;
    let mut kv = old.kv(0);
    for turn in 0..500 {
        kv.put(put(format!("k{turn:03}"), "x".repeat(1000))).await.unwrap();
    }
    old.crash(0).await;
    early.put_back();
    let dir = old.data_dir(0);
    let paths = |extension: &str| -> Vec<PathBuf> {
        let is_one = |path: &PathBuf| path.extension().is_some_and(|found| found == extension);
        files(&dir).into_keys().filter(is_one).collect()
    };
    // In the middle of the log.
    let mut segments = paths("segment");
    let segment = segments.remove(segments.len() / 2);
    let good = std::fs::read(&segment).unwrap();
    let mut bad = good.clone();
    let middle = bad.len() / 2;
    bad[middle..middle + 8].fill(0xee);
    std::fs::write(&segment, &bad).unwrap();
    let refused = old.try_start(0).await.unwrap_err().to_string();
    assert!(refused.contains("acknowledged data is lost"), "{refused}");
    let found = inspected(&dir);
    let name = segment.file_name().unwrap().to_str().unwrap();
    assert!(damage(&found)[0].contains(name), "{:?}", damage(&found));
    let (salvage, file) = salvaged(&dir, |_| {}).unwrap();
    assert!(salvage.report.left_out.is_some(), "{:?}", salvage.report);
    assert!(!salvage.report.log_damage.is_empty(), "{:?}", salvage.report);
    let new = restored(&file, 1).await;
    let (_, pairs) = everything(&mut new.kv(0)).await;
    assert!((100..400).contains(&pairs.len()), "{}", pairs.len());
    assert!(
        pairs.iter().enumerate().all(|(turn, pair)| pair.key == format!("k{turn:03}")),
        "a prefix of what was written"
    );
    drop((salvage, new));

    // A damaged state is no source of a backup, and each damaged file is named.
    std::fs::write(&segment, &good).unwrap();
    old.restart(0).await;
    old.wait_healthy().await;
    old.stop(0).await;
    let is_state = |path: &PathBuf| path.starts_with(Layout::new(&dir).state_dir());
    let table =
        paths("sst").into_iter().filter(is_state).max_by_key(|path| std::fs::metadata(path).unwrap().len()).unwrap();
    let mut bytes = std::fs::read(&table).unwrap();
    bytes[100] ^= 1;
    std::fs::write(&table, bytes).unwrap();
    let name = table.file_name().unwrap().to_str().unwrap();
    let found = inspected(&dir);
    assert!(damage(&found)[0].contains(name), "{:?}", damage(&found));
    // The log reaches back to the first entry, so that the state is not needed.
    let (salvage, file) = salvaged(&dir, |_| {}).unwrap();
    assert_eq!((salvage.report.on_disk, salvage.report.state_damage.count()), (LogIndex::ZERO, 1));
    let new = restored(&file, 1).await;
    assert_eq!(everything(&mut new.kv(0)).await.1.len(), 500);
    drop((salvage, new));
    // A log without its first entries is of no use without the state.
    let identity = DataDir::identity(&dir, Supported::RELEASE).unwrap().unwrap();
    let options = LogOptions { store_id: identity.store_id, create: false, ..LogOptions::default() };
    let log = LogDb::open(&Layout::new(&dir).log_dir(), options).unwrap();
    let first = log.read(LogIndex(10)..LogIndex(11)).unwrap()[0].id();
    log.purge(first, |purged| purged.unwrap());
    log.close();
    drop(log);
    let refused = salvaged(&dir, |_| {}).err().unwrap();
    assert!(refused.contains(name) && refused.contains("is damaged, and no backup"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_in_use_is_not_read() {
    let cluster = Cluster::start(Settings::alone()).await;
    let dir = cluster.data_dir(0);
    let refused = inspect(&dir, Supported::RELEASE, &mut |_| Ok(()), &mut |_| {}).unwrap_err().to_string();
    assert!(refused.contains("in use by another process"), "{refused}");
    let mut log = LogInspector::open(&dir.join("nothing"));
    log.read(LogIndex::ZERO, |_| ControlFlow::Continue(()));
    assert!(!log.damage().is_empty() && !dir.join("nothing").exists());
}

async fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().to_string()
}

/// The program with the umask 000: files that it makes are open to all users, unless it restricts
/// them itself.
fn without_umask() -> Process {
    let mut process = Process::new("sh");
    process.args(["-c", "umask 000; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_headwater")]);
    process.kill_on_drop(true);
    process
}

async fn run(arguments: &[&str]) -> Output {
    within("a command", without_umask().args(arguments).output()).await.unwrap()
}

async fn connected(address: &str) -> KvClient<Channel> {
    let mut kv = None;
    wait_until("the node serves", async || {
        kv = KvClient::connect(format!("http://{address}")).await.ok();
        kv.is_some()
    })
    .await;
    kv.expect("connected above")
}

/// `dir`, and the files and folders below it, as far as other users have any access to them.
fn open_to_others(dir: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        let mode = |path: &Path| std::fs::symlink_metadata(path).unwrap().permissions().mode();
        if mode(&folder) & 0o077 != 0 {
            found.push(folder.display().to_string());
        }
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if mode(&path) & 0o077 != 0 {
                found.push(path.display().to_string());
            }
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn no_file_is_open_to_others_and_a_survivor_becomes_a_cluster() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let (client, peer) = (free_address().await, free_address().await);
    let serve = |data: &str| {
        let mut node = without_umask();
        node.args(["serve", "--listen-client", &client, "--listen-peer", &peer, "--raft-snapshot-every", "20"]);
        node.args(["--listen-client-unix", &path("socket"), "--data-dir", &path(data)]).stderr(Stdio::null());
        node
    };
    let mut node = serve("data").spawn().unwrap();
    let mut kv = connected(&client).await;
    for turn in 0..50 {
        within("a put", kv.put(put(format!("k{turn}"), "v"))).await.unwrap();
    }
    // A hang-up does not end the process.
    let pid = node.id().unwrap().to_string();
    assert!(Process::new("kill").args(["-HUP", &pid]).status().await.unwrap().success());
    within("a put after SIGHUP", kv.put(put("last", "v"))).await.unwrap();
    let saved = run(&["snapshot", "save", &path("online.db"), "--endpoints", &client]).await;
    assert!(saved.status.success(), "{saved:?}");
    assert_eq!(open_to_others(&dir.path().join("data")), [""; 0]);
    let mode = |name: &str| std::fs::metadata(path(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("online.db"), mode("socket")), (0o600, 0o660));
    let busy = run(&["log", "inspect", &path("data")]).await;
    assert!(!busy.status.success() && String::from_utf8_lossy(&busy.stderr).contains("in use"), "{busy:?}");
    node.kill().await.unwrap();

    let inspected = run(&["log", "inspect", &path("data"), "--limit", "3", "-w", "json"]).await;
    assert!(inspected.status.success(), "{inspected:?}");
    let report: serde_json::Value = serde_json::from_slice(&inspected.stdout).unwrap();
    assert_eq!((report["damaged"].as_u64(), report["entries"].as_array().unwrap().len()), (Some(0), 3));
    let text = run(&["log", "inspect", &path("data")]).await;
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains("Put \"last\", value of 1 bytes") && text.contains("no damage"), "{text}");
    let saved = run(&["snapshot", "save", "--from", &path("data"), &path("offline.db")]).await;
    assert!(saved.status.success(), "{saved:?}");
    assert_eq!(mode("offline.db"), 0o600);

    let recover = ["recover", &path("data"), "--data-dir", &path("new"), "--cluster-token", "after"];
    let member = ["--listen-client", &client, "--listen-peer", &peer];
    let unconfirmed = run(&[&recover[..], &member[..]].concat()).await;
    let stderr = String::from_utf8_lossy(&unconfirmed.stderr).into_owned();
    assert_eq!(unconfirmed.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("up to log entry") && stderr.contains("--yes-i-have-lost-the-majority"), "{stderr}");
    assert!(!dir.path().join("new").exists() && !dir.path().join("new.recovering").exists());
    let before = files(&dir.path().join("data"));
    let confirmed = run(&[&recover[..], &member[..], &["--yes-i-have-lost-the-majority"]].concat()).await;
    assert!(confirmed.status.success(), "{confirmed:?}");
    assert!(files(&dir.path().join("data")) == before, "the survivor's directory is unchanged");
    assert_eq!(open_to_others(&dir.path().join("new")), [""; 0]);

    let mut node = serve("new").args(["--cluster-token", "after"]).spawn().unwrap();
    let mut kv = connected(&client).await;
    assert_eq!(within("a read", kv.range(get("last"))).await.unwrap().into_inner().count, 1);
    assert_eq!(everything(&mut kv).await.1.len(), 51);
    // Further nodes join the new cluster, by invitation.
    wait_until("the version has risen, and the node makes an invitation", async || {
        run(&["--endpoints", &client, "member", "invite", "--out", &path("token")]).await.status.success()
    })
    .await;
    assert_eq!(mode("token"), 0o600);
    let (second_client, second_peer) = (free_address().await, free_address().await);
    let mut second = without_umask();
    second.args(["serve", "--join", &client, "--node-name", "second", "--data-dir", &path("second")]);
    second.args(["--join-token-file", &path("token")]);
    second.args(["--listen-client", &second_client, "--listen-peer", &second_peer]).stderr(Stdio::null());
    let mut second = second.spawn().unwrap();
    let mut kv = connected(&second_client).await;
    within("the second member serves", async {
        wait_until("it has joined", async || {
            kv.range(get("last")).await.is_ok_and(|found| found.into_inner().count == 1)
        })
        .await;
    })
    .await;
    within("a put", kv.put(put("joined", "v"))).await.unwrap();
    node.kill().await.unwrap();
    second.kill().await.unwrap();
}
