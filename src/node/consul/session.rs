//! Sessions: create, destroy, renew, read.

use super::{Consul, other};
use crate::{Consistency, NodeError, Read, RequestContext, new_uuid};
use headwater_storage::state::{CatalogReader, ConsulReader, sessions};
use headwater_storage::{ReadView, StorageError};
use headwater_types::catalog::{CatalogTable, Indexed, QueryIndexSubject};
use headwater_types::consul::{ConsulCommand, ConsulOutcome, Deadline, Session, SessionCreate, SessionRefusal};
use headwater_types::{LeaseId, LeaseQuestion, Refusal};

impl Consul<'_> {
    /// Makes a session under a random id, and returns the id.
    ///
    /// # Errors
    ///
    /// [`Refusal::Session`] if the rules for its node and checks forbid it; those of
    /// [`Node::propose`](crate::Node::propose).
    pub async fn create_session(
        self,
        ctx: &RequestContext,
        mut create: SessionCreate,
    ) -> Result<Read<String>, NodeError> {
        loop {
            create.session.id = new_uuid();
            let command = ConsulCommand::SessionCreate(Box::new(create.clone()));
            match self.propose(ctx, command).await {
                // The random id is taken: try another one.
                Err(NodeError::Refused(Refusal::Session(SessionRefusal::Exists))) => {}
                Ok(((index, revision), ConsulOutcome::SessionCreated)) => {
                    return Ok(Read { index, revision, value: create.session.id });
                }
                Ok((_, outcome)) => return Err(other(&outcome)),
                Err(error) => return Err(error),
            }
        }
    }

    /// Ends a session. A missing session counts as ended.
    ///
    /// # Errors
    ///
    /// Those of [`Node::propose`](crate::Node::propose).
    pub async fn destroy_session(self, ctx: &RequestContext, id: String) -> Result<Read<()>, NodeError> {
        match self.propose(ctx, ConsulCommand::SessionDestroy(id)).await? {
            ((index, revision), ConsulOutcome::SessionDestroyed) => Ok(Read { index, revision, value: () }),
            (_, outcome) => Err(other(&outcome)),
        }
    }

    /// Restarts the time of a session, without a write, and returns the session. `None` if there is
    /// no such session, or it has expired. A session without a TTL is returned as it is. The caller
    /// checks the rights of the principal.
    ///
    /// # Errors
    ///
    /// As [`Leases::keep_alive`](crate::Leases::keep_alive); a repetition is safe.
    pub async fn renew_session(self, ctx: &RequestContext, id: String) -> Result<Read<Option<Session>>, NodeError> {
        let mut found = self.session_and_deadline(ctx, Consistency::Serializable, id.clone()).await?;
        if !matches!(found.value, (Some(_), Some(_))) {
            // Another member may have made or ended it a moment ago. A session without a TTL takes
            // this path, too: it has no deadline that the leader could be asked about.
            found = self.session_and_deadline(ctx, Consistency::Linearizable, id).await?;
        }
        let Read { index, revision, value: (session, deadline) } = found;
        let value = match (session, deadline) {
            (Some(session), Some(deadline)) => {
                self.node.leases().ask_leader(LeaseQuestion::KeepAlive(deadline), ctx.deadline).await?.map(|_| session)
            }
            // Without a TTL, it lives until it is destroyed.
            (session, _) => session,
        };
        Ok(Read { index, revision, value })
    }

    async fn session_and_deadline(
        self,
        ctx: &RequestContext,
        consistency: Consistency,
        id: String,
    ) -> Result<Read<(Option<Session>, Option<LeaseId>)>, NodeError> {
        self.node.ready_to_read(ctx, consistency).await?;
        self.node
            .read(true, ctx, move |view| Ok(Ok((view.session(&id)?, view.deadline(&Deadline::Session(id))?))))
            .await
    }

    /// A session by its id, with the query index of all sessions. `None` if it is absent. The
    /// caller checks the rights of the principal.
    ///
    /// # Errors
    ///
    /// Those of the read path, as [`Keys::range`](crate::Keys::range).
    pub async fn session(
        self,
        ctx: &RequestContext,
        consistency: Consistency,
        id: String,
    ) -> Result<Read<Indexed<Option<Session>>>, NodeError> {
        self.read_sessions(ctx, consistency, true, move |view| view.session(&id)).await
    }

    /// Every session, or those of one node, in the order of ids, with the query index of all
    /// sessions. The node's name is compared without letter case. The caller checks the rights of
    /// the principal.
    ///
    /// # Errors
    ///
    /// As [`Consul::session`].
    pub async fn sessions(
        self,
        ctx: &RequestContext,
        consistency: Consistency,
        node: Option<String>,
    ) -> Result<Read<Indexed<Vec<Session>>>, NodeError> {
        self.read_sessions(ctx, consistency, false, move |view| match &node {
            None => sessions(view),
            Some(node) => {
                let ids = view.node_sessions(node)?;
                ids.iter().filter_map(|id| view.session(id).transpose()).collect()
            }
        })
        .await
    }

    async fn read_sessions<T: Send + 'static>(
        self,
        ctx: &RequestContext,
        consistency: Consistency,
        is_small: bool,
        read: impl FnOnce(&ReadView<'_>) -> Result<T, StorageError> + Send + 'static,
    ) -> Result<Read<Indexed<T>>, NodeError> {
        self.node.ready_to_read(ctx, consistency).await?;
        self.node
            .read(is_small, ctx, move |view| {
                let index = view.query_index(&QueryIndexSubject::Table(CatalogTable::Sessions))?;
                Ok(Ok(Indexed { index: view.head().floored(index), value: read(view)? }))
            })
            .await
    }
}
