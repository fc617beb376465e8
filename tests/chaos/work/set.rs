//! Sets: unique elements are added as keys below a prefix, and whole sets are read.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;

use super::{AsyncClientStep, Client, Lab};
use crate::history::{Freshness, Request};

const CLIENTS: u64 = 4;
/// Number of operations on one set. Then another set is begun, so that reads stay small.
const ELEMENTS: u64 = 300;
const PAUSE: Duration = Duration::from_millis(15);

/// Prefix of all keys of this workload.
pub(crate) const PREFIX: &str = "set/";

#[derive(Clone, Default)]
struct Set {
    added: Arc<AtomicU64>,
}

pub(crate) fn start(lab: &Lab, tasks: &mut JoinSet<()>) {
    lab.clients(tasks, "set", CLIENTS, PAUSE, |_| (), Set::default());
}

impl AsyncClientStep<()> for Set {
    async fn step(&self, client: &mut Client, (): &mut ()) {
        let set = self.added.fetch_add(1, Ordering::Relaxed) / ELEMENTS;
        let prefix = format!("{PREFIX}{set}/");
        let request = if client.below(20) == 0 {
            Request::Read { key: prefix, prefix: true, freshness: Freshness::Linearizable }
        } else {
            let element = client.value();
            Request::Put { key: format!("{prefix}{element}"), value: element, lease: 0 }
        };
        client.ask(request).await;
    }
}
