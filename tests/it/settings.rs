//! The settings of a test cluster.

use std::path::Path;
use std::time::Duration;

use headwater::node::{AclOptions, AuditOptions, QuotaOptions, RateOptions};
use headwater::raft::Timing;
use headwater::stream::FeedOptions;
use headwater::tls::ClientCertificates;
use headwater::types::limits::{REQUEST_BYTES_MAX, TXN_OPS_MAX, WATCHERS_MAX, WATCHERS_PER_STREAM_MAX};

/// Settings of a test cluster and of all its members.
#[derive(Clone, Copy)]
pub struct Settings {
    /// Number of members.
    pub members: usize,
    /// Log entries between two snapshots.
    pub snapshot_every: u64,
    /// Log entries that are kept although a snapshot covers them.
    pub keep: u64,
    /// Bounds of each feed: of its window, of one scan of catch-up, and of the readers that the
    /// publisher wakes by itself.
    pub feed: FeedOptions,
    /// Quota on live keys and values.
    pub quota: QuotaOptions,
    /// Age of history that is kept; `None` for no limit.
    pub history_retention: Option<Duration>,
    /// The name of the datacenter.
    pub datacenter: &'static str,
    /// Heartbeat interval and election timeouts.
    pub timing: Timing,
    /// Deadline of requests without one of their own.
    pub request_timeout: Duration,
    /// Time without a leader after which a stream that requires a leader ends.
    pub leader_loss_timeout: Duration,
    /// Largest request, bytes.
    pub max_request_bytes: usize,
    pub watchers_max: usize,
    pub watchers_per_stream_max: usize,
    pub request_rate: Option<RateOptions>,
    /// Most operations in one list of a transaction.
    pub max_txn_ops: usize,
    /// Whether a voter can be announced only while all voters run.
    pub strict_reconfig_check: bool,
    /// Whether a node that was not announced needs an invitation to join. False by default, unlike
    /// in the program.
    pub invited_only: bool,
    /// Time after its last use at which a token of etcd's simple kind ends.
    pub token_ttl: Duration,
    /// Makes the options of the audit log from a member's data directory; `None` for no audit log.
    pub audit: Option<fn(&Path) -> AuditOptions>,
    /// Whether the members serve a Unix socket as well.
    pub unix: bool,
    /// Whether both ports speak TLS. Then clients need certificates.
    pub tls: bool,
    /// Whether clients of the metrics port show certificates; counts only if `tls` is set. `None`
    /// for no such port.
    pub metrics_port: Option<ClientCertificates>,
    /// Whether the client port serves `/metrics`.
    pub metrics_on_client_port: bool,
    /// Makes the options of Consul's ACLs.
    pub acl: fn() -> AclOptions,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            members: 3,
            snapshot_every: 50_000,
            keep: 20_000,
            feed: FeedOptions::default(),
            quota: QuotaOptions::default(),
            history_retention: None,
            datacenter: "dc1",
            timing: Timing {
                heartbeat: Duration::from_millis(100),
                election_min: Duration::from_millis(500),
                election_max: Duration::from_millis(1000),
            },
            request_timeout: Duration::from_secs(30),
            leader_loss_timeout: Duration::from_secs(20),
            max_request_bytes: REQUEST_BYTES_MAX,
            watchers_max: WATCHERS_MAX,
            watchers_per_stream_max: WATCHERS_PER_STREAM_MAX,
            request_rate: None,
            max_txn_ops: TXN_OPS_MAX,
            strict_reconfig_check: true,
            invited_only: false,
            token_ttl: Duration::from_secs(300),
            audit: None,
            unix: false,
            tls: false,
            metrics_port: None,
            metrics_on_client_port: true,
            acl: AclOptions::default,
        }
    }
}

impl Settings {
    /// Settings of a cluster of one member, which no other member joins. Its election timeout is
    /// short, because the member waits twice that long before it forms the cluster. A short timeout
    /// does not cost a single member its leadership.
    pub fn alone() -> Self {
        let timing = Timing {
            heartbeat: Duration::from_millis(50),
            election_min: Duration::from_millis(100),
            election_max: Duration::from_millis(200),
        };
        Self { members: 1, timing, ..Self::default() }
    }

    /// Settings with long election timeouts, for tests without elections: a machine that stalls for
    /// seconds causes none.
    pub fn calm() -> Self {
        let timing = Timing {
            heartbeat: Duration::from_millis(100),
            election_min: Duration::from_secs(5),
            election_max: Duration::from_secs(7),
        };
        Self { timing, ..Self::default() }
    }
}
