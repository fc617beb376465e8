//! Trees of settings that are kept as JSON: renames their members to the fields of protobuf
//! messages.
//!
//! Case and underscores of members do not count (see `decode`), at any depth. Stored trees have one
//! spelling, so that the same registration in another spelling changes nothing, answers show
//! Consul's names, and streams find the fields. Invariant: keys of maps, opaque settings and
//! members of no message stay as they are.

use prost_reflect::{FieldDescriptor, MessageDescriptor};
use serde_json::{Map, Value};

use super::decode::is_same_name;
use headwater_api_shared::mesh::{is_opaque, message_of};

/// The members, each renamed to the field of `message` that its name spells, at any depth. Fields
/// have Consul's names, such as `AccessLogs`. If a field is there in two spellings, its own name
/// wins. Members without a field stay as they are, with everything below them.
pub(super) fn named(members: Map<String, Value>, message: &MessageDescriptor) -> Map<String, Value> {
    let mut named = Map::new();
    for (name, value) in members {
        let Some(field) = message.fields().find(|field| is_same_name(&name, field.name())) else {
            named.insert(name, value);
            continue;
        };
        // Of two spellings the field's own one wins, otherwise the first.
        if name == field.name() || !named.contains_key(field.name()) {
            named.insert(field.name().to_owned(), of_field(value, &field));
        }
    }
    named
}

fn of_field(value: Value, field: &FieldDescriptor) -> Value {
    let Some(message) = message_of(field) else { return value };
    let item = |value| of_message(value, &message);
    match value {
        Value::Object(entries) if field.is_map() => {
            entries.into_iter().map(|(key, entry)| (key, item(entry))).collect()
        }
        Value::Array(items) if field.is_list() => items.into_iter().map(item).collect(),
        value => item(value),
    }
}

fn of_message(value: Value, message: &MessageDescriptor) -> Value {
    match value {
        Value::Object(members) if !is_opaque(message) => Value::Object(named(members, message)),
        value => value,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use headwater_api_shared::mesh::{PROXY, message};

    #[test]
    fn members_get_the_names_of_fields_wherever_they_mean_one() {
        let Value::Object(members) = json!({
            "access_logs": {"enabled": true, "json_format": "{}"},
            "CONFIG": {"envoy_key": {"destination_name": 1}},
            "upstreams": [{"destination_name": "db", "config": {"destination_name": "x"}}, "not one"],
            "EnvoyExtensions": [{"name": "lua", "Arguments": {"name": "kept"}}],
            "expose": {"paths": [{"listener_port": 1}]}, "Expose": {"checks": true},
            "mesh_gateway": null, "unknown_member": {"destination_name": 2},
        }) else {
            unreachable!("it is an object")
        };
        let wanted = json!({
            "AccessLogs": {"Enabled": true, "JSONFormat": "{}"},
            "Config": {"envoy_key": {"destination_name": 1}},
            "Upstreams": [{"DestinationName": "db", "Config": {"destination_name": "x"}}, "not one"],
            "EnvoyExtensions": [{"Name": "lua", "Arguments": {"name": "kept"}}],
            "Expose": {"Checks": true},
            "MeshGateway": null, "unknown_member": {"destination_name": 2},
        });
        let named = named(members, &message(PROXY));
        assert_eq!(Value::Object(named), wanted);
    }
}
