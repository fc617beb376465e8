//! Clusters of real nodes in this process: storage in temporary directories, sockets on loopback.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use headwater::api::{ApiOptions, BrowserPolicy, ConsoleOptions, DnsOptions};
use headwater::node::{AuthOptions, LeaseClock, Node, NodeOptions, RestoreOptions};
use headwater::pb::etcdserverpb::cluster_client::ClusterClient;
use headwater::pb::etcdserverpb::kv_client::KvClient;
use headwater::pb::etcdserverpb::maintenance_client::MaintenanceClient;
use headwater::raft::MemberInfo;
use headwater::server::{
    DnsPort, DnsSockets, Instance, InstanceOptions, InstanceTls, JoinOptions, MetricsOptions, UnixSocket, join,
};
use headwater::storage::StateOptions;
use headwater::storage::data_dir::Owner;
use headwater::storage::log::LogOptions;
use headwater::tls::Dialer;
use headwater::types::{ClusterId, MemberProgram, NodeId, Supported};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::runtime::RuntimeFlavor;
use tonic::transport::Channel;

use crate::certs::Certs;
pub use crate::requests::{get, get_local, put};
pub use crate::settings::Settings;
use crate::sockets::{ReservedPorts, bind};
pub use crate::waits::{pass, wait_until, within};

/// Longest wait for a single step of a test: longer than a step takes on a loaded machine, so that
/// only a defect exceeds it.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// Longest wait for the end of a cluster's members when the cluster is dropped.
const CLOSE_MAX: Duration = Duration::from_secs(1);

/// Listeners of one member: client port and peer port.
type Listeners = (TcpListener, TcpListener);

/// The directory with the members' data directories.
enum Root {
    Temporary(TempDir),
    /// Stays after the end of the process, for [`Cluster::start_again`].
    Kept(PathBuf),
}

/// A cluster of members in this process. Members are numbered from 0; their node ids from 1.
pub struct Cluster {
    /// Settings of the cluster. A member takes them at its start.
    pub settings: Settings,
    lease_clock: LeaseClock,
    cluster_id: ClusterId,
    /// The certificates of all members and of a client; `None` without TLS.
    pub certs: Option<Certs>,
    root: Root,
    kept: Vec<ReservedPorts>,
    /// By member: the address at which other members reach it, if a relay or proxy listens there in
    /// its place.
    via: BTreeMap<usize, SocketAddr>,
    /// Nodes that were not first members, by number; true for learners.
    joined: BTreeMap<usize, bool>,
    /// Client addresses of other clusters, by datacenter. A member takes them at its start.
    pub remote_datacenters: BTreeMap<String, Vec<String>>,
    /// The dialer of connections from members to other clusters.
    pub remote_dialer: Dialer,
    /// Web pages that may call a member from a browser. A member takes them at its start.
    pub browsers: BrowserPolicy,
    /// By member: the versions that it supports from its next start on, if not those of this
    /// release.
    pub supported: BTreeMap<usize, Supported>,
    instances: Vec<Option<Instance>>,
}

/// Ends the members before their directories go: RocksDB waits a second for each database that it
/// cannot flush when it is closed.
impl Drop for Cluster {
    fn drop(&mut self) {
        let instances: Vec<Instance> = self.instances.drain(..).flatten().collect();
        // Only a runtime of several threads can go on while this one waits.
        let runtime = tokio::runtime::Handle::try_current().ok();
        let runtime = runtime.filter(|runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread);
        let Some(runtime) = runtime.filter(|_| !instances.is_empty() && !std::thread::panicking()) else { return };
        let ending = futures::future::join_all(instances.into_iter().map(Instance::crash));
        // A test may still hold handles, which keep files open: then the second is lost.
        tokio::task::block_in_place(|| drop(runtime.block_on(async { tokio::time::timeout(CLOSE_MAX, ending).await })));
    }
}

impl Cluster {
    /// Starts a cluster and waits until it has a leader and every member serves.
    pub async fn start(settings: Settings) -> Self {
        Self::start_with_clock(settings, LeaseClock::machine()).await
    }

    /// As `start`; all members use `lease_clock`, which the test may move.
    pub async fn start_with_clock(settings: Settings, lease_clock: LeaseClock) -> Self {
        let (mut cluster, listeners) = Self::prepare(settings, lease_clock).await;
        cluster.launch(listeners).await;
        cluster
    }

    /// As `start`; members reach each other at `via(ADDRESS)`, where ADDRESS is the one at which a
    /// member's peer port listens.
    pub async fn start_through(settings: Settings, via: impl AsyncFn(SocketAddr) -> SocketAddr) -> Self {
        let (mut cluster, listeners) = Self::prepare(settings, LeaseClock::machine()).await;
        for index in 0..settings.members {
            let address = via(cluster.kept[index].addresses().1).await;
            cluster.via.insert(index, address);
        }
        cluster.launch(listeners).await;
        cluster
    }

    /// Starts a cluster with the data directories in `root`, which an earlier process may have
    /// left. Its addresses are always those of `host`, an otherwise unused loopback address, with
    /// ports from 2379 on.
    #[allow(dead_code, reason = "for `tests/crash`")]
    pub async fn start_again(settings: Settings, lease_clock: LeaseClock, root: PathBuf, host: IpAddr) -> Self {
        let ports = (0..settings.members as u16).map(|member| (2379 + 2 * member, 2380 + 2 * member));
        let addresses = ports.map(|(client, peer)| (SocketAddr::new(host, client), SocketAddr::new(host, peer)));
        let (mut cluster, listeners) = Self::prepare_at(settings, lease_clock, Root::Kept(root), addresses).await;
        cluster.launch(listeners).await;
        cluster
    }

    async fn prepare(settings: Settings, lease_clock: LeaseClock) -> (Self, Vec<Listeners>) {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let root = Root::Temporary(tempfile::tempdir().unwrap());
        Self::prepare_at(settings, lease_clock, root, (0..settings.members).map(|_| (any, any))).await
    }

    async fn prepare_at(
        settings: Settings,
        lease_clock: LeaseClock,
        root: Root,
        wanted: impl Iterator<Item = (SocketAddr, SocketAddr)>,
    ) -> (Self, Vec<Listeners>) {
        // `RUST_LOG=headwater=debug` shows what the members do.
        let _already = tracing_subscriber::fmt()
            .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
            .with_test_writer()
            .try_init()
            .is_err();
        let mut listeners = Vec::new();
        let mut kept = Vec::new();
        for (client, peer) in wanted {
            let sockets = ReservedPorts::bind(client, peer).await;
            let (client, peer) = sockets.addresses();
            listeners.push((bind(client).await, bind(peer).await));
            kept.push(sockets);
        }
        let cluster_id = ClusterId(7);
        let certs = settings.tls.then(Certs::new);
        let (via, joined, remote_datacenters, supported) = Default::default();
        let remote_dialer = certs.as_ref().map(Certs::client).unwrap_or_default();
        let cluster = Self {
            settings,
            lease_clock,
            cluster_id,
            certs,
            root,
            kept,
            via,
            joined,
            supported,
            remote_datacenters,
            remote_dialer,
            browsers: BrowserPolicy::default(),
            instances: Vec::new(),
        };
        (cluster, listeners)
    }

    async fn launch(&mut self, listeners: Vec<Listeners>) {
        // All at once: the members look for each other, and an election takes two of them.
        self.instances.extend((0..self.settings.members).map(|_| None));
        let starting =
            listeners.into_iter().enumerate().map(|(index, (client, peer))| self.instance(index, client, peer));
        let instances = futures::future::join_all(starting).await;
        self.instances = instances.into_iter().map(Some).collect();
        self.wait_healthy().await;
    }

    /// Restores every member of a new cluster from the backup `file`, and starts the cluster. Of
    /// `options`, file, directory, node id and members are ignored.
    pub async fn restored(settings: Settings, file: &Path, options: &RestoreOptions) -> Self {
        let (mut cluster, listeners) = Self::prepare(settings, LeaseClock::machine()).await;
        cluster.cluster_id = options.cluster_id;
        for index in 0..settings.members {
            let options = RestoreOptions {
                file: file.to_owned(),
                data_dir: cluster.data_dir(index),
                node_id: NodeId(index as u64 + 1),
                members: cluster.first_members(),
                ..options.clone()
            };
            tokio::task::spawn_blocking(move || headwater::node::restore(&options).unwrap()).await.unwrap();
        }
        cluster.launch(listeners).await;
        cluster
    }

    /// A cluster of three with defaults.
    pub async fn three() -> Self {
        Self::start(Settings::default()).await
    }

    /// The first members of the cluster, by node id.
    pub fn first_members(&self) -> BTreeMap<NodeId, MemberInfo> {
        (0..self.settings.members).map(|index| (NodeId(index as u64 + 1), self.info(index))).collect()
    }

    async fn instance(&self, index: usize, client_listener: TcpListener, peer_listener: TcpListener) -> Instance {
        self.try_instance(index, client_listener, peer_listener).await.unwrap()
    }

    async fn try_instance(
        &self,
        index: usize,
        client_listener: TcpListener,
        peer_listener: TcpListener,
    ) -> anyhow::Result<Instance> {
        let owner = match self.joined.get(&index) {
            None => Owner { cluster_id: self.cluster_id, node_id: NodeId(index as u64 + 1) },
            Some(learner) => within("a node joins", join(self.join_options(index, *learner))).await.unwrap(),
        };
        self.instance_of(index, owner, client_listener, peer_listener).await
    }

    fn scheme(&self) -> &'static str {
        if self.certs.is_some() { "https" } else { "http" }
    }

    /// TLS settings of a member's ports; without TLS the default.
    fn tls(&self, index: usize) -> InstanceTls {
        let Some(certs) = &self.certs else { return InstanceTls::default() };
        let metrics = self.settings.metrics_port.map(|asked| certs.metrics_tls(index, asked));
        InstanceTls { metrics, ..certs.instance_tls(index) }
    }

    /// A lazy gRPC channel to a member's client port, with a client's certificate if there is TLS.
    pub fn channel(&self, index: usize) -> Channel {
        let dialer = self.certs.as_ref().map(Certs::client).unwrap_or_default();
        let (endpoint, connector) = dialer.endpoint(&self.client_url(index), TIMEOUT).unwrap();
        endpoint.timeout(TIMEOUT).connect_with_connector_lazy(connector)
    }

    /// The program version that a member announces.
    fn program(&self, index: usize) -> MemberProgram {
        let supported = self.supported.get(&index).copied().unwrap_or(Supported::RELEASE);
        MemberProgram { program: format!("{}.0 (test)", supported.highest), supported }
    }

    /// Options with which node `index` joins through any of the other running members. Without a
    /// token.
    pub fn join_options(&self, index: usize, learner: bool) -> JoinOptions {
        let endpoints = self.running().filter(|other| *other != index).map(|other| self.client_url(other)).collect();
        let supported = self.program(index).supported;
        let tls = self.tls(index);
        JoinOptions {
            endpoints,
            data_dir: self.data_dir(index),
            client_dialer: tls.client_dialer.clone(),
            peer_dialer: tls.peer_dialer(),
            own: self.info(index),
            learner,
            token_file: None,
            supported,
        }
    }

    fn info(&self, index: usize) -> MemberInfo {
        let (client, peer) = self.kept[index].addresses();
        let peer = self.via.get(&index).copied().unwrap_or(peer);
        MemberInfo {
            name: format!("node{}", index + 1),
            peer_url: format!("{}://{peer}", self.scheme()),
            client_url: format!("{}://{client}", self.scheme()),
            ..MemberInfo::default()
        }
    }

    async fn instance_of(
        &self,
        index: usize,
        owner: Owner,
        client_listener: TcpListener,
        peer_listener: TcpListener,
    ) -> anyhow::Result<Instance> {
        let mut initial_members = BTreeMap::new();
        if !self.joined.contains_key(&index) {
            initial_members = self.first_members();
        }
        let tls = self.tls(index);
        let node = NodeOptions {
            node_id: owner.node_id,
            dialer: tls.peer_dialer(),
            client_dialer: self.remote_dialer.clone(),
            cluster_id: owner.cluster_id,
            own: self.info(index),
            datacenter: self.settings.datacenter.to_owned(),
            remote_datacenters: self.remote_datacenters.clone(),
            initial_members,
            data_dir: self.data_dir(index),
            timing: self.settings.timing,
            catch_up_max: TIMEOUT,
            snapshot_every_entries: self.settings.snapshot_every,
            snapshot_every_bytes: 64 << 20,
            keep_entries: self.settings.keep,
            keep_bytes: 64 << 20,
            // Short segments, so that most tests make several.
            log: LogOptions { segment_bytes: 16 * 1024, ..LogOptions::default() },
            state: StateOptions::default(),
            feed: self.settings.feed,
            quota: self.settings.quota,
            history_retention: self.settings.history_retention,
            lease_clock: self.lease_clock.clone(),
            hand_over_timeout: Duration::from_secs(2),
            max_request_bytes: self.settings.max_request_bytes,
            watchers_max: self.settings.watchers_max,
            request_rate: self.settings.request_rate,
            strict_reconfig_check: self.settings.strict_reconfig_check,
            invited_only: self.settings.invited_only,
            audit: self.settings.audit.map(|options| options(&self.data_dir(index))),
            auth: AuthOptions { token_ttl: self.settings.token_ttl, token_keys: None },
            acl: (self.settings.acl)(),
            program: self.program(index),
        };
        let client_socket = self.settings.unix.then(|| UnixSocket::bind(&self.socket(index))).transpose()?;
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let sockets = DnsSockets::bind(any).await?;
        let sockets = if tls.dns.is_some() { sockets.with_tls(any).await? } else { sockets };
        let metrics_listener = match self.settings.metrics_port {
            Some(_) => Some(TcpListener::bind(any).await?),
            None => None,
        };
        let on_client_port = self.settings.metrics_on_client_port;
        let starting = Instance::start(InstanceOptions {
            node,
            api: ApiOptions {
                request_timeout: self.settings.request_timeout,
                watch_progress_interval: Duration::from_millis(100),
                leader_loss_timeout: self.settings.leader_loss_timeout,
                max_request_bytes: self.settings.max_request_bytes,
                max_txn_ops: self.settings.max_txn_ops,
                watchers_per_stream_max: self.settings.watchers_per_stream_max,
            },
            client_listener,
            client_socket,
            peer_listener,
            dns: Some(DnsPort { sockets, options: DnsOptions::default() }),
            metrics: MetricsOptions { listener: metrics_listener, on_client_port },
            tls,
            browsers: self.browsers.clone(),
            console: ConsoleOptions::default(),
            connections_per_address: None,
        });
        within("a member starts", starting).await
    }

    /// Reserves the addresses of a new node, and does not start it; returns its number.
    pub async fn new_node(&mut self, learner: bool) -> usize {
        self.kept.push(ReservedPorts::any().await);
        self.instances.push(None);
        let index = self.instances.len() - 1;
        self.joined.insert(index, learner);
        index
    }

    /// Starts one more node, which joins the cluster, and waits until it serves; returns its
    /// number.
    pub async fn join(&mut self, learner: bool) -> usize {
        let index = self.new_node(learner).await;
        self.restart(index).await;
        self.wait_healthy().await;
        index
    }

    /// The node id of a running member.
    pub fn id(&self, index: usize) -> u64 {
        self.node(index).identity().node_id.get()
    }

    /// `http://host:port` at which a member's peer port listens, `https://` with TLS.
    pub fn peer_url(&self, index: usize) -> String {
        format!("{}://{}", self.scheme(), self.kept[index].addresses().1)
    }

    /// Path of a member's Unix socket.
    pub fn socket(&self, index: usize) -> PathBuf {
        self.data_dir(index).with_extension("sock")
    }

    /// A client of etcd's `Cluster` service at one member.
    pub fn members(&self, index: usize) -> ClusterClient<Channel> {
        ClusterClient::new(self.channel(index))
    }

    /// A client of etcd's `Maintenance` service at one member.
    pub fn maintenance(&self, index: usize) -> MaintenanceClient<Channel> {
        MaintenanceClient::new(self.channel(index))
    }

    /// Data directory of a member.
    pub fn data_dir(&self, index: usize) -> PathBuf {
        let root = match &self.root {
            Root::Temporary(dir) => dir.path(),
            Root::Kept(dir) => dir,
        };
        root.join(format!("node{}", index + 1))
    }

    /// The node of a running member. Panics if it does not run.
    pub fn node(&self, index: usize) -> &Node {
        self.instances[index].as_ref().expect("the member runs").node()
    }

    /// Waits until a running member has ended by itself; returns the reason.
    pub async fn ended(&self, index: usize) -> String {
        self.instances[index].as_ref().expect("the member runs").ended().await
    }

    /// Numbers of the members that run.
    pub fn running(&self) -> impl Iterator<Item = usize> {
        (0..self.instances.len()).filter(|index| self.instances[*index].is_some())
    }

    /// Address at which a running member answers DNS over TLS.
    pub fn dns_tls_address(&self, index: usize) -> SocketAddr {
        self.instances[index].as_ref().expect("the member runs").dns_tls_address().expect("DNS is answered by TLS")
    }

    pub fn dns_address(&self, index: usize) -> SocketAddr {
        self.instances[index].as_ref().expect("the member runs").dns_address().expect("DNS is answered")
    }

    /// Address of a running member's metrics port.
    pub fn metrics_address(&self, index: usize) -> SocketAddr {
        self.instances[index].as_ref().expect("the member runs").metrics_address().expect("it has a metrics port")
    }

    /// A client of etcd's `KV` service at one member.
    pub fn kv(&self, index: usize) -> KvClient<Channel> {
        KvClient::new(self.channel(index)).max_decoding_message_size(usize::MAX)
    }

    /// `http://host:port` of a member's client port, `https://` with TLS.
    pub fn client_url(&self, index: usize) -> String {
        format!("{}://{}", self.scheme(), self.kept[index].addresses().0)
    }

    /// Makes a running member read its certificate files again.
    pub fn renew_certificates(&self, index: usize) {
        self.instances[index].as_ref().expect("the member runs").renew_certificates();
    }

    /// Waits until all running members name the same leader, and that one runs; returns its number.
    pub async fn leader(&self) -> usize {
        let mut found = 0;
        wait_until("running members agree on a leader", async || {
            let mut leaders: Vec<_> = self.running().map(|index| self.node(index).live_leader()).collect();
            leaders.dedup();
            match leaders[..] {
                [Some(leader)] => match self.running().find(|index| self.id(*index) == leader.get()) {
                    Some(index) => {
                        found = index;
                        true
                    }
                    None => false,
                },
                _ => false,
            }
        })
        .await;
        found
    }

    /// The running member with the lowest number that does not lead.
    pub async fn follower(&self) -> usize {
        let leader = self.leader().await;
        self.running().find(|index| *index != leader).expect("more than one member runs")
    }

    /// Waits until the running members agree on a leader and each of them serves.
    pub async fn wait_healthy(&self) {
        self.leader().await;
        for index in self.running().collect::<Vec<_>>() {
            let mut serving = self.node(index).serving();
            tokio::time::timeout(TIMEOUT, serving.wait_for(|serving| *serving)).await.expect("serves").unwrap();
        }
    }

    /// Ends a member at once, without an orderly stop.
    pub async fn crash(&mut self, index: usize) {
        let instance = self.instances[index].take().expect("the member runs");
        within("a member crashes", instance.crash()).await;
    }

    /// Stops a member in order.
    pub async fn stop(&mut self, index: usize) {
        let instance = self.instances[index].take().expect("the member runs");
        within("a member stops", instance.stop()).await;
    }

    /// Starts a member that does not run, at its addresses.
    pub async fn restart(&mut self, index: usize) {
        let (client, peer) = self.kept[index].addresses();
        let (client, peer) = (bind(client).await, bind(peer).await);
        let instance = self.instance(index, client, peer).await;
        self.instances[index] = Some(instance);
    }

    /// Starts a member that does not run, at its addresses. Returns `Err` if it does not start;
    /// `restart` panics then.
    pub async fn try_start(&mut self, index: usize) -> anyhow::Result<()> {
        let (client, peer) = self.kept[index].addresses();
        let (client, peer) = (bind(client).await, bind(peer).await);
        let instance = self.try_instance(index, client, peer).await?;
        self.instances[index] = Some(instance);
        Ok(())
    }

    /// Listens at the peer address of an ended member, so that the test can act as that member.
    pub async fn listen_as_peer(&self, index: usize) -> TcpListener {
        assert!(self.instances[index].is_none(), "the member must be ended first");
        bind(self.kept[index].addresses().1).await
    }

    /// Moves an ended member to other addresses.
    pub async fn give_new_addresses(&mut self, index: usize) {
        assert!(self.instances[index].is_none(), "the member must be ended first");
        self.kept[index] = ReservedPorts::any().await;
    }

    /// Removes all data of an ended member.
    pub fn wipe(&self, index: usize) {
        assert!(self.instances[index].is_none(), "the member must be ended first");
        // RocksDB's own threads may still be putting files away.
        let give_up = Instant::now() + TIMEOUT;
        while let Err(error) = std::fs::remove_dir_all(self.data_dir(index)) {
            assert!(error.kind() == std::io::ErrorKind::DirectoryNotEmpty && Instant::now() < give_up, "{error}");
            std::thread::yield_now();
        }
    }

    /// Waits until all running members have hashed their state at the same log index; returns the
    /// hashes, in the order of the members.
    pub async fn hashes(&self) -> Vec<u64> {
        let running: Vec<_> = self.running().collect();
        let mut hashes = Vec::new();
        // The members may commit commands of their own meanwhile, so hashes count only if they are
        // of one index.
        wait_until("all members have hashed the same state", async || {
            let ctx = headwater::node::RequestContext::within(TIMEOUT);
            let mut indexes = Vec::new();
            hashes.clear();
            for index in &running {
                let read = self.node(*index).maintenance().state_hash(&ctx).await.unwrap();
                indexes.push(read.index);
                hashes.push(read.value);
            }
            indexes.windows(2).all(|pair| pair[0] == pair[1])
        })
        .await;
        hashes
    }
}
