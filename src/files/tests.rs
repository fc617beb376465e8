use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use super::*;

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = entries.map(|name| name.into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_folder_is_created_with_its_parents_and_left_alone_afterwards() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("a/b/c");
    create_dir(&dir).unwrap();
    fs::write(dir.join("kept"), "x").unwrap();
    create_dir(&dir).unwrap();
    assert_eq!(names(&dir), ["kept"]);
    let error = create_dir(&dir.join("kept/below")).unwrap_err();
    assert!(error.to_string().contains("kept/below: "), "{error}");
}

#[test]
fn a_file_is_replaced_whole() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("NOTE");
    for content in ["first, and longer", "second"] {
        replace(&path, content.as_bytes()).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), content);
    }
    fs::write(temp.path().join("NOTE.tmp"), "a draft of a call that was interrupted, longer than the next").unwrap();
    replace(&path, b"third").unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "third");
    assert_eq!(names(temp.path()), ["NOTE"]);
}

/// The draft or the rename fails because a folder has that name, or because the parent is missing.
#[test]
fn a_replacement_that_fails_at_any_step_leaves_the_old_content() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("NOTE");
    replace(&path, b"old").unwrap();

    fs::create_dir(temp.path().join("NOTE.tmp")).unwrap();
    let error = replace(&path, b"new").unwrap_err();
    assert_eq!(error.path, temp.path().join("NOTE.tmp"), "the draft is not written");
    assert_eq!(fs::read_to_string(&path).unwrap(), "old");
    fs::remove_dir(temp.path().join("NOTE.tmp")).unwrap();

    let taken = temp.path().join("TAKEN");
    fs::create_dir(&taken).unwrap();
    let error = replace(&taken, b"new").unwrap_err();
    assert_eq!(error.path, taken, "the draft is not renamed");
    assert!(taken.is_dir());

    let error = replace(&temp.path().join("missing/NOTE"), b"new").unwrap_err();
    assert_eq!(error.source.kind(), ErrorKind::NotFound);
}

#[test]
fn a_removal_tells_a_missing_file_from_a_failure() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("MARKER");
    touch(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), 0);
    touch(&path).unwrap();
    remove(&path).unwrap();
    remove(&path).unwrap();
    assert!(!path.exists());
    fs::create_dir(&path).unwrap();
    assert_eq!(remove(&path).unwrap_err().path, path);
}

#[test]
fn a_file_that_is_there_is_not_created_again() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("MARKER");
    fs::write(&path, "x").unwrap();
    // The same file: at no time was there none.
    let before = fs::metadata(&path).unwrap().ino();
    touch(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().ino(), before);
    assert_eq!(fs::read(&path).unwrap(), b"x");
    assert_eq!(names(temp.path()), ["MARKER"]);
    assert_eq!(touch(temp.path()).unwrap_err().path, temp.path());
}

#[test]
fn folders_are_emptied_and_recreated() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("scratch");
    for _ in 0..2 {
        recreate_dir(&dir).unwrap();
        assert!(names(&dir).is_empty());
        fs::create_dir(dir.join("below")).unwrap();
        fs::write(dir.join("below/file"), "x").unwrap();
    }
    fs::write(dir.join("file"), "x").unwrap();
    clear_dir(&dir).unwrap();
    assert!(names(&dir).is_empty());
    remove_tree(&dir).unwrap();
    remove_tree(&dir).unwrap();
    assert!(clear_dir(&dir).is_err(), "there is none");
}

#[test]
fn a_rename_takes_an_empty_folder_and_no_other() {
    let temp = tempfile::tempdir().unwrap();
    let (from, to) = (temp.path().join("from"), temp.path().join("below/to"));
    create_dir(&from).unwrap();
    create_dir(&to).unwrap();
    fs::write(from.join("file"), "x").unwrap();
    sync_tree(&from).unwrap();
    rename(&from, &to).unwrap();
    assert_eq!(names(&to), ["file"]);
    create_dir(&from).unwrap();
    let error = rename(&from, &to).unwrap_err();
    assert_eq!((error.path, error.source.kind()), (from, ErrorKind::DirectoryNotEmpty));
}

#[test]
fn a_new_file_is_written_in_parts() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("file");
    let mut file = FileWriter::create_new(&path).unwrap();
    file.write(b"one, ").unwrap();
    file.write(b"two").unwrap();
    file.finish().unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "one, two");
    assert_eq!(FileWriter::create_new(&path).unwrap_err().source.kind(), ErrorKind::AlreadyExists);
    FileWriter::create(&path).unwrap().finish().unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), 0);
}

#[test]
fn the_first_sync_of_a_log_is_of_its_name_as_well() {
    let temp = tempfile::tempdir().unwrap();
    let (dir, away) = (temp.path().join("dir"), temp.path().join("away"));
    create_dir(&dir).unwrap();
    let mut file = AppendFile::open(&dir.join("log")).unwrap();
    file.write(b"one\n").unwrap();
    // Without its folder, only the content can be synced.
    fs::rename(&dir, &away).unwrap();
    assert_eq!(file.sync().unwrap_err().path, dir);
    fs::rename(&away, &dir).unwrap();
    file.sync().unwrap();
    fs::rename(&dir, &away).unwrap();
    file.write(b"two\n").unwrap();
    file.sync().unwrap();
    assert_eq!(fs::read(away.join("log")).unwrap(), b"one\ntwo\n");
}

#[test]
fn a_lock_has_one_holder() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("LOCK");
    let held = Lock::file(&path).unwrap();
    match Lock::file(&path) {
        Err(LockError::Held { holder }) => assert_eq!(holder, std::process::id().to_string()),
        other => panic!("{other:?}"),
    }
    drop(held);
    drop(Lock::file(&path).unwrap());

    let held = Lock::dir(temp.path()).unwrap();
    assert!(matches!(Lock::dir(temp.path()), Err(LockError::Held { holder }) if holder.is_empty()));
    drop(held);
    Lock::dir(temp.path()).unwrap();
    assert!(matches!(Lock::dir(&path.join("below")), Err(LockError::File(_))));
}

#[test]
fn an_error_names_the_path_and_keeps_its_kind() {
    let error = sync_dir(Path::new("/nowhere/at/all")).unwrap_err();
    let error = io::Error::from(error);
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().starts_with("/nowhere/at/all: "), "{error}");
}

/// The modes do not depend on the umask of the test, which is not known, because they contain no
/// rights of the group or other users.
#[test]
fn files_and_folders_are_for_their_owner() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("a/b");
    create_dir(&dir).unwrap();
    recreate_dir(&dir.join("scratch")).unwrap();
    for folder in ["a", "a/b", "a/b/scratch"] {
        assert_eq!(mode(&temp.path().join(folder)), DIR_MODE, "{folder}");
    }
    touch(&dir.join("touched")).unwrap();
    replace(&dir.join("replaced"), b"x").unwrap();
    FileWriter::create_new(&dir.join("new")).unwrap().finish().unwrap();
    let _held = Lock::file(&dir.join("lock")).unwrap();
    fs::write(dir.join("wide"), "x").unwrap();
    set_mode(&dir.join("wide"), 0o666);
    FileWriter::create(&dir.join("wide")).unwrap().finish().unwrap();
    for file in ["touched", "replaced", "new", "lock", "wide"] {
        assert_eq!(mode(&dir.join(file)), FILE_MODE, "{file}");
    }
}

/// A folder with a file, both outside the tested folder: no function may change them.
fn victim(temp: &Path) -> PathBuf {
    let victim = temp.join("victim");
    fs::create_dir(&victim).unwrap();
    fs::write(victim.join("file"), "mine").unwrap();
    victim
}

fn is_unharmed(victim: &Path) -> bool {
    names(victim) == ["file"] && fs::read(victim.join("file")).unwrap() == b"mine"
}

#[test]
fn nothing_is_written_or_removed_through_a_link() {
    let temp = tempfile::tempdir().unwrap();
    let victim = victim(temp.path());
    let dir = temp.path().join("dir");
    fs::create_dir(&dir).unwrap();
    let plant = |name: &str, target: &Path| {
        let path = dir.join(name);
        symlink(target, &path).unwrap();
        path
    };
    let file = victim.join("file");

    replace(&plant("NOTE", &file), b"other").unwrap();
    plant("DRAFTED.tmp", &file);
    replace(&dir.join("DRAFTED"), b"other").unwrap();
    touch(&plant("FLAG", &file)).unwrap();
    let mut created = FileWriter::create(&plant("part", &file)).unwrap();
    created.write(b"other").unwrap();
    created.finish().unwrap();
    assert!(FileWriter::create_new(&plant("new", &file)).is_err());
    assert!(Lock::file(&plant("LOCK", &file)).is_err());
    assert!(lock_existing(&dir.join("LOCK")).is_err());
    remove(&plant("removed", &file)).unwrap();
    assert!(is_unharmed(&victim));

    assert!(Lock::dir(&plant("locked", &victim)).is_err());
    remove_tree(&plant("tree", &victim)).unwrap();
    recreate_dir(&plant("scratch", &victim)).unwrap();
    assert!(is_unharmed(&victim));
    plant("inside", &victim);
    sync_tree(&dir).unwrap();
    clear_dir(&dir).unwrap();
    assert!(names(&dir).is_empty() && is_unharmed(&victim));
}

#[test]
fn a_file_with_a_second_name_keeps_its_content_there() {
    let temp = tempfile::tempdir().unwrap();
    let (path, other) = (temp.path().join("path"), temp.path().join("other"));
    fs::write(&other, "mine").unwrap();
    fs::hard_link(&other, &path).unwrap();
    let mut file = FileWriter::create(&path).unwrap();
    file.write(b"new").unwrap();
    file.finish().unwrap();
    assert_eq!(fs::read(&other).unwrap(), b"mine");
}

#[test]
fn a_tree_is_closed_to_others_and_what_links_lead_to_stays() {
    let temp = tempfile::tempdir().unwrap();
    let victim = victim(temp.path());
    let dir = temp.path().join("data");
    fs::create_dir_all(dir.join("log")).unwrap();
    fs::create_dir(dir.join("lost+found")).unwrap();
    fs::write(dir.join("log/000004.log"), "x").unwrap();
    symlink(&victim, dir.join("link")).unwrap();
    for (path, wide) in [
        (&dir, 0o777),
        (&dir.join("log"), 0o755),
        (&dir.join("log/000004.log"), 0o644),
        (&dir.join("lost+found"), 0o755),
    ] {
        set_mode(path, wide);
    }
    let victim_mode = mode(&victim);
    assert_eq!(make_private(&dir).unwrap(), 3);
    assert_eq!((mode(&dir), mode(&dir.join("log")), mode(&dir.join("log/000004.log"))), (0o700, 0o700, 0o600));
    assert_eq!((mode(&dir.join("lost+found")), mode(&victim)), (0o755, victim_mode));
    assert_eq!(make_private(&dir).unwrap(), 0, "a second time");
}

/// Only root may change the owner of a file. If another user runs the test, it uses `/`, which
/// belongs to root.
#[test]
fn a_tree_of_another_user_is_refused() {
    let temp = tempfile::tempdir().unwrap();
    if fs::metadata(temp.path()).unwrap().uid() != 0 {
        assert!(matches!(make_private(Path::new("/")), Err(PrivacyError::Foreign { owner: 0, .. })));
        return;
    }
    let dir = temp.path().join("data");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("file"), "x").unwrap();
    std::os::unix::fs::chown(dir.join("file"), Some(1234), None).unwrap();
    let refused = make_private(&dir).unwrap_err();
    assert!(matches!(refused, PrivacyError::Foreign { owner: 1234, me: 0, .. }), "{refused}");

    let foreign = temp.path().join("foreign.restoring");
    fs::create_dir(&foreign).unwrap();
    std::os::unix::fs::chown(&foreign, Some(1234), None).unwrap();
    let refused = StagingDir::begin(&foreign).unwrap_err();
    assert!(matches!(refused, StagingError::Planted { what: "a folder of another user", .. }), "{refused}");
    std::os::unix::fs::chown(&dir, Some(1234), None).unwrap();
    let refused = StagingDir::begin(&dir.join("new")).unwrap_err();
    assert!(refused.to_string().contains("user 1234 owns this folder"), "{refused}");
}

#[test]
fn a_staging_folder_is_taken_only_from_its_own_user() {
    let temp = tempfile::tempdir().unwrap();
    let victim = victim(temp.path());
    let path = temp.path().join("made/data.restoring");

    let staging = StagingDir::begin(&path).unwrap();
    assert_eq!(mode(&path), DIR_MODE);
    assert!(matches!(StagingDir::begin(&path), Err(StagingError::Busy(_))));
    fs::write(path.join("file"), "x").unwrap();
    staging.rename_to(&temp.path().join("data")).unwrap();
    assert_eq!(names(&temp.path().join("data")), ["file"]);

    fs::create_dir(&path).unwrap();
    fs::write(path.join("left"), "x").unwrap();
    set_mode(&path, 0o777);
    let staging = StagingDir::begin(&path).unwrap();
    assert!(names(&path).is_empty() && mode(&path) == DIR_MODE, "what an earlier run left is gone");
    drop(staging);
    assert!(!path.exists());

    symlink(&victim, &path).unwrap();
    let refused = StagingDir::begin(&path).unwrap_err();
    assert!(matches!(refused, StagingError::Planted { what: "a symbolic link", .. }), "{refused}");
    assert!(is_unharmed(&victim));
    fs::remove_file(&path).unwrap();
    fs::write(&path, "x").unwrap();
    assert!(matches!(StagingDir::begin(&path), Err(StagingError::Planted { what: "no folder", .. })));

    for (parent_mode, is_refused) in [(0o777, true), (0o1777, false), (0o775, false), (0o755, false)] {
        let parent = temp.path().join(format!("{parent_mode:o}"));
        fs::create_dir(&parent).unwrap();
        set_mode(&parent, parent_mode);
        let begun = StagingDir::begin(&parent.join("data"));
        assert_eq!(matches!(begun, Err(StagingError::Exposed { .. })), is_refused, "{parent_mode:o}");
    }
}

#[test]
fn a_staging_folder_that_was_renamed_is_not_removed() {
    let temp = tempfile::tempdir().unwrap();
    let (path, to) = (temp.path().join("data.restoring"), temp.path().join("data"));
    let staging = StagingDir::begin(&path).unwrap();
    fs::write(path.join("file"), "x").unwrap();
    // The sync fails after another run has begun.
    let failed = staging.rename_and(&to, |from, _| {
        fs::create_dir(from).unwrap();
        Err(at(from)(ErrorKind::Other.into()))
    });
    assert!(matches!(failed, Err(RenameError::NotSynced(_))), "{failed:?}");
    assert!(path.is_dir(), "the folder of the other run");
    assert_eq!(names(&to), ["file"]);

    let staging = StagingDir::begin(&path).unwrap();
    let failed = staging.rename_to(&to);
    assert!(matches!(failed, Err(RenameError::NotRenamed(_))), "{failed:?}");
    assert_eq!(names(temp.path()), ["data"]);
}

#[test]
fn a_reader_locks_what_is_there_and_changes_nothing() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("LOCK");
    assert!(lock_existing(&path).unwrap().is_none() && !path.exists());
    drop(Lock::file(&path).unwrap());
    let content = fs::read(&path).unwrap();
    let held = lock_existing(&path).unwrap().unwrap();
    assert!(matches!(Lock::file(&path), Err(LockError::Held { .. })), "the reader keeps others out");
    drop(held);
    assert_eq!(fs::read(&path).unwrap(), content);
    let held = Lock::file(&path).unwrap();
    assert!(matches!(lock_existing(&path), Err(LockError::Held { holder }) if !holder.is_empty()));
    drop(held);

    // Above every process id of Linux: no such process runs.
    fs::write(&path, i32::MAX.to_string()).unwrap();
    let _held = lock_existing(&path).unwrap().unwrap();
    assert!(matches!(Lock::file(&path), Err(LockError::Held { holder }) if holder.is_empty()));
}

#[test]
fn a_pipe_is_no_file_to_append_to() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pipe");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    assert!(AppendFile::open(&path).is_err(), "without a reader");
    let _reader = fs::OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(&path).unwrap();
    assert!(AppendFile::open(&path).is_err(), "with a reader");
}
