//! Events of the catalog for subscribers (spec: consul §2.2, §2.3, §2.8).

use std::sync::Arc;

use super::{CatalogNode, CheckServiceNode};

/// One event. The events of one command are delivered together, all deregistrations of a subject
/// before all its registrations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatalogEvent {
    /// Topic of the event.
    pub topic: CatalogTopic,
    /// Kind of the change.
    pub op: CatalogOp,
    /// The subject: the [`canonical`](super::canonical) name of the service or node; the name as
    /// registered in [`CatalogTopic::ServiceList`]; empty in [`CatalogTopic::Table`], and in
    /// [`CatalogTopic::ServiceHealthConnect`] for an event that only subscribers of the whole mesh
    /// receive.
    pub key: Arc<str>,
    /// Content of the event.
    pub body: CatalogBody,
}

/// The topics of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum CatalogTopic {
    /// An instance: its row, its node or a check of either has changed. For subscribers of its
    /// service.
    ServiceHealth = 1,
    /// The same for a proxy, a gateway or a native instance. For subscribers of the service that it
    /// makes reachable in the mesh.
    ServiceHealthConnect = 2,
    /// The name of a service, letter case included: `Register` when it gets its first instance,
    /// `Deregister` when it has lost its last.
    ServiceList = 3,
    /// A node: its row, or an instance or check on it, has changed.
    Node = 4,
    /// A table: a row of it has changed.
    Table = 5,
}

impl CatalogTopic {
    /// Every variant, by number.
    pub const ALL: [Self; 5] =
        [Self::ServiceHealth, Self::ServiceHealthConnect, Self::ServiceList, Self::Node, Self::Table];
}

/// Kind of the change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CatalogOp {
    /// The instance has left the subject; or the name or the node of the event was removed. A
    /// [`Register`](Self::Register) of the same command may add the instance again.
    Deregister,
    /// The instance, name or node in the event was added to the subject or changed. Also the kind
    /// of every event of [`CatalogTopic::Table`].
    Register,
}

/// Content of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CatalogBody {
    /// An instance, in both topics of health.
    Instance(Arc<CheckServiceNode>),
    /// The name of a service as it was registered, in [`CatalogTopic::ServiceList`].
    Name(Arc<str>),
    /// The node in its new state, or only its name after its removal, in [`CatalogTopic::Node`].
    Node(Arc<CatalogNode>),
    /// A table, in [`CatalogTopic::Table`].
    Table(CatalogTable),
}

/// The tables of the catalog.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum CatalogTable {
    /// Nodes.
    Nodes = 1,
    /// Service instances.
    Services = 2,
    /// Checks.
    Checks = 3,
    /// Configuration entries.
    Config = 4,
    /// Sessions.
    Sessions = 5,
}

impl CatalogTable {
    /// Every variant, by number.
    pub const ALL: [Self; 5] = [Self::Nodes, Self::Services, Self::Checks, Self::Config, Self::Sessions];
}
