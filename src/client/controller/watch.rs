//! Follows one type without end, and reports each resource that was created, changed or deleted.
//!
//! Invariant: no changed resource goes unreported, but a list may report several changes of it as
//! one. A broken watch resumes after the list, or at the last commit from which it received an
//! event. Events of that commit may be reported twice. If that commit was compacted or belongs to
//! another lineage, the watch begins again with a list; resources that are missing in the list are
//! reported as well.

use std::collections::BTreeSet;
use std::time::Duration;

use tonic::{Code, Status};
use tracing::{debug, warn};

use super::client::Client;
use super::wire;
use crate::Backoff;
use headwater_proto::pb::pbresource::watch_event::Event;
use headwater_proto::pb::pbresource::{Resource, WatchEvent};
use headwater_types::resource::{ResourceId, Type};

/// Pauses before a watch is opened again.
const RETRY: Backoff = Backoff { first: Duration::from_millis(50), max: Duration::from_secs(5) };

/// State of the endless watch of one type.
struct Follower<'a, F> {
    on_change: F,
    type_: &'a Type,
    after: wire::Position,
    /// The existing resources in their last state, by their ids without uid. A resource that a
    /// later list lacks is reported in this state.
    known: std::collections::BTreeMap<ResourceId, Resource>,
    /// Known resources that the list being received has not named yet.
    unseen: BTreeSet<ResourceId>,
}

/// Watches `type_` and never returns. Calls `on_change` for each existing resource, then for each
/// that is created, changed or deleted (with its last state). After the watch broke, resources may
/// be reported again although they did not change.
pub(super) async fn follow(client: Client, type_: Type, on_change: impl FnMut(&Resource)) {
    let known = std::collections::BTreeMap::new();
    let mut follower =
        Follower { on_change, type_: &type_, after: wire::Position::default(), known, unseen: BTreeSet::new() };
    let mut failures: u32 = 0;
    loop {
        let before = follower.after.index();
        let endpoint = client.endpoints().preferred();
        let status = match client.watch(endpoint, &type_, &follower.after).await {
            Ok(opened) => {
                follower.after.opened(&opened);
                let mut events = opened.into_inner();
                loop {
                    match events.message().await {
                        Ok(Some(event)) => follower.take(event),
                        Ok(None) => break Status::unavailable("the stream ended"),
                        Err(status) => break status,
                    }
                }
            }
            Err(status) => status,
        };
        if follower.after.index() != before {
            failures = 0;
        }
        follower.ended(&status);
        client.endpoints().fail_over(endpoint);
        failures = failures.saturating_add(1);
        tokio::time::sleep(RETRY.after(failures)).await;
    }
}

impl<F: FnMut(&Resource)> Follower<'_, F> {
    fn take(&mut self, event: WatchEvent) {
        self.after.saw(&event);
        match event.event {
            Some(Event::Upsert(upsert)) => {
                let Some(resource) = upsert.resource else { return };
                let id = wire::id_without_uid(resource.id.as_ref());
                self.unseen.remove(&id);
                (self.on_change)(&resource);
                self.known.insert(id, resource);
            }
            Some(Event::Delete(delete)) => {
                let Some(resource) = delete.resource else { return };
                self.known.remove(&wire::id_without_uid(resource.id.as_ref()));
                (self.on_change)(&resource);
            }
            Some(Event::EndOfSnapshot(_)) => {
                for id in std::mem::take(&mut self.unseen) {
                    if let Some(gone) = self.known.remove(&id) {
                        (self.on_change)(&gone);
                    }
                }
            }
            None => {}
        }
    }

    fn ended(&mut self, status: &Status) {
        match status.code() {
            // Later changes were compacted, or the state is of another lineage.
            Code::OutOfRange | Code::Aborted => self.after.forget(),
            Code::InvalidArgument => {
                warn!(type_ = %self.type_, error = status.message(), "a type cannot be watched; it is tried again");
            }
            _ => debug!(type_ = %self.type_, error = status.message(), "a watch broke and goes on"),
        }
        if self.after.index().is_none() {
            self.unseen = self.known.keys().cloned().collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_proto::pb::pbresource::watch_event::{Delete, EndOfSnapshot, Upsert};

    fn resource(name: &str) -> Resource {
        let id = ResourceId { name: name.to_owned(), ..Default::default() };
        Resource { id: Some(wire::id_to_pb(&id)), ..Default::default() }
    }

    fn event(event: Event, headwater_index: u64) -> WatchEvent {
        WatchEvent { event: Some(event), headwater_index }
    }

    fn upsert(name: &str, index: u64) -> WatchEvent {
        event(Event::Upsert(Upsert { resource: Some(resource(name)) }), index)
    }

    #[test]
    fn what_went_unseen_is_told_after_the_next_list() {
        let type_ = Type::default();
        let mut changed = Vec::new();
        let on_change = |resource: &Resource| changed.push(resource.id.as_ref().unwrap().name.clone());
        let known = std::collections::BTreeMap::new();
        let mut follower =
            Follower { on_change, type_: &type_, after: wire::Position::default(), known, unseen: BTreeSet::new() };
        follower.take(upsert("a", 0));
        follower.take(upsert("b", 0));
        follower.take(event(Event::EndOfSnapshot(EndOfSnapshot {}), 7));
        follower.take(event(Event::Delete(Delete { resource: Some(resource("b")) }), 8));
        follower.take(upsert("c", 9));
        // A break: it goes on with the commit that was seen last, of which there may have been more
        // to come.
        follower.ended(&Status::unavailable("x"));
        assert_eq!(follower.after.index(), Some(8));
        assert!(follower.unseen.is_empty());
        // The changes in between were compacted: the list comes again, and "a" is no longer part of
        // it.
        follower.ended(&Status::out_of_range("x"));
        assert_eq!(follower.after.index(), None);
        follower.take(upsert("c", 0));
        follower.take(upsert("d", 0));
        follower.take(event(Event::EndOfSnapshot(EndOfSnapshot {}), 20));
        assert_eq!(follower.after.index(), Some(20));
        assert_eq!(changed, ["a", "b", "b", "c", "c", "d", "a"]);
    }
}
