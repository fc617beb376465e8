//! The read budget of one transaction, in etcd's API and in Consul's: capacity for reads and
//! results.
//!
//! Invariant: the used capacity follows from the state and the operations alone, not from whether
//! the outcome is wanted. After the first operation that does not fit, none fits, so that a
//! transaction that is too large costs no more than one that is not.

use headwater_types::limits::{
    CONSUL_LIST_BYTES_MAX, CONSUL_TXN_RESULT_BYTES_MAX, CONSUL_TXN_RESULT_KEYS_MAX, ENTRY_BYTES, TXN_READ_BYTES_MAX,
    TXN_READ_KEYS_MAX,
};

/// Keys and bytes that a transaction may still read and return.
pub(super) struct ReadBudget {
    keys: usize,
    bytes: usize,
    is_wanted: bool,
}

impl ReadBudget {
    /// The budget of a transaction of etcd's API, the same for a replicated one and for one that
    /// only reads.
    pub(super) fn of_txn() -> Self {
        Self { keys: TXN_READ_KEYS_MAX, bytes: TXN_READ_BYTES_MAX, is_wanted: true }
    }

    /// The budget of a replicated command of Consul's API, or of a commit's operations on Consul's
    /// keys. `is_wanted`: whether results are collected.
    pub(super) fn of_consul_command(is_wanted: bool) -> Self {
        Self { keys: CONSUL_TXN_RESULT_KEYS_MAX, bytes: CONSUL_TXN_RESULT_BYTES_MAX, is_wanted }
    }

    /// The budget of a transaction of Consul's API that only reads.
    pub(super) fn of_consul_read() -> Self {
        Self { keys: usize::MAX, bytes: CONSUL_LIST_BYTES_MAX, is_wanted: true }
    }

    /// Whether results of operations of Consul's API are collected. The capacity that is taken does
    /// not depend on it.
    pub(super) fn is_wanted(&self) -> bool {
        self.is_wanted
    }

    /// Takes capacity for a key or a row of the result: `len` bytes and [`ENTRY_BYTES`]. False if
    /// the budget is too small.
    pub(super) fn take_result(&mut self, len: usize) -> bool {
        self.take(1, ENTRY_BYTES.saturating_add(len))
    }

    /// Takes capacity for a key that is not part of the result, and for `len` bytes read of it;
    /// false if the budget is too small.
    pub(super) fn take_read(&mut self, len: usize) -> bool {
        self.take(1, len)
    }

    /// Takes capacity for a number of keys and of bytes. False if the budget is too small; it is
    /// then empty.
    pub(super) fn take(&mut self, keys: usize, bytes: usize) -> bool {
        let left = self.keys.checked_sub(keys).zip(self.bytes.checked_sub(bytes));
        (self.keys, self.bytes) = left.unwrap_or_default();
        left.is_some()
    }
}
