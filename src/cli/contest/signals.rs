//! Waiting for a signal that ends a command.

use tokio::signal::unix::{SignalKind, signal};

use crate::error::CliError;

/// Listens for SIGINT and SIGTERM from now on; the future resolves at the first one.
pub(super) fn interrupted() -> Result<impl Future<Output = ()>, CliError> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}
