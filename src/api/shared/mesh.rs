//! Configuration of instances in the mesh: trees that no rule here reads. They are kept as JSON,
//! and sent as the messages of spec consul §4.2.
//!
//! The JSON's names are those of the messages (see `consul::tree`), so the descriptors translate.
//! Invariant: a member of the JSON object that does not fit its field is left out; the other
//! members stay.

use std::sync::LazyLock;

use prost::Message;
use prost_reflect::{
    DescriptorPool, DeserializeOptions, DynamicMessage, FieldDescriptor, Kind, MessageDescriptor, SerializeOptions,
};
use serde_json::{Value, json};

use super::duration;
use headwater_proto::pb::PUBLIC_DESCRIPTORS;
use headwater_proto::pb::pbservice as pb;
use headwater_types::catalog::{Proxy, ServiceConnect};

static POOL: LazyLock<DescriptorPool> =
    LazyLock::new(|| DescriptorPool::decode(PUBLIC_DESCRIPTORS).expect("a descriptor set that was compiled in"));

/// Name of the message of a duration. Registrations have durations in Go's form.
const DURATION: &str = "google.protobuf.Duration";
/// Name of the message of a header's values. Registrations have the values as a list, or as one
/// text.
const HEADER_VALUE: &str = "hashicorp.consul.internal.service.HeaderValue";
/// Name of the message of a free-form tree: nothing in it has a meaning here.
const OPAQUE: &str = "google.protobuf.Struct";

/// Name of the message that [`Proxy::more_json`] translates to.
pub const PROXY: &str = "ConnectProxyConfig";
/// Name of the message that [`ServiceConnect::more_json`] translates to.
pub const CONNECT: &str = "ServiceConnect";

/// The descriptor of the message `name` of the catalog's package. Panics if there is none.
pub fn message(name: &str) -> MessageDescriptor {
    let message = POOL.get_message_by_name(&format!("hashicorp.consul.internal.service.{name}"));
    message.expect("the descriptors were made of the protos that this is built with")
}

/// Whether a message is a free-form tree, a `google.protobuf.Struct`. Names in it stay as they are.
pub fn is_opaque(message: &MessageDescriptor) -> bool {
    message.full_name() == OPAQUE
}

/// The message of a proxy's configuration. Parts that clients expect are present even if they are
/// empty.
pub fn proxy(proxy: &Proxy) -> pb::ConnectProxyConfig {
    let mut config: pb::ConnectProxyConfig = tree(PROXY, &proxy.more_json);
    config.destination_service_name.clone_from(&proxy.destination_service_name);
    config.destination_service_id.clone_from(&proxy.destination_service_id);
    config.local_service_address.clone_from(&proxy.local_service_address);
    config.local_service_port = proxy.local_service_port;
    config.local_service_socket_path.clone_from(&proxy.local_service_socket_path);
    config.mode.clone_from(&proxy.mode);
    config.mesh_gateway.get_or_insert_default();
    config.expose.get_or_insert_default();
    config.transparent_proxy.get_or_insert_default();
    config.access_logs.get_or_insert_default();
    config
}

/// The message of an instance's settings in the mesh.
pub fn connect(connect: &ServiceConnect) -> pb::ServiceConnect {
    pb::ServiceConnect { native: connect.native, ..tree(CONNECT, &connect.more_json) }
}

/// Reads [`proxy`] back. Empty parts are left out of [`Proxy::more_json`].
pub fn read_proxy(config: pb::ConnectProxyConfig) -> Proxy {
    let mut more = config.clone();
    more.destination_service_name.clear();
    more.destination_service_id.clear();
    more.local_service_address.clear();
    more.local_service_port = 0;
    more.local_service_socket_path.clear();
    more.mode.clear();
    fn drop_empty<M: Default + PartialEq>(part: &mut Option<M>) {
        part.take_if(|part| *part == M::default());
    }
    drop_empty(&mut more.mesh_gateway);
    drop_empty(&mut more.expose);
    drop_empty(&mut more.transparent_proxy);
    drop_empty(&mut more.access_logs);
    Proxy {
        destination_service_name: config.destination_service_name,
        destination_service_id: config.destination_service_id,
        local_service_address: config.local_service_address,
        local_service_port: config.local_service_port,
        local_service_socket_path: config.local_service_socket_path,
        mode: config.mode,
        more_json: text(PROXY, &more),
    }
}

/// Reads [`connect`] back.
pub fn read_connect(connect: pb::ServiceConnect) -> ServiceConnect {
    let more = pb::ServiceConnect { native: false, ..connect };
    ServiceConnect { native: connect.native, more_json: text(CONNECT, &more) }
}

/// The inverse of [`tree`]: the text of a JSON object; empty for an empty message.
fn text<M: Message + Default + PartialEq>(name: &str, message: &M) -> String {
    if *message == M::default() {
        return String::new();
    }
    let descriptor = self::message(name);
    let message = DynamicMessage::decode(descriptor.clone(), message.encode_to_vec().as_slice());
    let message = message.expect("a message of this descriptor");
    let options = SerializeOptions::new().use_proto_field_name(true);
    let value = message.serialize_with_options(serde_json::value::Serializer, &options);
    let mut value = value.expect("every message of the catalog has a form as JSON");
    write_as_registered(&mut value, &descriptor);
    value.to_string()
}

/// Rewrites the values of headers, at any depth, in the form of registrations: a list.
fn write_as_registered(value: &mut Value, descriptor: &MessageDescriptor) {
    let Value::Object(members) = value else { return };
    for (name, value) in members {
        let Some(message) = descriptor.get_field_by_name(name).as_ref().and_then(message_of) else { continue };
        let unwrap = |item: &mut Value| match message.full_name() {
            HEADER_VALUE => *item = item.get("Value").cloned().unwrap_or_else(|| json!([])),
            OPAQUE => {}
            _ => write_as_registered(item, &message),
        };
        match value {
            Value::Array(items) => items.iter_mut().for_each(unwrap),
            Value::Object(entries) if descriptor.get_field_by_name(name).is_some_and(|field| field.is_map()) => {
                entries.values_mut().for_each(unwrap);
            }
            value => unwrap(value),
        }
    }
}

/// Reads the text of a JSON object as a message of the catalog's package, without the members that
/// do not fit it. The default message if the text is empty or no JSON object.
fn tree<M: Message + Default>(name: &str, json: &str) -> M {
    if json.is_empty() {
        return M::default();
    }
    let Ok(Value::Object(members)) = serde_json::from_str(json) else { return M::default() };
    let descriptor = message(name);
    let options = DeserializeOptions::new().deny_unknown_fields(false);
    let mut whole = M::default();
    for (member, value) in members {
        let mut object = Value::Object([(member, value)].into_iter().collect());
        write_as_protobuf(&mut object, &descriptor);
        let Ok(message) = DynamicMessage::deserialize_with_options(descriptor.clone(), object, &options) else {
            continue;
        };
        let encoded = message.encode_to_vec();
        // A tree that is too deep for the encoding fails here, before any of it is merged.
        if M::decode(encoded.as_slice()).is_ok() {
            whole.merge(encoded.as_slice()).expect("what can be decoded can be merged");
        }
    }
    whole
}

/// Rewrites durations and the values of headers, at any depth, in the form of protobuf's JSON.
fn write_as_protobuf(value: &mut Value, descriptor: &MessageDescriptor) {
    let Value::Object(members) = value else { return };
    for (name, value) in members {
        let field = descriptor.get_field_by_json_name(name).or_else(|| descriptor.get_field_by_name(name));
        let Some(field) = field else { continue };
        let Some(message) = message_of(&field) else { continue };
        match value {
            Value::Object(entries) if field.is_map() => {
                entries.values_mut().for_each(|entry| write_item(entry, &message));
            }
            Value::Array(items) if field.is_list() => items.iter_mut().for_each(|item| write_item(item, &message)),
            value => write_item(value, &message),
        }
    }
}

fn write_item(item: &mut Value, message: &MessageDescriptor) {
    match (message.full_name(), &mut *item) {
        // An invalid duration becomes null and is left out; the members beside it stay.
        (DURATION, _) => *item = seconds(item).map_or(Value::Null, Value::String),
        (HEADER_VALUE, Value::Null) => *item = json!({}),
        (HEADER_VALUE, Value::Array(_)) => *item = json!({"Value": item.take()}),
        (HEADER_VALUE, Value::String(_)) => *item = json!({"Value": [item.take()]}),
        (OPAQUE, _) => {}
        _ => write_as_protobuf(item, message),
    }
}

/// The message type of a field, of its list items or of its map's values. `None` for a scalar.
pub fn message_of(field: &FieldDescriptor) -> Option<MessageDescriptor> {
    match field.kind() {
        Kind::Message(entry) if field.is_map() => match entry.map_entry_value_field().kind() {
            Kind::Message(message) => Some(message),
            _ => None,
        },
        Kind::Message(message) => Some(message),
        _ => None,
    }
}

/// A duration as Go writes it, or a number of nanoseconds, in the form of protobuf's JSON. `None`
/// for anything else.
fn seconds(value: &Value) -> Option<String> {
    let duration = match value {
        Value::String(text) => duration::parse(text)?,
        Value::Number(number) => std::time::Duration::from_nanos(number.as_u64()?),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => return None,
    };
    Some(format!("{}.{:09}s", duration.as_secs(), duration.subsec_nanos()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trees_come_out_as_they_were_registered() {
        let config = proxy(&Proxy {
            destination_service_name: "web".to_owned(),
            more_json: r#"{"AccessLogs":{"Enabled":true,"JSONFormat":"{}"},"Config":{"a":[1,"x",null],"b":{"c":true}},
                "EnvoyExtensions":[{"Arguments":{"k":"v"},"Name":"lua","Required":true}],
                "Expose":{"Checks":true,"Paths":[{"ListenerPort":8080,"Path":"/health"}]},"MeshGateway":{"Mode":"local"},
                "TransparentProxy":{"OutboundListenerPort":15001},"Unknown":{"x":1},"Mode":7,
                "Upstreams":[{"Config":{"n":2.5},"DestinationName":"db","LocalBindPort":9191}]}"#
                .to_owned(),
            ..Proxy::default()
        });
        assert_eq!(config.destination_service_name, "web");
        assert_eq!(config.access_logs.unwrap().json_format, "{}");
        assert_eq!(config.config.unwrap().fields.len(), 2);
        assert_eq!(config.envoy_extensions[0].name, "lua");
        assert_eq!(config.envoy_extensions[0].arguments.as_ref().unwrap().fields.len(), 1);
        let expose = config.expose.unwrap();
        assert!(expose.checks && expose.paths[0].listener_port == 8080);
        assert_eq!(config.mesh_gateway.unwrap().mode, "local");
        assert_eq!(config.transparent_proxy.unwrap().outbound_listener_port, 15001);
        let upstream = &config.upstreams[0];
        assert_eq!((upstream.destination_name.as_str(), upstream.local_bind_port), ("db", 9191));
        assert_eq!(config.mode, "", "what fits no message is left out, alone");
    }

    #[test]
    fn what_is_sent_can_be_read_back() {
        let more = r#"{"AccessLogs":{"Enabled":true},"Config":{"a":[1.0,"x",null]},"Expose":{"Checks":true},"Upstreams":[{"DestinationName":"db","LocalBindPort":9191}]}"#;
        let given = Proxy {
            destination_service_name: "web".to_owned(),
            local_service_port: 8080,
            more_json: more.to_owned(),
            ..Proxy::default()
        };
        assert_eq!(read_proxy(proxy(&given)), given);
        assert_eq!(read_proxy(proxy(&Proxy::default())), Proxy::default());
        let more = r#"{"SidecarService":{"Check":{"HTTP":"h","Header":{"A":["1","2"]},"Interval":"10s"},"Port":1}}"#;
        let given = ServiceConnect { native: true, more_json: more.to_owned() };
        assert_eq!(read_connect(connect(&given)), given);
        assert_eq!(read_connect(connect(&ServiceConnect::default())), ServiceConnect::default());
    }

    #[test]
    fn what_is_opaque_is_sent_as_it_is() {
        let config = proxy(&Proxy {
            more_json: r#"{"Config":{"Interval":"30s","Timeout":5},
                "EnvoyExtensions":[{"Arguments":{"TTL":"1m"},"Name":"lua"}],
                "Upstreams":[{"Config":{"PassiveHealthCheck":{"Interval":"30s"}},"DestinationName":"db"}]}"#
                .to_owned(),
            ..Proxy::default()
        });
        let text = |tree: &Option<prost_types::Struct>| format!("{tree:?}");
        assert!(text(&config.upstreams[0].config).contains("\"30s\""), "{:?}", config.upstreams);
        assert!(
            text(&config.config).contains("\"30s\"") && text(&config.config).contains("5.0"),
            "{:?}",
            config.config
        );
        let arguments = &config.envoy_extensions[0].arguments;
        assert!(text(arguments).contains("\"1m\""), "{arguments:?}");
    }

    #[test]
    fn one_that_is_too_deep_takes_nothing_else_with_it() {
        let deep = format!("{}1{}", "{\"a\":".repeat(60), "}".repeat(60));
        let config = proxy(&Proxy {
            more_json: format!(r#"{{"Config":{deep},"Expose":{{"Checks":true}},"MeshGateway":{{"Mode":"local"}}}}"#),
            ..Proxy::default()
        });
        assert_eq!((config.expose.unwrap().checks, config.mesh_gateway.unwrap().mode.as_str()), (true, "local"));
        assert_eq!(config.config, None);
    }

    #[test]
    fn a_sidecar_keeps_its_checks() {
        let more = r#"{"SidecarService":{"Check":{"Interval":"1m30s","Name":"c","TTL":1500000000},"Port":20000},
            "PeerMeta":{"SNI":["a","b"]}}"#;
        let found = connect(&ServiceConnect { native: true, more_json: more.to_owned() });
        assert!(found.native);
        assert_eq!(found.peer_meta.unwrap().sni, ["a", "b"]);
        let sidecar = found.sidecar_service.unwrap();
        let check = sidecar.check.unwrap();
        assert_eq!((sidecar.port, check.name.as_str()), (20000, "c"));
        assert_eq!(check.interval, Some(prost_types::Duration { seconds: 90, nanos: 0 }));
        assert_eq!(check.ttl, Some(prost_types::Duration { seconds: 1, nanos: 500_000_000 }));
    }

    #[test]
    fn what_people_write_otherwise_than_protobuf_is_understood() {
        let more = r#"{"SidecarService":{"Checks":[
            {"Header":{"A":["x","y"],"b":"z","Empty":[],"None":null,"C":{"Value":["w"]}},"Interval":"1m30.5s","Timeout":"","TTL":"soon"},
            {"Interval":"1h","Name":"second","Timeout":"90.250s"}],
            "TaggedAddresses":{"lan":{"Address":"10.0.0.1","Port":1}},"Proxy":{"Upstreams":[{"DestinationName":"db"}]}}}"#;
        let found = connect(&ServiceConnect { native: false, more_json: more.to_owned() });
        let sidecar = found.sidecar_service.expect("one check takes nothing else with it");
        let values = |name: &str| sidecar.checks[0].header[name].value.clone();
        assert_eq!(values("A"), ["x", "y"]);
        assert_eq!(values("b"), ["z"]);
        assert_eq!((values("Empty"), values("None")), (Vec::new(), Vec::new()));
        assert_eq!(values("C"), ["w"]);
        let duration = |seconds, nanos| Some(prost_types::Duration { seconds, nanos });
        let first = &sidecar.checks[0];
        assert_eq!((first.interval, first.timeout, first.ttl), (duration(90, 500_000_000), None, None));
        let second = &sidecar.checks[1];
        assert_eq!((second.name.as_str(), second.interval), ("second", duration(3600, 0)));
        assert_eq!(second.timeout, duration(90, 250_000_000));
        assert_eq!(sidecar.tagged_addresses["lan"].port, 1);
        assert_eq!(sidecar.proxy.unwrap().upstreams[0].destination_name, "db");
    }

    #[test]
    fn nothing_is_an_empty_message() {
        assert_eq!(connect(&ServiceConnect::default()), pb::ServiceConnect::default());
        let config = proxy(&Proxy { more_json: "not json".to_owned(), ..Proxy::default() });
        assert_eq!(config.mesh_gateway, Some(pb::MeshGatewayConfig::default()));
    }
}
