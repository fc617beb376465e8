//! Families of resources: a parent, its children, and sometimes further lives of the parent, each
//! with another uid.
//!
//! A parent's name is used by one client only, one request after the other, so its final state
//! follows from the last answers. Deleting a parent removes its children, but not those of its next
//! life.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OnceCell;
use tokio::task::JoinSet;

use super::{AsyncClientStep, Client, Lab, REQUEST_TIMEOUT};
use crate::resource::{KIND, ResourceIdentity, ResourceOutcome, ResourceRequest, carry_out, register};

const CLIENTS: u64 = 4;
const PAUSE: Duration = Duration::from_millis(40);
/// One of so many complete generations of a family, on average, stays undeleted: the checker judges
/// it in the end.
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
        if self.registered.get_or_try_init(|| register(target, KIND, REQUEST_TIMEOUT)).await.is_err() {
            return;
        }
        family(client).await;
    }
}

/// Makes a parent and its children, and usually deletes the parent again; sometimes then makes it
/// anew with other children. Returns `None` as soon as a request does not succeed.
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

async fn write(client: &mut Client, name: &str, owner: Option<&ResourceIdentity>) -> Option<ResourceIdentity> {
    let value = client.value();
    let act = ResourceRequest::Write { name: name.to_owned(), owner: owner.cloned(), value };
    match execute(client, act).await {
        ResourceOutcome::Written { uid, .. } => Some(ResourceIdentity { name: name.to_owned(), uid }),
        ResourceOutcome::Deleted | ResourceOutcome::Failed(_) | ResourceOutcome::Unknown(_) => None,
    }
}

async fn delete(client: &mut Client, life: ResourceIdentity) -> Option<()> {
    (execute(client, ResourceRequest::Delete(life)).await == ResourceOutcome::Deleted).then_some(())
}

async fn execute(client: &mut Client, act: ResourceRequest) -> ResourceOutcome {
    let node = client.node();
    let clock = client.lab.recorder.clock;
    let deed = carry_out(&client.lab.targets[node], clock, client.process, act, REQUEST_TIMEOUT).await;
    let became = deed.became.clone();
    client.lab.deeds.keep(deed);
    became
}
