//! Single keys: read, write, compare-and-swap. After two hundred operations on a key, a new key
//! takes its slot, so that the checker's search for an order stays short (spec: reliability §2.1).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;

use super::{AsyncClientStep, Client, Lab};
use crate::history::{Body, Condition, Freshness, Request, Step};

const CLIENTS: u64 = 6;
const KEYS: u64 = 3;
const OPERATIONS_A_KEY: u64 = 200;
const PAUSE: Duration = Duration::from_millis(15);

#[derive(Clone, Default)]
struct Register {
    done: Arc<[AtomicU64; KEYS as usize]>,
}

pub(crate) fn start(lab: &Lab, tasks: &mut JoinSet<()>) {
    lab.clients(tasks, "register", CLIENTS, PAUSE, |_| None, Register::default());
}

/// The state of a client is the key and the value of its last request, if that was a read that
/// found the key; else `None`.
impl AsyncClientStep<Option<(String, String)>> for Register {
    async fn step(&self, client: &mut Client, last: &mut Option<(String, String)>) {
        let slot = client.below(KEYS);
        let generation = self.done[slot as usize].fetch_add(1, Ordering::Relaxed) / OPERATIONS_A_KEY;
        let key = format!("register/{slot}-{generation}");
        let known = last.take().filter(|(read, _)| *read == key);
        let request = match (client.below(10), known) {
            (0..5, _) | (8.., None) => {
                Request::Read { key: key.clone(), prefix: false, freshness: Freshness::Linearizable }
            }
            (5..8, _) => Request::Put { key: key.clone(), value: client.value(), lease: 0 },
            (_, Some((_, value))) => Request::Txn {
                when: vec![Condition::Value { key: key.clone(), is: value }],
                then: vec![Step::Put { key: key.clone(), value: client.value(), lease: 0 }],
                or_else: vec![],
            },
        };
        if let Some(Body::Pairs(pairs)) = client.ask(request).await.map(|answer| answer.body) {
            *last = pairs.into_iter().next().map(|pair| (key, pair.value));
        }
    }
}
