//! Snapshots, and the step from one generation to the next, interrupted anywhere.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use super::bed::*;
use crate::StorageError;
use crate::state::{NEWEST, StateStore};
use headwater_types::LogIndex;

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Makes a checkpoint in `dir` of another node's state, which ends at log index 9. Returns its
/// pairs.
fn checkpoint(dir: &Path) -> Vec<String> {
    let other = TestBed::new();
    other.commit(1, &[("a", Some("other"))]);
    other.commit(9, &[("b", Some("other"))]);
    let applied = other.store.current().checkpoint(dir).unwrap().applied.unwrap();
    assert_eq!(applied.index, LogIndex(9));
    other.pairs(NEWEST)
}

#[test]
fn a_checkpoint_holds_what_was_applied_and_nothing_that_came_later() {
    let bed = TestBed::new();
    bed.commit(1, &[("a", Some("1"))]);
    let copy = bed.dir.path().join("copy");
    let applied = bed.store.current().checkpoint(&copy).unwrap().applied.unwrap();
    assert_eq!(applied.index, LogIndex(1));
    bed.commit(2, &[("a", Some("2"))]);
    assert!(names(&copy).iter().all(|name| !name.starts_with("LOG")), "only the state: {:?}", names(&copy));
    let other = TestBed::new();
    other.store.install(&copy).unwrap();
    assert_eq!(other.pairs(NEWEST), ["a=1"]);
    assert_eq!(bed.pairs(NEWEST), ["a=2"]);
    assert!(!copy.exists(), "it is consumed");
    let hash = |bed: &TestBed| bed.store.current().view().unwrap().state_hash().unwrap();
    other.commit(2, &[("a", Some("2"))]);
    assert_eq!(hash(&bed), hash(&other));
}

#[test]
fn an_installed_snapshot_replaces_the_state_and_old_readers_read_on() {
    let bed = TestBed::new();
    bed.commit(1, &[("a", Some("old"))]);
    let incoming = bed.dir.path().join("incoming");
    let want = checkpoint(&incoming);
    let old = bed.store.current();
    let view = old.view().unwrap();
    bed.store.install(&incoming).unwrap();
    assert_eq!(bed.pairs(NEWEST), want);
    assert_eq!(show(&view, NEWEST), ["a=old"]);
    assert_eq!(names(bed.dir.path()), ["CURRENT", "gen-1", "gen-2"]);
    drop(view);
    assert!(bed.store.begin(&old).is_err(), "nothing is written to what was replaced");
    assert_eq!(Arc::strong_count(&old), 1);
    drop(old);
    assert_eq!(names(bed.dir.path()), ["CURRENT", "gen-2"], "it goes with its last reader");
    assert_eq!(bed.store.durable_applied(), Some(LogIndex(9)), "an installed state is durable");
    bed.commit(10, &[("c", Some("new"))]);
    let bed = bed.reopened();
    assert_eq!(bed.pairs(NEWEST), ["a=other", "b=other", "c=new"]);
}

#[test]
fn a_crash_at_any_step_leaves_the_old_state_or_the_new_one() {
    // Each step as it is on disk when the process ends right after it.
    type Step = fn(&Path, &Path);
    let steps: [(&str, Step, bool); 5] = [
        ("received beside the state", |_, _| {}, false),
        ("half received", |_, incoming| fs::remove_file(incoming.join("CURRENT")).unwrap(), false),
        ("moved in", |state, incoming| fs::rename(incoming, state.join("gen-2")).unwrap(), false),
        (
            "draft of the pointer written",
            |state, incoming| {
                fs::rename(incoming, state.join("gen-2")).unwrap();
                fs::write(state.join("CURRENT.tmp"), "gen-2\n").unwrap();
            },
            false,
        ),
        (
            "pointer swapped, old state not yet removed",
            |state, incoming| {
                fs::rename(incoming, state.join("gen-2")).unwrap();
                fs::write(state.join("CURRENT"), "gen-2\n").unwrap();
            },
            true,
        ),
    ];
    for (name, step, is_new) in steps {
        let TestBed { dir, store } = TestBed::new();
        let bed = TestBed { dir, store };
        bed.commit(1, &[("a", Some("old"))]);
        let TestBed { dir, store } = bed;
        drop(store);
        let incoming = dir.path().join("incoming");
        let new = checkpoint(&incoming);
        step(dir.path(), &incoming);
        let bed = TestBed { store: StateStore::open(dir.path(), &small()).unwrap(), dir };
        assert_eq!(bed.pairs(NEWEST), if is_new { new } else { vec!["a=old".to_owned()] }, "{name}");
        let left = names(bed.dir.path()).into_iter().filter(|name| name.starts_with("gen-")).count();
        assert_eq!(left, 1, "{name}: what is not current is removed");
        // And a later installation works.
        let again = bed.dir.path().join("again");
        let want = checkpoint(&again);
        bed.store.install(&again).unwrap();
        assert_eq!(bed.pairs(NEWEST), want, "{name}");
    }
}

#[test]
fn what_is_no_state_is_not_installed() {
    type Damage = fn(&Path);
    let damages: [(&str, Damage); 5] = [
        ("not there", |dir| fs::remove_dir_all(dir).unwrap()),
        ("without CURRENT", |dir| fs::remove_file(dir.join("CURRENT")).unwrap()),
        ("without its files", |dir| {
            for name in names(dir).iter().filter(|name| name.ends_with(".sst")) {
                fs::remove_file(dir.join(name)).unwrap();
            }
        }),
        ("cut short", |dir| {
            for name in names(dir).iter().filter(|name| name.ends_with(".sst")) {
                fs::OpenOptions::new().write(true).open(dir.join(name)).unwrap().set_len(10).unwrap();
            }
        }),
        ("without its manifest", |dir| {
            for name in names(dir).iter().filter(|name| name.starts_with("MANIFEST")) {
                fs::remove_file(dir.join(name)).unwrap();
            }
        }),
    ];
    for (name, damage) in damages {
        let bed = TestBed::new();
        bed.commit(1, &[("a", Some("old"))]);
        let incoming = bed.dir.path().join("incoming");
        checkpoint(&incoming);
        damage(&incoming);
        assert!(bed.store.install(&incoming).is_err(), "{name}");
        assert_eq!(bed.pairs(NEWEST), ["a=old"], "{name}");
        bed.commit(2, &[("a", Some("still works"))]);
        let bed = bed.reopened();
        assert_eq!(bed.pairs(NEWEST), ["a=still works"], "{name}");
    }
}

#[test]
fn the_state_never_goes_back() {
    let bed = TestBed::new();
    bed.commit(20, &[("a", Some("new"))]);
    let incoming = bed.dir.path().join("incoming");
    checkpoint(&incoming);
    let prepared = bed.store.prepare(&incoming).unwrap();
    assert_eq!(prepared.head().applied_index(), LogIndex(9));
    assert!(bed.store.install_prepared(prepared).is_err());
    assert_eq!(bed.pairs(NEWEST), ["a=new"]);
    assert_eq!(names(bed.dir.path()), ["CURRENT", "gen-1"], "what was prepared and not used is removed");
}

#[test]
fn a_missing_or_damaged_pointer_is_an_error_unless_nothing_can_be_lost() {
    let closed = || {
        let bed = TestBed::new();
        bed.commit(1, &[("a", Some("1"))]);
        let TestBed { dir, store } = bed;
        drop(store);
        dir
    };
    let open = |dir: &Path| StateStore::open(dir, &small()).map(|store| pairs(&store.current(), NEWEST));

    let dir = closed();
    fs::remove_file(dir.path().join("CURRENT")).unwrap();
    assert_eq!(open(dir.path()).unwrap(), ["a=1"], "the only state there is");

    let dir = closed();
    fs::create_dir(dir.path().join("gen-2")).unwrap();
    fs::remove_file(dir.path().join("CURRENT")).unwrap();
    assert!(matches!(open(dir.path()), Err(StorageError::WrongDirectory { .. })), "which one?");

    for content in ["", "gen-1", "gen-x\n", "../gen-1\n"] {
        let dir = closed();
        fs::write(dir.path().join("CURRENT"), content).unwrap();
        assert!(matches!(open(dir.path()), Err(StorageError::Corrupt { .. })), "{content:?}");
    }

    let dir = closed();
    fs::remove_dir_all(dir.path().join("gen-1")).unwrap();
    assert!(matches!(open(dir.path()), Err(StorageError::WrongDirectory { .. })), "no silent fresh start");

    // Interrupted on the very first start.
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("draft")).unwrap();
    fs::write(dir.path().join("draft/CURRENT"), "MANIFEST-000001\n").unwrap();
    assert_eq!(open(dir.path()).unwrap(), Vec::<String>::new());
    assert_eq!(names(dir.path()), ["CURRENT", "gen-1"]);
}
