//! The error inside this layer, of commands and reads. Callers of the layer get a refusal and a
//! failure separately.

use headwater_storage::StorageError;
use headwater_types::Refusal;

/// Reason why a command or a read ended early.
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

/// Separates a refusal, which is a result, from a failure, which must stop the node.
pub(super) fn settle<T>(result: Result<T, Stop>) -> Result<Result<T, Refusal>, StorageError> {
    match result {
        Ok(value) => Ok(Ok(value)),
        Err(Stop::Refused(refusal)) => Ok(Err(refusal)),
        Err(Stop::Failed(error)) => Err(error),
    }
}
