//! Splits the body of a streaming request into its messages: JSON objects, one after the other,
//! with or without space between them. A message is complete as soon as its closing bracket is
//! received.

use bytes::{Buf, Bytes, BytesMut};

/// Received bytes that are not split off yet.
#[derive(Debug, Default)]
pub(super) struct Splitter {
    buffer: BytesMut,
    /// Number of scanned bytes of `buffer`.
    seen: usize,
    /// Number of open brackets at `seen`.
    depth: usize,
    in_string: bool,
    /// Whether the byte at `seen` follows a backslash.
    is_escaped: bool,
}

impl Splitter {
    /// Takes the next received bytes.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Length of the buffer, bytes: after [`next`](Self::next) has returned `None`, that of the
    /// incomplete message.
    pub(super) fn len(&self) -> usize {
        self.buffer.len()
    }

    /// Whether the buffer is empty: after [`next`](Self::next) has returned `None`, no message has
    /// begun.
    pub(super) fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// The received bytes of the incomplete message, after [`next`](Self::next) has returned
    /// `None`; empty if no message has begun.
    pub(super) fn rest(&self) -> &[u8] {
        &self.buffer
    }

    /// The next complete message; `None` if more bytes are needed. A buffer that does not begin
    /// with `{` is returned whole; the JSON reader then refuses it.
    pub(super) fn next(&mut self) -> Option<Bytes> {
        if self.seen == 0 {
            let space = self.buffer.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
            self.buffer.advance(space);
            if *self.buffer.first()? != b'{' {
                return Some(self.buffer.split().freeze());
            }
        }
        while let Some(byte) = self.buffer.get(self.seen).copied() {
            self.seen += 1;
            match byte {
                _ if self.is_escaped => self.is_escaped = false,
                b'\\' if self.in_string => self.is_escaped = true,
                b'"' => self.in_string = !self.in_string,
                _ if self.in_string => {}
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => {
                    self.depth -= 1;
                    if self.depth == 0 {
                        return Some(self.buffer.split_to(std::mem::take(&mut self.seen)).freeze());
                    }
                }
                _ => {}
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn split(chunks: &[&[u8]]) -> (Vec<Bytes>, usize) {
        let mut splitter = Splitter::default();
        let mut found = Vec::new();
        for chunk in chunks {
            splitter.push(chunk);
            found.extend(std::iter::from_fn(|| splitter.next()));
        }
        (found, splitter.len())
    }

    #[test]
    fn objects_are_cut_at_their_last_bracket() {
        let text = br#" {"a":{"b":[1,{"c":"}\"{\\"}]}}{} {"d":"]"}
            {"e":"#;
        let wanted = [r#"{"a":{"b":[1,{"c":"}\"{\\"}]}}"#, "{}", r#"{"d":"]"}"#];
        assert_eq!(split(&[text]).0, wanted);
        let bytes: Vec<&[u8]> = text.chunks(1).collect();
        let (found, rest) = split(&bytes);
        assert_eq!(found, wanted);
        assert_eq!(rest, r#"{"e":"#.len());
    }

    #[test]
    fn what_is_no_object_is_cut_off_at_once() {
        assert_eq!(split(&[b"x{}"]).0, ["x{}"]);
        assert_eq!(split(&[b"{}", b" ]"]).0, ["{}", "]"]);
        assert_eq!(split(&[b"", b" \n"]), (Vec::new(), 0));
    }

    proptest! {
        #[test]
        fn every_sequence_of_objects_comes_apart_again(
            keys in prop::collection::vec(".*", 0..8),
            at in any::<prop::sample::Index>(),
        ) {
            let values: Vec<String> =
                keys.iter().map(|key| serde_json::json!({key: [key, {"n": 1}]}).to_string()).collect();
            let text = values.join(" ");
            let (head, tail) = text.as_bytes().split_at(at.index(text.len() + 1));
            let (found, rest) = split(&[head, tail]);
            prop_assert_eq!(found, values);
            prop_assert_eq!(rest, 0);
        }
    }
}
