//! Identities and the two coordinates of the store. Each is a type of its own, so that the compiler
//! refuses to mix them.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl $name {
            /// The plain number, for wire formats and keys.
            pub const fn get(self) -> $inner {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl From<$inner> for $name {
            fn from(value: $inner) -> Self {
                Self(value)
            }
        }
    };
}

id! {
    /// The Raft log index of a command. It orders everything the store does, and is the version of
    /// every record in storage. Index 0 is the first entry of a cluster's log, its first
    /// membership; no command has it (ARCHITECTURE.md §1).
    LogIndex(u64)
}
id! {
    /// etcd's revision: advances by exactly one per command that changes at least one KV key, and
    /// is 1 on an empty store. Belongs to the KV face alone (spec: etcd §1.1).
    Revision(i64)
}
id! {
    /// The id of a member of the cluster. Never zero. The id of a removed member is not assigned
    /// again. A node that lost its disk joins under a new id, unless it is one of the cluster's
    /// first members: such a member comes back under its own id, at first without a vote.
    NodeId(u64)
}
id! {
    /// The cluster that a data directory belongs to. Stamped on disk and checked on every peer
    /// connection.
    ClusterId(u64)
}
id! {
    /// A random id made when a cluster is initialised, and again when it is restored from a backup.
    /// Log indexes can be compared only within one epoch.
    StoreEpoch(u64)
}
id! {
    /// A lease. Zero means "no lease".
    LeaseId(i64)
}
id! {
    /// A Raft term.
    Term(u64)
}

impl LogIndex {
    /// Zero: the index before that of the first command.
    pub const ZERO: Self = Self(0);

    /// The index after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl Revision {
    /// The revision of an empty store.
    pub const INITIAL: Self = Self(1);

    /// The revision after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl LeaseId {
    /// The absence of a lease.
    pub const NONE: Self = Self(0);

    /// Range of the ids of the store's own deadlines (`types::consul::Deadline`), which no client
    /// can name: inclusive start, exclusive end.
    const DEADLINES: (i64, i64) = (i64::MIN, i64::MIN / 2);
    /// Ids reserved for the deadlines of one command, count. The id of a further deadline may be in
    /// use; the caller then tries the next `nth`.
    const DEADLINES_PER_COMMAND: u64 = 1 << 8;

    /// Whether this is not [`NONE`](Self::NONE).
    pub const fn is_some(self) -> bool {
        self.0 != 0
    }

    /// Whether this is the id of a deadline of the store's own, not of a client's lease.
    pub const fn is_deadline(self) -> bool {
        self.0 >= Self::DEADLINES.0 && self.0 < Self::DEADLINES.1
    }

    /// The candidate id of deadline `nth`, counted from 0, of the command at `index`. It may be in
    /// use: the caller checks.
    pub const fn of_deadline(index: LogIndex, nth: u64) -> Self {
        let span = Self::DEADLINES.0.abs_diff(Self::DEADLINES.1);
        let offset = index.0.wrapping_mul(Self::DEADLINES_PER_COMMAND).wrapping_add(nth) % span;
        Self(Self::DEADLINES.0.wrapping_add_unsigned(offset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_have_ids_of_their_own() {
        for (index, nth) in [(0, 0), (1, 0), (1, 255), (1, 256), (u64::MAX, u64::MAX), (1 << 54, 7)] {
            assert!(LeaseId::of_deadline(LogIndex(index), nth).is_deadline(), "{index}, {nth}");
        }
        assert_eq!(LeaseId::of_deadline(LogIndex(1), 2), LeaseId(i64::MIN + 258));
        for id in [0, 1, -1, i64::MAX, i64::MIN / 2] {
            assert!(!LeaseId(id).is_deadline(), "{id}");
        }
        assert!(LeaseId(i64::MIN).is_deadline() && LeaseId(i64::MIN / 2 - 1).is_deadline());
    }
}
