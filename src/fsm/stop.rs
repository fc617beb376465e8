//! Why a command or a read did not go through: inside this layer one error, outside a refusal and a
//! failure kept apart.

use headwater_storage::StorageError;
use headwater_types::Refusal;

/// Why it did not go through.
#[derive(Debug)]
pub(super) enum Stop {
    /// The rules forbid it; nothing was written.
    Refused(Refusal),
    /// The disk failed.
    Failed(StorageError),
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<StorageError> for Stop {
    fn from(error: StorageError) -> Self {
        Self::Failed(error)
    }
}

/// A refusal is a result, a failure is a stop.
pub(super) fn settle<T>(result: Result<T, Stop>) -> Result<Result<T, Refusal>, StorageError> {
    match result {
        Ok(value) => Ok(Ok(value)),
        Err(Stop::Refused(refusal)) => Ok(Err(refusal)),
        Err(Stop::Failed(error)) => Err(error),
    }
}
