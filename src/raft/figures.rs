//! Figures of members for people: how far each has come, and how large its state is.
//!
//! Owns the question to another member, which travels in a hello call. The layer above registers
//! the [`FiguresService`] with this member's figures. Nothing here is used for a decision.

use std::sync::Arc;

use super::consensus::Consensus;
use headwater_proto::pb::peer as pb;
use headwater_types::{LogIndex, NodeId, Term};

/// The figures of one member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemberFigures {
    /// The term of the member.
    pub term: Term,
    /// The leader with which the member is in contact; `None` without one.
    pub leader: Option<NodeId>,
    /// Highest log index that the member knows to be committed.
    pub committed: LogIndex,
    /// Highest log index applied.
    pub applied: LogIndex,
    /// Bytes of the state in files and write buffers, or of its live keys and values if those are
    /// more.
    pub stored_bytes: u64,
    /// Whether the member has applied again all that it had acknowledged before its restart, and
    /// serves.
    pub serving: bool,
}

/// The source of this member's figures.
pub trait FiguresService: Send + Sync + 'static {
    /// The figures now; `None` if they cannot be read.
    fn figures(&self) -> Option<MemberFigures>;
}

/// Handle to figures of members.
#[derive(Clone, Copy)]
pub struct Figures<'a> {
    consensus: &'a Consensus,
}

impl Consensus {
    /// Handle to figures of members.
    pub fn figures(&self) -> Figures<'_> {
        Figures { consensus: self }
    }
}

impl Figures<'_> {
    /// Registers the source of this member's figures. Only the first call has an effect.
    pub fn serve(self, service: Arc<dyn FiguresService>) {
        self.consensus.inner().services.figures.get_or_init(|| service);
    }

    /// This member's figures; `None` while it starts, or if they cannot be read.
    pub fn own(self) -> Option<MemberFigures> {
        self.consensus.inner().services.figures.get()?.figures()
    }

    /// Asks another member for its figures.
    ///
    /// # Errors
    ///
    /// The reason for which there are no figures, as the rest of a sentence about the member: "does
    /// not answer".
    pub async fn of(self, member: NodeId) -> Result<MemberFigures, &'static str> {
        let info = self.consensus.member_info(member).ok_or("is no member")?;
        let request = pb::HelloRequest { with_figures: true };
        let answer = self.consensus.hello_with(member, &info, request).await.ok_or("does not answer")?;
        match answer.figures {
            Some(figures) => Ok(figures.into()),
            None if answer.stopping => Err("stops"),
            None => Err("starts, or its program is older"),
        }
    }
}

impl From<MemberFigures> for pb::MemberFigures {
    fn from(figures: MemberFigures) -> Self {
        Self {
            term: figures.term.get(),
            leader: figures.leader.map_or(0, NodeId::get),
            committed: figures.committed.get(),
            applied: figures.applied.get(),
            stored_bytes: figures.stored_bytes,
            serving: figures.serving,
        }
    }
}

impl From<pb::MemberFigures> for MemberFigures {
    fn from(figures: pb::MemberFigures) -> Self {
        Self {
            term: Term(figures.term),
            leader: (figures.leader != 0).then_some(NodeId(figures.leader)),
            committed: LogIndex(figures.committed),
            applied: LogIndex(figures.applied),
            stored_bytes: figures.stored_bytes,
            serving: figures.serving,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_survive_the_wire() {
        let figures = MemberFigures {
            term: Term(3),
            leader: Some(NodeId(2)),
            committed: LogIndex(10),
            applied: LogIndex(9),
            stored_bytes: 1000,
            serving: true,
        };
        for figures in [figures, MemberFigures::default()] {
            assert_eq!(MemberFigures::from(pb::MemberFigures::from(figures)), figures);
        }
    }
}
