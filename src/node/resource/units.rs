//! Makes the default units of tenancy visible as resources: the leader writes them once.
//!
//! The units exist without their resources (see the state machine), but only a resource is listed.

use std::sync::Weak;
use std::time::Duration;

use crate::{Consistency, Inner, Node, RequestContext, tasks};
use headwater_types::resource::{DEFAULT_UNIT, Resource, ResourceId, Tenancy, Type};

use super::TypedResources;
use super::error::ResourceError;

/// Pause between two attempts.
const RETRY: Duration = Duration::from_secs(1);
/// Timeout of one read or write.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) async fn keep_tenancy(inner: Weak<Inner>) {
    if !tasks::once_serving(&inner).await {
        return;
    }
    loop {
        let Some(inner) = inner.upgrade() else { return };
        let node = Node { inner };
        match node.resources().write_default_units().await {
            Ok(true) => return,
            Ok(false) => {}
            Err(error) => tracing::debug!(%error, "could not write the default units of tenancy yet"),
        }
        drop(node);
        tokio::time::sleep(RETRY).await;
    }
}

fn default_units() -> [ResourceId; 2] {
    let unit = |type_, partition: &str| ResourceId {
        uid: String::new(),
        name: DEFAULT_UNIT.to_owned(),
        type_,
        tenancy: Tenancy::new(partition, ""),
    };
    [unit(Type::partition(), ""), unit(Type::namespace(), DEFAULT_UNIT)]
}

impl TypedResources<'_> {
    /// Writes missing default units if this node leads. Returns whether both are stored now.
    async fn write_default_units(self) -> Result<bool, ResourceError> {
        let leads = self.node.leadership().leader == Some(self.node.identity().node_id);
        for id in default_units() {
            let ctx = RequestContext::own(CALL_TIMEOUT);
            match self.read(&ctx, Consistency::Serializable, id.clone()).await {
                Ok(_) => {}
                Err(ResourceError::NotFound(_)) if leads => {
                    let unit = Resource { id, ..Resource::default() };
                    // A second write does no harm.
                    self.write(&ctx, unit, None).await?;
                }
                Err(ResourceError::NotFound(_)) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}
