//! The `meta` records of types of resources and units of tenancy: registrations and counts.
//!
//! Owns their encodings. Invariant: bytes on disk are public; the golden tests below pin them.

use super::record::{Cursor, FORMAT, decode_lease_clock, encode_lease_clock, put_varint};
use headwater_types::LogIndex;
use headwater_types::resource::{Scope, Type};

/// The record of one type of resources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TypeRecord {
    /// Registration of the type; `None` if it is not registered.
    pub registered: Option<Registration>,
    /// Count of resources of the type; always 0 for a built-in type.
    pub count: u64,
}

/// The registration of a type of resources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    /// The type.
    pub type_: Type,
    /// The scope of its resources.
    pub scope: Scope,
    /// Log index of the last command that changed the data of the resource that registers the type.
    /// A change of its status or metadata alone leaves it as it is.
    pub version: LogIndex,
}

/// Encodes a count for `meta`.
pub(super) fn encode_count(count: u64) -> Vec<u8> {
    encode_lease_clock(count)
}

/// Decodes [`encode_count`].
pub(super) fn decode_count(bytes: &[u8]) -> Option<u64> {
    decode_lease_clock(bytes)
}

const fn scope_byte(scope: Scope) -> u8 {
    match scope {
        Scope::Undefined => 1,
        Scope::Cluster => 2,
        Scope::Partition => 3,
        Scope::Namespace => 4,
    }
}

fn scope_from_byte(byte: u8) -> Option<Scope> {
    [Scope::Undefined, Scope::Cluster, Scope::Partition, Scope::Namespace]
        .into_iter()
        .find(|scope| scope_byte(*scope) == byte)
}

impl TypeRecord {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = vec![FORMAT];
        put_varint(&mut out, self.count);
        if let Some(registration) = &self.registered {
            out.push(scope_byte(registration.scope));
            put_varint(&mut out, registration.version.get());
            let Type { group, group_version, kind } = &registration.type_;
            for part in [group, group_version, kind] {
                put_varint(&mut out, part.len() as u64);
                out.extend_from_slice(part.as_bytes());
            }
        }
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut cursor = Cursor::open(bytes)?;
        let count = cursor.varint()?;
        if cursor.is_at_end() {
            return Some(Self { registered: None, count });
        }
        let scope = scope_from_byte(cursor.byte()?)?;
        let version = LogIndex(cursor.varint()?);
        let type_ = Type { group: cursor.text()?, group_version: cursor.text()?, kind: cursor.text()? };
        cursor.end(Self { registered: Some(Registration { type_, scope, version }), count })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_pinned() {
        let registered =
            Registration { type_: Type::new("ab", "v1", "C"), scope: Scope::Namespace, version: LogIndex(300) };
        let record = TypeRecord { registered: Some(registered), count: 3 };
        assert_eq!(record.encode(), b"\x01\x03\x04\xac\x02\x02ab\x02v1\x01C");
        assert_eq!(TypeRecord::decode(&record.encode()), Some(record));
        let counted = TypeRecord { registered: None, count: 300 };
        assert_eq!(counted.encode(), [1, 172, 2]);
        assert_eq!(TypeRecord::decode(&counted.encode()), Some(counted));
        assert_eq!(TypeRecord::decode(&[2, 0]), None);
        assert_eq!(TypeRecord::decode(&[1, 0, 9, 1]), None);
        assert_eq!((encode_count(300), decode_count(&[1, 172, 2])), (vec![1, 172, 2], Some(300)));
    }
}
