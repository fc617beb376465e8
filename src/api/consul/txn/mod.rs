//! `/v1/txn`: operations that are carried out together or not at all (spec: consul §8.3).

mod rows;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::StatusCode;
use serde::Serialize;
use serde_json::Value;

use super::answer::{Answer, Refusal};
use super::call::Call;
use super::decode::{Object, failed};
use super::kv::{EntryBody, check_path};
use super::rights;
use headwater_types::LogIndex;
use headwater_types::consul::{KvOp, KvVerb, TxnFault, TxnItem, TxnOp, TxnRow};
use headwater_types::limits::{CONSUL_VALUE_BYTES_MAX, TXN_OPS_MAX};

/// The verbs of operations on keys.
const KV_VERBS: [(&str, KvVerb); 13] = [
    ("set", KvVerb::Set),
    ("cas", KvVerb::Cas),
    ("lock", KvVerb::Lock),
    ("unlock", KvVerb::Unlock),
    ("delete", KvVerb::Delete),
    ("delete-cas", KvVerb::DeleteCas),
    ("delete-tree", KvVerb::DeleteTree),
    ("get", KvVerb::Get),
    ("get-or-empty", KvVerb::GetOrEmpty),
    ("get-tree", KvVerb::GetTree),
    ("check-index", KvVerb::CheckIndex),
    ("check-session", KvVerb::CheckSession),
    ("check-not-exists", KvVerb::CheckNotExists),
];

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Done {
    results: Option<Vec<ItemBody>>,
    errors: Option<Vec<FaultBody>>,
}

#[derive(Serialize)]
enum ItemBody {
    #[serde(rename = "KV")]
    Kv(EntryBody),
    Node(Value),
    Service(Value),
    Check(Value),
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct FaultBody {
    op_index: u32,
    what: String,
}

/// Carries out operations, all or none. The answer is 409 with the errors if an operation fails or
/// is not permitted. A transaction that only reads keys is not written to the log; one with an
/// operation on the catalog always is.
pub(super) async fn put(call: Call) -> Result<Answer, Refusal> {
    let ops = read(&call.json()?)?;
    let reads: Option<Vec<KvOp>> = ops.iter().map(|op| op.as_read().cloned()).collect();
    let is_read = reads.is_some();
    let answer = carry_out(&call, ops, reads).await?;
    Ok(if is_read { answer.contact() } else { answer })
}

/// The answer to operations; `reads` has them if all of them read keys.
async fn carry_out(call: &Call, ops: Vec<TxnOp>, reads: Option<Vec<KvOp>>) -> Result<Answer, Refusal> {
    let names: Vec<String> = ops.iter().map(describe).collect();
    if let Some(denied) = denied(call, &ops).await? {
        return Ok(denied);
    }
    let done = match reads {
        Some(reads) => {
            let freshness = call.freshness()?;
            let done = call.node().consul().read_txn(&call.context()?, freshness.consistency, reads).await?;
            // The reasons tell what is stored; a right may have gone before the read.
            if done.value.is_err()
                && let Some(denied) = denied(call, &ops).await?
            {
                return Ok(denied);
            }
            done
        }
        None => call.node().consul().txn(&call.context()?, ops).await?,
    };
    let answer = match done.value {
        Ok(mut items) => {
            let visibility = call.visibility()?;
            visibility.keep(&mut items, |item| match item {
                TxnItem::Kv(entry) => visibility.sees_key(&entry.path),
                TxnItem::Catalog(TxnRow::Node(node)) => visibility.sees_node(&node.name),
                TxnItem::Catalog(TxnRow::Service(service)) => visibility.sees_service(&service.name),
                TxnItem::Catalog(TxnRow::Check(check)) => visibility.sees_check(check),
            });
            let results = items.iter().map(|item| item_body(item, call.node().datacenter())).collect();
            call.answer(&Done { results: Some(results), errors: None })
        }
        Err(faults) => {
            let fault = |fault: &TxnFault| FaultBody {
                op_index: fault.op,
                what: format!("{}: {}", names[fault.op as usize], fault.reason),
            };
            let errors = faults.iter().map(fault).collect();
            call.answer(&Done { results: None, errors: Some(errors) }).status(StatusCode::CONFLICT)
        }
    };
    Ok(answer.at(done.index))
}

/// The answer (409) to a transaction with operations that the token may not carry out, with an
/// error for each of them. `None` if the token may carry out all.
async fn denied(call: &Call, ops: &[TxnOp]) -> Result<Option<Answer>, Refusal> {
    let faults = rights::txn_faults(call, ops).await?;
    if faults.is_empty() {
        return Ok(None);
    }
    let errors = faults.into_iter().map(|(op_index, what)| FaultBody { op_index, what }).collect();
    Ok(Some(call.answer(&Done { results: None, errors: Some(errors) }).status(StatusCode::CONFLICT)))
}

fn item_body(item: &TxnItem, datacenter: &str) -> ItemBody {
    match item {
        TxnItem::Kv(entry) => ItemBody::Kv(EntryBody::of(entry)),
        TxnItem::Catalog(row) => {
            let body = rows::body(row, datacenter);
            match row {
                TxnRow::Node(_) => ItemBody::Node(body),
                TxnRow::Service(_) => ItemBody::Service(body),
                TxnRow::Check(_) => ItemBody::Check(body),
            }
        }
    }
}

/// The beginning of the error text of a failed operation; a reason follows.
fn describe(op: &TxnOp) -> String {
    match op {
        TxnOp::Kv(op) => {
            let (name, _) =
                KV_VERBS.iter().find(|(_, verb)| *verb == op.verb).expect("invariant: every verb is listed");
            format!("failed to {name} key {:?}", String::from_utf8_lossy(&op.path))
        }
        TxnOp::Catalog(verb, row) => format!("failed to {} {}", rows::name(*verb), rows::describe(row)),
    }
}

fn read(body: &Value) -> Result<Vec<TxnOp>, Refusal> {
    let Value::Array(values) = body else { return Err(failed("wanted a list of operations")) };
    if values.len() > TXN_OPS_MAX {
        let text = format!("Transaction contains too many operations ({} > {TXN_OPS_MAX})", values.len());
        return Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, text));
    }
    values.iter().enumerate().map(|(position, value)| read_op(position, value)).collect()
}

fn read_op(position: usize, value: &Value) -> Result<TxnOp, Refusal> {
    let object = Object::of(value)?;
    if let Some(op) = object.object("KV")? {
        return read_kv(position, &op).map(TxnOp::Kv);
    }
    let (verb, row) = if let Some(op) = object.object("Node")? {
        rows::node(position, &op)?
    } else if let Some(op) = object.object("Service")? {
        rows::service(position, &op)?
    } else if let Some(op) = object.object("Check")? {
        rows::check(position, &op)?
    } else {
        return Err(Refusal::bad(format!(
            "operation {position} is of no kind that is known: KV, Node, Service, Check"
        )));
    };
    Ok(TxnOp::Catalog(verb, row))
}

fn read_kv(position: usize, op: &Object<'_>) -> Result<KvOp, Refusal> {
    let name = op.text("Verb")?;
    let verb = KV_VERBS.iter().find(|(known, _)| *known == name).map(|(_, verb)| *verb);
    let verb = verb.ok_or_else(|| Refusal::bad(format!("operation {position} has the unknown KV verb {name:?}")))?;
    let path = Bytes::from(op.text("Key")?.into_bytes());
    if !verb.is_about_prefix() {
        check_path(&path)?;
    }
    let value = match op.text("Value")?.as_str() {
        "" => Bytes::new(),
        text => STANDARD.decode(text).map_err(|_| failed(&format!("[{position}].KV.Value is not base64")))?.into(),
    };
    if value.len() > CONSUL_VALUE_BYTES_MAX {
        let text = format!(
            "Value for key {:?} is too large ({} > {CONSUL_VALUE_BYTES_MAX} bytes)",
            op.text("Key")?,
            value.len()
        );
        return Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, text));
    }
    Ok(KvOp {
        verb,
        path,
        value,
        flags: number(position, op, "Flags")?,
        index: LogIndex(number(position, op, "Index")?),
        session: op.text("Session")?,
    })
}

/// The member `name` of an operation, an unsigned 64-bit number: flags and indexes use all 64 bits.
/// 0 if it is missing.
fn number(position: usize, op: &Object<'_>, name: &str) -> Result<u64, Refusal> {
    match op.get(name) {
        None => Ok(0),
        Some(value) => {
            value.as_u64().ok_or_else(|| failed(&format!("[{position}].KV.{name}: wanted a whole number, got {value}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use headwater_types::consul::CatalogVerb;

    #[test]
    fn operations_are_read() {
        let ops = read(&json!([
            {"KV": {"Verb": "set", "Key": "a", "Value": "aGk=", "Flags": u64::MAX}},
            {"kv": {"verb": "cas", "key": "a", "index": 7}},
            {"KV": {"Verb": "get-tree", "Key": ""}},
        ]))
        .unwrap();
        let TxnOp::Kv(set) = &ops[0] else { panic!() };
        assert_eq!(
            (set.verb, &set.path[..], &set.value[..], set.flags),
            (KvVerb::Set, &b"a"[..], &b"hi"[..], u64::MAX)
        );
        let TxnOp::Kv(cas) = &ops[1] else { panic!() };
        assert_eq!((cas.verb, cas.index), (KvVerb::Cas, LogIndex(7)));
        assert_eq!(describe(&ops[2]), "failed to get-tree key \"\"");
        assert!(KvVerb::ALL.iter().all(|verb| KV_VERBS.iter().any(|(_, known)| known == verb)));
    }

    #[test]
    fn rows_are_completed_as_registrations_are() {
        let ops = read(&json!([
            {"Node": {"Verb": "cas", "Node": {"Node": "n", "Address": "10.0.0.1", "ModifyIndex": 7}}},
            {"Service": {"Verb": "set", "Node": "n", "Service": {"Service": "web", "Port": 80}}},
            {"Service": {"Verb": "delete", "Node": "n", "Service": {"ID": "web-1"}}},
            {"Check": {"Verb": "set", "Check": {"Node": "n", "Name": "c", "Status": "passing", "ServiceID": "web"}}},
            {"Node": {"Verb": "get", "Node": {"Node": "n"}}},
        ]))
        .unwrap();
        let TxnOp::Catalog(CatalogVerb::Cas, TxnRow::Node(node)) = &ops[0] else { panic!("{:?}", ops[0]) };
        assert_eq!((node.name.as_str(), node.modified), ("n", LogIndex(7)));
        let TxnOp::Catalog(CatalogVerb::Set, TxnRow::Service(service)) = &ops[1] else { panic!("{:?}", ops[1]) };
        assert_eq!((service.node.as_str(), service.id.as_str(), service.port), ("n", "web", 80));
        let TxnOp::Catalog(CatalogVerb::Delete, TxnRow::Service(service)) = &ops[2] else { panic!("{:?}", ops[2]) };
        assert_eq!(service.id, "web-1");
        let TxnOp::Catalog(CatalogVerb::Set, TxnRow::Check(check)) = &ops[3] else { panic!("{:?}", ops[3]) };
        assert_eq!((check.id.as_str(), check.node.as_str()), ("c", "n"));
        assert_eq!(describe(&ops[2]), "failed to delete service \"web-1\" on node \"n\"");
        assert_eq!(describe(&ops[4]), "failed to get node \"n\"");
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let one = |op: Value| read(&json!([op])).unwrap_err();
        for (refused, status, text) in [
            (read(&json!({})).unwrap_err(), 400, "wanted a list"),
            (one(json!({})), 400, "operation 0 is of no kind"),
            (one(json!({"Node": {"Verb": "set", "Node": {"Node": "n"}}})), 400, "Must provide address"),
            (one(json!({"Node": {"Verb": "lock", "Node": {"Node": "n"}}})), 400, "unknown Node verb \"lock\""),
            (one(json!({"Service": {"Verb": "get", "Node": "n"}})), 400, "Service.Service is missing"),
            (one(json!({"Service": {"Verb": "get", "Service": {"ID": "s"}}})), 400, "Must provide node"),
            (one(json!({"Check": {"Verb": "get", "Check": {"Node": "n"}}})), 400, "CheckID or Name"),
            (one(json!({"KV": {"Verb": "take", "Key": "a"}})), 400, "unknown KV verb \"take\""),
            (one(json!({"KV": {"Verb": "set", "Key": ""}})), 400, "Missing key name"),
            (one(json!({"KV": {"Verb": "set", "Key": "a", "Value": "?"}})), 400, "is not base64"),
            (one(json!({"KV": {"Verb": "set", "Key": "a", "Flags": -1}})), 400, "KV.Flags"),
            (read(&json!(vec![json!({"KV": {"Verb": "get", "Key": "a"}}); 129])).unwrap_err(), 413, "129 > 128"),
        ] {
            assert_eq!(refused.status.as_u16(), status, "{}", refused.text);
            assert!(refused.text.contains(text), "{}", refused.text);
        }
        let most = read(&json!(vec![json!({"KV": {"Verb": "get", "Key": "a"}}); 128]));
        assert_eq!(most.map(|ops| ops.len()).ok(), Some(128));
        let value = |len: usize| json!({"KV": {"Verb": "set", "Key": "a", "Value": STANDARD.encode(vec![0; len])}});
        assert!(read(&json!([value(CONSUL_VALUE_BYTES_MAX)])).is_ok());
        assert_eq!(one(value(CONSUL_VALUE_BYTES_MAX + 1)).status, 413);
    }
}
