//! The bytes of a segment: the header at its start, and a frame for each write.
//!
//! Owns both formats. Knows nothing of files. Checksums cover the salt of the segment, a random
//! number: what a file held in an earlier life, or what a client writes as a value, is never taken
//! for a frame. The head has a checksum of its own, so that a search for frames reads only whole
//! ones. A header is shorter than a sector, which a disk writes as a whole or not at all. Golden
//! bytes pin both.
//!
//! | part | bytes |
//! |---|---|
//! | frame | magic `HWLB`, CRC-32C of the salt and of all that follows, length of the body, number of the write, CRC-32C of the salt, that length and that number, body |
//! | header | magic `HWLOGSEG`, CRC-32C of all that follows up to byte 512, length of the body, number of the segment, salt, body, zeros |
//! | body | records: kind (one byte), length, content |
//!
//! Numbers are little-endian: checksums and lengths of 4 bytes, others of 8.

use crate::log::LogRecord;
use crate::log::batch::{BatchChange, LogBatch, Meta};
use crate::log::record::{decode_entry_body, encode_entry_body};
use headwater_proto::codec::CodecError;
use headwater_proto::codec::raft::{self, LogId, LogTip, RecordHeader, Vote};

/// Length of the header of a segment; the first frame follows it.
pub(super) const HEADER_BYTES: usize = 512;
/// Length of a frame before its body.
pub(super) const FRAME_HEAD_BYTES: usize = 24;
/// The first bytes of every frame.
pub(super) const FRAME_MAGIC: [u8; 4] = *b"HWLB";

const HEADER_MAGIC: [u8; 8] = *b"HWLOGSEG";
/// Position of the body in a header.
const HEADER_BODY: usize = 32;
/// Position of what the checksum of a header covers.
const HEADER_CHECKED: usize = 12;
/// Position of what the checksum of a frame covers, besides the salt.
const FRAME_CHECKED: usize = 8;

const ENTRY: u8 = 1;
const TRUNCATE: u8 = 2;
const PURGE: u8 = 3;
const VOTE: u8 = 4;
const COMMITTED: u8 = 5;
const NOT_COMMITTED: u8 = 6;
const TIP: u8 = 7;
const STORE: u8 = 8;

/// What the header of a segment says about the log before its first frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) salt: u64,
    pub(super) store_id: u64,
    pub(super) meta: Meta,
    pub(super) tip: LogTip,
}

/// A frame whose checksum is right.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame<'a> {
    /// Number of the write.
    pub(super) number: u64,
    body: &'a [u8],
}

/// One record of a body.
pub(super) enum Record<'a> {
    /// The encoded entry, for [`decode_entry_body`].
    Entry(&'a [u8]),
    /// Removes every entry from this index on.
    Truncate(u64),
    Purge(LogId),
    Vote(Vote),
    Committed(Option<LogId>),
    Tip(LogTip),
    Store(u64),
}

/// Appends the frame of `batch` to `out`.
pub(super) fn encode(batch: &LogBatch<'_>, salt: u64, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&FRAME_MAGIC);
    out.extend_from_slice(&[0; FRAME_HEAD_BYTES - FRAME_MAGIC.len()]);
    for change in &batch.changes {
        match change {
            BatchChange::Append(records) => {
                for entry in *records {
                    record(out, ENTRY, |out| encode_entry_body(entry, out));
                }
            }
            BatchChange::Truncate(from) => record(out, TRUNCATE, |out| out.extend_from_slice(&from.to_le_bytes())),
            BatchChange::Purge(id) => record(out, PURGE, |out| raft::encode_into(id, out)),
        }
    }
    if let Some(vote) = &batch.vote {
        record(out, VOTE, |out| raft::encode_into(vote, out));
    }
    match &batch.committed {
        Some(Some(id)) => record(out, COMMITTED, |out| raft::encode_into(id, out)),
        Some(None) => record(out, NOT_COMMITTED, |_| {}),
        None => {}
    }
    record(out, TIP, |out| raft::encode_into(&batch.tip, out));
    let frame = &mut out[start..];
    let body = u32::try_from(frame.len() - FRAME_HEAD_BYTES).expect("invariant: a write is far below 4 GiB");
    frame[8..12].copy_from_slice(&body.to_le_bytes());
    frame[12..20].copy_from_slice(&batch.tip.batch.to_le_bytes());
    let head = salted_crc(&frame[8..20], salt);
    frame[20..24].copy_from_slice(&head.to_le_bytes());
    let crc = frame_crc(frame, salt);
    frame[4..8].copy_from_slice(&crc.to_le_bytes());
}

/// Length of the frame with this head, bytes. `None` if it is not the head of a frame.
pub(super) fn frame_bytes(head: &[u8; FRAME_HEAD_BYTES], salt: u64) -> Option<usize> {
    let length = u32::from_le_bytes([head[8], head[9], head[10], head[11]]);
    let is_head = head[..4] == FRAME_MAGIC && head[20..24] == salted_crc(&head[8..20], salt).to_le_bytes();
    is_head.then_some(FRAME_HEAD_BYTES + length as usize)
}

/// The frame in `bytes`, all of which it has. `None` if the checksum is wrong.
pub(super) fn parse(bytes: &[u8], salt: u64) -> Option<Frame<'_>> {
    let (head, body) = bytes.split_first_chunk::<FRAME_HEAD_BYTES>()?;
    if frame_bytes(head, salt)? != bytes.len() || head[4..8] != frame_crc(bytes, salt).to_le_bytes() {
        return None;
    }
    let mut number = [0; 8];
    number.copy_from_slice(&head[12..20]);
    Some(Frame { number: u64::from_le_bytes(number), body })
}

impl<'a> Frame<'a> {
    /// The records of the frame, in order.
    pub(super) fn records(&self) -> Records<'a> {
        Records { rest: self.body }
    }

    /// The entries of `from..end` that the frame holds after all of its changes.
    pub(super) fn entries(&self, from: u64, end: u64) -> Result<Vec<LogRecord>, String> {
        let mut found: Vec<LogRecord> = Vec::new();
        for record in self.records() {
            match record? {
                Record::Entry(bytes) => {
                    let malformed = |error: CodecError| error.to_string();
                    let (header, _) = raft::decode_prefix::<RecordHeader>(bytes).map_err(malformed)?;
                    if (from..end).contains(&header.index.get()) {
                        found.push(decode_entry_body(bytes).map_err(malformed)?);
                    }
                }
                Record::Truncate(first) => while found.pop_if(|last| last.index.get() >= first).is_some() {},
                _ => {}
            }
        }
        Ok(found)
    }
}

/// The header of the segment `number`.
pub(super) fn encode_header(number: u64, header: &Header) -> [u8; HEADER_BYTES] {
    let mut body = Vec::new();
    record(&mut body, STORE, |out| out.extend_from_slice(&header.store_id.to_le_bytes()));
    if let Some(vote) = &header.meta.vote {
        record(&mut body, VOTE, |out| raft::encode_into(vote, out));
    }
    if let Some(id) = &header.meta.purged {
        record(&mut body, PURGE, |out| raft::encode_into(id, out));
    }
    if let Some(id) = &header.meta.committed {
        record(&mut body, COMMITTED, |out| raft::encode_into(id, out));
    }
    record(&mut body, TIP, |out| raft::encode_into(&header.tip, out));
    let mut out = [0; HEADER_BYTES];
    out[..8].copy_from_slice(&HEADER_MAGIC);
    out[12..16].copy_from_slice(&u32::try_from(body.len()).expect("invariant: short").to_le_bytes());
    out[16..24].copy_from_slice(&number.to_le_bytes());
    out[24..32].copy_from_slice(&header.salt.to_le_bytes());
    out[HEADER_BODY..HEADER_BODY + body.len()].copy_from_slice(&body);
    let crc = crc32c::crc32c(&out[HEADER_CHECKED..]);
    out[8..12].copy_from_slice(&crc.to_le_bytes());
    out
}

/// Why a file has no header of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NoHeader {
    /// It was never written: it is empty, or has the header of its earlier life.
    Unwritten,
    /// It is damaged, in this way.
    Damaged(String),
}

/// The header in `bytes`, which must be that of segment `number`.
///
/// # Errors
///
/// [`NoHeader`].
pub(super) fn decode_header(number: u64, bytes: &[u8; HEADER_BYTES]) -> Result<Header, NoHeader> {
    if bytes.iter().all(|byte| *byte == 0) {
        return Err(NoHeader::Unwritten);
    }
    let damaged = |detail: &str| NoHeader::Damaged(detail.to_owned());
    if bytes[..8] != HEADER_MAGIC {
        return Err(damaged("it does not begin with the header of a segment"));
    }
    if bytes[8..12] != crc32c::crc32c(&bytes[HEADER_CHECKED..]).to_le_bytes() {
        return Err(damaged("the checksum of its header is wrong"));
    }
    match u64_at(bytes, 16) {
        of if of < number => return Err(NoHeader::Unwritten),
        of if of > number => return Err(damaged(&format!("it has the header of segment {of:016x}"))),
        _ => {}
    }
    let length = u32::from_le_bytes([bytes[12], bytes[13], bytes[14], bytes[15]]) as usize;
    let body = bytes.get(HEADER_BODY..HEADER_BODY + length).ok_or_else(|| damaged("its header is too long"))?;
    let (mut store, mut tip, mut meta) = (None, None, Meta::default());
    for record in (Records { rest: body }) {
        match record.map_err(NoHeader::Damaged)? {
            Record::Store(id) => store = Some(id),
            Record::Vote(vote) => meta.vote = Some(vote),
            Record::Purge(id) => meta.purged = Some(id),
            Record::Committed(id) => meta.committed = id,
            Record::Tip(found) => tip = Some(found),
            Record::Entry(_) | Record::Truncate(_) => return Err(damaged("its header holds entries")),
        }
    }
    let (Some(store_id), Some(tip)) = (store, tip) else {
        return Err(damaged("its header lacks the store or the tip"));
    };
    Ok(Header { salt: u64_at(bytes, 24), store_id, meta, tip })
}

/// The records of a body, in order.
pub(super) struct Records<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, String>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let parsed = self.parse();
        if parsed.is_err() {
            self.rest = &[];
        }
        Some(parsed)
    }
}

impl<'a> Records<'a> {
    fn parse(&mut self) -> Result<Record<'a>, String> {
        let too_short = || "a record is cut off".to_owned();
        let (&[kind, a, b, c, d], rest) = self.rest.split_first_chunk().ok_or_else(too_short)?;
        let length = u32::from_le_bytes([a, b, c, d]) as usize;
        let (content, rest) = rest.split_at_checked(length).ok_or_else(too_short)?;
        self.rest = rest;
        let number = || Ok::<_, String>(u64::from_le_bytes(content.try_into().map_err(|_| too_short())?));
        let malformed = |error: CodecError| error.to_string();
        Ok(match kind {
            ENTRY => Record::Entry(content),
            TRUNCATE => Record::Truncate(number()?),
            PURGE => Record::Purge(raft::decode(content).map_err(malformed)?),
            VOTE => Record::Vote(raft::decode(content).map_err(malformed)?),
            COMMITTED => Record::Committed(Some(raft::decode(content).map_err(malformed)?)),
            NOT_COMMITTED => Record::Committed(None),
            TIP => Record::Tip(raft::decode(content).map_err(malformed)?),
            STORE => Record::Store(number()?),
            other => return Err(format!("a record is of the kind {other}, which this version does not know")),
        })
    }
}

fn record(out: &mut Vec<u8>, kind: u8, content: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[kind, 0, 0, 0, 0]);
    content(out);
    let length = u32::try_from(out.len() - start - 5).expect("invariant: a record is far below 4 GiB");
    out[start + 1..start + 5].copy_from_slice(&length.to_le_bytes());
}

fn frame_crc(frame: &[u8], salt: u64) -> u32 {
    salted_crc(&frame[FRAME_CHECKED..], salt)
}

fn salted_crc(bytes: &[u8], salt: u64) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&salt.to_le_bytes()), bytes)
}

fn u64_at(bytes: &[u8; HEADER_BYTES], at: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(number)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;

    use super::*;
    use headwater_proto::codec::raft::RecordKind;
    use headwater_types::{LogIndex, NodeId, Term};

    const SALT: u64 = 0x0102_0304_0506_0708;

    fn id(term: u64, index: u64) -> LogId {
        LogId { term: Term(term), index: LogIndex(index) }
    }

    fn entry(term: u64, index: u64) -> LogRecord {
        let payload = Bytes::from_static(b"abc");
        LogRecord { term: Term(term), index: LogIndex(index), kind: RecordKind::Normal, payload }
    }

    fn encoded(batch: &LogBatch<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        encode(batch, SALT, &mut out);
        out
    }

    fn vote() -> Vote {
        Vote { term: Term(2), node_id: NodeId(1), committed: true }
    }

    /// These bytes are on disks: a change here is a new format, not an edit.
    #[test]
    fn golden_bytes_of_a_frame() {
        let appended = [entry(3, 9)];
        let changes = vec![BatchChange::Truncate(9), BatchChange::Append(&appended), BatchChange::Purge(id(3, 4))];
        let tip = LogTip { batch: 258, first: LogIndex(5), last: Some(id(3, 9)) };
        let frame = encoded(&LogBatch { changes, vote: Some(vote()), committed: Some(Some(id(3, 8))), tip });
        let wanted: Vec<u8> = [
            &b"HWLB"[..],
            &[0; 4],
            &[63, 0, 0, 0],
            &[2, 1, 0, 0, 0, 0, 0, 0],
            &[0, 0, 0, 0],
            &[2, 8, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0],
            &[1, 7, 0, 0, 0, 1, 3, 9, 1, b'a', b'b', b'c'],
            &[3, 3, 0, 0, 0, 1, 3, 4],
            &[4, 4, 0, 0, 0, 1, 2, 1, 1],
            &[5, 3, 0, 0, 0, 1, 3, 8],
            &[7, 8, 0, 0, 0, 1, 251, 2, 1, 5, 1, 3, 9],
        ]
        .concat();
        assert_eq!((&frame[..4], &frame[8..20], &frame[24..]), (&wanted[..4], &wanted[8..20], &wanted[24..]));
        assert_eq!((&frame[4..8], &frame[20..24]), (&[180, 57, 55, 159][..], &[250, 75, 50, 27][..]));
    }

    #[test]
    fn golden_bytes_of_a_header() {
        let meta = Meta { vote: Some(vote()), committed: Some(id(3, 8)), purged: Some(id(3, 4)) };
        let tip = LogTip { batch: 7, first: LogIndex(5), last: Some(id(3, 9)) };
        let header = Header { salt: SALT, store_id: 77, meta, tip };
        let bytes = encode_header(3, &header);
        let wanted: Vec<u8> = [
            &b"HWLOGSEG"[..],
            &[0; 4],
            &[49, 0, 0, 0],
            &[3, 0, 0, 0, 0, 0, 0, 0],
            &[8, 7, 6, 5, 4, 3, 2, 1],
            &[8, 8, 0, 0, 0, 77, 0, 0, 0, 0, 0, 0, 0],
            &[4, 4, 0, 0, 0, 1, 2, 1, 1],
            &[3, 3, 0, 0, 0, 1, 3, 4],
            &[5, 3, 0, 0, 0, 1, 3, 8],
            &[7, 6, 0, 0, 0, 1, 7, 5, 1, 3, 9],
        ]
        .concat();
        assert_eq!((&bytes[..8], &bytes[12..wanted.len()]), (&wanted[..8], &wanted[12..]));
        assert!(bytes[wanted.len()..].iter().all(|byte| *byte == 0));
        assert_eq!(bytes[8..12], [182, 99, 186, 45]);
        assert_eq!(decode_header(3, &bytes), Ok(header));
        assert_eq!(decode_header(4, &bytes), Err(NoHeader::Unwritten), "of an earlier life of the file");
        assert!(matches!(decode_header(2, &bytes), Err(NoHeader::Damaged(_))));
        assert_eq!(decode_header(3, &[0; HEADER_BYTES]), Err(NoHeader::Unwritten));
    }

    #[test]
    fn every_single_bit_flip_is_noticed() {
        let appended = [entry(3, 9), entry(3, 10)];
        let tip = LogTip { batch: 1, first: LogIndex(9), last: Some(id(3, 10)) };
        let batch = LogBatch { changes: vec![BatchChange::Append(&appended)], vote: None, committed: None, tip };
        let mut frame = encoded(&batch);
        assert!(parse(&frame, SALT).is_some() && parse(&frame, SALT + 1).is_none(), "the salt counts");
        for bit in 0..frame.len() * 8 {
            frame[bit / 8] ^= 1 << (bit % 8);
            assert!(parse(&frame, SALT).is_none(), "bit {bit}");
            frame[bit / 8] ^= 1 << (bit % 8);
        }
        let meta = Meta::default();
        let mut header = encode_header(1, &Header { salt: SALT, store_id: 1, meta, tip });
        for bit in 0..header.len() * 8 {
            header[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(decode_header(1, &header), Err(NoHeader::Damaged(_))), "bit {bit}");
            header[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn entries_of_a_frame_are_those_after_all_of_its_changes() {
        let (early, late) = ([entry(1, 5), entry(1, 6), entry(1, 7)], [entry(2, 6), entry(2, 7)]);
        let changes = vec![BatchChange::Append(&early), BatchChange::Truncate(6), BatchChange::Append(&late)];
        let tip = LogTip { batch: 1, first: LogIndex(5), last: Some(id(2, 7)) };
        let bytes = encoded(&LogBatch { changes, vote: None, committed: Some(None), tip });
        let frame = parse(&bytes, SALT).unwrap();
        let of = |from, end| -> Vec<LogId> { frame.entries(from, end).unwrap().iter().map(LogRecord::id).collect() };
        assert_eq!(of(0, 99), [id(1, 5), id(2, 6), id(2, 7)]);
        assert_eq!(of(6, 7), [id(2, 6)]);
        assert_eq!(of(8, 99), []);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(
            body in prop::collection::vec(any::<u8>(), 0..200),
            number: u64,
            front in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            prop_assert!(parse(&front, SALT).is_none());
            // With a right checksum, so that the records are read.
            let mut frame = [&FRAME_MAGIC[..], &[0; 20], &body].concat();
            frame[8..12].copy_from_slice(&(body.len() as u32).to_le_bytes());
            let crc = salted_crc(&frame[8..20], SALT);
            frame[20..24].copy_from_slice(&crc.to_le_bytes());
            let crc = frame_crc(&frame, SALT);
            frame[4..8].copy_from_slice(&crc.to_le_bytes());
            drop(parse(&frame, SALT).unwrap().entries(0, u64::MAX));
            let mut header = [0; HEADER_BYTES];
            header[..8].copy_from_slice(&HEADER_MAGIC);
            header[12..16].copy_from_slice(&(body.len() as u32).to_le_bytes());
            header[16..24].copy_from_slice(&number.to_le_bytes());
            header[HEADER_BODY..HEADER_BODY + body.len()].copy_from_slice(&body);
            let crc = crc32c::crc32c(&header[HEADER_CHECKED..]);
            header[8..12].copy_from_slice(&crc.to_le_bytes());
            drop(decode_header(number, &header));
        }
    }
}
