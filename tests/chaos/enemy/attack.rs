//! The table of attacks, and the outcome of one attack.

use futures::future::BoxFuture;
use rand::rngs::StdRng;
use serde::{Deserialize, Serialize};

use super::ground::Ground;
use super::{certificates, clients, peers, silence, window};

/// Outcome of one attempt of an attack on one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Outcome {
    /// The node refused the attack as it should, with this text.
    Refused(String),
    /// The node did as the enemy wanted; a description of that.
    LetThrough(String),
    /// The attempt says nothing about the attack, for this reason: for example, the node was down,
    /// was too slow, or gave an unexpected answer.
    Unclear(String),
}

/// The arguments of one attack on one node.
pub(super) struct Raid<'a> {
    pub ground: &'a Ground,
    pub node: usize,
    pub rng: &'a mut StdRng,
    /// Whether a legal request is sent in place of the attack, so that the node does not refuse it.
    /// Only for a control, whose checker must report it; only the attack `foreign-origin` can.
    pub is_harmless: bool,
}

type Strike = for<'a> fn(&'a mut Raid<'_>) -> BoxFuture<'a, Outcome>;

/// An attack that the enemy can make.
pub(crate) struct Attack {
    pub name: &'static str,
    /// Number in tests/FOUND.md of the defect that the attack once used; 0 for an attack on the
    /// handshake of TLS.
    pub finding: u8,
    pub help: &'static str,
    /// Whether the attack is possible only against ports that speak TLS.
    pub needs_tls: bool,
    pub(super) strike: Strike,
}

macro_rules! attack {
    ($name:literal, $finding:literal, $help:literal, $strike:path) => {
        attack!($name, $finding, $help, $strike, false)
    };
    ($name:literal, $finding:literal, $help:literal, $strike:path, $needs_tls:literal) => {
        Attack {
            name: $name,
            finding: $finding,
            help: $help,
            needs_tls: $needs_tls,
            strike: |raid| Box::pin($strike(raid)),
        }
    };
}

/// Every attack.
pub(crate) const ATTACKS: &[Attack] = &[
    attack!(
        "undecodable-proposal",
        1,
        "commands that no member can decode, as a member forwards them",
        peers::proposal
    ),
    attack!("last-term-vote", 2, "a vote with the last term", peers::last_term),
    attack!("far-commit-append", 2, "an empty append of an unknown leader with a far commit", peers::far_commit),
    attack!("outsider-change", 3, "an outsider removes, promotes, adds and moves members", peers::outsider_change),
    attack!("outsider-call", 3, "an outsider makes the calls of members", peers::outsider_call),
    attack!("join", 3, "a node joins that nobody has invited", peers::join),
    attack!("silent", 4, "hundreds of connections on both ports that say nothing", silence::silent),
    attack!("zero-window", 5, "whole ranges and backups on streams with a window of 0", window::zero),
    attack!("endless-head", 6, "heads of requests that do not end", silence::endless_head),
    attack!("endless-body", 6, "bodies that never come, on each face", silence::endless_body),
    attack!("lease-mass", 7, "leases in masses, with the longest times to live and longer ones", clients::leases),
    attack!("foreign-origin", 8, "requests of a page of another origin", clients::foreign_origin),
    attack!("foreign-host", 8, "a browser's requests to a name that is not the server's", clients::foreign_host),
    attack!("false-alarm", 9, "CORRUPT for members that do not exist", clients::false_alarm),
    attack!("half-handshake", 0, "handshakes that do not go on", silence::half_handshake, true),
    attack!("plain-text", 0, "plain text at ports of TLS", silence::plain_text, true),
    attack!("no-certificate", 0, "no certificate", certificates::none, true),
    attack!("foreign-authority", 0, "certificates of another authority", certificates::foreign, true),
    attack!("expired", 0, "certificates that have expired", certificates::expired, true),
    attack!("not-yet-valid", 0, "certificates of tomorrow", certificates::early, true),
    attack!("client-at-peers", 0, "a client's certificate at the peer port", certificates::client_at_peers, true),
];

/// The attacks that are possible: every attack if the cluster has TLS (`has_tls`), otherwise those
/// that do not need TLS.
pub(crate) fn possible(has_tls: bool) -> impl Iterator<Item = &'static Attack> {
    ATTACKS.iter().filter(move |attack| has_tls || !attack.needs_tls)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_finding_is_repeated() {
        for finding in 1..=9 {
            assert!(possible(false).any(|attack| attack.finding == finding), "finding {finding}");
        }
        let mut names: Vec<&str> = ATTACKS.iter().map(|attack| attack.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ATTACKS.len());
    }
}
