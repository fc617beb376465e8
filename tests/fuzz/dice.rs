//! Seeded random choices: an input is made from its dice alone.
//!
//! Invariant: dice of the same seed, target and input number always make the same choices, so that
//! these three replay an input.

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, RngCore, SeedableRng};

/// The random choices of one input.
pub(crate) struct Dice(StdRng);

/// Numbers at limits of types, encodings and protocols, at which code often has defects.
const BOUNDARIES: &[u64] = &[
    0,
    1,
    2,
    3,
    7,
    8,
    16,
    100,
    127,
    128,
    255,
    256,
    1000,
    1023,
    1024,
    65_535,
    65_536,
    (1 << 24) - 1,
    1 << 24,
    (1 << 31) - 1,
    1 << 31,
    (1 << 32) - 1,
    1 << 32,
    1 << 40,
    1 << 53,
    (1 << 62) + 1,
    i64::MAX as u64 - 1,
    i64::MAX as u64,
    1 << 63,
    u64::MAX - 1,
    u64::MAX,
];

impl Dice {
    /// The dice of the input with this number, for this seed and target.
    pub(crate) fn new(seed: u64, target: &str, input: u64) -> Self {
        let of_target = u64::from(crc32c::crc32c(target.as_bytes()));
        Self(StdRng::seed_from_u64(
            seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ of_target << 32 ^ input.wrapping_mul(0xD134_2543_DE82_EF95),
        ))
    }

    /// A number from 0 up to, but not including, `end`; 0 if `end` is 0.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        if end == 0 { 0 } else { self.0.random_range(0..end) }
    }

    /// True with probability 1 / `times`.
    pub(crate) fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        from.choose(&mut self.0).expect("invariant: there is something to choose from")
    }

    /// A random number, mostly one of [`BOUNDARIES`].
    pub(crate) fn number(&mut self) -> u64 {
        match self.below(8) {
            0 => self.0.next_u64(),
            1 => self.below(4096) as u64,
            _ => *self.pick(BOUNDARIES),
        }
    }

    /// A random length: mostly below 40, seldom up to 300,000.
    pub(crate) fn length(&mut self) -> usize {
        match self.below(64) {
            0 => self.below(300_000),
            1..=4 => self.below(5000),
            5..=15 => 0,
            _ => self.below(40),
        }
    }

    pub(crate) fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        if !self.once_in(4) {
            self.0.fill_bytes(&mut bytes);
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dice_of_one_input_fall_alike_and_those_of_another_differ() {
        let throw = |seed, target, input| Dice::new(seed, target, input).bytes(4096);
        let first: Vec<Vec<u8>> = (0..16).map(|input| throw(1, "dns", input)).collect();
        assert_eq!(first, (0..16).map(|input| throw(1, "dns", input)).collect::<Vec<_>>());
        assert_ne!(first, (0..16).map(|input| throw(2, "dns", input)).collect::<Vec<_>>());
        assert_ne!(first, (0..16).map(|input| throw(1, "peer", input)).collect::<Vec<_>>());
    }
}
