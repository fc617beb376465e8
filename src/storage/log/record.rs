//! One log record in memory, and the frame around everything that the log stores in RocksDB.
//!
//! Every value in RocksDB is
//! `[frame format][CRC-32C, little-endian, of all that follows][codec record][payload]`. RocksDB
//! has checksums of its own; this one also covers the code above them, and reveals an entry that is
//! stored under the key of another.

use bytes::Bytes;

use crate::StorageError;
use headwater_proto::codec::CodecError;
use headwater_proto::codec::raft::{self, LogId, RaftRecord, RecordHeader, RecordKind};
use headwater_types::{LogIndex, Term};

/// Format of the frame; the only one so far.
const FRAME: u8 = 1;
/// Frame format and checksum, bytes.
const FRAME_BYTES: usize = 5;
/// Memory of a record beyond its payload, bytes (an estimate).
const OVERHEAD_BYTES: usize = 64;

/// One entry of the Raft log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRecord {
    /// Term of the leader that appended the entry.
    pub term: Term,
    /// Log index of the entry.
    pub index: LogIndex,
    /// The kind of the payload.
    pub kind: RecordKind,
    /// The encoded command or membership, unchanged; empty for a blank record.
    pub payload: Bytes,
}

impl LogRecord {
    /// Term and index.
    pub fn id(&self) -> LogId {
        LogId { term: self.term, index: self.index }
    }

    /// Estimated memory of the record, bytes.
    pub(super) fn cost_bytes(&self) -> usize {
        self.payload.len() + OVERHEAD_BYTES
    }
}

/// The key of an entry: entries sort by index.
pub(super) fn entry_key(index: u64) -> [u8; 8] {
    index.to_be_bytes()
}

/// The index in an entry's key.
pub(super) fn entry_index(key: &[u8]) -> Result<u64, StorageError> {
    let key: [u8; 8] = key.try_into().map_err(|_| corrupt("log/entries", format!("key of {} bytes", key.len())))?;
    Ok(u64::from_be_bytes(key))
}

/// Replaces the contents of `out` by the stored form of `record`.
pub(super) fn encode_entry(record: &LogRecord, out: &mut Vec<u8>) {
    frame(out, |out| encode_entry_body(record, out));
}

/// Decodes the value stored under the key of `index`.
pub(super) fn decode_entry(index: u64, stored: &[u8]) -> Result<LogRecord, StorageError> {
    let location = || format!("log/entries/{index}");
    let body = unframe(stored).map_err(|detail| corrupt(location(), detail))?;
    let record = decode_entry_body(body).map_err(|error| undecodable(location(), error))?;
    if record.index != LogIndex(index) {
        return Err(corrupt(location(), format!("holds the entry of index {}", record.index)));
    }
    Ok(record)
}

/// Appends the header and the payload of `record` to `out`.
pub(super) fn encode_entry_body(record: &LogRecord, out: &mut Vec<u8>) {
    raft::encode_into(&RecordHeader { term: record.term, index: record.index, kind: record.kind }, out);
    out.extend_from_slice(&record.payload);
}

/// Decodes the header and the payload of an entry.
pub(super) fn decode_entry_body(body: &[u8]) -> Result<LogRecord, CodecError> {
    let (RecordHeader { term, index, kind }, len) = raft::decode_prefix(body)?;
    Ok(LogRecord { term, index, kind, payload: Bytes::copy_from_slice(&body[len..]) })
}

/// Replaces the contents of `out` by the stored form of a record of `log/meta`.
pub(super) fn encode_meta<T: RaftRecord>(record: &T, out: &mut Vec<u8>) {
    frame(out, |out| raft::encode_into(record, out));
}

/// Decodes the value stored under `key` in `log/meta`.
pub(super) fn decode_meta<T: RaftRecord>(key: &str, stored: &[u8]) -> Result<T, StorageError> {
    let location = || format!("log/meta/{key}");
    let body = unframe(stored).map_err(|detail| corrupt(location(), detail))?;
    raft::decode(body).map_err(|error| undecodable(location(), error))
}

/// The error for a record that cannot be decoded: it is newer than this program, or damaged.
pub(super) fn undecodable(location: String, error: CodecError) -> StorageError {
    match error {
        CodecError::TooNew(too_new) => too_new.into(),
        error => corrupt(location, error.to_string()),
    }
}

/// An error that names the damaged record.
pub(super) fn corrupt(location: impl Into<String>, detail: impl Into<String>) -> StorageError {
    StorageError::Corrupt { location: location.into(), detail: detail.into() }
}

fn frame(out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
    out.clear();
    out.extend_from_slice(&[FRAME, 0, 0, 0, 0]);
    body(out);
    let crc = crc32c::crc32c(&out[FRAME_BYTES..]);
    out[1..FRAME_BYTES].copy_from_slice(&crc.to_le_bytes());
}

fn unframe(stored: &[u8]) -> Result<&[u8], String> {
    let Some((&[format, a, b, c, d], body)) = stored.split_first_chunk::<FRAME_BYTES>() else {
        return Err(format!("{} bytes are too short for a record", stored.len()));
    };
    if format != FRAME {
        return Err(format!("frame format {format} is not known to this version, which reads format {FRAME}"));
    }
    let (wanted, found) = (u32::from_le_bytes([a, b, c, d]), crc32c::crc32c(body));
    if wanted != found {
        return Err(format!("checksum is {found:08x} and should be {wanted:08x}"));
    }
    Ok(body)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use headwater_types::NodeId;

    fn record() -> LogRecord {
        LogRecord { term: Term(3), index: LogIndex(9), kind: RecordKind::Normal, payload: Bytes::from_static(b"abc") }
    }

    /// These bytes are on disks: a change here is a new format, not an edit.
    #[test]
    fn golden_bytes() {
        let mut out = Vec::new();
        encode_entry(&record(), &mut out);
        assert_eq!(out, [1, 0x37, 0xdf, 0x9d, 0x91, 1, 3, 9, 1, b'a', b'b', b'c']);
        let vote = raft::Vote { term: Term(2), node_id: NodeId(1), committed: true };
        encode_meta(&vote, &mut out);
        assert_eq!(out, [1, 0x06, 0xa8, 0x84, 0x3b, 1, 2, 1, 1]);
        assert_eq!(entry_key(258), [0, 0, 0, 0, 0, 0, 1, 2]);
    }

    #[test]
    fn every_single_bit_flip_is_noticed() {
        let mut stored = Vec::new();
        encode_entry(&record(), &mut stored);
        for bit in 0..stored.len() * 8 {
            stored[bit / 8] ^= 1 << (bit % 8);
            let error = decode_entry(9, &stored).unwrap_err();
            assert!(matches!(error, StorageError::Corrupt { .. }), "bit {bit}: {error}");
            stored[bit / 8] ^= 1 << (bit % 8);
        }
        assert_eq!(decode_entry(9, &stored).unwrap(), record());
    }

    #[test]
    fn an_entry_under_the_wrong_key_is_noticed() {
        let mut stored = Vec::new();
        encode_entry(&record(), &mut stored);
        let error = decode_entry(8, &stored).unwrap_err().to_string();
        assert!(error.contains("log/entries/8") && error.contains("index 9"), "{error}");
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(stored in prop::collection::vec(any::<u8>(), 0..64)) {
            prop_assert!(decode_entry(1, &stored).is_err());
            prop_assert!(decode_meta::<LogId>("committed", &stored).is_err());
            drop(entry_index(&stored));
        }

        #[test]
        fn round_trips(term: u64, index: u64, payload in prop::collection::vec(any::<u8>(), 0..300)) {
            let record = LogRecord {
                term: Term(term), index: LogIndex(index), kind: RecordKind::Membership, payload: payload.into(),
            };
            let mut stored = Vec::new();
            encode_entry(&record, &mut stored);
            prop_assert_eq!(decode_entry(index, &stored).unwrap(), record);
        }
    }
}
