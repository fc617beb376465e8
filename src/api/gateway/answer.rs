//! Writes the answers of routes. Only those that contain messages of any type
//! (`google.protobuf.Any`) need the types of resources that were registered at run time, which the
//! node knows. A message of an unknown type is written as its bytes in base64, in the field
//! `value`.

use std::sync::Arc;

use bytes::Bytes;
use tonic::Status;

use super::layout::{Layouts, Place};
use super::routes::Route;
use super::write;
use headwater_node::Node;

/// The full name of the message that contains a message of any type.
pub(super) const ANY: &str = "google.protobuf.Any";
/// The full name of the message of a resource.
pub(super) const RESOURCE: &str = "hashicorp.consul.resource.Resource";

/// Writes the answers of one route as JSON.
#[derive(Clone)]
pub(super) struct AnswerWriter {
    layouts: Arc<Layouts>,
    output: Place,
    node: Option<Node>,
}

impl AnswerWriter {
    /// The writer for the answers of `route`. `node` supplies the registered types of resources;
    /// without it, only the types in this program's protos are known.
    pub(super) fn new(layouts: &Arc<Layouts>, route: &Route, node: Option<&Node>) -> Self {
        let node = node.filter(|_| route.has_any).cloned();
        let output = layouts.find(route.output.full_name()).expect("invariant: layouts and routes are of one pool");
        Self { layouts: Arc::clone(layouts), output, node }
    }

    /// Writes an encoded message.
    ///
    /// # Errors
    ///
    /// `INTERNAL` if the message is malformed; no service of this program sends one.
    pub(super) async fn write(&self, message: &Bytes) -> Result<Vec<u8>, Status> {
        let mut text = Vec::with_capacity(capacity(message));
        self.append(message, &mut text).await?;
        Ok(text)
    }

    /// Writes an encoded message as one line of a stream: `{"result":…}`.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write).
    pub(super) async fn write_result(&self, message: &Bytes) -> Result<Vec<u8>, Status> {
        let mut line = Vec::with_capacity(capacity(message));
        line.extend_from_slice(b"{\"result\":");
        self.append(message, &mut line).await?;
        line.extend_from_slice(b"}\n");
        Ok(line)
    }

    async fn append(&self, message: &Bytes, text: &mut Vec<u8>) -> Result<(), Status> {
        let types = match &self.node {
            Some(node) => node.resources().types().await.ok(),
            None => None,
        };
        let written = write::write(&self.layouts, types.as_deref(), self.output, message, text);
        written.map_err(|_| Status::internal("headwater: an answer cannot be written as JSON; report this"))
    }
}

/// Bytes for the text of a message: base64 takes four for three, and names are added.
fn capacity(message: &Bytes) -> usize {
    256 + message.len() / 2 * 3
}
