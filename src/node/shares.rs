//! A bound on the number of things, such as watchers, that clients hold at once. One client cannot
//! take all of it.
//!
//! The first three quarters go to any client, at the cost of one atomic operation. Of the last
//! quarter each client gets only a small part, so that a greedy client leaves some to others.
//! Invariants: a share counts until it is dropped; all clients together hold at most `most` shares.
//! The node itself always gets one, if need be beyond the bound.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::ClientKey;

/// Parts of the last quarter, count; one client may hold one part.
const PARTS: usize = 4;

/// A bound on things that clients hold; clones share it.
#[derive(Clone, Debug)]
pub struct Shares {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// Number of shares that clients take without a bound for each client.
    common_max: usize,
    common: AtomicUsize,
    /// Number of shares in the last quarter. One client holds at most a [`PARTS`]th of them,
    /// rounded up.
    rest_max: usize,
    rest: Mutex<Rest>,
}

#[derive(Debug, Default)]
struct Rest {
    /// Shares of the last quarter that are held, those of the node itself included.
    held: usize,
    /// Shares of the last quarter by client; clients without any are absent.
    held_by: HashMap<ClientKey, usize>,
}

/// One of the bounded number of things. Dropping it returns it to the bound.
#[derive(Debug)]
pub struct Share {
    inner: Arc<Inner>,
    /// The client that holds the share, if it is one of the last quarter; otherwise `None`.
    of_rest: Option<ClientKey>,
}

impl Shares {
    /// A bound of `most` shares.
    pub fn new(most: usize) -> Self {
        let rest_max = most / 4;
        let common_max = most - rest_max;
        Self { inner: Arc::new(Inner { common_max, common: AtomicUsize::new(0), rest_max, rest: Mutex::default() }) }
    }

    /// A share for `client`. `None` if all shares are held, or if only the last quarter is left and
    /// the client already holds its part of it. The node itself always gets one.
    pub fn take(&self, client: ClientKey) -> Option<Share> {
        let inner = Arc::clone(&self.inner);
        if inner.common.fetch_add(1, Ordering::Relaxed) < inner.common_max {
            return Some(Share { inner, of_rest: None });
        }
        inner.common.fetch_sub(1, Ordering::Relaxed);
        {
            let mut rest = inner.rest.lock();
            let held_by = rest.held_by.get(&client).copied().unwrap_or(0);
            let most_of_client = inner.rest_max.div_ceil(PARTS);
            if client != ClientKey::Own && (rest.held >= inner.rest_max || held_by >= most_of_client) {
                return None;
            }
            rest.held += 1;
            rest.held_by.insert(client, held_by + 1);
        }
        Some(Share { inner, of_rest: Some(client) })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let Some(client) = self.of_rest else {
            self.inner.common.fetch_sub(1, Ordering::Relaxed);
            return;
        };
        let mut rest = self.inner.rest.lock();
        rest.held -= 1;
        if let Some(count) = rest.held_by.get_mut(&client) {
            *count -= 1;
            if *count == 0 {
                rest.held_by.remove(&client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GREEDY: ClientKey = ClientKey::Named(0);

    #[test]
    fn a_greedy_client_leaves_some_to_others_and_shares_come_back() {
        let shares = Shares::new(160);
        let mut held: Vec<_> = std::iter::from_fn(|| shares.take(GREEDY)).collect();
        assert_eq!(held.len(), 120 + 10);
        let others: Vec<_> = (1..=40).filter_map(|client| shares.take(ClientKey::Named(client))).collect();
        assert_eq!(others.len(), 30, "all of the bound, and one past it is refused");
        let _own = shares.take(ClientKey::Own).expect("the node itself always gets one");
        held.truncate(119);
        assert!(shares.take(GREEDY).is_some());
        drop((held, others));
        let again: Vec<_> = std::iter::from_fn(|| shares.take(GREEDY)).collect();
        assert_eq!(again.len(), 130);
        drop(again);
        assert_eq!((shares.inner.common.load(Ordering::Relaxed), shares.inner.rest.lock().held_by.len()), (0, 1));
    }

    #[test]
    fn the_smallest_bounds_hold() {
        for most in [0, 1, 3, 4, 5] {
            let shares = Shares::new(most);
            let held: Vec<_> = (0..10).filter_map(|client| shares.take(ClientKey::Named(client))).collect();
            assert_eq!(held.len(), most);
        }
    }
}
