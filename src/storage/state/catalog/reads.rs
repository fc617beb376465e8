//! Reads of the catalog, on secondary indexes: what a read costs is what it answers with, never the table.
//!
//! Owns which rows an answer has and in which order, and its query index (spec: consul §2.6). Invariant: an answer and its
//! index are of one state, and the index of an answer that is different from an earlier one is higher.

use std::sync::Arc;

use super::super::reader::StateReader;
use crate::storage::StorageError;
use crate::types::LogIndex;
use crate::types::catalog::{
    CatalogMark, Check, CheckServiceNode, CheckStatus, Indexed, Node, Service, ServiceName, TerminatingGateway,
};

/// What can be read of the catalog in any state. Names are taken in any case; lists are sorted by node, then id.
///
/// # Errors
///
/// Each method: if the disk failed, or what is stored cannot be decoded.
pub trait CatalogReader: StateReader {
    /// The log index of the last change of what `mark` is kept for; zero if there is none, or nothing of it is left.
    fn catalog_mark(&self, mark: &CatalogMark) -> Result<LogIndex, StorageError>;

    /// Every node.
    fn nodes(&self) -> Result<Indexed<Vec<Arc<Node>>>, StorageError>;

    /// A node.
    fn node(&self, name: &str) -> Result<Indexed<Option<Arc<Node>>>, StorageError>;

    /// The node with this UUID.
    fn node_by_id(&self, id: &str) -> Result<Option<Arc<Node>>, StorageError>;

    /// Instances on a node.
    fn services_of_node(&self, node: &str) -> Result<Indexed<Vec<Arc<Service>>>, StorageError>;

    /// An instance on a node.
    fn service(&self, node: &str, id: &str) -> Result<Option<Arc<Service>>, StorageError>;

    /// Checks of a node and of all instances on it.
    fn checks_of_node(&self, node: &str) -> Result<Indexed<Vec<Arc<Check>>>, StorageError>;

    /// A check on a node.
    fn check(&self, node: &str, id: &str) -> Result<Option<Arc<Check>>, StorageError>;

    /// Checks of all instances of a service, without those of their nodes.
    fn checks_of_service(&self, service: &str) -> Result<Indexed<Vec<Arc<Check>>>, StorageError>;

    /// Checks with a status; all of them if none is given.
    fn checks_in_state(&self, status: Option<CheckStatus>) -> Result<Indexed<Vec<Arc<Check>>>, StorageError>;

    /// Instances of a service.
    fn instances(&self, service: &str) -> Result<Indexed<Vec<Arc<CheckServiceNode>>>, StorageError>;

    /// Instances through which a service can be reached in the mesh: native ones, sidecars, terminating gateways.
    fn connect_instances(&self, service: &str) -> Result<Indexed<Vec<Arc<CheckServiceNode>>>, StorageError>;

    /// Every instance of every service.
    fn all_instances(&self) -> Result<Indexed<Vec<Arc<CheckServiceNode>>>, StorageError>;

    /// Names of services with the tags of their instances.
    fn service_names(&self) -> Result<Indexed<Vec<ServiceName>>, StorageError>;

    /// What is configured for a terminating gateway.
    fn gateway(&self, name: &str) -> Result<Indexed<Option<Arc<TerminatingGateway>>>, StorageError>;

    /// Every terminating gateway that is configured.
    fn gateways(&self) -> Result<Indexed<Vec<Arc<TerminatingGateway>>>, StorageError>;
}

impl<S: StateReader + ?Sized> CatalogReader for S {
    fn catalog_mark(&self, mark: &CatalogMark) -> Result<LogIndex, StorageError> {
        unimplemented!("follows in the next commit")
    }
    fn nodes(&self) -> Result<Indexed<Vec<Arc<Node>>>, StorageError> {
        unimplemented!("follows in the next commit")
    }
    fn node(&self, name: &str) -> Result<Indexed<Option<Arc<Node>>>, StorageError> {
        unimplemented!("follows in the next commit")
    }
    fn node_by_id(&self, id: &str) -> Result<Option<Arc<Node>>, StorageError> {
        unimplemented!("follows in the next commit")
    }
    fn services_of_node(&self, node: &str) -> Result<Indexed<Vec<Arc<Service>>>, StorageError> {
        unimplemented!("follows in the next commit")
    }
    fn service(&self, node: &str, id: &str) -> Result<Option<Arc<Service>>, StorageError> {
        unimplemented!("follows in the next commit")
    }
    fn checks_of_node(&self, node: &str) -> Result<Indexed<Vec<Arc<Check>>>, StorageError> {
        unimplemented!("follows in the next commit")
    }
    fn check(&self, node: &str, id: &str) -> Result<Option<Arc<Check>>, StorageError> {
        unimplemented!("follows in the next commit")
    }
    fn checks_of_service(&self, service: &str) -> Result<Indexed<Vec<Arc<Check>>>, StorageError> {
        unimplemented!("follows in the next commit")
    }
    fn checks_in_state(&self, status: Option<CheckStatus>) -> Result<Indexed<Vec<Arc<Check>>>, StorageError> {
        unimplemented!("follows in the next commit")
    }
    fn instances(&self, service: &str) -> Result<Indexed<Vec<Arc<CheckServiceNode>>>, StorageError> {
        unimplemented!("follows in the next commit")
    }
    fn connect_instances(&self, service: &str) -> Result<Indexed<Vec<Arc<CheckServiceNode>>>, StorageError> {
        unimplemented!("follows in the next commit")
    }
    fn all_instances(&self) -> Result<Indexed<Vec<Arc<CheckServiceNode>>>, StorageError> {
        unimplemented!("follows in the next commit")
    }
    fn service_names(&self) -> Result<Indexed<Vec<ServiceName>>, StorageError> {
        unimplemented!("follows in the next commit")
    }
    fn gateway(&self, name: &str) -> Result<Indexed<Option<Arc<TerminatingGateway>>>, StorageError> {
        unimplemented!("follows in the next commit")
    }
    fn gateways(&self) -> Result<Indexed<Vec<Arc<TerminatingGateway>>>, StorageError> {
        unimplemented!("follows in the next commit")
    }
}
