//! Requests of clients about typed resources, and the resources that the members have in the end.
//!
//! Resources have versions (log indexes) and no revisions, so they are recorded apart from the
//! history of keys. The same rule holds: a request without a certain answer is `Unknown`, and its
//! name is never used again.

use std::time::Duration;

use headwater_proto::pb::headwater_v1::{ResourceType, resource_type::Scope};
use headwater_proto::pb::pbresource::{self as pb, Id, Resource, Tenancy, Type};
use parking_lot::Mutex;
use prost::Message;
use serde::Serialize;
use tonic::Status;

use crate::client::{INDEX, MIN_INDEX, Target, is_broken, judge, with_deadline};
use crate::history::{Clock, Micros, Outcome};

/// Kind of the resources that the requests of this module write. Commits write another kind.
pub(crate) const KIND: &str = "Item";
/// Name of the test's value in a resource's metadata: the type has no data.
const VALUE: &str = "value";
const REGISTERS: &str = "type.googleapis.com/headwater.v1.ResourceType";

/// The identity of one life of a resource: name and uid.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct ResourceIdentity {
    pub name: String,
    pub uid: String,
}

/// A request about one resource.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum ResourceRequest {
    /// Creates the resource, or replaces it unconditionally.
    Write { name: String, owner: Option<ResourceIdentity>, value: String },
    /// Deletes the resource only if it still has this uid.
    Delete(ResourceIdentity),
}

impl ResourceRequest {
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Write { name, .. } | Self::Delete(ResourceIdentity { name, .. }) => name,
        }
    }
}

/// Outcome of a [`ResourceRequest`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum ResourceOutcome {
    Written {
        uid: String,
        version: u64,
    },
    Deleted,
    /// Certainly not carried out, now or later.
    Failed(String),
    /// May have been carried out, or may still be.
    Unknown(String),
}

/// One request of one client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct ResourceRecord {
    pub process: u64,
    pub node: usize,
    pub call: Micros,
    pub done: Micros,
    pub act: ResourceRequest,
    pub became: ResourceOutcome,
}

/// A resource as a member has it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct StoredResource {
    pub life: ResourceIdentity,
    pub owner: Option<ResourceIdentity>,
    pub value: String,
    pub version: u64,
}

/// Collects the records of requests about resources.
#[derive(Debug, Default)]
pub(crate) struct Ledger(Mutex<Vec<ResourceRecord>>);

impl Ledger {
    pub(crate) fn keep(&self, deed: ResourceRecord) {
        self.0.lock().push(deed);
    }

    pub(crate) fn snapshot(&self) -> Vec<ResourceRecord> {
        self.0.lock().clone()
    }
}

/// Sends a request once; returns it with its outcome and times.
pub(crate) async fn carry_out(
    target: &Target,
    clock: Clock,
    process: u64,
    act: ResourceRequest,
    timeout: Duration,
) -> ResourceRecord {
    let call = clock.now();
    let became = match tokio::time::timeout(timeout, send(target, &act, timeout)).await {
        Ok(became) => became,
        Err(_) => ResourceOutcome::Unknown("no answer in time".to_owned()),
    };
    ResourceRecord { process, node: target.node, call, done: clock.now(), act, became }
}

async fn send(target: &Target, act: &ResourceRequest, timeout: Duration) -> ResourceOutcome {
    let mut client = match target.resources().await {
        Ok(client) => client,
        Err(why) => return ResourceOutcome::Failed(why),
    };
    let sent = match act {
        ResourceRequest::Write { name, owner, value } => {
            let resource = Resource {
                id: Some(id(KIND, name, "")),
                owner: owner.as_ref().map(|owner| id(KIND, &owner.name, &owner.uid)),
                metadata: [(VALUE.to_owned(), value.clone())].into(),
                ..Resource::default()
            };
            let written = client.write(with_deadline(pb::WriteRequest { resource: Some(resource) }, timeout)).await;
            written
                .map(|written| found(written.into_inner().resource.unwrap_or_default()))
                .map(|found| ResourceOutcome::Written { uid: found.life.uid, version: found.version })
        }
        ResourceRequest::Delete(life) => {
            let request = pb::DeleteRequest { id: Some(id(KIND, &life.name, &life.uid)), version: String::new() };
            client.delete(with_deadline(request, timeout)).await.map(|_| ResourceOutcome::Deleted)
        }
    };
    sent.unwrap_or_else(|status| {
        if is_broken(&status) {
            target.forget();
        }
        match judge(&status) {
            Outcome::Failed(why) => ResourceOutcome::Failed(why),
            Outcome::Ok(_) => unreachable!("invariant: a status is no answer"),
            Outcome::Unknown(why) => ResourceOutcome::Unknown(why),
        }
    })
}

/// Registers the type `kind` of the group `chaos.v1`, with cluster scope and without data.
/// Idempotent.
///
/// # Errors
///
/// If it is not certain that the type is registered.
pub(crate) async fn register(target: &Target, kind: &str, timeout: Duration) -> Result<(), String> {
    let Type { group, group_version, kind } = type_(kind);
    let name = format!("chaos-v1-{}", kind.to_lowercase());
    let scope = Scope::Cluster.into();
    let data = ResourceType { group, group_version, kind, scope, ..ResourceType::default() };
    let registers =
        Type { group: "headwater".to_owned(), group_version: "v1".to_owned(), kind: "ResourceType".to_owned() };
    let resource = Resource {
        id: Some(Id { name, r#type: Some(registers), ..Id::default() }),
        data: Some(prost_types::Any { type_url: REGISTERS.to_owned(), value: data.encode_to_vec() }),
        ..Resource::default()
    };
    let mut client = target.resources().await?;
    let written = client.write(with_deadline(pb::WriteRequest { resource: Some(resource) }, timeout));
    match tokio::time::timeout(timeout, written).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(status)) => {
            if is_broken(&status) {
                target.forget();
            }
            Err(status.message().to_owned())
        }
        Err(_) => Err("no answer in time".to_owned()),
    }
}

/// The log index of a member's state (0: the answer names none), and every resource of the kind
/// [`KIND`] in it, sorted by name. The state is at or past the log index `at_least`; with 0 the
/// read is linearizable.
///
/// # Errors
///
/// The reason why there is no answer.
pub(crate) async fn all(
    target: &Target,
    at_least: u64,
    timeout: Duration,
) -> Result<(u64, Vec<StoredResource>), String> {
    let mut client = target.resources().await?;
    let request =
        pb::ListRequest { r#type: Some(type_(KIND)), tenancy: Some(Tenancy::default()), name_prefix: String::new() };
    let mut request = with_deadline(request, timeout);
    if at_least > 0 {
        request.metadata_mut().insert(MIN_INDEX, at_least.into());
    } else {
        request.metadata_mut().insert("x-consul-consistency-mode", "consistent".parse().expect("a legal value"));
    }
    let answered = match client.list(request).await {
        Ok(answered) => answered,
        Err(status) => {
            if is_broken(&status) {
                target.forget();
            }
            return Err(describe(&status));
        }
    };
    let index = answered.metadata().get(INDEX).and_then(|text| text.to_str().ok()?.parse().ok()).unwrap_or(0);
    let mut all: Vec<StoredResource> = answered.into_inner().resources.into_iter().map(found).collect();
    all.sort();
    Ok((index, all))
}

fn describe(status: &Status) -> String {
    format!("{} ({:?})", status.message(), status.code())
}

/// A type of the group `chaos.v1`.
pub(crate) fn type_(kind: &str) -> Type {
    Type { group: "chaos".to_owned(), group_version: "v1".to_owned(), kind: kind.to_owned() }
}

/// The id of a resource of a type of the group `chaos.v1`. An empty `uid` names the resource with
/// any uid.
pub(crate) fn id(kind: &str, name: &str, uid: &str) -> Id {
    Id { uid: uid.to_owned(), name: name.to_owned(), r#type: Some(type_(kind)), tenancy: Some(Tenancy::default()) }
}

fn found(mut resource: Resource) -> StoredResource {
    let life = |id: Id| ResourceIdentity { name: id.name, uid: id.uid };
    StoredResource {
        life: life(resource.id.unwrap_or_default()),
        owner: resource.owner.map(life),
        value: resource.metadata.remove(VALUE).unwrap_or_default(),
        version: resource.version.parse().unwrap_or(0),
    }
}
