//! Reads and checks a state without changing it, and copies it to another folder.
//!
//! Invariant: nothing is written into the folder of the state, not even RocksDB's information log.

use std::fs;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use headwater_files as files;
use rocksdb::{DB, ReadOptions};

use super::db::decode_head;
use super::head::StateHead;
use super::history_row;
use super::keys;
use super::options::{FAMILIES, HISTORY, META, REVISIONS, VERSIONS};
use super::record::Version;
use super::store::{CURRENT, first_generation, read_current};
use crate::StorageError;
use crate::damage::DamageList;
use crate::manifest;
use crate::silent::silence;

/// Files that RocksDB keeps open for a reader, count.
const OPEN_FILES_MAX: i32 = 64;

/// The content of a state on disk, and its damage.
#[derive(Clone, Debug, Default)]
pub struct StateInspection {
    /// The folder of the current generation. `None` if the file `CURRENT` does not name one.
    pub path: Option<PathBuf>,
    /// The head on disk. `None` if it cannot be read. Commands that were applied later are in the
    /// log only.
    pub head: Option<StateHead>,
    /// The membership as of the head, opaque here.
    pub membership: Option<Bytes>,
    /// Number of records of all families that were read and can be decoded. Those of `index` and
    /// `meta` are read but not decoded.
    pub records: u64,
    /// Everything that was found wrong.
    pub damage: DamageList,
}

/// Reads every record of the current generation of the state in `state_dir`. `progress` is called
/// with the number of records so far, whole or not. Blocks for as long as it takes.
pub fn inspect_state(state_dir: &Path, progress: &mut dyn FnMut(u64)) -> StateInspection {
    let mut found = StateInspection::default();
    let name = match read_current(state_dir) {
        Ok(Some(name)) => name,
        Ok(None) => {
            found.damage.add("state/CURRENT", "missing: there is no state, or it is not known which folder holds it");
            return found;
        }
        Err(error) => {
            found.damage.add_error("state/CURRENT", &error);
            return found;
        }
    };
    let path = state_dir.join(&name);
    let location = format!("state/{name}");
    found.path = Some(path.clone());
    let mut options = rocksdb::Options::default();
    options.set_max_open_files(OPEN_FILES_MAX);
    options.set_paranoid_checks(true);
    silence(&mut options);
    let opened = manifest::check(&path)
        .and_then(|()| DB::open_cf_for_read_only(&options, &path, FAMILIES, false).map_err(StorageError::from));
    let db = match opened {
        Ok(db) => db,
        Err(error) => {
            found.damage.add(location, error.to_string());
            return found;
        }
    };
    let meta = db.cf_handle(META).expect("invariant: opened with every family");
    match db
        .get_pinned_cf(meta, keys::META_HEAD)
        .map_err(StorageError::from)
        .and_then(|head| decode_head(head.as_deref()))
    {
        Ok(head) => found.head = Some(head),
        Err(error) => found.damage.add_error(format!("{location}, family meta"), &error),
    }
    match db.get_cf(meta, keys::META_MEMBERSHIP) {
        Ok(membership) => found.membership = membership.map(Bytes::from),
        Err(error) => found.damage.add(format!("{location}, family meta"), error.to_string()),
    }
    let mut records = 0;
    for family in FAMILIES {
        inspect_family(&db, family, &location, &mut found, &mut || {
            records += 1;
            progress(records);
        });
    }
    found
}

/// Reads every record of a family. `step` is called after each.
fn inspect_family(db: &DB, family: &str, location: &str, found: &mut StateInspection, step: &mut dyn FnMut()) {
    let mut options = ReadOptions::default();
    options.set_total_order_seek(true);
    options.fill_cache(false);
    let handle = db.cf_handle(family).expect("invariant: opened with every family");
    let mut cursor = db.raw_iterator_cf_opt(handle, options);
    cursor.seek_to_first();
    let mut read = 0u64;
    while let Some((key, value)) = cursor.item() {
        if is_whole(family, key, value) {
            found.records += 1;
        } else {
            found.damage.add(format!("{location}, family {family}, key {}", key.escape_ascii()), "cannot be decoded");
        }
        read += 1;
        step();
        cursor.next();
    }
    if let Err(error) = cursor.status() {
        found.damage.add(format!("{location}, family {family}, behind its first {read} records"), error.to_string());
    }
}

/// Whether a record can be decoded. Always true for the small families, which are not checked here.
fn is_whole(family: &str, key: &[u8], value: &[u8]) -> bool {
    match family {
        HISTORY => match keys::parse_history(key) {
            Some((_, position)) => history_row::is_readable(position, value),
            None => false,
        },
        VERSIONS => keys::split_version(key).is_some_and(|(_, index)| Version::decode(index, value).is_some()),
        REVISIONS => key.len() == 8 && value.len() == 8,
        _ => true,
    }
}

/// Copies the generation in `from` to a new state in the folder `state_dir`, which must be empty.
/// Tables never change, so they are hard links if the file system supports them. The copy is not
/// synced.
///
/// # Errors
///
/// If a file cannot be read or written.
pub fn copy_state(from: &Path, state_dir: &Path) -> Result<(), StorageError> {
    let to = state_dir.join(first_generation());
    files::create_dir(&to)?;
    for entry in fs::read_dir(from).map_err(files::at(from))? {
        let entry = entry.map_err(files::at(from))?;
        let (path, name) = (entry.path(), entry.file_name());
        let is_file = entry.file_type().map_err(files::at(&path))?.is_file();
        let is_log = name.to_string_lossy().starts_with("LOG");
        if !is_file || is_log || name == "LOCK" {
            continue;
        }
        let target = to.join(&name);
        let is_table = path.extension().is_some_and(|extension| extension == "sst");
        if !is_table || fs::hard_link(&path, &target).is_err() {
            fs::copy(&path, &target).map_err(files::at(&path))?;
        }
    }
    Ok(files::replace(&state_dir.join(CURRENT), format!("{}\n", first_generation()).as_bytes())?)
}
