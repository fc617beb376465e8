//! Events of the catalog for subscribers (spec: consul §2.2, §2.3, §2.8).

use std::sync::Arc;

use super::{CheckServiceNode, Node};

/// One event. Those of one command come together, all deregistrations of a subject before all its
/// registrations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatalogEvent {
    /// Topic of the event.
    pub topic: CatalogTopic,
    /// Whether something came or changed, or went.
    pub op: CatalogOp,
    /// The subject: the canonical name of the service or node; the exact name in
    /// [`CatalogTopic::ServiceList`]; empty for [`CatalogTopic::Table`].
    pub key: Arc<str>,
    /// Content of the event.
    pub body: CatalogBody,
}

/// The sorts of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum CatalogTopic {
    /// An instance, to subscribers of its service.
    ServiceHealth = 1,
    /// An instance, to subscribers of the service that can be reached in the mesh through it.
    ServiceHealthConnect = 2,
    /// A name of a service, with its first and its last instance.
    ServiceList = 3,
    /// A node: its row, or anything on it, has changed.
    Node = 4,
    /// A table: anything in it has changed.
    Table = 5,
}

impl CatalogTopic {
    /// Every one, by number.
    pub const ALL: [Self; 5] =
        [Self::ServiceHealth, Self::ServiceHealthConnect, Self::ServiceList, Self::Node, Self::Table];
}

/// Whether something came or changed, or went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CatalogOp {
    /// It is gone.
    Deregister,
    /// It came, or is different now.
    Register,
}

/// Content of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CatalogBody {
    /// An instance: of both topics of health.
    Instance(Arc<CheckServiceNode>),
    /// The name of a service, as it was registered: of [`CatalogTopic::ServiceList`].
    Name(Arc<str>),
    /// A node as it is now; once it has gone, only its name: of [`CatalogTopic::Node`].
    Node(Arc<Node>),
    /// A table: of [`CatalogTopic::Table`].
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
    /// Every one, by number.
    pub const ALL: [Self; 5] = [Self::Nodes, Self::Services, Self::Checks, Self::Config, Self::Sessions];
}
