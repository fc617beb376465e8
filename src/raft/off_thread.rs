//! Work that blocks goes beside the threads that serve.

use tokio::task::JoinError;

/// Does `work` on a thread that may block. In the simulation, which has one thread, it is done at
/// once.
///
/// # Errors
///
/// If it panicked, or the program is ending.
pub async fn off_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, JoinError> {
    #[cfg(feature = "simulation")]
    if crate::simulation::is_running() {
        return Ok(work());
    }
    tokio::task::spawn_blocking(work).await
}
