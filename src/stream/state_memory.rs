//! The memory budget for the states that streams begin with: one bound for all of them together.
//!
//! Owns the count. A state takes its share entry by entry while it is built. The share is returned
//! when the last holder drops the state, so states being built, cached states and states pinned by
//! stalled readers all count. Invariant: the memory taken is the sum of the shares, and never
//! exceeds the bound.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use headwater_types::limits::STATE_ENTRY_BYTES;

/// The memory budget that the first states of all streams share.
pub struct StateMemory {
    bytes_max: usize,
    taken: AtomicUsize,
    evict: Box<dyn Fn() + Send + Sync>,
}

impl StateMemory {
    /// A budget of `bytes_max`. `evict` is called when it is exhausted, to evict cached states.
    pub fn new(bytes_max: usize, evict: impl Fn() + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self { bytes_max, taken: AtomicUsize::new(0), evict: Box::new(evict) })
    }

    /// A share that holds no memory yet.
    pub fn share(self: &Arc<Self>) -> StateShare {
        StateShare { memory: Arc::clone(self), bytes: 0 }
    }

    fn take(&self, bytes: usize) -> bool {
        let within = |taken: usize| taken.checked_add(bytes).filter(|taken| *taken <= self.bytes_max);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within).is_ok()
    }
}

/// The memory of one state. Dropping it returns the memory to the budget.
pub struct StateShare {
    memory: Arc<StateMemory>,
    bytes: usize,
}

impl StateShare {
    /// Takes the memory of an entry: `entry_bytes` of content and a fixed overhead. If the budget
    /// has too little left, cached states are evicted and it is tried once more. False if that
    /// fails, too: nothing was taken.
    #[must_use]
    pub fn grow(&mut self, entry_bytes: usize) -> bool {
        let bytes = STATE_ENTRY_BYTES + entry_bytes;
        let mut has_capacity = self.memory.take(bytes);
        if !has_capacity {
            (self.memory.evict)();
            has_capacity = self.memory.take(bytes);
        }
        if has_capacity {
            self.bytes += bytes;
        }
        has_capacity
    }

    /// Returns the memory of an entry for which the share has grown by the same `entry_bytes`.
    pub fn shrink(&mut self, entry_bytes: usize) {
        let bytes = (STATE_ENTRY_BYTES + entry_bytes).min(self.bytes);
        self.bytes -= bytes;
        self.memory.taken.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// An empty share of the same budget.
    pub fn another(&self) -> Self {
        self.memory.share()
    }
}

impl Drop for StateShare {
    fn drop(&mut self) {
        self.memory.taken.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_is_bounded_and_comes_back() {
        let memory = StateMemory::new(2 * STATE_ENTRY_BYTES + 10, || {});
        let (mut one, mut other) = (memory.share(), memory.share());
        assert!(one.grow(4));
        assert!(!other.grow(7), "one more than there is");
        assert!(other.grow(6));
        assert!(!one.another().grow(0));
        drop(one);
        assert!(other.grow(4), "a refusal took nothing");
        drop(other);
        assert_eq!(memory.taken.load(Ordering::Relaxed), 0);
    }
}
