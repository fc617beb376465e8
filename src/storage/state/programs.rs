//! The cluster's version and the programs of its members (types::version).
//!
//! Owns the bytes of a member's program; the version itself is part of the head. Invariant: the
//! state holds no record that needs more than the version of its head.

use std::collections::{BTreeMap, BTreeSet};

#[cfg(feature = "next-version")]
use bytes::Bytes;
use rocksdb::{ReadOptions, WriteBatch};

use super::db::{corrupt, undecodable};
use super::keys;
use super::options::META;
use super::record::{Cursor, put_varint};
use super::txn::WriteTxn;
use super::view::ReadView;
use crate::StorageError;
use headwater_types::{ClusterVersion, Feature, MemberProgram, NodeId, Supported, Version};

impl WriteTxn<'_> {
    /// Sets the cluster's version.
    pub fn set_version(&mut self, version: ClusterVersion) {
        self.head.version = version;
        self.highest_version = self.highest_version.max(version.version);
    }

    /// The versions of clusters that this program supports.
    pub fn supported(&self) -> Supported {
        self.db.supported()
    }

    /// Writes (or with `None` removes) the program of a member.
    pub fn set_program(&mut self, member: NodeId, program: Option<MemberProgram>) {
        self.programs.insert(member, program);
    }

    /// The programs of the members that have announced one.
    ///
    /// # Errors
    ///
    /// If the disk failed, or a record cannot be decoded.
    pub fn programs(&self) -> Result<BTreeMap<NodeId, MemberProgram>, StorageError> {
        let mut programs = read_programs(&self.db.db, self.families.meta, ReadOptions::default())?;
        for (member, program) in self.programs.iter() {
            match program {
                Some(program) => programs.insert(*member, program.clone()),
                None => programs.remove(member),
            };
        }
        Ok(programs)
    }

    /// Removes the programs of all but these members.
    ///
    /// # Errors
    ///
    /// If the disk failed, or a record cannot be decoded.
    pub fn retain_programs(&mut self, members: &BTreeSet<NodeId>) -> Result<(), StorageError> {
        let gone: Vec<NodeId> = self.programs()?.into_keys().filter(|member| !members.contains(member)).collect();
        for member in gone {
            self.set_program(member, None);
        }
        Ok(())
    }
}

impl ReadView<'_> {
    /// The programs of the members that have announced one.
    ///
    /// # Errors
    ///
    /// If the disk failed, or a record cannot be decoded.
    pub fn programs(&self) -> Result<BTreeMap<NodeId, MemberProgram>, StorageError> {
        read_programs(&self.db.db, self.families.meta, self.options())
    }
}

fn read_programs(
    db: &rocksdb::DB,
    meta: &rocksdb::ColumnFamily,
    mut options: ReadOptions,
) -> Result<BTreeMap<NodeId, MemberProgram>, StorageError> {
    options.set_iterate_lower_bound(keys::META_PROGRAMS.0);
    options.set_iterate_upper_bound(keys::META_PROGRAMS.1);
    let mut iter = db.raw_iterator_cf_opt(meta, options);
    let mut found = BTreeMap::new();
    iter.seek_to_first();
    while let Some((key, value)) = iter.item() {
        let member = keys::parse_program(key).ok_or_else(|| corrupt(META, key, "not the key of a program"))?;
        let program = decode(value).ok_or_else(|| undecodable(META, key, value, "a program that cannot be decoded"))?;
        found.insert(member, program);
        iter.next();
    }
    iter.status()?;
    Ok(found)
}

/// Adds uncommitted programs to `batch`; `None` is a removal.
pub(super) fn stage(
    programs: &BTreeMap<NodeId, Option<MemberProgram>>,
    batch: &mut WriteBatch,
    meta: &rocksdb::ColumnFamily,
) {
    for (&member, program) in programs {
        match program {
            Some(program) => batch.put_cf(meta, keys::program(member), encode(program)),
            None => batch.delete_cf(meta, keys::program(member)),
        }
    }
}

/// The bytes of a member's program.
fn encode(program: &MemberProgram) -> Vec<u8> {
    let MemberProgram { program, supported: Supported { lowest, highest } } = program;
    let mut out = vec![Feature::Versions.since().byte(), lowest.byte(), highest.byte()];
    put_varint(&mut out, program.len() as u64);
    out.extend_from_slice(program.as_bytes());
    out
}

fn decode(bytes: &[u8]) -> Option<MemberProgram> {
    let mut cursor = Cursor::open_as(Feature::Versions.since(), bytes)?;
    let supported =
        Supported { lowest: Version::from_byte(cursor.byte()?), highest: Version::from_byte(cursor.byte()?) };
    let program = cursor.text()?;
    cursor.end(MemberProgram { program, supported })
}

/// A record that stands in for those of the next version. Only tests of upgrades use it. It has a
/// text, and counts the proposals of each member.
#[cfg(feature = "next-version")]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StandInRecord {
    /// Text of the last [`Command::Note`](headwater_types::Command::Note).
    pub note: Bytes,
    /// Proposals that named their member, by member.
    pub origins: BTreeMap<NodeId, u64>,
}

#[cfg(feature = "next-version")]
impl WriteTxn<'_> {
    /// The record of the stand-in for the next version; the default if there is none.
    ///
    /// # Errors
    ///
    /// If the disk failed, or a record cannot be decoded.
    pub fn stand_in(&self) -> Result<StandInRecord, StorageError> {
        match &self.stand_in {
            Some(stand_in) => Ok(stand_in.clone().unwrap_or_default()),
            None => read_stand_in(self.db.db.get_pinned_cf(self.families.meta, keys::META_STAND_IN)?.as_deref()),
        }
    }

    /// Replaces the record of the stand-in for the next version; `None` removes it. The cluster
    /// version stays as it is.
    pub fn set_stand_in(&mut self, stand_in: Option<StandInRecord>) {
        self.stand_in = Some(stand_in);
    }
}

#[cfg(feature = "next-version")]
fn read_stand_in(bytes: Option<&[u8]>) -> Result<StandInRecord, StorageError> {
    let Some(bytes) = bytes else { return Ok(StandInRecord::default()) };
    let read = || {
        let mut cursor = Cursor::open_as(Version::V0_5, bytes)?;
        let note = Bytes::from(cursor.text()?);
        let count = cursor.varint()?;
        let mut origins = BTreeMap::new();
        for _ in 0..count {
            origins.insert(NodeId(cursor.varint()?), cursor.varint()?);
        }
        cursor.end(StandInRecord { note, origins })
    };
    read().ok_or_else(|| undecodable(META, keys::META_STAND_IN, bytes, "a stand-in record that cannot be decoded"))
}

#[cfg(feature = "next-version")]
pub(super) fn encode_stand_in(stand_in: &StandInRecord) -> Vec<u8> {
    let mut out = vec![Version::V0_5.byte()];
    put_varint(&mut out, stand_in.note.len() as u64);
    out.extend_from_slice(&stand_in.note);
    put_varint(&mut out, stand_in.origins.len() as u64);
    for (member, count) in &stand_in.origins {
        put_varint(&mut out, member.get());
        put_varint(&mut out, *count);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_pinned() {
        let program = MemberProgram { program: "0.4.0 (a)".to_owned(), supported: Supported::RELEASE };
        let bytes = encode(&program);
        assert_eq!(bytes, b"\x03\x03\x04\x090.4.0 (a)");
        assert_eq!(decode(&bytes), Some(program));
        assert_eq!(decode(&bytes[..bytes.len() - 1]), None);
    }
}
