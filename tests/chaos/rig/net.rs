//! The network between the nodes. Faults break it, each direction between two nodes by itself.
//!
//! Three kinds: plain loopback, which cannot be broken; a network namespace for each node, where
//! nftables drops packets (needs root); and a proxy in front of each peer port, which holds bytes
//! back (for all other users). Clients always reach every node.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, bail};

use super::proxy::Proxies;
use super::{leftovers, tool};

/// Kind of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Loopback,
    Proxies,
    Namespaces,
}

/// Candidates for the network of the namespaces: the number N of 10.213.N.0/24, a rarely used
/// range.
const NETWORKS: std::ops::Range<u8> = 100..200;

/// Most nodes of a run.
const NODES_MAX: usize = 7;

/// The network of one run.
pub(crate) struct Net {
    nodes: usize,
    form: Form,
    removed: AtomicBool,
}

enum Form {
    Loopback { first_port: u16 },
    Proxies { first_port: u16, proxies: Proxies },
    Namespaces { number: u8 },
}

impl Net {
    /// Makes the network.
    pub(crate) async fn create(kind: Kind, nodes: usize, first_port: u16) -> anyhow::Result<Self> {
        let form = match kind {
            Kind::Loopback => Form::Loopback { first_port },
            Kind::Proxies => {
                let ports = (0..nodes).map(|node| (proxy_port(first_port, node), peer_port(first_port, node)));
                Form::Proxies { first_port, proxies: Proxies::start(ports.collect()).await? }
            }
            Kind::Namespaces => Form::Namespaces { number: make_namespaces(nodes).await? },
        };
        Ok(Self { nodes, form, removed: AtomicBool::new(false) })
    }

    pub(crate) fn kind(&self) -> Kind {
        match self.form {
            Form::Loopback { .. } => Kind::Loopback,
            Form::Proxies { .. } => Kind::Proxies,
            Form::Namespaces { .. } => Kind::Namespaces,
        }
    }

    /// Address of a node's client port.
    pub(crate) fn client(&self, node: usize) -> String {
        match &self.form {
            Form::Loopback { first_port } | Form::Proxies { first_port, .. } => {
                format!("127.0.0.1:{}", first_port + 2 * node as u16)
            }
            Form::Namespaces { number } => format!("{}:2379", address(*number, node)),
        }
    }

    /// The IP address of a node's ports.
    pub(crate) fn host(&self, node: usize) -> String {
        match &self.form {
            Form::Loopback { .. } | Form::Proxies { .. } => "127.0.0.1".to_owned(),
            Form::Namespaces { number } => address(*number, node),
        }
    }

    /// Address at which the other nodes reach a node's peer port: that of its proxy, if there is
    /// one.
    pub(crate) fn peer(&self, node: usize) -> String {
        match &self.form {
            Form::Loopback { first_port } => format!("127.0.0.1:{}", peer_port(*first_port, node)),
            Form::Proxies { first_port, .. } => format!("127.0.0.1:{}", proxy_port(*first_port, node)),
            Form::Namespaces { number } => format!("{}:2380", address(*number, node)),
        }
    }

    /// Address at which a node's peer port listens, behind its proxy.
    pub(crate) fn listen_peer(&self, node: usize) -> String {
        match &self.form {
            Form::Proxies { first_port, .. } => format!("127.0.0.1:{}", peer_port(*first_port, node)),
            Form::Loopback { .. } | Form::Namespaces { .. } => self.peer(node),
        }
    }

    /// Name of the network namespace that a node runs in; `None` for the machine's own.
    pub(crate) fn namespace(&self, node: usize) -> Option<String> {
        match &self.form {
            Form::Namespaces { number } => Some(space(*number, node)),
            Form::Loopback { .. } | Form::Proxies { .. } => None,
        }
    }

    /// The enemy's network namespace, or the source address of its connections without one. The
    /// enemy never has the address of a node.
    pub(crate) fn enemy(&self) -> (Option<String>, Option<&'static str>) {
        match &self.form {
            Form::Namespaces { number } => (Some(enemy_space(*number)), None),
            // All of 127.0.0.0/8 is this machine.
            Form::Loopback { .. } | Form::Proxies { .. } => (None, Some("127.0.0.66")),
        }
    }

    /// Registers the process id of a node: a proxy identifies a connecting node by its process.
    pub(crate) fn process(&self, node: usize, pid: u32) {
        if let Form::Proxies { proxies, .. } = &self.form {
            proxies.set_process(node, pid);
        }
    }

    /// Cuts one direction: nothing sent by `from` reaches `to`.
    pub(crate) async fn cut(&self, from: usize, to: usize) -> anyhow::Result<()> {
        match &self.form {
            Form::Loopback { .. } => bail!("this network cannot be broken"),
            Form::Proxies { proxies, .. } => proxies.set(from, to, |link| link.cut = true),
            Form::Namespaces { number } => self.rule(*number, from, to, "drop").await?,
        }
        Ok(())
    }

    /// Loses `percent` of the packets from `from` to `to`. TCP sends lost packets again, so they
    /// only come late. A proxy delays chunks instead.
    pub(crate) async fn lose(&self, from: usize, to: usize, percent: u8) -> anyhow::Result<()> {
        match &self.form {
            Form::Loopback { .. } => bail!("this network cannot be broken"),
            Form::Proxies { proxies, .. } => proxies.set(from, to, |link| link.loss_percent = percent),
            Form::Namespaces { number } => {
                self.rule(*number, from, to, &format!("numgen random mod 100 < {percent} drop")).await?;
            }
        }
        Ok(())
    }

    /// Drops `percent` of the bytes from `from` to `to`, from the middle of streams, for good. Only
    /// proxies can: on a network, TCP repairs losses. An error for networks of other kinds.
    pub(crate) fn drop_bytes(&self, from: usize, to: usize, percent: u8) -> anyhow::Result<()> {
        match &self.form {
            Form::Loopback { .. } | Form::Namespaces { .. } => bail!("bytes are only dropped by proxies"),
            Form::Proxies { proxies, .. } => proxies.set(from, to, |link| link.drop_percent = percent),
        }
        Ok(())
    }

    /// Slows a node. Proxies delay the bytes from and to it by `delay`. In a namespace all that it
    /// sends has a low rate, and `delay` is ignored.
    pub(crate) async fn slow(&self, node: usize, delay: Duration) -> anyhow::Result<()> {
        match &self.form {
            Form::Loopback { .. } => bail!("this network cannot be broken"),
            Form::Proxies { proxies, .. } => {
                for other in (0..self.nodes).filter(|other| *other != node) {
                    proxies.set(node, other, |link| link.delay = delay);
                    proxies.set(other, node, |link| link.delay = delay);
                }
            }
            Form::Namespaces { number } => {
                let name = space(*number, node);
                let limit = ["tbf", "rate", "2mbit", "burst", "16kb", "latency", "400ms"];
                let mut arguments = vec!["-n", &name, "qdisc", "replace", "dev", "eth0", "root"];
                arguments.extend(limit);
                tool::run("tc", &arguments).await?;
            }
        }
        Ok(())
    }

    /// Ends all damage between all nodes: cuts, losses, dropped bytes and delays.
    pub(crate) async fn heal(&self) -> anyhow::Result<()> {
        match &self.form {
            Form::Loopback { .. } => {}
            Form::Proxies { proxies, .. } => proxies.heal(),
            Form::Namespaces { number } => {
                for node in 0..self.nodes {
                    let name = space(*number, node);
                    tool::run("ip", &["netns", "exec", &name, "nft", "flush", "chain", "inet", "chaos", "in"]).await?;
                    // There may be no such rule.
                    drop(tool::run("tc", &["-n", &name, "qdisc", "del", "dev", "eth0", "root"]).await);
                }
            }
        }
        Ok(())
    }

    async fn rule(&self, number: u8, from: usize, to: usize, action: &str) -> anyhow::Result<()> {
        let (name, source) = (space(number, to), address(number, from));
        let rule = format!("add rule inet chaos in ip saddr {source} {action}");
        tool::run("ip", &["netns", "exec", &name, "nft", &rule]).await?;
        Ok(())
    }

    /// Removes the namespaces and their bridge, if there are any. Further calls do nothing.
    pub(crate) async fn remove(&self) {
        if let Form::Namespaces { number } = &self.form
            && !self.removed.swap(true, Ordering::SeqCst)
        {
            remove_namespaces(*number, self.nodes).await;
        }
    }
}

fn peer_port(first_port: u16, node: usize) -> u16 {
    first_port + 2 * node as u16 + 1
}

fn proxy_port(first_port: u16, node: usize) -> u16 {
    first_port + 50 + node as u16
}

fn address(number: u8, node: usize) -> String {
    format!("10.213.{number}.{}", node + 1)
}

fn space(number: u8, node: usize) -> String {
    format!("hw{number}n{}", node + 1)
}

fn enemy_space(number: u8) -> String {
    format!("hw{number}enemy")
}

/// Name of the bridge's interface that leads to the enemy.
fn enemy_outside(number: u8) -> String {
    format!("hw{number}ve")
}

/// Name of the bridge's interface that leads to a node.
fn outside(number: u8, node: usize) -> String {
    format!("hw{number}v{}", node + 1)
}

fn bridge(number: u8) -> String {
    format!("hw{number}br")
}

/// Chooses a free network and makes its bridge and namespaces; returns its number.
async fn make_namespaces(nodes: usize) -> anyhow::Result<u8> {
    for number in NETWORKS {
        // The bridge's name is the lock: only one process can create it.
        if tool::run("ip", &["link", "add", &bridge(number), "type", "bridge"]).await.is_ok() {
            tool::run("ip", &["link", "set", &bridge(number), "alias", &leftovers::own_id()]).await?;
            if let Err(error) = fill_network(number, nodes).await {
                remove_namespaces(number, nodes).await;
                return Err(error);
            }
            return Ok(number);
        }
    }
    bail!("no network of 10.213.{NETWORKS:?} is free; `ip link` shows what is left of other runs")
}

/// Removes networks of processes that have ended: `runs` returns false for the id of their owner.
pub(super) async fn sweep(runs: impl Fn(&str) -> bool) {
    for number in NETWORKS {
        let Ok(owner) = std::fs::read_to_string(format!("/sys/class/net/{}/ifalias", bridge(number))) else { continue };
        // A bridge without an owner is just being made.
        if !owner.trim().is_empty() && !runs(&owner) {
            eprintln!("removing the network {}, left behind by a run that was killed", bridge(number));
            remove_namespaces(number, NODES_MAX).await;
        }
    }
}

async fn fill_network(number: u8, nodes: usize) -> anyhow::Result<()> {
    let bridge = bridge(number);
    tool::run("ip", &["addr", "add", &format!("10.213.{number}.254/24"), "dev", &bridge]).await?;
    tool::run("ip", &["link", "set", &bridge, "up"]).await?;
    fill_namespace(&bridge, &enemy_space(number), &enemy_outside(number), &format!("10.213.{number}.200")).await?;
    for node in 0..nodes {
        let name = space(number, node);
        fill_namespace(&bridge, &name, &outside(number, node), &address(number, node)).await?;
        let chain = "add table inet chaos; add chain inet chaos in { type filter hook input priority 0; }";
        tool::run("ip", &["netns", "exec", &name, "nft", chain]).await.context("nftables")?;
    }
    Ok(())
}

/// Makes the namespace `name`. Its interface has the address `own`, and is connected to the bridge
/// by the interface `outside`.
async fn fill_namespace(bridge: &str, name: &str, outside: &str, own: &str) -> anyhow::Result<()> {
    // An interface of an earlier network may still wait for the end of its last connection.
    drop(tool::run("ip", &["link", "del", outside]).await);
    tool::run("ip", &["netns", "add", name]).await?;
    let link = ["link", "add", outside, "type", "veth", "peer", "name", "eth0", "netns", name];
    tool::run("ip", &link).await?;
    tool::run("ip", &["link", "set", outside, "master", bridge, "up"]).await?;
    tool::run("ip", &["-n", name, "addr", "add", &format!("{own}/24"), "dev", "eth0"]).await?;
    tool::run("ip", &["-n", name, "link", "set", "eth0", "up"]).await?;
    tool::run("ip", &["-n", name, "link", "set", "lo", "up"]).await?;
    Ok(())
}

async fn remove_namespaces(number: u8, nodes: usize) {
    drop(tool::run("ip", &["link", "del", &enemy_outside(number)]).await);
    drop(tool::run("ip", &["netns", "del", &enemy_space(number)]).await);
    for node in 0..nodes {
        // Without this the pair of interfaces would stay until the last connection of the namespace
        // times out. Errors are ignored: the namespace may not have been made.
        drop(tool::run("ip", &["link", "del", &outside(number, node)]).await);
        drop(tool::run("ip", &["netns", "del", &space(number, node)]).await);
    }
    drop(tool::run("ip", &["link", "del", &bridge(number)]).await);
}
