//! Rows of the catalog: each has a key, bytes, and entries in secondary indexes.
//!
//! Owns the index entries of a row. Invariant: they depend on the row alone.

use std::sync::Arc;

use bytes::Bytes;

use super::super::keys::Table;
use super::super::record::Version;
use super::keys;
use headwater_proto::codec::{self, CodecError};
use headwater_types::LogIndex;
use headwater_types::catalog::{CatalogNode, Check, Service, ServiceKind, TerminatingGateway};

/// A row of the catalog.
pub trait CatalogRow: Clone + PartialEq + Send + Sync + 'static {
    /// The table of the row.
    const TABLE: Table;

    /// Key of the row in its table.
    fn key(&self) -> Bytes;

    /// The row as bytes. They leave `modified` out if it is zero.
    fn encode(&self) -> Bytes;

    /// Decodes the bytes of a row that the command at log index `at` wrote: `modified` becomes `at`
    /// if the bytes leave it out.
    ///
    /// # Errors
    ///
    /// If this version of the program does not understand the bytes.
    fn decode(bytes: Bytes, at: LogIndex) -> Result<Self, CodecError>;

    /// Keys of the row's entries in the column family `index`.
    fn entries(&self) -> Vec<Vec<u8>>;

    /// The log indexes of the row's creation and of its last change, in this order, as mutable
    /// references.
    fn indexes(&mut self) -> (&mut LogIndex, &mut LogIndex);

    /// The log indexes of the row's creation and of its last change, in this order.
    fn stamps(&self) -> (LogIndex, LogIndex);
}

/// A stored row with its newest version.
#[derive(Clone, Debug)]
pub struct StoredRow<R> {
    /// Newest version of the row.
    pub version: Version,
    /// The decoded row.
    pub row: Arc<R>,
}

impl CatalogRow for CatalogNode {
    const TABLE: Table = Table::CatalogNode;

    fn key(&self) -> Bytes {
        keys::node(&self.name)
    }

    fn encode(&self) -> Bytes {
        codec::catalog::encode_node(self)
    }

    fn decode(bytes: Bytes, at: LogIndex) -> Result<Self, CodecError> {
        codec::catalog::decode_node(bytes, at)
    }

    fn entries(&self) -> Vec<Vec<u8>> {
        if self.id.is_empty() { Vec::new() } else { vec![followed(keys::node_id(&self.id), &self.key())] }
    }

    fn indexes(&mut self) -> (&mut LogIndex, &mut LogIndex) {
        (&mut self.created, &mut self.modified)
    }

    fn stamps(&self) -> (LogIndex, LogIndex) {
        (self.created, self.modified)
    }
}

impl CatalogRow for Service {
    const TABLE: Table = Table::CatalogService;

    fn key(&self) -> Bytes {
        keys::on_node(&self.node, &self.id)
    }

    fn encode(&self) -> Bytes {
        codec::catalog::encode_service(self)
    }

    fn decode(bytes: Bytes, at: LogIndex) -> Result<Self, CodecError> {
        codec::catalog::decode_service(bytes, at)
    }

    fn entries(&self) -> Vec<Vec<u8>> {
        let key = self.key();
        let mut entries = vec![
            followed(keys::services_of(&self.node), self.id.as_bytes()),
            followed(keys::instances(&self.name), &key),
            followed(keys::name_and_tag(&self.name, None), &key),
        ];
        entries.extend(self.tags.iter().map(|tag| followed(keys::name_and_tag(&self.name, Some(tag)), &key)));
        entries.extend(mesh_name(self).map(|name| followed(keys::mesh(name), &key)));
        entries
    }

    fn indexes(&mut self) -> (&mut LogIndex, &mut LogIndex) {
        (&mut self.created, &mut self.modified)
    }

    fn stamps(&self) -> (LogIndex, LogIndex) {
        (self.created, self.modified)
    }
}

/// Name of the service that can be reached in the mesh through this instance (spec: consul §2.3).
/// `None` if there is none that follows from the instance alone: a [`TerminatingGateway`] names the
/// services behind it.
pub fn mesh_name(service: &Service) -> Option<&str> {
    match service.kind {
        ServiceKind::ConnectProxy => Some(&service.proxy.destination_service_name),
        ServiceKind::Typical
        | ServiceKind::MeshGateway
        | ServiceKind::TerminatingGateway
        | ServiceKind::IngressGateway
        | ServiceKind::ApiGateway => service.connect.native.then_some(service.name.as_str()),
    }
}

impl CatalogRow for Check {
    const TABLE: Table = Table::CatalogCheck;

    fn key(&self) -> Bytes {
        keys::on_node(&self.node, &self.id)
    }

    fn encode(&self) -> Bytes {
        codec::catalog::encode_check(self)
    }

    fn decode(bytes: Bytes, at: LogIndex) -> Result<Self, CodecError> {
        codec::catalog::decode_check(bytes, at)
    }

    fn entries(&self) -> Vec<Vec<u8>> {
        vec![
            followed(keys::checks_of(&self.node, &self.service_id), self.id.as_bytes()),
            followed(keys::status(self.status).to_vec(), &self.key()),
        ]
    }

    fn indexes(&mut self) -> (&mut LogIndex, &mut LogIndex) {
        (&mut self.created, &mut self.modified)
    }

    fn stamps(&self) -> (LogIndex, LogIndex) {
        (self.created, self.modified)
    }
}

impl CatalogRow for TerminatingGateway {
    const TABLE: Table = Table::CatalogGateway;

    fn key(&self) -> Bytes {
        keys::gateway(&self.name)
    }

    fn encode(&self) -> Bytes {
        codec::catalog::encode_gateway(self)
    }

    fn decode(bytes: Bytes, at: LogIndex) -> Result<Self, CodecError> {
        codec::catalog::decode_gateway(bytes, at)
    }

    fn entries(&self) -> Vec<Vec<u8>> {
        self.services.iter().map(|link| followed(keys::links(&link.name), &self.key())).collect()
    }

    fn indexes(&mut self) -> (&mut LogIndex, &mut LogIndex) {
        (&mut self.created, &mut self.modified)
    }

    fn stamps(&self) -> (LogIndex, LogIndex) {
        (self.created, self.modified)
    }
}

fn followed(mut prefix: Vec<u8>, rest: &[u8]) -> Vec<u8> {
    prefix.extend_from_slice(rest);
    prefix
}
