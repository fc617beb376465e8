//! The definition of a topic: a kind of change, its subjects, and the routing of changes to
//! subscribers.
//!
//! Owns the two traits that a new topic implements (`docs/adding-a-topic.md`). Invariant:
//! [`SubjectIndex::route`] and [`Topic::matches`] agree, so that a change reaches a subscriber on
//! the live list exactly if it does from history.

use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use headwater_types::CommitEvents;

/// A kind of change that can be subscribed to.
pub trait Topic: Sized + Send + Sync + 'static {
    /// One change.
    type Event: Send + Sync + 'static;
    /// Data derived from a change once and shared by all streams that send it (its encodings); made
    /// on first use.
    type Memo: Default + Send + Sync + 'static;
    /// The part of the topic that a subscription asks for.
    type Subject: Clone + Eq + Hash + fmt::Debug + Send + Sync + 'static;
    /// Finds the subjects that a change concerns.
    type Index: SubjectIndex<Self>;

    /// The topic's name in logs and metrics.
    const NAME: &'static str;

    /// The topic's changes in a commit; empty if there are none.
    fn events(commit: &CommitEvents) -> Arc<[Self::Event]>;

    /// Whether `event` belongs to `subject`.
    fn matches(subject: &Self::Subject, event: &Self::Event) -> bool;

    /// Approximate memory of a kept change, bytes. Memory that memos take beyond it is counted as
    /// it is added.
    fn cost_bytes(event: &Self::Event) -> usize;
}

/// The subjects that have subscribers, found by an event. Its cost decides the cost of publishing.
pub trait SubjectIndex<T: Topic>: Default + Send + 'static {
    /// The slot of a subject, if it has one.
    fn get(&self, subject: &T::Subject) -> Option<usize>;

    /// Gives a subject, which has none, a slot.
    fn insert(&mut self, subject: &T::Subject, slot: usize);

    /// Forgets a subject.
    fn remove(&mut self, subject: &T::Subject);

    /// Calls `found` with the slot of every subject that `event` belongs to, each once, in any
    /// order.
    fn route(&self, event: &T::Event, found: &mut dyn FnMut(usize));
}
