//! ULIDs: 48 bits of milliseconds and 80 random bits, written in 26 characters that sort like the
//! numbers.
//!
//! Written here instead of using the crate `ulid` (1.2): its parser accepts texts of more than 128
//! bits, so the check of the first character would be needed anyway, and there is little more code
//! than that. The texts are stored and compared: they must never change.

/// Digits of Crockford's base 32, by value.
const DIGITS: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
/// Characters of a ULID. With 5 bits each they hold 130 bits, two more than a ULID has.
const LEN: u32 = 26;

/// The text of a ULID: 26 characters in upper case.
pub fn ulid_text(ulid: u128) -> String {
    (0..LEN).rev().map(|digit| DIGITS[(ulid >> (5 * digit)) as usize & 31] as char).collect()
}

/// Whether `text` is a ULID: 26 digits in upper or lower case, with a value of at most 128 bits.
pub fn is_ulid(text: &str) -> bool {
    let digit = |byte: u8| DIGITS.contains(&byte.to_ascii_uppercase());
    text.len() == LEN as usize && text.bytes().all(digit) && text.as_bytes()[0] <= b'7'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ulids_are_written_as_the_specification_has_them() {
        assert_eq!(ulid_text(0), "00000000000000000000000000");
        assert_eq!(ulid_text(u128::MAX), "7ZZZZZZZZZZZZZZZZZZZZZZZZZ");
        // From the specification of ULIDs.
        assert_eq!(ulid_text(0x0156_3E3A_B5D3_D676_4C61_EFB9_9302_BD5B), "01ARZ3NDEKTSV4RRFFQ69G5FAV");
    }

    #[test]
    fn what_is_no_ulid_is_recognised() {
        for (text, wanted) in [
            ("01ARZ3NDEKTSV4RRFFQ69G5FAV", true),
            ("01arz3ndektsv4rrffq69g5fav", true),
            ("7ZZZZZZZZZZZZZZZZZZZZZZZZZ", true),
            ("8ZZZZZZZZZZZZZZZZZZZZZZZZZ", false),
            ("01ARZ3NDEKTSV4RRFFQ69G5FA", false),
            ("01ARZ3NDEKTSV4RRFFQ69G5FAVX", false),
            ("01ARZ3NDEKTSV4RRFFQ69G5FAU", false),
            ("01ARZ3NDEKTSV4RRFFQ69G5FAI", false),
            ("", false),
            ("ä1ARZ3NDEKTSV4RRFFQ69G5FA", false),
        ] {
            assert_eq!(is_ulid(text), wanted, "{text}");
        }
    }
}
