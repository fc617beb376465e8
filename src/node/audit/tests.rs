//! The content of lines, sampling, rotation, and the modes of files.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::*;
use headwater_types::KeyRange;

fn options(dir: &Path) -> AuditOptions {
    AuditOptions { file: dir.join("audit.log"), rotate_bytes: 1 << 20, keep: 2, level: AuditLevel::All }
}

fn line(method: &str, allowed: bool) -> AuditLine {
    AuditLine {
        time: Some(SystemTime::UNIX_EPOCH),
        who: AuditIdentity::User("alice".to_owned()),
        from: "10.0.0.7:4711".to_owned(),
        face: "etcd",
        method: method.into(),
        on: Vec::new(),
        allowed,
        index: None,
        repeated: 0,
    }
}

/// Writes `lines` to a new log, closes it, and returns the lines of its file.
fn written(options: &AuditOptions, lines: Vec<AuditLine>) -> Vec<String> {
    let log = AuditLog::open(options.clone(), &Registry::new()).unwrap();
    lines.into_iter().for_each(|line| log.write(line));
    close(log, options)
}

fn counters() -> IntCounterVec {
    IntCounterVec::new(Opts::new("lines", "Lines."), &["result"]).unwrap()
}

fn writer(
    options: &AuditOptions,
    lines: Receiver<AuditLine>,
    refusals: &Arc<Mutex<Refusals>>,
    dropped: &Arc<AtomicU64>,
    counters: &IntCounterVec,
) -> Writer {
    Writer {
        file: AuditFile::open(options).unwrap(),
        lines,
        refusals: Arc::clone(refusals),
        dropped: Arc::clone(dropped),
        counted: counters.with_label_values(&["written"]),
        lost: counters.with_label_values(&["dropped"]),
        is_failing: false,
    }
}

/// Drops the log, waits until the thread of the writer has ended, and returns the lines of the
/// file.
fn close(log: AuditLog, options: &AuditOptions) -> Vec<String> {
    let dropped = Arc::clone(&log.inner.as_ref().unwrap().dropped);
    drop(log);
    // The writer is the last holder.
    while Arc::strong_count(&dropped) > 1 {
        std::thread::yield_now();
    }
    std::fs::read_to_string(&options.file).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn a_line_has_names_and_keys() {
    let dir = tempfile::tempdir().unwrap();
    let on = vec![
        AuditInterval { space: "keys", keys: KeyRange::One("a\"b".into()), rights: "write" },
        AuditInterval { space: "keys", keys: KeyRange::prefix("p/".into()), rights: "read" },
        AuditInterval { space: "keys", keys: KeyRange::Span { start: vec![0, 255].into(), end: None }, rights: "read" },
    ];
    let lines = vec![
        AuditLine { on, index: Some(17), ..line("/etcdserverpb.KV/Txn", true) },
        AuditLine { who: AuditIdentity::Anonymous, from: String::new(), ..line("GET /v1/kv/", false) },
        AuditLine { who: AuditIdentity::Token("a-1".to_owned()), ..line("x", true) },
    ];
    let found = written(&options(dir.path()), lines);
    let head = r#"{"time":"1970-01-01T00:00:00.000Z","who":"#;
    assert_eq!(
        found,
        [
            format!(
                r#"{head}{{"user":"alice"}},"from":"10.0.0.7:4711","face":"etcd","method":"/etcdserverpb.KV/Txn","on":[{{"space":"keys","key":"a\"b","rights":"write"}},{{"space":"keys","from":"p/","to":"p0","rights":"read"}},{{"space":"keys","from_hex":"00ff","rights":"read"}}],"allowed":true,"index":17}}"#
            ),
            format!(r#"{head}"anonymous","from":"","face":"etcd","method":"GET /v1/kv/","allowed":false}}"#),
            format!(r#"{head}{{"token":"a-1"}},"from":"10.0.0.7:4711","face":"etcd","method":"x","allowed":true}}"#),
        ]
    );
}

#[test]
fn repeated_refusals_are_counted() {
    let mut refusals = Refusals::default();
    let began = Instant::now();
    let at = |millis: u64| began + Duration::from_millis(millis);
    let mut sample = |method, millis| refusals.sample(line(method, false), at(millis)).map(|line| line.repeated);
    assert_eq!(sample("a", 0), Some(0));
    assert_eq!(sample("a", 10), None);
    assert_eq!(sample("b", 20), Some(0), "of another method");
    assert_eq!(sample("a", 999), None);
    assert_eq!(sample("a", 1000), Some(2), "two had no line");
    assert_eq!(sample("a", 1500), None);
    assert_eq!(sample("a", 1600), None);
    assert_eq!(refusals.take_due(at(1700)), []);
    let due = refusals.take_due(at(2100));
    assert_eq!(due.iter().map(|line| (&*line.method, line.repeated)).collect::<Vec<_>>(), [("a", 1)]);
    assert_eq!(refusals.take_due(at(9000)), []);
    assert!(refusals.recent.is_empty(), "nothing is remembered for ever");
}

#[test]
fn refusals_that_were_only_counted_are_written_at_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let options = options(dir.path());
    let refusals = Arc::new(Mutex::new(Refusals::default()));
    for method in ["a", "a", "b", "a"] {
        let _written = refusals.lock().sample(line(method, false), Instant::now());
    }
    let (queue, lines) = sync_channel(1);
    drop(queue);
    let (dropped, counters) = (Arc::default(), counters());
    writer(&options, lines, &refusals, &dropped, &counters).run();
    let text = std::fs::read_to_string(&options.file).unwrap();
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(text.contains(r#""method":"a""#) && text.contains(r#""repeated":1"#), "{text}");
}

#[test]
fn kinds_of_refusals_are_bounded() {
    let mut refusals = Refusals::default();
    let now = Instant::now();
    for number in 0..AUDIT_REFUSALS_REMEMBERED_MAX + 10 {
        assert!(refusals.sample(line(&number.to_string(), false), now).is_some());
    }
    assert_eq!(refusals.recent.len(), AUDIT_REFUSALS_REMEMBERED_MAX);
}

#[test]
fn files_are_rotated_and_private() {
    let dir = tempfile::tempdir().unwrap();
    let options = AuditOptions { rotate_bytes: 300, ..options(dir.path()) };
    std::fs::write(&options.file, "").unwrap();
    std::fs::set_permissions(&options.file, std::fs::Permissions::from_mode(0o644)).unwrap();
    let mut file = AuditFile::open(&options).unwrap();
    for number in 0..5 {
        file.append(format!("{number:0149}\n").as_bytes()).unwrap();
        file.append(format!("{number:0149}\n").as_bytes()).unwrap();
    }
    let mut names: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["audit.log", "audit.log.1", "audit.log.2"]);
    for (name, number) in [("audit.log", '4'), ("audit.log.1", '3'), ("audit.log.2", '2')] {
        let path = dir.path().join(name);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.len() == 300 && text.trim_end().ends_with(number), "{name}: {text}");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600, "{name}");
    }
}

#[test]
fn a_full_file_is_removed_if_none_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let options = AuditOptions { rotate_bytes: 300, keep: 0, ..options(dir.path()) };
    let mut file = AuditFile::open(&options).unwrap();
    for number in 0..5 {
        file.append(format!("{number:0199}\n").as_bytes()).unwrap();
    }
    let names: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["audit.log"]);
    assert_eq!(std::fs::read_to_string(&options.file).unwrap(), format!("{:0199}\n", 4));
}

#[test]
fn a_link_is_not_followed() {
    let dir = tempfile::tempdir().unwrap();
    let options = options(dir.path());
    std::os::unix::fs::symlink(dir.path().join("elsewhere"), &options.file).unwrap();
    assert!(AuditLog::open(options, &Registry::new()).is_err());
    assert!(!dir.path().join("elsewhere").exists());
}

#[test]
fn levels_take_what_they_say() {
    let dir = tempfile::tempdir().unwrap();
    for (level, wanted) in
        [(AuditLevel::Denied, [false, false]), (AuditLevel::Changes, [false, true]), (AuditLevel::All, [true, true])]
    {
        let log = AuditLog::open(AuditOptions { level, ..options(dir.path()) }, &Registry::new()).unwrap();
        assert_eq!([log.takes(false), log.takes(true)], wanted, "{level:?}");
    }
    assert!(!AuditLog::off().takes(true));
}

#[test]
fn lines_that_find_no_room_are_counted_in_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let options = options(dir.path());
    let (queue, lines) = sync_channel(2);
    let dropped = Arc::new(AtomicU64::new(0));
    let refusals = Arc::new(Mutex::new(Refusals::default()));
    let written = counters();
    let log = AuditLog {
        inner: Some(Arc::new(Inner {
            level: AuditLevel::All,
            queue,
            dropped: Arc::clone(&dropped),
            written: written.clone(),
            refusals: Arc::clone(&refusals),
        })),
    };
    for _ in 0..5 {
        log.write(line("m", true));
    }
    // A refusal that stands for four others.
    let refused = line("n", false);
    let key = RefusalKey { who: refused.who.to_string(), method: Arc::clone(&refused.method) };
    let refusal = Refused { written: Instant::now().checked_sub(SAMPLE_INTERVAL).unwrap(), counted: 4, last: None };
    refusals.lock().recent.insert(key, refusal);
    log.write(refused);
    let writer = writer(&options, lines, &refusals, &dropped, &written);
    drop(log);
    writer.run();
    let text = std::fs::read_to_string(&options.file).unwrap();
    assert_eq!(text.lines().count(), 3, "{text}");
    assert!(text.lines().next().unwrap().ends_with(r#""dropped":8}"#), "{text}");
    assert_eq!(written.with_label_values(&["dropped"]).get(), 8);
}

#[test]
fn lines_that_the_disk_refuses_are_counted_with_what_they_stand_for() {
    let dir = tempfile::tempdir().unwrap();
    let options = AuditOptions { rotate_bytes: 1, ..options(dir.path()) };
    let (_queue, lines) = sync_channel(1);
    let (refusals, dropped, counters) = (Arc::default(), Arc::new(AtomicU64::new(2)), counters());
    let mut writer = writer(&options, lines, &refusals, &dropped, &counters);
    writer.write(&[line("m", true)]);
    assert_eq!(dropped.load(Ordering::Relaxed), 0);
    // The file cannot be rotated.
    drop(dir);
    dropped.store(2, Ordering::Relaxed);
    writer.write(&[line("m", true), AuditLine { repeated: 4, ..line("n", false) }]);
    assert_eq!(dropped.load(Ordering::Relaxed), 2 + 1 + 5);
    assert_eq!(counters.with_label_values(&["dropped"]).get(), 6);
}
