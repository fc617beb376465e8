//! Leases and members at a point of history. They have no versions: the present ones are read, and
//! what came after the point is undone by the events that history has of both.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::error::StoreError;
use super::{At, Found};
use headwater_storage::state::{CommandWalk, HistorySpan, Table, Tables};
use headwater_storage::{ReadView, StorageError};
use headwater_types::{ClusterEvent, ClusterMember, LeaseId, LogIndex, NodeId};

/// Bound on the entries of history that one search visits, count: records of all tables, and
/// heads. It is checked after each command. A search beyond it that has not found its answer ends
/// without a result.
const SEARCHED_MAX: usize = 2_000_000;

/// The table with the events of leases and members.
pub(super) const TABLES: Tables = Tables::of(&[Table::ClusterEvents]);

/// A lease as it was at some index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PastLease {
    /// Time to live, whole seconds; zero for a lease that has ended since.
    pub(super) ttl_seconds: i64,
    /// Log index of the grant; zero if it is unknown.
    pub(super) granted: LogIndex,
}

/// The leases that existed at a point, without the store's own deadlines.
pub(super) fn leases(view: &ReadView<'_>, at: At) -> Found<BTreeMap<LeaseId, PastLease>> {
    let mut leases = BTreeMap::new();
    view.leases(|id, lease| {
        // The store's own deadlines are no entities.
        if !id.is_deadline() {
            leases.insert(id, PastLease { ttl_seconds: lease.ttl_seconds, granted: lease.granted });
        }
    })?;
    let mut first = BTreeMap::new();
    let searched = later_events(view, at, |event| match event {
        ClusterEvent::LeaseGranted { id, .. } => {
            first.entry(id).or_insert(false);
        }
        ClusterEvent::LeaseEnded(id) => {
            first.entry(id).or_insert(true);
        }
        ClusterEvent::MemberChanged(_) | ClusterEvent::MemberLeft(_) => {}
    })?;
    if !searched {
        return Ok(Err(too_far(at)));
    }
    for (id, has_existed) in first {
        match has_existed {
            true => leases.insert(id, PastLease { ttl_seconds: 0, granted: LogIndex::ZERO }),
            false => leases.remove(&id),
        };
    }
    Ok(Ok(leases))
}

/// The members at a point, each with the log index of its last change. Zero for a member that has
/// not changed since the point.
pub(super) fn members(view: &ReadView<'_>, at: At) -> Found<BTreeMap<NodeId, (Arc<ClusterMember>, LogIndex)>> {
    let present = headwater_raft::members_of(view)?.into_iter();
    let mut members: BTreeMap<_, _> = present.map(|member| (member.id, (Arc::new(member), LogIndex::ZERO))).collect();
    let mut changed = BTreeMap::new();
    let searched = later_events(view, at, |event| match event {
        ClusterEvent::MemberChanged(member) => {
            changed.insert(member.id, false);
        }
        ClusterEvent::MemberLeft(id) => {
            changed.insert(id, false);
        }
        ClusterEvent::LeaseGranted { .. } | ClusterEvent::LeaseEnded(_) => {}
    })?;
    if !searched {
        return Ok(Err(too_far(at)));
    }
    for id in changed.into_keys() {
        members.remove(&id);
        match member_before(view, id, at.index.next())? {
            Earlier::Found(member, index) => {
                members.insert(id, (member, index));
            }
            Earlier::Missing => {}
            Earlier::Compacted => {
                let oldest = view.head().compacted_index();
                return Ok(Err(StoreError::MemberCompacted { index: at.index, oldest }));
            }
            Earlier::TooFar => return Ok(Err(too_far(at))),
        }
    }
    Ok(Ok(members))
}

fn too_far(at: At) -> StoreError {
    StoreError::TooFar { index: at.index, searched: SEARCHED_MAX }
}

/// Visits the events after a point, oldest first. Returns false if it visited more than
/// [`SEARCHED_MAX`] entries of history: it stopped there, and later events may be missing.
fn later_events(view: &ReadView<'_>, at: At, mut visit: impl FnMut(ClusterEvent)) -> Result<bool, StorageError> {
    if at.is_newest() {
        return Ok(true);
    }
    let mut walk = view.walk(HistorySpan { after: at.index, through: view.applied() }, false, TABLES);
    while let Some(command) = walk.next()? {
        command.cluster_events()?.into_iter().for_each(&mut visit);
        if walk.visited() > SEARCHED_MAX {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The state of one member right before a command.
pub(super) enum Earlier {
    /// The member, as the command at this index left it.
    Found(Arc<ClusterMember>, LogIndex),
    /// The member did not exist.
    Missing,
    /// Unknown: the member's last change before the command, if any, is older than history.
    Compacted,
    /// Unknown: the member's last change before the command was not found among the `SEARCHED_MAX`
    /// entries of history before it.
    TooFar,
}

/// The member with this id right before the command at `index`.
pub(super) fn member_before(view: &ReadView<'_>, id: NodeId, index: LogIndex) -> Result<Earlier, StorageError> {
    let floor = view.head().compacted_index();
    let span = HistorySpan {
        after: LogIndex(floor.get().saturating_sub(1)),
        through: LogIndex(index.get().saturating_sub(1)),
    };
    let mut walk: CommandWalk<'_> = view.walk(span, true, TABLES);
    while let Some(command) = walk.next()? {
        for event in command.cluster_events()?.into_iter().rev() {
            match event {
                ClusterEvent::MemberChanged(member) if member.id == id => {
                    return Ok(Earlier::Found(member, command.index));
                }
                ClusterEvent::MemberLeft(left) if left == id => return Ok(Earlier::Missing),
                ClusterEvent::MemberChanged(_)
                | ClusterEvent::MemberLeft(_)
                | ClusterEvent::LeaseGranted { .. }
                | ClusterEvent::LeaseEnded(_) => {}
            }
        }
        if walk.visited() > SEARCHED_MAX {
            return Ok(Earlier::TooFar);
        }
    }
    Ok(if floor == LogIndex::ZERO { Earlier::Missing } else { Earlier::Compacted })
}
