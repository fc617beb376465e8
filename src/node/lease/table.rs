//! The leases of one term of a leader, with their deadlines. Plain data; the caller gives the time.
//!
//! Owns the deadlines of leases, and the changes that are not logged yet. Knows no log, no tasks
//! and no keys. Invariants: an expired lease is never alive again; a lease with a due point in the
//! log is kept alive only after the log has removed the due point (otherwise a new leader would end
//! the lease too early).

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use headwater_types::{Lease, LeaseChange, LeaseExpire, LeaseId, LeaseRemaining, LogIndex, Term};

/// Time without a keep-alive after which a lease's due point is logged, and interval at which the
/// lease clock is logged. A new leader may add about as much to a lease, besides its grace;
/// together they stay below three seconds. A lease that is kept alive more often costs the log
/// nothing.
pub(super) const QUIET_AFTER: Duration = Duration::from_secs(1);

/// The due point of a lease in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LoggedDue {
    /// The log has no due point of the lease.
    Nothing,
    /// A due point of the lease is proposed; the result is not known yet.
    Perhaps,
    /// The log has a due point of the lease.
    Due,
}

#[derive(Debug)]
struct Entry {
    granted: LogIndex,
    ttl: Duration,
    /// The time at which the lease expires; later the time at which its expiry is proposed again.
    deadline: Duration,
    /// The last time at which this leader loaded the lease, or saw it granted or kept alive.
    seen: Duration,
    said: LoggedDue,
    /// The time at which the lease expired; `None` until [`LeaseTable::take_expired`] returns it.
    ran_out: Option<Duration>,
}

/// The result of a keep-alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeptAlive {
    /// The lease has its full time to live again.
    Yes {
        /// Time to live of the lease.
        ttl: Duration,
    },
    /// Nothing has changed: the log has a due point of the lease, or may have. The caller must
    /// first log that the lease has none, then keep it alive again.
    LogFirst {
        /// Log index of the grant of the lease.
        granted: LogIndex,
    },
    /// The lease has expired and can no longer be kept alive. Its expiry is or will be proposed.
    Ending,
    /// There is no such lease.
    Unknown,
}

/// The leases of one term of a leader.
#[derive(Debug)]
pub(super) struct LeaseTable {
    term: Term,
    /// The lease clock at the beginning of the term, ms.
    clock_ms: u64,
    began: Duration,
    leases: HashMap<LeaseId, Entry>,
    /// The next action of each lease: its expiry, or the repetition of its expiry's proposal. A
    /// lease is absent while that proposal is under way.
    deadlines: BTreeSet<(Duration, LeaseId)>,
    /// Leases without a due point in the log, by `Entry::seen`. An expired lease is removed.
    quiet: BTreeSet<(Duration, LeaseId)>,
    /// Number of leases with a due point in the log, or one that is being logged.
    logged: usize,
}

impl LeaseTable {
    /// Loads the leases of the state at the beginning of the leader's term. Each lease gets its
    /// remaining time, or all of its time to live if it has no due point and so may have been kept
    /// alive. `grace` is added, because no client could keep a lease alive without a leader.
    pub(super) fn new(
        term: Term,
        clock_ms: u64,
        leases: impl IntoIterator<Item = (LeaseId, Lease)>,
        grace: Duration,
        now: Duration,
    ) -> Self {
        let mut table = Self {
            term,
            clock_ms,
            began: now,
            leases: HashMap::new(),
            deadlines: BTreeSet::new(),
            quiet: BTreeSet::new(),
            logged: 0,
        };
        for (id, lease) in leases {
            let left = match lease.due_ms {
                Some(due_ms) => Duration::from_millis(due_ms.saturating_sub(clock_ms)).min(ttl_of(&lease)),
                None => ttl_of(&lease),
            };
            table.insert(id, &lease, now + left + grace, now);
        }
        table
    }

    /// The term in which the member leads.
    pub(super) fn term(&self) -> Term {
        self.term
    }

    /// The lease clock at `now`, ms.
    pub(super) fn clock_ms(&self, now: Duration) -> u64 {
        self.clock_ms.saturating_add(millis(now.saturating_sub(self.began)))
    }

    /// Records a committed change of a lease. True if the table had a lease of this id which has
    /// ended, even if a new lease has the id now.
    pub(super) fn follow(&mut self, change: &LeaseChange, now: Duration) -> bool {
        let known = self.leases.get(&change.id).map(|entry| entry.granted);
        match (known, change.lease) {
            (Some(granted), Some(lease)) if granted == lease.granted => {
                let said = if lease.due_ms.is_some() { LoggedDue::Due } else { LoggedDue::Nothing };
                self.say(change.id, said);
                false
            }
            (_, lease) => {
                self.remove(change.id);
                if let Some(lease) = lease {
                    self.insert(change.id, &lease, now + ttl_of(&lease), now);
                }
                known.is_some()
            }
        }
    }

    fn insert(&mut self, id: LeaseId, lease: &Lease, deadline: Duration, now: Duration) {
        let said = if lease.due_ms.is_some() { LoggedDue::Due } else { LoggedDue::Nothing };
        let entry = Entry {
            granted: lease.granted,
            ttl: ttl_of(lease),
            deadline,
            seen: now,
            said: LoggedDue::Nothing,
            ran_out: None,
        };
        self.deadlines.insert((deadline, id));
        self.quiet.insert((now, id));
        self.leases.insert(id, entry);
        self.say(id, said);
    }

    fn remove(&mut self, id: LeaseId) {
        if let Some(entry) = self.leases.remove(&id) {
            self.deadlines.remove(&(entry.deadline, id));
            self.quiet.remove(&(entry.seen, id));
            self.logged -= usize::from(entry.said != LoggedDue::Nothing);
        }
    }

    fn say(&mut self, id: LeaseId, said: LoggedDue) {
        let Some(entry) = self.leases.get_mut(&id) else { return };
        self.logged -= usize::from(entry.said != LoggedDue::Nothing);
        self.logged += usize::from(said != LoggedDue::Nothing);
        entry.said = said;
        if said == LoggedDue::Nothing && entry.ran_out.is_none() {
            self.quiet.insert((entry.seen, id));
        } else {
            self.quiet.remove(&(entry.seen, id));
        }
    }

    /// Gives a lease its full time to live again, unless the log has a due point of it, or may
    /// have.
    pub(super) fn keep_alive(&mut self, id: LeaseId, now: Duration) -> KeptAlive {
        match self.leases.get(&id) {
            None => KeptAlive::Unknown,
            Some(entry) if entry.ran_out.is_some() || entry.deadline <= now => KeptAlive::Ending,
            Some(entry) if entry.said != LoggedDue::Nothing => KeptAlive::LogFirst { granted: entry.granted },
            Some(_) => KeptAlive::Yes { ttl: self.revive(id, now) },
        }
    }

    fn revive(&mut self, id: LeaseId, now: Duration) -> Duration {
        let entry = self.leases.get_mut(&id).expect("invariant: the caller has found it");
        self.deadlines.remove(&(entry.deadline, id));
        self.quiet.remove(&(entry.seen, id));
        // The deadline never moves back: a grace stays.
        entry.deadline = entry.deadline.max(now + entry.ttl);
        entry.seen = now;
        self.deadlines.insert((entry.deadline, id));
        self.quiet.insert((now, id));
        entry.ttl
    }

    /// Time to live and remaining time, which is zero for an expired lease. `None` if there is no
    /// such lease.
    pub(super) fn remaining(&self, id: LeaseId, now: Duration) -> Option<(Duration, Duration)> {
        let entry = self.leases.get(&id)?;
        let left = if entry.ran_out.is_some() { Duration::ZERO } else { entry.deadline.saturating_sub(now) };
        Some((entry.ttl, left))
    }

    /// The time of the next expiry, or of the next repetition of an expiry's proposal. `None`
    /// without either.
    pub(super) fn next_deadline(&self) -> Option<Duration> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// Up to `max` leases that have expired. Each is returned once: the caller proposes its expiry,
    /// and if that fails calls [`end_again`](Self::end_again).
    pub(super) fn take_expired(&mut self, now: Duration, max: usize) -> Vec<LeaseExpire> {
        let mut expired = Vec::new();
        while expired.len() < max
            && let Some(&(at, id)) = self.deadlines.first()
            && at <= now
        {
            self.deadlines.pop_first();
            let entry = self.leases.get_mut(&id).expect("invariant: what has a deadline is a lease");
            entry.ran_out.get_or_insert(at);
            self.quiet.remove(&(entry.seen, id));
            expired.push(LeaseExpire { id, granted: entry.granted, term: self.term });
        }
        expired
    }

    /// Time since a lease expired; `None` until [`take_expired`](Self::take_expired) returns it.
    pub(super) fn lateness(&self, id: LeaseId, now: Duration) -> Option<Duration> {
        self.leases.get(&id)?.ran_out.map(|at| now.saturating_sub(at))
    }

    /// Makes [`take_expired`](Self::take_expired) return a lease again at `at`, because its expiry
    /// failed or has an unknown result.
    pub(super) fn end_again(&mut self, expire: &LeaseExpire, at: Duration) {
        if let Some(entry) = self.leases.get_mut(&expire.id)
            && entry.granted == expire.granted
            && entry.ran_out.is_some()
        {
            self.deadlines.remove(&(entry.deadline, expire.id));
            entry.deadline = at;
            self.deadlines.insert((at, expire.id));
        }
    }

    /// Up to `max` leases without a due point in the log, and without a keep-alive for
    /// [`QUIET_AFTER`]. The caller logs their remaining time. Each counts as having a due point
    /// from now on.
    pub(super) fn take_quiet(&mut self, now: Duration, max: usize) -> Vec<LeaseRemaining> {
        let mut taken = Vec::new();
        while taken.len() < max
            && let Some(&(seen, id)) = self.quiet.first()
            && seen + QUIET_AFTER <= now
        {
            let entry = &self.leases[&id];
            if entry.deadline <= now {
                // The lease has expired: its expiry is proposed instead.
                self.quiet.pop_first();
                continue;
            }
            let remaining_ms = Some(millis(entry.deadline.saturating_sub(now)));
            taken.push(LeaseRemaining { id, granted: entry.granted, remaining_ms });
            self.say(id, LoggedDue::Perhaps);
        }
        taken
    }

    /// Whether the log has a due point of any lease, or may have. The caller then logs the lease
    /// clock regularly.
    pub(super) fn needs_clock(&self) -> bool {
        self.logged > 0
    }

    /// Number of leases.
    pub(super) fn len(&self) -> usize {
        self.leases.len()
    }

    #[cfg(test)]
    pub(super) fn check(&self) {
        assert_eq!(self.logged, self.leases.values().filter(|entry| entry.said != LoggedDue::Nothing).count());
    }
}

fn ttl_of(lease: &Lease) -> Duration {
    Duration::from_secs(u64::try_from(lease.ttl_seconds).unwrap_or(0))
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
