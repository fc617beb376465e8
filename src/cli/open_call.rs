//! Calls that stay open, at any endpoint that answers, until a signal ends them or every endpoint
//! would refuse them.
//!
//! Owns the messages on standard error while no endpoint answers. Invariant: a call that no
//! endpoint has ever answered ends after each was asked once.

use std::time::{Duration, Instant};

use tonic::Status;

use super::connect::{Cluster, describe};
use super::error::{CliError, Tried};
use super::notice;
use headwater_client::{Attempt, is_final_for_streams};

/// Pause after a round in which the call has failed or ended at all endpoints.
pub(crate) const RETRY_PAUSE: Duration = Duration::from_millis(250);
/// Silence before a message is printed: an election or a restart takes less.
const SILENCE_MIN: Duration = Duration::from_secs(3);

/// Record of whether any endpoint answers. Prints a message when none has for [`SILENCE_MIN`], and
/// when one answers again.
#[derive(Debug, Default)]
pub(crate) struct Contact {
    was_made: bool,
    /// Whether an endpoint has answered since the user's token was renewed; true if it was not
    /// renewed at the present endpoint.
    since_renewal: bool,
    /// Time of the first round after the last answer in which the call failed or ended at all
    /// endpoints; `None` if there was none.
    silent_since: Option<Instant>,
    was_printed: bool,
}

impl Contact {
    /// Records that an endpoint has answered.
    pub(crate) fn made(&mut self) {
        (self.was_made, self.since_renewal) = (true, true);
        if let Some(since) = self.silent_since.take().filter(|_| std::mem::take(&mut self.was_printed)) {
            notice!("answered again after {} s", since.elapsed().as_secs());
        }
    }

    /// Whether any endpoint has answered since the start. Until one has, a call ends once every
    /// endpoint was asked.
    pub(crate) fn was_made(&self) -> bool {
        self.was_made
    }

    /// Records that the call has failed or ended at all endpoints; `tried` has the reasons.
    pub(crate) fn failed(&mut self, tried: &[Tried]) {
        let since = *self.silent_since.get_or_insert_with(Instant::now);
        if !self.was_printed && since.elapsed() >= SILENCE_MIN {
            self.was_printed = true;
            let tried: Vec<String> = tried.iter().map(Tried::to_string).collect();
            notice!("nobody answers ({}); trying until somebody does", tried.join("; "));
        }
    }
}

/// Judges a status that ends a call: an error if every endpoint would refuse the call, else the
/// reason to try the next endpoint.
pub(crate) fn ended(status: &Status) -> Result<String, CliError> {
    if is_final_for_streams(status.code()) {
        return Err(CliError::StreamRefused(Box::new(status.clone())));
    }
    Ok(describe(status))
}

/// Makes `call` at one endpoint after the other, without end. `call` reports each answer to
/// `Contact`, and returns the reason to ask the next endpoint. Returns only errors: the one of
/// `call`, or [`CliError::Unreachable`] if no endpoint has ever answered.
pub(crate) async fn keep_open(
    cluster: &Cluster,
    mut call: impl AsyncFnMut(&Attempt, &mut Contact) -> Result<String, CliError>,
) -> Result<(), CliError> {
    let endpoints = cluster.endpoints();
    let mut contact = Contact::default();
    loop {
        let mut tried = Vec::new();
        for number in endpoints.order() {
            let reason = open_at(cluster, number, &mut contact, &mut call).await?;
            endpoints.fail_over(number);
            tried.push(Tried { endpoint: endpoints.name(number).to_owned(), reason });
        }
        if !contact.was_made() {
            return Err(CliError::Unreachable(tried));
        }
        contact.failed(&tried);
        tokio::time::sleep(RETRY_PAUSE).await;
    }
}

/// Makes `call` at one endpoint. Makes it again with a new token if the user's is no longer known
/// there: a member that restarts forgets tokens. Returns the reason to ask the next endpoint.
async fn open_at(
    cluster: &Cluster,
    number: usize,
    contact: &mut Contact,
    call: &mut impl AsyncFnMut(&Attempt, &mut Contact) -> Result<String, CliError>,
) -> Result<String, CliError> {
    contact.since_renewal = true;
    loop {
        let attempt = match cluster.attempt(number).await {
            Ok(attempt) => attempt,
            Err(reason) => return Ok(reason),
        };
        match call(&attempt, contact).await {
            Err(CliError::StreamRefused(status))
                if contact.since_renewal && cluster.endpoints().renew_token_after(&status).await =>
            {
                contact.since_renewal = false;
            }
            ended => return ended,
        }
    }
}
