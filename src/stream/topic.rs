//! What a topic is: a kind of change, what can be subscribed to, and how a change finds its subscribers.
//!
//! Owns the two traits that a new topic implements (`docs/adding-a-topic.md`). Invariant: [`SubjectIndex::route`] and
//! [`Topic::matches`] agree, so that a change reaches a subscriber on the live list exactly if it does from history.

use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use headwater_types::CommitEvents;

/// A kind of change that can be subscribed to.
pub trait Topic: Sized + Send + Sync + 'static {
    /// One change.
    type Event: Send + Sync + 'static;
    /// What is derived from a change once and shared by all who send it (its encodings); made on first use.
    type Memo: Default + Send + Sync + 'static;
    /// What a subscription asks for.
    type Subject: Clone + Eq + Hash + fmt::Debug + Send + Sync + 'static;
    /// Finds the subjects that a change concerns.
    type Index: SubjectIndex<Self>;

    /// For logs and metrics.
    const NAME: &'static str;

    /// What a commit means to this topic; empty if it means nothing.
    fn events(commit: &CommitEvents) -> Arc<[Self::Event]>;

    /// Whether a subscription to `subject` wants `event`.
    fn matches(subject: &Self::Subject, event: &Self::Event) -> bool;

    /// About how much memory keeping the change takes, bytes. What memos come to hold beyond it is counted as it is added.
    fn cost_bytes(event: &Self::Event) -> usize;
}

/// The subjects that have subscribers, found by what changes. Its cost decides what publishing costs.
pub trait SubjectIndex<T: Topic>: Default + Send + 'static {
    /// The slot of a subject, if it has one.
    fn get(&self, subject: &T::Subject) -> Option<usize>;

    /// Gives a subject, which has none, a slot.
    fn insert(&mut self, subject: &T::Subject, slot: usize);

    /// Forgets a subject.
    fn remove(&mut self, subject: &T::Subject);

    /// Calls `found` with the slot of every subject that wants `event`, each once, in any order.
    fn route(&self, event: &T::Event, found: &mut dyn FnMut(usize));
}
