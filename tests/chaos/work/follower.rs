//! Reads from any node. A write through one node is read through a random one with a minimum index.
//! Serializable reads of one node never go backwards.

use std::time::Duration;

use tokio::task::JoinSet;

use super::{AsyncClientStep, Client, Lab};
use crate::history::{Freshness, Request};

const CLIENTS: u64 = 4;
const PAUSE: Duration = Duration::from_millis(15);

#[derive(Clone)]
struct Follower;

pub(crate) fn start(lab: &Lab, tasks: &mut JoinSet<()>) {
    lab.clients(tasks, "follower", CLIENTS, PAUSE, |_| (), Follower);
}

impl AsyncClientStep<()> for Follower {
    async fn step(&self, client: &mut Client, (): &mut ()) {
        let key = format!("follower/{}", client.below(4));
        let node = client.below(client.lab.targets.len() as u64) as usize;
        let put = Request::Put { key: key.clone(), value: client.value(), lease: 0 };
        if let Some(index) = client.ask(put).await.map(|answer| answer.index) {
            let read = Request::Read { key: key.clone(), prefix: false, freshness: Freshness::AtLeast(index) };
            client.send_to(node, read).await;
        }
        let read = Request::Read { key, prefix: false, freshness: Freshness::Serializable };
        client.send_to(node, read).await;
    }
}
