//! The service catalog as every layer below the faces sees it: nodes, service instances, checks
//! (spec: consul §2, §4).
//!
//! Owns the rows, the equality of names, and the defaults of a registration. Does not interpret
//! JSON or protobuf: fields that no rule reads (settings of proxies) are kept as the text of a JSON
//! object, so that nothing that was registered is lost. Invariant: maps are ordered, so that equal
//! rows encode to equal bytes.

mod check;
mod command;
mod config;
mod event;
mod read;
mod registration;
mod service;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use check::{Check, CheckDefinition, CheckStatus};
pub use command::{
    CatalogCommand, CatalogDone, CatalogRefusal, CheckGuard, Deregistration, DeregistrationTarget, Registration,
};
pub use config::{LinkedService, TerminatingGateway};
pub use event::{CatalogBody, CatalogEvent, CatalogOp, CatalogTable, CatalogTopic};
pub use read::{Indexed, QueryIndexSubject, ServiceName};
pub use registration::RegistrationProblem;
pub use service::{Proxy, Service, ServiceAddress, ServiceConnect, ServiceKind, Weights};

use super::LogIndex;

/// A node of the catalog: a machine, or another host of services. Not a node of Headwater.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CatalogNode {
    /// Name of the node, as it was registered. Names that differ only in ASCII case are equal.
    pub name: String,
    /// UUID of the node; may be empty.
    pub id: String,
    /// Address of the node: an IP address or a host name.
    pub address: String,
    /// Other addresses by purpose (`lan`, `wan`).
    pub tagged_addresses: BTreeMap<String, String>,
    /// Key-value pairs of the client that registered the node.
    pub meta: BTreeMap<String, String>,
    /// Locality of the node, if it was registered with one.
    pub locality: Option<Locality>,
    /// Log index of the command that created this row; zero if it is not stored.
    pub created: LogIndex,
    /// Log index of the last change of this row; zero if it is not stored.
    pub modified: LogIndex,
}

impl CatalogNode {
    /// Whether registering `given`, a node of the same name, changes this stored row. A
    /// registration without an id keeps the stored id.
    pub fn is_changed_by(&self, given: &Self) -> bool {
        !given.id.is_empty() && !given.id.eq_ignore_ascii_case(&self.id)
            || given.address != self.address
            || given.tagged_addresses != self.tagged_addresses
            || given.meta != self.meta
            || given.locality != self.locality
    }
}

/// Region and zone of a node or an instance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Locality {
    /// The region.
    pub region: String,
    /// The zone in the region.
    pub zone: String,
}

/// An instance of a service with its node and the checks of both: the payload of health events and
/// answers (spec: consul §2.5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckServiceNode {
    /// The node. In a deregistration, only its name.
    pub node: Arc<CatalogNode>,
    /// The instance. In a deregistration, its last state.
    pub service: Arc<Service>,
    /// Checks of the node, then those of the instance, both ordered by id. Empty in a
    /// deregistration.
    pub checks: Vec<Arc<Check>>,
}

impl CheckServiceNode {
    /// The worst status of [`checks`](Self::checks); passing if there are none.
    pub fn worst(&self) -> CheckStatus {
        self.checks.iter().map(|check| check.status).max().unwrap_or(CheckStatus::Passing)
    }
}

/// The form in which names of nodes and services are compared: with ASCII letters in lower case
/// (spec: consul §1.4, §2.2). Other letters stay, because their case depends on the Unicode tables
/// that a member was compiled with. Ids of instances and checks are compared unchanged.
pub fn canonical(name: &str) -> String {
    name.to_ascii_lowercase()
}
