//! The rights of requests about resources (spec: security §5). Rights are intervals of the keys of
//! resources: type, units, name.
//!
//! Owns the order of the checks. A principal without any right to a kind is refused before the type
//! is looked up, so that it does not learn which types exist. Lists and streams leave out resources
//! that may not be read. The state machine judges writes and their side effects.

use std::sync::Arc;

use super::TypedResources;
use super::error::ResourceError;
use super::registry::KnownType;
use crate::{Authorizer, NodeError, RequestContext};
use headwater_types::resource::{ResourceId, Selector, Type, resource_key};
use headwater_types::{Access, AuthRefusal, KeyRange, LogIndex, Refusal, Space};

/// The rights of a request's principal to resources, as of one state.
#[derive(Clone, Debug)]
pub(super) struct ResourceRights {
    authorizer: Authorizer,
}

impl ResourceRights {
    /// The rights to everything.
    #[cfg(test)]
    pub(super) fn all() -> Self {
        Self { authorizer: Authorizer::open(LogIndex::ZERO) }
    }

    /// Whether the resource with this key may be read: the filter of lists and streams.
    pub(super) fn shows(&self, key: &[u8]) -> bool {
        self.authorizer.allows(Space::Resource, key, Access::READ)
    }

    /// Checks the access to one resource.
    ///
    /// # Errors
    ///
    /// If the resource may not be accessed.
    pub(super) fn permit(&self, id: &ResourceId, access: Access) -> Result<(), ResourceError> {
        Ok(self.authorizer.permit(Space::Resource, &KeyRange::One(resource_key(id)), access).map_err(denied)?)
    }

    /// Checks that some resource that the selector may match can be accessed.
    ///
    /// # Errors
    ///
    /// If no resource that the selector may match can be accessed.
    fn permit_some(&self, selector: &Selector, access: Access) -> Result<(), ResourceError> {
        let Some(rights) = self.authorizer.rights() else { return Ok(()) };
        match rights.touches(Space::Resource, &selector.range(), access) {
            true => Ok(()),
            false => Err(denied(AuthRefusal::PermissionDenied).into()),
        }
    }

    /// Whether the principal may have got these rights only after the command at `index`
    /// ([`Authorizer::has_changed_since`]).
    pub(super) fn has_changed_since(&self, index: LogIndex) -> bool {
        self.authorizer.has_changed_since(index)
    }

    /// The parts of the selector's interval that may be read.
    pub(super) fn readable(&self, selector: &Selector) -> Vec<KeyRange> {
        let range = selector.range();
        match self.authorizer.rights() {
            None => vec![range],
            Some(rights) => rights.parts(Space::Resource, &range, Access::READ),
        }
    }
}

fn denied(refusal: AuthRefusal) -> NodeError {
    Refusal::Auth(refusal).into()
}

impl TypedResources<'_> {
    /// Whether the principal may learn whether a type exists: true if it has a right to any
    /// resource of that kind. Without a type: true if it may read every resource.
    ///
    /// # Errors
    ///
    /// If the credentials of the principal are refused.
    pub fn may_know(self, ctx: &RequestContext, type_: Option<&Type>) -> Result<bool, NodeError> {
        let authorizer = self.node.authorizer(ctx)?;
        let Some(rights) = authorizer.rights() else { return Ok(true) };
        Ok(match type_ {
            Some(type_) => {
                let kind = Selector::everywhere(type_.clone()).range();
                let has = |access| rights.touches(Space::Resource, &kind, access);
                has(Access::READ) || has(Access::WRITE)
            }
            None => rights.covers(Space::Resource, &KeyRange::all(), Access::READ),
        })
    }

    /// The rights of the principal, as of now.
    pub(super) fn rights(self, ctx: &RequestContext) -> Result<ResourceRights, ResourceError> {
        Ok(ResourceRights { authorizer: self.node.authorizer(ctx)? })
    }

    /// Whether any rights have changed since `rights` were made: an answer that was computed with
    /// them must be computed again.
    pub(super) fn is_outdated(self, rights: &ResourceRights) -> bool {
        self.node.rights_changed() != rights.authorizer.as_of()
    }

    /// Looks up the type of a request that needs `access` to some resource of that kind. Returns it
    /// with the principal's rights.
    ///
    /// # Errors
    ///
    /// If the principal has no such right, before the type is looked up;
    /// [`ResourceError::TypeUnknown`]; [`ResourceError::Node`] if the lookup failed.
    pub(super) async fn resolve_for(
        self,
        ctx: &RequestContext,
        type_: &Type,
        access: Access,
    ) -> Result<(Arc<KnownType>, ResourceRights), ResourceError> {
        let rights = self.rights(ctx)?;
        rights.permit_some(&Selector::everywhere(type_.clone()), access)?;
        Ok((self.resolve(ctx, type_).await?, rights))
    }

    /// The principal's rights, if it may read any resource that the selector may match.
    ///
    /// # Errors
    ///
    /// If the principal may read none of them.
    pub(super) fn rights_to(self, ctx: &RequestContext, selector: &Selector) -> Result<ResourceRights, ResourceError> {
        let rights = self.rights(ctx)?;
        rights.permit_some(selector, Access::READ)?;
        Ok(rights)
    }
}
