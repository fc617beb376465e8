//! The rate of requests of each client: token buckets (`limits.requests-per-second`,
//! `limits.burst`).
//!
//! A bucket is one number, the time at which it is full again (the generic cell rate algorithm of
//! ATM, ITU-T I.371): the number of tokens follows from it and the clock, and no task refills
//! buckets. A full bucket needs no entry: a full table drops the entries of full buckets.
//! Invariant: at most [`CLIENTS_MAX`] clients have a bucket of their own; further clients share the
//! bucket of [`ClientKey::Unknown`].

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::ClientKey;

/// Most clients with a bucket of their own, count.
const CLIENTS_MAX: usize = 65_536;

/// The setting of the rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateOptions {
    /// Requests of one client a second, above zero.
    pub requests_per_second: u32,
    /// Requests that a client may make at once after a pause, above zero.
    pub burst: u32,
}

/// The buckets of one node.
#[derive(Debug)]
pub(super) struct RequestRate {
    /// Time after which a bucket gets one more token.
    interval: Duration,
    /// Time in which an empty bucket fills.
    fill: Duration,
    clients_max: usize,
    /// The time at which the bucket of each client is full again; not in the future for a full
    /// bucket.
    full_at: Mutex<HashMap<ClientKey, Instant>>,
}

impl RequestRate {
    pub(super) fn new(options: RateOptions) -> Self {
        let interval = Duration::from_secs(1) / options.requests_per_second;
        Self { interval, fill: interval * options.burst, clients_max: CLIENTS_MAX, full_at: Mutex::default() }
    }

    /// Takes a token from the bucket of `client`.
    ///
    /// # Errors
    ///
    /// The bucket is empty; the error is the time until the client's next token.
    pub(super) fn take(&self, client: ClientKey, now: Instant) -> Result<(), Duration> {
        let mut full_at = self.full_at.lock();
        let client = match full_at.len() < self.clients_max || full_at.contains_key(&client) {
            true => client,
            false => {
                full_at.retain(|_, full_at| *full_at > now);
                if full_at.len() < self.clients_max { client } else { ClientKey::Unknown }
            }
        };
        let bucket = full_at.entry(client).or_insert(now);
        let next = (*bucket).max(now) + self.interval;
        let excess = next.saturating_duration_since(now + self.fill);
        if !excess.is_zero() {
            return Err(excess);
        }
        *bucket = next;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GREEDY: ClientKey = ClientKey::Named(0);

    fn rate(requests_per_second: u32, burst: u32) -> RequestRate {
        RequestRate::new(RateOptions { requests_per_second, burst })
    }

    #[test]
    fn a_burst_and_then_the_rate() {
        let (rate, begin) = (rate(10, 5), Instant::now());
        let at = |millis| begin + Duration::from_millis(millis);
        let took = |client, now| (0..20).take_while(|_| rate.take(client, now).is_ok()).count();
        assert_eq!(took(GREEDY, begin), 5);
        assert_eq!(rate.take(GREEDY, begin), Err(Duration::from_millis(100)), "one past the burst");
        assert_eq!(took(ClientKey::Named(1), begin), 5, "another client has a bucket of its own");
        assert_eq!(rate.take(GREEDY, at(99)), Err(Duration::from_millis(1)));
        assert_eq!((took(GREEDY, at(100)), took(GREEDY, at(399))), (1, 2));
        assert_eq!(took(GREEDY, at(60_000)), 5, "a pause gives no more than a burst");
    }

    #[test]
    fn clients_that_have_not_asked_lately_are_forgotten_and_too_many_share() {
        let rate = RequestRate { clients_max: 2, ..rate(10, 1) };
        let begin = Instant::now();
        assert!(rate.take(ClientKey::Named(1), begin).is_ok() && rate.take(ClientKey::Named(2), begin).is_ok());
        assert!(rate.take(ClientKey::Named(3), begin).is_ok());
        assert!(rate.take(ClientKey::Named(4), begin).is_err(), "it shares with the third");
        let later = begin + Duration::from_secs(1);
        assert!(rate.take(ClientKey::Named(4), later).is_ok() && rate.take(ClientKey::Named(5), later).is_ok());
        assert_eq!(rate.full_at.lock().len(), 2);
    }
}
