//! The wake-up shared by many subscriptions: a client stream waits once, however many watchers it
//! carries.
//!
//! Owns the tokens of the subscriptions that may have something to read. Invariants: a subscription
//! is raised at most once between two calls of [`Subscription::try_next`] that found nothing, so a
//! subscription has at most one token here. The tokens are always taken all at once, so only the
//! first one has to wake the stream.
//!
//! [`Subscription::try_next`]: super::Subscription::try_next

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use futures::task::AtomicWaker;
use parking_lot::Mutex;

use super::subscription::CloseReason;

/// The tokens of those subscriptions of one stream that may have something to read. One task waits
/// on it.
#[derive(Debug, Default)]
pub struct Session {
    raised: Mutex<Vec<u64>>,
    waker: AtomicWaker,
}

impl Session {
    /// A session without subscriptions.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Takes the tokens of the subscriptions that may have something to read; empty if there are
    /// none. The subscription of a token may have been dropped since.
    pub fn take_raised(&self) -> Vec<u64> {
        std::mem::take(&mut *self.raised.lock())
    }

    /// Waits until there is a token, and takes all.
    pub async fn raised(&self) -> Vec<u64> {
        poll_fn(|cx| self.poll_raised(cx)).await
    }

    /// As [`raised`](Self::raised); `Pending` while there is no token.
    pub fn poll_raised(&self, cx: &mut Context<'_>) -> Poll<Vec<u64>> {
        self.waker.register(cx.waker());
        let raised = self.take_raised();
        if raised.is_empty() { Poll::Pending } else { Poll::Ready(raised) }
    }

    fn raise(&self, token: u64) {
        let is_first = {
            let mut raised = self.raised.lock();
            raised.push(token);
            raised.len() == 1
        };
        if is_first {
            self.waker.wake();
        }
    }
}

/// The wake-up flag of one subscription, and the reason for which it was closed.
pub(super) struct Waiter {
    is_raised: AtomicBool,
    token: u64,
    session: Arc<Session>,
    closed: OnceLock<CloseReason>,
}

impl Waiter {
    /// A waiter that is raised, without its token in the session: a new subscription is read before
    /// it waits.
    pub(super) fn new(session: Arc<Session>, token: u64) -> Arc<Self> {
        Arc::new(Self { is_raised: AtomicBool::new(true), token, session, closed: OnceLock::new() })
    }

    /// Adds the subscription's token to the session, unless it was added since the last
    /// [`lower`](Self::lower).
    pub(super) fn raise(&self) {
        if !self.is_raised.swap(true, Ordering::AcqRel) {
            self.session.raise(self.token);
        }
    }

    /// Makes the next [`raise`](Self::raise) add the token again. The reader must read once more
    /// afterwards: a commit appended before this call may not raise again, and is visible to that
    /// read.
    pub(super) fn lower(&self) {
        self.is_raised.swap(false, Ordering::AcqRel);
    }

    pub(super) fn close(&self, reason: CloseReason) {
        // The first reason stays.
        if self.closed.set(reason).is_ok() {
            self.raise();
        }
    }

    pub(super) fn closed(&self) -> Option<&CloseReason> {
        self.closed.get()
    }
}
