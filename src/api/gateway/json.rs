//! Reads JSON requests in the form of etcd's gateway: names as in the proto or in camel case, bytes
//! as base64, 64-bit integers as strings. Unknown fields are ignored, as etcd's gateway does.
//! Messages of [`OWN_PACKAGE`] with unknown fields are refused: a commit whose condition is
//! misspelt must not be made without it.

use bytes::Bytes;
use prost::Message;
use prost_reflect::{DeserializeOptions, DynamicMessage, Kind, MessageDescriptor};
use serde_json::Value;
use tonic::Status;

/// Refuses unknown fields and unknown names of enumeration values. The library ignores either both
/// or none, and an ignored enumeration value would be read as the default. [`lenient`] removes
/// unknown fields before reading, and the line breaks that Go's decoder ignores in base64.
const READ: DeserializeOptions = DeserializeOptions::new();
/// The package of the project's own messages.
const OWN_PACKAGE: &str = "headwater.v1";

/// Reads one message and encodes it. A blank text or `null` is the empty message.
///
/// # Errors
///
/// `INVALID_ARGUMENT` with the mistake and its position.
pub(super) fn read(descriptor: &MessageDescriptor, text: &[u8]) -> Result<Bytes, Status> {
    let text = text.trim_ascii();
    if text.is_empty() || text == b"null" {
        return Ok(Bytes::new());
    }
    let message = strict(descriptor, text).or_else(|error| match descriptor.package_name() {
        OWN_PACKAGE => Err(error),
        _ => lenient(descriptor, text).map_err(|_| error),
    });
    let message = message.map_err(|error| {
        Status::invalid_argument(format!("the body is not {} as JSON: {error}", descriptor.full_name()))
    })?;
    Ok(message.encode_to_vec().into())
}

fn strict(descriptor: &MessageDescriptor, text: &[u8]) -> Result<DynamicMessage, serde_json::Error> {
    let mut reader = serde_json::Deserializer::from_slice(text);
    let message = DynamicMessage::deserialize_with_options(descriptor.clone(), &mut reader, &READ)?;
    reader.end()?;
    Ok(message)
}

/// Decodes as `strict` does, after removing unknown fields and line breaks in base64. Few clients
/// send them, so it may cost more.
fn lenient(descriptor: &MessageDescriptor, text: &[u8]) -> Result<DynamicMessage, serde_json::Error> {
    let mut value = serde_json::from_slice(text)?;
    make_strict(descriptor, &mut value);
    DynamicMessage::deserialize_with_options(descriptor.clone(), value, &READ)
}

/// Removes unknown fields, and line breaks in base64.
fn make_strict(descriptor: &MessageDescriptor, value: &mut Value) {
    let Value::Object(fields) = value else { return };
    fields.retain(|name, value| {
        let by_name = || descriptor.get_field_by_name(name);
        let Some(field) = descriptor.get_field_by_json_name(name).or_else(by_name) else { return false };
        if let (Kind::Bytes, Value::String(base64)) = (field.kind(), &mut *value) {
            base64.retain(|letter| !matches!(letter, '\r' | '\n'));
        }
        if let (Kind::Message(inner), false) = (field.kind(), field.is_map()) {
            match value {
                Value::Array(values) => values.iter_mut().for_each(|value| make_strict(&inner, value)),
                value => make_strict(&inner, value),
            }
        }
        true
    });
}

#[cfg(test)]
mod tests {
    use prost_reflect::DescriptorPool;

    use super::*;
    use headwater_proto::pb::PUBLIC_DESCRIPTORS;
    use headwater_proto::pb::etcdserverpb as pb;

    fn descriptor(name: &str) -> MessageDescriptor {
        let pool = DescriptorPool::decode(PUBLIC_DESCRIPTORS).unwrap();
        pool.get_message_by_name(&format!("etcdserverpb.{name}")).unwrap()
    }

    fn range(text: &str) -> Result<pb::RangeRequest, String> {
        let read = read(&descriptor("RangeRequest"), text.as_bytes()).map_err(|status| status.message().to_owned())?;
        Ok(pb::RangeRequest::decode(read).unwrap())
    }

    #[test]
    fn what_clients_write_is_understood() {
        let foo = pb::RangeRequest { key: "foo".into(), ..Default::default() };
        let limited = pb::RangeRequest { limit: 5, sort_order: 2, ..foo.clone() };
        for (text, wanted) in [
            ("", pb::RangeRequest::default()),
            (" \n", pb::RangeRequest::default()),
            ("null", pb::RangeRequest::default()),
            ("{}", pb::RangeRequest::default()),
            (r#"{"key":"Zm9v"}"#, foo.clone()),
            (r#" {"key": "Zm9v"} "#, foo.clone()),
            (r#"{"key":"Zm9v","limit":null}"#, foo.clone()),
            (r#"{"key":"Zm9v","limit":5,"sort_order":"DESCEND"}"#, limited.clone()),
            (r#"{"key":"Zm9v","limit":"5","sortOrder":2}"#, limited.clone()),
            (r#"{"key":"Zm9v","limit":"5","sort_order":2,"unknown":{"a":[1]}}"#, limited),
            (r#"{"key":"Zm9v","sort_order":9}"#, pb::RangeRequest { sort_order: 9, ..foo }),
            (r#"{"key":"/+8="}"#, pb::RangeRequest { key: vec![255, 239].into(), ..Default::default() }),
            (r#"{"key":"/+\r\n8=\n"}"#, pb::RangeRequest { key: vec![255, 239].into(), ..Default::default() }),
            (r#"{"key":"_-8"}"#, pb::RangeRequest { key: vec![255, 239].into(), ..Default::default() }),
        ] {
            assert_eq!(range(text), Ok(wanted), "{text}");
        }
    }

    #[test]
    fn unknown_fields_of_own_requests_are_refused() {
        let pool = DescriptorPool::decode(PUBLIC_DESCRIPTORS).unwrap();
        let commit = pool.get_message_by_name("headwater.v1.CommitRequest").unwrap();
        let put = r#"[{"put":{"key":"YQ==","value":"MQ=="}}]"#;
        assert!(read(&commit, format!(r#"{{"idempotencyKey":"YQ==","operations":{put}}}"#).as_bytes()).is_ok());
        for (text, name) in [
            (format!(r#"{{"condition":[],"operations":{put}}}"#), "condition"),
            (put.replace("value", "valeu").replace('[', r#"{"operations":["#).replace(']', "]}"), "valeu"),
        ] {
            let status = read(&commit, text.as_bytes()).unwrap_err();
            assert_eq!(status.code(), tonic::Code::InvalidArgument);
            assert!(status.message().contains(&format!("unrecognized field name '{name}'")), "{status}");
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, wanted) in [
            ("x", "expected value at line 1 column 1"),
            ("[]", "expected a map"),
            ("\"x\"", "expected a map"),
            (r#"{"key":"#, "EOF while parsing"),
            (r#"{"key":"Zm9v"} x"#, "trailing characters"),
            (r#"{"key":"Zm9v"}{}"#, "trailing characters"),
            (r#"{"key":5}"#, "expected a base64-encoded string"),
            (r#"{"key":"!!"}"#, "invalid base64"),
            (r#"{"key":"Zm9v","limit":"x"}"#, "invalid digit"),
            (r#"{"limit":1.5}"#, "expected integer"),
            (r#"{"limit":99999999999999999999}"#, "out of range"),
            (r#"{"serializable":"true"}"#, "expected"),
            (r#"{"sort_order":"DOWN"}"#, "unrecognized enum value 'DOWN'"),
            (r#"{"sort_order":"DOWN","unknown":1}"#, "unrecognized"),
        ] {
            let error = range(text).unwrap_err();
            assert!(error.starts_with("the body is not etcdserverpb.RangeRequest as JSON: "), "{text}: {error}");
            assert!(error.contains(wanted), "{text}: {error}");
        }
        let deep = format!("{}{}", r#"{"success":[{"request_txn":"#.repeat(60), "{}".to_owned() + &"}]}".repeat(60));
        let error = read(&descriptor("TxnRequest"), deep.as_bytes()).unwrap_err();
        assert!(error.message().contains("recursion limit"), "{error:?}");
    }

    #[test]
    fn fields_inside_fields_may_be_unknown_too() {
        let text = br#"{"success":[{"request_put":{"key":"YQ==","new":1},"newer":2}],"newest":3}"#;
        let read = pb::TxnRequest::decode(read(&descriptor("TxnRequest"), text).unwrap()).unwrap();
        let put = pb::PutRequest { key: "a".into(), ..Default::default() };
        assert_eq!(read.success[0].request, Some(pb::request_op::Request::RequestPut(put)));
        let twice = br#"{"success":[{"request_put":{"key":"YQ=="},"request_range":{"key":"YQ=="}}]}"#;
        let error = super::read(&descriptor("TxnRequest"), twice).unwrap_err();
        assert!(error.message().contains("multiple fields"), "{error:?}");
    }
}
