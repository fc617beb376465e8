//! Leases, and all operations on keys attached to them.
//!
//! Some clients have a lease with one key each: it is kept alive for a while, then left to expire
//! or revoked. The others share a few keys and a pool of leases: they put keys with leases and
//! without, move keys from one lease to another, compare before they put or delete, delete whole
//! groups, and keep alive or revoke leases of the pool. History is compacted meanwhile. Every
//! answer follows from the log of changes, without any search (`check/replay.rs`,
//! `check/leases.rs`).

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::JoinSet;

use super::{AsyncClientStep, Client, Lab};
use crate::history::{Body, Condition, Freshness, Pair, Request, Step};

pub(super) const NAME: &str = "leases";

const CLIENTS: u64 = 20;
/// Number of clients that use a lease of their own, not the pool.
const ALONE: u64 = 4;
const PAUSE: Duration = Duration::from_millis(30);
const KEEP_ALIVE: Duration = Duration::from_millis(700);
const TTL_SECONDS_MAX: i64 = 4;
/// Most leases in the pool. The oldest ones are removed from it, and so expire.
const POOL: usize = 24;
const GROUPS: u64 = 4;
/// Number of keys in a group.
const KEYS: u64 = 6;
/// Interval of compactions. Revisions that a collector (`watch`) has not received are not
/// compacted.
const COMPACT_EVERY: Duration = Duration::from_secs(2);
const COMPACT_BEHIND: u64 = 300;

#[derive(Clone, Default)]
struct Leases {
    pool: Arc<Mutex<VecDeque<i64>>>,
}

pub(crate) fn start(lab: &Lab, tasks: &mut JoinSet<()>) {
    lab.clients(tasks, NAME, CLIENTS, PAUSE, |client| client.process % 1000 < ALONE, Leases::default());
    tasks.spawn(compact(lab.clone()));
}

impl AsyncClientStep<bool> for Leases {
    async fn step(&self, client: &mut Client, alone: &mut bool) {
        if *alone { one(client).await } else { self.any(client).await }
    }
}

/// Compacts history every [`COMPACT_EVERY`], by a request to a node that the client picks, until
/// the run stops.
async fn compact(lab: Lab) {
    let mut client = Client::new(lab.clone(), NAME, CLIENTS);
    loop {
        // The interval between two requests, not a wait for a condition.
        tokio::select! {
            () = tokio::time::sleep(COMPACT_EVERY) => {}
            () = lab.stop.cancelled() => return,
        }
        let revision = lab.watchers.collected() - client.below(COMPACT_BEHIND) as i64;
        if revision > 1 {
            // Refused if a later revision is compacted already, or while there is no leader.
            drop(lab.compact(client.node(), revision).await);
        }
    }
}

/// Grants a lease and attaches one key to it. Keeps it alive for a while, then revokes it or lets
/// it expire.
async fn one(client: &mut Client) {
    let Some(lease) = grant(client).await else { return };
    let value = client.value();
    client.ask(Request::Put { key: format!("leases/alone/{value}"), value, lease }).await;
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

async fn grant(client: &mut Client) -> Option<i64> {
    let ttl_seconds = 2 + client.below(TTL_SECONDS_MAX as u64 - 1) as i64;
    match client.ask(Request::Grant { ttl_seconds }).await?.body {
        Body::Granted { lease, .. } => Some(lease),
        _ => None,
    }
}

impl Leases {
    /// One random operation. Each kind is frequent enough to occur in two hundred calls.
    async fn any(&self, client: &mut Client) {
        let (group, key) = (group(client), key(client));
        match client.below(20) {
            0 | 1 => self.granted(client).await,
            2 => {
                if let Some(lease) = self.chosen(client, true) {
                    client.ask(Request::Revoke { lease }).await;
                }
            }
            3 => {
                if let Some(lease) = self.chosen(client, false) {
                    client.ask(Request::KeepAlive { lease }).await;
                }
            }
            4..=6 => {
                let (value, lease) = (client.value(), self.lease(client));
                client.ask(Request::Put { key, value, lease }).await;
            }
            7..=9 => {
                let (value, lease) = (client.value(), self.lease(client));
                client.ask(Request::Replace { key, value, lease }).await;
            }
            10 => {
                client.ask(Request::Delete { key }).await;
            }
            11 => {
                client.ask(Request::DeleteRange { prefix: group }).await;
            }
            12..=14 => self.compared(client, group, key).await,
            15..=17 => self.several(client).await,
            18 => {
                let freshness = Freshness::Serializable;
                client.ask(Request::Read { key: group, prefix: true, freshness }).await;
            }
            _ => {
                let freshness = Freshness::Linearizable;
                client.ask(Request::Read { key: "leases/".into(), prefix: true, freshness }).await;
            }
        }
    }

    async fn granted(&self, client: &mut Client) {
        let Some(lease) = grant(client).await else { return };
        let mut pool = self.pool.lock();
        pool.push_back(lease);
        if pool.len() > POOL {
            pool.pop_front();
        }
    }

    /// A random lease of the pool, which may have ended; `None` if the pool is empty. With `take`
    /// it is removed from the pool half of the time.
    fn chosen(&self, client: &mut Client, take: bool) -> Option<i64> {
        let mut pool = self.pool.lock();
        let index = client.below(pool.len().max(1) as u64) as usize;
        // A revoked lease stays in the pool half of the time, so that other clients try to use it.
        if take && client.below(2) == 0 { pool.remove(index) } else { pool.get(index).copied() }
    }

    /// The lease for a put: mostly one of the pool, else 0 (no lease).
    fn lease(&self, client: &mut Client) -> i64 {
        if client.below(4) == 0 { 0 } else { self.chosen(client, false).unwrap_or(0) }
    }

    /// Reads a key with its group, and then puts or deletes the key on condition that it is
    /// unchanged.
    async fn compared(&self, client: &mut Client, group: String, key: String) {
        let look = Request::Read { key: group, prefix: true, freshness: Freshness::Linearizable };
        let Some(Body::Pairs(pairs)) = client.ask(look).await.map(|answer| answer.body) else { return };
        let found = pairs.into_iter().find(|pair| pair.key == key);
        let found = found.unwrap_or_default();
        let (when, then) = if client.below(2) == 0 {
            // The revision in the condition distinguishes this deletion from others, if it is not
            // answered.
            (Condition::Modified { key: key.clone(), is: found.modified }, Step::Delete { key: key.clone() })
        } else {
            let (value, lease) = (client.value(), self.lease(client));
            (condition(client, &key, found), Step::Put { key: key.clone(), value, lease })
        };
        client.ask(Request::Txn { when: vec![when], then: vec![then], or_else: vec![Step::Get { key }] }).await;
    }

    /// Several operations in one transaction, on different keys.
    async fn several(&self, client: &mut Client) {
        let first = client.below(GROUPS);
        let group = |next| group_of((first + next) % GROUPS);
        let (a, b, c, d) = (group(0), group(1), group(2), group(3));
        let key = |client: &mut Client, group: &str| format!("{group}{}", client.below(KEYS));
        let (value, lease) = (client.value(), self.lease(client));
        let put = Step::Put { key: key(client, &a), value, lease };
        let delete = Step::Delete { key: key(client, &b) };
        let get = Step::Get { key: key(client, &c) };
        let or_put = Step::Put { key: key(client, &a), value: client.value(), lease: 0 };
        let mut then = vec![put, delete, get.clone()];
        if client.below(4) == 0 {
            then.push(Step::DeleteRange { prefix: d });
        }
        let key = key(client, &c);
        let when = match client.below(3) {
            0 => vec![],
            1 => vec![Condition::Created { key, is: 0 }],
            _ => vec![Condition::Lease { key, is: 0 }, Condition::Version { key: key_of(&b), is: 0 }],
        };
        client.ask(Request::Txn { when, then, or_else: vec![or_put, get] }).await;
    }
}

/// A condition that a key is unchanged, by one of its comparable fields.
fn condition(client: &mut Client, key: &str, found: Pair) -> Condition {
    let key = key.to_owned();
    match client.below(6) {
        0 => Condition::Created { key, is: found.created },
        1 if !found.value.is_empty() => Condition::Value { key, is: found.value },
        2 => Condition::Version { key, is: found.version },
        3 => Condition::Lease { key, is: found.lease },
        _ => Condition::Modified { key, is: found.modified },
    }
}

fn group(client: &mut Client) -> String {
    group_of(client.below(GROUPS))
}

fn group_of(number: u64) -> String {
    format!("leases/{number}/")
}

fn key(client: &mut Client) -> String {
    format!("{}{}", group(client), client.below(KEYS))
}

fn key_of(group: &str) -> String {
    format!("{group}0")
}
