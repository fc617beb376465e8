//! A backup out of the data directory of a node that does not start.
//!
//! The state on disk may be far behind the log: a node writes it to disk now and then, and applies
//! the log again at its start. So the state is copied, and the log's entries are applied to the
//! copy up to the first one that cannot be. A damaged state is replaced by an empty one if the log
//! reaches back to the cluster's first entry. Owns the choice of these entries. Invariant: the data
//! directory is read and locked, and nothing in it changes.
//!
//! ```text
//! state/ ─► copy ─► apply log entries ─► checkpoint ─► backup
//! ```

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use headwater_files::{FileError, StagingDir, StagingError};

use super::backup::describe;
use super::{Identity, unix_ms};
use headwater_raft::replay;
use headwater_storage::backup::{BackupError, BackupSource};
use headwater_storage::damage::DamageList;
use headwater_storage::data_dir::{DataDir, Layout, Owner, ReadLock};
use headwater_storage::log::{LogInspector, LogRecord};
use headwater_storage::state::{copy_state, inspect_state};
use headwater_storage::{StateOptions, StateStore, StorageError};
use headwater_types::{LogIndex, Supported, Term};

/// Bytes of log entries that are applied and committed at once; the last entry may exceed them.
const BATCH_BYTES_MAX: usize = 4 << 20;

/// Source and working folder of a salvage.
#[derive(Clone, Debug)]
pub struct SalvageOptions {
    /// The data directory. No node may use it.
    pub data_dir: PathBuf,
    /// A folder for the copy; it is removed afterwards. Tables are linked instead of copied if it
    /// is on the file system of the data directory.
    pub work_dir: PathBuf,
    /// Log entries that are skipped: they count as applied, and change nothing in the copy.
    pub skip: BTreeSet<LogIndex>,
    /// Whether entries are left out that this member did not know to be committed.
    pub committed_only: bool,
    /// The versions that the program supports.
    pub supported: Supported,
}

/// Interval of log entries, with both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryRun {
    /// The first entry.
    pub first: LogIndex,
    /// The last entry.
    pub last: LogIndex,
}

impl EntryRun {
    /// The entries after `before`, up to and with `last`. `None` if there are none.
    fn behind(before: LogIndex, last: LogIndex) -> Option<Self> {
        (before < last).then(|| Self { first: before.next(), last })
    }
}

/// The result of a salvage: the log entries that the salvaged state has and lacks, and the damage
/// that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SalvageReport {
    /// The node that the data directory belongs to.
    pub owner: Owner,
    /// The last entry that the state on disk had; 0 if it had none.
    pub on_disk: LogIndex,
    /// The last entry that was applied to the salvaged state, or skipped; 0 if there is none.
    pub applied: LogIndex,
    /// The last entry that this member knew to be committed; `None` if its log does not say.
    pub committed: Option<LogIndex>,
    /// The entries up to `applied` that this member did not know to be committed; `None` without
    /// any. Those in `skipped` are not in the salvaged state. The client of such an entry got
    /// either its outcome or no answer.
    pub unconfirmed: Option<EntryRun>,
    /// Entries up to `applied` that were not applied, at the caller's request.
    pub skipped: Vec<LogIndex>,
    /// The log entries after `applied`, none of which the salvaged state has; `None` without any.
    pub left_out: Option<EntryRun>,
    /// The reason for which no further entry was applied; always given with `left_out`.
    pub why: Option<String>,
    /// Everything that was found wrong with the log.
    pub log_damage: DamageList,
    /// Everything that was found wrong with the state. If there is any, the state was not used. The
    /// salvaged state then comes from the log alone, which has every entry since the cluster was
    /// formed.
    pub state_damage: DamageList,
}

/// A salvaged state, as a backup that can be written. Its files are removed with the value.
#[derive(Debug)]
pub struct Salvage {
    /// The backup.
    pub backup: BackupSource,
    /// The entries that were applied to the salvaged state, those that were left out, and all
    /// damage that was found.
    pub report: SalvageReport,
    work: StagingDir,
    _lock: ReadLock,
}

impl Salvage {
    /// The working folder. It is removed with the value.
    pub fn work_dir(&self) -> &Path {
        self.work.path()
    }
}

/// The reason for which nothing was salvaged. Each text advises the operator.
#[derive(Debug, thiserror::Error)]
pub enum SalvageError {
    /// The directory has never belonged to a node.
    #[error("{} has no stamp: it is not the data directory of a node", .0.display())]
    NoStamp(PathBuf),
    /// The state on disk cannot be used, and the log does not reach back to the first entry.
    #[error("the state in {} is damaged, and no backup can be made of it: use another member's directory, or an earlier backup\n{}", path.display(), lines(damage))]
    StateDamaged {
        /// The data directory.
        path: PathBuf,
        /// Everything that was found wrong with the state.
        damage: DamageList,
    },
    /// Nothing was ever applied to the state, and the log has no entry that can be applied.
    #[error("nothing was ever applied in {}, and its log has no entry that can be: there is nothing to save", .0.display())]
    Empty(PathBuf),
    /// The working folder cannot be used.
    #[error(transparent)]
    Work(#[from] StagingError),
    /// The data directory is missing, in use, too new or unreadable, or the copy cannot be written.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The backup cannot be made.
    #[error(transparent)]
    Backup(#[from] BackupError),
}

impl From<FileError> for SalvageError {
    fn from(error: FileError) -> Self {
        Self::Storage(error.into())
    }
}

fn lines(damage: &DamageList) -> String {
    let lines: Vec<String> = damage.kept().iter().map(|damage| format!("  {damage}")).collect();
    lines.join("\n")
}

/// Makes a backup of the state and the log of a node that does not run. `progress` is called with
/// the number of records of the state that were checked so far. Blocks until the backup can be
/// written.
///
/// # Errors
///
/// [`SalvageError`]. The data directory is never changed.
pub fn salvage(options: &SalvageOptions, progress: &mut dyn FnMut(u64)) -> Result<Salvage, SalvageError> {
    let dir = &options.data_dir;
    let lock = DataDir::lock_for_reading(dir)?;
    let identity = DataDir::identity(dir, options.supported)?.ok_or_else(|| SalvageError::NoStamp(dir.clone()))?;
    let layout = Layout::new(dir);
    let found = inspect_state(&layout.state_dir(), progress);
    let mut log = LogInspector::open(&layout.log_dir());
    let path = found.path.filter(|_| found.damage.is_empty());
    // A log that begins with the first entry of the cluster has everything.
    if path.is_none() && log.facts().first != Some(LogIndex::ZERO) {
        return Err(SalvageError::StateDamaged { path: dir.clone(), damage: found.damage });
    }
    let work = StagingDir::begin(&options.work_dir)?;
    let copy = work.path().join("state");
    if let Some(path) = path {
        copy_state(&path, &copy)?;
    }
    let store = StateStore::open(&copy, &StateOptions { supported: options.supported, ..StateOptions::default() })?;
    let mut report = apply_log(&store, &mut log, identity.owner, identity.store_id, options)?;
    report.state_damage = found.damage;
    let checkpoint = work.path().join("backup");
    store.current().checkpoint(&checkpoint)?;
    drop(store);
    let Owner { cluster_id, node_id } = identity.owner;
    let info = describe(&checkpoint, Identity { cluster_id, node_id }, unix_ms())?;
    let info = info.ok_or_else(|| SalvageError::Empty(dir.clone()))?;
    let backup = BackupSource::new(&checkpoint, info)?;
    Ok(Salvage { backup, report, work, _lock: lock })
}

/// Applies the entries of the log that follow the state, up to the first one that cannot be
/// applied. Leaves the damage of the state out of the report.
fn apply_log(
    store: &StateStore,
    log: &mut LogInspector,
    owner: Owner,
    store_id: u64,
    options: &SalvageOptions,
) -> Result<SalvageReport, SalvageError> {
    let facts = *log.facts();
    let before = store.current().head().applied;
    let on_disk = before.map_or(LogIndex::ZERO, |(_, index)| index);
    let committed = facts.committed.map(|committed| committed.index);
    let known = committed.unwrap_or(LogIndex::ZERO).max(on_disk);
    let mut why = match facts.store_id {
        Some(found) if found != store_id => Some("the log belongs to another data directory".to_owned()),
        _ => None,
    };
    let mut last = facts.last.map_or(on_disk, |last| last.index).max(on_disk);
    // The first entry of a cluster's log has index 0.
    let mut next = before.map_or(LogIndex::ZERO, |(_, index)| index.next());
    let (mut applied, mut skipped) = (before.map(|(_, index)| index), Vec::new());
    if why.is_none() {
        why = differs_at(log, before);
    }
    while why.is_none() {
        let batch = next_batch(log, next, options.committed_only.then_some(known));
        let Some(end) = batch.last().map(|record| record.index) else { break };
        last = last.max(end);
        let whole = batch.iter().zip(next.get()..).take_while(|(record, wanted)| record.index.get() == *wanted).count();
        let is_skipped = |index: LogIndex| options.skip.contains(&index);
        let result = replay(store, &batch[..whole], is_skipped);
        let reached = store.current().head().applied.map(|(_, index)| index);
        skipped.extend(
            batch[..whole]
                .iter()
                .map(|record| record.index)
                .filter(|index| is_skipped(*index) && Some(*index) <= reached),
        );
        applied = reached;
        next = reached.map_or(LogIndex::ZERO, LogIndex::next);
        match result {
            Err(error) => why = Some(error.to_string()),
            Ok(()) if whole < batch.len() => why = Some(format!("log entry {next} is missing or damaged")),
            Ok(()) => {}
        }
    }
    let applied = applied.unwrap_or(LogIndex::ZERO);
    let left_out = EntryRun::behind(applied, last);
    if left_out.is_some() && why.is_none() {
        let is_unknown = options.committed_only && applied >= known;
        why = Some(match is_unknown {
            true => "this member did not know them to be committed".to_owned(),
            false => format!("log entry {} is missing or damaged", applied.next()),
        });
    }
    Ok(SalvageReport {
        owner,
        on_disk,
        applied,
        committed,
        unconfirmed: EntryRun::behind(known, applied),
        skipped,
        left_out,
        why,
        log_damage: log.damage().clone(),
        state_damage: DamageList::default(),
    })
}

/// The reason for which the log does not continue the state. `None` if it does, or may.
fn differs_at(log: &mut LogInspector, applied: Option<(Term, LogIndex)>) -> Option<String> {
    let (term, index) = applied?;
    let first = log.facts().first?;
    if first > index.next() {
        return Some(format!("the log begins with entry {first}, and the state ends with entry {index}"));
    }
    if first > index {
        return None;
    }
    let mut found = None;
    log.read(index, |record| {
        found = (record.index == index).then_some(record.term);
        ControlFlow::Break(())
    });
    let found = found.filter(|found| *found != term)?;
    Some(format!("the log holds an entry of term {found} at {index}, where the state has applied one of term {term}"))
}

/// The next log entries from `from` on, up to and with `last` (`None`: to the end of the log). The
/// batch ends with the entry that reaches [`BATCH_BYTES_MAX`].
fn next_batch(log: &mut LogInspector, from: LogIndex, last: Option<LogIndex>) -> Vec<LogRecord> {
    let (mut batch, mut bytes) = (Vec::new(), 0);
    log.read(from, |record| {
        if last.is_some_and(|last| record.index > last) {
            return ControlFlow::Break(());
        }
        bytes += record.payload.len();
        batch.push(record);
        if bytes < BATCH_BYTES_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    batch
}

/// Writes the bytes of a backup to the new file `path`, durably. `progress` is called with the
/// number of bytes written so far.
///
/// # Errors
///
/// [`BackupError::Io`]; the file may then hold any part of the backup.
pub fn write_backup(backup: &BackupSource, path: &Path, progress: &mut dyn FnMut(u64)) -> Result<(), BackupError> {
    let mut file = headwater_files::FileWriter::create(path)?;
    let (mut failed, mut written) = (None, 0u64);
    backup.send(headwater_types::limits::BACKUP_CHUNK_BYTES, |chunk| {
        written += chunk.len() as u64;
        failed = file.write(&chunk).err();
        progress(written);
        failed.is_none()
    })?;
    match failed {
        Some(error) => Err(error.into()),
        None => Ok(file.finish()?),
    }
}
