//! Incoming HTTP/2 frames (RFC 9113 §4.1, §6.2, §6.10): finds header blocks, and replaces those
//! whose `:authority` needs a repair.
//!
//! Bytes that are not HTTP/2, or are malformed, pass unchanged. Only an incomplete frame head and
//! an incomplete header block are held back. A repaired header block is sent as one frame without
//! padding.

use bytes::{BufMut, BytesMut};

use super::hpack::{self, Authority};
use headwater_types::limits::HEADER_BLOCK_BYTES_MAX;

/// The preface of every connection of HTTP/2 (RFC 9113 §3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Bytes of a frame before its payload.
const HEAD_BYTES: usize = 9;
/// Bytes that a priority takes in a frame of headers.
const PRIORITY_BYTES: usize = 5;
/// Kind of a frame: the beginning of a header block.
const HEADERS: u8 = 1;
/// Kind of a frame: a further part of a header block.
const CONTINUATION: u8 = 9;
/// Flag of a frame: it ends its header block.
const END_HEADERS: u8 = 0x4;
/// Flag of a frame: its payload has padding.
const PADDED: u8 = 0x8;
/// Flag of a HEADERS frame: a priority precedes the fragment of the header block.
const PRIORITY: u8 = 0x20;

/// The largest payload that every receiver takes, bytes (RFC 9113 §4.2).
const PAYLOAD_BYTES_MAX: usize = 16 * 1024;
// A repaired value is not compressed: a Huffman code of 5 bits becomes a byte.
const _: () = assert!(HEADER_BLOCK_BYTES_MAX * 8 / 5 + 8 < PAYLOAD_BYTES_MAX, "a repaired block must fit one frame");

/// Parser of the input of one connection: its state, and the bytes that it holds back.
#[derive(Debug, Default)]
pub(super) struct Frames {
    at: ParseState,
    /// The received part of the head of a frame, or of the frames of a block.
    held: Vec<u8>,
}

#[derive(Debug)]
enum ParseState {
    /// Within the preface; the number of its received bytes.
    Preface(usize),
    /// Within the payload of a frame without headers; the number of bytes that are still to come.
    Payload(usize),
    /// The next decision is due when `wanted` bytes are held. The last held frame begins at `last`.
    Frame { last: usize, wanted: usize },
    /// All further bytes pass unchanged.
    Done,
}

impl Default for ParseState {
    fn default() -> Self {
        Self::Preface(0)
    }
}

impl ParseState {
    const NEXT_FRAME: Self = Self::Frame { last: 0, wanted: HEAD_BYTES };
}

/// Bytes that begin with the head of a frame. Its payload may be missing, and further frames may
/// follow.
#[derive(Clone, Copy)]
struct Frame<'a>(&'a [u8]);

impl<'a> Frame<'a> {
    /// Length of the payload, bytes.
    fn length(self) -> usize {
        usize::from(self.0[0]) << 16 | usize::from(self.0[1]) << 8 | usize::from(self.0[2])
    }

    fn kind(self) -> u8 {
        self.0[3]
    }

    fn has(self, flag: u8) -> bool {
        self.0[4] & flag != 0
    }

    /// The bytes that hold the stream's id.
    fn stream(self) -> &'a [u8] {
        &self.0[5..HEAD_BYTES]
    }

    fn payload(self) -> &'a [u8] {
        &self.0[HEAD_BYTES..]
    }

    /// The priority field of a HEADERS frame (may be empty), and its fragment of the header block.
    /// `None` if the frame is malformed.
    fn priority_and_fragment(self) -> Option<(&'a [u8], &'a [u8])> {
        let mut rest = self.payload();
        if self.has(PADDED) {
            let (&padding, padded) = rest.split_first()?;
            rest = padded.get(..padded.len().checked_sub(usize::from(padding))?)?;
        }
        rest.split_at_checked(if self.has(PRIORITY) { PRIORITY_BYTES } else { 0 })
    }
}

impl Frames {
    /// Whether all further bytes pass unchanged, and none is held back.
    pub(super) fn are_done(&self) -> bool {
        matches!(self.at, ParseState::Done)
    }

    /// Lets everything pass unchanged from now on, beginning with the bytes held back.
    pub(super) fn stop(&mut self, out: &mut BytesMut) {
        out.put_slice(&self.held);
        self.held = Vec::new();
        self.at = ParseState::Done;
    }

    /// Takes received bytes, and appends the bytes that may pass to `out`.
    pub(super) fn follow(&mut self, mut input: &[u8], out: &mut BytesMut) {
        while !input.is_empty() {
            match self.at {
                ParseState::Preface(matched) => {
                    let rest = &PREFACE[matched..];
                    let (head, tail) = input.split_at(input.len().min(rest.len()));
                    out.put_slice(head);
                    input = tail;
                    self.at = match rest.strip_prefix(head) {
                        None => ParseState::Done,
                        Some([]) => ParseState::NEXT_FRAME,
                        Some(_) => ParseState::Preface(matched + head.len()),
                    };
                }
                ParseState::Payload(left) => {
                    let (head, tail) = input.split_at(input.len().min(left));
                    out.put_slice(head);
                    input = tail;
                    self.at = if head.len() == left {
                        ParseState::NEXT_FRAME
                    } else {
                        ParseState::Payload(left - head.len())
                    };
                }
                ParseState::Frame { last, wanted } => {
                    let (head, tail) = input.split_at(input.len().min(wanted - self.held.len()));
                    self.held.extend_from_slice(head);
                    input = tail;
                    if self.held.len() == wanted {
                        self.decide(last, out);
                    }
                }
                ParseState::Done => {
                    out.put_slice(input);
                    return;
                }
            }
        }
    }

    /// Decides about the frame at `last` of the held bytes: pass it, hold more bytes, or judge the
    /// block that it ends. Stops the repair if the block is too large or another frame interrupts
    /// it. At least the frame's head is held.
    fn decide(&mut self, last: usize, out: &mut BytesMut) {
        let first = Frame(&self.held);
        let frame = Frame(&self.held[last..]);
        let end = last + HEAD_BYTES + frame.length();
        if last == 0 && frame.kind() != HEADERS {
            let length = frame.length();
            out.put_slice(&self.held);
            self.held.clear();
            self.at = if length == 0 { ParseState::NEXT_FRAME } else { ParseState::Payload(length) };
            return;
        }
        let continues = frame.kind() == CONTINUATION && frame.stream() == first.stream();
        if last != 0 && !continues || end > HEADER_BLOCK_BYTES_MAX {
            return self.stop(out);
        }
        if self.held.len() < end {
            self.at = ParseState::Frame { last, wanted: end };
        } else if !frame.has(END_HEADERS) {
            self.at = ParseState::Frame { last: end, wanted: end + HEAD_BYTES };
        } else {
            self.judge(out);
        }
    }

    /// Passes the complete block: with a repaired `:authority`, or unchanged if it has no literal
    /// `:authority`. If the `:authority` needs no repair or the block is malformed, all further
    /// bytes of the connection pass unchanged.
    fn judge(&mut self, out: &mut BytesMut) {
        let found = self.block().map(|(priority, block)| (priority, hpack::authority(&block)));
        match found {
            Some((_, Authority::Absent)) => out.put_slice(&self.held),
            Some((priority, Authority::Repaired(block))) => {
                let head = Frame(&self.held);
                let length = u32::try_from(priority.len() + block.len()).expect("bounded by the assertion above");
                out.put_slice(&length.to_be_bytes()[1..]);
                out.put_slice(&[HEADERS, head.0[4] & !PADDED | END_HEADERS]);
                out.put_slice(head.stream());
                out.put_slice(priority);
                out.put_slice(&block);
            }
            Some((_, Authority::Kept)) | None => return self.stop(out),
        }
        self.held.clear();
        self.at = ParseState::NEXT_FRAME;
    }

    /// The priority bytes (empty without the flag) and the joined fragments of the block, from the
    /// held frames. `None` if the padding or the priority does not fit its frame.
    fn block(&self) -> Option<(&[u8], Vec<u8>)> {
        let (first, mut rest) = self.held.split_at(HEAD_BYTES + Frame(&self.held).length());
        let (priority, fragment) = Frame(first).priority_and_fragment()?;
        let mut block = fragment.to_vec();
        while !rest.is_empty() {
            let (frame, tail) = rest.split_at(HEAD_BYTES + Frame(rest).length());
            block.extend_from_slice(Frame(frame).payload());
            rest = tail;
        }
        Some((priority, block))
    }
}
