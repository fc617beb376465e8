//! The paths of the gateway, read from the annotations of the methods (`google.api.http`).

use std::collections::HashMap;
use std::sync::Arc;

use http::uri::PathAndQuery;
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor, MethodDescriptor, Value};

use super::answer;

/// A gRPC method that the gateway serves over HTTP.
pub(super) struct Route {
    /// The first HTTP path of the method; also its name in metrics.
    pub(super) path: String,
    /// The path of the gRPC method that answers the route.
    pub(super) method: PathAndQuery,
    pub(super) input: MessageDescriptor,
    pub(super) output: MessageDescriptor,
    /// Whether the client sends a stream of messages.
    pub(super) streams_in: bool,
    /// Whether the server sends a stream of messages.
    pub(super) streams_out: bool,
    /// Whether `output` is or contains a `google.protobuf.Any`, at any depth.
    pub(super) has_any: bool,
    /// Whether `input` is or contains a resource, at any depth.
    pub(super) has_resources: bool,
}

/// The routes of all annotated methods of `pool` for which `serves` is true, by HTTP path. `serves`
/// gets the gRPC path.
pub(super) fn routes(pool: &DescriptorPool, serves: impl Fn(&str) -> bool) -> HashMap<String, Arc<Route>> {
    let mut routes = HashMap::new();
    for method in pool.services().flat_map(|service| service.methods().collect::<Vec<_>>()) {
        let grpc = format!("/{}/{}", method.parent_service().full_name(), method.name());
        let paths = paths(pool, &method);
        let Some(path) = paths.first().cloned().filter(|_| serves(&grpc)) else { continue };
        let route = Arc::new(Route {
            path,
            method: grpc.try_into().expect("names of services and methods make a path"),
            input: method.input(),
            output: method.output(),
            streams_in: method.is_client_streaming(),
            streams_out: method.is_server_streaming(),
            has_any: has(answer::ANY, &method.output(), &mut Vec::new()),
            has_resources: has(answer::RESOURCE, &method.input(), &mut Vec::new()),
        });
        for path in paths {
            let other = routes.insert(path, Arc::clone(&route));
            assert!(other.is_none(), "two methods are annotated with {}", route.path);
        }
    }
    routes
}

/// Whether `message` is called `name`, or contains such a message at any depth. `seen` has the
/// names of the messages that were looked at; it begins empty.
fn has(name: &str, message: &MessageDescriptor, seen: &mut Vec<String>) -> bool {
    if message.full_name() == name {
        return true;
    }
    if seen.iter().any(|other| other == message.full_name()) {
        return false;
    }
    seen.push(message.full_name().to_owned());
    let messages = message.fields().filter_map(|field| field.kind().as_message().cloned()).collect::<Vec<_>>();
    messages.iter().any(|inner| has(name, inner, seen))
}

/// The paths of a method for `POST`, that of its main rule first; empty if it has no annotation.
fn paths(pool: &DescriptorPool, method: &MethodDescriptor) -> Vec<String> {
    let Some(http) = pool.get_extension_by_name("google.api.http") else { return Vec::new() };
    let options = method.options();
    if !options.has_extension(&http) {
        return Vec::new();
    }
    let rule = options.get_extension(&http);
    let rule = rule.as_message().expect("the annotation is a message");
    let further = rule.get_field_by_name("additional_bindings");
    let further = further.as_ref().and_then(|list| list.as_list()).unwrap_or_default();
    std::iter::once(rule).chain(further.iter().filter_map(Value::as_message)).filter_map(post).collect()
}

/// The path of one rule; `None` for GET, which its face serves by itself.
///
/// # Panics
///
/// For any other rule than a `post` of the whole body to a path below `/v3/` or `/v1/store/`: a
/// server with such a proto must not start.
fn post(rule: &DynamicMessage) -> Option<String> {
    let text = |name| {
        let field = rule.get_field_by_name(name);
        field.as_ref().and_then(|value| value.as_str()).unwrap_or_default().to_owned()
    };
    if !text("get").is_empty() {
        return None;
    }
    let path = text("post");
    let is_owned = path.starts_with("/v3/") || path.starts_with("/v1/store/");
    assert!(is_owned && text("body") == "*", "only `post` below /v3/ or /v1/store/ with `body: \"*\"`: {rule:?}");
    Some(path)
}
