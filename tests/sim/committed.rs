//! The log entries that members apply: all members must apply the same entry at one log index.

use std::collections::BTreeMap;

use bytes::Bytes;
use parking_lot::Mutex;

use headwater_raft::parts::{EntryPayload, LogEntry, term_of};
use headwater_types::Term;

/// An applied log entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Applied {
    pub(super) term: Term,
    /// The encoded proposal; `None` for an entry without a command, or a membership.
    pub(super) command: Option<Bytes>,
}

#[derive(Default)]
pub(super) struct Committed {
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    entries: BTreeMap<u64, Applied>,
    /// Descriptions of entries that differ between members at one log index.
    conflicts: Vec<String>,
}

impl Committed {
    /// Records an entry that a member is about to apply; also a conflict, if the entry recorded
    /// first for that log index is another one.
    pub(super) fn note(&self, member: u64, entry: &LogEntry) {
        let command = match &entry.payload {
            EntryPayload::Normal(command) if !command.0.is_empty() => Some(command.0.clone()),
            EntryPayload::Normal(_) | EntryPayload::Blank | EntryPayload::Membership(_) => None,
        };
        let new = Applied { term: Term(term_of(&entry.log_id)), command };
        let index = entry.log_id.index;
        let mut seen = self.seen.lock();
        let known = seen.entries.entry(index).or_insert_with(|| new.clone());
        if *known != new {
            let conflict = format!("entry {index} is {new:?} on member {member}, and was {known:?} before");
            seen.conflicts.push(conflict);
        }
    }

    /// Removes and returns all entries, by log index, and all conflicts.
    pub(super) fn take(&self) -> (BTreeMap<u64, Applied>, Vec<String>) {
        let mut seen = self.seen.lock();
        (std::mem::take(&mut seen.entries), std::mem::take(&mut seen.conflicts))
    }
}
