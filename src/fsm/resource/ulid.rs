//! The ULIDs of one command: the proposer chose the first, and the others follow it.

/// Crockford's base 32.
const DIGITS: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
/// Characters of a ULID: 26 times five bits are two more than 128.
const LEN: u32 = 26;

/// Makes ULIDs.
pub(super) struct Ulids(u128);

impl Ulids {
    pub(super) fn new(first: u128) -> Self {
        Self(first)
    }

    pub(super) fn next(&mut self) -> String {
        let text = text(self.0);
        self.0 = self.0.wrapping_add(1);
        text
    }
}

/// A ULID as it is written.
fn text(ulid: u128) -> String {
    (0..LEN).rev().map(|place| DIGITS[(ulid >> (5 * place)) as usize & 31] as char).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ulids_are_written_as_the_specification_has_them() {
        assert_eq!(text(0), "00000000000000000000000000");
        assert_eq!(text(u128::MAX), "7ZZZZZZZZZZZZZZZZZZZZZZZZZ");
        // From the specification of ULIDs.
        assert_eq!(text(0x0156_3E3A_B5D3_D676_4C61_EFB9_9302_BD5B), "01ARZ3NDEKTSV4RRFFQ69G5FAV".to_owned());
        let mut ulids = Ulids::new(31);
        assert_eq!([ulids.next(), ulids.next()], ["0000000000000000000000000Z", "00000000000000000000000010"]);
    }
}
