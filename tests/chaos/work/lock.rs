//! A lock made of a lease and a key, and a counter that it protects.
//!
//! The creator of the key holds the lock until its lease ends. A lease alone excludes no one: its
//! holder may be slow and not know that it has ended. So every write under the lock is on condition
//! that the key is still the holder's (the revision of its creation is the fencing token). The
//! control `unfenced-lock` omits the condition.

use std::time::Duration;

use tokio::task::JoinSet;

use super::{AsyncClientStep, Client, Control, Lab};
use crate::check::lock::{COUNTER, count};
use crate::history::{Body, Condition, Freshness, Request, Step};

const CLIENTS: u64 = 4;
const PAUSE: Duration = Duration::from_millis(30);
const TTL_SECONDS: i64 = 2;
const KEY: &str = "lock/holder";
/// Pause that a holder makes now and then before it writes: longer than its lease lives.
const DAWDLE: Duration = Duration::from_millis(4500);

#[derive(Clone)]
struct Lock;

pub(crate) fn start(lab: &Lab, tasks: &mut JoinSet<()>) {
    lab.clients(tasks, "lock", CLIENTS, PAUSE, |_| (), Lock);
}

impl AsyncClientStep<()> for Lock {
    async fn step(&self, client: &mut Client, (): &mut ()) {
        let granted = client.ask(Request::Grant { ttl_seconds: TTL_SECONDS }).await;
        let Some(Body::Granted { lease, .. }) = granted.map(|answer| answer.body) else { return };
        let value = client.value();
        let acquire = Request::Txn {
            when: vec![Condition::Created { key: KEY.into(), is: 0 }],
            then: vec![Step::Put { key: KEY.into(), value, lease }],
            or_else: vec![],
        };
        let acquired = client.ask(acquire).await;
        if let Some(token) = acquired
            .filter(|answer| matches!(answer.body, Body::Txn { succeeded: true, .. }))
            .map(|answer| answer.revision)
        {
            hold(client, token).await;
        }
        // Also after an unknown outcome: the lock must not stay taken until the lease expires.
        client.ask(Request::Revoke { lease }).await;
    }
}

async fn hold(client: &mut Client, token: i64) {
    for _ in 0..5 {
        let read = Request::Read { key: COUNTER.into(), prefix: false, freshness: Freshness::Linearizable };
        let Some(Body::Pairs(pairs)) = client.ask(read).await.map(|answer| answer.body) else { return };
        let before = pairs.first().and_then(|pair| count(&pair.value)).unwrap_or(0);
        if client.below(12) == 0 {
            tokio::time::sleep(DAWDLE).await;
        }
        let fence = Condition::Created { key: KEY.into(), is: token };
        let fenced = client.lab.control != Some(Control::UnfencedLock);
        let value = format!("{} {}", before + 1, client.value());
        let write = Request::Txn {
            when: if fenced { vec![fence] } else { vec![] },
            then: vec![Step::Put { key: COUNTER.into(), value, lease: 0 }],
            or_else: vec![],
        };
        match client.ask(write).await.map(|answer| answer.body) {
            Some(Body::Txn { succeeded: true, .. }) => {}
            // Another client has the lock now, or the outcome is unknown.
            _ => return,
        }
    }
}
