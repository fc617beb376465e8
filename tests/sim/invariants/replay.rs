//! A replay of the committed log in the reference model of the rules.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::super::committed::Applied;
use headwater_fsm::tests::model::Model;
use headwater_proto::codec;
use headwater_types::{Command, KeyValue, LogIndex, Outcome};

pub(super) struct Replay {
    pub(super) model: Model,
    /// The model's outcome of each command, by log index.
    pub(super) outcomes: BTreeMap<u64, Outcome>,
    /// The model's revision after each entry, by log index.
    pub(super) revisions: BTreeMap<u64, i64>,
}

impl Replay {
    /// Replays `entries`. With `is_broken` (the control `BrokenRule`), each transaction takes the
    /// wrong branch.
    pub(super) fn of(entries: &BTreeMap<u64, Applied>, is_broken: bool) -> Self {
        let mut replay = Self { model: Model::new(), outcomes: BTreeMap::new(), revisions: BTreeMap::new() };
        for (index, entry) in entries {
            if let Some(bytes) = &entry.command {
                let mut proposal = codec::decode_proposal(bytes.clone(), codec::NEWEST).unwrap().unwrap();
                if is_broken && let Command::Txn(txn) = &mut proposal.command {
                    std::mem::swap(&mut txn.success, &mut txn.failure);
                }
                let outcome = replay.model.apply_at(entry.term, LogIndex(*index), &proposal);
                replay.outcomes.insert(*index, outcome);
            }
            replay.revisions.insert(*index, replay.model.revision);
        }
        replay
    }

    /// All pairs of the model at `revision`.
    pub(super) fn at(&self, revision: i64) -> &BTreeMap<Bytes, KeyValue> {
        let (_, pairs) =
            self.model.past.range(..=revision).next_back().expect("invariant: the first revision is there");
        pairs
    }

    /// The revision after the entry at this log index; 1 before the first entry.
    pub(super) fn revision_at(&self, index: LogIndex) -> i64 {
        self.revisions.range(..=index.get()).next_back().map_or(1, |(_, revision)| *revision)
    }
}
