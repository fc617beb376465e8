//! Results of reads of the catalog, and the index by which a client waits for the next result
//! (spec: consul §2.6).

use std::collections::BTreeSet;

use super::CatalogTable;
use crate::LogIndex;

/// An answer with its query index: the log index of the last change that could have changed it.
/// Zero if there was none; an API that must answer a positive number raises it.
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
    /// Tags of all its instances together.
    pub tags: BTreeSet<String>,
}

/// Subject of a query index. Names are canonical.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum QueryIndexSubject {
    /// The last change in a table.
    Table(CatalogTable),
    /// The last change of the answer to a health query of this service.
    Service(String),
    /// The same for a health query of this service in the mesh.
    Connect(String),
    /// The last change of a node, or of anything on it.
    Node(String),
    /// The last time that any service lost its last instance.
    ServiceGone,
    /// The last time that any service lost its last instance in the mesh.
    ConnectGone,
    /// The last removal of any node.
    NodeGone,
}
