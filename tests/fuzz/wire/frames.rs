//! Frames of HTTP/2, byte by byte.

use bytes::BufMut;

use crate::dice::Dice;

/// The first bytes of a client's connection.
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const PRIORITY: u8 = 2;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PUSH_PROMISE: u8 = 5;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

pub(crate) const END_STREAM: u8 = 0x1;
pub(crate) const ACK: u8 = 0x1;
pub(crate) const END_HEADERS: u8 = 0x4;

/// An encoded frame with the length of `payload`.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(9 + payload.len());
    bytes.extend_from_slice(&(payload.len() as u32).to_be_bytes()[1..]);
    bytes.put_u8(kind);
    bytes.put_u8(flags);
    bytes.put_u32(stream);
    bytes.extend_from_slice(payload);
    bytes
}

/// One setting, for the payload of a SETTINGS frame.
pub(crate) fn setting(id: u16, value: u32) -> Vec<u8> {
    [id.to_be_bytes().as_slice(), &value.to_be_bytes()].concat()
}

/// The header block of a gRPC request to `path`, as HPACK literals that do not use the header
/// table.
pub(crate) fn request(path: &str) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in [
        (":method", "POST"),
        (":scheme", "http"),
        (":authority", "localhost"),
        (":path", path),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ] {
        literal(&mut block, name, value.as_bytes());
    }
    block
}

/// Appends a header to `block` as an HPACK literal that is never indexed.
pub(crate) fn literal(block: &mut Vec<u8>, name: &str, value: &[u8]) {
    block.put_u8(0x10);
    integer(block, name.len());
    block.extend_from_slice(name.as_bytes());
    integer(block, value.len());
    block.extend_from_slice(value);
}

/// Appends a length as an HPACK integer with a prefix of seven bits.
fn integer(block: &mut Vec<u8>, mut length: usize) {
    if length < 127 {
        return block.put_u8(length as u8);
    }
    block.put_u8(127);
    length -= 127;
    while length >= 128 {
        block.put_u8(length as u8 & 0x7F | 0x80);
        length >>= 7;
    }
    block.put_u8(length as u8);
}

/// A frame with random kind, flags, stream and payload.
pub(crate) fn any(dice: &mut Dice) -> Vec<u8> {
    let length = dice.length().min(20_000);
    let payload = dice.bytes(length);
    let stream = *dice.pick(&[0, 1, 2, 3, 5, 7, 0x7FFF_FFFF, 0xFFFF_FFFF]);
    frame(dice.below(12) as u8, dice.below(256) as u8, stream, &payload)
}
