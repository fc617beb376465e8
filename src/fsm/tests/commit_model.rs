//! Commits in the model: those on keys and leases.

use std::collections::BTreeMap;

use bytes::Bytes;
use proptest::prelude::*;

use super::bed::*;
use super::commit::{commit_of, refused, same};
use super::model::{self, Model, State};
use headwater_types::commit::{
    CommitCondition, CommitDone, CommitEntity, CommitFault, CommitKey, CommitOp, CommitResult, ConditionFault,
    EntityTest, FaceOp, KeptCommit,
};
use headwater_types::{Command, Commit, CommitOutcome, LeaseRevoke, LogIndex, Outcome, Refusal};

/// The part of the model for commits: those that are kept, and the changes that conditions look at.
#[derive(Clone, Default)]
pub(super) struct Commits {
    kept: BTreeMap<[u8; 16], KeptCommit>,
    /// Log index of the last change of each key, removals included.
    changed: BTreeMap<Bytes, u64>,
}

impl Commits {
    pub(super) fn clear(&mut self) {
        self.kept.clear();
    }

    /// Notes the keys that the command at `index` has changed.
    pub(super) fn note(&mut self, index: u64, before: &State, after: &State) {
        for key in before.keys().chain(after.keys()) {
            if before.get(key) != after.get(key) {
                self.changed.insert(key.clone(), index);
            }
        }
    }
}

impl Model {
    pub(super) fn commit(&mut self, next: &mut State, commit: &Commit) -> CommitOutcome {
        if let Some(key) = &commit.key
            && let Some(kept) = self.commits.kept.get(&key.id)
        {
            let KeptCommit { index, revision, body, results, .. } = kept.clone();
            return match body == key.body {
                true => CommitOutcome::Done(CommitDone { index, revision, is_repeated: true, results }),
                false => CommitOutcome::Failed(CommitFault::OtherBody),
            };
        }
        let leases = self.leases.clone();
        let results = match self.run_commit(next, commit) {
            Ok(results) => results,
            Err(fault) => {
                (*next, self.leases) = (self.now.clone(), leases);
                return CommitOutcome::Failed(fault);
            }
        };
        let revision = self.revision_after(*next != self.now);
        let index = LogIndex(self.index);
        if let Some(key) = &commit.key {
            // A run has too few commits for a key to become old.
            let unix_ms = self.unix_ms.unwrap_or(1_000_000 + self.index);
            let results = results.iter().cloned().map(CommitResult::into_brief).collect();
            let kept = KeptCommit { index, revision, unix_ms, body: key.body, results };
            self.commits.kept.insert(key.id, kept);
        }
        CommitOutcome::Done(CommitDone { index, revision, is_repeated: false, results })
    }

    fn run_commit(&mut self, next: &mut State, commit: &Commit) -> Result<Vec<CommitResult>, CommitFault> {
        if let Some((first, second)) = overlap(commit) {
            return Err(same(first, second));
        }
        for (condition, wanted) in (0u32..).zip(&commit.conditions) {
            self.meets(wanted).map_err(|reason| CommitFault::Condition { condition, reason })?;
        }
        let refuse = |operation: u32| move |refusal: Refusal| refused(operation, refusal);
        let mut results = BTreeMap::new();
        let numbered = || (0u32..).zip(&commit.operations);
        for (number, operation) in numbered() {
            if let FaceOp::LeaseGrant(grant) = operation.of_face() {
                let granted = self.grant(grant.id, grant.ttl_seconds).map_err(refuse(number))?;
                let Outcome::LeaseGranted { ttl_seconds } = granted else { unreachable!() };
                results.insert(number, CommitResult::LeaseGranted { id: grant.id, ttl_seconds });
            }
        }
        let mut written: BTreeMap<Bytes, u32> = BTreeMap::new();
        for (number, operation) in numbered() {
            match operation.of_face() {
                FaceOp::Put(put) => {
                    let done = self.put(next, put).map_err(refuse(number))?;
                    written.insert(put.key.clone(), number);
                    results.insert(number, CommitResult::Put { prev: done.prev });
                }
                FaceOp::DeleteRange(delete) => {
                    let done = self.delete(next, delete, false);
                    results.insert(number, CommitResult::Deleted { deleted: done.deleted, prev: done.prev });
                }
                _ => {}
            }
        }
        for (number, operation) in numbered() {
            if let FaceOp::LeaseRevoke(revoke) = operation.of_face() {
                let ends: Vec<Bytes> =
                    next.iter().filter(|(_, kv)| kv.lease == revoke.id).map(|(key, _)| key.clone()).collect();
                if self.leases.remove(&revoke.id).is_none() {
                    return Err(refused(number, Refusal::LeaseNotFound));
                }
                if let Some(first) = ends.iter().find_map(|key| written.get(key)) {
                    return Err(same(number.min(*first), number.max(*first)));
                }
                next.retain(|_, kv| kv.lease != revoke.id);
                results.insert(number, CommitResult::LeaseRevoked { deleted: ends.len() as u64 });
            }
        }
        Ok(results.into_values().collect())
    }

    fn meets(&self, condition: &CommitCondition) -> Result<(), ConditionFault> {
        let failed = |changed: u64| Err(ConditionFault::Failed { changed: LogIndex(changed) });
        match condition {
            CommitCondition::Compare(compare) => {
                if self.holds(compare) {
                    Ok(())
                } else {
                    failed(0)
                }
            }
            CommitCondition::Entity(entity, test, _) => {
                let ranges = entity.key_ranges();
                let covers = |key: &Bytes| ranges.iter().any(|range| range.contains(key));
                let here = self.now.iter().filter(|(key, _)| covers(key));
                let stored = here.map(|(_, kv)| self.made_at[&kv.mod_revision.get()]).max();
                match *test {
                    EntityTest::Index(at) | EntityTest::UnchangedSince(at) if at.get() >= self.index => {
                        Err(ConditionFault::Future { newest: LogIndex(self.index - 1) })
                    }
                    EntityTest::Index(wanted) if stored.unwrap_or(0) == wanted.get() => Ok(()),
                    EntityTest::Exists(wanted) if stored.is_some() == wanted => Ok(()),
                    EntityTest::Index(_) | EntityTest::Exists(_) => failed(stored.unwrap_or(0)),
                    EntityTest::UnchangedSince(since) => {
                        let oldest = self.made_at.get(&self.compacted).copied().unwrap_or(0);
                        if since.get() < oldest {
                            return Err(ConditionFault::Compacted { oldest: LogIndex(oldest) });
                        }
                        let changed = self.commits.changed.iter().filter(|(key, _)| covers(key));
                        let newest = changed.map(|(_, index)| *index).max().unwrap_or(0);
                        // Changes below the beginning of history may be forgotten; they do not
                        // count.
                        if newest <= since.get() { Ok(()) } else { failed(newest) }
                    }
                }
            }
        }
    }
}

/// Two operations on one key or lease; `None` if there are none. Found by comparing each with each,
/// but named by [`Commit::overlap`].
fn overlap(commit: &Commit) -> Option<(u32, u32)> {
    let meet = |a: FaceOp<'_>, b: FaceOp<'_>| match (a, b) {
        (FaceOp::Put(a), FaceOp::Put(b)) => a.key == b.key,
        (FaceOp::Put(put), FaceOp::DeleteRange(delete)) | (FaceOp::DeleteRange(delete), FaceOp::Put(put)) => {
            delete.range.contains(&put.key)
        }
        (FaceOp::DeleteRange(a), FaceOp::DeleteRange(b)) => {
            let (a, b) = (&a.range, &b.range);
            !a.is_empty() && !b.is_empty() && (a.contains(b.start()) || b.contains(a.start()))
        }
        (FaceOp::LeaseGrant(a), FaceOp::LeaseGrant(b)) => a.id == b.id,
        (FaceOp::LeaseRevoke(a), FaceOp::LeaseRevoke(b)) => a.id == b.id,
        (FaceOp::LeaseGrant(a), FaceOp::LeaseRevoke(b)) | (FaceOp::LeaseRevoke(b), FaceOp::LeaseGrant(a)) => {
            a.id == b.id
        }
        _ => false,
    };
    let all: Vec<_> = commit.operations.iter().map(CommitOp::of_face).collect();
    let meets = (0..all.len()).any(|second| (0..second).any(|first| meet(all[first], all[second])));
    // The pair of several that is named is no rule.
    if meets {
        commit.overlap()
    } else {
        assert_eq!(commit.overlap(), None);
        None
    }
}

pub(super) fn command() -> impl Strategy<Value = Command> {
    let operation = prop_oneof![
        4 => model::put_strategy().prop_map(Command::Put),
        2 => model::delete_strategy().prop_map(Command::DeleteRange),
        1 => (1..4i64, 1..90i64).prop_map(|(id, ttl)| grant(id, ttl)),
        1 => model::lease_id().prop_map(|id| Command::LeaseRevoke(LeaseRevoke { id })),
    ];
    let entity = prop_oneof![
        2 => model::key().prop_map(|key| CommitEntity::Key(bytes(key))),
        1 => Just(CommitEntity::KeysBelow(Bytes::new())),
    ];
    let test = prop_oneof![
        1 => (0..40u64).prop_map(|index| EntityTest::Index(LogIndex(index))),
        2 => (0..60u64).prop_map(|index| EntityTest::UnchangedSince(LogIndex(index))),
        1 => any::<bool>().prop_map(EntityTest::Exists),
    ];
    let condition = prop_oneof![
        model::compare_strategy().prop_map(CommitCondition::Compare),
        (entity, test)
            .prop_filter("a test of one entity", |(entity, test)| test.fits(entity))
            .prop_map(|(entity, test)| CommitCondition::Entity(entity, test, None)),
    ];
    let key = (0..4u8, 0..2u8).prop_map(|(id, body)| CommitKey { id: [id; 16], body: [body; 16] });
    let parts = (
        prop::collection::vec(condition, 0..2),
        prop::collection::vec(operation, 1..4),
        prop::option::weighted(0.4, key),
    );
    parts.prop_map(|(conditions, operations, key)| Command::Commit(Box::new(commit_of(conditions, operations, key))))
}
