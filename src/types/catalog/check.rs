//! Checks: results of health checks of a node or an instance.

use std::collections::BTreeMap;
use std::fmt;

use crate::LogIndex;

/// One check (spec: consul §4.3).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Check {
    /// Name of its node, as the node was registered.
    pub node: String,
    /// Id of the check, unique on its node.
    pub id: String,
    /// Name of the check, for people.
    pub name: String,
    /// Last known status.
    pub status: CheckStatus,
    /// Notes about the check, for people.
    pub notes: String,
    /// Output of the last run.
    pub output: String,
    /// Id of the checked instance; empty for a check of the node.
    pub service_id: String,
    /// Name of the checked instance's service, copied when the check is written (spec: consul
    /// §2.7).
    pub service_name: String,
    /// Tags of the checked instance, copied when the check is written.
    pub service_tags: Vec<String>,
    /// Type of the check: `http`, `tcp`, `ttl` and others. If a registration leaves it empty, the
    /// type that its definition implies.
    pub type_: String,
    /// Instructions for the agent that runs the check.
    pub definition: CheckDefinition,
    /// Interval between runs, for people: `10s`.
    pub interval: String,
    /// Longest duration of a run, for people: `5s`.
    pub timeout: String,
    /// Port at which a proxy exposes the checked path; 0 if none does. Stored for clients.
    pub exposed_port: i32,
    /// Log index of the command that created this row; zero if it is not stored.
    pub created: LogIndex,
    /// Log index of the last change of this row; zero if it is not stored.
    pub modified: LogIndex,
}

/// Status of a check, ordered from best to worst. The numbers are on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum CheckStatus {
    /// The node or instance works.
    Passing = 1,
    /// The node or instance is usable, but needs attention.
    Warning = 2,
    /// The node or instance must not be used.
    #[default]
    Critical = 3,
}

impl CheckStatus {
    /// Every status, by number.
    pub const ALL: [Self; 3] = [Self::Passing, Self::Warning, Self::Critical];

    /// The status as text in the public APIs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Passing => "passing",
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }

    /// The inverse of [`as_str`](Self::as_str); `None` for any other text.
    pub fn from_text(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == text)
    }

    /// The status with this number; `None` if there is none.
    pub fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|status| *status as u8 == byte)
    }
}

impl fmt::Display for CheckStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Instructions for the agent that runs a check (spec: consul §4.3). The server itself acts only
/// on `ttl_ns`, `deregister_critical_after_ns` and [`type_name`](Self::type_name).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of the public API")]
pub struct CheckDefinition {
    pub http: String,
    pub tls_skip_verify: bool,
    pub header: BTreeMap<String, Vec<String>>,
    pub method: String,
    pub body: String,
    pub tls_server_name: String,
    pub disable_redirects: bool,
    pub tcp: String,
    pub tcp_use_tls: bool,
    pub udp: String,
    pub grpc: String,
    pub grpc_use_tls: bool,
    pub h2ping: String,
    pub h2ping_use_tls: bool,
    pub os_service: String,
    pub script_args: Vec<String>,
    pub docker_container_id: String,
    pub shell: String,
    pub alias_node: String,
    pub alias_service: String,
    pub output_max_size: u32,
    /// Interval between two runs, nanoseconds.
    pub interval_ns: i64,
    /// Longest duration of a run, nanoseconds.
    pub timeout_ns: i64,
    /// Nanoseconds without a report after which the check becomes critical, rounded up to seconds;
    /// 0 if it is not a TTL check.
    pub ttl_ns: i64,
    /// Nanoseconds for which the check may be critical before its instance is deregistered; 0 for
    /// never. The shortest time is
    /// [`CRITICAL_SERVICE_SECONDS_MIN`](crate::limits::CRITICAL_SERVICE_SECONDS_MIN).
    pub deregister_critical_after_ns: i64,
}

impl CheckDefinition {
    /// The type of check that the set fields imply (spec: consul §8.3); empty if none. If several
    /// fit, the first of `http`, `tcp`, `udp`, `grpc`, `h2ping`, `os_service`, `docker`, `alias`,
    /// `script`, `ttl`.
    pub fn type_name(&self) -> &'static str {
        let texts = [
            (&self.http, "http"),
            (&self.tcp, "tcp"),
            (&self.udp, "udp"),
            (&self.grpc, "grpc"),
            (&self.h2ping, "h2ping"),
            (&self.os_service, "os_service"),
            (&self.docker_container_id, "docker"),
            (&self.alias_service, "alias"),
            (&self.alias_node, "alias"),
        ];
        match texts.into_iter().find(|(text, _)| !text.is_empty()) {
            Some((_, name)) => name,
            None if !self.script_args.is_empty() => "script",
            None if self.ttl_ns > 0 => "ttl",
            None => "",
        }
    }
}
