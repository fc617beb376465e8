//! The content of a data directory whose node does not run, for the command line.
//!
//! Owns the order in which the parts of the directory are read. Invariant: nothing in the directory
//! changes.

use std::ops::ControlFlow;
use std::path::Path;

use headwater_proto::codec::CodecError;
use headwater_proto::codec::raft::{self as record, Membership};
use headwater_storage::StorageError;
use headwater_storage::data_dir::{DataDir, DirectoryIdentity, Layout};
use headwater_storage::log::{LogFacts, LogInspector, LogRecord, RecordKind};
use headwater_storage::state::{StateHead, inspect_state};
use headwater_types::{LogIndex, Supported};

pub use headwater_storage::damage::{Damage, DamageList};
pub use headwater_storage::log;

/// The members as of a log entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MembersAt {
    /// Log index of the entry that made the membership.
    pub index: LogIndex,
    /// The members.
    pub members: Membership,
}

/// Content and damage of a data directory.
#[derive(Clone, Debug, Default)]
pub struct Inspection {
    /// The stamp. `None` if it is missing or unreadable.
    pub identity: Option<DirectoryIdentity>,
    /// Names of the notes `REJOINING` and `REMOVED` that are set: conditions of the node.
    pub notes: Vec<&'static str>,
    /// The vote, log ids and write numbers that the log holds.
    pub log: LogFacts,
    /// Number of log entries that were read.
    pub entries: u64,
    /// The head of the state on disk. `None` if it cannot be read.
    pub head: Option<StateHead>,
    /// The members as the state on disk or a later entry of the log has them. `None` if neither has
    /// members that can be read.
    pub members: Option<MembersAt>,
    /// Number of records of the state that were read.
    pub records: u64,
    /// Everything that was found wrong.
    pub damage: DamageList,
}

/// Reads all of the data directory `dir`. `visit` is called with each entry of the log, in order;
/// its error is the reason for which no member can apply the entry, and becomes damage. `progress`
/// is called with the number of records of the state read so far. Blocks for as long as it takes.
///
/// # Errors
///
/// If a node uses the directory, if there is no such directory, or if its lock file cannot be
/// opened or locked. Damage is not an error.
pub fn inspect(
    dir: &Path,
    supported: Supported,
    visit: &mut dyn FnMut(LogRecord) -> Result<(), CodecError>,
    progress: &mut dyn FnMut(u64),
) -> Result<Inspection, StorageError> {
    let _lock = DataDir::lock_for_reading(dir)?;
    let layout = Layout::new(dir);
    let mut found = Inspection::default();
    match DataDir::identity(dir, supported) {
        Ok(Some(identity)) => found.identity = Some(identity),
        Ok(None) => found.damage.add("STAMP", "missing: this is not the data directory of a node, or no longer"),
        Err(error) => found.damage.add("STAMP", error.to_string()),
    }
    for (name, note) in [("REJOINING", layout.rejoining()), ("REMOVED", layout.removed())] {
        if note.is_set() {
            found.notes.push(name);
        }
    }
    let mut log = LogInspector::open(&layout.log_dir());
    let (mut entries, mut undecodable) = (0, DamageList::default());
    let mut changed = None;
    log.read(LogIndex::ZERO, |record| {
        entries += 1;
        let index = record.index;
        if record.kind == RecordKind::Membership {
            changed =
                record::decode(&record.payload).ok().map(|members: Membership| (index, members)).or(changed.take());
        }
        if let Err(error) = visit(record) {
            undecodable.add(format!("log/entries/{index}"), format!("whole, but no member can apply it: {error}"));
        }
        ControlFlow::Continue(())
    });
    (found.log, found.entries) = (*log.facts(), entries);
    found.damage.append(log.damage().clone());
    found.damage.append(undecodable);
    if let (Some(identity), Some(store_id)) = (found.identity, found.log.store_id)
        && identity.store_id != store_id
    {
        found.damage.add(
            "log",
            format!("belongs to store {store_id:016x}, and the directory to store {:016x}", identity.store_id),
        );
    }
    let state = inspect_state(&layout.state_dir(), progress);
    (found.head, found.records) = (state.head, state.records);
    found.damage.append(state.damage);
    match state.membership.map(|record| read_members(&record)) {
        Some(Ok(members)) => found.members = members,
        Some(Err(error)) => found.damage.add("state, membership", error.to_string()),
        None => {}
    }
    if let Some((index, members)) =
        changed.filter(|(index, _)| found.members.as_ref().is_none_or(|at| at.index < *index))
    {
        found.members = Some(MembersAt { index, members });
    }
    Ok(found)
}

/// Reads the membership of the state. `None` if the record is empty: the state has had no
/// membership yet.
fn read_members(bytes: &[u8]) -> Result<Option<MembersAt>, CodecError> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let (id, read): (record::LogId, usize) = record::decode_prefix(bytes)?;
    // The highest id that any member has had may follow.
    let (members, _): (Membership, usize) = record::decode_prefix(&bytes[read..])?;
    Ok(Some(MembersAt { index: id.index, members }))
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use headwater_types::{NodeId, Term};

    #[test]
    fn a_membership_of_the_state_is_read_with_and_without_the_ids_behind_it() {
        let node = |name: &str| record::NodeInfo { name: name.to_owned(), ..Default::default() };
        let members = Membership {
            configs: vec![BTreeSet::from([NodeId(2)])],
            nodes: BTreeMap::from([(NodeId(2), node("a")), (NodeId(3), node("b"))]),
        };
        let mut bytes = record::encode(&record::LogId { term: Term(1), index: LogIndex(7) });
        record::encode_into(&members, &mut bytes);
        let read = |bytes: &[u8]| read_members(bytes).unwrap().unwrap();
        let wanted = MembersAt { index: LogIndex(7), members: members.clone() };
        assert_eq!(read(&bytes), wanted);
        let without_ids = bytes.len();
        record::encode_into(&record::MemberIds { highest: NodeId(9) }, &mut bytes);
        assert_eq!(read(&bytes), wanted);
        assert_eq!(read_members(&[]).unwrap(), None);
        assert!(read_members(&bytes[..without_ids - 1]).is_err());
    }
}
