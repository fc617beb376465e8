//! The answer of a commit as text and as JSON.

use std::fmt::Write as _;

use serde::Serialize;
use serde_json::{Value, json};

use crate::output::json::{DeleteRange, Put};
use headwater_proto::pb::headwater_v1 as pb;
use headwater_proto::pb::headwater_v1::operation_result::Result as Wire;
use headwater_proto::pb::pbresource;

/// The answer as lines: the log index, then one line for each operation.
pub(super) fn as_text(done: &pb::CommitResponse) -> String {
    let mut out = String::new();
    let before = if done.done_before { " (done before)" } else { "" };
    writeln!(out, "index {}, revision {}{before}", done.index, done.revision).expect("a string takes what is written");
    for (number, result) in done.results.iter().enumerate() {
        let text = match &result.result {
            Some(Wire::Put(_)) => "put".to_owned(),
            Some(Wire::DeleteRange(deleted)) => format!("{} deleted", deleted.deleted),
            Some(Wire::GrantLease(lease)) => format!("lease {:x}, {} s", lease.id, lease.ttl),
            Some(Wire::RevokeLease(_)) => "lease revoked".to_owned(),
            Some(Wire::WriteResource(written)) => resource(written.resource.as_ref()),
            Some(Wire::WriteResourceStatus(written)) => resource(written.resource.as_ref()),
            Some(Wire::DeleteResource(_)) => "resource deleted".to_owned(),
            Some(Wire::Register(_)) => "registered".to_owned(),
            Some(Wire::Deregister(_)) => "deregistered".to_owned(),
            Some(Wire::CreateSession(session)) => format!("session {}", session.id),
            Some(Wire::DestroySession(_)) => "session destroyed".to_owned(),
            Some(Wire::ConsulKv(_)) => "done".to_owned(),
            None => "done".to_owned(),
        };
        writeln!(out, "operations[{number}]: {text}").expect("a string takes what is written");
    }
    out
}

fn resource(written: Option<&pbresource::Resource>) -> String {
    let Some(written) = written else { return "resource written".to_owned() };
    let id = written.id.clone().unwrap_or_default();
    format!("{} {} version {}", id.r#type.map(|it| it.kind).unwrap_or_default(), id.name, written.version)
}

/// The answer as JSON. A result names its operation as the document of a commit does, and has the
/// fields of the operation's answer.
pub(crate) fn as_json(done: &pb::CommitResponse) -> Value {
    let results: Vec<Value> = done.results.iter().map(result_json).collect();
    json!({
        "index": done.index,
        "epoch": done.epoch,
        "revision": done.revision,
        "done_before": done.done_before,
        "results": results,
    })
}

fn result_json(result: &pb::OperationResult) -> Value {
    let (operation, fields) = match &result.result {
        Some(Wire::Put(put)) => ("put", of_etcd(&Put::from(put))),
        Some(Wire::DeleteRange(deleted)) => {
            let mut fields = of_etcd(&DeleteRange::from(deleted));
            fields["deleted"] = deleted.deleted.into();
            ("deleteRange", fields)
        }
        Some(Wire::GrantLease(lease)) => ("grantLease", json!({"ID": lease.id, "TTL": lease.ttl})),
        Some(Wire::RevokeLease(_)) => ("revokeLease", json!({})),
        Some(Wire::WriteResource(written)) => ("writeResource", resource_json(written.resource.as_ref())),
        Some(Wire::WriteResourceStatus(written)) => ("writeResourceStatus", resource_json(written.resource.as_ref())),
        Some(Wire::DeleteResource(_)) => ("deleteResource", json!({})),
        Some(Wire::Register(_)) => ("register", json!({})),
        Some(Wire::Deregister(_)) => ("deregister", json!({})),
        Some(Wire::CreateSession(session)) => ("createSession", json!({"id": session.id})),
        Some(Wire::DestroySession(_)) => ("destroySession", json!({})),
        Some(Wire::ConsulKv(_)) => ("consulKv", json!({})),
        // Of a newer server.
        None => ("unknown", json!({})),
    };
    let mut object = json!({"operation": operation});
    if let (Some(object), Value::Object(mut fields)) = (object.as_object_mut(), fields) {
        object.append(&mut fields);
    }
    object
}

fn of_etcd(answer: &impl Serialize) -> Value {
    serde_json::to_value(answer).expect("an answer of texts and numbers")
}

fn resource_json(written: Option<&pbresource::Resource>) -> Value {
    let Some(written) = written else { return json!({}) };
    let id = written.id.clone().unwrap_or_default();
    let (type_, tenancy) = (id.r#type.unwrap_or_default(), id.tenancy.unwrap_or_default());
    json!({
        "type": format!("{}.{}.{}", type_.group, type_.group_version, type_.kind),
        "partition": tenancy.partition,
        "namespace": tenancy.namespace,
        "name": id.name,
        "uid": id.uid,
        "version": written.version,
        "generation": written.generation,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_proto::pb::{etcdserverpb, mvccpb};

    #[test]
    fn a_program_reads_the_result_of_each_operation() {
        let prev = mvccpb::KeyValue { key: "a".into(), value: "1".into(), mod_revision: 3, ..Default::default() };
        let id = pbresource::Id {
            uid: "u".to_owned(),
            name: "korn".to_owned(),
            r#type: Some(pbresource::Type {
                group: "demo".to_owned(),
                group_version: "v2".to_owned(),
                kind: "Artist".to_owned(),
            }),
            ..Default::default()
        };
        let resource = pbresource::Resource { id: Some(id), version: "57".to_owned(), ..Default::default() };
        let results = [
            Wire::Put(etcdserverpb::PutResponse { prev_kv: Some(prev), ..Default::default() }),
            Wire::DeleteRange(etcdserverpb::DeleteRangeResponse::default()),
            Wire::GrantLease(etcdserverpb::LeaseGrantResponse { id: 7, ttl: 60, ..Default::default() }),
            Wire::WriteResource(pbresource::WriteResponse { resource: Some(resource) }),
            Wire::CreateSession(pb::SessionCreated { id: "s".to_owned() }),
            Wire::Register(pb::Registered {}),
        ];
        let results = results.map(|result| pb::OperationResult { result: Some(result) }).into();
        let json = as_json(&pb::CommitResponse { index: 57, revision: 9, results, ..Default::default() });
        assert_eq!((&json["index"], &json["revision"], &json["done_before"]), (&json!(57), &json!(9), &json!(false)));
        let Value::Array(results) = &json["results"] else { panic!("{json}") };
        let wanted = [
            json!({"operation": "put", "prev_kv": {"key": "YQ==", "mod_revision": 3, "value": "MQ=="}}),
            json!({"operation": "deleteRange", "deleted": 0}),
            json!({"operation": "grantLease", "ID": 7, "TTL": 60}),
            json!({
                "operation": "writeResource", "type": "demo.v2.Artist", "partition": "", "namespace": "", "name": "korn",
                "uid": "u", "version": "57", "generation": "",
            }),
            json!({"operation": "createSession", "id": "s"}),
            json!({"operation": "register"}),
        ];
        assert_eq!(results[..], wanted);
    }
}
