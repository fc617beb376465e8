//! Commits of the store: the entities of a group belong to several faces, and every commit gives
//! all of them one value that no other commit has.
//!
//! Has the requests, and the records of answers, histories and watchers. The keys of a commit are
//! in the history of keys as well, as a transaction. Invariant: a commit without a certain answer
//! is `Unknown`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use headwater_proto::pb::etcdserverpb::compare::{CompareTarget, TargetUnion};
use headwater_proto::pb::etcdserverpb::{Compare, PutRequest};
use headwater_proto::pb::headwater_v1 as pb;
use headwater_proto::pb::headwater_v1::operation::Operation as Op;
use headwater_proto::pb::headwater_v1::store_client::StoreClient;
use headwater_proto::pb::{mvccpb, pbresource, pbservice};
use parking_lot::Mutex;
use prost::Message;
use serde::Serialize;

use crate::client::{Target, is_broken, judge, with_deadline};
use crate::history::{Micros, Outcome, Request, Step};
use crate::login::Line;
use crate::resource;

/// Number of groups.
pub(crate) const GROUPS: u64 = 4;
/// Prefix of etcd's keys of all groups. Consul's keys have it after [`CONSUL`].
pub(crate) const PREFIX: &str = "commit/";
/// Prefix of one key for each commit. The rest of the key is the commit's value.
pub(crate) const IDS: &str = "commit/ids/";
/// Kind of the type of the groups' resources.
pub(crate) const KIND: &str = "Group";
/// Number of entities of a group. In the order of the parts: two keys, a resource, an instance, and
/// a key of Consul.
pub(crate) const PARTS: usize = 5;
/// Name of the value in the metadata of a resource, and in the meta of an instance.
const VALUE: &str = "value";
/// Prefix of a key of Consul for etcd's clients: the path follows.
pub(crate) const CONSUL: &str = "consul/kv/";
const HOST: &str = "commit-host";
/// Prefix of the names of all groups' services and resources.
const SERVICES: &str = "commit-";

/// Values of the entities of a group, in the order of the parts (see [`PARTS`]). `None` for an
/// entity that is absent, or that a command did not change.
pub(crate) type Values = [Option<String>; PARTS];

/// The operations that a client sends, if it splits a commit in two on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Half {
    Keys,
    OtherFaces,
}

/// The outcome of a commit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum CommitOutcome {
    Done {
        index: u64,
        revision: i64,
    },
    /// Certainly not carried out, now or later.
    Failed(String),
    /// May have been carried out, or may still be.
    Unknown(String),
}

/// One commit of one client: the time and outcome of all its attempts together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct CommitRecord {
    pub process: u64,
    pub call: Micros,
    pub done: Micros,
    pub group: u64,
    pub value: String,
    pub became: CommitOutcome,
    /// The answer to the same commit, sent once more: log index, and whether the commit was done
    /// before. `None` if it was not sent again, or got no answer.
    pub again: Option<(u64, bool)>,
}

/// A group as a reader saw it at one log index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct GroupState {
    pub node: usize,
    pub call: Micros,
    pub group: u64,
    pub index: u64,
    /// Whether the read was linearizable: it must see everything that was acknowledged before it
    /// began.
    pub is_linearizable: bool,
    pub values: Values,
}

/// The changes of groups by one command, as a member's history tells them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct GroupChange {
    /// The new values, by group.
    pub groups: BTreeMap<u64, Values>,
    /// Changed keys below [`IDS`], without that prefix.
    pub ids: Vec<String>,
}

/// A face with a watcher that records commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) enum CommitFace {
    /// A watch of the keys that begin with [`PREFIX`].
    Keys,
    /// A stream of the resources of all groups.
    Resources,
    /// A view of the service of one group.
    Services,
}

/// One commit as a watcher of one face saw it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct WatchedCommit {
    pub face: CommitFace,
    pub node: usize,
    /// For keys, the revision of the change; for a resource or an instance, the log index.
    pub point: u64,
    /// Values of the entities that the watcher saw changed, one value for each.
    pub values: Vec<String>,
}

impl CommitFace {
    /// Number of entities of one commit that a watcher of this face sees.
    pub(crate) fn parts(self) -> usize {
        match self {
            // Two of the group, and the key after `IDS`.
            Self::Keys => 3,
            Self::Resources | Self::Services => 1,
        }
    }
}

/// Everything about commits that was recorded, with what the cluster had in the end.
#[derive(Clone, Debug, Default)]
pub(crate) struct CommitEvidence {
    pub commits: Vec<CommitRecord>,
    pub states: Vec<GroupState>,
    /// Commands that changed groups: by log index, then by the member whose history has it.
    pub changes: BTreeMap<u64, BTreeMap<usize, GroupChange>>,
    pub watched: BTreeSet<WatchedCommit>,
    /// The keys below [`IDS`] at the end, without that prefix, with their versions. `None` if they
    /// were not read.
    pub ids: Option<BTreeMap<String, i64>>,
}

/// Collects the records of commits.
#[derive(Debug, Default)]
pub(crate) struct CommitLedger(Mutex<CommitEvidence>);

impl CommitLedger {
    pub(crate) fn keep(&self, commit: CommitRecord) {
        self.0.lock().commits.push(commit);
    }

    pub(crate) fn keep_state(&self, state: GroupState) {
        self.0.lock().states.push(state);
    }

    pub(crate) fn keep_change(&self, node: usize, index: u64, change: GroupChange) {
        self.0.lock().changes.entry(index).or_default().insert(node, change);
    }

    pub(crate) fn keep_watched(&self, watched: WatchedCommit) {
        self.0.lock().watched.insert(watched);
    }

    pub(crate) fn snapshot(&self) -> CommitEvidence {
        self.0.lock().clone()
    }
}

/// The services of all groups.
pub(crate) fn services() -> impl Iterator<Item = String> {
    (0..GROUPS).map(service)
}

/// The service of a group; its instance and its resource have the same name.
pub(crate) fn service(group: u64) -> String {
    format!("{SERVICES}{group}")
}

/// The request of a watch of the resources of all groups.
pub(crate) fn watch_list() -> pbresource::WatchListRequest {
    pbresource::WatchListRequest {
        r#type: Some(resource::type_(KIND)),
        tenancy: Some(pbresource::Tenancy::default()),
        name_prefix: SERVICES.to_owned(),
    }
}

/// The path of Consul's key of a group.
fn consul_path(group: u64) -> String {
    format!("commit/{group}")
}

fn keys(group: u64, value: &str) -> [(String, String); 3] {
    let value = value.to_owned();
    let id = (format!("{IDS}{value}"), value.clone());
    [(format!("commit/{group}/a"), value.clone()), (format!("commit/{group}/b"), value), id]
}

/// The puts of a commit, Consul's included, as a transaction for the history of keys.
pub(crate) fn as_transaction(group: u64, value: &str) -> Request {
    let consul = (format!("{CONSUL}{}", consul_path(group)), value.to_owned());
    let all = keys(group, value).into_iter().chain([consul]);
    let then = all.map(|(key, value)| Step::Put { key, value, lease: 0 });
    Request::Txn { when: Vec::new(), then: then.collect(), or_else: Vec::new() }
}

/// The operations of a commit; with `half`, only those of that half.
pub(crate) fn operations(group: u64, value: &str, half: Option<Half>) -> Vec<pb::Operation> {
    let puts = keys(group, value)
        .into_iter()
        .map(|(key, value)| Op::Put(PutRequest { key: key.into(), value: value.into(), ..Default::default() }));
    let meta = BTreeMap::from([(VALUE.to_owned(), value.to_owned())]);
    let resource = pbresource::Resource {
        id: Some(resource::id(KIND, &service(group), "")),
        metadata: meta.clone(),
        ..Default::default()
    };
    let node = pbservice::Node { node: HOST.to_owned(), address: "10.0.1.1".to_owned(), ..Default::default() };
    let instance = pbservice::NodeService { id: service(group), service: service(group), meta, ..Default::default() };
    let register = pb::Register { node: Some(node), service: Some(instance), ..Default::default() };
    let (path, value) = (consul_path(group).into(), value.to_owned().into());
    let consul = pb::ConsulKv { verb: "set".to_owned(), path, value, ..Default::default() };
    let others = [
        Op::WriteResource(pbresource::WriteRequest { resource: Some(resource) }),
        Op::Register(register),
        Op::ConsulKv(consul),
    ];
    let all: Vec<Op> = match half {
        None => puts.chain(others).collect(),
        Some(Half::Keys) => puts.collect(),
        Some(Half::OtherFaces) => others.into(),
    };
    all.into_iter().map(|operation| pb::Operation { operation: Some(operation) }).collect()
}

/// The condition that the last change of a group's first key was at this revision; 0: that the key
/// does not exist.
pub(crate) fn condition(group: u64, revision: i64) -> pb::Condition {
    let compare = Compare {
        key: format!("commit/{group}/a").into(),
        target: CompareTarget::Mod.into(),
        target_union: Some(TargetUnion::ModRevision(revision)),
        ..Default::default()
    };
    pb::Condition { key: Some(compare), ..Default::default() }
}

async fn client(target: &Target) -> Result<StoreClient<Line>, String> {
    Ok(StoreClient::new(target.channel().await?).max_decoding_message_size(usize::MAX))
}

/// Sends a commit once. The error is `Failed` or `Unknown`. Waits at most `timeout`, connecting
/// included.
pub(crate) async fn send(
    target: &Target,
    request: pb::CommitRequest,
    timeout: Duration,
) -> Result<pb::CommitResponse, CommitOutcome> {
    let sent = async {
        let mut client = client(target).await.map_err(CommitOutcome::Failed)?;
        client.commit(with_deadline(request, timeout)).await.map_err(|status| {
            if is_broken(&status) {
                target.forget();
            }
            match judge(&status) {
                Outcome::Failed(why) => CommitOutcome::Failed(why),
                Outcome::Ok(_) => unreachable!("invariant: a status is no answer"),
                Outcome::Unknown(why) => CommitOutcome::Unknown(why),
            }
        })
    };
    match tokio::time::timeout(timeout, sent).await {
        Ok(sent) => sent.map(tonic::Response::into_inner),
        Err(_) => Err(CommitOutcome::Unknown("no answer in time".to_owned())),
    }
}

/// Result of [`read()`]: the log index of the state, the values, and the revision of the last
/// change of the first key, 0 if it is absent.
pub(crate) type Found = (u64, Values, i64);

/// Reads all entities of a group at one log index. The read is linearizable unless `serializable`.
///
/// # Errors
///
/// The reason why there is no answer.
pub(crate) async fn read(target: &Target, group: u64, serializable: bool, timeout: Duration) -> Result<Found, String> {
    let request = pb::ReadRequest { targets: targets(group).into(), serializable, ..Default::default() };
    let asked = async {
        let mut client = client(target).await?;
        let answer = client.read(with_deadline(request, timeout)).await.map_err(|status| {
            if is_broken(&status) {
                target.forget();
            }
            format!("{} ({:?})", status.message(), status.code())
        })?;
        Ok(answer.into_inner())
    };
    let answer = tokio::time::timeout(timeout, asked).await.unwrap_or_else(|_| Err("no answer in time".to_owned()))?;
    let (mut values, mut changed) = (Values::default(), 0);
    for entity in &answer.entities {
        if let Some((_, part)) = part_of(&entity.path) {
            values[part] = entity.data.as_ref().and_then(value_of);
            if part == 0 {
                let kv = entity.data.as_ref().and_then(|data| mvccpb::KeyValue::decode(&data.value[..]).ok());
                changed = kv.map_or(0, |kv| kv.mod_revision);
            }
        }
    }
    Ok((answer.index, values, changed))
}

/// Opens a stream of the history of all groups and of the keys below [`IDS`]: changes after the log
/// index `from`, then new ones as they come. With 0 it begins with the first change in history.
pub(crate) async fn history(
    target: &Target,
    from: u64,
) -> Result<tonic::Streaming<pb::HistoryResponse>, tonic::Status> {
    let all = (0..GROUPS).flat_map(targets).chain([format!("/kv/{}?recursive=true", IDS.trim_end_matches('/'))]);
    let from = (from > 0).then(|| pb::Point { point: Some(pb::point::Point::Index(from)), epoch: String::new() });
    let request = pb::HistoryRequest { targets: all.collect(), from, live: true, ..Default::default() };
    let mut client = client(target).await.map_err(tonic::Status::unavailable)?;
    Ok(client.history(request).await?.into_inner())
}

fn targets(group: u64) -> [String; 4] {
    [
        format!("/kv/commit/{group}?recursive=true"),
        format!("/resources/chaos/v1/{KIND}/~/~/{}", service(group)),
        format!("/services/{}?recursive=true", service(group)),
        format!("/kv/{CONSUL}{}?children=false", consul_path(group)),
    ]
}

/// The group and the part that a path names; `None` for another path.
fn part_of(path: &str) -> Option<(u64, usize)> {
    let number = |text: &str| text.parse().ok().filter(|group| *group < GROUPS);
    if let Some(rest) = path.strip_prefix("/kv/commit/") {
        let (group, key) = rest.split_once('/')?;
        return Some((number(group)?, ["a", "b"].iter().position(|part| *part == key)?));
    }
    if let Some(group) = path.strip_prefix(&format!("/kv/{CONSUL}commit/")) {
        return Some((number(group)?, 4));
    }
    if let Some(rest) = path.strip_prefix(&format!("/resources/chaos/v1/{KIND}/~/~/commit-")) {
        return Some((number(rest)?, 2));
    }
    let (group, rest) = path.strip_prefix("/services/commit-")?.split_once('/')?;
    (rest == format!("{HOST}/commit-{group}")).then_some((number(group)?, 3))
}

fn value_of(data: &prost_types::Any) -> Option<String> {
    let bytes = &data.value[..];
    match data.type_url.rsplit('/').next()? {
        "mvccpb.KeyValue" => Some(String::from_utf8_lossy(&mvccpb::KeyValue::decode(bytes).ok()?.value).into_owned()),
        "hashicorp.consul.resource.Resource" => value_of_resource(&pbresource::Resource::decode(bytes).ok()?),
        "hashicorp.consul.internal.service.CheckServiceNode" => {
            value_of_instance(&pbservice::CheckServiceNode::decode(bytes).ok()?).map(|(value, _)| value)
        }
        _ => None,
    }
}

/// The value of a group's resource; `None` if its metadata has none.
pub(crate) fn value_of_resource(resource: &pbresource::Resource) -> Option<String> {
    resource.metadata.get(VALUE).cloned()
}

/// The value of a group's instance, and the log index of its last change (0: unknown). `None`
/// without a service, or without a value in its meta.
pub(crate) fn value_of_instance(instance: &pbservice::CheckServiceNode) -> Option<(String, u64)> {
    let service = instance.service.as_ref()?;
    let changed = service.raft_index.as_ref().map_or(0, |index| index.modify_index);
    Some((service.meta.get(VALUE)?.clone(), changed))
}

/// The changes of groups by one command.
pub(crate) fn change_of(command: &pb::CommandChanges) -> GroupChange {
    let mut found = GroupChange::default();
    for change in &command.changes {
        if let Some(id) = change.path.strip_prefix(&format!("/kv/{IDS}")) {
            found.ids.push(id.to_owned());
        } else if let Some((group, part)) = part_of(&change.path) {
            let data = change.after.as_ref().and_then(|after| after.data.as_ref());
            found.groups.entry(group).or_default()[part] = data.and_then(value_of);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_known_by_their_paths() {
        for (path, wanted) in [
            ("/kv/commit/2/a", Some((2, 0))),
            ("/kv/commit/2/b", Some((2, 1))),
            ("/kv/commit/2/c", None),
            ("/kv/commit/2", None),
            ("/kv/commit/ids/1-2", None),
            ("/kv/commit/9/a", None),
            ("/kv/consul/kv/commit/3", Some((3, 4))),
            ("/resources/chaos/v1/Group/~/~/commit-3", Some((3, 2))),
            ("/services/commit-0/commit-host/commit-0", Some((0, 3))),
            ("/services/commit-0/commit-host", None),
            ("/services/service-0/host/x", None),
        ] {
            assert_eq!(part_of(path), wanted, "{path}");
        }
    }
}
