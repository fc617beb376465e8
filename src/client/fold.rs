//! The effect of a stream's messages on a view, one after the other (spec: consul §3.2).
//!
//! Pure: no time, no connection. Invariant: nothing is handed out before it is whole: a snapshot at
//! its end, a commit at once.

use headwater_proto::pb::subscribe::Event;
use headwater_proto::pb::subscribe::event::Payload;

use super::topic::{Rejected, ViewTopic};

/// Stage of an attempt.
enum Phase<S> {
    /// A snapshot is being received; the old state stays visible meanwhile.
    Snapshot(S),
    /// The attempt resumes, and the server has sent nothing yet. Changes follow, or a snapshot
    /// begins.
    Resume,
    /// Changes of commits are being received.
    Live,
}

/// Effect of a message.
pub(super) enum Step<T: ViewTopic> {
    /// The visible state stays as it is.
    Nothing,
    /// The visible state is out of date: a snapshot was begun.
    Outdated,
    /// A snapshot is complete: this is the state at the index.
    Replace(T::State, u64),
    /// The changes of one commit.
    Apply(Vec<T::Change>, u64),
}

/// State of a view's stream. Turns the messages of one attempt after the other into [`Step`]s.
pub(super) struct Fold<S> {
    phase: Phase<S>,
    /// Index after which the next attempt resumes; 0 asks for a snapshot.
    resume: u64,
}

impl<S: Default> Fold<S> {
    pub(super) fn new() -> Self {
        Self { phase: Phase::Resume, resume: 0 }
    }

    /// Begins an attempt. Returns the index to subscribe from; 0 requests a snapshot.
    pub(super) fn begin(&mut self) -> u64 {
        self.phase = if self.resume == 0 { Phase::Snapshot(S::default()) } else { Phase::Resume };
        self.resume
    }

    /// Forgets the index to resume after: the next attempt requests a snapshot. For a stream that
    /// cannot be continued. The present attempt is not affected.
    pub(super) fn reset(&mut self) {
        self.resume = 0;
    }

    /// Whether this attempt resumes, and the server has sent nothing yet.
    pub(super) fn is_resuming(&self) -> bool {
        matches!(self.phase, Phase::Resume)
    }

    /// Whether the rest of a snapshot is to come.
    pub(super) fn is_in_snapshot(&self) -> bool {
        matches!(self.phase, Phase::Snapshot(_))
    }

    /// Takes the next message.
    ///
    /// # Errors
    ///
    /// [`Rejected`] if the message is not allowed in this stage, or is not of the topic: end the
    /// attempt and [`reset`](Self::reset).
    pub(super) fn take<T: ViewTopic<State = S>>(&mut self, topic: &T, event: Event) -> Result<Step<T>, Rejected> {
        let index = event.index;
        match event.payload {
            None => Err(Rejected("an event without a payload")),
            Some(Payload::NewSnapshotToFollow(_)) => match self.phase {
                Phase::Resume => {
                    self.phase = Phase::Snapshot(S::default());
                    Ok(Step::Outdated)
                }
                Phase::Snapshot(_) | Phase::Live => Err(Rejected("the announcement of a snapshot in mid-stream")),
            },
            Some(Payload::EndOfSnapshot(_)) => match std::mem::replace(&mut self.phase, Phase::Live) {
                Phase::Snapshot(state) if index > 0 => {
                    self.resume = index;
                    Ok(Step::Replace(state, index))
                }
                Phase::Snapshot(_) => Err(Rejected("a snapshot of no index")),
                Phase::Resume | Phase::Live => Err(Rejected("the end of a snapshot that was not begun")),
            },
            Some(payload) => {
                let changes = changes(topic, payload)?;
                if let Phase::Snapshot(state) = &mut self.phase {
                    changes.into_iter().for_each(|change| topic.apply(state, change));
                    return Ok(Step::Nothing);
                }
                self.phase = Phase::Live;
                self.resume = index;
                Ok(Step::Apply(changes, index))
            }
        }
    }
}

/// The changes of a message: its only one, or those of its batch. All are read before any is
/// applied.
fn changes<T: ViewTopic>(topic: &T, payload: Payload) -> Result<Vec<T::Change>, Rejected> {
    let Payload::EventBatch(batch) = payload else { return Ok(vec![topic.read(payload)?]) };
    let read = |event: Event| match event.payload {
        None => Err(Rejected("an event without a payload")),
        Some(Payload::EventBatch(_) | Payload::EndOfSnapshot(_) | Payload::NewSnapshotToFollow(_)) => {
            Err(Rejected("framing inside a batch"))
        }
        Some(payload) => topic.read(payload),
    };
    batch.events.into_iter().map(read).collect()
}
