//! Queries of the catalog. Each answer comes from one view, and carries its query index.

use std::sync::Arc;

use super::ServiceCatalog;
use crate::{Consistency, NodeError, Read, RequestContext};
use headwater_storage::state::CatalogReader;
use headwater_storage::{ReadView, StorageError};
use headwater_types::catalog::{
    self, Check, CheckServiceNode, CheckStatus, Indexed, Service, ServiceName, TerminatingGateway,
};

/// An answer with its query index, and the coordinates of the view that it comes from.
type Answer<T> = Result<Read<Indexed<T>>, NodeError>;

/// Each method answers one query. Names are compared without letter case; ids of instances and
/// checks are compared exactly. Lists are sorted by node, then id, unless the method names another
/// order. A missing row gives an empty answer, with a query index that moves when the row appears.
/// The caller checks the rights of the principal.
///
/// # Errors
///
/// Those of the read path, as [`Keys::range`](crate::Keys::range). A failed read may always be
/// repeated.
impl ServiceCatalog<'_> {
    /// Every node of the catalog, by name.
    ///
    /// # Errors
    ///
    /// As [`Keys::range`](crate::Keys::range).
    pub async fn nodes(self, ctx: &RequestContext, consistency: Consistency) -> Answer<Vec<Arc<catalog::CatalogNode>>> {
        self.read(ctx, consistency, false, move |view| view.nodes()).await
    }

    /// The node of the catalog with this name.
    ///
    /// # Errors
    ///
    /// As [`Keys::range`](crate::Keys::range).
    pub async fn node(
        self,
        ctx: &RequestContext,
        consistency: Consistency,
        name: String,
    ) -> Answer<Option<Arc<catalog::CatalogNode>>> {
        self.read(ctx, consistency, true, move |view| view.node(&name)).await
    }

    /// The node of the catalog with this UUID. The query index is the applied index: any command
    /// moves it.
    ///
    /// # Errors
    ///
    /// As [`Keys::range`](crate::Keys::range).
    pub async fn node_by_id(
        self,
        ctx: &RequestContext,
        consistency: Consistency,
        id: String,
    ) -> Answer<Option<Arc<catalog::CatalogNode>>> {
        let answer = move |view: &ReadView<'_>| {
            let value = view.node_by_id(&id)?.map(|stored| stored.row);
            Ok(Indexed { index: view.head().applied_index(), value })
        };
        self.read(ctx, consistency, true, answer).await
    }

    /// The content of a node: its instances, by id, and the checks of the node and of all
    /// instances. Checks of the node come first, then those of its instances, by the id of the
    /// instance, then by their own.
    ///
    /// # Errors
    ///
    /// As [`Keys::range`](crate::Keys::range).
    pub async fn contents_of_node(
        self,
        ctx: &RequestContext,
        consistency: Consistency,
        node: String,
    ) -> Answer<(Vec<Arc<Service>>, Vec<Arc<Check>>)> {
        let answer = move |view: &ReadView<'_>| {
            let Indexed { index, value: services } = view.services_of_node(&node)?;
            Ok(Indexed { index, value: (services, view.checks_of_node(&node)?.value) })
        };
        self.read(ctx, consistency, false, answer).await
    }

    /// One instance on a node, by its id.
    ///
    /// # Errors
    ///
    /// As [`Keys::range`](crate::Keys::range).
    pub async fn service_on_node(
        self,
        ctx: &RequestContext,
        consistency: Consistency,
        node: String,
        id: String,
    ) -> Answer<Option<Arc<Service>>> {
        let answer = move |view: &ReadView<'_>| {
            let value = view.service(&node, &id)?.map(|stored| stored.row);
            Ok(Indexed { index: view.node_index(&node)?, value })
        };
        self.read(ctx, consistency, true, answer).await
    }

    /// One check on a node, by its id: the node's own, or an instance's.
    ///
    /// # Errors
    ///
    /// As [`Keys::range`](crate::Keys::range).
    pub async fn check_on_node(
        self,
        ctx: &RequestContext,
        consistency: Consistency,
        node: String,
        id: String,
    ) -> Answer<Option<Arc<Check>>> {
        let answer = move |view: &ReadView<'_>| {
            let value = view.check(&node, &id)?.map(|stored| stored.row);
            Ok(Indexed { index: view.node_index(&node)?, value })
        };
        self.read(ctx, consistency, true, answer).await
    }

    /// A node and its instances; `None` without the node.
    ///
    /// # Errors
    ///
    /// As [`Keys::range`](crate::Keys::range).
    pub async fn node_with_services(
        self,
        ctx: &RequestContext,
        consistency: Consistency,
        name: String,
    ) -> Answer<Option<(Arc<catalog::CatalogNode>, Vec<Arc<Service>>)>> {
        let answer = move |view: &ReadView<'_>| {
            let Indexed { index, value } = view.node(&name)?;
            let Some(node) = value else { return Ok(Indexed { index, value: None }) };
            let services = view.services_of_node(&name)?.value;
            Ok(Indexed { index, value: Some((node, services)) })
        };
        self.read(ctx, consistency, false, answer).await
    }

    /// Checks of a node and of all instances on it. Those of the node come first, then those of its
    /// instances, by the id of the instance, then by their own.
    ///
    /// # Errors
    ///
    /// As [`Keys::range`](crate::Keys::range).
    pub async fn checks_of_node(
        self,
        ctx: &RequestContext,
        consistency: Consistency,
        node: String,
    ) -> Answer<Vec<Arc<Check>>> {
        self.read(ctx, consistency, false, move |view| view.checks_of_node(&node)).await
    }

    /// Checks of all instances of a service, without those of their nodes. Sorted by node, then by
    /// the id of the instance, then by their own.
    ///
    /// # Errors
    ///
    /// As [`Keys::range`](crate::Keys::range).
    pub async fn checks_of_service(
        self,
        ctx: &RequestContext,
        consistency: Consistency,
        service: String,
    ) -> Answer<Vec<Arc<Check>>> {
        self.read(ctx, consistency, false, move |view| view.checks_of_service(&service)).await
    }

    /// Instances of a service, with nodes and checks.
    ///
    /// # Errors
    ///
    /// As [`Keys::range`](crate::Keys::range).
    pub async fn instances(
        self,
        ctx: &RequestContext,
        consistency: Consistency,
        service: String,
    ) -> Answer<Vec<Arc<CheckServiceNode>>> {
        self.read(ctx, consistency, false, move |view| view.instances(&service)).await
    }

    /// Instances through which a service can be reached in the mesh: native ones, sidecars, and
    /// terminating gateways. With nodes and checks.
    ///
    /// # Errors
    ///
    /// As [`Keys::range`](crate::Keys::range).
    pub async fn connect_instances(
        self,
        ctx: &RequestContext,
        consistency: Consistency,
        service: String,
    ) -> Answer<Vec<Arc<CheckServiceNode>>> {
        self.read(ctx, consistency, false, move |view| view.connect_instances(&service)).await
    }

    /// Every instance of every service, with nodes and checks. Sorted by service first.
    ///
    /// # Errors
    ///
    /// As [`Keys::range`](crate::Keys::range).
    pub async fn all_instances(
        self,
        ctx: &RequestContext,
        consistency: Consistency,
    ) -> Answer<Vec<Arc<CheckServiceNode>>> {
        self.read(ctx, consistency, false, move |view| view.all_instances()).await
    }

    /// Names of the services that have instances, each with the tags of its instances. Sorted by
    /// name.
    ///
    /// # Errors
    ///
    /// As [`Keys::range`](crate::Keys::range).
    pub async fn service_names(self, ctx: &RequestContext, consistency: Consistency) -> Answer<Vec<ServiceName>> {
        self.read(ctx, consistency, false, move |view| view.service_names()).await
    }

    /// The configuration of a terminating gateway.
    ///
    /// # Errors
    ///
    /// As [`Keys::range`](crate::Keys::range).
    pub async fn gateway(
        self,
        ctx: &RequestContext,
        consistency: Consistency,
        name: String,
    ) -> Answer<Option<Arc<TerminatingGateway>>> {
        self.read(ctx, consistency, true, move |view| view.gateway(&name)).await
    }

    /// Every configured terminating gateway, by name.
    ///
    /// # Errors
    ///
    /// As [`Keys::range`](crate::Keys::range).
    pub async fn gateways(
        self,
        ctx: &RequestContext,
        consistency: Consistency,
    ) -> Answer<Vec<Arc<TerminatingGateway>>> {
        self.read(ctx, consistency, false, move |view| view.gateways()).await
    }

    /// Checks with this status; every check if it is `None`.
    ///
    /// # Errors
    ///
    /// As [`Keys::range`](crate::Keys::range).
    pub async fn checks_in_state(
        self,
        ctx: &RequestContext,
        consistency: Consistency,
        status: Option<CheckStatus>,
    ) -> Answer<Vec<Arc<Check>>> {
        self.read(ctx, consistency, false, move |view| view.checks_in_state(status)).await
    }

    async fn read<T: Send + 'static>(
        self,
        ctx: &RequestContext,
        consistency: Consistency,
        is_small: bool,
        answer: impl FnOnce(&ReadView<'_>) -> Result<Indexed<T>, StorageError> + Send + 'static,
    ) -> Answer<T> {
        self.node.ready_to_read(ctx, consistency).await?;
        let floored = move |view: &ReadView<'_>| {
            let Indexed { index, value } = answer(view)?;
            Ok(Ok(Indexed { index: view.head().floored(index), value }))
        };
        self.node.read(is_small, ctx, floored).await
    }
}
