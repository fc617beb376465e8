//! The spaces of the cluster itself: leases, named by their ids as sixteen hexadecimal digits, and
//! members, named `members/` and the id likewise.
//!
//! The present elements are read from the state; their changes come from history.

use std::sync::Arc;

use super::space::{ElementData, Space, Touched};
use headwater_storage::{ReadView, StorageError};
use headwater_stream::{ClusterChanges, ClusterSubject, EventPublisher, Feed};
use headwater_types::{ClusterEvent, LeaseId, LogIndex};

/// The name of a lease or a member with this id: sixteen hexadecimal digits, in lower case.
pub(in super::super) fn name(id: u64) -> String {
    format!("{id:016x}")
}

/// Leases by id.
#[derive(Default)]
pub(super) struct LeaseSpace;

impl Space for LeaseSpace {
    type Topic = ClusterChanges;

    fn feed(events: &EventPublisher) -> &Arc<Feed<ClusterChanges>> {
        events.cluster()
    }

    fn subject(&self, _: &str) -> ClusterSubject {
        ClusterSubject::Leases
    }

    fn touched(
        &self,
        _: &ReadView<'_>,
        _: LogIndex,
        event: &ClusterEvent,
        emit: &mut dyn FnMut(String, Touched),
    ) -> Result<(), StorageError> {
        match event {
            ClusterEvent::LeaseGranted { id, ttl_seconds } => {
                let data = ElementData::Lease { id: *id, ttl_seconds: *ttl_seconds };
                emit(name(id.get().cast_unsigned()), Touched { data: Some(data), was_there: Some(false) });
            }
            ClusterEvent::LeaseEnded(id) => {
                emit(name(id.get().cast_unsigned()), Touched { data: None, was_there: Some(true) });
            }
            ClusterEvent::MemberChanged(_) | ClusterEvent::MemberLeft(_) => {}
        }
        Ok(())
    }

    fn has_below(&self, _: &ReadView<'_>, name: &str, _: LogIndex) -> Result<bool, StorageError> {
        Ok(name.is_empty())
    }

    fn read(&self, view: &ReadView<'_>, name: &str, _: LogIndex) -> Result<Option<ElementData>, StorageError> {
        if name.is_empty() {
            return Ok(Some(ElementData::Empty));
        }
        let Some(id) = id(name) else { return Ok(None) };
        let id = LeaseId(id.cast_signed());
        if id.is_deadline() {
            return Ok(None);
        }
        Ok(view.lease(id)?.map(|lease| ElementData::Lease { id, ttl_seconds: lease.ttl_seconds }))
    }

    fn list(
        &self,
        view: &ReadView<'_>,
        root: &str,
        _: bool,
        emit: &mut dyn FnMut(String, ElementData) -> bool,
    ) -> Result<(), StorageError> {
        if !root.is_empty() {
            if let Some(data) = self.read(view, root, LogIndex::ZERO)? {
                emit(root.to_owned(), data);
            }
            return Ok(());
        }
        let mut goes_on = emit(String::new(), ElementData::Empty);
        view.leases(|id, lease| {
            // The store's own deadlines are not visible to followers.
            if !id.is_deadline() {
                let data = ElementData::Lease { id, ttl_seconds: lease.ttl_seconds };
                goes_on = goes_on && emit(name(id.get().cast_unsigned()), data);
            }
        })
    }
}

/// The inverse of [`name`]; `None` for any other text.
pub(in super::super) fn id(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok().filter(|id| name(*id) == text)
}

/// Members by id, in the directory `members`.
#[derive(Default)]
pub(super) struct MemberSpace;

impl Space for MemberSpace {
    type Topic = ClusterChanges;

    fn feed(events: &EventPublisher) -> &Arc<Feed<ClusterChanges>> {
        events.cluster()
    }

    fn subject(&self, _: &str) -> ClusterSubject {
        ClusterSubject::Members
    }

    fn touched(
        &self,
        _: &ReadView<'_>,
        _: LogIndex,
        event: &ClusterEvent,
        emit: &mut dyn FnMut(String, Touched),
    ) -> Result<(), StorageError> {
        match event {
            ClusterEvent::MemberChanged(member) => {
                let data = Some(ElementData::Member(Arc::clone(member)));
                // Earlier existence does not matter: the parent always exists.
                emit(format!("members/{}", name(member.id.get())), Touched { data, was_there: Some(true) });
            }
            ClusterEvent::MemberLeft(id) => {
                emit(format!("members/{}", name(id.get())), Touched { data: None, was_there: Some(true) });
            }
            ClusterEvent::LeaseGranted { .. } | ClusterEvent::LeaseEnded(_) => {}
        }
        Ok(())
    }

    fn has_below(&self, _: &ReadView<'_>, name: &str, _: LogIndex) -> Result<bool, StorageError> {
        Ok(matches!(name, "" | "members"))
    }

    fn read(&self, view: &ReadView<'_>, name: &str, _: LogIndex) -> Result<Option<ElementData>, StorageError> {
        if matches!(name, "" | "members") {
            return Ok(Some(ElementData::Empty));
        }
        let Some(id) = name.strip_prefix("members/").and_then(id) else { return Ok(None) };
        let mut members = headwater_raft::members_of(view)?.into_iter();
        Ok(members.find(|member| member.id.get() == id).map(|member| ElementData::Member(member.into())))
    }

    fn list(
        &self,
        view: &ReadView<'_>,
        root: &str,
        _: bool,
        emit: &mut dyn FnMut(String, ElementData) -> bool,
    ) -> Result<(), StorageError> {
        if !emit(String::new(), ElementData::Empty) || !emit("members".to_owned(), ElementData::Empty) {
            return Ok(());
        }
        for member in headwater_raft::members_of(view)? {
            let name = format!("members/{}", name(member.id.get()));
            let is_wanted = root.strip_prefix("members/").is_none_or(|_| root == name);
            if is_wanted && !emit(name, ElementData::Member(member.into())) {
                break;
            }
        }
        Ok(())
    }
}
