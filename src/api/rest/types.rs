//! The types of resources that are served over HTTP, from the node's registry.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use http::StatusCode;

use super::answer::Refusal;
use super::request::Path;
use headwater_node::{KnownType, Node, NodeError, RequestContext, TypeMap};
use headwater_proto::pb::PUBLIC_DESCRIPTORS;
use headwater_schema::{SchemaError, TypeSchema};
use headwater_types::resource::{Scope, Type, builtin_registrations};

/// Schemas of the built-in types.
static BUILTIN: LazyLock<BTreeMap<Type, TypeSchema>> = LazyLock::new(|| {
    let compiled = builtin_registrations(PUBLIC_DESCRIPTORS).map(|registration| {
        let schema = TypeSchema::compile(&registration).expect("types that were compiled in");
        (registration.type_, schema)
    });
    compiled.into()
});

/// A type of resources that is served over HTTP.
#[derive(Clone, Debug)]
pub(super) struct ServedType {
    pub(super) type_: Type,
    pub(super) scope: Scope,
    /// The type's registration; `None` for a built-in type.
    known: Option<Arc<KnownType>>,
}

impl ServedType {
    fn new(known: &Arc<KnownType>) -> Self {
        let registered = known.registration.is_some().then(|| Arc::clone(known));
        Self { type_: known.type_.clone(), scope: known.scope, known: registered }
    }

    /// A built-in type.
    #[cfg(test)]
    pub(super) fn builtin(type_: Type, scope: Scope) -> Self {
        Self { type_, scope, known: None }
    }

    /// The schema of the type's data. Refused if the registration cannot be compiled: 503 if that
    /// may succeed later, else 500.
    pub(super) fn schema(&self) -> Result<&TypeSchema, Refusal> {
        let broken = |why| unusable(&self.type_, StatusCode::INTERNAL_SERVER_ERROR, why);
        match &self.known {
            Some(known) => match known.schema() {
                Some(schema) => schema.map_err(|error| no_schema(&self.type_, &error)),
                None => Err(broken("it was never read")),
            },
            None => BUILTIN.get(&self.type_).ok_or_else(|| broken("it has none")),
        }
    }
}

/// The refusal of a request for a type whose registration is not compiled: 503 if that may succeed
/// later.
fn no_schema(type_: &Type, error: &SchemaError) -> Refusal {
    let code = match error {
        SchemaError::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
        SchemaError::TooLarge { .. }
        | SchemaError::Name { .. }
        | SchemaError::Descriptors(_)
        | SchemaError::NoSuchMessage { .. }
        | SchemaError::NoMessage(_)
        | SchemaError::Defaults { .. }
        | SchemaError::Rule { .. } => StatusCode::INTERNAL_SERVER_ERROR,
    };
    unusable(type_, code, &error.to_string())
}

fn unusable(type_: &Type, code: StatusCode, why: &str) -> Refusal {
    Refusal::new(code, format!("the registration of {type_} cannot be used: {why}"))
}

/// The type of a path. A type that is unknown here may just have been registered at another member:
/// the look-up is repeated after a linearizable check.
///
/// # Errors
///
/// 404 for a type that is unknown or not served over HTTP. 403, whether the type exists or not, if
/// the principal has no right to its resources or its rights cannot be judged. 503 if the node
/// cannot read its types, or if the linearizable check fails.
pub(super) async fn find(node: &Node, ctx: &RequestContext, path: &Path<'_>) -> Result<ServedType, Refusal> {
    let types = node.resources().types().await.map_err(unavailable)?;
    let found = match look_up(&types, path) {
        Some(found) => Some(found),
        None => {
            node.check_linearizable(ctx).await.map_err(unavailable)?;
            look_up(&*node.resources().types().await.map_err(unavailable)?, path)
        }
    };
    // Only a right to something of its kind shows whether a type exists.
    match node.resources().may_know(ctx, found.as_ref().map(|found| &found.type_)) {
        Ok(true) => found.ok_or_else(|| Refusal::path(path.whole)),
        Ok(false) | Err(_) => Err(Refusal::new(StatusCode::FORBIDDEN, "permission denied")),
    }
}

fn look_up(types: &TypeMap, path: &Path<'_>) -> Option<ServedType> {
    let is_it = |known: &&Arc<KnownType>| {
        let type_ = &known.type_;
        type_.group == path.group
            && type_.group_version == path.version
            && type_.kind.to_ascii_lowercase() == path.kind
            && known.registration.as_ref().is_none_or(|registration| !registration.dont_map_http)
    };
    types.iter().find(is_it).map(ServedType::new)
}

fn unavailable(error: NodeError) -> Refusal {
    Refusal::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_missing_thread_is_worth_a_retry() {
        for (error, code) in [
            (SchemaError::Unavailable("no thread".to_owned()), StatusCode::SERVICE_UNAVAILABLE),
            (SchemaError::NoMessage("rules"), StatusCode::INTERNAL_SERVER_ERROR),
        ] {
            let refusal = no_schema(&Type::new("demo", "v1", "Thing"), &error);
            assert_eq!(refusal.into_response().status(), code, "{error}");
        }
    }
}
