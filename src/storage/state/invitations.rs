//! Invitations (types::invitation).
//!
//! Owns the bytes of an invitation. Invariant: a token is not in the state, only its hash.

use std::collections::BTreeMap;

use rocksdb::{ReadOptions, WriteBatch};

use super::db::{corrupt, undecodable};
use super::keys;
use super::options::META;
use super::record::{Cursor, put_varint};
use super::txn::WriteTxn;
use super::view::ReadView;
use crate::StorageError;
use headwater_types::{Feature, Invitation, InvitationId, InvitationUse, TokenHash};

/// Flag of an invitation with a bound on its uses.
const FLAG_LIMITED: u8 = 1;
/// Flag of an invitation by which nodes join as learners.
const FLAG_LEARNER: u8 = 2;

impl WriteTxn<'_> {
    /// Writes (or with `None` removes) an invitation.
    pub fn set_invitation(&mut self, id: InvitationId, invitation: Option<Invitation>) {
        self.invitations.insert(id, invitation);
    }

    /// All invitations, by their ids.
    ///
    /// # Errors
    ///
    /// If the disk failed, or a record cannot be decoded.
    pub fn invitations(&self) -> Result<BTreeMap<InvitationId, Invitation>, StorageError> {
        let mut found = read_all(&self.db.db, self.families.meta, ReadOptions::default())?;
        for (id, invitation) in self.invitations.iter() {
            match invitation {
                Some(invitation) => found.insert(*id, invitation.clone()),
                None => found.remove(id),
            };
        }
        Ok(found)
    }

    /// Marks the uses of invitations by nodes that have become members; `has_joined` tells whether
    /// the node with an incarnation is a member. A node with a marked use cannot use its token
    /// again.
    ///
    /// # Errors
    ///
    /// If the disk failed, or a record cannot be decoded.
    pub fn note_joined(&mut self, has_joined: impl Fn(u64) -> bool) -> Result<(), StorageError> {
        for (id, mut invitation) in self.invitations()? {
            let mut joined =
                invitation.uses.iter_mut().filter(|one| !one.has_joined && has_joined(one.incarnation)).peekable();
            if joined.peek().is_none() {
                continue;
            }
            joined.for_each(|one| one.has_joined = true);
            self.set_invitation(id, Some(invitation));
        }
        Ok(())
    }
}

impl ReadView<'_> {
    /// All invitations, by their ids.
    ///
    /// # Errors
    ///
    /// If the disk failed, or a record cannot be decoded.
    pub fn invitations(&self) -> Result<BTreeMap<InvitationId, Invitation>, StorageError> {
        read_all(&self.db.db, self.families.meta, self.options())
    }
}

fn read_all(
    db: &rocksdb::DB,
    meta: &rocksdb::ColumnFamily,
    mut options: ReadOptions,
) -> Result<BTreeMap<InvitationId, Invitation>, StorageError> {
    options.set_iterate_lower_bound(keys::META_INVITATIONS.0);
    options.set_iterate_upper_bound(keys::META_INVITATIONS.1);
    let mut iter = db.raw_iterator_cf_opt(meta, options);
    let mut found = BTreeMap::new();
    iter.seek_to_first();
    while let Some((key, value)) = iter.item() {
        let id = keys::parse_invitation(key).ok_or_else(|| corrupt(META, key, "not the key of an invitation"))?;
        let invitation =
            decode(value).ok_or_else(|| undecodable(META, key, value, "an invitation that cannot be decoded"))?;
        found.insert(id, invitation);
        iter.next();
    }
    iter.status()?;
    Ok(found)
}

/// Adds uncommitted invitations to `batch`; `None` is a removal.
pub(super) fn stage(
    invitations: &BTreeMap<InvitationId, Option<Invitation>>,
    batch: &mut WriteBatch,
    meta: &rocksdb::ColumnFamily,
) {
    for (&id, invitation) in invitations {
        match invitation {
            Some(invitation) => batch.put_cf(meta, keys::invitation(id), encode(invitation)),
            None => batch.delete_cf(meta, keys::invitation(id)),
        }
    }
}

/// The bytes of an invitation.
fn encode(invitation: &Invitation) -> Vec<u8> {
    let Invitation { name, hash, expires_unix_ms, uses_max, learner, used, uses } = invitation;
    let limited = if uses_max.is_some() { FLAG_LIMITED } else { 0 };
    let mut out = vec![Feature::Invitations.since().byte(), limited | if *learner { FLAG_LEARNER } else { 0 }];
    out.extend_from_slice(&hash.0);
    put_varint(&mut out, *expires_unix_ms);
    if let Some(max) = uses_max {
        put_varint(&mut out, (*max).into());
    }
    put_text(&mut out, name);
    put_varint(&mut out, *used);
    put_varint(&mut out, uses.len() as u64);
    for InvitationUse { incarnation, node, unix_ms, has_joined } in uses {
        put_varint(&mut out, *incarnation);
        put_text(&mut out, node);
        put_varint(&mut out, *unix_ms);
        out.push(u8::from(*has_joined));
    }
    out
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    put_varint(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

fn decode(bytes: &[u8]) -> Option<Invitation> {
    let mut cursor = Cursor::open_as(Feature::Invitations.since(), bytes)?;
    let flags = cursor.byte()?;
    if flags & !(FLAG_LIMITED | FLAG_LEARNER) != 0 {
        return None;
    }
    let mut hash = TokenHash([0; 32]);
    for byte in &mut hash.0 {
        *byte = cursor.byte()?;
    }
    let expires_unix_ms = cursor.varint()?;
    let uses_max = if flags & FLAG_LIMITED != 0 { Some(cursor.u32()?) } else { None };
    let name = cursor.text()?;
    let used = cursor.varint()?;
    let count = cursor.varint()?;
    let mut uses = Vec::new();
    for _ in 0..count {
        uses.push(InvitationUse {
            incarnation: cursor.varint()?,
            node: cursor.text()?,
            unix_ms: cursor.varint()?,
            has_joined: match cursor.byte()? {
                0 => false,
                1 => true,
                _ => return None,
            },
        });
    }
    let learner = flags & FLAG_LEARNER != 0;
    cursor.end(Invitation { name, hash, expires_unix_ms, uses_max, learner, used, uses })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invitations_are_pinned() {
        let plain = Invitation {
            name: String::new(),
            hash: TokenHash([7; 32]),
            expires_unix_ms: 300,
            uses_max: None,
            learner: false,
            used: 0,
            uses: vec![],
        };
        let bytes = encode(&plain);
        assert_eq!(bytes, [&b"\x04\x00"[..], &[7; 32], b"\xac\x02\x00\x00\x00"].concat());
        assert_eq!(decode(&bytes), Some(plain.clone()));
        let one = |incarnation, has_joined| InvitationUse { incarnation, node: "m".into(), unix_ms: 5, has_joined };
        let used = Invitation {
            name: "n".into(),
            uses_max: Some(2),
            learner: true,
            used: 2,
            uses: vec![one(9, true), one(300, false)],
            ..plain
        };
        let bytes = encode(&used);
        let wanted =
            [&b"\x04\x03"[..], &[7; 32], b"\xac\x02\x02\x01n\x02\x02", b"\x09\x01m\x05\x01", b"\xac\x02\x01m\x05\x00"];
        assert_eq!(bytes, wanted.concat());
        assert_eq!(decode(&bytes), Some(used));
        assert_eq!(decode(&bytes[..bytes.len() - 1]), None);
        assert_eq!(decode(&[&bytes[..], &[0]].concat()), None);
        let mut flagged = bytes;
        flagged[1] |= 4;
        assert_eq!(decode(&flagged), None, "an unknown flag");
    }
}
