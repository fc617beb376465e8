//! The head of the state: small values that change with commits.
//!
//! Owns its encoding. Its first byte is the cluster's version, which understands all of the state:
//! the state of a newer cluster is recognised by it before anything else is read.

use super::keys::Table;
use super::record::{Cursor, FORMAT, FORMAT_FLOOR, put_varint};
use headwater_proto::codec::NEWEST;
use headwater_types::{
    AlarmSet, AuthState, ClusterVersion, LogIndex, NodeId, Quota, Revision, StoreEpoch, Term, Version,
};

/// The compaction point in both coordinates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactionPoint {
    /// The revision to which the client or the retention compacted.
    pub revision: Revision,
    /// Log index of the command that made that revision; zero if none did.
    pub index: LogIndex,
}

/// Small values that change with commits. All of them are replicated: equal on all members at an
/// equal applied index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateHead {
    /// The last entry that was applied. `None` before the first.
    pub applied: Option<(Term, LogIndex)>,
    /// The KV revision.
    pub revision: Revision,
    /// The compaction point, if there ever was one.
    pub compaction: Option<CompactionPoint>,
    /// Log index to which retention has last trimmed history; zero if it never has. A later
    /// compaction does not reset it, so it may be below the compaction point. The history of all
    /// tables but keys begins at the higher of both: [`compacted_index`](Self::compacted_index).
    /// If this index is the higher one, no command between the compaction point and it changed a
    /// key.
    pub history_floor: LogIndex,
    /// The epoch of the store's lineage. `None` until the bootstrap command of a new or restored
    /// cluster.
    pub epoch: Option<StoreEpoch>,
    /// The first log index of the lineage, if it began with a backup of another one; zero
    /// otherwise. An index below it belongs to the old lineage, which may continue in another
    /// cluster.
    pub epoch_since: LogIndex,
    /// Number of live KV keys.
    pub live_keys: u64,
    /// Bytes of live keys and values, of resources, and of rows of the catalog.
    pub live_bytes: u64,
    /// The quota of [`live_bytes`](Self::live_bytes), once a leader has set it.
    pub quota: Option<Quota>,
    /// The active alarms.
    pub alarms: AlarmSet,
    /// Identifies the content of the registered types of resources.
    pub types: RegisteredTypes,
    /// The version that the cluster has agreed on: the lowest that understands all of the state.
    pub version: ClusterVersion,
    /// Whether etcd's authentication is on, and the revision of users and roles.
    pub auth: AuthState,
    /// Log index of the last change after which known rights may be out of date; zero if there
    /// never was one. Every change of etcd's Auth and of Consul's ACLs counts, except a new token
    /// (a new anonymous token counts).
    pub rights_changed: LogIndex,
    /// Log index of the last change of Consul's access control lists; zero if there never was one.
    pub acl_changed: LogIndex,
}

/// Identifies one content of the registered types: differs after every registration, change or
/// removal of a type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegisteredTypes {
    /// Log index of the last change; zero if there never was one.
    pub changed: LogIndex,
    /// Count of registered types.
    pub count: u64,
}

const HEAD_APPLIED: u8 = 1;
const HEAD_COMPACTED: u8 = 2;
const HEAD_EPOCH: u8 = 4;
const HEAD_QUOTA: u8 = 8;
const HEAD_QUOTA_BOUND: u8 = 16;
const HEAD_ALARMS: u8 = 32;
const HEAD_TYPES: u8 = 64;
const HEAD_EPOCH_SINCE: u8 = 128;
/// Bit of the second byte of flags, which heads from version 0.3 on have: a history floor follows.
const HEAD_FLOOR: u8 = 1;
const HEAD_DOWNGRADING: u8 = 2;
const HEAD_RIGHTS: u8 = 4;

impl StateHead {
    /// The head of an empty store.
    pub const EMPTY: Self = Self {
        applied: None,
        revision: Revision::INITIAL,
        compaction: None,
        history_floor: LogIndex::ZERO,
        epoch: None,
        epoch_since: LogIndex::ZERO,
        live_keys: 0,
        live_bytes: 0,
        quota: None,
        alarms: AlarmSet::NONE,
        types: RegisteredTypes { changed: LogIndex::ZERO, count: 0 },
        version: ClusterVersion::FIRST,
        auth: AuthState::INITIAL,
        rights_changed: LogIndex::ZERO,
        acl_changed: LogIndex::ZERO,
    };

    /// Log index of the last entry that was applied, zero if none was.
    pub fn applied_index(&self) -> LogIndex {
        self.applied.map_or(LogIndex::ZERO, |(_, index)| index)
    }

    /// Whether etcd's Auth, or a row of Consul's ACLs, was ever changed.
    pub fn has_rights(&self) -> bool {
        self.rights_changed > LogIndex::ZERO || self.acl_changed > LogIndex::ZERO
    }

    /// The query index of an answer that last changed at `index`: no lower than the index before
    /// [`epoch_since`](Self::epoch_since), at which the store was restored. A restored state is new
    /// to clients with an older index: they are answered at once, and then wait with an index of
    /// this lineage.
    pub fn floored(&self, index: LogIndex) -> LogIndex {
        index.max(LogIndex(self.epoch_since.get().saturating_sub(1)))
    }

    /// The log index at which the history of all tables but keys begins: events and states of every
    /// command from here on can be read. Zero if history begins with the log.
    pub fn compacted_index(&self) -> LogIndex {
        self.key_floor().max(self.history_floor)
    }

    /// The log index at which the history of keys begins: that of the compaction point, zero if
    /// there never was one. Commands between here and [`compacted_index`](Self::compacted_index)
    /// have changed no key.
    pub fn key_floor(&self) -> LogIndex {
        self.compaction.map_or(LogIndex::ZERO, |point| point.index)
    }

    /// The log index at which the history of a table begins.
    pub(super) fn floor_of(&self, table: Table) -> LogIndex {
        if table == Table::Kv { self.key_floor() } else { self.compacted_index() }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(66);
        let mut flags = 0;
        if self.applied.is_some() {
            flags |= HEAD_APPLIED;
        }
        if self.compaction.is_some() {
            flags |= HEAD_COMPACTED;
        }
        if self.epoch.is_some() {
            flags |= HEAD_EPOCH;
        }
        if let Some(quota) = self.quota {
            flags |= HEAD_QUOTA;
            if quota.bytes_max.is_some() {
                flags |= HEAD_QUOTA_BOUND;
            }
        }
        if !self.alarms.is_empty() {
            flags |= HEAD_ALARMS;
        }
        if self.types != RegisteredTypes::default() {
            flags |= HEAD_TYPES;
        }
        if self.epoch_since > LogIndex::ZERO {
            flags |= HEAD_EPOCH_SINCE;
        }
        let has_floor = self.history_floor > LogIndex::ZERO;
        let mut more_flags = 0;
        if has_floor {
            more_flags |= HEAD_FLOOR;
        }
        if self.version.is_downgrading {
            more_flags |= HEAD_DOWNGRADING;
        }
        let has_rights = self.has_rights();
        if has_rights {
            more_flags |= HEAD_RIGHTS;
        }
        out.extend_from_slice(&[self.version.version.byte(), flags, more_flags]);
        if let Some((term, index)) = self.applied {
            put_varint(&mut out, term.get());
            put_varint(&mut out, index.get());
        }
        put_varint(&mut out, self.revision.get() as u64);
        if let Some(point) = self.compaction {
            put_varint(&mut out, point.revision.get() as u64);
            put_varint(&mut out, point.index.get());
        }
        if let Some(epoch) = self.epoch {
            put_varint(&mut out, epoch.get());
        }
        put_varint(&mut out, self.live_keys);
        put_varint(&mut out, self.live_bytes);
        if let Some(Quota { bytes_max, member }) = self.quota {
            put_varint(&mut out, member.get());
            if let Some(bytes_max) = bytes_max {
                put_varint(&mut out, bytes_max);
            }
        }
        if !self.alarms.is_empty() {
            out.push(self.alarms.bits());
        }
        if self.types != RegisteredTypes::default() {
            put_varint(&mut out, self.types.changed.get());
            put_varint(&mut out, self.types.count);
        }
        if self.epoch_since > LogIndex::ZERO {
            put_varint(&mut out, self.epoch_since.get());
        }
        if has_floor {
            put_varint(&mut out, self.history_floor.get());
        }
        if has_rights {
            out.push(self.auth.enabled.into());
            put_varint(&mut out, self.auth.revision);
            put_varint(&mut out, self.rights_changed.get());
            put_varint(&mut out, self.acl_changed.get());
        }
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (&format, rest) = bytes.split_first()?;
        let mut cursor = Cursor::unframed(rest);
        let flags = cursor.byte()?;
        let (version, more_flags) = match format {
            FORMAT => (ClusterVersion::FIRST.version, 0),
            FORMAT_FLOOR => (ClusterVersion::FIRST.version, HEAD_FLOOR),
            _ => (Version::from_byte(format), cursor.byte()?),
        };
        if version > NEWEST.highest || version < ClusterVersion::FIRST.version {
            return None;
        }
        if more_flags & !(HEAD_FLOOR | HEAD_DOWNGRADING | HEAD_RIGHTS) != 0 {
            return None;
        }
        let has_floor = more_flags & HEAD_FLOOR != 0;
        let version = ClusterVersion { version, is_downgrading: more_flags & HEAD_DOWNGRADING != 0 };
        let applied = match flags & HEAD_APPLIED {
            0 => None,
            _ => Some((Term(cursor.varint()?), LogIndex(cursor.varint()?))),
        };
        let revision = Revision(cursor.signed()?);
        let compaction = match flags & HEAD_COMPACTED {
            0 => None,
            _ => Some(CompactionPoint { revision: Revision(cursor.signed()?), index: LogIndex(cursor.varint()?) }),
        };
        let epoch = match flags & HEAD_EPOCH {
            0 => None,
            _ => Some(StoreEpoch(cursor.varint()?)),
        };
        let (live_keys, live_bytes) = (cursor.varint()?, cursor.varint()?);
        let quota = match flags & (HEAD_QUOTA | HEAD_QUOTA_BOUND) {
            0 => None,
            HEAD_QUOTA => Some(Quota { member: NodeId(cursor.varint()?), bytes_max: None }),
            HEAD_QUOTA_BOUND => return None,
            _ => Some(Quota { member: NodeId(cursor.varint()?), bytes_max: Some(cursor.varint()?) }),
        };
        let alarms = match flags & HEAD_ALARMS {
            0 => AlarmSet::NONE,
            _ => AlarmSet::from_bits(cursor.byte()?)?,
        };
        let types = match flags & HEAD_TYPES {
            0 => RegisteredTypes::default(),
            _ => RegisteredTypes { changed: LogIndex(cursor.varint()?), count: cursor.varint()? },
        };
        let epoch_since = match flags & HEAD_EPOCH_SINCE {
            0 => LogIndex::ZERO,
            _ => LogIndex(cursor.varint()?),
        };
        let history_floor = if has_floor { LogIndex(cursor.varint()?) } else { LogIndex::ZERO };
        let (auth, rights_changed, acl_changed) = match more_flags & HEAD_RIGHTS {
            0 => (AuthState::INITIAL, LogIndex::ZERO, LogIndex::ZERO),
            _ => {
                let enabled = match cursor.byte()? {
                    0 => false,
                    1 => true,
                    _ => return None,
                };
                let auth = AuthState { enabled, revision: cursor.varint()? };
                (auth, LogIndex(cursor.varint()?), LogIndex(cursor.varint()?))
            }
        };
        cursor.end(Self {
            applied,
            revision,
            compaction,
            history_floor,
            epoch,
            epoch_since,
            live_keys,
            live_bytes,
            quota,
            alarms,
            types,
            version,
            auth,
            rights_changed,
            acl_changed,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_types::AlarmKind;

    #[test]
    fn heads_are_pinned() {
        assert_eq!(StateHead::EMPTY.encode(), [3, 0, 0, 1, 0, 0]);
        assert_eq!(StateHead::decode(&[1, 0, 1, 0, 0]), Some(StateHead::EMPTY), "as version 0.1 wrote it");
        let full = StateHead {
            applied: Some((Term(2), LogIndex(3))),
            revision: Revision(4),
            compaction: Some(CompactionPoint { revision: Revision(5), index: LogIndex(6) }),
            history_floor: LogIndex::ZERO,
            epoch: Some(StoreEpoch(7)),
            epoch_since: LogIndex::ZERO,
            live_keys: 8,
            live_bytes: 9,
            quota: None,
            alarms: AlarmSet::NONE,
            types: RegisteredTypes::default(),
            version: ClusterVersion::FIRST,
            auth: AuthState::INITIAL,
            rights_changed: LogIndex::ZERO,
            acl_changed: LogIndex::ZERO,
        };
        assert_eq!(full.encode(), [3, 7, 0, 2, 3, 4, 5, 6, 7, 8, 9]);
        assert_eq!(StateHead::decode(&full.encode()), Some(full));
        let trimmed = StateHead { history_floor: LogIndex(300), ..full };
        assert_eq!(trimmed.encode(), [3, 7, 1, 2, 3, 4, 5, 6, 7, 8, 9, 172, 2]);
        let of_before = [2, 7, 2, 3, 4, 5, 6, 7, 8, 9, 172, 2];
        assert_eq!(StateHead::decode(&of_before), Some(trimmed), "as version 0.2 wrote it");
        assert_eq!(StateHead::decode(&trimmed.encode()), Some(trimmed));
        let typed = StateHead { types: RegisteredTypes { changed: LogIndex(300), count: 2 }, ..StateHead::EMPTY };
        assert_eq!(typed.encode(), [3, 64, 0, 1, 0, 0, 172, 2, 2]);
        assert_eq!(StateHead::decode(&typed.encode()), Some(typed));
        let named = StateHead { epoch: Some(StoreEpoch(7)), epoch_since: LogIndex(300), ..StateHead::EMPTY };
        assert_eq!(named.encode(), [3, 132, 0, 1, 7, 0, 0, 172, 2]);
        assert_eq!(StateHead::decode(&named.encode()), Some(named));
        let bounded = Quota { bytes_max: Some(300), member: NodeId(2) };
        let alarmed =
            StateHead { quota: Some(bounded), alarms: [AlarmKind::NoSpace].into_iter().collect(), ..StateHead::EMPTY };
        assert_eq!(alarmed.encode(), [3, 56, 0, 1, 0, 0, 2, 172, 2, 2]);
        assert_eq!(StateHead::decode(&alarmed.encode()), Some(alarmed));
        let unbounded = StateHead { quota: Some(Quota { bytes_max: None, ..bounded }), ..StateHead::EMPTY };
        assert_eq!(unbounded.encode(), [3, 8, 0, 1, 0, 0, 2]);
        assert_eq!(StateHead::decode(&unbounded.encode()), Some(unbounded));
        let lowered = ClusterVersion { is_downgrading: true, ..ClusterVersion::FIRST };
        let lowered = StateHead { version: lowered, ..StateHead::EMPTY };
        assert_eq!(lowered.encode(), [3, 0, 2, 1, 0, 0]);
        assert_eq!(StateHead::decode(&lowered.encode()), Some(lowered));
        let guarded = StateHead {
            auth: AuthState { enabled: true, revision: 5 },
            rights_changed: LogIndex(300),
            acl_changed: LogIndex(6),
            ..StateHead::EMPTY
        };
        assert_eq!(guarded.encode(), [3, 0, 4, 1, 0, 0, 1, 5, 172, 2, 6]);
        assert_eq!(StateHead::decode(&guarded.encode()), Some(guarded));
    }

    #[test]
    fn what_was_not_written_is_not_read() {
        assert_eq!(StateHead::decode(&[1, 64, 1, 0, 0]), None, "unknown flag");
        assert_eq!(StateHead::decode(&[2, 0, 1, 0, 0]), None, "cut short");
        assert_eq!(StateHead::decode(&[9, 0, 0, 1, 0, 0]), None, "a newer version");
        assert_eq!(StateHead::decode(&[3, 0, 8, 1, 0, 0]), None, "unknown flag");
        assert_eq!(StateHead::decode(&[1, 16, 1, 0, 0, 1]), None, "a bound without a quota");
        assert_eq!(StateHead::decode(&[1, 32, 1, 0, 0, 8]), None, "unknown alarm");
    }
}
