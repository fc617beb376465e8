//! Rows of history in which the only record of a command has the command's head behind it.
//!
//! Most commands write one record, and a row costs RocksDB more than its bytes: so head and record
//! share a row, at the position of the record. Versions point to it as to any other record.
//! Invariant: such a row is the whole history of its command; it is written while the version of
//! the cluster has [`Feature::CompactHistory`].

use super::db::{corrupt, undecodable};
use super::keys;
use super::options::HISTORY;
use super::record::{FORMAT, HistoryHead, decode_history};
use crate::StorageError;
use headwater_types::{Feature, LogIndex};

/// First byte of a record with the head of its command behind it. The record is as it is under
/// [`FORMAT`]; the head follows, as in a row of its own, and then its length, one byte.
const FORMAT_WITH_HEAD: u8 = Feature::CompactHistory.since().byte();

/// Makes `record`, encoded by `encode_history`, the whole history of a command whose only record it
/// is. Returns false, and changes nothing, if the encoded `head` is longer than 255 bytes.
pub(super) fn append_head(record: &mut Vec<u8>, head: &[u8]) -> bool {
    let Ok(len) = u8::try_from(head.len()) else { return false };
    record[0] = FORMAT_WITH_HEAD;
    record.extend_from_slice(head);
    record.push(len);
    true
}

/// The parts of a record's row: the record without its first byte (the format), and the encoded
/// head if the row has one. `None` if the format is unknown, or the row is cut short.
pub(super) fn parts(row: &[u8]) -> Option<(&[u8], Option<&[u8]>)> {
    let (&format, rest) = row.split_first()?;
    match format {
        FORMAT => Some((rest, None)),
        FORMAT_WITH_HEAD => {
            let (&len, rest) = rest.split_last()?;
            let (record, head) = rest.split_at_checked(rest.len().checked_sub(len.into())?)?;
            Some((record, Some(head)))
        }
        _ => None,
    }
}

/// The first row of a command's history, decoded.
pub(super) struct FirstRow {
    /// Log index of the command.
    pub(super) index: LogIndex,
    /// The head of the command.
    pub(super) head: HistoryHead,
    /// Whether the row has the command's only record as well.
    pub(super) has_record: bool,
}

impl FirstRow {
    /// Decodes the row of `history` at which a command begins.
    ///
    /// # Errors
    ///
    /// If it is another row, or cannot be decoded.
    pub(super) fn decode(key: &[u8], row: &[u8]) -> Result<Self, StorageError> {
        let head = head_in(key, row)?;
        match keys::parse_history(key).zip(head) {
            Some(((index, position), head)) => Ok(Self { index, head, has_record: position > 0 }),
            None => Err(corrupt(HISTORY, key, "a record without its head")),
        }
    }
}

/// The head in a row of `history`; `None` if the row has none.
///
/// # Errors
///
/// If the key or the head cannot be decoded, or the head cannot be at that position.
pub(super) fn head_in(key: &[u8], row: &[u8]) -> Result<Option<HistoryHead>, StorageError> {
    let Some((_, position)) = keys::parse_history(key) else {
        return Err(corrupt(HISTORY, key, "not a history key"));
    };
    head_at(position, row).ok_or_else(|| undecodable(HISTORY, key, row, "cannot be decoded"))
}

/// As [`head_in`], for the row at `position`. `None` in place of an error.
fn head_at(position: u32, row: &[u8]) -> Option<Option<HistoryHead>> {
    if position == 0 {
        return HistoryHead::decode(row).map(Some);
    }
    let Some(head) = parts(row)?.1 else { return Some(None) };
    HistoryHead::decode(head).filter(|head| position == 1 && head.count == 1).map(Some)
}

/// Whether the row at `position` of a command's history can be decoded.
pub(super) fn is_readable(position: u32, row: &[u8]) -> bool {
    head_at(position, row).is_some() && (position == 0 || decode_history(row).is_some())
}

/// The record of a row without its head, as an earlier version of the cluster has it.
pub(super) fn without_head(row: &[u8]) -> Option<Vec<u8>> {
    let (record, _) = parts(row)?;
    Some([&[FORMAT], record].concat())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::super::keys::Table;
    use super::super::record::{PreviousVersion, PreviousVersions, encode_history};
    use super::*;
    use headwater_types::{Author, Authorship, ChangeKind, Face, KeyValue, Revision};

    fn record() -> Vec<u8> {
        let kv = KeyValue {
            key: Bytes::from_static(b"k"),
            value: Bytes::from_static(b"value"),
            create_revision: Revision(2),
            mod_revision: Revision(300),
            version: 4,
            ..KeyValue::default()
        };
        let mut row = Vec::new();
        encode_history(&mut row, Table::Kv, ChangeKind::Put, &kv);
        row
    }

    fn head(name: &str) -> HistoryHead {
        let place = PreviousVersion { index: LogIndex(7), position: 1, value_len: 5 };
        HistoryHead {
            revision: Some(Revision(300)),
            count: 1,
            unix_ms: 128,
            authorship: Authorship { author: Some(Author::User(name.to_owned())), face: Some(Face::Etcd) },
            previous: PreviousVersions::from_iter([Some(place)]),
        }
    }

    fn row(head: &HistoryHead) -> Vec<u8> {
        let (mut row, mut encoded) = (record(), Vec::new());
        head.encode(&mut encoded);
        assert!(append_head(&mut row, &encoded));
        row
    }

    #[test]
    fn bytes_are_pinned() {
        let whole = row(&head("al"));
        let wanted =
            b"\x04\x01\x01\x02\xac\x02\x04\x00\x01kvalue\x04\xac\x02\x01\x80\x01\x01\x01\x02al\x07\x01\x05\x0e";
        assert_eq!(whole, wanted);
        assert_eq!((head_at(1, &whole), decode_history(&whole)), (Some(Some(head("al"))), decode_history(&record())));
        assert_eq!(head_at(1, &record()), Some(None));
        assert_eq!(without_head(&whole), Some(record()));
        assert_eq!(without_head(&record()), Some(record()));
        assert!(is_readable(1, &whole) && !is_readable(2, &whole), "it is the only record");
        let of_two = HistoryHead { count: 2, ..head("al") };
        assert_eq!(head_at(1, &row(&of_two)), None, "a head of two records");
        for len in 0..whole.len() {
            assert!(!is_readable(1, &whole[..len]), "cut to {len}");
        }
    }

    #[test]
    fn a_head_that_is_too_long_stays_alone() {
        let mut long = Vec::new();
        head(&"a".repeat(256)).encode(&mut long);
        let mut row = record();
        assert!(!append_head(&mut row, &long));
        assert_eq!(row, record());
    }

    #[test]
    fn a_command_begins_with_its_head() {
        let key = |position| keys::history(LogIndex(9), position);
        let mut alone = Vec::new();
        head("al").encode(&mut alone);
        let first = FirstRow::decode(&key(0), &alone).unwrap();
        assert_eq!((first.index, first.head, first.has_record), (LogIndex(9), head("al"), false));
        let first = FirstRow::decode(&key(1), &row(&head("al"))).unwrap();
        assert_eq!((first.index, first.head, first.has_record), (LogIndex(9), head("al"), true));
        for (position, row) in [(1, record()), (2, row(&head("al"))), (0, record()), (1, vec![9])] {
            assert!(FirstRow::decode(&key(position), &row).is_err(), "{position}: {row:?}");
        }
    }
}
