//! Registrations of clients, read from JSON: nodes, instances and checks in the forms of the
//! catalog and of the agent.
//!
//! Owns the names of the JSON members. The catalog has the rules for required members and defaults
//! ([`Registration::complete`](headwater_types::catalog::Registration::complete)).

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::answer::Refusal;
use super::decode::Object;
use super::tree;
use headwater_api_shared::duration;
use headwater_api_shared::mesh;
use headwater_types::catalog::{
    Check, CheckDefinition, CheckStatus, Locality, Proxy, Service, ServiceAddress, ServiceConnect, ServiceKind, Weights,
};

/// Members of `Proxy` that the server does not interpret: they are kept as JSON.
const PROXY_MORE: [&str; 7] =
    ["Config", "Upstreams", "MeshGateway", "Expose", "TransparentProxy", "EnvoyExtensions", "AccessLogs"];
/// Members of `Connect` that the server does not interpret: they are kept as JSON.
const CONNECT_MORE: [&str; 2] = ["SidecarService", "PeerMeta"];

/// Refuses (400) a namespace or partition other than `default`, and a peer other than `local`. A
/// missing or empty one is accepted.
pub(super) fn check_tenancy(object: &Object<'_>) -> Result<(), Refusal> {
    for (name, only) in [("Namespace", "default"), ("Partition", "default"), ("PeerName", "local")] {
        let given = object.text(name)?;
        if !given.is_empty() && given != only {
            return Err(Refusal::bad(format!("{name} {given:?} is not supported here")));
        }
    }
    Ok(())
}

/// The member `Locality`. `None` if it is missing or null.
pub(super) fn locality(object: &Object<'_>) -> Result<Option<Locality>, Refusal> {
    let Some(locality) = object.object("Locality")? else { return Ok(None) };
    Ok(Some(Locality { region: locality.text("Region")?, zone: locality.text("Zone")? }))
}

/// Reads an instance. `name` is the JSON member with the service's name: `Service` in the catalog's
/// form, `Name` in the agent's.
pub(super) fn service(object: &Object<'_>, name: &str) -> Result<Service, Refusal> {
    check_tenancy(object)?;
    let kind = object.text("Kind")?;
    let kind = ServiceKind::from_text(&kind).ok_or_else(|| {
        let known: Vec<&str> = ServiceKind::ALL.iter().map(|kind| kind.as_str()).filter(|it| !it.is_empty()).collect();
        Refusal::bad(format!("Invalid service kind {kind:?}: there are {}, or none", known.join(", ")))
    })?;
    let mut tagged_addresses = BTreeMap::new();
    for (tag, address) in object.object_map("TaggedAddresses")? {
        let address = ServiceAddress { address: address.text("Address")?, port: address.number("Port")? };
        tagged_addresses.insert(tag.to_owned(), address);
    }
    let weights = match object.object("Weights")? {
        None => Weights::default(),
        Some(weights) => Weights { passing: weights.number("Passing")?, warning: weights.number("Warning")? },
    };
    Ok(Service {
        kind,
        id: object.text("ID")?,
        name: object.text(name)?,
        tags: object.texts("Tags")?,
        address: object.text("Address")?,
        tagged_addresses,
        meta: object.text_map("Meta")?,
        port: object.number("Port")?,
        socket_path: object.text("SocketPath")?,
        weights,
        enable_tag_override: object.flag("EnableTagOverride")?,
        proxy: proxy_of(object)?,
        connect: connect_of(object)?,
        locality: locality(object)?,
        ..Service::default()
    })
}

fn proxy_of(object: &Object<'_>) -> Result<Proxy, Refusal> {
    let Some(proxy) = object.object("Proxy")? else { return Ok(Proxy::default()) };
    Ok(Proxy {
        destination_service_name: proxy.text("DestinationServiceName")?,
        destination_service_id: proxy.text("DestinationServiceID")?,
        local_service_address: proxy.text("LocalServiceAddress")?,
        local_service_port: proxy.number("LocalServicePort")?,
        local_service_socket_path: proxy.text("LocalServiceSocketPath")?,
        mode: proxy.text("Mode")?,
        more_json: more(&proxy, &PROXY_MORE, mesh::PROXY),
    })
}

fn connect_of(object: &Object<'_>) -> Result<ServiceConnect, Refusal> {
    let Some(connect) = object.object("Connect")? else { return Ok(ServiceConnect::default()) };
    Ok(ServiceConnect { native: connect.flag("Native")?, more_json: more(&connect, &CONNECT_MORE, mesh::CONNECT) })
}

/// The members `names` of `object` as the text of one JSON object; an empty text if there are none.
/// Names of members are spelled as the fields of the protobuf message `message`, and sorted.
/// Members that are empty objects or lists are left out, so that sending them makes no difference.
fn more(object: &Object<'_>, names: &[&str], message: &str) -> String {
    let is_empty = |value: &Value| match value {
        Value::Object(members) => members.is_empty(),
        Value::Array(elements) => elements.is_empty(),
        _ => false,
    };
    let found = names.iter().filter_map(|name| Some(((*name).to_owned(), object.get(name)?.clone())));
    let members: Map<String, Value> = found.filter(|(_, value)| !is_empty(value)).collect();
    if members.is_empty() {
        return String::new();
    }
    Value::Object(tree::named(members, &mesh::message(message))).to_string()
}

/// The status with the name `text`: `passing`, `warning` or `critical`. Refused (400) for any other
/// text.
pub(super) fn status(text: &str) -> Result<CheckStatus, Refusal> {
    let unknown = || Refusal::bad(format!("Invalid check status {text:?}: there are passing, warning and critical"));
    CheckStatus::from_text(text).ok_or_else(unknown)
}

/// A check in the catalog's form. Without a status it has the default status.
pub(super) fn health_check(object: &Object<'_>) -> Result<Check, Refusal> {
    check_tenancy(object)?;
    let given = object.text("Status")?;
    let definition = match object.object("Definition")? {
        None => CheckDefinition::default(),
        Some(definition) => check_definition(&definition)?,
    };
    Ok(Check {
        node: object.text("Node")?,
        id: object.text("CheckID")?,
        name: object.text("Name")?,
        status: if given.is_empty() { CheckStatus::default() } else { status(&given)? },
        notes: object.text("Notes")?,
        output: object.text("Output")?,
        service_id: object.text("ServiceID")?,
        type_: object.text("Type")?,
        definition,
        interval: object.text("Interval")?,
        timeout: object.text("Timeout")?,
        exposed_port: object.number("ExposedPort")?,
        ..Check::default()
    })
}

/// The definition of a check, decoded from `object`. In the catalog's form `object` is the value of
/// the check's member `Definition`; in the agent's form it is the check itself.
pub(super) fn check_definition(object: &Object<'_>) -> Result<CheckDefinition, Refusal> {
    let ns = |name: &str| {
        let duration = object.duration(name)?;
        i64::try_from(duration.as_nanos()).map_err(|_| Refusal::bad(format!("{name} is too long")))
    };
    let mut header = BTreeMap::new();
    for (name, value) in object.map("Header")?.into_iter().flatten() {
        let texts = match value {
            Value::Array(values) => values.iter().map(|it| it.as_str().map(str::to_owned)).collect(),
            Value::String(text) => Some(vec![text.clone()]),
            _ => None,
        };
        let texts = texts.ok_or_else(|| super::decode::failed(&format!("Header[{name}]: wanted a list of texts")))?;
        header.insert(name.clone(), texts);
    }
    let mut script_args = object.texts("ScriptArgs")?;
    if script_args.is_empty() {
        script_args = object.texts("Args")?;
    }
    Ok(CheckDefinition {
        http: object.text("HTTP")?,
        tls_skip_verify: object.flag("TLSSkipVerify")?,
        header,
        method: object.text("Method")?,
        body: object.text("Body")?,
        tls_server_name: object.text("TLSServerName")?,
        disable_redirects: object.flag("DisableRedirects")?,
        tcp: object.text("TCP")?,
        tcp_use_tls: object.flag("TCPUseTLS")?,
        udp: object.text("UDP")?,
        grpc: object.text("GRPC")?,
        grpc_use_tls: object.flag("GRPCUseTLS")?,
        h2ping: object.text("H2PING")?,
        h2ping_use_tls: object.flag("H2PingUseTLS")?,
        os_service: object.text("OSService")?,
        script_args,
        docker_container_id: object.text("DockerContainerID")?,
        shell: object.text("Shell")?,
        alias_node: object.text("AliasNode")?,
        alias_service: object.text("AliasService")?,
        output_max_size: object.number("OutputMaxSize")?,
        interval_ns: ns("Interval")?,
        timeout_ns: ns("Timeout")?,
        ttl_ns: ns("TTL")?,
        deregister_critical_after_ns: ns("DeregisterCriticalServiceAfter")?,
    })
}

/// A check in the agent's form. `None` if all its members have their default values: some clients
/// send an empty object for no check.
pub(super) fn agent_check(object: &Object<'_>) -> Result<Option<Check>, Refusal> {
    check_tenancy(object)?;
    let definition = check_definition(object)?;
    let mut id = object.text("CheckID")?;
    if id.is_empty() {
        id = object.text("ID")?;
    }
    let given = object.text("Status")?;
    let text = |ns: i64| match ns {
        0 => String::new(),
        ns => duration::format(std::time::Duration::from_nanos(ns.unsigned_abs())),
    };
    let check = Check {
        id,
        name: object.text("Name")?,
        status: if given.is_empty() { CheckStatus::default() } else { status(&given)? },
        notes: object.text("Notes")?,
        service_id: object.text("ServiceID")?,
        type_: definition.type_name().to_owned(),
        interval: text(definition.interval_ns),
        timeout: text(definition.timeout_ns),
        definition,
        ..Check::default()
    };
    Ok((check != Check::default()).then_some(check))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::shapes;
    use super::*;

    /// An instance with every member set.
    fn whole() -> Value {
        json!({
            "Kind": "connect-proxy", "ID": "p-1", "Service": "p", "Tags": ["b", "a"], "Address": "10.0.0.2",
            "TaggedAddresses": {"lan": {"Address": "10.0.0.3", "Port": 81}}, "Meta": {"k": "v"}, "Port": 80,
            "SocketPath": "/run/p", "Weights": {"Passing": 5, "Warning": 2}, "EnableTagOverride": true,
            "Proxy": {
                "DestinationServiceName": "web", "DestinationServiceID": "web-1", "LocalServiceAddress": "127.0.0.1",
                "LocalServicePort": 8080, "LocalServiceSocketPath": "/run/w", "Mode": "transparent",
                "Config": {"b": 1, "a": {"z": [1, 2]}}, "Upstreams": [{"DestinationName": "db", "LocalBindPort": 1}],
                "MeshGateway": {"Mode": "local"}, "Expose": {"Checks": true}, "TransparentProxy": {"DialedDirectly": true},
                "EnvoyExtensions": [{"Name": "e"}], "AccessLogs": {"Enabled": true},
            },
            "Connect": {"Native": true, "SidecarService": {"Port": 1}, "PeerMeta": {"SNI": ["s"]}},
            "Locality": {"Region": "r", "Zone": "z"},
        })
    }

    /// The value with all names of members in lower case. Names that users chose are in lower case
    /// already.
    fn lowered(value: Value) -> Value {
        match value {
            Value::Object(members) => {
                members.into_iter().map(|(name, value)| (name.to_lowercase(), lowered(value))).collect()
            }
            Value::Array(items) => items.into_iter().map(lowered).collect(),
            value => value,
        }
    }

    #[test]
    fn nothing_that_is_registered_is_lost() {
        let body = whole();
        let read = service(&Object::of(&body).unwrap(), "Service").unwrap();
        let mut shown = serde_json::to_value(shapes::service(&read)).unwrap();
        for index in ["CreateIndex", "ModifyIndex"] {
            shown.as_object_mut().unwrap().remove(index);
        }
        assert_eq!(shown, body);
        let again = service(&Object::of(&shown).unwrap(), "Service").unwrap();
        assert_eq!(again, read, "what is shown can be registered");
    }

    #[test]
    fn the_same_in_another_spelling_is_the_same() {
        let read = |body: &Value| service(&Object::of(body).unwrap(), "Service").unwrap();
        assert_eq!(read(&lowered(whole())), read(&whole()));
        let spelled = read(&json!({
            "SOCKET_PATH": "/run/p", "Proxy": {"local_service_port": 8080, "mesh_gateway": {"mode": "local"}},
        }));
        assert_eq!((spelled.socket_path.as_str(), spelled.proxy.local_service_port), ("/run/p", 8080));
        assert_eq!(spelled.proxy.more_json, json!({"MeshGateway": {"Mode": "local"}}).to_string());
        // Names that users chose stay as they are.
        let sidecar = json!({"Connect": {"sidecar_service": {
            "meta": {"some_key": "v"}, "tagged_addresses": {"lan_ipv4": {"address": "10.0.0.3"}},
            "check": {"header": {"x_name": ["v"]}, "deregister_critical_service_after": "1h"},
        }}});
        let wanted = json!({"SidecarService": {
            "Meta": {"some_key": "v"}, "TaggedAddresses": {"lan_ipv4": {"Address": "10.0.0.3"}},
            "Check": {"Header": {"x_name": ["v"]}, "DeregisterCriticalServiceAfter": "1h"},
        }});
        assert_eq!(read(&sidecar).connect.more_json, wanted.to_string());
    }

    #[test]
    fn a_check_keeps_its_definition() {
        let body = json!({
            "Node": "n", "CheckID": "c", "Name": "C", "Status": "warning", "Notes": "o", "Output": "x", "ServiceID": "s",
            "Type": "http", "Interval": "10s", "Timeout": "1s", "ExposedPort": 7, "Definition": {
                "HTTP": "http://h", "TLSSkipVerify": true, "Header": {"A": ["1", "2"]}, "Method": "PUT", "Body": "b",
                "TLSServerName": "t", "DisableRedirects": true, "TCP": "h:1", "TCPUseTLS": true, "UDP": "h:2", "GRPC": "h:3",
                "GRPCUseTLS": true, "H2PING": "h:4", "H2PingUseTLS": true, "OSService": "svc", "ScriptArgs": ["a"],
                "DockerContainerID": "d", "Shell": "sh", "AliasNode": "an", "AliasService": "as", "OutputMaxSize": 9,
                "Interval": "10s", "Timeout": "1s", "TTL": "30s", "DeregisterCriticalServiceAfter": "1m30s",
            },
        });
        let check = health_check(&Object::of(&body).unwrap()).unwrap();
        let mut shown = serde_json::to_value(shapes::check(&check)).unwrap();
        for name in ["CreateIndex", "ModifyIndex", "ServiceName", "ServiceTags"] {
            shown.as_object_mut().unwrap().remove(name);
        }
        assert_eq!(shown, body);
    }

    #[test]
    fn what_an_instance_does_not_say_is_shown_as_clients_expect_it() {
        let body = json!({"Service": "web", "Proxy": {"Config": {}, "Upstreams": []}, "Tags": null});
        let read = service(&Object::of(&body).unwrap(), "Service").unwrap();
        assert_eq!(read, Service { name: "web".to_owned(), ..Service::default() });
        let shown = serde_json::to_value(shapes::service(&read)).unwrap();
        assert_eq!(
            shown,
            json!({
                "ID": "", "Service": "web", "Tags": [], "Address": "", "TaggedAddresses": {}, "Meta": {}, "Port": 0,
                "Weights": {"Passing": 1, "Warning": 1}, "EnableTagOverride": false,
                "Proxy": {"MeshGateway": {}, "Expose": {}}, "Connect": {}, "CreateIndex": 0, "ModifyIndex": 0,
            })
        );
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for (body, wanted) in [
            (json!({"Kind": "typical"}), "Invalid service kind"),
            (json!({"Namespace": "other"}), "Namespace"),
            (json!({"PeerName": "cluster-2"}), "PeerName"),
            (json!({"Port": 1.5}), "Port: wanted a whole number"),
            (json!({"TaggedAddresses": {"lan": "10.0.0.1"}}), "TaggedAddresses[lan]: wanted an object"),
        ] {
            let refused = service(&Object::of(&body).unwrap(), "Service").unwrap_err();
            assert!(refused.text.contains(wanted), "{}", refused.text);
        }
        for (body, wanted) in [
            (json!({"Status": "fine"}), "Invalid check status \"fine\""),
            (json!({"Definition": {"Interval": "soon"}}), "Definition.Interval"),
            (json!({"Definition": {"Header": {"A": 1}}}), "Header[A]"),
        ] {
            let refused = health_check(&Object::of(&body).unwrap()).unwrap_err();
            assert!(refused.text.contains(wanted), "{}", refused.text);
        }
        assert!(service(&Object::of(&json!({"Namespace": "default"})).unwrap(), "Service").is_ok());
        assert!(agent_check(&Object::of(&json!({"Status": ""})).unwrap()).unwrap().is_none());
    }
}
