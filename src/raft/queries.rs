//! Queries to one member, usually the leader, that need no log entry. Their content is opaque here.
//!
//! The layer above registers the [`QueryService`] that answers them. Invariant: a query may have
//! been answered although its answer was lost, so only idempotent queries may be sent.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;

use super::consensus::Consensus;
use headwater_proto::pb::peer as pb;
use headwater_types::NodeId;

/// Longest wait for the answer of another member. The caller may have a shorter deadline.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// Answers the queries of other members.
pub trait QueryService: Send + Sync + 'static {
    /// Answers queries: one answer for each, in their order.
    fn answer(&self, queries: Vec<Bytes>) -> BoxFuture<'static, Vec<Bytes>>;
}

/// The reason for a missing answer. The query may have been received all the same.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("member {member} did not answer: {reason}")]
pub struct QueryError {
    /// The receiver of the query.
    pub member: NodeId,
    /// The failure in words.
    pub reason: String,
}

/// Handle by which this member sends queries to other members, and registers the service that
/// answers their queries.
#[derive(Clone, Copy)]
pub struct Queries<'a> {
    pub(super) consensus: &'a Consensus,
}

impl<'a> Queries<'a> {
    /// Registers the service that answers the queries of other members. Only the first call has an
    /// effect.
    pub fn serve(self, service: Arc<dyn QueryService>) {
        self.consensus.inner().services.queries.get_or_init(|| service);
    }

    /// The registered service; `None` while the member starts.
    pub(super) fn service(self) -> Option<&'a Arc<dyn QueryService>> {
        self.consensus.inner().services.queries.get()
    }

    /// Sends queries to another member, and waits for the answers: one for each, in their order.
    ///
    /// # Errors
    ///
    /// The receiver is not a member, did not answer in time, or sent a wrong number of answers.
    pub async fn send(self, member: NodeId, queries: Vec<Bytes>) -> Result<Vec<Bytes>, QueryError> {
        let failed = |reason: String| QueryError { member, reason };
        let info = self.consensus.member_info(member).ok_or_else(|| failed("it is no member".to_owned()))?;
        let client = self.consensus.inner().peers.shared(member.get(), &info);
        let mut grpc = client.grpc().map_err(failed)?;
        let count = queries.len();
        let call = grpc.ask(client.route().request(pb::AskRequest { questions: queries }));
        let answer = client.answer(ANSWER_MAX, call).await;
        let answers = answer.map_err(|status| failed(status.message().to_owned()))?.answers;
        if answers.len() != count {
            return Err(failed(format!("{} answers to {count} questions", answers.len())));
        }
        Ok(answers)
    }
}
