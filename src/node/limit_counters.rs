//! Counts of the requests, connections and streams that each limit refused or cut:
//! `headwater_limited_total{limit}`.
//!
//! Owns the names of the limits. The code that enforces a limit counts. Every limit has its series
//! from the start, so that an alert can take a rate of the first refusal.

use std::sync::Arc;

use prometheus::{IntCounter, IntCounterVec, Opts, Registry};

use super::NodeError;

/// A limit with a counter of its own. A variant names the quantity that its limit bounds, or the
/// property of a request that it judges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Open connections of all clients, or of all peers. A connection of the reserve that stays
    /// open too long counts here, too.
    Connections,
    /// Connections of one address.
    ConnectionsPerAddress,
    /// Connections of one address in their TLS handshake.
    Handshakes,
    /// Time until the first request of a connection.
    FirstRequest,
    /// Requests that are open at once.
    OpenRequests,
    /// Time until the body of a request is complete.
    RequestBody,
    /// Size of a request.
    RequestSize,
    /// Bytes of answers that their readers have not taken.
    UnreadAnswers,
    /// Time for which a reader takes nothing while data waits.
    StalledReader,
    /// Long reads that run or wait.
    LongReads,
    /// Streamed ranges that are open or wait.
    RangeStreams,
    /// Linearizable reads that wait: for the leader's confirmation, then until this node has
    /// applied the confirmed index.
    WaitingReads,
    /// Proposals without an outcome yet.
    Proposals,
    /// The quota, at the grant of a lease: live data and leases together.
    Leases,
    /// Requests that contend for locks and elections, or observe their owners.
    Contenders,
    /// Requests about leases that wait for the leader.
    LeaseQuestions,
    /// Watchers of one stream.
    WatchersPerStream,
    /// Watchers of all streams.
    Watchers,
    /// Blocking queries that wait.
    BlockingQueries,
    /// DNS questions in progress.
    DnsQueries,
    /// Requests of one client a second.
    RequestRate,
    /// Backups that are under way.
    Backups,
    /// Requests of web pages from an origin that is not allowed.
    Origin,
    /// Requests of browsers under a name of the server that is not allowed (`Host`).
    Host,
}

impl Limit {
    const ALL: [Self; 24] = [
        Self::Connections,
        Self::ConnectionsPerAddress,
        Self::Handshakes,
        Self::FirstRequest,
        Self::OpenRequests,
        Self::RequestBody,
        Self::RequestSize,
        Self::UnreadAnswers,
        Self::StalledReader,
        Self::LongReads,
        Self::RangeStreams,
        Self::WaitingReads,
        Self::Proposals,
        Self::Leases,
        Self::Contenders,
        Self::LeaseQuestions,
        Self::WatchersPerStream,
        Self::Watchers,
        Self::BlockingQueries,
        Self::DnsQueries,
        Self::RequestRate,
        Self::Backups,
        Self::Origin,
        Self::Host,
    ];

    /// Value of the label `limit` of the metric that counts refusals by this limit.
    fn label(self) -> &'static str {
        match self {
            Self::Connections => "connections",
            Self::ConnectionsPerAddress => "connections-per-address",
            Self::Handshakes => "handshakes",
            Self::FirstRequest => "first-request",
            Self::OpenRequests => "open-requests",
            Self::RequestBody => "request-body",
            Self::RequestSize => "request-size",
            Self::UnreadAnswers => "unread-answers",
            Self::StalledReader => "stalled-reader",
            Self::LongReads => "long-reads",
            Self::RangeStreams => "range-streams",
            Self::WaitingReads => "waiting-reads",
            Self::Proposals => "proposals",
            Self::Leases => "leases",
            Self::Contenders => "contenders",
            Self::LeaseQuestions => "lease-questions",
            Self::WatchersPerStream => "watchers-per-stream",
            Self::Watchers => "watchers",
            Self::BlockingQueries => "blocking-queries",
            Self::DnsQueries => "dns-queries",
            Self::RequestRate => "request-rate",
            Self::Backups => "backups",
            Self::Origin => "origin",
            Self::Host => "host",
        }
    }
}

/// The counters of one node; cheap to clone.
#[derive(Clone, Debug)]
pub struct LimitCounters {
    /// One counter for each limit, in the order of [`Limit::ALL`].
    counters: Arc<[IntCounter]>,
}

impl LimitCounters {
    /// Makes the counters and registers them.
    ///
    /// # Errors
    ///
    /// If `registry` already holds the family.
    pub fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let family = family();
        registry.register(Box::new(family.clone()))?;
        Ok(Self::of(&family))
    }

    fn of(family: &IntCounterVec) -> Self {
        Self { counters: Limit::ALL.iter().map(|limit| family.with_label_values(&[limit.label()])).collect() }
    }

    /// Counts a refusal or a cut.
    pub fn count(&self, limit: Limit) {
        self.counter(limit).inc();
    }

    /// A closure that counts a [`NodeError::TooManyRequests`] for `limit`, and no other error.
    pub(super) fn note(&self, limit: Limit) -> impl FnOnce(&NodeError) {
        move |error| {
            if matches!(error, NodeError::TooManyRequests) {
                self.count(limit);
            }
        }
    }

    /// The counter of one limit.
    pub fn counter(&self, limit: Limit) -> &IntCounter {
        &self.counters[limit as usize]
    }
}

/// Counters that no registry shows, for tests of single parts.
impl Default for LimitCounters {
    fn default() -> Self {
        Self::of(&family())
    }
}

fn family() -> IntCounterVec {
    let opts = Opts::new("headwater_limited_total", "Requests, streams and connections that a limit refused or cut.");
    IntCounterVec::new(opts, &["limit"]).expect("invariant: valid name")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_limit_has_a_counter_of_its_own() {
        let registry = Registry::new();
        let limit_counters = LimitCounters::register(&registry).unwrap();
        for (count, limit) in Limit::ALL.into_iter().enumerate() {
            assert_eq!(limit as usize, count, "{limit:?} stands in ALL at its place");
            limit_counters.count(limit);
        }
        let families = registry.gather();
        assert_eq!(families[0].get_metric().len(), Limit::ALL.len(), "labels differ");
        assert!(families[0].get_metric().iter().all(|series| series.get_counter().get_value() == 1.0));
    }
}
