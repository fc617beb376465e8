//! The error inside this layer, of commands and reads. Callers of the layer get a refusal and a
//! failure separately.

use headwater_storage::StorageError;
use headwater_types::Refusal;

/// Reason why a command or a read ended early.
#[derive(Debug)]
pub(super) enum FsmError {
    /// The rules forbid the command or the read. It has written nothing.
    Refused(Refusal),
    /// The disk failed, or the cluster rises to a version that this program does not support.
    Failed(StorageError),
}

impl From<Refusal> for FsmError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<StorageError> for FsmError {
    fn from(error: StorageError) -> Self {
        Self::Failed(error)
    }
}

/// Separates a refusal, which is a result, from a failure, which must stop the node.
pub(super) fn split_refusal<T>(result: Result<T, FsmError>) -> Result<Result<T, Refusal>, StorageError> {
    match result {
        Ok(value) => Ok(Ok(value)),
        Err(FsmError::Refused(refusal)) => Ok(Err(refusal)),
        Err(FsmError::Failed(error)) => Err(error),
    }
}
