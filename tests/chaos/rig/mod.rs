//! The cluster under test: real processes on disks and networks that can be broken.
//!
//! Owns processes, addresses, the nodes' output, and the marks of the timeline. Does not depend on
//! workloads or checkers. Invariant: the rig removes everything that it made (processes, mounts,
//! namespaces), also when a run fails or is told to stop. The next run removes the leftovers of a
//! run that was killed.

pub(crate) mod ability;
mod auth;
mod certs;
pub(crate) mod disk;
pub(crate) mod enemy;
mod joining;
mod leftovers;
pub(crate) mod net;
pub(crate) mod node;
pub(crate) mod proxy;
pub(crate) mod tool;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use headwater_proto::pb::etcdserverpb::cluster_client::ClusterClient;
use headwater_proto::pb::etcdserverpb::{Member, MemberListRequest, StatusRequest};
use headwater_tls::Dialer;
use parking_lot::Mutex;

use self::certs::Certs;
use self::disk::Disk;
use self::enemy::{Enemy, EnemyOptions};
use self::net::Net;
use self::node::{Launch, Node};
use crate::check::crash::Incarnation;
use crate::check::usage::NodeUsage;
use crate::client::Target;
use crate::history::{Clock, Freshness, Micros, Outcome, Request};
use crate::login::{Login, ROOT};
use crate::retry_budget::RetryBudget;

/// Longest wait for a state of the cluster: longer than an intact cluster takes on a loaded
/// machine, so that only a defect exceeds it.
pub(crate) const CLUSTER_TIMEOUT: Duration = Duration::from_secs(90);
const POLL: Duration = Duration::from_millis(50);
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
const STATUS_TIMEOUT: Duration = Duration::from_millis(500);

/// Options of a rig.
pub(crate) struct RigOptions {
    pub binary: PathBuf,
    /// The program of the next version; `None` for a run without an upgrade.
    pub next: Option<PathBuf>,
    pub dir: PathBuf,
    pub nodes: usize,
    pub first_port: u16,
    /// Whether data directories are on file systems of their own, which can lose power.
    pub volumes: bool,
    pub network: net::Kind,
    /// Whether all ports speak TLS.
    pub tls: bool,
    /// Whether clients must authenticate, from [`Rig::enable_auth`] on.
    pub auth: bool,
    /// Environment variables of every node, for a preloaded library (`LD_PRELOAD`).
    pub preload: Vec<(String, String)>,
    /// Further arguments of every node.
    pub arguments: Vec<String>,
    pub clock: Clock,
}

/// A period in the timeline, also called a mark.
#[derive(Clone, Debug)]
pub(crate) struct TimelineSpan {
    /// The node that the period concerns; `None` for the whole cluster.
    pub node: Option<usize>,
    pub what: String,
    pub begin: Micros,
    pub end: Option<Micros>,
}

/// A cluster of processes.
pub(crate) struct Rig {
    pub nodes: Vec<Node>,
    pub disks: Vec<Disk>,
    pub net: Net,
    pub clock: Clock,
    pub dir: PathBuf,
    certs: Option<Certs>,
    needs_invitations: bool,
    more: Vec<String>,
    marks: Mutex<Vec<TimelineSpan>>,
}

impl Rig {
    /// Removes leftovers of killed runs, then makes disks, networks and certificates; starts no
    /// node. Must not be cancelled: a half-made rig would not be removed.
    pub(crate) async fn make(options: RigOptions) -> anyhow::Result<Self> {
        leftovers::sweep().await;
        leftovers::claim(&options.dir)?;
        let net = Net::create(options.network, options.nodes, options.first_port).await?;
        let mut rig = Self {
            nodes: Vec::new(),
            disks: Vec::new(),
            net,
            clock: options.clock,
            dir: options.dir.clone(),
            certs: None,
            needs_invitations: false,
            more: options.arguments.clone(),
            marks: Mutex::default(),
        };
        // Everything made is removed again, also if the rest could not be made.
        if let Err(error) = rig.fill(&options).await {
            rig.stop(false).await;
            return Err(error);
        }
        Ok(rig)
    }

    async fn fill(&mut self, options: &RigOptions) -> anyhow::Result<()> {
        if options.tls {
            let hosts: Vec<String> = (0..options.nodes).map(|node| self.net.host(node)).collect();
            self.certs = Some(Certs::make(&options.binary, &options.dir.join("certs"), &hosts).await?);
        }
        let help = tool::run(&options.binary.to_string_lossy(), &["serve", "--help"]).await?;
        self.needs_invitations = help.contains("--join-token-file");
        let dialer = self.certs.as_ref().map_or_else(|| Ok(Dialer::default()), Certs::dialer)?;
        let password = if options.auth { Some(auth::new_password(&options.dir)?) } else { None };
        for number in 0..options.nodes {
            let home = options.dir.join(format!("node{}", number + 1));
            std::fs::create_dir_all(&home).with_context(|| home.display().to_string())?;
            let disk = match options.volumes {
                true => Disk::volume(&home).await?,
                false => Disk::folder(&home)?,
            };
            let launch = Launch {
                binary: options.binary.clone(),
                next: options.next.clone(),
                arguments: self.arguments(number, options.nodes, &disk.data()),
                namespace: self.net.namespace(number),
                environment: options.preload.clone(),
                log: home.join("log"),
            };
            self.disks.push(disk);
            // A login for each node: a node that is cut off must not delay the token for the
            // others.
            let login = password.as_ref().map(|password| Login::new(ROOT, password));
            let target = Target::new(number, &self.net.client(number), &dialer).by(login);
            self.nodes.push(Node::new(number, target, launch));
        }
        Ok(())
    }

    /// Whether the tested program knows invitations, by its help text. Once the cluster's version
    /// has them, a node that joins without one is refused.
    pub(crate) fn needs_invitations(&self) -> bool {
        self.needs_invitations
    }

    /// Starts every node, and waits until all serve and vote.
    pub(crate) async fn start(&self) -> anyhow::Result<()> {
        for number in 0..self.nodes.len() {
            self.launch(number)?;
        }
        self.wait_all_serving().await
    }

    /// Starts a node that does not run, and waits until it serves.
    pub(crate) async fn restart(&self, number: usize) -> anyhow::Result<()> {
        self.launch(number)?;
        self.wait_serving(number).await
    }

    /// Starts a node, and does not wait until it serves. An error if it runs already.
    pub(crate) fn launch(&self, number: usize) -> anyhow::Result<()> {
        self.net.process(number, self.nodes[number].start()?);
        Ok(())
    }

    /// The members, by a linearizable read at the node `asked`.
    pub(crate) async fn members(&self, asked: usize) -> anyhow::Result<Vec<Member>> {
        let channel = self.nodes[asked].target.channel().await.map_err(anyhow::Error::msg)?;
        let mut client = ClusterClient::new(channel);
        let list = client.member_list(MemberListRequest { linearizable: true });
        let list = tokio::time::timeout(CALL_TIMEOUT, list).await.context("no list of members in time")??;
        Ok(list.into_inner().members)
    }

    /// The member id of the node `number`, asked of the node `asked`. It changes at each join. An
    /// error if the node is no member.
    pub(crate) async fn member_id(&self, asked: usize, number: usize) -> anyhow::Result<u64> {
        let url = self.peer_url(number);
        let members = self.members(asked).await?;
        let member = members.into_iter().find(|member| member.peer_ur_ls.contains(&url));
        Ok(member.with_context(|| format!("node {} is no member", number + 1))?.id)
    }

    /// Waits until a node answers a linearizable read: the cluster has a leader and a quorum, and
    /// the node has caught up. An error if the node has ended, or after [`CLUSTER_TIMEOUT`].
    pub(crate) async fn wait_serving(&self, number: usize) -> anyhow::Result<()> {
        let mut budget = RetryBudget::new(CLUSTER_TIMEOUT);
        let ask = Request::Read { key: "health".into(), prefix: false, freshness: Freshness::Linearizable };
        let node = &self.nodes[number];
        loop {
            match node.target.send(&ask, Duration::from_secs(1)).await {
                Outcome::Ok(_) => return Ok(()),
                Outcome::Failed(why) | Outcome::Unknown(why) => {
                    if let Some(end) = node.ended() {
                        bail!("node {} ended ({end}); see {}", number + 1, node.log_path().display());
                    }
                    if budget.is_spent() {
                        bail!("node {} does not serve within {CLUSTER_TIMEOUT:?}: {why}", number + 1);
                    }
                }
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Waits until every node serves and is a voter, and the cluster has no other member. A node
    /// that has lost its data serves before it votes again; if a fault hit another node before
    /// that, the majority would be lost for good.
    pub(crate) async fn wait_all_serving(&self) -> anyhow::Result<()> {
        for number in 0..self.nodes.len() {
            self.wait_serving(number).await?;
        }
        let mut budget = RetryBudget::new(CLUSTER_TIMEOUT);
        while let Err(reason) = self.all_vote().await {
            if budget.is_spent() {
                return Err(reason.context(format!("not every node votes within {CLUSTER_TIMEOUT:?}")));
            }
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    }

    /// Waits until every node has applied one log index: the highest that any node knew to be
    /// committed when all of them first answered together.
    ///
    /// # Errors
    ///
    /// Names the first node that has not applied it after `longest`, and the node's indexes.
    pub(crate) async fn wait_caught_up(&self, longest: Duration) -> anyhow::Result<()> {
        let mut budget = RetryBudget::new(longest);
        let mut wanted = 0;
        loop {
            let answers = futures::future::join_all(self.nodes.iter().map(|node| indexes(&node.target))).await;
            if wanted == 0 && answers.iter().all(Option::is_some) {
                wanted = answers.iter().flatten().map(|(committed, _)| *committed).max().unwrap_or(0);
            }
            let behind =
                answers.iter().position(|answers| !answers.is_some_and(|(_, applied)| wanted > 0 && applied >= wanted));
            let Some(behind) = behind else { return Ok(()) };
            if budget.is_spent() {
                let answers = answers[behind].map_or("tells nothing".to_owned(), |(committed, applied)| {
                    format!("has applied {applied} of {committed} that it knows to be committed")
                });
                bail!(
                    "node {} does not catch up within {longest:?}: it {answers}; {wanted} were committed",
                    behind + 1
                );
            }
            tokio::time::sleep(POLL).await;
        }
    }

    async fn all_vote(&self) -> anyhow::Result<()> {
        let members = self.members(0).await?;
        for number in 0..self.nodes.len() {
            let url = self.peer_url(number);
            let votes = members.iter().any(|member| member.peer_ur_ls.contains(&url) && !member.is_learner);
            anyhow::ensure!(votes, "node {} does not vote", number + 1);
        }
        anyhow::ensure!(members.len() == self.nodes.len(), "there are {} members", members.len());
        Ok(())
    }

    /// The node that reports itself as the leader, with the highest term if there are several.
    /// Waits until there is one. An error after [`CLUSTER_TIMEOUT`].
    pub(crate) async fn leader(&self) -> anyhow::Result<usize> {
        let mut budget = RetryBudget::new(CLUSTER_TIMEOUT);
        while !budget.is_spent() {
            let votes = self.votes().await;
            // The higher term decides between two nodes that report themselves.
            let leader = votes
                .iter()
                .enumerate()
                .filter_map(|(number, vote)| vote.and_then(|(term, leads)| leads.then_some((term, number))))
                .max();
            if let Some((_, number)) = leader {
                return Ok(number);
            }
            tokio::time::sleep(POLL).await;
        }
        bail!("no node leads within {CLUSTER_TIMEOUT:?}")
    }

    /// The highest term of the nodes that answer; `None` if none does.
    pub(crate) async fn term(&self) -> Option<u64> {
        self.votes().await.into_iter().flatten().map(|(term, _)| term).max()
    }

    /// For each node its term, and whether it reports itself as the leader; `None` without an
    /// answer.
    async fn votes(&self) -> Vec<Option<(u64, bool)>> {
        futures::future::join_all(self.nodes.iter().map(|node| leads(&node.target))).await
    }

    /// Begins a period in the timeline; returns its number, for [`Self::end`].
    pub(crate) fn begin(&self, node: Option<usize>, what: impl Into<String>) -> usize {
        let mut marks = self.marks.lock();
        marks.push(TimelineSpan { node, what: what.into(), begin: self.clock.now(), end: None });
        marks.len() - 1
    }

    /// Ends the period with this number.
    pub(crate) fn end(&self, mark: usize) {
        self.marks.lock()[mark].end = Some(self.clock.now());
    }

    /// All periods so far.
    pub(crate) fn marks(&self) -> Vec<TimelineSpan> {
        self.marks.lock().clone()
    }

    /// All incarnations of all nodes, with their output and end.
    pub(crate) fn incarnations(&self) -> Vec<Incarnation> {
        self.nodes.iter().flat_map(Node::incarnations).collect()
    }

    /// Thaws every frozen disk.
    pub(crate) async fn thaw(&self) {
        for disk in self.disks.iter().filter(|disk| disk.is_volume()) {
            // Fails if the disk is not frozen.
            drop(disk.thaw().await);
        }
    }

    /// Ends every process and removes networks and disks. With `keep_data` the disks' content
    /// stays.
    pub(crate) async fn stop(&self, keep_data: bool) {
        // A process that waits for a frozen disk would not end.
        self.thaw().await;
        for node in &self.nodes {
            node.kill().await;
        }
        self.net.remove().await;
        for disk in &self.disks {
            disk.remove(keep_data).await;
        }
    }

    /// Disk, memory and open files that a node uses now.
    pub(crate) fn usage(&self, number: usize) -> NodeUsage {
        let node = &self.nodes[number];
        NodeUsage {
            disk_bytes: folder_bytes(&self.disks[number].data()),
            resident_bytes: node.resident_bytes(),
            open_files: node.open_files(),
        }
    }
}

/// Addresses and command-line arguments of the nodes, and the start of the enemy.
impl Rig {
    fn scheme(&self) -> &'static str {
        if self.certs.is_some() { "https" } else { "http" }
    }

    /// URL at which the other nodes reach a node's peer port.
    pub(crate) fn peer_url(&self, number: usize) -> String {
        format!("{}://{}", self.scheme(), self.net.peer(number))
    }

    /// Arguments of a node that is one of the `nodes` first members, with the data directory
    /// `data`.
    fn arguments(&self, number: usize, nodes: usize, data: &Path) -> Vec<String> {
        let scheme = self.scheme();
        let members: Vec<String> = (0..nodes)
            .map(|member| {
                let (id, peer, client) = (member + 1, self.peer_url(member), self.net.client(member));
                format!("{{ id = {id}, name = \"node{id}\", peer = \"{peer}\", client = \"{scheme}://{client}\" }}")
            })
            .collect();
        let mut arguments = vec!["serve".to_owned(), "--node-id".to_owned(), (number + 1).to_string()];
        arguments.extend(["--cluster-token".to_owned(), "chaos".to_owned()]);
        arguments.extend(["--cluster-initial".to_owned(), format!("[{}]", members.join(", "))]);
        arguments.extend(self.addresses(number, data));
        arguments
    }

    fn addresses(&self, number: usize, data: &Path) -> Vec<String> {
        let mut arguments = vec!["--data-dir".to_owned(), data.display().to_string()];
        arguments.extend(["--listen-client".to_owned(), self.net.client(number)]);
        arguments.extend(["--listen-peer".to_owned(), self.net.listen_peer(number)]);
        arguments.extend(self.certs.iter().flat_map(|certs| certs.arguments(number)));
        arguments.extend(self.more.iter().cloned());
        arguments
    }

    /// Starts an enemy: a second process of this program that attacks the client ports and the peer
    /// ports of all nodes. Its reports and its error output are files in the rig's folder.
    pub(crate) fn start_enemy(&self, options: &EnemyOptions<'_>) -> anyhow::Result<Enemy> {
        let count = self.nodes.len();
        let all = |address: &dyn Fn(usize) -> String| (0..count).map(address).collect::<Vec<_>>().join(",");
        let mut arguments = vec!["--clients".to_owned(), all(&|node| self.net.client(node))];
        arguments.extend(["--peers".to_owned(), all(&|node| self.net.listen_peer(node))]);
        let (namespace, source) = self.net.enemy();
        arguments.extend(source.into_iter().flat_map(|source| ["--source".to_owned(), source.to_owned()]));
        arguments.extend(self.certs.iter().flat_map(|certs| ["--certs".to_owned(), certs.dir().display().to_string()]));
        Enemy::start(namespace, arguments, options, &self.dir)
    }
}

/// Term of a node, and whether it reports itself as the leader; `None` without an answer.
async fn leads(target: &Target) -> Option<(u64, bool)> {
    let ask = async {
        let mut client = target.maintenance().await.ok()?;
        let status = client.status(StatusRequest {}).await.ok()?.into_inner();
        let header = status.header?;
        Some((status.raft_term, status.leader != 0 && status.leader == header.member_id))
    };
    match tokio::time::timeout(STATUS_TIMEOUT, ask).await {
        Ok(Some(answer)) => Some(answer),
        Ok(None) | Err(_) => {
            target.forget();
            None
        }
    }
}

/// The highest log index that a node knows to be committed, and the highest that it has applied;
/// `None` without an answer.
async fn indexes(target: &Target) -> Option<(u64, u64)> {
    let ask = async {
        let status = target.maintenance().await.ok()?.status(StatusRequest {}).await.ok()?.into_inner();
        Some((status.raft_index, status.raft_applied_index))
    };
    match tokio::time::timeout(STATUS_TIMEOUT, ask).await {
        Ok(Some(answers)) => Some(answers),
        Ok(None) | Err(_) => {
            target.forget();
            None
        }
    }
}

fn folder_bytes(folder: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    entries
        .flatten()
        .map(|entry| match entry.metadata() {
            Ok(meta) if meta.is_dir() => folder_bytes(&entry.path()),
            Ok(meta) => meta.len(),
            Err(_) => 0,
        })
        .sum()
}
