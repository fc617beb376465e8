//! Encoding of the service catalog: commands, outcomes, and stored rows.
//!
//! A live row is stored without its `modified`, which is the log index of its record. The row of a
//! removed one keeps it. Invariant: equal rows have equal bytes.

use bytes::Bytes;

use super::CodecError;
use super::command::{decode_message, encode_message};
use super::kv::{required, unknown};
use crate::pb::internal as pb;
use headwater_types::LogIndex;
use headwater_types::catalog::{
    CatalogBody, CatalogCommand, CatalogDone, CatalogEvent, CatalogNode, CatalogOp, CatalogRefusal, CatalogTable,
    CatalogTopic, Check, CheckDefinition, CheckGuard, CheckStatus, Deregistration, DeregistrationTarget, LinkedService,
    Locality, Proxy, Registration, Service, ServiceAddress, ServiceConnect, ServiceKind, TerminatingGateway, Weights,
};

/// The only format of stored rows so far.
const FORMAT: u8 = 1;

/// The bytes of the row of a node. A `modified` of zero is left out.
pub fn encode_node(row: &CatalogNode) -> Bytes {
    encode_message(FORMAT, &write_node(row))
}

/// Decodes the row of a node from its record with the log index `at`. If the bytes have no
/// `modified`, it becomes `at`.
///
/// # Errors
///
/// [`CodecError`] for another format byte, for malformed bytes, and for a value that this version
/// does not know. Unknown fields are ignored.
pub fn decode_node(bytes: Bytes, at: LogIndex) -> Result<CatalogNode, CodecError> {
    let mut row = read_node(decode_message("node of the catalog", FORMAT, bytes)?);
    if row.modified == LogIndex::ZERO {
        row.modified = at;
    }
    Ok(row)
}

/// The bytes of the row of a service instance. A `modified` of zero is left out.
pub fn encode_service(row: &Service) -> Bytes {
    encode_message(FORMAT, &write_service(row))
}

/// Decodes the row of a service instance from its record with the log index `at`. If the bytes have
/// no `modified`, it becomes `at`.
///
/// # Errors
///
/// [`CodecError`] for another format byte, for malformed bytes, and for a value that this version
/// does not know. Unknown fields are ignored.
pub fn decode_service(bytes: Bytes, at: LogIndex) -> Result<Service, CodecError> {
    let mut row = read_service(decode_message("service of the catalog", FORMAT, bytes)?)?;
    if row.modified == LogIndex::ZERO {
        row.modified = at;
    }
    Ok(row)
}

/// The bytes of the row of a check. A `modified` of zero is left out.
pub fn encode_check(row: &Check) -> Bytes {
    encode_message(FORMAT, &write_check(row))
}

/// Decodes the row of a check from its record with the log index `at`. If the bytes have no
/// `modified`, it becomes `at`.
///
/// # Errors
///
/// [`CodecError`] for another format byte, for malformed bytes, and for a value that this version
/// does not know. Unknown fields are ignored.
pub fn decode_check(bytes: Bytes, at: LogIndex) -> Result<Check, CodecError> {
    let mut row = read_check(decode_message("check of the catalog", FORMAT, bytes)?)?;
    if row.modified == LogIndex::ZERO {
        row.modified = at;
    }
    Ok(row)
}

/// The bytes of the row of a gateway. A `modified` of zero is left out.
pub fn encode_gateway(row: &TerminatingGateway) -> Bytes {
    encode_message(FORMAT, &write_gateway(row))
}

/// Decodes the row of a gateway from its record with the log index `at`. If the bytes have no
/// `modified`, it becomes `at`.
///
/// # Errors
///
/// [`CodecError`] for another format byte, for malformed bytes, and for a value that this version
/// does not know. Unknown fields are ignored.
pub fn decode_gateway(bytes: Bytes, at: LogIndex) -> Result<TerminatingGateway, CodecError> {
    let mut row = read_gateway(decode_message("gateway of the catalog", FORMAT, bytes)?);
    if row.modified == LogIndex::ZERO {
        row.modified = at;
    }
    Ok(row)
}

pub(super) fn write_command(command: &CatalogCommand) -> pb::CatalogCommand {
    use pb::catalog_command::Command as Wire;
    let command = match command {
        CatalogCommand::Register(registration) => Wire::Register(pb::Registration {
            node: Some(write_node(&registration.node)),
            skip_node_update: registration.skip_node_update,
            service: registration.service.as_ref().map(write_service),
            checks: registration.checks.iter().map(write_check).collect(),
            replace_checks: registration.replace_checks,
            keep_statuses: registration.keep_statuses,
            guard: registration.guard.as_ref().map(write_guard),
        }),
        CatalogCommand::Deregister(deregistration) => Wire::Deregister(pb::Deregistration {
            node: deregistration.node.clone(),
            what: match &deregistration.what {
                DeregistrationTarget::Node => None,
                DeregistrationTarget::Service(id) => Some(pb::deregistration::What::ServiceId(id.clone())),
                DeregistrationTarget::Check(id) => Some(pb::deregistration::What::CheckId(id.clone())),
            },
            guard: deregistration.guard.as_ref().map(write_guard),
        }),
        CatalogCommand::SetGateway(gateway) => Wire::SetGateway(write_gateway(gateway)),
        CatalogCommand::DeleteGateway(name) => Wire::DeleteGateway(name.clone()),
    };
    pb::CatalogCommand { command: Some(command) }
}

pub(super) fn read_command(command: pb::CatalogCommand) -> Result<CatalogCommand, CodecError> {
    use pb::catalog_command::Command as Wire;
    Ok(match command.command.ok_or(CodecError::UnknownCommand)? {
        Wire::Register(registration) => CatalogCommand::Register(Box::new(Registration {
            node: read_node(required(registration.node, "Registration.node")?),
            skip_node_update: registration.skip_node_update,
            service: registration.service.map(read_service).transpose()?,
            checks: registration.checks.into_iter().map(read_check).collect::<Result<_, _>>()?,
            replace_checks: registration.replace_checks,
            keep_statuses: registration.keep_statuses,
            guard: registration.guard.map(read_guard),
        })),
        Wire::Deregister(deregistration) => CatalogCommand::Deregister(Box::new(Deregistration {
            node: deregistration.node,
            what: match deregistration.what {
                None => DeregistrationTarget::Node,
                Some(pb::deregistration::What::ServiceId(id)) => DeregistrationTarget::Service(id),
                Some(pb::deregistration::What::CheckId(id)) => DeregistrationTarget::Check(id),
            },
            guard: deregistration.guard.map(read_guard),
        })),
        Wire::SetGateway(gateway) => CatalogCommand::SetGateway(Box::new(read_gateway(gateway))),
        Wire::DeleteGateway(name) => CatalogCommand::DeleteGateway(name),
    })
}

fn write_guard(guard: &CheckGuard) -> pb::CheckGuard {
    pb::CheckGuard { check_id: guard.check_id.clone(), modified: guard.modified.get() }
}

fn read_guard(guard: pb::CheckGuard) -> CheckGuard {
    CheckGuard { check_id: guard.check_id, modified: LogIndex(guard.modified) }
}

pub(super) fn write_done(done: CatalogDone) -> pb::CatalogDone {
    pb::CatalogDone { changed: done.changed }
}

pub(super) fn read_done(done: &pb::CatalogDone) -> CatalogDone {
    CatalogDone { changed: done.changed }
}

pub(super) fn read_refusal(number: i32) -> Result<CatalogRefusal, CodecError> {
    let known = CatalogRefusal::ALL.into_iter().find(|refusal| *refusal as i32 == number);
    known.ok_or_else(|| unknown("Refusal.catalog", number))
}

pub(super) fn write_node(node: &CatalogNode) -> pb::CatalogNode {
    pb::CatalogNode {
        name: node.name.clone(),
        id: node.id.clone(),
        address: node.address.clone(),
        tagged_addresses: node.tagged_addresses.clone(),
        meta: node.meta.clone(),
        locality: node.locality.as_ref().map(write_locality),
        created: node.created.get(),
        modified: node.modified.get(),
    }
}

pub(super) fn read_node(node: pb::CatalogNode) -> CatalogNode {
    CatalogNode {
        name: node.name,
        id: node.id,
        address: node.address,
        tagged_addresses: node.tagged_addresses,
        meta: node.meta,
        locality: node.locality.map(read_locality),
        created: LogIndex(node.created),
        modified: LogIndex(node.modified),
    }
}

fn write_locality(locality: &Locality) -> pb::CatalogLocality {
    pb::CatalogLocality { region: locality.region.clone(), zone: locality.zone.clone() }
}

fn read_locality(locality: pb::CatalogLocality) -> Locality {
    Locality { region: locality.region, zone: locality.zone }
}

pub(super) fn write_service(service: &Service) -> pb::CatalogService {
    let address = |(name, address): (&String, &ServiceAddress)| {
        (name.clone(), pb::CatalogAddress { address: address.address.clone(), port: address.port })
    };
    let proxy = &service.proxy;
    pb::CatalogService {
        node: service.node.clone(),
        kind: service.kind as i32,
        id: service.id.clone(),
        name: service.name.clone(),
        tags: service.tags.clone(),
        address: service.address.clone(),
        tagged_addresses: service.tagged_addresses.iter().map(address).collect(),
        meta: service.meta.clone(),
        port: service.port,
        socket_path: service.socket_path.clone(),
        weight_passing: service.weights.passing,
        weight_warning: service.weights.warning,
        enable_tag_override: service.enable_tag_override,
        proxy: (*proxy != Proxy::default()).then(|| pb::CatalogProxy {
            destination_service_name: proxy.destination_service_name.clone(),
            destination_service_id: proxy.destination_service_id.clone(),
            local_service_address: proxy.local_service_address.clone(),
            local_service_port: proxy.local_service_port,
            local_service_socket_path: proxy.local_service_socket_path.clone(),
            mode: proxy.mode.clone(),
            more_json: proxy.more_json.clone(),
        }),
        connect_native: service.connect.native,
        connect_more_json: service.connect.more_json.clone(),
        locality: service.locality.as_ref().map(write_locality),
        created: service.created.get(),
        modified: service.modified.get(),
    }
}

pub(super) fn read_service(service: pb::CatalogService) -> Result<Service, CodecError> {
    let kind = ServiceKind::ALL.into_iter().find(|kind| *kind as i32 == service.kind);
    let address = |(name, address): (String, pb::CatalogAddress)| {
        (name, ServiceAddress { address: address.address, port: address.port })
    };
    let proxy = |proxy: pb::CatalogProxy| Proxy {
        destination_service_name: proxy.destination_service_name,
        destination_service_id: proxy.destination_service_id,
        local_service_address: proxy.local_service_address,
        local_service_port: proxy.local_service_port,
        local_service_socket_path: proxy.local_service_socket_path,
        mode: proxy.mode,
        more_json: proxy.more_json,
    };
    Ok(Service {
        node: service.node,
        kind: kind.ok_or_else(|| unknown("CatalogService.kind", service.kind))?,
        id: service.id,
        name: service.name,
        tags: service.tags,
        address: service.address,
        tagged_addresses: service.tagged_addresses.into_iter().map(address).collect(),
        meta: service.meta,
        port: service.port,
        socket_path: service.socket_path,
        weights: Weights { passing: service.weight_passing, warning: service.weight_warning },
        enable_tag_override: service.enable_tag_override,
        proxy: service.proxy.map(proxy).unwrap_or_default(),
        connect: ServiceConnect { native: service.connect_native, more_json: service.connect_more_json },
        locality: service.locality.map(read_locality),
        created: LogIndex(service.created),
        modified: LogIndex(service.modified),
    })
}

pub(super) fn write_check(check: &Check) -> pb::CatalogCheck {
    pb::CatalogCheck {
        node: check.node.clone(),
        id: check.id.clone(),
        name: check.name.clone(),
        status: check.status as i32,
        notes: check.notes.clone(),
        output: check.output.clone(),
        service_id: check.service_id.clone(),
        service_name: check.service_name.clone(),
        service_tags: check.service_tags.clone(),
        r#type: check.type_.clone(),
        definition: (check.definition != CheckDefinition::default()).then(|| write_definition(&check.definition)),
        interval: check.interval.clone(),
        timeout: check.timeout.clone(),
        exposed_port: check.exposed_port,
        created: check.created.get(),
        modified: check.modified.get(),
    }
}

pub(super) fn read_check(check: pb::CatalogCheck) -> Result<Check, CodecError> {
    let status = CheckStatus::ALL.into_iter().find(|status| *status as i32 == check.status);
    Ok(Check {
        node: check.node,
        id: check.id,
        name: check.name,
        status: status.ok_or_else(|| unknown("CatalogCheck.status", check.status))?,
        notes: check.notes,
        output: check.output,
        service_id: check.service_id,
        service_name: check.service_name,
        service_tags: check.service_tags,
        type_: check.r#type,
        definition: check.definition.map(read_definition).unwrap_or_default(),
        interval: check.interval,
        timeout: check.timeout,
        exposed_port: check.exposed_port,
        created: LogIndex(check.created),
        modified: LogIndex(check.modified),
    })
}

fn write_definition(definition: &CheckDefinition) -> pb::CatalogCheckDefinition {
    let header = |(name, values): (&String, &Vec<String>)| (name.clone(), pb::CatalogHeader { values: values.clone() });
    pb::CatalogCheckDefinition {
        http: definition.http.clone(),
        tls_skip_verify: definition.tls_skip_verify,
        header: definition.header.iter().map(header).collect(),
        method: definition.method.clone(),
        body: definition.body.clone(),
        tls_server_name: definition.tls_server_name.clone(),
        disable_redirects: definition.disable_redirects,
        tcp: definition.tcp.clone(),
        tcp_use_tls: definition.tcp_use_tls,
        udp: definition.udp.clone(),
        grpc: definition.grpc.clone(),
        grpc_use_tls: definition.grpc_use_tls,
        h2ping: definition.h2ping.clone(),
        h2ping_use_tls: definition.h2ping_use_tls,
        os_service: definition.os_service.clone(),
        script_args: definition.script_args.clone(),
        docker_container_id: definition.docker_container_id.clone(),
        shell: definition.shell.clone(),
        alias_node: definition.alias_node.clone(),
        alias_service: definition.alias_service.clone(),
        output_max_size: definition.output_max_size,
        interval_ns: definition.interval_ns,
        timeout_ns: definition.timeout_ns,
        ttl_ns: definition.ttl_ns,
        deregister_critical_after_ns: definition.deregister_critical_after_ns,
    }
}

fn read_definition(definition: pb::CatalogCheckDefinition) -> CheckDefinition {
    CheckDefinition {
        http: definition.http,
        tls_skip_verify: definition.tls_skip_verify,
        header: definition.header.into_iter().map(|(name, header)| (name, header.values)).collect(),
        method: definition.method,
        body: definition.body,
        tls_server_name: definition.tls_server_name,
        disable_redirects: definition.disable_redirects,
        tcp: definition.tcp,
        tcp_use_tls: definition.tcp_use_tls,
        udp: definition.udp,
        grpc: definition.grpc,
        grpc_use_tls: definition.grpc_use_tls,
        h2ping: definition.h2ping,
        h2ping_use_tls: definition.h2ping_use_tls,
        os_service: definition.os_service,
        script_args: definition.script_args,
        docker_container_id: definition.docker_container_id,
        shell: definition.shell,
        alias_node: definition.alias_node,
        alias_service: definition.alias_service,
        output_max_size: definition.output_max_size,
        interval_ns: definition.interval_ns,
        timeout_ns: definition.timeout_ns,
        ttl_ns: definition.ttl_ns,
        deregister_critical_after_ns: definition.deregister_critical_after_ns,
    }
}

fn write_gateway(gateway: &TerminatingGateway) -> pb::TerminatingGateway {
    let link = |link: &LinkedService| pb::LinkedService {
        name: link.name.clone(),
        ca_file: link.ca_file.clone(),
        cert_file: link.cert_file.clone(),
        key_file: link.key_file.clone(),
        sni: link.sni.clone(),
        disable_auto_host_rewrite: link.disable_auto_host_rewrite,
    };
    pb::TerminatingGateway {
        name: gateway.name.clone(),
        services: gateway.services.iter().map(link).collect(),
        meta: gateway.meta.clone(),
        created: gateway.created.get(),
        modified: gateway.modified.get(),
    }
}

fn read_gateway(gateway: pb::TerminatingGateway) -> TerminatingGateway {
    let link = |link: pb::LinkedService| LinkedService {
        name: link.name,
        ca_file: link.ca_file,
        cert_file: link.cert_file,
        key_file: link.key_file,
        sni: link.sni,
        disable_auto_host_rewrite: link.disable_auto_host_rewrite,
    };
    TerminatingGateway {
        name: gateway.name,
        services: gateway.services.into_iter().map(link).collect(),
        meta: gateway.meta,
        created: LogIndex(gateway.created),
        modified: LogIndex(gateway.modified),
    }
}

/// An event as history keeps it: its rows are only named, not copied, except for an instance that
/// was removed or has left the event's subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedEvent {
    /// The topic of the event.
    pub topic: CatalogTopic,
    /// The kind of the change.
    pub op: CatalogOp,
    /// The subject of the event, as in [`CatalogEvent::key`].
    pub key: String,
    /// The rows that the event is about.
    pub body: RecordedBody,
}

/// The content of a recorded event: the names of its rows, or the table that changed. Only an
/// instance that was removed, or has left the event's subject, is kept with its last content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordedBody {
    /// An instance that was written. Readers load the instance, its node and these checks from the
    /// state after the event's command.
    Instance {
        /// Name of the node.
        node: String,
        /// Id of the instance.
        service_id: String,
        /// Ids of the checks, in the order of the event.
        check_ids: Vec<String>,
    },
    /// An instance that was removed, or has left the event's subject, with its last content.
    Gone {
        /// Name of the node.
        node: String,
        /// The last content of the instance.
        service: Box<Service>,
    },
    /// The name of a service.
    Name(String),
    /// The name of a node. Unless it was removed, readers load the node from the state after the
    /// event's command.
    Node(String),
    /// The table that changed.
    Table(CatalogTable),
}

/// The bytes of the catalog events of a command.
pub fn encode_events(events: &[CatalogEvent]) -> Bytes {
    let events = events.iter().map(write_event).collect();
    encode_message(FORMAT, &pb::CatalogEvents { events })
}

fn write_event(event: &CatalogEvent) -> pb::CatalogEvent {
    use pb::catalog_event::Body as Wire;
    let body = match (&event.body, event.op) {
        (CatalogBody::Instance(gone), CatalogOp::Deregister) => Wire::GoneInstance(pb::GoneInstance {
            node: gone.node.name.clone(),
            service: Some(write_service(&gone.service)),
        }),
        (CatalogBody::Instance(instance), CatalogOp::Register) => Wire::Instance(pb::InstanceRef {
            node: instance.node.name.clone(),
            service_id: instance.service.id.clone(),
            check_ids: instance.checks.iter().map(|check| check.id.clone()).collect(),
        }),
        (CatalogBody::Name(name), _) => Wire::Name(name.to_string()),
        (CatalogBody::Node(node), _) => Wire::Node(node.name.clone()),
        (CatalogBody::Table(table), _) => Wire::Table(*table as i32),
    };
    pb::CatalogEvent {
        topic: event.topic as i32,
        deregister: event.op == CatalogOp::Deregister,
        key: event.key.to_string(),
        body: Some(body),
    }
}

/// The inverse of [`encode_events`], without the rows that are only named.
///
/// # Errors
///
/// [`CodecError`] for another format byte, for malformed bytes, and for a value that this version
/// does not know. Unknown fields are ignored.
pub fn decode_events(bytes: Bytes) -> Result<Vec<RecordedEvent>, CodecError> {
    let message: pb::CatalogEvents = decode_message("events of the catalog", FORMAT, bytes)?;
    message.events.into_iter().map(read_event).collect()
}

fn read_event(event: pb::CatalogEvent) -> Result<RecordedEvent, CodecError> {
    use pb::catalog_event::Body as Wire;
    let topic = CatalogTopic::ALL.into_iter().find(|topic| *topic as i32 == event.topic);
    let body = match required(event.body, "CatalogEvent.body")? {
        Wire::Instance(instance) => RecordedBody::Instance {
            node: instance.node,
            service_id: instance.service_id,
            check_ids: instance.check_ids,
        },
        Wire::GoneInstance(gone) => RecordedBody::Gone {
            node: gone.node,
            service: Box::new(read_service(required(gone.service, "GoneInstance.service")?)?),
        },
        Wire::Name(name) => RecordedBody::Name(name),
        Wire::Node(name) => RecordedBody::Node(name),
        Wire::Table(number) => {
            let table = CatalogTable::ALL.into_iter().find(|table| *table as i32 == number);
            RecordedBody::Table(table.ok_or_else(|| unknown("CatalogEvent.table", number))?)
        }
    };
    Ok(RecordedEvent {
        topic: topic.ok_or_else(|| unknown("CatalogEvent.topic", event.topic))?,
        op: if event.deregister { CatalogOp::Deregister } else { CatalogOp::Register },
        key: event.key,
        body,
    })
}

#[cfg(test)]
#[path = "catalog_tests.rs"]
mod tests;
