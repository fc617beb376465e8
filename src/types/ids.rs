//! Identities and the two coordinates of the store, each a type of its own so that none is mistaken for another.

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
    /// The Raft log index of a command. It orders everything the store does, and is the version of every record in
    /// storage. The first entry of a cluster's log has index 0; a command never has (ARCHITECTURE.md §1).
    LogIndex(u64)
}
id! {
    /// etcd's revision: advances by exactly one per command that changes at least one KV key, and is 1 on an empty
    /// store. Belongs to the KV face alone (spec: etcd §1.1).
    Revision(i64)
}
id! {
    /// A member of the cluster. Never zero, never reused after a node lost its disk.
    NodeId(u64)
}
id! {
    /// The cluster that a data directory belongs to. Stamped on disk and checked on every peer connection.
    ClusterId(u64)
}
id! {
    /// A random id made when a cluster is initialised and again when it is restored from a backup. Positions from
    /// another epoch are recognised by it instead of being misread.
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
    /// Before any command.
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

    /// Whether this names a lease at all.
    pub const fn is_some(self) -> bool {
        self.0 != 0
    }
}
