//! The clock of a run. A value carries the time from which the latency of its write counts, so that
//! a reader of the change can compute the latency.

use std::time::Instant;

use bytes::{Bytes, BytesMut};

/// Number of bytes at the beginning of a value that hold the time.
pub(super) const STAMP_BYTES: usize = 8;

/// Counts nanoseconds since [`Clock::start`]. The threads of a run use copies of one clock, so that
/// their times can be compared.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    zero: Instant,
}

impl Clock {
    pub(super) fn start() -> Self {
        Self { zero: Instant::now() }
    }

    /// Nanoseconds from the start of the clock until now.
    pub(super) fn nanos(self) -> u64 {
        self.nanos_at(Instant::now())
    }

    /// A copy of `value` with the time of `at` in its first [`STAMP_BYTES`] bytes. A value with
    /// fewer bytes is returned unchanged.
    pub(super) fn stamped(self, at: Instant, value: &Bytes) -> Bytes {
        if value.len() < STAMP_BYTES {
            return value.clone();
        }
        let mut stamped = BytesMut::from(&value[..]);
        stamped[..STAMP_BYTES].copy_from_slice(&self.nanos_at(at).to_le_bytes());
        stamped.freeze()
    }

    /// The time at the beginning of a value, nanoseconds from the start of the clock. `None` if the
    /// value is too short for one.
    pub(super) fn stamp_of(value: &[u8]) -> Option<u64> {
        value.first_chunk::<STAMP_BYTES>().map(|stamp| u64::from_le_bytes(*stamp))
    }

    /// Nanoseconds from the start of the clock until `at`; 0 if `at` is earlier.
    pub(super) fn nanos_at(self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.zero).as_nanos()).expect("a run ends within 500 years")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_value_carries_its_time() {
        let clock = Clock::start();
        let value = clock.stamped(clock.zero + Duration::from_micros(5), &Bytes::from_static(b"0123456789"));
        assert_eq!((value.len(), &value[STAMP_BYTES..]), (10, &b"89"[..]));
        assert_eq!(Clock::stamp_of(&value), Some(5_000));
        let short = clock.stamped(clock.zero, &Bytes::from_static(b"short"));
        assert_eq!((&short[..], Clock::stamp_of(&short)), (&b"short"[..], None));
    }
}
