//! Topics of views.

use thiserror::Error;

use headwater_proto::pb::subscribe::SubscribeRequest;
use headwater_proto::pb::subscribe::event::Payload;

/// A topic as a view follows it: its request, and the way from events to a state.
pub trait ViewTopic: Send + Sync + 'static {
    /// State of the view.
    type State: Clone + Default + Send + Sync + 'static;
    /// A decoded event.
    type Change: Send + 'static;

    /// The request of the subscription. The index is filled in by the view.
    fn request(&self) -> SubscribeRequest;

    /// Reads an event. Never called with framing or a batch.
    ///
    /// # Errors
    ///
    /// [`Rejected`] for an event that is not of this topic: the view begins again.
    fn read(&self, payload: Payload) -> Result<Self::Change, Rejected>;

    /// Applies a change to the state. The removal of an absent entry does nothing.
    fn apply(&self, state: &mut Self::State, change: Self::Change);
}

/// An event that is not allowed at this point of the stream, or is not of the topic. The text is
/// the reason.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the server sent what does not belong here: {0}")]
pub struct Rejected(pub &'static str);
