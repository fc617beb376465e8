//! Results of reads of the catalog, and the index by which a client waits for the next result
//! (spec: consul §2.6).

use std::collections::BTreeSet;

use super::CatalogTable;
use crate::LogIndex;

/// An answer with its query index: the log index of the last command that may have changed the
/// answer; zero if there was none. For clients it is raised to the log index at which the store was
/// restored, and a face that must return a positive number raises a zero.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Indexed<T> {
    /// The query index of the answer.
    pub index: LogIndex,
    /// The answer.
    pub value: T,
}

/// The name of a service with the tags of its instances.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceName {
    /// Name of the service, as it was registered.
    pub name: String,
    /// The union of the tags of its instances.
    pub tags: BTreeSet<String>,
}

/// Subject of a query index. Each variant describes a change; the query index is the log index of
/// that change. Names are [`canonical`](super::canonical).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum QueryIndexSubject {
    /// The last change of any row of a table.
    Table(CatalogTable),
    /// The last change of the answer to a health query of this service.
    Service(String),
    /// The last change of the answer to a health query of this service in the mesh (Connect).
    Connect(String),
    /// The last change of this node, or of an instance or check on it.
    Node(String),
    /// The last removal of the last instance of any service.
    ServiceGone,
    /// The last removal of the last instance of any service in the mesh (Connect).
    ConnectGone,
    /// The last removal of any node.
    NodeGone,
}
