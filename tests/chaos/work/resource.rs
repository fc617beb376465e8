//! Families of resources: a parent, its children, and sometimes a second life of the parent.
//!
//! A parent's name is used by one client alone, one request after the other, so its state in the
//! end follows from the last answers. Deleting a parent takes its children along, but not those of
//! its next life.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OnceCell;
use tokio::task::JoinSet;

use super::{AsyncClientStep, Client, Lab, REQUEST_TIMEOUT};
use crate::resource::{Act, Became, Life, carry_out, register};

const CLIENTS: u64 = 4;
const PAUSE: Duration = Duration::from_millis(40);
/// Of so many families one is left as it is: the more there are in the end, the more there is to
/// judge.
const LEFT: u64 = 6;

#[derive(Clone, Default)]
struct Families {
    registered: Arc<OnceCell<()>>,
}

pub(crate) fn start(lab: &Lab, tasks: &mut JoinSet<()>) {
    lab.clients(tasks, "resource", CLIENTS, PAUSE, |_| (), Families::default());
}

impl AsyncClientStep<()> for Families {
    async fn step(&self, client: &mut Client, (): &mut ()) {
        let node = client.node();
        let target = &client.lab.targets[node];
        if self.registered.get_or_try_init(|| register(target, REQUEST_TIMEOUT)).await.is_err() {
            return;
        }
        family(client).await;
    }
}

/// `None` as soon as one outcome is unknown.
async fn family(client: &mut Client) -> Option<()> {
    let parent = format!("family-{}", client.value());
    let mut life = write(client, &parent, None).await?;
    loop {
        let mut children = Vec::new();
        for number in 0..=client.below(4) {
            let child = format!("{parent}-{}-{number}", life.uid.to_lowercase());
            children.push(write(client, &child, Some(&life)).await?);
        }
        for _ in 0..client.below(3) {
            let again = children[client.below(children.len() as u64) as usize].name.clone();
            write(client, &again, Some(&life)).await?;
        }
        match client.below(LEFT) {
            0 => return Some(()),
            1 => {
                for child in children {
                    delete(client, child).await?;
                }
                return delete(client, life).await;
            }
            2 | 3 => {
                delete(client, life).await?;
                life = write(client, &parent, None).await?;
            }
            _ => return delete(client, life).await,
        }
    }
}

async fn write(client: &mut Client, name: &str, owner: Option<&Life>) -> Option<Life> {
    let value = client.value();
    let act = Act::Write { name: name.to_owned(), owner: owner.cloned(), value };
    match tell(client, act).await {
        Became::Written { uid, .. } => Some(Life { name: name.to_owned(), uid }),
        Became::Deleted | Became::Failed(_) | Became::Unknown(_) => None,
    }
}

async fn delete(client: &mut Client, life: Life) -> Option<()> {
    (tell(client, Act::Delete(life)).await == Became::Deleted).then_some(())
}

async fn tell(client: &mut Client, act: Act) -> Became {
    let node = client.node();
    let clock = client.lab.recorder.clock;
    let deed = carry_out(&client.lab.targets[node], clock, client.process, act, REQUEST_TIMEOUT).await;
    let became = deed.became.clone();
    client.lab.deeds.keep(deed);
    became
}
