//! How much the operations of a transaction may look at and tell, of etcd's API and of Consul's.
//!
//! Invariant: the capacity used follows from the state and the operations alone, not from whether
//! the outcome is wanted. Once something does not fit, nothing does, so that a transaction which is
//! too long costs no more than one that is not.

use headwater_types::limits::{
    CONSUL_LIST_BYTES_MAX, CONSUL_TXN_TOLD_BYTES_MAX, CONSUL_TXN_TOLD_KEYS_MAX, ENTRY_BYTES, TXN_READ_BYTES_MAX,
    TXN_READ_KEYS_MAX,
};

/// Remaining capacity.
pub(super) struct Room {
    keys: usize,
    bytes: usize,
    is_wanted: bool,
}

impl Room {
    /// Of a transaction of etcd's API, the same whether every member carries it out or one reads.
    pub(super) fn of_txn() -> Self {
        Self { keys: TXN_READ_KEYS_MAX, bytes: TXN_READ_BYTES_MAX, is_wanted: true }
    }

    /// Of a transaction of Consul's API that every member carries out.
    pub(super) fn of_consul_command(is_wanted: bool) -> Self {
        Self { keys: CONSUL_TXN_TOLD_KEYS_MAX, bytes: CONSUL_TXN_TOLD_BYTES_MAX, is_wanted }
    }

    /// Of a transaction of Consul's API that only reads.
    pub(super) fn of_consul_read() -> Self {
        Self { keys: usize::MAX, bytes: CONSUL_LIST_BYTES_MAX, is_wanted: true }
    }

    /// Whether results of operations of Consul's API are wanted.
    pub(super) fn is_wanted(&self) -> bool {
        self.is_wanted
    }

    /// Takes capacity for a key or a row of the result, by its length; false if there is not
    /// enough.
    pub(super) fn tell(&mut self, len: usize) -> bool {
        self.take(1, ENTRY_BYTES.saturating_add(len))
    }

    /// Takes capacity for a key that is read without being part of the result, by its length; false
    /// if there is not enough.
    pub(super) fn look(&mut self, len: usize) -> bool {
        self.take(1, len)
    }

    /// Takes the room of so many keys and bytes; false if there is not enough.
    pub(super) fn take(&mut self, keys: usize, bytes: usize) -> bool {
        let left = self.keys.checked_sub(keys).zip(self.bytes.checked_sub(bytes));
        (self.keys, self.bytes) = left.unwrap_or_default();
        left.is_some()
    }
}
