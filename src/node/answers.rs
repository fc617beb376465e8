//! The account of answers: bytes of answers that their readers have not taken yet.
//!
//! Owns the sum, its bound, and the wait for capacity. The HTTP server charges each part of an
//! answer until it is sent, but for parts below 1 KiB. A read that may be large waits for capacity
//! before it loads values. Invariant: a charge is always released when its bytes are dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use prometheus::{IntGauge, Registry};
use tokio::sync::Notify;

use super::NodeError;
use super::limit_counters::{Limit, LimitCounters};
use headwater_types::limits::{SMALL_ANSWER_BYTES_MAX, UNREAD_ANSWERS_BYTES_MAX, UNREAD_SMALL_ANSWERS_BYTES};

/// Longest wait of a read for capacity, within its deadline: clients that take their answers free
/// it sooner.
const CAPACITY_WAIT_MAX: Duration = Duration::from_secs(3);

/// The account of the charged bytes: those of answers that their readers have not taken, and those
/// reserved for answers to be made. With its bound; one for each node.
#[derive(Debug)]
pub struct Answers {
    used: AtomicUsize,
    /// Notified when bytes are released while a read waits.
    freed: Notify,
    /// Number of reads that wait for capacity.
    waiting: AtomicUsize,
    most: usize,
    shown: IntGauge,
    limit_counters: LimitCounters,
}

impl Answers {
    /// An empty account with the bound [`UNREAD_ANSWERS_BYTES_MAX`].
    pub fn new(limit_counters: LimitCounters) -> Self {
        Self::with_bound(UNREAD_ANSWERS_BYTES_MAX, limit_counters)
    }

    /// An empty account with another bound, bytes.
    pub fn with_bound(most: usize, limit_counters: LimitCounters) -> Self {
        let shown =
            IntGauge::new("headwater_unread_answer_bytes", "Bytes of answers that their readers have not taken yet.");
        Self {
            used: AtomicUsize::new(0),
            freed: Notify::new(),
            waiting: AtomicUsize::new(0),
            most,
            shown: shown.expect("invariant: valid name"),
            limit_counters,
        }
    }

    /// Registers the gauge of the charged bytes, `headwater_unread_answer_bytes`.
    ///
    /// # Errors
    ///
    /// If `registry` already holds it.
    pub fn register(&self, registry: &Registry) -> Result<(), prometheus::Error> {
        registry.register(Box::new(self.shown.clone()))
    }

    /// Bytes that are charged now.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Whether the charged bytes are at least half of the bound: reads may soon be refused.
    pub fn is_scarce(&self) -> bool {
        self.used() >= self.most / 2
    }

    /// Whether an answer of `bytes` may be made. An answer of at most [`SMALL_ANSWER_BYTES_MAX`]
    /// may use a reserve above the bound. An answer of any size may be made while less than half of
    /// the bound is used, so that the bound limits no single answer.
    pub fn has_capacity(&self, bytes: usize) -> bool {
        self.admits(self.used(), bytes)
    }

    fn admits(&self, used: usize, bytes: usize) -> bool {
        let reserve = if bytes <= SMALL_ANSWER_BYTES_MAX { UNREAD_SMALL_ANSWERS_BYTES } else { 0 };
        used < self.most / 2 || used.saturating_add(bytes) <= self.most + reserve
    }

    /// Charges an answer that exists, also beyond the bound.
    pub fn charge(self: &Arc<Self>, bytes: usize) -> Charge {
        let used = self.used.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.show(used);
        Charge { answers: Arc::clone(self), bytes }
    }

    /// Charges an answer that is to be made; `None` where [`has_capacity`](Self::has_capacity) is
    /// false.
    pub fn try_charge(self: &Arc<Self>, bytes: usize) -> Option<Charge> {
        let add = |used| self.admits(used, bytes).then(|| used.saturating_add(bytes));
        let used = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).ok()?;
        self.show(used + bytes);
        Some(Charge { answers: Arc::clone(self), bytes })
    }

    /// Waits until [`has_capacity`](Self::has_capacity) is true for `bytes`, no longer than until
    /// `deadline`, and at most 3 s. Charges nothing.
    ///
    /// # Errors
    ///
    /// [`NodeError::AnswersUnread`] if readers did not free enough in time.
    pub async fn wait_for_capacity(&self, bytes: usize, deadline: Instant) -> Result<(), NodeError> {
        if self.has_capacity(bytes) {
            return Ok(());
        }
        let _waiting = Waiting::new(&self.waiting);
        let available = async {
            loop {
                let freed = self.freed.notified();
                tokio::pin!(freed);
                freed.as_mut().enable();
                if self.has_capacity(bytes) {
                    return;
                }
                freed.await;
            }
        };
        let until = (tokio::time::Instant::now() + CAPACITY_WAIT_MAX).min(deadline.into());
        tokio::time::timeout_at(until, available).await.map_err(|_| self.refuse())
    }

    /// Counts the refusal of an answer, and returns its error.
    pub fn refuse(&self) -> NodeError {
        self.limit_counters.count(Limit::UnreadAnswers);
        NodeError::AnswersUnread
    }

    fn release(&self, bytes: usize) {
        let used = self.used.fetch_sub(bytes, Ordering::AcqRel) - bytes;
        self.show(used);
        if self.waiting.load(Ordering::Acquire) > 0 {
            self.freed.notify_waiters();
        }
    }

    fn show(&self, used: usize) {
        self.shown.set(i64::try_from(used).unwrap_or(i64::MAX));
    }
}

/// Guard that counts one waiting read until it is dropped.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::AcqRel);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The charge of one answer: its bytes count in the account until the charge is dropped.
#[derive(Debug)]
pub struct Charge {
    answers: Arc<Answers>,
    bytes: usize,
}

impl Charge {
    /// Moves `bytes` of this charge, at most all of them, into a charge of its own.
    #[must_use]
    pub fn split(&mut self, bytes: usize) -> Self {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        Self { answers: Arc::clone(&self.answers), bytes }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.answers.release(self.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: usize = SMALL_ANSWER_BYTES_MAX;
    const LARGE: usize = SMALL_ANSWER_BYTES_MAX + 1;

    fn account(most: usize) -> Arc<Answers> {
        Arc::new(Answers::with_bound(most, LimitCounters::default()))
    }

    #[test]
    fn large_answers_stop_at_the_bound_and_small_ones_at_their_reserve() {
        let most = 10 * LARGE;
        let answers = account(most);
        let held: Vec<_> = (0..10).map(|_| answers.try_charge(LARGE).unwrap()).collect();
        assert!(answers.try_charge(LARGE).is_none(), "one past the bound");
        let small: Vec<_> = std::iter::from_fn(|| answers.try_charge(SMALL)).collect();
        assert_eq!(small.len(), UNREAD_SMALL_ANSWERS_BYTES / SMALL);
        drop(small);
        assert!(!answers.has_capacity(LARGE), "still at the bound");
        drop(held);
        assert!(answers.has_capacity(LARGE));
        assert_eq!(answers.used(), 0);
    }

    #[test]
    fn one_answer_may_be_larger_than_the_bound_but_not_two() {
        let answers = account(100 * LARGE);
        let first = answers.try_charge(300 * LARGE).unwrap();
        assert!(answers.try_charge(LARGE).is_none());
        drop(first);
        let _half = answers.charge(50 * LARGE);
        assert!(answers.try_charge(51 * LARGE).is_none());
        assert!(answers.try_charge(50 * LARGE).is_some());
    }

    #[test]
    fn parts_of_a_charge_are_released_one_by_one() {
        let answers = account(1000);
        let mut whole = answers.charge(100);
        let part = whole.split(30);
        assert_eq!(answers.used(), 100);
        drop(part);
        assert_eq!(answers.used(), 70);
        let rest = whole.split(1000);
        drop(whole);
        assert_eq!(answers.used(), 70);
        drop(rest);
        assert_eq!(answers.used(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_waits_for_room_and_is_refused_without_it() {
        let answers = account(2 * LARGE);
        let deadline = Instant::now() + Duration::from_secs(60);
        let held = answers.charge(2 * LARGE);
        assert_eq!(answers.wait_for_capacity(LARGE, deadline).await, Err(NodeError::AnswersUnread));
        assert_eq!(answers.limit_counters.counter(Limit::UnreadAnswers).get(), 1);
        let release = async { drop(held) };
        let (waited, ()) = tokio::join!(biased; answers.wait_for_capacity(LARGE, deadline), release);
        assert_eq!(waited, Ok(()));
    }
}
