//! How much the operations of a transaction may tell.
//!
//! Invariant: what fits follows from the state and the operations alone, not from whether somebody wants to hear of it. Once
//! something does not fit, nothing does, so that a transaction which is too long costs no more than one that is not.

use crate::types::limits::{
    CONSUL_ENTRY_BYTES, CONSUL_LIST_BYTES_MAX, CONSUL_TXN_TOLD_BYTES_MAX, CONSUL_TXN_TOLD_KEYS_MAX,
};

/// What is left.
pub(super) struct Room {
    keys: usize,
    bytes: usize,
    is_wanted: bool,
}

impl Room {
    /// Of a transaction that every member carries out.
    pub(super) fn of_command(is_wanted: bool) -> Self {
        Self { keys: CONSUL_TXN_TOLD_KEYS_MAX, bytes: CONSUL_TXN_TOLD_BYTES_MAX, is_wanted }
    }

    /// Of a transaction that only reads.
    pub(super) fn of_read() -> Self {
        Self { keys: usize::MAX, bytes: CONSUL_LIST_BYTES_MAX, is_wanted: true }
    }

    /// Whether somebody wants to hear what operations have to tell.
    pub(super) fn is_wanted(&self) -> bool {
        self.is_wanted
    }

    /// Takes the room of a key or a row, by the length of what is told of it; false if there is not enough.
    pub(super) fn tell(&mut self, len: usize) -> bool {
        self.take(1, CONSUL_ENTRY_BYTES.saturating_add(len))
    }

    /// Takes the room of a key that is looked at and not told of; false if there is not enough.
    pub(super) fn look(&mut self) -> bool {
        self.take(1, 0)
    }

    fn take(&mut self, keys: usize, bytes: usize) -> bool {
        let left = self.keys.checked_sub(keys).zip(self.bytes.checked_sub(bytes));
        (self.keys, self.bytes) = left.unwrap_or_default();
        left.is_some()
    }
}
