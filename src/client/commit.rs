//! Commits over all faces, repeated until their outcome is known, that take effect at most once.
//!
//! Owns the idempotency key and the repetition: an attempt whose outcome is unknown is sent again
//! with the same key, so that the store recognises it. Invariant: an answer means that the commit
//! took effect once; [`CommitError::Refused`] and [`CommitError::Unreachable`] mean that it did
//! not. Any other end is [`CommitError::Indeterminate`].

use std::time::Duration;

use thiserror::Error;
use tokio::time::Instant;
use tonic::Status;

use super::backoff::Backoff;
use super::endpoints::{CallError, Endpoints, FailedAttempt, Repeat};
use headwater_proto::pb::headwater_v1::{CommitRequest, CommitResponse};

/// Pauses between rounds over the endpoints.
const PAUSES: Backoff = Backoff { first: Duration::from_millis(20), max: Duration::from_secs(1) };

/// Timeouts of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommitTimeouts {
    /// Longest wait for the answer of one endpoint.
    pub attempt: Duration,
    /// Time after which no further round over the endpoints is begun. One under way goes on.
    pub total: Duration,
}

impl Default for CommitTimeouts {
    /// 5 s for each answer, and 30 s in all.
    fn default() -> Self {
        Self { attempt: Duration::from_secs(5), total: Duration::from_secs(30) }
    }
}

/// The failure of a commit.
#[derive(Clone, Debug, Error)]
pub enum CommitError {
    /// A server refused it: nothing changed. The metadata `headwater-operation` or
    /// `headwater-condition` has the number, from 0, of the part that was refused, if it was one.
    #[error("{endpoint}: {}", status.message())]
    Refused {
        /// The endpoint that refused.
        endpoint: String,
        /// The status with which the server refused.
        status: Status,
    },
    /// No endpoint took the commit in time: nothing changed. Has the failures of the last round.
    #[error("no endpoint accepted the commit in time")]
    Unreachable(Vec<FailedAttempt>),
    /// It is not known whether it took effect, or may yet. It can be sent again with
    /// `idempotency_key`.
    #[error("it is not known whether the commit took effect; send it again with the same idempotency key")]
    Indeterminate {
        /// The key of all attempts.
        idempotency_key: Vec<u8>,
        /// The status of the last attempt of unknown outcome, or the refusal of a later one.
        status: Status,
    },
}

impl Endpoints {
    /// Sends a commit, and repeats it until its outcome is known or `timeouts.total` is over. A
    /// request without an idempotency key gets a random one, of hexadecimal digits.
    ///
    /// # Errors
    ///
    /// [`CommitError`].
    pub async fn commit(
        &self,
        mut request: CommitRequest,
        timeouts: CommitTimeouts,
    ) -> Result<CommitResponse, CommitError> {
        if request.idempotency_key.is_empty() {
            request.idempotency_key = format!("{:032x}", rand::random::<u128>()).into();
        }
        let request = &request;
        let until = Instant::now() + timeouts.total;
        // An attempt without an answer may still be on its way: then no refusal is the last word.
        let mut doubt = None;
        let mut failures = 0;
        loop {
            let call = async |attempt: super::Attempt| attempt.store().commit(attempt.request(request.clone())).await;
            let unreachable = match self.call(Repeat::Harmful, timeouts.attempt, call).await {
                Ok(response) => return Ok(response.into_inner()),
                Err(CallError::Refused { endpoint, status }) => {
                    return Err(match doubt {
                        None => CommitError::Refused { endpoint, status },
                        Some(_) => indeterminate(request, status),
                    });
                }
                Err(CallError::Indeterminate(attempt)) => {
                    doubt = Some(attempt.failure.into_status());
                    Vec::new()
                }
                Err(CallError::Unreachable(attempts)) => attempts,
            };
            failures += 1;
            let pause = PAUSES.after(failures);
            if Instant::now() + pause >= until {
                return Err(match doubt {
                    Some(status) => indeterminate(request, status),
                    None => CommitError::Unreachable(unreachable),
                });
            }
            tokio::time::sleep(pause).await;
        }
    }
}

fn indeterminate(request: &CommitRequest, status: Status) -> CommitError {
    CommitError::Indeterminate { idempotency_key: request.idempotency_key.to_vec(), status }
}
