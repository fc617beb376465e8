//! Transactions over several lists: some are read, some get an element appended, atomically.
//!
//! The store cannot append, so a client reads the lists and writes them back on condition that no
//! other client has written them meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::JoinSet;

use super::{AsyncClientStep, Client, Lab};
use crate::check::elle::elements;
use crate::history::{Body, Condition, Pair, Request, Step, StepDone};

const CLIENTS: u64 = 5;
const SLOTS: usize = 5;
/// Number of elements of a full list: then a new list takes its slot.
const ELEMENTS: usize = 50;
const PAUSE: Duration = Duration::from_millis(10);

#[derive(Clone, Default)]
struct Append {
    /// Number of full lists that each slot has had: part of the key of its present list.
    generations: Arc<Mutex<[u64; SLOTS]>>,
    next: Arc<AtomicU64>,
}

pub(crate) fn start(lab: &Lab, tasks: &mut JoinSet<()>) {
    lab.clients(tasks, "append", CLIENTS, PAUSE, |_| (), Append::default());
}

impl Append {
    fn keys(&self, client: &mut Client) -> Vec<(usize, u64, String)> {
        let count = 1 + client.below(3) as usize;
        let first = client.below(SLOTS as u64) as usize;
        let generations = *self.generations.lock();
        let slots = (first..first + count).map(|slot| slot % SLOTS);
        slots.map(|slot| (slot, generations[slot], format!("append/{slot}-{}", generations[slot]))).collect()
    }

    fn retire(&self, slot: usize, generation: u64) {
        let mut generations = self.generations.lock();
        generations[slot] = generations[slot].max(generation + 1);
    }
}

impl AsyncClientStep<()> for Append {
    async fn step(&self, client: &mut Client, (): &mut ()) {
        let keys = self.keys(client);
        let gets: Vec<Step> = keys.iter().map(|(_, _, key)| Step::Get { key: key.clone() }).collect();
        let read = Request::Txn { when: vec![], then: gets.clone(), or_else: vec![] };
        let Some(Body::Txn { steps, .. }) = client.ask(read).await.map(|answer| answer.body) else { return };
        let found: Vec<Option<Pair>> = steps
            .into_iter()
            .map(|step| match step {
                StepDone::Got(pair) => pair,
                StepDone::Put | StepDone::Deleted(_) | StepDone::Removed { .. } => None,
            })
            .collect();
        let (mut when, mut then) = (Vec::new(), Vec::new());
        for ((slot, generation, key), pair) in keys.iter().zip(&found) {
            if client.below(3) == 0 {
                then.push(Step::Get { key: key.clone() });
                continue;
            }
            let list = pair.as_ref().map_or("", |pair| &pair.value);
            if elements(list).len() >= ELEMENTS {
                self.retire(*slot, *generation);
            }
            let element = self.next.fetch_add(1, Ordering::Relaxed) + 1;
            let value = if list.is_empty() { element.to_string() } else { format!("{list} {element}") };
            when.push(Condition::Modified { key: key.clone(), is: pair.as_ref().map_or(0, |pair| pair.modified) });
            then.push(Step::Put { key: key.clone(), value, lease: 0 });
        }
        client.ask(Request::Txn { when, then, or_else: gets }).await;
    }
}
