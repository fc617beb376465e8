//! A write every 20 ms that does not wait for earlier answers. It measures outages of writes, and
//! its two-key transactions make revisions with more than one event.

use std::time::Duration;

use tokio::task::JoinSet;

use super::{Client, Lab};
use crate::history::{Request, Step};

/// Name of the workload.
pub(crate) const PROBE: &str = "probe";
const INTERVAL: Duration = Duration::from_millis(20);
/// Most writes in flight. While there are so many, no further ones are sent.
const OPEN_MAX: usize = 300;

pub(crate) fn start(lab: &Lab, tasks: &mut JoinSet<()>) {
    let lab = lab.clone();
    tasks.spawn(async move {
        let mut ticks = tokio::time::interval(INTERVAL);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        let mut open = JoinSet::new();
        for number in 0.. {
            tokio::select! {
                () = lab.stop.cancelled() => break,
                _ = ticks.tick() => {}
            }
            while open.try_join_next().is_some() {}
            if open.len() < OPEN_MAX {
                let mut client = Client::new(lab.clone(), PROBE, number);
                let node = number as usize % lab.targets.len();
                open.spawn(async move {
                    let value = client.value();
                    let put = |key: &str| Step::Put { key: key.to_owned(), value: value.clone(), lease: 0 };
                    let request = match number % 4 {
                        0 => Request::Txn { when: vec![], then: vec![put("probe/a"), put("probe/b")], or_else: vec![] },
                        _ => Request::Put { key: format!("probe/{}", number % 10), value: value.clone(), lease: 0 },
                    };
                    client.send_to(node, request).await;
                });
            }
        }
        // Requests under way are part of the history.
        while open.join_next().await.is_some() {}
    });
}
