//! The ULIDs of one command: the proposer chose the first, and the others follow it.

use headwater_types::resource::ulid_text;

/// Makes the ULIDs of one command.
pub(super) struct UlidGenerator(u128);

impl UlidGenerator {
    pub(super) fn new(first: u128) -> Self {
        Self(first)
    }

    pub(super) fn next(&mut self) -> String {
        let text = ulid_text(self.0);
        self.0 = self.0.wrapping_add(1);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ulids_follow_each_other() {
        let mut ulids = UlidGenerator::new(31);
        assert_eq!([ulids.next(), ulids.next()], ["0000000000000000000000000Z", "00000000000000000000000010"]);
    }
}
