//! Leadership: the current leader and term, its liveness, and changes of both.
//!
//! [`Leadership`] is the handle; `majority` and `transfer` add their concerns to it. All values are
//! this member's view and may be a moment old, except those of [`Leadership::confirm`].

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use openraft::Instant as _;
use openraft::async_runtime::watch::WatchReceiver;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::consensus::Consensus;
use super::read_index::ReadIndexError;
use super::types::term_of;
use headwater_types::{LogIndex, NodeId, Term};

/// Leader and term, as far as this member knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leading {
    /// The current leader; `None` while no leader is known.
    pub leader: Option<NodeId>,
    /// This member's term.
    pub term: Term,
}

/// Leadership as this member knows it, in memory: leader and term, last contact, changes. The
/// write path reads leader and term without a lock.
#[derive(Debug)]
pub(super) struct LeadershipState {
    /// Time without contact after which a leader counts as gone.
    pub(super) silence_max: Duration,
    /// Last contact with the leader. Used while this member does not lead.
    pub(super) contact: LeaderContact,
    /// The leader's id; 0 for none.
    leader: AtomicU64,
    term: AtomicU64,
    /// Number of times that a leader became known since the process started, also the same one
    /// again.
    changes: AtomicU64,
    /// Leader and term as one value, consistent with each other.
    current: watch::Sender<Leading>,
    /// Time of the last change of `current`.
    pub(super) since: Mutex<Instant>,
}

impl LeadershipState {
    pub(super) fn new(silence_max: Duration) -> Self {
        Self {
            silence_max,
            contact: LeaderContact::new(),
            leader: AtomicU64::new(0),
            term: AtomicU64::new(0),
            changes: AtomicU64::new(0),
            current: watch::Sender::default(),
            since: Mutex::new(Instant::now()),
        }
    }
}

/// Time of the last contact with a leader that has a majority: a message, or the moment in which a
/// leader became known, this member itself included.
#[derive(Debug)]
pub(super) struct LeaderContact {
    origin: Instant,
    last_ms: AtomicU64,
    /// Whether the leader has reported, since its last message with a majority, that it has none.
    blocked: AtomicBool,
}

impl LeaderContact {
    fn new() -> Self {
        Self { origin: Instant::now(), last_ms: AtomicU64::new(u64::MAX), blocked: AtomicBool::new(false) }
    }

    /// Records a message from a leader with a majority, or a new leader.
    pub(super) fn mark(&self) {
        let now_ms = self.origin.elapsed().as_millis() as u64;
        self.last_ms.store(now_ms, Ordering::Relaxed);
        self.blocked.store(false, Ordering::Relaxed);
    }

    /// Records that the leader reported the loss of its majority.
    pub(super) fn mark_blocked(&self) {
        self.blocked.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_blocked(&self) -> bool {
        self.blocked.load(Ordering::Relaxed)
    }

    fn elapsed(&self) -> Option<Duration> {
        let last = self.last_ms.load(Ordering::Relaxed);
        (last != u64::MAX).then(|| self.origin.elapsed().saturating_sub(Duration::from_millis(last)))
    }

    fn is_within(&self, limit: Duration) -> bool {
        let last = self.last_ms.load(Ordering::Relaxed);
        last != u64::MAX && self.origin.elapsed().as_millis() as u64 <= last + limit.as_millis() as u64
    }
}

/// Handle to leadership; see the module.
#[derive(Clone, Copy)]
pub struct Leadership<'a> {
    pub(super) consensus: &'a Consensus,
}

impl<'a> Leadership<'a> {
    pub(super) fn state(self) -> &'a LeadershipState {
        &self.consensus.inner().leadership
    }

    /// Leader and term from memory, each read by itself: around a change they may not belong
    /// together.
    pub fn current(self) -> Leading {
        let state = self.state();
        let leader = state.leader.load(Ordering::Relaxed);
        Leading { leader: (leader != 0).then_some(NodeId(leader)), term: Term(state.term.load(Ordering::Relaxed)) }
    }

    /// Subscribes to leader and term; both change together.
    pub fn follow(self) -> watch::Receiver<Leading> {
        self.state().current.subscribe()
    }

    /// Number of times that a leader became known since this process started, also the same one
    /// again. The loss of a leader does not count.
    pub fn changes(self) -> u64 {
        self.state().changes.load(Ordering::Relaxed)
    }

    /// The leader, if it is known to have led a short time ago. On the leader: if a quorum has
    /// answered it within the time for which a silent leader is trusted, or it is the only voter.
    /// On any other member: if the leader has become known or sent a message within that time, and
    /// has not reported the loss of its majority since. Else `None`.
    pub fn live_leader(self) -> Option<NodeId> {
        let leader = self.current().leader?;
        let state = self.state();
        let alive = if leader == self.consensus.node_id() {
            let metrics = self.consensus.raft().metrics();
            let metrics = metrics.borrow_watched();
            // A single voter sends no heartbeats, so its time of the last quorum does not advance.
            let is_alone = metrics.membership_config.membership().voter_ids().count() == 1;
            is_alone || metrics.last_quorum_acked.is_some_and(|at| at.elapsed() <= state.silence_max)
        } else {
            !state.contact.is_blocked() && state.contact.is_within(state.silence_max)
        };
        alive.then_some(leader)
    }

    /// Time since contact with a majority. On the leader: zero with a quorum, else the time since
    /// its quorum last answered. On any other member: the time since the last message of a leader
    /// with a majority, or since it learned of its last leader if that is later. `None` if there
    /// was none of these since this member started. Another leader may have committed entries since
    /// then.
    pub fn last_contact(self) -> Option<Duration> {
        match self.current().leader {
            Some(leader) if leader != self.consensus.node_id() => self.state().contact.elapsed(),
            Some(_) if self.live_leader().is_some() => Some(Duration::ZERO),
            Some(_) => self.consensus.raft().metrics().borrow_watched().last_quorum_acked.map(|at| at.elapsed()),
            None => self.state().contact.elapsed(),
        }
    }

    /// Confirms with a quorum, by messages sent after the call, that this member leads. Returns its
    /// term, and the read index: once that is applied, all writes that were acknowledged before the
    /// call can be read.
    ///
    /// # Errors
    ///
    /// It does not lead, no quorum confirmed it, or consensus has ended.
    pub async fn confirm(self) -> Result<(Term, LogIndex), ReadIndexError> {
        let linearizer = self.consensus.linearizer().await?;
        // A read's log id belongs to the leadership that produced it.
        let id = linearizer.read_log_id();
        Ok((Term(term_of(id.log_id())), LogIndex(id.index())))
    }

    /// Waits for a change of leader, vote or membership, at most for `pause`. For the pause before
    /// a retry after "not the leader".
    pub async fn wait_for_change(self, pause: Duration) {
        let mut metrics = self.consensus.raft().server_metrics();
        drop(metrics.borrow_and_update());
        // Either way the caller retries.
        drop(tokio::time::timeout(pause, metrics.changed()).await);
    }
}

/// Keeps the in-memory copy of leadership, and the addresses of members, current until consensus
/// ends.
pub(super) async fn follow(consensus: Consensus) {
    let mut metrics = consensus.raft().server_metrics();
    let leadership = &consensus.inner().leadership;
    loop {
        let (leader, term, state) = {
            let now = metrics.borrow_watched();
            (now.current_leader.unwrap_or(0), now.vote.leader_id.term, now.state)
        };
        leadership.term.store(term, Ordering::Relaxed);
        let now = Leading { leader: (leader != 0).then_some(NodeId(leader)), term: Term(term) };
        leadership.current.send_if_modified(|current| {
            let has_changed = std::mem::replace(current, now) != now;
            if has_changed {
                *leadership.since.lock() = Instant::now();
            }
            has_changed
        });
        consensus.inner().peers.learn_addresses(&consensus.members().roster());
        let before = leadership.leader.swap(leader, Ordering::Relaxed);
        if before != leader {
            if leader != 0 {
                leadership.changes.fetch_add(1, Ordering::Relaxed);
                leadership.contact.mark();
            }
            tracing::info!(leader, term, ?state, "leadership changed");
        }
        if metrics.changed().await.is_err() {
            return;
        }
    }
}
