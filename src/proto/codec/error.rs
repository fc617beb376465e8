//! Errors of the codec.

use headwater_types::{TooNew, Version};
use thiserror::Error;

/// The reason why decoding or encoding failed. A node that cannot decode a log entry must stop: a
/// guess would let replicas diverge.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CodecError {
    /// There are no bytes at all, not even the format byte.
    #[error("{what}: no bytes")]
    Empty {
        /// The kind of record.
        what: &'static str,
    },
    /// The leading byte names a version above the ones that the decoder was to support: those of
    /// this program, or lower ones of a test.
    #[error(transparent)]
    TooNew(#[from] TooNew),
    /// The leading byte is no format of this kind of record, and no version newer than this
    /// program.
    #[error("{what}: there is no such record of version {found}")]
    UnknownFormat {
        /// The kind of record.
        what: &'static str,
        /// The leading byte, as a version.
        found: Version,
    },
    /// A command has a field that this program does not know, although the program supports the
    /// command's version: bytes are damaged, or a field was added without a new version.
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
    /// A required field has no value. It is not set, or set to an alternative that this version
    /// does not know; its bytes are empty; or an enumeration or version is 0.
    #[error("{field} is missing")]
    Missing {
        /// The field, as `Message.field`.
        field: &'static str,
    },
    /// A field of fixed length has another length: bytes are damaged.
    #[error("{field} has {len} bytes instead of {wanted}")]
    WrongLength {
        /// The field, as `Message.field`.
        field: &'static str,
        /// The length on the wire, bytes.
        len: usize,
        /// The length of every value of the field, bytes.
        wanted: usize,
    },
    /// A field has a value that this version does not know.
    #[error("{field} has the value {value}, which is not known to this version; run a newer version")]
    UnknownValue {
        /// The field, as `Message.field`.
        field: &'static str,
        /// The value on the wire.
        value: i32,
    },
    /// The record has no command that this version knows, and is not marked as skippable.
    #[error("a command is not known to this version; run a newer version")]
    UnknownCommand,
    /// The record has no outcome, result or refusal of a kind that this version knows.
    #[error("an outcome is not known to this version; run a newer version")]
    UnknownOutcome,
    /// Transactions are nested deeper than `limits::TXN_DEPTH_MAX`.
    #[error("transactions are nested deeper than {max}")]
    TooDeep {
        /// The limit.
        max: usize,
    },
}
