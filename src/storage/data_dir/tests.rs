use super::notes::INCARNATION;
use super::stamp::{DRAFT, HEADER, STAMP, Stamp};
use super::*;

const RELEASE: Supported = Supported::RELEASE;
const OWNER: Owner = Owner { cluster_id: ClusterId(0xabc), node_id: NodeId(3) };

fn refusal(path: &Path, owner: Owner) -> String {
    match DataDir::open(path, owner, RELEASE).unwrap_err() {
        StorageError::WrongDirectory { detail, .. } => detail,
        other => panic!("{other}"),
    }
}

#[test]
fn a_new_directory_is_stamped_once_and_recognised_later() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("some/where");
    let first = DataDir::open(&path, OWNER, RELEASE).unwrap();
    assert!(!first.is_in_use());
    first.mark_in_use().unwrap();
    let store_id = first.store_id();
    drop(first);
    let second = DataDir::open(&path, OWNER, RELEASE).unwrap();
    assert!(second.is_in_use());
    assert_eq!(second.store_id(), store_id);
    let other = DataDir::open(&temp.path().join("other"), OWNER, RELEASE).unwrap();
    assert_ne!(other.store_id(), store_id, "a directory made anew is another store");
}

#[test]
fn golden_text() {
    let temp = tempfile::tempdir().unwrap();
    Stamp { owner: OWNER, store_id: 0x1f, in_use: true, needs: Version::V0_3 }.write(temp.path()).unwrap();
    let text = fs::read_to_string(temp.path().join(STAMP)).unwrap();
    let wanted = "format = 3\ncluster_id = \"0000000000000abc\"\nnode_id = \"3\"\n\
                  store_id = \"000000000000001f\"\nin_use = true\n";
    assert_eq!(text.strip_prefix(HEADER), Some(wanted));
    assert_eq!(DataDir::open(temp.path(), OWNER, RELEASE).unwrap().store_id(), 0x1f);
}

#[test]
fn the_message_says_what_differs_and_what_to_do() {
    let temp = tempfile::tempdir().unwrap();
    drop(DataDir::open(temp.path(), OWNER, RELEASE).unwrap());
    let cases = [
        (Owner { node_id: NodeId(4), ..OWNER }, "configured as node 4 of cluster 0000000000000abc"),
        (Owner { cluster_id: ClusterId(1), ..OWNER }, "configured as node 3 of cluster 0000000000000001"),
    ];
    for (owner, wanted) in cases {
        let detail = refusal(temp.path(), owner);
        assert!(detail.contains("belongs to node 3 of cluster 0000000000000abc"), "{detail}");
        assert!(detail.contains(wanted) && detail.contains("choose another data directory"), "{detail}");
    }
    DataDir::open(temp.path(), OWNER, RELEASE).unwrap();
}

#[test]
fn only_one_process_at_a_time() {
    let temp = tempfile::tempdir().unwrap();
    let held = DataDir::open(temp.path(), OWNER, RELEASE).unwrap();
    let detail = refusal(temp.path(), OWNER);
    let wanted = format!("data directory is in use by another process (pid {})", std::process::id());
    assert!(detail.contains(&wanted), "{detail}");
    drop(held);
    DataDir::open(temp.path(), OWNER, RELEASE).unwrap();
}

#[test]
fn files_of_others_are_left_alone() {
    let temp = tempfile::tempdir().unwrap();
    fs::write(temp.path().join("thesis.doc"), "x").unwrap();
    let detail = refusal(temp.path(), OWNER);
    assert!(detail.contains("thesis.doc") && detail.contains("choose an empty one"), "{detail}");
    assert!(!temp.path().join(STAMP).exists());
}

#[test]
fn an_interrupted_first_start_begins_again() {
    let temp = tempfile::tempdir().unwrap();
    fs::create_dir(temp.path().join("lost+found")).unwrap();
    fs::write(temp.path().join(DRAFT), "form").unwrap();
    assert!(!DataDir::open(temp.path(), OWNER, RELEASE).unwrap().is_in_use());
}

#[test]
fn a_directory_that_joins_keeps_its_number_until_it_has_an_owner() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("new");
    let incarnation = DataDir::incarnation(&path).unwrap();
    assert_eq!(DataDir::incarnation(&path).unwrap(), incarnation, "asked again after a crash");
    assert_eq!(DataDir::owner(&path, RELEASE).unwrap(), None);
    drop(DataDir::open(&path, OWNER, RELEASE).unwrap());
    assert_eq!(DataDir::owner(&path, RELEASE).unwrap(), Some(OWNER));
    assert!(!path.join(INCARNATION).exists());
    fs::remove_dir_all(&path).unwrap();
    assert_ne!(DataDir::incarnation(&path).unwrap(), incarnation, "a wiped directory is another one");
    fs::write(path.join(INCARNATION), "x").unwrap();
    assert!(matches!(DataDir::incarnation(&path), Err(StorageError::Corrupt { .. })));
    fs::remove_file(path.join(INCARNATION)).unwrap();
    fs::write(path.join("thesis.doc"), "x").unwrap();
    assert!(matches!(DataDir::incarnation(&path), Err(StorageError::WrongDirectory { .. })));
}

#[test]
fn a_damaged_or_newer_stamp_is_refused() {
    let temp = tempfile::tempdir().unwrap();
    drop(DataDir::open(temp.path(), OWNER, RELEASE).unwrap());
    let file = temp.path().join(STAMP);
    let good = fs::read_to_string(&file).unwrap();

    let newer = good.replace("format = 3", "format = 5").replace("in_use", "used_since");
    fs::write(&file, &newer).unwrap();
    let error = DataDir::open(temp.path(), OWNER, RELEASE).unwrap_err();
    assert!(matches!(error, StorageError::TooNew(_)), "{error}");
    assert!(error.to_string().contains("needs version 0.5, and this program is version 0.4"), "{error}");
    assert_eq!(fs::read_to_string(&file).unwrap(), newer);
    fs::write(&file, good.replace("format = 3", "format = 1")).unwrap();
    assert_eq!(DataDir::open(temp.path(), OWNER, RELEASE).unwrap().version_mark().needs(), Version::V0_1);

    let damaged =
        ["".to_owned(), good[..good.len() / 2].to_owned(), good.replace("\"3\"", "\"x\""), good.clone() + "more = 1\n"];
    for text in damaged {
        fs::write(&file, &text).unwrap();
        let error = DataDir::open(temp.path(), OWNER, RELEASE).unwrap_err();
        assert!(matches!(error, StorageError::Corrupt { .. }), "{text}: {error}");
    }
}

#[test]
fn a_marker_is_set_until_it_is_cleared() {
    let temp = tempfile::tempdir().unwrap();
    let layout = Layout::new(temp.path());
    for marker in [layout.rejoining(), layout.removed()] {
        assert!(!marker.is_set());
        marker.set().unwrap();
        marker.set().unwrap();
        assert!(marker.is_set());
        marker.clear().unwrap();
        marker.clear().unwrap();
        assert!(!marker.is_set());
    }
    let error = Layout::new(&temp.path().join("missing")).removed().set().unwrap_err();
    assert!(error.to_string().contains("missing/REMOVED: "), "{error}");
}

#[test]
fn an_origin_is_written_once() {
    let temp = tempfile::tempdir().unwrap();
    let layout = Layout::new(temp.path());
    assert_eq!(layout.read_origin().unwrap(), None);
    layout.write_origin(0xabc).unwrap();
    assert_eq!(fs::read_to_string(temp.path().join("ORIGIN")).unwrap(), "0000000000000abc\n");
    assert_eq!(layout.read_origin().unwrap(), Some(0xabc));
    assert!(layout.write_origin(1).is_err());
    fs::write(temp.path().join("ORIGIN"), "x").unwrap();
    let error = layout.read_origin().unwrap_err().to_string();
    assert!(error.ends_with("ORIGIN: invalid digit found in string"), "{error}");
}

#[test]
fn the_version_rises_before_a_record_needs_it_and_falls_on_request() {
    let temp = tempfile::tempdir().unwrap();
    let dir = DataDir::open(temp.path(), OWNER, RELEASE).unwrap();
    let mark = dir.version_mark();
    let next = Version::new(0, 5);
    mark.raise(next).unwrap();
    mark.raise(Version::V0_3).unwrap();
    assert_eq!(mark.needs(), next, "it does not fall by itself");
    drop(dir);
    assert!(matches!(DataDir::open(temp.path(), OWNER, RELEASE), Err(StorageError::TooNew(_))));
    let newer = Supported { highest: next, ..RELEASE };
    let dir = DataDir::open(temp.path(), OWNER, newer).unwrap();
    dir.version_mark().lower(Version::V0_3).unwrap();
    drop(dir);
    DataDir::open(temp.path(), OWNER, RELEASE).unwrap();
}

#[test]
fn others_lose_their_rights_to_the_directory() {
    use std::os::unix::fs::PermissionsExt;
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("data");
    drop(DataDir::open(&path, OWNER, RELEASE).unwrap());
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&path), mode(&path.join(STAMP))), (0o700, 0o600));
    // As an earlier version has left them.
    for (path, wide) in [(path.join(STAMP), 0o644), (path.join(LOCK_FILE), 0o644), (path.clone(), 0o755)] {
        fs::set_permissions(path, fs::Permissions::from_mode(wide)).unwrap();
    }
    drop(DataDir::open(&path, OWNER, RELEASE).unwrap());
    assert_eq!((mode(&path), mode(&path.join(STAMP)), mode(&path.join(LOCK_FILE))), (0o700, 0o600, 0o600));
}

#[test]
fn a_reader_and_a_node_keep_each_other_out() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("data");
    let absent = DataDir::lock_for_reading(&path).unwrap_err().to_string();
    assert!(absent.contains("no such directory") && !path.exists(), "{absent}");
    let node = DataDir::open(&path, OWNER, RELEASE).unwrap();
    let store_id = node.store_id();
    let busy = DataDir::lock_for_reading(&path).unwrap_err().to_string();
    assert!(busy.contains(&format!("pid {}", std::process::id())) && busy.contains("stop the node"), "{busy}");
    drop(node);
    let reader = DataDir::lock_for_reading(&path).unwrap();
    assert!(refusal(&path, OWNER).contains("in use"));
    let identity = DataDir::identity(&path, RELEASE).unwrap().unwrap();
    assert_eq!((identity.owner, identity.store_id), (OWNER, store_id));
    drop(reader);
    DataDir::open(&path, OWNER, RELEASE).unwrap();
}
