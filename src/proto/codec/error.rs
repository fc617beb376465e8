//! Errors of the codec.

use headwater_types::{TooNew, Version};
use thiserror::Error;

/// A failed decoding, or encoding. After a failed decoding of bytes of the log the node must stop:
/// a guess would let replicas diverge.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CodecError {
    /// There are no bytes at all, not even the format byte.
    #[error("{what}: no bytes")]
    Empty {
        /// The kind of record.
        what: &'static str,
    },
    /// The leading byte names a version that this program does not understand.
    #[error(transparent)]
    TooNew(#[from] TooNew),
    /// The leading byte names a version in which there was no such record.
    #[error("{what}: there is no such record of version {found}")]
    UnknownFormat {
        /// The kind of record.
        what: &'static str,
        /// The version that was found.
        found: Version,
    },
    /// A command has a field that this program does not know, although its version does: bytes are
    /// damaged, or a field was added without a version.
    #[error("{what}: a field is not known to this program; run a newer version")]
    UnknownField {
        /// The kind of record.
        what: &'static str,
    },
    /// The bytes are not a record of this kind.
    #[error("{what}: {detail}")]
    Malformed {
        /// The kind of record.
        what: &'static str,
        /// The reason for which the bytes cannot be decoded.
        detail: String,
    },
    /// A field without which the record has no meaning is absent.
    #[error("{field} is missing")]
    Missing {
        /// The field, as `Message.field`.
        field: &'static str,
    },
    /// A field holds a value that this version does not know.
    #[error("{field} has the value {value}, which is not known to this version; run a newer version")]
    UnknownValue {
        /// The field, as `Message.field`.
        field: &'static str,
        /// The value on the wire.
        value: i32,
    },
    /// The record holds a command that this version does not know and that is not marked as
    /// skippable.
    #[error("a command is not known to this version; run a newer version")]
    UnknownCommand,
    /// The record holds an outcome that this version does not know.
    #[error("an outcome is not known to this version; run a newer version")]
    UnknownOutcome,
    /// Transactions are nested deeper than `limits::TXN_DEPTH_MAX`.
    #[error("transactions are nested deeper than {max}")]
    TooDeep {
        /// The limit.
        max: usize,
    },
}
