//! A header block in HPACK (RFC 7541): finds a literal `:authority`, and repairs it if it is a URL
//! or a path.
//!
//! Both ends keep a dynamic table of literal fields, bounded by decoded bytes. So the new value has
//! the length of the old one, and every later reference keeps its meaning. This module keeps no
//! table: a referenced entry has been repaired already.

use std::ops::Range;

use http::uri;

/// Index of `:authority` in the static table (RFC 7541 appendix A). Encoders search that table
/// first (Go's `searchTable`); a name taken from the dynamic table would not be recognised, and its
/// field would pass unchanged.
const AUTHORITY_INDEX: usize = 1;

/// The `:authority` of a block.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Authority {
    /// The block has no literal `:authority`: at most a reference to one that the tables hold.
    Absent,
    /// The block must pass unchanged: its `:authority` is neither a URL nor a path, or cannot be
    /// repaired, or the block cannot be read.
    Kept,
    /// The block after the repair: a legal name of the same decoded length replaces the URL or the
    /// path of a Unix socket.
    Repaired(Vec<u8>),
}

/// Finds the first literal `:authority` in a whole block, and repairs it.
pub(super) fn authority(block: &[u8]) -> Authority {
    let mut reader = Reader { block, at: 0 };
    while reader.at < block.len() {
        match reader.field() {
            None => return Authority::Kept,
            Some(None) => {}
            Some(Some((written, value))) => {
                let Some(value) = text(value).as_deref().and_then(repaired) else { return Authority::Kept };
                let mut block = block.to_vec();
                block.splice(written, literal(&value));
                return Authority::Repaired(block);
            }
        }
    }
    Authority::Absent
}

/// A string in its encoded form.
#[derive(Clone, Copy)]
struct Written<'a> {
    huffman: bool,
    bytes: &'a [u8],
}

/// Reads fields; each method returns `None` if the block is malformed.
struct Reader<'a> {
    block: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// Reads a field (RFC 7541 §6). For a literal `:authority`: its value, and the range of the
    /// value with its length prefix. `Some(None)` for any other field.
    #[expect(clippy::option_option, reason = "a broken field and a field of no interest are not the same")]
    fn field(&mut self) -> Option<Option<(Range<usize>, Written<'a>)>> {
        let prefix_bits = match *self.block.get(self.at)? {
            0x80.. => 7,      // a reference to name and value
            0x40..=0x7f => 6, // written out and put into the table
            0x20..=0x3f => 5, // the table's size
            ..=0x1f => 4,     // written out for this once, or never to be put into a table
        };
        let number = self.integer(prefix_bits)?;
        if matches!(prefix_bits, 5 | 7) {
            return Some(None);
        }
        let named = match number {
            0 => text(self.string()?).is_some_and(|name| name == b":authority"),
            index => index == AUTHORITY_INDEX,
        };
        let start = self.at;
        let value = self.string()?;
        Some(named.then_some((start..self.at, value)))
    }

    /// Reads an integer (RFC 7541 §5.1).
    fn integer(&mut self, prefix_bits: u32) -> Option<usize> {
        let full = (1usize << prefix_bits) - 1;
        let mut number = usize::from(self.byte()?) & full;
        if number < full {
            return Some(number);
        }
        // Four bytes are enough for every length and every index that can occur here.
        for shift in [0, 7, 14, 21] {
            let byte = self.byte()?;
            number += usize::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    /// Reads a string (RFC 7541 §5.2).
    fn string(&mut self) -> Option<Written<'a>> {
        let huffman = *self.block.get(self.at)? >= 0x80;
        let length = self.integer(7)?;
        let bytes = self.block.get(self.at..)?.get(..length)?;
        self.at += length;
        Some(Written { huffman, bytes })
    }

    fn byte(&mut self) -> Option<u8> {
        let byte = *self.block.get(self.at)?;
        self.at += 1;
        Some(byte)
    }
}

/// A string with its length, not compressed (RFC 7541 §5.2).
fn literal(value: &[u8]) -> Vec<u8> {
    let mut written = Vec::with_capacity(value.len() + 4);
    match value.len() {
        length @ ..0x7f => written.push(length as u8),
        length => {
            written.push(0x7f);
            let mut rest = length - 0x7f;
            while rest >= 0x80 {
                written.push(rest as u8 | 0x80);
                rest >>= 7;
            }
            written.push(rest as u8);
        }
    }
    written.extend_from_slice(value);
    written
}

/// The name that replaces `value`, an `http` or `https` URL or the path of a Unix socket: legal,
/// and of the same length. `None` for any other value, and for a URL without a host or with a wrong
/// port.
fn repaired(value: &[u8]) -> Option<Vec<u8>> {
    socket_name(value).or_else(|| server_name(value))
}

/// The name for a Unix socket: `value` with a dot for every byte that a name cannot have. A client
/// that has reached the socket has found the server. `None` unless `value` begins with `unix:` or
/// `/`.
fn socket_name(value: &[u8]) -> Option<Vec<u8>> {
    if !value.starts_with(b"unix:") && !value.starts_with(b"/") {
        return None;
    }
    let legal = |byte: &u8| if byte.is_ascii_alphanumeric() || b"-_".contains(byte) { *byte } else { b'.' };
    Some(value.iter().map(legal).collect())
}

/// The `HOST:PORT` of an `http` or `https` URL, with zeros before the port that keep the length. So
/// the name stays that of the same server. A URL without a port gets that of its scheme. `None` if
/// `value` is no such URL.
fn server_name(value: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(value).ok()?;
    let (scheme, rest) = text.split_once("://")?;
    let port_by_default = match scheme {
        "http" => "80",
        "https" => "443",
        _ => return None,
    };
    let name = rest.split(['/', '?', '#']).next()?;
    let parsed: uri::Authority = name.parse().ok()?;
    let (host, port) = match parsed.port() {
        Some(port) => (name.strip_suffix(port.as_str())?.strip_suffix(':')?, port.as_str().to_owned()),
        None => (name.strip_suffix(':').unwrap_or(name), port_by_default.to_owned()),
    };
    let digits = text.len().checked_sub(host.len() + 1)?;
    let repaired = format!("{host}:{port:0>digits$}");
    repaired.parse::<uri::Authority>().is_ok().then_some(repaired.into_bytes())
}

/// The Huffman code of printable ASCII but for the backslash (RFC 7541 appendix B). Codes of one
/// length follow one another: bits, the first code, and the characters in order.
const HUFFMAN: &[(u32, u32, &[u8])] = &[
    (5, 0x0, b"012aceiost"),
    (6, 0x14, b" %-./3456789=A_bdfghlmnpru"),
    (7, 0x5c, b":BCDEFGHIJKLMNOPQRSTUVWYjkqvwxyz"),
    (8, 0xf8, b"&*,;XZ"),
    (10, 0x3f8, b"!\"()?"),
    (11, 0x7fa, b"'+|"),
    (12, 0xffa, b"#>"),
    (13, 0x1ff9, b"$@[]~"),
    (14, 0x3ffc, b"^}"),
    (15, 0x7ffc, b"<`{"),
];

/// The text of a string. `None` if it is malformed, or has a character that `HUFFMAN` lacks; no
/// name or URL can have such a character.
fn text(written: Written<'_>) -> Option<Vec<u8>> {
    if !written.huffman {
        return Some(written.bytes.to_vec());
    }
    let mut text = Vec::with_capacity(written.bytes.len() * 8 / 5);
    let (mut code, mut bits) = (0, 0);
    for bit in written.bytes.iter().flat_map(|byte| (0..8).rev().map(move |shift| u32::from(byte >> shift & 1))) {
        code = code << 1 | bit;
        bits += 1;
        let Some((_, first, characters)) = HUFFMAN.iter().find(|(length, ..)| *length == bits) else {
            if bits > 15 {
                return None;
            }
            continue;
        };
        if let Some(character) = code.checked_sub(*first).and_then(|nth| characters.get(nth as usize)) {
            text.push(*character);
            (code, bits) = (0, 0);
        }
    }
    // The rest is the beginning of the code that ends a string: fewer than eight ones.
    (bits < 8 && code == (1 << bits) - 1).then_some(text)
}
