//! The reader of a stream: the rights of its token, and their changes (spec: security §4).
//!
//! Owns the filter. Lists and events are shared by streams with different tokens, so they are
//! filtered where they are sent. Invariant: no event is sent under rights that had changed before
//! it; a stream ends with `ABORTED` when the rights of its token change, so that the client begins
//! again.

use std::sync::Arc;

use bytes::Bytes;
use prost::Message;

use headwater_api_shared::stream::StreamEnd;
use headwater_node::{Authorizer, Node, NodeError, RequestContext};
use headwater_proto::pb::subscribe::Event;
use headwater_proto::pb::subscribe::event::Payload;
use headwater_types::catalog::{CatalogBody, CatalogEvent};
use headwater_types::{Access, AuthRefusal, LogIndex, Refusal, Space};

/// The principal of a stream, with its rights.
pub(super) struct Reader {
    node: Node,
    context: RequestContext,
    authorizer: Authorizer,
    /// Log index of the last change of rights, of any principal, when the stream was last judged.
    as_of: LogIndex,
}

impl Reader {
    /// The reader of a request.
    ///
    /// # Errors
    ///
    /// If the credentials of the request are refused.
    pub(super) fn new(node: &Node, context: &RequestContext) -> Result<Self, NodeError> {
        let context = node.stream_context(context)?;
        let authorizer = node.authorizer(&context)?;
        let as_of = authorizer.as_of();
        Ok(Self { node: node.clone(), context, authorizer, as_of })
    }

    /// Judges the principal again. `Err`, which ends the stream, if its rights have changed or its
    /// credentials are not valid any more.
    pub(super) fn check(&mut self) -> Result<(), StreamEnd> {
        let now = self.node.rights_changed();
        // A token ends by the clock, too.
        if now == self.as_of && self.authorizer.is_open() {
            return Ok(());
        }
        let authorizer = self.node.authorizer(&self.context)?;
        if !has_same_rights(&authorizer, &self.authorizer) {
            return Err(NodeError::Refused(Refusal::Auth(AuthRefusal::OldRevision)).into());
        }
        self.as_of = now;
        self.authorizer = authorizer;
        Ok(())
    }

    fn may_read(&self, space: Space, name: &str) -> bool {
        self.authorizer.allows(space, &space.key_of(name), Access::READ)
    }

    /// Whether the principal may read the node and the service that `event` is about. True for a
    /// change of a table, which names neither.
    pub(super) fn sees(&self, event: &CatalogEvent) -> bool {
        if self.authorizer.is_open() {
            return true;
        }
        match &event.body {
            CatalogBody::Instance(instance) => {
                self.may_read(Space::CatalogNode, &instance.node.name)
                    && self.may_read(Space::CatalogService, &instance.service.name)
            }
            CatalogBody::Name(name) => self.may_read(Space::CatalogService, name),
            CatalogBody::Node(node) => self.may_read(Space::CatalogNode, &node.name),
            CatalogBody::Table(_) => true,
        }
    }

    /// As [`sees`](Self::sees), for an encoded row of a shared list. A row that cannot be decoded
    /// is not sent.
    pub(super) fn sees_payload(&self, payload: &Bytes) -> bool {
        if self.authorizer.is_open() {
            return true;
        }
        match Event::decode(payload.clone()).ok().and_then(|event| event.payload) {
            Some(Payload::ServiceHealth(update)) => update.check_service_node.is_some_and(|instance| {
                instance.node.is_some_and(|node| self.may_read(Space::CatalogNode, &node.node))
                    && instance.service.is_some_and(|it| self.may_read(Space::CatalogService, &it.service))
            }),
            Some(Payload::Service(update)) => self.may_read(Space::CatalogService, &update.name),
            _ => false,
        }
    }
}

/// Whether two authorizers have the same rights. Also true if both are open and have none.
fn has_same_rights(one: &Authorizer, other: &Authorizer) -> bool {
    match (one.rights(), other.rights()) {
        // Rights are compiled once for many judgements.
        (Some(one), Some(other)) => Arc::ptr_eq(one, other) || one == other,
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    }
}
