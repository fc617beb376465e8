use super::*;

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

/// A folder with the name of the file makes each step fail.
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
