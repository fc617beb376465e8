//! The records of `versions` and of `history`, and from `meta` the leases, the lease clock and the
//! alarms. Each has a leading format byte and numbers of variable length.
//!
//! Owns the encodings; no I/O. Fields are only ever added, by a new format byte. Invariant: every
//! record is read back equal, and an unknown format is an error, never a guess; the golden tests
//! below pin the bytes.
//!
//! A history record ends with the value and carries the key, so that catch-up reads no other
//! family.

use bytes::Bytes;
use smallvec::SmallVec;

use super::history_row;
use super::keys::Table;
use headwater_types::{
    Alarm, AlarmKind, Author, Authorship, ChangeKind, Face, Feature, KeyValue, Lease, LeaseId, LogIndex, NodeId,
    Revision,
};

pub(super) const FORMAT: u8 = 1;
/// First byte of a record in the layout of [`FORMAT`], with one more log index at its end: history
/// may begin at one point for keys, and at another for the other tables. The progress of
/// reclamation has such a record if the points differ. Heads are only read so; a new head has its
/// version's byte.
pub(super) const FORMAT_FLOOR: u8 = 2;
/// First byte of a [`HistoryHead`] that names the author or the face of its command.
const FORMAT_AUTHORS: u8 = Feature::Authors.since().byte();
const FLAG_DELETED: u8 = 1;

/// One version of one key, without its value: a record of `versions`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Version {
    /// Log index of the command that made it.
    pub index: LogIndex,
    /// Number of its record within the history of that command, from 1 on.
    pub position: u32,
    /// Whether it is a removal of the key. Such a version is called a tombstone.
    pub deleted: bool,
    /// Length of the value, bytes; 0 for a tombstone, even if its record holds the last content.
    pub value_len: u32,
    /// Revision at which the key was last created. 0 for a tombstone, and in every table but that
    /// of keys.
    pub create_revision: Revision,
    /// Revision of this version. 0 in every table but that of keys.
    pub mod_revision: Revision,
    /// Number of puts since the key was last created, the creating one included; 0 for a tombstone.
    /// Every table sets it, because reclamation relies on it.
    pub version: i64,
    /// The lease that the key is attached to; [`LeaseId::NONE`] if there is none.
    pub lease: LeaseId,
}

/// Head of a command's history, with facts about the command: the row at position 0, or the end of
/// the row of the command's only record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryHead {
    /// The KV revision that the command made. `None` if it left the revision as it was.
    pub revision: Option<Revision>,
    /// Number of records that the command wrote.
    pub count: u32,
    /// Clock of the proposer, milliseconds since the Unix epoch; zero if unknown.
    pub unix_ms: u64,
    /// Author and face of the command.
    pub authorship: Authorship,
    /// For the records at positions 1, 2, and so on: the version that the record replaces or
    /// removes. `None` for a record that does so to none, or for which that is not kept. It is kept
    /// for records of keys at positions up to 128 that were written while the cluster's version had
    /// [`Feature::Authors`]. The last entry is not `None`.
    pub previous: PreviousVersions,
}

/// For the records of a command in order: the version that each replaces or removes. Most commands
/// write one record.
pub type PreviousVersions = SmallVec<[Option<PreviousVersion>; 1]>;

/// Most records of a command for which its head keeps the previous version, count: the head stays
/// small, whatever the command changes.
pub(super) const PREVIOUS_MAX: u32 = 128;

/// The place of the version that a record replaces or removes: a stream of changes reads it without
/// a search for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PreviousVersion {
    /// Log index of the command that made the version.
    pub index: LogIndex,
    /// Number of its record within the history of that command, from 1 on.
    pub position: u32,
    /// Length of the value, bytes.
    pub value_len: u32,
}

impl PreviousVersion {
    /// The place of `version`.
    pub fn of(version: &Version) -> Self {
        Self { index: version.index, position: version.position, value_len: version.value_len }
    }

    /// A version at this place, for [`StateReader::load`](super::StateReader::load). Its other
    /// fields are zero.
    pub fn to_version(self) -> Version {
        let Self { index, position, value_len } = self;
        Version { index, position, value_len, ..Version::default() }
    }
}

/// One change as `history` holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryRecord {
    /// The table that it belongs to.
    pub table: Table,
    /// The kind of the change.
    pub kind: ChangeKind,
    /// The pair after a put, with an empty key in a table that exists in history only. For a
    /// removal, the key and `mod_revision` only; but the removal of a resource or of a row of the
    /// catalog has its last content as value, so that the event needs no older record.
    pub kv: KeyValue,
    /// The version that the record replaces or removes, if the reader found it in the head of the
    /// command. No part of the record on disk.
    pub previous: Option<PreviousVersion>,
}

pub(super) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// A reader of a record's bytes, from the front. A method that returns an `Option` returns `None`
/// if the record is cut short or malformed.
pub(super) struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    pub(super) fn open(bytes: &'a [u8]) -> Option<Self> {
        let (&format, rest) = bytes.split_first()?;
        (format == FORMAT).then_some(Self(rest))
    }

    /// Opens `rest`, a record without its first byte (the format).
    pub(super) fn unframed(rest: &'a [u8]) -> Self {
        Self(rest)
    }

    /// Opens a record whose first byte is `version`: the cluster version in which that kind of
    /// record began. `None` for any other first byte.
    pub(super) fn open_as(version: headwater_types::Version, bytes: &'a [u8]) -> Option<Self> {
        let (&format, rest) = bytes.split_first()?;
        (format == version.byte()).then_some(Self(rest))
    }

    /// Opens a record of [`FORMAT`] or [`FORMAT_FLOOR`]. True for the latter: one more log index
    /// ends the record, and the caller reads it.
    pub(super) fn open_with_floor(bytes: &'a [u8]) -> Option<(Self, bool)> {
        match bytes.split_first()? {
            (&FORMAT, rest) => Some((Self(rest), false)),
            (&FORMAT_FLOOR, rest) => Some((Self(rest), true)),
            _ => None,
        }
    }

    pub(super) fn byte(&mut self) -> Option<u8> {
        let (&byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(byte)
    }

    pub(super) fn varint(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            if shift == 63 && byte > 1 {
                return None;
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    pub(super) fn signed(&mut self) -> Option<i64> {
        self.varint().map(|value| value as i64)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.varint()?.try_into().ok()
    }

    pub(super) fn text(&mut self) -> Option<String> {
        let len = usize::try_from(self.varint()?).ok()?;
        let (text, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        String::from_utf8(text.to_vec()).ok()
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn end<T>(self, value: T) -> Option<T> {
        self.0.is_empty().then_some(value)
    }
}

impl Version {
    /// The pair of this version, with the key `key` and an empty value.
    pub fn without_value(&self, key: Bytes) -> KeyValue {
        KeyValue {
            key,
            value: Bytes::new(),
            create_revision: self.create_revision,
            mod_revision: self.mod_revision,
            version: self.version,
            lease: self.lease,
        }
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[FORMAT, if self.deleted { FLAG_DELETED } else { 0 }]);
        put_varint(out, self.position.into());
        put_varint(out, self.value_len.into());
        put_varint(out, self.create_revision.get() as u64);
        put_varint(out, self.mod_revision.get() as u64);
        put_varint(out, self.version as u64);
        put_varint(out, self.lease.get() as u64);
    }

    pub(super) fn decode(index: LogIndex, bytes: &[u8]) -> Option<Self> {
        let mut cursor = Cursor::open(bytes)?;
        let flags = cursor.byte()?;
        if flags & !FLAG_DELETED != 0 {
            return None;
        }
        let version = Self {
            index,
            deleted: flags & FLAG_DELETED != 0,
            position: cursor.u32()?,
            value_len: cursor.u32()?,
            create_revision: Revision(cursor.signed()?),
            mod_revision: Revision(cursor.signed()?),
            version: cursor.signed()?,
            lease: LeaseId(cursor.signed()?),
        };
        cursor.end(version)
    }
}

impl HistoryHead {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let is_plain = self.is_plain();
        out.push(if is_plain { FORMAT } else { FORMAT_AUTHORS });
        // Revision 0 is never made by a command.
        put_varint(out, self.revision.map_or(0, Revision::get) as u64);
        put_varint(out, self.count.into());
        put_varint(out, self.unix_ms);
        if is_plain {
            return;
        }
        put_authorship(out, &self.authorship);
        for previous in &self.previous {
            match previous {
                None => put_varint(out, 0),
                Some(PreviousVersion { index, position, value_len }) => {
                    put_varint(out, index.get());
                    put_varint(out, (*position).into());
                    put_varint(out, (*value_len).into());
                }
            }
        }
    }

    /// Whether programs before [`Feature::Authors`] can read the head.
    pub(super) fn is_plain(&self) -> bool {
        self.authorship.is_unknown() && self.previous.is_empty()
    }

    /// The head as programs before [`Feature::Authors`] know it.
    pub(super) fn into_plain(self) -> Self {
        Self { authorship: Authorship::default(), previous: PreviousVersions::new(), ..self }
    }

    /// The version that the record at `position` replaces or removes, if the head has it.
    pub(super) fn previous_of(&self, position: u32) -> Option<PreviousVersion> {
        *self.previous.get((position as usize).checked_sub(1)?)?
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (&format, rest) = bytes.split_first()?;
        if format != FORMAT && format != FORMAT_AUTHORS {
            return None;
        }
        let mut cursor = Cursor::unframed(rest);
        let revision = cursor.signed()?;
        let mut head = Self {
            revision: (revision != 0).then_some(Revision(revision)),
            count: cursor.u32()?,
            unix_ms: cursor.varint()?,
            authorship: Authorship::default(),
            previous: PreviousVersions::new(),
        };
        if format == FORMAT_AUTHORS {
            head.authorship = read_authorship(&mut cursor)?;
            while !cursor.is_at_end() {
                head.previous.push(read_previous(&mut cursor)?);
            }
        }
        cursor.end(head)
    }
}

/// Reads one entry of [`HistoryHead::previous`]: `Some(None)` if the entry is none.
fn read_previous(cursor: &mut Cursor<'_>) -> Option<Option<PreviousVersion>> {
    // No command is at index 0.
    match LogIndex(cursor.varint()?) {
        LogIndex::ZERO => Some(None),
        index => Some(Some(PreviousVersion { index, position: cursor.u32()?, value_len: cursor.u32()? })),
    }
}

const AUTHOR_UNKNOWN: u8 = 0;
const AUTHOR_USER: u8 = 1;
const AUTHOR_TOKEN: u8 = 2;
const AUTHOR_NODE: u8 = 3;

/// Appends the face (zero if it is unknown), the kind of the author, and the name of the author if
/// the kind has one.
fn put_authorship(out: &mut Vec<u8>, authorship: &Authorship) {
    out.push(authorship.face.map_or(0, |face| face as u8));
    let (kind, name) = match &authorship.author {
        None => (AUTHOR_UNKNOWN, None),
        Some(Author::User(name)) => (AUTHOR_USER, Some(name)),
        Some(Author::Token(accessor)) => (AUTHOR_TOKEN, Some(accessor)),
        Some(Author::Node) => (AUTHOR_NODE, None),
    };
    out.push(kind);
    if let Some(name) = name {
        put_varint(out, name.len() as u64);
        out.extend_from_slice(name.as_bytes());
    }
}

fn read_authorship(cursor: &mut Cursor<'_>) -> Option<Authorship> {
    let face = match cursor.byte()? {
        0 => None,
        byte => Some(Face::from_byte(byte)?),
    };
    let author = match cursor.byte()? {
        AUTHOR_UNKNOWN => None,
        AUTHOR_USER => Some(Author::User(cursor.text()?)),
        AUTHOR_TOKEN => Some(Author::Token(cursor.text()?)),
        AUTHOR_NODE => Some(Author::Node),
        _ => return None,
    };
    Some(Authorship { author, face })
}

const fn kind_byte(kind: ChangeKind) -> u8 {
    match kind {
        ChangeKind::Put => 1,
        ChangeKind::Delete => 2,
        ChangeKind::Expire => 3,
    }
}

fn kind_from_byte(byte: u8) -> Option<ChangeKind> {
    match byte {
        1 => Some(ChangeKind::Put),
        2 => Some(ChangeKind::Delete),
        3 => Some(ChangeKind::Expire),
        _ => None,
    }
}

/// Encodes one change for `history`.
pub(super) fn encode_history(out: &mut Vec<u8>, table: Table, kind: ChangeKind, kv: &KeyValue) {
    out.extend_from_slice(&[FORMAT, table as u8, kind_byte(kind)]);
    put_varint(out, kv.create_revision.get() as u64);
    put_varint(out, kv.mod_revision.get() as u64);
    put_varint(out, kv.version as u64);
    put_varint(out, kv.lease.get() as u64);
    put_varint(out, kv.key.len() as u64);
    out.extend_from_slice(&kv.key);
    out.extend_from_slice(&kv.value);
}

/// Decodes [`encode_history`] with one copy, of key and value together. A head behind the record is
/// left out.
pub(super) fn decode_history(bytes: &[u8]) -> Option<HistoryRecord> {
    let (record, _) = history_row::parts(bytes)?;
    let mut cursor = Cursor::unframed(record);
    let table = Table::from_byte(cursor.byte()?)?;
    let kind = kind_from_byte(cursor.byte()?)?;
    let create_revision = Revision(cursor.signed()?);
    let mod_revision = Revision(cursor.signed()?);
    let version = cursor.signed()?;
    let lease = LeaseId(cursor.signed()?);
    let key_len = usize::try_from(cursor.varint()?).ok()?;
    if key_len > cursor.0.len() {
        return None;
    }
    let mut key = Bytes::copy_from_slice(cursor.0);
    let value = key.split_off(key_len);
    let kv = KeyValue { key, value, create_revision, mod_revision, version, lease };
    Some(HistoryRecord { table, kind, kv, previous: None })
}

const FLAG_DUE: u8 = 1;

/// Encodes a lease for `meta`.
pub(super) fn encode_lease(lease: &Lease) -> Vec<u8> {
    let mut out = vec![FORMAT, if lease.due_ms.is_some() { FLAG_DUE } else { 0 }];
    put_varint(&mut out, lease.granted.get());
    put_varint(&mut out, lease.ttl_seconds as u64);
    if let Some(due_ms) = lease.due_ms {
        put_varint(&mut out, due_ms);
    }
    out
}

/// Decodes [`encode_lease`].
pub(super) fn decode_lease(bytes: &[u8]) -> Option<Lease> {
    let mut cursor = Cursor::open(bytes)?;
    let flags = cursor.byte()?;
    if flags & !FLAG_DUE != 0 {
        return None;
    }
    let (granted, ttl_seconds) = (LogIndex(cursor.varint()?), cursor.signed()?);
    let due_ms = if flags & FLAG_DUE != 0 { Some(cursor.varint()?) } else { None };
    cursor.end(Lease { granted, ttl_seconds, due_ms })
}

/// Encodes the lease clock, milliseconds.
pub(super) fn encode_lease_clock(clock_ms: u64) -> Vec<u8> {
    let mut out = vec![FORMAT];
    put_varint(&mut out, clock_ms);
    out
}

/// Decodes [`encode_lease_clock`].
pub(super) fn decode_lease_clock(bytes: &[u8]) -> Option<u64> {
    let mut cursor = Cursor::open(bytes)?;
    let clock_ms = cursor.varint()?;
    cursor.end(clock_ms)
}

/// Encodes the active alarms.
pub(super) fn encode_alarms(alarms: &[Alarm]) -> Vec<u8> {
    let mut out = vec![FORMAT];
    for alarm in alarms {
        out.push(alarm.kind as u8);
        put_varint(&mut out, alarm.member.get());
    }
    out
}

/// Decodes [`encode_alarms`].
pub(super) fn decode_alarms(bytes: &[u8]) -> Option<Vec<Alarm>> {
    let mut cursor = Cursor::open(bytes)?;
    let mut alarms = Vec::new();
    while !cursor.0.is_empty() {
        let kind = AlarmKind::from_byte(cursor.byte()?)?;
        alarms.push(Alarm { kind, member: NodeId(cursor.varint()?) });
    }
    Some(alarms)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn put() -> KeyValue {
        KeyValue {
            key: Bytes::from_static(b"k\0"),
            value: Bytes::from_static(b"value"),
            create_revision: Revision(2),
            mod_revision: Revision(300),
            version: 4,
            lease: LeaseId(5),
        }
    }

    #[test]
    fn bytes_are_pinned() {
        let version = Version {
            index: LogIndex(9),
            position: 1,
            deleted: false,
            value_len: 200,
            create_revision: Revision(2),
            mod_revision: Revision(300),
            version: 4,
            lease: LeaseId(5),
        };
        let mut bytes = Vec::new();
        version.encode(&mut bytes);
        assert_eq!(bytes, [1, 0, 1, 200, 1, 2, 172, 2, 4, 5]);
        assert_eq!(Version::decode(LogIndex(9), &bytes), Some(version));

        let tombstone =
            Version { index: LogIndex(9), position: 2, deleted: true, mod_revision: Revision(7), ..Version::default() };
        bytes.clear();
        tombstone.encode(&mut bytes);
        assert_eq!(bytes, [1, 1, 2, 0, 0, 7, 0, 0]);
        assert_eq!(Version::decode(LogIndex(9), &bytes), Some(tombstone));

        let authorship = Authorship::default();
        let head = HistoryHead {
            revision: Some(Revision(3)),
            count: 2,
            unix_ms: 128,
            authorship,
            previous: PreviousVersions::new(),
        };
        bytes.clear();
        head.encode(&mut bytes);
        assert_eq!(bytes, [1, 3, 2, 128, 1]);
        assert_eq!(HistoryHead::decode(&bytes), Some(head.clone()));
        let place = PreviousVersion { index: LogIndex(300), position: 2, value_len: 5 };
        let updating = HistoryHead { previous: [None, Some(place)].into_iter().collect(), ..head.clone() };
        bytes.clear();
        updating.encode(&mut bytes);
        assert_eq!(bytes, [4, 3, 2, 128, 1, 0, 0, 0, 172, 2, 2, 5]);
        assert_eq!(HistoryHead::decode(&bytes).as_ref(), Some(&updating));
        assert_eq!(HistoryHead::decode(&bytes[..bytes.len() - 1]), None, "cut short");
        assert_eq!([0, 1, 2, 3].map(|position| updating.previous_of(position)), [None, None, Some(place), None]);
        assert_eq!(updating.into_plain(), head);
        let authored: [(Option<Author>, Option<Face>, &[u8]); 5] = [
            (Some(Author::User("al".to_owned())), Some(Face::Etcd), b"\x04\x03\x02\x80\x01\x01\x01\x02al"),
            (Some(Author::Token("a-1".to_owned())), Some(Face::Consul), b"\x04\x03\x02\x80\x01\x04\x02\x03a-1"),
            (Some(Author::Node), Some(Face::Node), b"\x04\x03\x02\x80\x01\x07\x03"),
            (None, Some(Face::Store), b"\x04\x03\x02\x80\x01\x05\x00"),
            (Some(Author::Node), None, b"\x04\x03\x02\x80\x01\x00\x03"),
        ];
        for (author, face, wanted) in authored {
            let head = HistoryHead { authorship: Authorship { author, face }, ..head.clone() };
            bytes.clear();
            head.encode(&mut bytes);
            assert_eq!(bytes, wanted, "{head:?}");
            assert_eq!(HistoryHead::decode(&bytes), Some(head));
            for len in 0..bytes.len() {
                assert_eq!(HistoryHead::decode(&bytes[..len]), None, "cut to {len}");
            }
        }
        assert_eq!(HistoryHead::decode(&[4, 3, 2, 1, 8, 0]), None, "unknown face");
        assert_eq!(HistoryHead::decode(&[4, 3, 2, 1, 1, 4]), None, "unknown kind of author");
        assert_eq!(HistoryHead::decode(&[1, 3, 2, 1, 1, 0]), None, "an author in the old format");
        assert_eq!(HistoryHead::decode(&[1, 0, 2, 0]).and_then(|head| head.revision), None);

        bytes.clear();
        encode_history(&mut bytes, Table::Kv, ChangeKind::Put, &put());
        assert_eq!(bytes, b"\x01\x01\x01\x02\xac\x02\x04\x05\x02k\0value");
        let record = HistoryRecord { table: Table::Kv, kind: ChangeKind::Put, kv: put(), previous: None };
        assert_eq!(decode_history(&bytes), Some(record));

        bytes.clear();
        let gone = KeyValue { key: Bytes::from_static(b"k"), mod_revision: Revision(7), ..KeyValue::default() };
        encode_history(&mut bytes, Table::Kv, ChangeKind::Expire, &gone);
        assert_eq!(bytes, b"\x01\x01\x03\x00\x07\x00\x00\x01k");

        let alarms =
            [(2, AlarmKind::NoSpace), (300, AlarmKind::Corrupt)].map(|(id, kind)| Alarm { member: NodeId(id), kind });
        assert_eq!(encode_alarms(&alarms), [1, 1, 2, 2, 172, 2]);
        assert_eq!(decode_alarms(&encode_alarms(&alarms)), Some(alarms.to_vec()));

        let lease = Lease { granted: LogIndex(300), ttl_seconds: 60, due_ms: None };
        assert_eq!(encode_lease(&lease), [1, 0, 172, 2, 60]);
        assert_eq!(decode_lease(&encode_lease(&lease)), Some(lease));
        let due = Lease { due_ms: Some(200), ..lease };
        assert_eq!(encode_lease(&due), [1, 1, 172, 2, 60, 200, 1]);
        assert_eq!(decode_lease(&encode_lease(&due)), Some(due));
        assert_eq!(encode_lease_clock(300), [1, 172, 2]);
        assert_eq!(decode_lease_clock(&[1, 172, 2]), Some(300));
    }

    #[test]
    fn what_was_not_written_is_not_read() {
        let mut bytes = Vec::new();
        encode_history(&mut bytes, Table::Kv, ChangeKind::Put, &put());
        // Cut before the key ends: the value alone may have any length.
        for len in 0..11 {
            assert_eq!(decode_history(&bytes[..len]), None, "cut to {len}");
        }
        for (offset, byte) in [(0, 2), (1, 255), (2, 0)] {
            let mut wrong = bytes.clone();
            wrong[offset] = byte;
            assert_eq!(decode_history(&wrong), None, "byte {offset} is {byte}");
        }
        assert_eq!(Version::decode(LogIndex(1), &[1, 2, 0, 0, 0, 0, 0, 0]), None, "unknown flag");
        assert_eq!(Version::decode(LogIndex(1), &[1, 0, 0, 0, 0, 0, 0, 0, 0]), None, "trailing byte");
        assert_eq!(decode_alarms(&[1, 3, 1]), None, "unknown alarm");
        assert_eq!(decode_alarms(&[1, 1]), None, "cut short");
        assert_eq!(decode_lease(&[1, 2, 1, 1]), None, "unknown flag");
        assert_eq!(decode_lease(&[1, 1, 1, 1]), None, "cut short");
        assert_eq!(decode_lease_clock(&[1, 1, 1]), None, "trailing byte");
    }

    proptest! {
        #[test]
        fn versions_read_back(
            position in any::<u32>(), value_len in any::<u32>(), deleted in any::<bool>(),
            create in any::<i64>(), modified in any::<i64>(), version in any::<i64>(), lease in any::<i64>(),
        ) {
            let version = Version {
                index: LogIndex(1), position, deleted, value_len,
                create_revision: Revision(create), mod_revision: Revision(modified), version, lease: LeaseId(lease),
            };
            let mut bytes = Vec::new();
            version.encode(&mut bytes);
            prop_assert_eq!(Version::decode(LogIndex(1), &bytes), Some(version));
        }
    }
}
