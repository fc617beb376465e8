//! A state taken from a backup becomes the first state of a new cluster.
//!
//! Owns the changes. New: membership, log index, lineage. Removed: programs, invitations, quota,
//! alarms, idempotency keys of commits, a downgrade under way. On request: a higher revision,
//! history compacted, etcd's authentication off. Keys, leases, users and roles stay.
//! Invariant: nobody else uses the files. `state/CURRENT`, which names the generation of the state,
//! is written last. The staging folder of the caller protects against a crash.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use headwater_files as files;
use rocksdb::{DB, WriteBatch};

use super::db::{StateDb, decode_head, remove_logs};
use super::head::{CompactionPoint, StateHead};
use super::keys;
use super::options::{META, StateOptions, Tuning, write_options};
use super::store::{CURRENT, first_generation};
use crate::StorageError;
use crate::manifest;
use headwater_types::{AlarmSet, AuthState, ClusterVersion, LogIndex, Revision};

/// Facts about the content of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointContents {
    /// The head of the state.
    pub head: StateHead,
    /// Number of clients' leases.
    pub leases: u64,
}

/// Reads a checkpoint. Removes RocksDB's information logs from its folder, and changes nothing
/// else.
///
/// # Errors
///
/// If it cannot be read or decoded, or the information logs cannot be removed.
pub fn describe_checkpoint(path: &Path) -> Result<CheckpointContents, StorageError> {
    let contents = {
        let mut options = rocksdb::Options::default();
        options.set_max_open_files(16);
        // A reader logs into the directory that it reads; a backup should hold the state alone.
        options.set_log_level(rocksdb::LogLevel::Fatal);
        manifest::check(path)?;
        let db = DB::open_cf_for_read_only(&options, path, [META], false)?;
        let meta = db.cf_handle(META).expect("invariant: opened with this family");
        let head = decode_head(db.get_pinned_cf(meta, keys::META_HEAD)?.as_deref())?;
        let mut range = rocksdb::ReadOptions::default();
        range.set_iterate_lower_bound(keys::META_LEASES.0);
        range.set_iterate_upper_bound(keys::META_LEASES.1);
        let mut iter = db.raw_iterator_cf_opt(meta, range);
        let mut leases = 0;
        iter.seek_to_first();
        while let Some(key) = iter.key() {
            // The store's own deadlines are no leases of clients.
            leases += u64::from(keys::parse_lease(key).is_some_and(|id| !id.is_deadline()));
            iter.next();
        }
        iter.status()?;
        CheckpointContents { head, leases }
    };
    remove_logs(path)?;
    Ok(contents)
}

/// Differences between a restored state and its backup.
#[derive(Clone, Debug)]
pub struct RestoreChanges {
    /// The membership of the new cluster, opaque here, as of `index`.
    pub membership: Bytes,
    /// The applied index of the state in the new cluster. Refused unless it is above that of the
    /// backup. The caller chooses it above every index of the old cluster, so that an index of the
    /// old cluster is recognised.
    pub index: LogIndex,
    /// Number of revisions that are skipped, so that no revision that clients have seen of the old
    /// cluster is used again.
    pub bump_revision: i64,
    /// Whether the history becomes unreadable: clients with an old revision must start over.
    pub mark_compacted: bool,
    /// Whether etcd's authentication is off in the new cluster. Users and roles stay.
    pub disable_auth: bool,
}

/// The folder below `state_dir` into which a backup is unpacked before [`restore_state`].
pub fn restore_target(state_dir: &Path) -> std::path::PathBuf {
    state_dir.join(first_generation())
}

/// Applies `changes` to the state in [`restore_target`], and makes it the current one. Returns its
/// new head. Blocks until all of it is on disk.
///
/// # Errors
///
/// If the folder has no complete state, or one to which nothing was ever applied; or if the disk
/// failed. Also if `changes.index` is not above the applied index, if the revision would overflow,
/// or if revisions are skipped without a compaction.
pub fn restore_state(
    state_dir: &Path,
    options: &StateOptions,
    changes: &RestoreChanges,
) -> Result<StateHead, StorageError> {
    let path = restore_target(state_dir);
    let db = StateDb::open(&path, false, &Tuning::new(options.clone()), Arc::default())?;
    let head = restored_head(db.head(), changes)
        .map_err(|detail| StorageError::Corrupt { location: path.display().to_string(), detail: detail.to_owned() })?;
    let meta = db.families().meta;
    let mut batch = WriteBatch::default();
    batch.put_cf(meta, keys::META_HEAD, head.encode());
    batch.put_cf(meta, keys::META_MEMBERSHIP, &changes.membership);
    batch.delete_cf(meta, keys::META_ALARMS);
    // The members of the new cluster announce their own.
    batch.delete_range_cf(meta, keys::META_PROGRAMS.0, keys::META_PROGRAMS.1);
    // A token of the old cluster is no right to join the new one.
    batch.delete_range_cf(meta, keys::META_INVITATIONS.0, keys::META_INVITATIONS.1);
    // A commit of the old cluster is none of the new one.
    batch.delete_range_cf(meta, keys::META_COMMITS.0, keys::META_COMMITS.1);
    db.db.write_opt(batch, &write_options())?;
    *db.head.write() = head;
    // The changes above are not durable yet.
    db.flush_now()?;
    drop(db);
    remove_logs(&path)?;
    files::sync_tree(&path)?;
    files::replace(&state_dir.join(CURRENT), format!("{}\n", first_generation()).as_bytes())?;
    Ok(head)
}

/// The head of the new cluster. Its leader sets lineage and quota.
fn restored_head(old: StateHead, changes: &RestoreChanges) -> Result<StateHead, &'static str> {
    if changes.bump_revision != 0 && !changes.mark_compacted {
        // A run of revisions would not end with them.
        return Err("revisions are skipped only together with a compaction");
    }
    let revision = old.revision.get().checked_add(changes.bump_revision).map(Revision);
    let revision = revision.ok_or("there are no revisions left above the one that it would be raised to")?;
    let (term, last) = old.applied.ok_or("nothing was ever applied to it")?;
    if changes.index <= last {
        return Err("log indexes would be given out a second time");
    }
    let compaction = match changes.mark_compacted {
        true => Some(CompactionPoint { revision, index: last }),
        false => old.compaction,
    };
    let (applied, epoch_since) = (Some((term, changes.index)), changes.index.next());
    let auth = match changes.disable_auth && old.auth.enabled {
        // As the command that disables it: signed tokens of the old cluster end.
        true => AuthState { enabled: false, revision: old.auth.revision + 1 },
        false => old.auth,
    };
    // The old `history_floor` may stay: with `mark_compacted` the point is not below it.
    Ok(StateHead {
        applied,
        revision,
        compaction,
        epoch: None,
        epoch_since,
        quota: None,
        alarms: AlarmSet::NONE,
        version: ClusterVersion { is_downgrading: false, ..old.version },
        auth,
        ..old
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::RegisteredTypes;
    use headwater_types::{AlarmKind, LogIndex, NodeId, Quota, StoreEpoch, Term};

    fn changes(index: LogIndex, bump_revision: i64, mark_compacted: bool) -> RestoreChanges {
        RestoreChanges { membership: Bytes::new(), index, bump_revision, mark_compacted, disable_auth: false }
    }

    #[test]
    fn a_new_lineage_begins_above_the_old_one() {
        let point = CompactionPoint { revision: Revision(3), index: LogIndex(4) };
        let old = StateHead {
            applied: Some((Term(2), LogIndex(9))),
            revision: Revision(7),
            compaction: Some(point),
            history_floor: LogIndex(6),
            epoch: Some(StoreEpoch(5)),
            epoch_since: LogIndex(2),
            live_keys: 1,
            live_bytes: 2,
            quota: Some(Quota { bytes_max: None, member: NodeId(1) }),
            alarms: [AlarmKind::NoSpace].into_iter().collect(),
            types: RegisteredTypes { changed: LogIndex(4), count: 1 },
            version: ClusterVersion::FIRST,
            auth: AuthState { enabled: true, revision: 5 },
            rights_changed: LogIndex(8),
            acl_changed: LogIndex(7),
        };
        let index = LogIndex(1009);
        let (applied, epoch_since) = (Some((Term(2), index)), LogIndex(1010));
        let new = StateHead { applied, epoch: None, epoch_since, quota: None, alarms: AlarmSet::NONE, ..old };
        let at = |revision| Some(CompactionPoint { revision: Revision(revision), index: LogIndex(9) });
        for (bump_revision, mark_compacted, wanted) in [
            (0, false, Ok(new)),
            (0, true, Ok(StateHead { compaction: at(7), ..new })),
            (1000, true, Ok(StateHead { revision: Revision(1007), compaction: at(1007), ..new })),
            (i64::MAX - 7, true, Ok(StateHead { revision: Revision(i64::MAX), compaction: at(i64::MAX), ..new })),
            (i64::MAX - 6, true, Err(())),
            (1000, false, Err(())),
        ] {
            let changes = changes(index, bump_revision, mark_compacted);
            assert_eq!(restored_head(old, &changes).map_err(|_| ()), wanted, "{bump_revision}, {mark_compacted}");
        }
        let again = changes(LogIndex(9), 0, false);
        assert!(restored_head(old, &again).is_err(), "its own index would be given out again");
        let unlocked = restored_head(old, &RestoreChanges { disable_auth: true, ..changes(index, 0, false) });
        let open = |revision| AuthState { enabled: false, revision };
        assert_eq!(unlocked, Ok(StateHead { auth: open(6), ..new }));
        let never = StateHead { auth: AuthState::INITIAL, ..old };
        let unlocked = restored_head(never, &RestoreChanges { disable_auth: true, ..changes(index, 0, false) });
        assert_eq!(unlocked.map(|head| head.auth), Ok(AuthState::INITIAL));
        assert_eq!((new.floored(LogIndex(9)), new.floored(LogIndex(1011))), (index, LogIndex(1011)));
        assert_eq!(StateHead::EMPTY.floored(LogIndex::ZERO), LogIndex::ZERO);
    }
}
