//! What a view must know of its topic.

use thiserror::Error;

use headwater_proto::pb::subscribe::SubscribeRequest;
use headwater_proto::pb::subscribe::event::Payload;

/// A topic as a view follows it: what it asks for, and how events become a state.
pub trait ViewTopic: Send + Sync + 'static {
    /// What the view holds.
    type State: Clone + Default + Send + Sync + 'static;
    /// What an event says, once it was understood.
    type Change: Send + 'static;

    /// What to subscribe to. The index is filled in by the view.
    fn request(&self) -> SubscribeRequest;

    /// Reads an event. Never called with framing or a batch.
    ///
    /// # Errors
    ///
    /// [`Rejected`] for an event that is not of this topic: the view begins again.
    fn read(&self, payload: Payload) -> Result<Self::Change, Rejected>;

    /// Makes a change. A removal of what is not there does nothing (a set operation).
    fn apply(&self, state: &mut Self::State, change: Self::Change);
}

/// An event that makes no sense where it came.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the server sent what does not belong here: {0}")]
pub struct Rejected(pub &'static str);
