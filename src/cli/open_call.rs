//! Calls that stay open, at any endpoint that answers, until a signal or the server ends them.
//!
//! Owns the failover, and the messages on standard error while no endpoint answers.

use std::time::{Duration, Instant};

use tonic::{Code, Status};

use super::connect::{Attempt, Cluster, describe};
use super::error::{CliError, Tried};

/// Pause after every endpoint was tried in vain.
pub(crate) const RETRY_PAUSE: Duration = Duration::from_millis(250);
/// An election or a restart takes as long, and nobody needs to hear of it.
const SILENCE_MIN: Duration = Duration::from_secs(3);

/// Whether anybody answers. Says when nobody has for a while, and when somebody does again.
#[derive(Debug, Default)]
pub(crate) struct Contact {
    was_made: bool,
    silent_since: Option<Instant>,
    was_told: bool,
}

impl Contact {
    /// An endpoint has answered.
    pub(crate) fn made(&mut self) {
        self.was_made = true;
        if let Some(since) = self.silent_since.take().filter(|_| std::mem::take(&mut self.was_told)) {
            eprintln!("answered again after {} s", since.elapsed().as_secs());
        }
    }

    /// Whether anybody has ever answered: a call that nobody took is not worth another try.
    pub(crate) fn was_made(&self) -> bool {
        self.was_made
    }

    /// Every endpoint was tried in vain.
    pub(crate) fn failed(&mut self, tried: &[Tried]) {
        let since = *self.silent_since.get_or_insert_with(Instant::now);
        if !self.was_told && since.elapsed() >= SILENCE_MIN {
            self.was_told = true;
            let tried: Vec<String> = tried.iter().map(Tried::to_string).collect();
            eprintln!("nobody answers ({}); trying until somebody does", tried.join("; "));
        }
    }
}

/// Judges a status that ends a call: an error if every endpoint would refuse it, else the reason to
/// try the next endpoint.
pub(crate) fn ended(status: &Status) -> Result<String, CliError> {
    match status.code() {
        Code::InvalidArgument | Code::Unimplemented | Code::PermissionDenied | Code::Unauthenticated => {
            Err(CliError::Finding(status.message().to_owned()))
        }
        _ => Ok(describe(status)),
    }
}

/// Makes `call` at one endpoint after the other. It tells `Contact` when it is answered, and gives
/// the reason for which it ended where another endpoint may do better.
///
/// # Errors
///
/// The final error of the call, or the failures of all endpoints before the first success. It ends
/// in no other way.
pub(crate) async fn keep_open(
    cluster: &Cluster,
    mut call: impl AsyncFnMut(&Attempt, &mut Contact) -> Result<String, CliError>,
) -> Result<(), CliError> {
    let mut contact = Contact::default();
    loop {
        let mut tried = Vec::new();
        for (number, name) in cluster.names().enumerate() {
            let reason = match cluster.attempt(number).await {
                Err(reason) => reason,
                Ok(attempt) => call(&attempt, &mut contact).await?,
            };
            tried.push(Tried { endpoint: name.to_owned(), reason });
        }
        if !contact.was_made() {
            return Err(CliError::Unreachable(tried));
        }
        contact.failed(&tried);
        tokio::time::sleep(RETRY_PAUSE).await;
    }
}
