//! The cluster under attack: three processes on loopback addresses of their own, and connections to
//! them.
//!
//! Owns folders, addresses and processes. Invariant: no process outlives the rig.

mod node;
mod program;
mod reach;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

pub(crate) use node::Node;
pub(crate) use program::run_program;
pub(crate) use reach::{Reach, client_config};

use crate::target::Needs;

/// Longest wait for a cluster that starts, or that recovers from an attack.
pub(crate) const RECOVERY_TIMEOUT: Duration = Duration::from_secs(90);
/// Number of members.
const MEMBERS: usize = 3;
/// Number of rigs that this process has started: each has addresses of its own.
static RIGS: AtomicUsize = AtomicUsize::new(0);
/// Manifests with types and resources that are stored before an attack.
const EXAMPLES: &[&str] = &["demo-types.yaml", "demo-resources.yaml"];

/// A cluster of processes under attack.
pub(crate) struct Rig {
    pub(crate) dir: PathBuf,
    pub(crate) binary: PathBuf,
    pub(crate) nodes: Vec<Node>,
    pub(crate) reach: Reach,
    pub(crate) needs: Needs,
}

impl Rig {
    /// Starts a cluster below `dir`, waits until it serves, and stores the example types and
    /// resources.
    pub(crate) async fn start(dir: PathBuf, binary: PathBuf, needs: Needs) -> anyhow::Result<Arc<Self>> {
        std::fs::create_dir_all(&dir)?;
        let rig = RIGS.fetch_add(1, Ordering::Relaxed);
        let hosts: Vec<Ipv4Addr> = (0..MEMBERS).map(|index| own_address(rig, index)).collect();
        let certs = dir.join("certs");
        if needs == Needs::Tls {
            let mut arguments = vec!["certs".to_owned(), certs.display().to_string(), "--client".into(), "ops".into()];
            for (index, host) in hosts.iter().enumerate() {
                arguments.extend(["--member".to_owned(), format!("node{}={host}", index + 1)]);
            }
            run_program(&binary, &arguments, Duration::from_secs(60)).await?.succeeded()?;
        }
        let nodes =
            (0..MEMBERS).map(|index| Node::new(&dir, index, &hosts, needs)).collect::<anyhow::Result<Vec<_>>>()?;
        for node in &nodes {
            node.start(&binary)?;
        }
        let reach = if needs == Needs::Tls { Reach::by_tls(&certs)? } else { Reach::plain() };
        let rig = Self { dir, binary, nodes, reach, needs };
        rig.wait_ready().await?;
        rig.load_examples().await?;
        Ok(Arc::new(rig))
    }

    /// Waits until every node answers `/readyz` with 200. An error if a node has ended, or after
    /// [`RECOVERY_TIMEOUT`].
    pub(crate) async fn wait_ready(&self) -> anyhow::Result<()> {
        let give_up = Instant::now() + RECOVERY_TIMEOUT;
        for node in &self.nodes {
            loop {
                if let Some(end) = node.ended() {
                    bail!("node {} has ended: {end}\n{}", node.id, node.last_lines(5));
                }
                let answer = self.reach.get(node.client, "/readyz?verbose").await;
                match answer {
                    Ok((200, _)) => break,
                    _ if Instant::now() < give_up => tokio::time::sleep(Duration::from_millis(100)).await,
                    Ok((status, body)) => bail!("node {} is not ready: {status} {}", node.id, body.trim()),
                    Err(error) => return Err(error.context(format!("node {} does not answer /readyz", node.id))),
                }
            }
        }
        Ok(())
    }

    async fn load_examples(&self) -> anyhow::Result<()> {
        let examples = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples");
        let mut arguments = vec!["resource".to_owned(), "apply".into()];
        for name in EXAMPLES {
            arguments.extend(["-f".to_owned(), examples.join(name).display().to_string()]);
        }
        arguments.extend(self.client_arguments());
        let ran = run_program(&self.binary, &arguments, RECOVERY_TIMEOUT).await?;
        ran.succeeded().context("the examples")
    }

    /// Arguments of client commands of `headwater`: endpoints, and certificates with TLS.
    pub(crate) fn client_arguments(&self) -> Vec<String> {
        let scheme = if self.needs == Needs::Tls { "https://" } else { "" };
        let endpoints: Vec<String> = self.nodes.iter().map(|node| format!("{scheme}{}", node.client)).collect();
        let mut arguments = vec!["--endpoints".to_owned(), endpoints.join(",")];
        if self.needs == Needs::Tls {
            let file = |name: &str| self.dir.join("certs").join(name).display().to_string();
            for (flag, name) in [("--cacert", "client-ca.crt"), ("--cert", "ops.crt"), ("--key", "ops.key")] {
                arguments.extend([flag.to_owned(), file(name)]);
            }
        }
        arguments
    }

    /// The node with the index `number` modulo the number of nodes.
    pub(crate) fn node(&self, number: usize) -> &Node {
        &self.nodes[number % self.nodes.len()]
    }

    /// Kills all processes.
    pub(crate) async fn stop(&self) {
        for node in &self.nodes {
            node.kill().await;
        }
    }
}

/// The loopback address of the member `index` of the rig `rig`. It depends on this process's id, so
/// that fixed ports are free there.
fn own_address(rig: usize, index: usize) -> Ipv4Addr {
    let [_, _, high, low] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, 100 + (high & 0x3F), low, (1 + (MEMBERS * rig + index) % 250) as u8)
}

/// Addresses of a node: client port, peer port, DNS, and DNS over TLS.
pub(crate) fn ports(host: Ipv4Addr) -> [SocketAddr; 4] {
    [2379, 2380, 8600, 8853].map(|port| SocketAddr::from((host, port)))
}
