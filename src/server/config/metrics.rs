//! The settings of the metrics port, with their bounds.

use std::net::SocketAddr;

use super::MetricsConfig;
use super::check::Findings;
use super::draft::Draft;

/// The settings of the metrics port, from a draft. `others` are the addresses of the other ports,
/// with the keys of their settings; an equal address is a problem.
pub(super) fn of<const N: usize>(
    draft: &Draft,
    others: [(&str, Option<SocketAddr>); N],
    found: &mut Findings,
) -> MetricsConfig {
    // Off by default: two nodes on one machine would want the same port.
    let listen = draft.metrics_listen.flatten();
    let used = others.into_iter().find(|(_, other)| listen.is_some_and(|own| own.port() != 0) && *other == listen);
    if let (Some(listen), Some((other, _))) = (listen, used) {
        found.add("metrics.listen", format!("must differ from {other}, both are {listen}"));
    }
    MetricsConfig { listen, on_client_port: draft.metrics_on_client_port.unwrap_or(true) }
}
