//! A bound on the things that clients hold at once, of which one client cannot take all.
//!
//! Three quarters go to the first clients that ask, at the cost of one atomic step. Beyond them
//! each client gets a small part of the last quarter, so that a greedy client leaves something to
//! others. Invariant: a share counts until it is dropped; at most `most` are held, beside those of
//! the node itself.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::ClientKey;

/// Share of the last quarter that one client may have: 1 / this.
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
    /// Number of shares in the last quarter, of which each client may take one part in [`PARTS`].
    rest_max: usize,
    rest: Mutex<Rest>,
}

#[derive(Debug, Default)]
struct Rest {
    held: usize,
    /// Shares held by each client; clients without any are absent.
    held_by: HashMap<ClientKey, usize>,
}

/// One thing below the bound, until it is dropped.
#[derive(Debug)]
pub struct Share {
    inner: Arc<Inner>,
    /// The client, if the share is one of the last quarter.
    of_rest: Option<ClientKey>,
}

impl Shares {
    /// A bound of `most` shares.
    pub fn new(most: usize) -> Self {
        let rest_max = most / 4;
        let common_max = most - rest_max;
        Self { inner: Arc::new(Inner { common_max, common: AtomicUsize::new(0), rest_max, rest: Mutex::default() }) }
    }

    /// A share for `client`; `None` if too much is held, or too much by this client while little is
    /// left. The node itself always gets one.
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
