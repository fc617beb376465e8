//! Lines of the program's own log (not the Raft log) about messages from outside: of one kind at
//! most one a second, so that hostile input does not fill the disk.
//!
//! Owns the rate. The counters of metrics have every refusal.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Shortest time between two lines.
const INTERVAL: Duration = Duration::from_secs(1);

/// Limits one kind of line to one a second.
#[derive(Debug, Default)]
pub struct LogThrottle {
    /// Time of the last line, and the number of events since.
    state: Mutex<(Option<Instant>, u64)>,
}

impl LogThrottle {
    /// Counts an event. Returns the number of events since the last line, this one included, if a
    /// line is due now; else `None`.
    pub fn note(&self) -> Option<u64> {
        self.note_at(Instant::now())
    }

    fn note_at(&self, now: Instant) -> Option<u64> {
        let (last, events) = &mut *self.state.lock();
        *events += 1;
        if last.is_some_and(|last| now.duration_since(last) < INTERVAL) {
            return None;
        }
        *last = Some(now);
        Some(std::mem::take(events))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_has_one_line_which_counts_the_events_before_it() {
        let throttle = LogThrottle::default();
        let begin = Instant::now();
        assert_eq!(throttle.note_at(begin), Some(1));
        for millis in [0, 1, 500, 999] {
            assert_eq!(throttle.note_at(begin + Duration::from_millis(millis)), None, "{millis}");
        }
        assert_eq!(throttle.note_at(begin + INTERVAL), Some(5));
        assert_eq!(throttle.note_at(begin + 3 * INTERVAL), Some(1));
    }
}
