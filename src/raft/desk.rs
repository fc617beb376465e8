//! Questions to one member, usually the leader, that need no log entry. What they mean is not known here.
//!
//! A member answers at its desk, which the layer above opens. Invariant: a question may reach the other side although no
//! answer came back, so only what may be asked twice may be asked.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;

use super::consensus::Consensus;
use headwater_proto::pb::peer as pb;
use headwater_types::NodeId;

/// How long another member may take to answer. Whoever asks may give up before.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// Answers what other members ask.
pub trait Desk: Send + Sync + 'static {
    /// One answer a question, in their order.
    fn answer(&self, questions: Vec<Bytes>) -> BoxFuture<'static, Vec<Bytes>>;
}

/// Why a question has no answer. It may have been heard all the same.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("member {member} did not answer: {reason}")]
pub struct AskError {
    /// Who was asked.
    pub member: NodeId,
    /// What came instead of an answer.
    pub reason: String,
}

impl Consensus {
    /// Opens this member's desk; the first one counts.
    pub fn open_desk(&self, desk: Arc<dyn Desk>) {
        self.inner().desk.get_or_init(|| desk);
    }

    pub(super) fn desk(&self) -> Option<&Arc<dyn Desk>> {
        self.inner().desk.get()
    }

    /// Asks another member; one answer a question, in their order.
    ///
    /// # Errors
    ///
    /// If it is not a member, or did not answer.
    pub async fn ask(&self, member: NodeId, questions: Vec<Bytes>) -> Result<Vec<Bytes>, AskError> {
        let failed = |reason: String| AskError { member, reason };
        let info = self.member_info(member).ok_or_else(|| failed("it is no member".to_owned()))?;
        let client = self.inner().peers.shared(member.get(), &info);
        let mut grpc = client.grpc().map_err(failed)?;
        let count = questions.len();
        let asked = grpc.ask(client.route().request(pb::AskRequest { questions }));
        let answer = client.answer(ANSWER_MAX, asked).await;
        let answers = answer.map_err(|status| failed(status.message().to_owned()))?.answers;
        if answers.len() != count {
            return Err(failed(format!("{} answers to {count} questions", answers.len())));
        }
        Ok(answers)
    }
}
