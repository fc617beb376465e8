//! The topic of the cluster itself: leases that are granted and end, members that join, change and
//! leave.

use std::sync::Arc;

use super::topic::{SubjectIndex, Topic};
use headwater_types::{ClusterEvent, CommandEvents};

/// Changes of leases and members.
#[derive(Debug)]
pub struct ClusterChanges;

/// The subject of one subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ClusterSubject {
    /// Leases.
    Leases,
    /// Members.
    Members,
}

impl ClusterSubject {
    fn of(event: &ClusterEvent) -> Self {
        match event {
            ClusterEvent::LeaseGranted { .. } | ClusterEvent::LeaseEnded(_) => Self::Leases,
            ClusterEvent::MemberChanged(_) | ClusterEvent::MemberLeft(_) => Self::Members,
        }
    }
}

/// Memory of a change and its overhead, bytes, without a member's texts.
const COST_BYTES: usize = 256;

impl Topic for ClusterChanges {
    type Event = ClusterEvent;
    type Memo = ();
    type Subject = ClusterSubject;
    type Index = ClusterIndex;

    const NAME: &'static str = "cluster";

    fn events(commit: &CommandEvents) -> Arc<[ClusterEvent]> {
        Arc::clone(&commit.cluster)
    }

    fn matches(subject: &ClusterSubject, event: &ClusterEvent) -> bool {
        *subject == ClusterSubject::of(event)
    }

    fn cost_bytes(event: &ClusterEvent) -> usize {
        match event {
            ClusterEvent::MemberChanged(member) => {
                COST_BYTES + member.name.len() + member.peer_url.len() + member.client_url.len()
            }
            ClusterEvent::LeaseGranted { .. } | ClusterEvent::LeaseEnded(_) | ClusterEvent::MemberLeft(_) => COST_BYTES,
        }
    }
}

/// The slots of the two subjects.
#[derive(Default)]
pub struct ClusterIndex {
    leases: Option<usize>,
    members: Option<usize>,
}

impl ClusterIndex {
    fn slot(&mut self, subject: ClusterSubject) -> &mut Option<usize> {
        match subject {
            ClusterSubject::Leases => &mut self.leases,
            ClusterSubject::Members => &mut self.members,
        }
    }
}

impl SubjectIndex<ClusterChanges> for ClusterIndex {
    fn get(&self, subject: &ClusterSubject) -> Option<usize> {
        match subject {
            ClusterSubject::Leases => self.leases,
            ClusterSubject::Members => self.members,
        }
    }

    fn insert(&mut self, subject: &ClusterSubject, slot: usize) {
        *self.slot(*subject) = Some(slot);
    }

    fn remove(&mut self, subject: &ClusterSubject) {
        *self.slot(*subject) = None;
    }

    fn route(&self, event: &ClusterEvent, found: &mut dyn FnMut(usize)) {
        if let Some(slot) = self.get(&ClusterSubject::of(event)) {
            found(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_types::{LeaseId, NodeId};

    #[test]
    fn routing_finds_what_matches() {
        let mut index = ClusterIndex::default();
        let (lease, member) = (ClusterEvent::LeaseEnded(LeaseId(1)), ClusterEvent::MemberLeft(NodeId(1)));
        let routed = |index: &ClusterIndex, event: &ClusterEvent| {
            let mut found = Vec::new();
            index.route(event, &mut |slot| found.push(slot));
            found
        };
        index.insert(&ClusterSubject::Leases, 4);
        assert_eq!((routed(&index, &lease), routed(&index, &member)), (vec![4], vec![]));
        index.insert(&ClusterSubject::Members, 2);
        index.remove(&ClusterSubject::Leases);
        assert_eq!((routed(&index, &lease), routed(&index, &member)), (vec![], vec![2]));
        for subject in [ClusterSubject::Leases, ClusterSubject::Members] {
            assert_eq!(ClusterChanges::matches(&subject, &lease), subject == ClusterSubject::Leases);
            assert_eq!(ClusterChanges::matches(&subject, &member), subject == ClusterSubject::Members);
        }
    }
}
