//! Reads the fields of protobuf messages without generated code: nothing is copied, nothing is
//! allocated.

/// The error for bytes that are no protobuf message, or not the expected one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// Value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content<'a> {
    /// A number (wire type 0).
    Number(u64),
    /// Bytes, a text, or a message (wire type 2).
    Bytes(&'a [u8]),
    /// Four or eight bytes (wire types 5 and 1). They are skipped: nothing reads their value.
    Fixed,
}

impl<'a> Content<'a> {
    #[inline]
    pub(super) fn number(self) -> Option<u64> {
        match self {
            Self::Number(number) => Some(number),
            Self::Bytes(_) | Self::Fixed => None,
        }
    }

    #[inline]
    pub(super) fn bytes(self) -> Option<&'a [u8]> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            Self::Number(_) | Self::Fixed => None,
        }
    }
}

/// Iterator over the fields of a message, in the order of its bytes, each with its number. It ends
/// after an error.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    #[inline]
    pub(super) fn of(message: &'a [u8]) -> Self {
        Self { rest: message }
    }

    /// The bytes after the fields that were read so far; empty after an error.
    #[inline]
    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    #[inline]
    fn varint(&mut self) -> Option<u64> {
        // Most are one byte.
        if let [byte @ ..0x80, rest @ ..] = self.rest {
            self.rest = rest;
            return Some(u64::from(*byte));
        }
        let mut value = 0;
        for (at, byte) in self.rest.iter().enumerate().take(10) {
            value |= u64::from(byte & 0x7f) << (7 * at);
            if *byte < 0x80 {
                self.rest = &self.rest[at + 1..];
                return Some(value);
            }
        }
        None
    }

    #[inline]
    fn take(&mut self, count: u64) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(usize::try_from(count).ok()?)?;
        self.rest = rest;
        Some(taken)
    }

    #[inline]
    fn field(&mut self) -> Option<(u64, Content<'a>)> {
        let key = self.varint()?;
        let content = match key & 7 {
            0 => Content::Number(self.varint()?),
            1 => self.take(8).map(|_| Content::Fixed)?,
            2 => {
                let length = self.varint()?;
                Content::Bytes(self.take(length)?)
            }
            5 => self.take(4).map(|_| Content::Fixed)?,
            _ => return None,
        };
        Some((key >> 3, content))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u64, Content<'a>), Malformed>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_none() {
            self.rest = &[];
        }
        Some(field.ok_or(Malformed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_in_order() {
        let message = [0x08, 0x96, 0x01, 0x12, 2, b'a', b'b', 0x1d, 1, 2, 3, 4, 0x21, 1, 2, 3, 4, 5, 6, 7, 8, 0x28, 0];
        let fields: Vec<_> = Fields::of(&message).map(Result::unwrap).collect();
        let wanted = [
            (1, Content::Number(150)),
            (2, Content::Bytes(b"ab")),
            (3, Content::Fixed),
            (4, Content::Fixed),
            (5, Content::Number(0)),
        ];
        assert_eq!(fields, wanted);
    }

    #[test]
    fn numbers_have_up_to_ten_bytes() {
        for number in [0, 127, 128, 1 << 35, u64::MAX] {
            let mut message = vec![0x08];
            prost::encoding::encode_varint(number, &mut message);
            assert_eq!(Fields::of(&message).next(), Some(Ok((1, Content::Number(number)))));
        }
    }

    #[test]
    fn what_is_cut_off_is_refused_once() {
        for message in [&[0x08][..], &[0x12, 5, 1], &[0x80], &[0x0b], &[0x09, 1], &[0x08, 0xff, 0xff]] {
            let fields: Vec<_> = Fields::of(message).collect();
            assert_eq!(fields, [Err(Malformed)], "{message:?}");
        }
    }
}
