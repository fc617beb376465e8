//! The faults: each breaks something, holds it broken for a while, heals it, and waits until every
//! node serves again.
//!
//! One file for each family. A fault removes all its damage, or returns an error, which fails the
//! run.

mod bits;
mod clock;
mod disk;
mod kill;
mod membership;
mod network;
mod pause;
mod power;
mod several;
mod storm;
mod upgrade;
mod wipe;

pub(crate) use self::kill::ELSEWHERE;
pub(crate) use self::wipe::LOAD;

use std::time::Duration;

use futures::future::BoxFuture;
use rand::Rng;
use rand::rngs::StdRng;

use crate::check::elections::Loss;
use crate::check::outage::Window;
use crate::history::Micros;
use crate::rig::Rig;
use crate::rig::ability;
use crate::rig::net::Kind as Network;
use crate::work::Lab;

/// The arguments and results of a fault.
pub(crate) struct Scene<'a> {
    pub rig: &'a Rig,
    pub lab: &'a Lab,
    pub rng: &'a mut StdRng,
    /// Planned moves of leadership within the fault. Outages of writes in them have narrower bounds
    /// than those of faults.
    pub moments: Vec<Window>,
    /// Periods within the fault in which packets were lost.
    pub losses: Vec<Loss>,
}

impl Scene<'_> {
    /// A node that the seed chooses.
    pub(crate) fn any(&mut self) -> usize {
        self.rng.random_range(0..self.rig.nodes.len())
    }

    /// A node that does not lead, chosen by the seed. Waits until there is a leader.
    pub(crate) async fn follower(&mut self) -> anyhow::Result<usize> {
        let leader = self.rig.leader().await?;
        let others = self.rig.nodes.len() - 1;
        Ok((leader + 1 + self.rng.random_range(0..others)) % (others + 1))
    }

    /// Waits for a random time in this range, milliseconds, while a fault is active.
    pub(crate) async fn hold(&mut self, range: std::ops::Range<u64>) {
        tokio::time::sleep(Duration::from_millis(self.rng.random_range(range))).await;
    }

    /// Records a planned move of leadership of the kind `how` that began at `begin` and is complete
    /// now.
    fn moved(&mut self, how: &str, begin: Micros) {
        self.moments.push(Window { fault: format!("{how} (each)"), begin, healed: self.rig.clock.now() });
    }

    /// As few nodes as make a majority, chosen by the seed.
    pub(crate) fn majority(&mut self) -> Vec<usize> {
        let count = self.rig.nodes.len();
        let first = self.any();
        (first..first + count / 2 + 1).map(|node| node % count).collect()
    }
}

/// A precondition of a fault that not every machine or not every run meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// Disks that are file systems of their own: need root, loop devices, ext4.
    Volume,
    /// A network between the nodes that can be broken: namespaces or proxies.
    Network,
    /// Proxies between the nodes: namespaces are not enough.
    Proxies,
    /// The program of the next version.
    Next,
    /// A C compiler, for the library that changes a node's clock.
    Compiler,
}

type Strike = for<'a> fn(&'a mut Scene<'_>) -> BoxFuture<'a, anyhow::Result<()>>;

/// A fault that can be chosen.
pub(crate) struct Fault {
    pub name: &'static str,
    pub help: &'static str,
    pub needs: &'static [Need],
    strike: Strike,
}

macro_rules! fault {
    ($name:literal, $help:literal, $needs:expr, $strike:path) => {
        Fault { name: $name, help: $help, needs: $needs, strike: |scene| Box::pin($strike(scene)) }
    };
}

/// Every fault.
pub(crate) const FAULTS: &[Fault] = &[
    fault!("kill", "one node is killed and started again", &[], kill::one),
    fault!("kill-follower", "a follower is killed, which must not be noticed elsewhere", &[], kill::follower),
    fault!("kill-leader", "the leader is killed and started again", &[], kill::leader),
    fault!("kill-majority", "a majority is killed at once and started again", &[], kill::majority),
    fault!("kill-all", "every node is killed at once and started again", &[], kill::all),
    fault!("transfer", "the leader is stopped in order and hands its leadership over", &[], kill::transfer),
    fault!("move-leader", "leadership is moved to another member, again and again", &[], membership::move_leader),
    fault!("pause", "one node stands still (SIGSTOP)", &[], pause::one),
    fault!("pause-leader", "the leader stands still", &[], pause::leader),
    fault!("pause-all", "every node stands still, one wakes after the other", &[], pause::all),
    fault!("partition-halves", "a minority is cut off from the majority", &[Need::Network], network::halves),
    fault!("partition-leader", "the leader is cut off from everybody", &[Need::Network], network::leader),
    fault!("partition-bridge", "two halves meet only through one node", &[Need::Network], network::bridge),
    fault!(
        "partition-one-way",
        "one node sends but does not hear, or the other way",
        &[Need::Network],
        network::one_way
    ),
    fault!("loss", "packets get lost everywhere", &[Need::Network], network::loss),
    fault!(
        "lossy-peers",
        "half of the bytes between one node and the others vanish for a second",
        &[Need::Proxies],
        network::lossy_peers
    ),
    fault!("slow-network", "everything that one node sends is slow", &[Need::Network], network::slow),
    fault!(
        "power-loss-one",
        "one node's machine loses power: what was not fsynced is gone",
        &[Need::Volume],
        power::one
    ),
    fault!("power-loss-all", "all machines lose power at the same moment", &[Need::Volume], power::all),
    fault!("full-disk", "a node's disk is full, then space is freed", &[Need::Volume], disk::full),
    fault!("failing-disk", "every write and fsync of a node fails", &[Need::Volume], disk::failing),
    fault!("read-only-disk", "a node's file system turns read-only", &[Need::Volume], disk::read_only),
    fault!("frozen-disk", "a node's disk does not answer for seconds", &[Need::Volume], disk::frozen),
    fault!("slow-disk", "a node's disk stutters", &[Need::Volume], disk::slow),
    fault!("flip-log", "a bit flips in a node's log", &[], bits::log),
    fault!("flip-state", "a bit flips in a node's state", &[], bits::state),
    fault!("flip-snapshot", "a bit flips in a snapshot that a node is receiving", &[], bits::snapshot),
    fault!("wipe", "a node loses all its data and comes back empty", &[], wipe::wipe),
    fault!("snapshot", "a node falls far behind and gets a snapshot under full load", &[], wipe::snapshot),
    fault!("compaction", "history is compacted every 200 ms", &[], storm::compaction),
    fault!("clock", "a node's clock jumps an hour ahead and back, and runs too fast", &[Need::Compiler], clock::jump),
    fault!("membership", "a member is removed, loses its data and joins again", &[], membership::churn),
    fault!(
        "upgrade",
        "a member is replaced by the next version's program, or taken back",
        &[Need::Next],
        upgrade::step
    ),
    fault!(
        "upgrade-cycle",
        "all members are replaced by the next version's program one by one, and taken back",
        &[Need::Next],
        upgrade::cycle
    ),
    fault!(
        "several",
        "nodes are killed, paused, wiped or lose power while the network is broken",
        &[Need::Network],
        several::together
    ),
];

/// Groups: a name, and the faults that it means.
pub(crate) const GROUPS: &[(&str, &[&str])] = &[
    ("kills", &["kill", "kill-follower", "kill-leader", "kill-majority", "kill-all"]),
    ("pauses", &["pause", "pause-leader", "pause-all"]),
    ("partition", &["partition-halves", "partition-leader", "partition-bridge", "partition-one-way"]),
    ("power-loss", &["power-loss-one", "power-loss-all"]),
    ("disk", &["full-disk", "failing-disk", "read-only-disk", "frozen-disk", "slow-disk"]),
    ("flip", &["flip-log", "flip-state", "flip-snapshot"]),
];

/// The reason why a fault is not possible at the moment. Not a failure of the cluster.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Skipped(pub String);

impl Fault {
    /// Breaks something, heals it, and waits until every node serves again.
    ///
    /// # Errors
    ///
    /// [`Skipped`], or a node or a service that did not come back.
    pub(crate) async fn strike(&self, scene: &mut Scene<'_>) -> anyhow::Result<()> {
        (self.strike)(scene).await
    }

    /// The reason why the fault cannot run on this machine; `None` if it can. Does not check
    /// whether the next version's program was named.
    pub(crate) fn impossible(&self) -> Option<String> {
        self.needs.iter().find_map(|need| match need {
            Need::Volume => ability::no_volumes(),
            // A proxy is always possible.
            Need::Network | Need::Proxies => None,
            // The command line checks it (`Args::impossible`).
            Need::Next => None,
            Need::Compiler => clock::missing(),
        })
    }

    pub(crate) fn needs(&self, need: Need) -> bool {
        self.needs.contains(&need)
    }
}

/// The kind of network for faults of the network: namespaces if this machine can make them, else
/// proxies.
pub(crate) fn network() -> Network {
    if ability::no_namespaces().is_none() { Network::Namespaces } else { Network::Proxies }
}

/// The fault with this name, or the faults of the group with this name; `None` for any other name.
pub(crate) fn named(name: &str) -> Option<Vec<&'static Fault>> {
    let find = |name: &str| FAULTS.iter().find(|fault| fault.name == name);
    if let Some((_, members)) = GROUPS.iter().find(|(group, _)| *group == name) {
        return members.iter().map(|member| find(member)).collect();
    }
    find(name).map(|fault| vec![fault])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_groups_name_faults() {
        let mut names: Vec<&str> =
            FAULTS.iter().map(|fault| fault.name).chain(GROUPS.iter().map(|(name, _)| *name)).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        for (group, members) in GROUPS {
            assert_eq!(named(group).unwrap().len(), members.len(), "{group}");
        }
        assert!(named("nothing").is_none());
    }
}
