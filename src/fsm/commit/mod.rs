//! Applies a commit: conditions, then operations of several faces, all or nothing
//! (`docs/commits.md`).
//!
//! Owns the order of the checks, and the commits that are kept with their idempotency keys. The
//! rule of an operation is that of its face. Operations write as they run; if one is refused,
//! everything is rolled back to a savepoint. Invariant: a commit that failed has written nothing,
//! and a kept commit does not depend on whether the outcome is wanted.

mod conditions;
mod nodes;
mod operations;

use super::error::FsmError;
use headwater_storage::StorageError;
use headwater_storage::state::{KeptCommits, StateReader, WriteTxn};
use headwater_types::commit::{CommitDone, CommitFault, CommitKey, CommitResult, FaceOp, KeptCommit};
use headwater_types::limits::{
    COMMIT_KEY_KEPT_COMMITS, COMMIT_KEY_KEPT_MS, COMMIT_KEYS_BYTES_MAX, COMMIT_KEYS_MAX,
    COMMIT_KEYS_REMOVED_IF_FULL_MAX, COMMIT_KEYS_REMOVED_MAX,
};
use headwater_types::{Command, Commit, CommitOutcome, LogIndex, Outcome};

/// Whether the command is a commit with an idempotency key that is known: it changes nothing, so
/// that neither quota nor alarms concern it.
pub(super) fn is_known(txn: &WriteTxn<'_>, command: &Command) -> Result<bool, StorageError> {
    if let Command::Commit(commit) = command
        && let Some(key) = &commit.key
    {
        return Ok(txn.kept_commit(&key.id)?.is_some());
    }
    Ok(false)
}

/// Applies a commit of the log entry at `index`.
pub(super) fn apply(txn: &mut WriteTxn<'_>, index: LogIndex, commit: &Commit, want: bool) -> Result<Outcome, FsmError> {
    let outcome = run(txn, index, commit, want)?;
    if matches!(outcome, CommitOutcome::Failed(_)) {
        txn.count(|done| done.refused += 1);
    }
    Ok(Outcome::Commit(outcome))
}

fn run(txn: &mut WriteTxn<'_>, index: LogIndex, commit: &Commit, want: bool) -> Result<CommitOutcome, FsmError> {
    if let Some(key) = &commit.key
        && let Some(kept) = txn.kept_commit(&key.id)?
    {
        return Ok(repeat(key, kept));
    }
    // The proposer has checked it, too.
    if let Some((first, second)) = commit.overlap() {
        return Ok(CommitOutcome::Failed(CommitFault::SameEntity { first, second }));
    }
    if let Some(fault) = conditions::judge(txn, index, &commit.conditions)? {
        return Ok(CommitOutcome::Failed(fault));
    }
    let has_savepoint = !writes_at_most_one_key(commit);
    if has_savepoint {
        txn.set_savepoint();
    }
    let done = operations::run(txn, index, &commit.operations, want || commit.key.is_some());
    let kept = match done {
        Ok(Ok(results)) => keep(txn, index, commit.key.as_ref(), results),
        Ok(Err(fault)) => Ok(Err(fault)),
        Err(failed) => return Err(failed),
    };
    Ok(match kept? {
        Ok(results) => {
            if has_savepoint {
                txn.release_savepoint();
            }
            txn.count(|done| done.txns += 1);
            let revision = txn.head().revision;
            CommitOutcome::Done(CommitDone { index, revision, is_repeated: false, results })
        }
        Err(fault) => {
            if has_savepoint {
                txn.roll_back();
            }
            CommitOutcome::Failed(fault)
        }
    })
}

/// Whether the commit is one put and nothing is kept of it: it writes nothing if it is refused, so
/// there is nothing to roll back.
fn writes_at_most_one_key(commit: &Commit) -> bool {
    let Commit { operations, key, .. } = commit;
    matches!(&operations[..], [one] if matches!(one.of_face(), FaceOp::Put(_))) && key.is_none()
}

/// The outcome of a commit with a known idempotency key: that of the kept commit, or the fault that
/// its body differs.
fn repeat(key: &CommitKey, kept: KeptCommit) -> CommitOutcome {
    let KeptCommit { index, revision, body, results, .. } = kept;
    match body == key.body {
        true => CommitOutcome::Done(CommitDone { index, revision, is_repeated: true, results }),
        false => CommitOutcome::Failed(CommitFault::OtherBody),
    }
}

/// Keeps this commit with its idempotency key and returns `results`. Without a key, only returns
/// `results`. First removes a bounded number of kept commits, the oldest ones: each is older than
/// [`COMMIT_KEY_KEPT_MS`] and has [`COMMIT_KEY_KEPT_COMMITS`] later ones. Returns the fault
/// `TooManyKeys` if the number or the size of the kept commits would still exceed its bound.
fn keep(
    txn: &mut WriteTxn<'_>,
    index: LogIndex,
    key: Option<&CommitKey>,
    results: Vec<CommitResult>,
) -> Result<Result<Vec<CommitResult>, CommitFault>, FsmError> {
    let Some(CommitKey { id, body }) = key else { return Ok(Ok(results)) };
    let unix_ms = txn.command_unix_ms();
    let brief = results.iter().cloned().map(CommitResult::into_brief).collect();
    let kept = KeptCommit { index, revision: txn.head().revision, unix_ms, body: *body, results: brief };
    let bytes = WriteTxn::kept_bytes(&kept);
    let is_full = |totals: KeptCommits| totals.count >= COMMIT_KEYS_MAX || totals.bytes + bytes > COMMIT_KEYS_BYTES_MAX;
    let before = txn.kept_commits()?;
    let removed_max = if is_full(before) { COMMIT_KEYS_REMOVED_IF_FULL_MAX } else { COMMIT_KEYS_REMOVED_MAX };
    for _ in 0..removed_max {
        let Some(entry) = txn.oldest_kept_commit()? else { break };
        // The clocks of proposers may be wrong, and jump in either direction.
        let is_old = before.number - entry.number >= COMMIT_KEY_KEPT_COMMITS
            && unix_ms.abs_diff(entry.unix_ms) > COMMIT_KEY_KEPT_MS;
        if !is_old {
            break;
        }
        txn.forget_commit(&entry)?;
    }
    if is_full(txn.kept_commits()?) {
        return Ok(Err(CommitFault::TooManyKeys));
    }
    txn.keep_commit(*id, kept)?;
    Ok(Ok(results))
}
