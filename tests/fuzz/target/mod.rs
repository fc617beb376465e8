//! Targets: each makes and sends inputs of one kind. To add a target, write a file here and a row
//! in [`TARGETS`]; docs/testing.md has the steps.

mod backup;
mod certificates;
mod client;
mod dns;
mod http1;
mod http2;
mod peer;
mod tls;

use std::sync::Arc;

use futures::future::BoxFuture;

use crate::dice::Dice;
use crate::rig::Rig;

/// The cluster that a target needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    /// Three nodes, both ports in plain text.
    Plain,
    /// Three nodes, both ports and DNS by TLS.
    Tls,
}

/// The result of one input, by its answer.
pub(crate) struct Outcome {
    /// The kind of answer, in words: the report counts the answers of each kind.
    pub(crate) answer: String,
    /// A defect that the answer itself shows; `None` if it is correct.
    pub(crate) finding: Option<String>,
}

impl Outcome {
    pub(crate) fn of(answer: impl Into<String>) -> Self {
        Self { answer: answer.into(), finding: None }
    }

    pub(crate) fn finding(answer: impl Into<String>, finding: impl Into<String>) -> Self {
        Self { answer: answer.into(), finding: Some(finding.into()) }
    }
}

/// A target that is prepared for one cluster.
pub(crate) trait Attack: Send + Sync {
    /// Makes one input from the dice and sends it. An error is a failure of the fuzzer itself, such
    /// as a file that it cannot write. A refused connection is an outcome, not an error.
    fn input<'a>(&'a self, dice: Dice) -> BoxFuture<'a, anyhow::Result<Outcome>>;
}

/// Prepares the attack on a cluster that serves.
type Prepare = fn(Arc<Rig>) -> BoxFuture<'static, anyhow::Result<Arc<dyn Attack>>>;

/// A target that can be chosen: one kind of input.
pub(crate) struct Target {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) needs: Needs,
    /// Number of inputs in flight at once.
    pub(crate) lanes: usize,
    pub(crate) prepare: Prepare,
}

macro_rules! target {
    ($name:literal, $needs:ident, $lanes:literal, $prepare:path, $about:literal) => {
        Target {
            name: $name,
            about: $about,
            needs: Needs::$needs,
            lanes: $lanes,
            prepare: |rig| Box::pin(async move { Ok(Arc::new($prepare(rig).await?) as Arc<dyn Attack>) }),
        }
    };
}

/// Every target.
pub(crate) const TARGETS: &[Target] = &[
    target!("client", Plain, 8, client::prepare, "every gRPC method of the client port, found by reflection"),
    target!("peer", Plain, 8, peer::prepare, "every gRPC method of the peer port, as outsider and as forged member"),
    target!("http1", Plain, 8, http1::prepare, "HTTP/1: Consul's API, the gateway, REST; broken requests"),
    target!("http2", Plain, 8, http2::prepare, "frames of HTTP/2 on both ports"),
    target!("dns", Plain, 8, dns::prepare, "DNS over UDP and TCP"),
    target!("tls", Tls, 8, tls::prepare, "TLS records, and damaged certificates of clients, on every port"),
    target!(
        "certificates",
        Tls,
        1,
        certificates::prepare,
        "damaged files of certificates: renewals, clients, revocations"
    ),
    target!("backup", Plain, 2, backup::prepare, "damaged backup files: status and restore"),
];
