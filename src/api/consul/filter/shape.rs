//! Shapes of an answer's elements. An expression that names a member outside of the shape is
//! refused before any evaluation.

/// Shape of a part of an element.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Shape {
    Text,
    Number,
    Flag,
    /// A list of texts, tested with `in`, `contains` and `is empty`.
    Texts,
    /// Values of one shape, by keys that clients chose.
    Map(&'static Shape),
    /// Named members, each with its shape.
    Struct(&'static [(&'static str, Shape)]),
    /// A list of elements of one shape. A test holds if it holds for at least one of them, unless
    /// the path picks one by its number.
    List(&'static Shape),
    /// Free-form JSON of the client.
    Open,
}

use Shape::{Flag, List, Map, Number, Open, Struct, Text, Texts};

const ADDRESS: Shape = Struct(&[("Address", Text), ("Port", Number)]);
const WEIGHTS: Shape = Struct(&[("Passing", Number), ("Warning", Number)]);
const LOCALITY: Shape = Struct(&[("Region", Text), ("Zone", Text)]);
const CONNECT: Shape = Struct(&[("Native", Flag)]);
const UPSTREAM: Shape = Struct(&[
    ("DestinationType", Text),
    ("DestinationNamespace", Text),
    ("DestinationPartition", Text),
    ("DestinationPeer", Text),
    ("DestinationName", Text),
    ("Datacenter", Text),
    ("LocalBindAddress", Text),
    ("LocalBindPort", Number),
    ("LocalBindSocketPath", Text),
    ("LocalBindSocketMode", Text),
    ("Config", Open),
    ("MeshGateway", Open),
]);
const PROXY: Shape = Struct(&[
    ("DestinationServiceName", Text),
    ("DestinationServiceID", Text),
    ("LocalServiceAddress", Text),
    ("LocalServicePort", Number),
    ("LocalServiceSocketPath", Text),
    ("Mode", Text),
    ("Config", Open),
    ("Upstreams", List(&UPSTREAM)),
    ("MeshGateway", Open),
    ("Expose", Open),
    ("TransparentProxy", Open),
    ("AccessLogs", Open),
    ("EnvoyExtensions", Open),
]);

/// The attributes of a login with a JSON web token, which the selectors of binding rules test.
pub(crate) const JWT: Shape = Struct(&[("value", Map(&Text)), ("list", Map(&Texts))]);

/// A node, as `/v1/catalog/nodes` lists it.
pub(crate) const NODE: Shape = Struct(&[
    ("ID", Text),
    ("Node", Text),
    ("Address", Text),
    ("Datacenter", Text),
    ("TaggedAddresses", Map(&Text)),
    ("Meta", Map(&Text)),
    ("Locality", LOCALITY),
    ("CreateIndex", Number),
    ("ModifyIndex", Number),
]);

/// A service instance without its node, as `/v1/catalog/node/` and the agent list it.
pub(crate) const SERVICE: Shape = Struct(&[
    ("Kind", Text),
    ("ID", Text),
    ("Service", Text),
    ("Tags", Texts),
    ("Meta", Map(&Text)),
    ("Port", Number),
    ("Address", Text),
    ("SocketPath", Text),
    ("TaggedAddresses", Map(&ADDRESS)),
    ("Weights", WEIGHTS),
    ("EnableTagOverride", Flag),
    ("Proxy", PROXY),
    ("Connect", CONNECT),
    ("Locality", LOCALITY),
    ("Datacenter", Text),
    ("CreateIndex", Number),
    ("ModifyIndex", Number),
]);

/// A check, as `/v1/health/node/`, `/v1/health/checks/`, `/v1/health/state/` and the agent list it.
pub(crate) const CHECK: Shape = Struct(&[
    ("Node", Text),
    ("CheckID", Text),
    ("Name", Text),
    ("Status", Text),
    ("Notes", Text),
    ("Output", Text),
    ("ServiceID", Text),
    ("ServiceName", Text),
    ("ServiceTags", Texts),
    ("Type", Text),
    ("Interval", Text),
    ("Timeout", Text),
    ("ExposedPort", Number),
    ("Definition", Open),
    ("CreateIndex", Number),
    ("ModifyIndex", Number),
]);

/// A service instance together with its node, flat, as `/v1/catalog/service/` lists it.
pub(crate) const CATALOG_SERVICE: Shape = Struct(&[
    ("ID", Text),
    ("Node", Text),
    ("Address", Text),
    ("Datacenter", Text),
    ("TaggedAddresses", Map(&Text)),
    ("NodeMeta", Map(&Text)),
    ("ServiceKind", Text),
    ("ServiceID", Text),
    ("ServiceName", Text),
    ("ServiceTags", Texts),
    ("ServiceAddress", Text),
    ("ServiceSocketPath", Text),
    ("ServiceTaggedAddresses", Map(&ADDRESS)),
    ("ServiceMeta", Map(&Text)),
    ("ServicePort", Number),
    ("ServiceWeights", WEIGHTS),
    ("ServiceEnableTagOverride", Flag),
    ("ServiceProxy", PROXY),
    ("ServiceConnect", CONNECT),
    ("ServiceLocality", LOCALITY),
    ("CreateIndex", Number),
    ("ModifyIndex", Number),
]);

/// A service instance with its node and its checks, as `/v1/health/service/` lists it.
pub(crate) const CHECK_SERVICE_NODE: Shape = Struct(&[("Node", NODE), ("Service", SERVICE), ("Checks", List(&CHECK))]);

/// A link of a terminating gateway, as `/v1/catalog/gateway-services/` lists it.
pub(crate) const GATEWAY_SERVICE: Shape = Struct(&[
    ("Gateway", Struct(&[("Name", Text)])),
    ("Service", Struct(&[("Name", Text)])),
    ("GatewayKind", Text),
    ("CAFile", Text),
    ("CertFile", Text),
    ("KeyFile", Text),
    ("SNI", Text),
    ("CreateIndex", Number),
    ("ModifyIndex", Number),
]);

impl Shape {
    /// The shape of the member or key `name`. In a list, a number stands for one element; any other
    /// name is that of a member of the elements. `None` if there is no such member.
    pub(super) fn step(&self, name: &str) -> Option<Shape> {
        match self {
            Struct(members) => members.iter().find(|(known, _)| *known == name).map(|(_, shape)| *shape),
            Map(shape) => Some(**shape),
            // A name is looked up in the elements; a number picks one element.
            List(shape) if name.bytes().all(|byte| byte.is_ascii_digit()) => Some(**shape),
            List(shape) => shape.step(name),
            Open => Some(Open),
            Text | Number | Flag | Texts => None,
        }
    }

    pub(super) fn describe(&self) -> &'static str {
        match self {
            Text => "a text",
            Number => "a number",
            Flag => "true or false",
            Texts | List(_) => "a list",
            Map(_) => "a map",
            Struct(_) => "a structure",
            Open => "anything",
        }
    }
}
