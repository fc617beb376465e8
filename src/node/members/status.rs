//! The state of every member, as this one learns it from them.
//!
//! Owns the round of questions, and this member's answer to others. For people: no decision
//! depends on it.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use futures::future::join_all;

use super::super::Inner;
use super::{Member, Members, RequestContext};
use crate::{Consistency, Node, NodeError, Read};
use headwater_raft::{FiguresService, MemberFigures};

/// Longest wait for the figures of one member.
const ANSWER_MAX: Duration = Duration::from_secs(1);

/// A member with its figures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberStatus {
    /// The member.
    pub member: Member,
    /// Its program, for people; empty until it has announced one.
    pub program: String,
    /// Its figures, or the reason for which there are none.
    pub figures: Result<MemberFigures, &'static str>,
    /// Time from the question to its answer, or until the wait ended without one; zero for this
    /// member.
    pub round_trip: Duration,
}

impl Members<'_> {
    /// The members that this one knows, with their figures. Asks all others at once; one without an
    /// answer in time is returned with the reason.
    ///
    /// # Errors
    ///
    /// Those of the read path.
    pub async fn statuses(self, ctx: &RequestContext) -> Result<Read<Vec<MemberStatus>>, NodeError> {
        let members = self.list(ctx, Consistency::Serializable).await?;
        self.node.authorize_somebody(ctx)?;
        let programs = self.node.inner.store.read(|view| view.programs())?;
        let me = self.node.identity().node_id;
        let figures = self.node.inner.consensus.figures();
        let asked = members.value.into_iter().map(|member| {
            let program = programs.get(&member.id).map(|program| program.program.clone()).unwrap_or_default();
            async move {
                let began = Instant::now();
                let (figures, round_trip) = if member.id == me {
                    (figures.own().ok_or("cannot read its state"), Duration::ZERO)
                } else {
                    let answer = tokio::time::timeout(ANSWER_MAX, figures.of(member.id)).await;
                    (answer.unwrap_or(Err("does not answer")), began.elapsed())
                };
                MemberStatus { member, program, figures, round_trip }
            }
        });
        Ok(Read { index: members.index, revision: members.revision, value: join_all(asked).await })
    }
}

/// Answers other members with this one's figures. Holds the node weakly, because consensus holds
/// this service.
pub(crate) struct OwnFigures(Weak<Inner>);

impl OwnFigures {
    pub(crate) fn new(inner: Weak<Inner>) -> Arc<Self> {
        Arc::new(Self(inner))
    }
}

impl FiguresService for OwnFigures {
    fn figures(&self) -> Option<MemberFigures> {
        let status = Node { inner: self.0.upgrade()? }.status().ok()?;
        Some(MemberFigures {
            term: status.leadership.term,
            leader: status.leadership.leader,
            committed: status.committed,
            applied: status.applied,
            stored_bytes: status.stored_bytes,
            serving: status.serving,
        })
    }
}
