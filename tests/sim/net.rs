//! The simulated network between members: messages are delayed, and some are lost.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use openraft::OptionalSend;
use openraft::errors::{NetworkError, RPCError, RaftError, ReplicationClosed, StreamingError};
use openraft::network::{RPCOption, RaftNetworkFactory, RaftNetworkV2};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, TransferLeaderRequest, TransferLeaderResponse,
    VoteRequest, VoteResponse,
};
use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::member::copy_files;
use super::{ms, us};
use headwater_raft::SnapshotFiles;
use headwater_raft::parts::{MemberInfo, Raft, Snapshot, TypeConfig, Vote};

type RpcError = RPCError<TypeConfig>;

/// The error of a lost message.
#[derive(Debug, thiserror::Error)]
#[error("the message got lost")]
struct Lost;

/// The network with all links between members; cheap to clone.
#[derive(Clone)]
pub(super) struct Net {
    links: Arc<Mutex<Links>>,
    /// The folder for copies of received snapshots.
    incoming: PathBuf,
}

struct Links {
    seed: u64,
    /// Random numbers of each link, as sender and receiver: those of one link do not depend on
    /// messages on other links.
    dice: BTreeMap<(u64, u64), SmallRng>,
    /// The running members.
    members: BTreeMap<u64, Raft>,
    /// The broken links, as sender and receiver.
    cut: BTreeSet<(u64, u64)>,
    loss_percent: u32,
    delay_ms_max: u64,
    copies: u64,
}

impl Net {
    pub(super) fn new(seed: u64, incoming: PathBuf) -> Self {
        let links = Links {
            seed,
            dice: BTreeMap::new(),
            members: BTreeMap::new(),
            cut: BTreeSet::new(),
            loss_percent: 0,
            delay_ms_max: 3,
            copies: 0,
        };
        Self { links: Arc::new(Mutex::new(links)), incoming }
    }

    pub(super) fn join(&self, id: u64, raft: Raft) {
        self.links.lock().members.insert(id, raft);
    }

    pub(super) fn leave(&self, id: u64) {
        self.links.lock().members.remove(&id);
    }

    pub(super) fn cut(&self, from: u64, to: u64) {
        self.links.lock().cut.insert((from, to));
    }

    pub(super) fn set_weather(&self, loss_percent: u32, delay_ms_max: u64) {
        let mut links = self.links.lock();
        (links.loss_percent, links.delay_ms_max) = (loss_percent, delay_ms_max);
    }

    pub(super) fn heal(&self) {
        self.links.lock().cut.clear();
        self.set_weather(0, 3);
    }

    /// The network as openraft uses it in the member `me`.
    pub(super) fn of(&self, me: u64) -> Ports {
        Ports { net: self.clone(), me }
    }

    /// Waits for the random delay of a message; returns whether it arrives.
    async fn carry(&self, from: u64, to: u64) -> bool {
        let (pause, lost) = {
            let mut links = self.links.lock();
            let (most, loss) = (links.delay_ms_max * 1000, links.loss_percent);
            let seed = links.seed * 100 + from * 10 + to;
            let dice = links.dice.entry((from, to)).or_insert_with(|| SmallRng::seed_from_u64(seed));
            (us(dice.random_range(100..=most)), dice.random_range(0..100) < loss)
        };
        tokio::time::sleep(pause).await;
        !lost && !self.links.lock().cut.contains(&(from, to))
    }

    fn incoming_copy(&self) -> PathBuf {
        let mut links = self.links.lock();
        links.copies += 1;
        self.incoming.join(links.copies.to_string())
    }
}

#[derive(Clone)]
pub(super) struct Ports {
    net: Net,
    me: u64,
}

impl RaftNetworkFactory<TypeConfig> for Ports {
    type Network = Line;

    async fn new_client(&mut self, target: u64, _node: &MemberInfo) -> Line {
        Line { net: self.net.clone(), from: self.me, to: target }
    }
}

/// The link from one member to another, as openraft's network client.
pub(super) struct Line {
    net: Net,
    from: u64,
    to: u64,
}

impl Line {
    /// Calls `ask` on the target after the delay of the request, and returns its answer after the
    /// delay of that. If a message is lost or the target fails, times out after `limit`.
    async fn ask<T, E: std::error::Error>(
        &self,
        limit: Duration,
        ask: impl AsyncFnOnce(Raft) -> Result<T, RaftError<TypeConfig, E>>,
    ) -> Result<T, NetworkError<TypeConfig>> {
        let asking = async {
            if !self.net.carry(self.from, self.to).await {
                return std::future::pending().await;
            }
            let target = self.net.links.lock().members.get(&self.to).cloned();
            // A stopped member does not answer, either.
            let Some(target) = target else { return std::future::pending().await };
            let Ok(answer) = ask(target).await else { return std::future::pending().await };
            match self.net.carry(self.to, self.from).await {
                true => answer,
                false => std::future::pending().await,
            }
        };
        let answered = tokio::time::timeout(limit, asking).await;
        answered.map_err(|_| NetworkError::new(&Lost))
    }
}

impl RaftNetworkV2<TypeConfig> for Line {
    type SnapshotData = SnapshotFiles;

    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<TypeConfig>, RpcError> {
        Ok(self.ask(option.hard_ttl(), async |raft| raft.append_entries(request).await).await?)
    }

    async fn vote(
        &mut self,
        request: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RpcError> {
        Ok(self.ask(option.hard_ttl(), async |raft| raft.vote(request).await).await?)
    }

    async fn pre_vote(
        &mut self,
        request: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RpcError> {
        Ok(self.ask(option.hard_ttl(), async |raft| raft.pre_vote(request).await).await?)
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: Snapshot,
        _cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        let copy = self.net.incoming_copy();
        copy_files(snapshot.snapshot.path(), &copy).map_err(|error| NetworkError::new(&error))?;
        let needs = snapshot.snapshot.needs();
        let received = Snapshot { meta: snapshot.meta, snapshot: SnapshotFiles::adopt(copy, needs) };
        let install =
            async |raft: Raft| raft.install_full_snapshot(vote, received).await.map_err(RaftError::<TypeConfig>::Fatal);
        Ok(self.ask(ms(1000), install).await?)
    }

    async fn transfer_leader(
        &mut self,
        request: TransferLeaderRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<TransferLeaderResponse<TypeConfig>, RpcError> {
        let offer =
            async |raft: Raft| raft.handle_transfer_leader(request).await.map_err(RaftError::<TypeConfig>::Fatal);
        Ok(self.ask(option.hard_ttl(), offer).await?)
    }
}
