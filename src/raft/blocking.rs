//! Runs blocking work outside of the threads that serve requests.

use tokio::task::JoinError;

/// Runs `work` on a thread that may block. In the simulation, which has one thread, runs it at
/// once.
///
/// # Errors
///
/// If `work` panicked, or the runtime ended before it could begin.
pub async fn run_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, JoinError> {
    #[cfg(feature = "simulation")]
    if crate::simulation::is_running() {
        return Ok(work());
    }
    tokio::task::spawn_blocking(work).await
}
