//! A queue of keys to handle: each is in it at most once, is handled by one worker at a time, and
//! waits longer after each failure.
//!
//! Knows nothing of resources or streams. Invariant: a key that is added while it is being handled
//! is handled again afterwards, so that no change is overlooked.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::hash::Hash;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::Backoff;

/// The queue, shared by producers and workers. Clones are the same queue.
#[derive(Debug)]
pub struct WorkQueue<K> {
    shared: Arc<Shared<K>>,
}

impl<K> Clone for WorkQueue<K> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

#[derive(Debug)]
struct Shared<K> {
    line: Mutex<Line<K>>,
    changed: Notify,
}

impl<K: Clone + Eq + Hash + Ord> WorkQueue<K> {
    /// An empty queue.
    #[must_use]
    pub fn new(backoff: Backoff) -> Self {
        let shared = Shared { line: Mutex::new(Line::new(backoff)), changed: Notify::new() };
        Self { shared: Arc::new(shared) }
    }

    /// Adds a key, to be handled as soon as possible. A key that has failed before does not wait
    /// any longer.
    pub fn add(&self, key: K) {
        self.shared.line.lock().add(key);
        self.shared.changed.notify_waiters();
    }

    /// Adds a key after `wait`. If the key is ready, it stays so; if it is scheduled, the earlier
    /// time holds.
    pub fn add_after(&self, key: K, wait: Duration) {
        self.shared.line.lock().add_at(key, Instant::now() + wait);
        self.shared.changed.notify_waiters();
    }

    /// The next key. The caller must report it by [`done`](Self::done) or [`failed`](Self::failed);
    /// until then no other caller gets it.
    pub async fn next(&self) -> K {
        loop {
            // Before looking: a key that is added in between must wake this up.
            let changed = self.shared.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let due = match self.shared.line.lock().take(Instant::now()) {
                Next::Key(key) => return key,
                Next::At(due) => Some(due),
                Next::Nothing => None,
            };
            match due {
                Some(due) => {
                    tokio::select! {
                        () = changed => {}
                        () = tokio::time::sleep_until(due.into()) => {}
                    }
                }
                None => changed.await,
            }
        }
    }

    /// Records that a key was handled, and resets its count of failures. If it was added meanwhile,
    /// it is ready again.
    pub fn done(&self, key: &K) {
        self.shared.line.lock().done(key);
        self.shared.changed.notify_waiters();
    }

    /// Records that a key could not be handled: the queue yields it again, later with each failure,
    /// at once if it was added again meanwhile. Returns the time until then.
    pub fn failed(&self, key: &K) -> Duration {
        let wait = self.shared.line.lock().failed(key, Instant::now());
        self.shared.changed.notify_waiters();
        wait
    }

    /// Number of keys that are ready or scheduled for later. A key that is being handled is not
    /// counted, unless [`add_after`](Self::add_after) has scheduled it again.
    #[must_use]
    pub fn len(&self) -> usize {
        let line = self.shared.line.lock();
        line.ready.len() + line.times.len()
    }

    /// Whether no key is ready or scheduled for later, as [`len`](Self::len) counts them.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets everything, also keys that are being handled.
    pub fn clear(&self) {
        let mut line = self.shared.line.lock();
        *line = Line::new(line.backoff);
    }
}

/// Result of [`Line::take`].
#[derive(Debug, PartialEq, Eq)]
enum Next<K> {
    /// A key to handle; it is busy from now on.
    Key(K),
    /// No key is ready; the next one is due at this time.
    At(Instant),
    /// No key is ready or scheduled.
    Nothing,
}

/// The state of the queue; the caller passes the time.
#[derive(Debug)]
struct Line<K> {
    backoff: Backoff,
    ready: VecDeque<K>,
    /// The keys in `ready`.
    is_ready: HashSet<K>,
    /// Keys that wait for a time, by that time.
    later: BTreeMap<(Instant, K), ()>,
    /// The time of each key in `later`.
    times: HashMap<K, Instant>,
    /// Keys that are being handled; true if the key was added again meanwhile.
    busy: HashMap<K, bool>,
    /// Consecutive failures of each key that has failed.
    failures: HashMap<K, u32>,
}

impl<K: Clone + Eq + Hash + Ord> Line<K> {
    fn new(backoff: Backoff) -> Self {
        Self {
            backoff,
            ready: VecDeque::new(),
            is_ready: HashSet::new(),
            later: BTreeMap::new(),
            times: HashMap::new(),
            busy: HashMap::new(),
            failures: HashMap::new(),
        }
    }

    fn add(&mut self, key: K) {
        self.cancel(&key);
        match self.busy.get_mut(&key) {
            Some(again) => *again = true,
            None if self.is_ready.insert(key.clone()) => self.ready.push_back(key),
            None => {}
        }
    }

    fn add_at(&mut self, key: K, due: Instant) {
        let comes_anyway = self.is_ready.contains(&key) || self.times.get(&key).is_some_and(|known| *known <= due);
        if !comes_anyway {
            self.cancel(&key);
            self.times.insert(key.clone(), due);
            self.later.insert((due, key), ());
        }
    }

    fn cancel(&mut self, key: &K) {
        if let Some(due) = self.times.remove(key) {
            self.later.remove(&(due, key.clone()));
        }
    }

    fn take(&mut self, now: Instant) -> Next<K> {
        while let Some(((due, key), ())) = self.later.first_key_value() {
            if *due > now {
                break;
            }
            let key = key.clone();
            self.add(key);
        }
        match self.ready.pop_front() {
            Some(key) => {
                self.is_ready.remove(&key);
                self.busy.insert(key.clone(), false);
                Next::Key(key)
            }
            None => self.later.first_key_value().map_or(Next::Nothing, |((due, _), ())| Next::At(*due)),
        }
    }

    fn done(&mut self, key: &K) {
        self.failures.remove(key);
        if self.busy.remove(key) == Some(true) {
            self.add(key.clone());
        }
    }

    fn failed(&mut self, key: &K, now: Instant) -> Duration {
        let failures = self.failures.entry(key.clone()).or_default();
        *failures = failures.saturating_add(1);
        let wait = self.backoff.after(*failures);
        match self.busy.remove(key) {
            // The key was added again since: a failed attempt may succeed now.
            Some(true) => {
                self.add(key.clone());
                Duration::ZERO
            }
            Some(false) | None => {
                self.add_at(key.clone(), now + wait);
                wait
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line() -> (Line<&'static str>, Instant) {
        let backoff = Backoff { first: Duration::from_millis(10), max: Duration::from_millis(35) };
        (Line::new(backoff), Instant::now())
    }

    #[test]
    fn a_key_is_there_once_and_in_order() {
        let (mut line, now) = line();
        for key in ["a", "b", "a", "b", "a"] {
            line.add(key);
        }
        assert_eq!(line.take(now), Next::Key("a"));
        assert_eq!(line.take(now), Next::Key("b"));
        assert_eq!(line.take(now), Next::Nothing);
    }

    #[test]
    fn what_is_worked_on_comes_again_only_afterwards() {
        let (mut line, now) = line();
        line.add("a");
        assert_eq!(line.take(now), Next::Key("a"));
        line.add("a");
        line.add("a");
        assert_eq!(line.take(now), Next::Nothing, "one worker has it");
        line.done(&"a");
        assert_eq!(line.take(now), Next::Key("a"));
        line.done(&"a");
        assert_eq!(line.take(now), Next::Nothing);
    }

    #[test]
    fn what_fails_waits_longer_and_longer() {
        let (mut line, mut now) = line();
        line.add("a");
        for wait in [10, 20, 35, 35] {
            assert_eq!(line.take(now), Next::Key("a"));
            let wait = Duration::from_millis(wait);
            assert_eq!(line.failed(&"a", now), wait);
            assert_eq!(line.take(now), Next::At(now + wait));
            now += wait;
        }
        assert_eq!(line.take(now), Next::Key("a"));
        line.done(&"a");
        line.add("a");
        assert_eq!(line.take(now), Next::Key("a"));
        assert_eq!(line.failed(&"a", now), Duration::from_millis(10), "success has wiped the slate");
    }

    #[test]
    fn a_change_ends_the_wait() {
        let (mut line, now) = line();
        line.add("a");
        assert_eq!(line.take(now), Next::Key("a"));
        line.failed(&"a", now);
        line.add("a");
        assert_eq!(line.take(now), Next::Key("a"));
        assert_eq!(line.take(now + Duration::from_secs(9)), Next::Nothing, "it is not there a second time");
        line.add("a");
        assert_eq!(line.failed(&"a", now), Duration::ZERO, "it has changed while it was worked on");
        assert_eq!(line.take(now), Next::Key("a"));
    }

    #[test]
    fn of_two_times_the_earlier_one_holds() {
        let (mut line, now) = line();
        let after = |ms| now + Duration::from_millis(ms);
        for (ms, due) in [(30, 30), (20, 20), (25, 20)] {
            line.add_at("a", after(ms));
            assert_eq!(line.take(now), Next::At(after(due)));
        }
        line.add_at("b", after(5));
        assert_eq!(line.take(after(5)), Next::Key("b"));
        assert_eq!(line.take(after(20)), Next::Key("a"));
        assert_eq!(line.take(after(90)), Next::Nothing);
    }

    #[tokio::test]
    async fn workers_share_and_are_woken() {
        let queue = WorkQueue::new(Backoff { first: Duration::from_millis(1), max: Duration::from_millis(1) });
        let workers: Vec<_> = (0..4)
            .map(|_| {
                let queue = queue.clone();
                tokio::spawn(async move {
                    let mut seen = Vec::new();
                    loop {
                        let key: u32 = queue.next().await;
                        if key == u32::MAX {
                            queue.done(&key);
                            queue.add(key);
                            return seen;
                        }
                        // Every third key fails once.
                        if key.is_multiple_of(3) && key < 1000 && !seen.contains(&key) {
                            seen.push(key);
                            queue.failed(&key);
                        } else {
                            seen.push(key);
                            queue.done(&key);
                        }
                    }
                })
            })
            .collect();
        for key in 0..100 {
            queue.add(key);
            tokio::task::yield_now().await;
        }
        while !queue.is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        queue.add(u32::MAX);
        let mut seen = Vec::new();
        for worker in workers {
            seen.extend(worker.await.unwrap());
        }
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen, (0..100).collect::<Vec<_>>());
    }
}
