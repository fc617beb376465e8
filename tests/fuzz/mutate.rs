//! Random damage to bytes of any format: flips, cuts, repetitions, and numbers at limits.

use crate::dice::Dice;

/// Damages `bytes` in one to four places.
pub(crate) fn bytes(bytes: &mut Vec<u8>, dice: &mut Dice) {
    for _ in 0..=dice.below(4) {
        once(bytes, dice);
    }
}

fn once(bytes: &mut Vec<u8>, dice: &mut Dice) {
    let at = dice.below(bytes.len());
    let end = at + dice.below((bytes.len() - at).min(64) + 1);
    match dice.below(9) {
        _ if bytes.is_empty() => {
            let length = dice.below(64);
            *bytes = dice.bytes(length);
        }
        0..=2 => bytes[at] ^= 1 << dice.below(8),
        3 => bytes[at] = *dice.pick(&[0, 1, 0x7F, 0x80, 0xFE, 0xFF]),
        4 => bytes.truncate(at),
        5 => drop(bytes.drain(at..end)),
        6 => {
            let again = bytes[at..end].to_vec();
            drop(bytes.splice(at..at, again));
        }
        7 => {
            let length = dice.below(32);
            let inserted = dice.bytes(length);
            drop(bytes.splice(at..at, inserted));
        }
        _ => {
            let number = dice.number().to_be_bytes();
            let width = *dice.pick(&[2, 4, 8]);
            for (byte, value) in bytes[at..].iter_mut().zip(&number[8 - width..]) {
                *byte = *value;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearly_every_damage_changes_something_and_none_panics() {
        let mut changed = 0;
        for input in 0..2000 {
            let mut dice = Dice::new(1, "mutate", input);
            let length = dice.below(40);
            let whole = dice.bytes(length);
            let mut damaged = whole.clone();
            bytes(&mut damaged, &mut dice);
            changed += usize::from(damaged != whole);
        }
        assert!(changed > 1700, "{changed} of 2000");
    }
}
