//! Register and deregister, and the configuration of terminating gateways.

use super::{CatalogError, ServiceCatalog};
use crate::{NodeError, Read, RequestContext, Unanswered};
use headwater_types::catalog::{CatalogCommand, CatalogDone, Deregistration, Registration, TerminatingGateway};
use headwater_types::{Command, Outcome};

impl ServiceCatalog<'_> {
    /// Registers a node, at most one instance on it, and checks of the node or its instances: all
    /// or nothing, in one log entry. Omitted fields are filled in ([`Registration::complete`]).
    ///
    /// # Errors
    ///
    /// [`CatalogError::Invalid`], [`CatalogError::Refused`]; those of
    /// [`Node::propose`](crate::Node::propose).
    pub async fn register(
        self,
        ctx: &RequestContext,
        mut registration: Registration,
    ) -> Result<Read<CatalogDone>, CatalogError> {
        registration.complete()?;
        self.propose(ctx, CatalogCommand::Register(Box::new(registration))).await
    }

    /// Removes a node with everything on it, an instance with its checks, or a check. Removing a
    /// missing row succeeds.
    ///
    /// # Errors
    ///
    /// As [`ServiceCatalog::register`].
    pub async fn deregister(
        self,
        ctx: &RequestContext,
        deregistration: Deregistration,
    ) -> Result<Read<CatalogDone>, CatalogError> {
        deregistration.check()?;
        self.propose(ctx, CatalogCommand::Deregister(Box::new(deregistration))).await
    }

    /// Creates or replaces the configuration of a terminating gateway: the services that clients in
    /// the mesh reach through it.
    ///
    /// # Errors
    ///
    /// As [`ServiceCatalog::register`].
    pub async fn set_gateway(
        self,
        ctx: &RequestContext,
        gateway: TerminatingGateway,
    ) -> Result<Read<CatalogDone>, CatalogError> {
        gateway.check()?;
        self.propose(ctx, CatalogCommand::SetGateway(Box::new(gateway))).await
    }

    /// Removes the configuration of a terminating gateway. Removing a missing one succeeds.
    ///
    /// # Errors
    ///
    /// As [`ServiceCatalog::register`].
    pub async fn delete_gateway(self, ctx: &RequestContext, name: String) -> Result<Read<CatalogDone>, CatalogError> {
        self.propose(ctx, CatalogCommand::DeleteGateway(name)).await
    }

    async fn propose(self, ctx: &RequestContext, command: CatalogCommand) -> Result<Read<CatalogDone>, CatalogError> {
        let applied = self.node.propose(ctx, Command::Catalog(command)).await?;
        match applied.outcome {
            Outcome::Catalog(value) => Ok(Read { index: applied.index, revision: applied.revision, value }),
            outcome => {
                tracing::error!(?outcome, "a command about the catalog came to something else");
                Err(NodeError::Indeterminate(Unanswered::LeaderFailed).into())
            }
        }
    }
}
