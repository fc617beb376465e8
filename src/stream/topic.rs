//! The definition of a topic: a kind of change, its subjects, and the routing of changes to
//! subscribers.
//!
//! Owns the two traits that a new topic implements (`docs/adding-a-topic.md`). Invariant:
//! [`SubjectIndex::route`] and [`Topic::matches`] agree, so that a change reaches a subscriber on
//! the live list exactly if it does from history.

use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use headwater_types::CommandEvents;

/// A kind of change that can be subscribed to.
pub trait Topic: Sized + Send + Sync + 'static {
    /// One change.
    type Event: Send + Sync + 'static;
    /// Data derived from a change, for example its encodings. Made on first use, and shared by all
    /// streams that deliver the change.
    type Memo: Default + Send + Sync + 'static;
    /// The key of a subscription: the part of the topic that it receives.
    type Subject: Clone + Eq + Hash + fmt::Debug + Send + Sync + 'static;
    /// Finds the subjects that match a change.
    type Index: SubjectIndex<Self>;

    /// The topic's name in logs and metrics.
    const NAME: &'static str;

    /// The topic's changes in a commit; empty if there are none.
    fn events(commit: &CommandEvents) -> Arc<[Self::Event]>;

    /// Whether `event` belongs to `subject`.
    fn matches(subject: &Self::Subject, event: &Self::Event) -> bool;

    /// Approximate memory of a kept change, bytes. Derived data beyond it is counted as it is
    /// added.
    fn cost_bytes(event: &Self::Event) -> usize;
}

/// The slots of the subjects that have a subscriber or a snapshot. [`route`](Self::route) runs
/// under the feed's lock for every event.
pub trait SubjectIndex<T: Topic>: Default + Send + 'static {
    /// The slot of a subject; `None` if it is not in the index.
    fn get(&self, subject: &T::Subject) -> Option<usize>;

    /// Adds a subject that is not in the index.
    fn insert(&mut self, subject: &T::Subject, slot: usize);

    /// Removes a subject; does nothing if it is not in the index.
    fn remove(&mut self, subject: &T::Subject);

    /// Calls `found` with the slot of every subject that `event` matches, once each, in any order.
    fn route(&self, event: &T::Event, found: &mut dyn FnMut(usize));
}
