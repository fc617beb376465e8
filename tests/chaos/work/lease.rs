//! Leases with a key each: kept alive for a while, then left alone or revoked.

use std::time::Duration;

use tokio::task::JoinSet;

use super::{AsyncClientStep, Client, Lab};
use crate::history::{Body, Request};

const CLIENTS: u64 = 4;
const PAUSE: Duration = Duration::from_millis(50);
const KEEP_ALIVE: Duration = Duration::from_millis(700);

/// Longest time to live that this workload and the lock ask for, seconds.
pub(crate) const TTL_SECONDS_MAX: i64 = 4;

#[derive(Clone)]
struct Lease;

pub(crate) fn start(lab: &Lab, tasks: &mut JoinSet<()>) {
    lab.clients(tasks, "lease", CLIENTS, PAUSE, |_| (), Lease);
}

impl AsyncClientStep<()> for Lease {
    async fn step(&self, client: &mut Client, (): &mut ()) {
        let ttl_seconds = 2 + client.below(TTL_SECONDS_MAX as u64 - 1) as i64;
        let granted = client.ask(Request::Grant { ttl_seconds }).await;
        let Some(Body::Granted { lease, .. }) = granted.map(|answer| answer.body) else { return };
        let value = client.value();
        client.ask(Request::Put { key: format!("lease/{value}"), value, lease }).await;
        for _ in 0..client.below(6) {
            tokio::time::sleep(KEEP_ALIVE).await;
            let kept = client.ask(Request::KeepAlive { lease }).await;
            if kept.is_some_and(|answer| answer.body == Body::KeptAlive { ttl_seconds: 0 }) {
                return;
            }
        }
        if client.below(3) == 0 {
            client.ask(Request::Revoke { lease }).await;
        }
    }
}
