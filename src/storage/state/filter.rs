//! The keys that have any version, approximately and in little memory: a put of a new key does not
//! read the disk.
//!
//! Owns one blocked Bloom filter. Invariant: the answer "never written" is always right; the answer
//! "perhaps" may be given for a key that was never written. A key is added before the commit that
//! writes it becomes visible, and never removed: a key that was reclaimed only costs a read.
//!
//! Written here instead of taken from a crate: readers and the writer share it without a lock, a
//! lookup touches one cache line, and the hash is that of the state hash. Nothing on disk depends
//! on it.

use std::sync::atomic::{AtomicU64, Ordering};

use super::hash::WordHasher;
use super::keys::Table;

/// Words of 64 bits in a block; a block is one cache line.
const BLOCK_WORDS: usize = 8;
/// Blocks: 4 MiB in all. False positives: 1 % at three million keys, 10 % at seven million.
const BLOCKS: usize = 1 << 16;
/// Bits that a key sets in its block.
const PROBES: u32 = 6;
/// Versions above which there is no filter: one of this size would be no use, and filling it would
/// make opening slow.
pub(super) const ENTRIES_MAX: u64 = 8_000_000;

/// A filter over all keys of all tables.
pub(super) struct KeyFilter {
    words: Box<[AtomicU64]>,
}

impl KeyFilter {
    pub(super) fn new() -> Self {
        Self { words: (0..BLOCKS * BLOCK_WORDS).map(|_| AtomicU64::new(0)).collect() }
    }

    pub(super) fn add(&self, table: Table, key: &[u8]) {
        let (block, mut rest) = Self::locate(table, key);
        for _ in 0..PROBES {
            let (word, bit) = Self::probe(&mut rest);
            // A load is far cheaper than an atomic write, and most keys are written more than once.
            if self.words[block + word].load(Ordering::Relaxed) & bit == 0 {
                self.words[block + word].fetch_or(bit, Ordering::Relaxed);
            }
        }
    }

    /// Whether `key` may have been written; false is certain.
    pub(super) fn may_hold(&self, table: Table, key: &[u8]) -> bool {
        let (block, mut rest) = Self::locate(table, key);
        (0..PROBES).all(|_| {
            let (word, bit) = Self::probe(&mut rest);
            self.words[block + word].load(Ordering::Relaxed) & bit != 0
        })
    }

    /// The first word of the key's block, and hash bits that choose within it.
    fn locate(table: Table, key: &[u8]) -> (usize, u64) {
        let mut mixer = WordHasher::default();
        mixer.number(table as u64);
        mixer.bytes(key);
        let hash = mixer.finish();
        // The block takes 16 bits and the probes 54: one more multiplication yields the bits of the
        // probes.
        ((hash as usize % BLOCKS) * BLOCK_WORDS, hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 10)
    }

    /// Takes nine bits: a word of the block and a bit of the word.
    fn probe(rest: &mut u64) -> (usize, u64) {
        let bit = *rest;
        *rest >>= 9;
        ((bit & 7) as usize, 1 << (bit >> 3 & 63))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_added_is_found_and_little_else() {
        let filter = KeyFilter::new();
        let key = |number: u32| format!("/registry/pods/{number}");
        for number in 0..500_000 {
            filter.add(Table::Kv, key(number).as_bytes());
        }
        assert!((0..500_000).all(|number| filter.may_hold(Table::Kv, key(number).as_bytes())));
        let mistaken = (500_000..600_000).filter(|&number| filter.may_hold(Table::Kv, key(number).as_bytes())).count();
        assert!(mistaken < 100, "{mistaken} of 100 000");
    }
}
