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
    /// every record in storage. The entry at index 0 is the first membership of the cluster; no
    /// command has index 0 (ARCHITECTURE.md §1).
    LogIndex(u64)
}
id! {
    /// etcd's revision. It is 1 in a new store, and advances by exactly one for each command that
    /// changes at least one key of the KV face. Other commands do not move it (spec: etcd §1.1).
    Revision(i64)
}
id! {
    /// The id of a member of the cluster. No member has the id 0: it stands for a node that is no
    /// member. The id of a removed member is not assigned again. A node that lost its disk joins
    /// under a new id, unless it is one of the cluster's first members: such a member comes back
    /// under its own id, at first without a vote.
    NodeId(u64)
}
id! {
    /// The id of a cluster. It is stamped in the data directory of each member, and checked on
    /// every peer connection.
    ClusterId(u64)
}
id! {
    /// A random number that names the lineage of a store. Made when a cluster is formed, and again
    /// by a restore from a backup. Log indexes can be compared only within one epoch.
    StoreEpoch(u64)
}
id! {
    /// The id of a lease. Zero means "no lease".
    LeaseId(i64)
}
id! {
    /// A term of Raft: the number of an election period. At most one member leads in a term.
    Term(u64)
}

impl LogIndex {
    /// Zero: below the index of every command. Some fields and results use it for "none" or
    /// "unknown".
    pub const ZERO: Self = Self(0);

    /// The index after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl Revision {
    /// The revision of a new store, in which no key was ever changed.
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

    /// Range of the ids of the store's own deadlines (`types::consul::Deadline`): inclusive start,
    /// exclusive end. No client can name such an id.
    const DEADLINES: (i64, i64) = (i64::MIN, i64::MIN / 2);
    /// Number of ids that each command has for its deadlines. The ids of further deadlines lie
    /// among those of the next commands.
    const DEADLINES_PER_COMMAND: u64 = 1 << 8;

    /// Whether this is not [`NONE`](Self::NONE).
    pub const fn is_some(self) -> bool {
        self.0 != 0
    }

    /// Whether this is the id of a deadline of the store's own, not of a client's lease.
    pub const fn is_deadline(self) -> bool {
        self.0 >= Self::DEADLINES.0 && self.0 < Self::DEADLINES.1
    }

    /// The candidate id of deadline `nth`, counted from 0, of the command at `index`. Another
    /// deadline may have this id: the caller then tries the next `nth`.
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
