//! Requests that may legally do harm: an authorised client may delete the keys of the sentinels,
//! remove members, and set the quota, versions or the store epoch. Targets do not send them,
//! because oracles cannot distinguish their effects from a defect.
//!
//! Owns the rules that recognise such a request. A request that does not decode counts as harmless:
//! if it has an effect, the server has a defect.

use prost_reflect::{DynamicMessage, MessageDescriptor, ReflectMessage, Value};

use crate::oracle::sentinel;

/// Highest id of a member of the cluster; the ids begin with 1.
const MEMBERS_MAX: u64 = 3;
/// Messages of requests that change one member, which they name by its id.
const OF_MEMBERS: &[&str] = &["MemberRemoveRequest", "MemberUpdateRequest", "MemberPromoteRequest", "UpdateMember"];
/// Commands of the store itself, which change limits, versions or the store epoch for good.
const OF_OPERATORS: &[&str] = &["SetQuota", "VersionChange", "MemberProgram", "Bootstrap"];

/// Whether an encoded request may legally do harm that an oracle would report as a defect. Such a
/// request deletes keys of the sentinels; removes or promotes one of the first members, or changes
/// its peer URL; or is a command that sets the quota, versions or the store epoch. A nested message
/// counts. Adding or describing a member is no harm, and neither is `DowngradeRequest`. False if
/// the request does not decode.
pub(crate) fn is_allowed_to_harm(desc: &MessageDescriptor, encoded: &[u8]) -> bool {
    DynamicMessage::decode(desc.clone(), encoded).is_ok_and(|message| harms(&message))
}

/// Whether a decoded request may legally do harm, as [`is_allowed_to_harm`] defines it.
pub(crate) fn harms(message: &DynamicMessage) -> bool {
    let desc = message.descriptor();
    let name = desc.name();
    let deletes = match name {
        "DeleteRangeRequest" => overlaps(&bytes(message, "key"), Some(&bytes(message, "range_end"))),
        "DeleteRange" if desc.package_name() == "headwater.internal" => deletes_internally(message),
        _ => false,
    };
    let is_of_member = OF_MEMBERS.contains(&name) && (1..=MEMBERS_MAX).contains(&number(message, &["ID", "id"]));
    // A member that is removed or promoted by its id alone.
    let by_number = name == "ChangeMembersRequest"
        && ["promote", "remove"].iter().any(|field| (1..=MEMBERS_MAX).contains(&number(message, &[field])));
    if deletes || is_of_member || by_number || OF_OPERATORS.contains(&name) {
        return true;
    }
    message.fields().any(|(_, value)| value_harms(value))
}

fn value_harms(value: &Value) -> bool {
    match value {
        Value::Message(inner) => harms(inner),
        Value::List(list) => list.iter().any(value_harms),
        Value::Map(map) => map.values().any(value_harms),
        _ => false,
    }
}

fn deletes_internally(message: &DynamicMessage) -> bool {
    let Some(range) = message.get_field_by_name("range") else { return false };
    let Some(range) = range.as_message() else { return false };
    let span = range.get_field_by_name("span").filter(|_| range.has_field_by_name("span"));
    match span.as_ref().and_then(|span| span.as_message()) {
        Some(span) => {
            let end = bytes(span, "end");
            overlaps(&bytes(span, "start"), Some(if span.has_field_by_name("end") { &end } else { b"\0" }))
        }
        None => overlaps(&bytes(range, "one"), None),
    }
}

/// Whether an interval of keys in etcd's form (`key`, `range_end`) overlaps that of the sentinels.
fn overlaps(key: &[u8], end: Option<&[u8]>) -> bool {
    let (first, last) = (sentinel::PREFIX.as_bytes(), sentinel::PREFIX_END.as_bytes());
    match end {
        None | Some(b"") => key.starts_with(first),
        Some(b"\0") => key < last,
        Some(end) => key < last && end > first,
    }
}

fn bytes(message: &DynamicMessage, field: &str) -> Vec<u8> {
    let value = message.get_field_by_name(field);
    value.and_then(|value| value.as_bytes().map(|bytes| bytes.to_vec())).unwrap_or_default()
}

fn number(message: &DynamicMessage, names: &[&str]) -> u64 {
    names.iter().find_map(|name| message.get_field_by_name(name)?.as_u64()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use headwater_proto::pb::{PUBLIC_DESCRIPTORS, etcdserverpb as pb};
    use prost::Message;
    use prost_reflect::DescriptorPool;

    use super::*;

    fn harms_as(name: &str, message: impl Message) -> bool {
        let pool = DescriptorPool::decode(PUBLIC_DESCRIPTORS).expect("public descriptors");
        let desc = pool.get_message_by_name(name).expect("a message");
        is_allowed_to_harm(&desc, &message.encode_to_vec())
    }

    #[test]
    fn deletions_of_sentinels_are_recognised_wherever_they_are() {
        for (key, end, expected) in [
            ("", "", false),
            ("a", "", false),
            ("sentinel/1", "", true),
            ("a", "\0", true),
            ("z", "\0", false),
            ("a", "b", false),
            ("a", "t", true),
        ] {
            let delete = pb::DeleteRangeRequest {
                key: key.as_bytes().into(),
                range_end: end.as_bytes().into(),
                ..Default::default()
            };
            assert_eq!(harms_as("etcdserverpb.DeleteRangeRequest", delete.clone()), expected, "{key:?} {end:?}");
            let op = pb::RequestOp { request: Some(pb::request_op::Request::RequestDeleteRange(delete)) };
            let inner = pb::TxnRequest { success: vec![op], ..Default::default() };
            let outer = pb::RequestOp { request: Some(pb::request_op::Request::RequestTxn(inner)) };
            let txn = pb::TxnRequest { failure: vec![outer], ..Default::default() };
            assert_eq!(harms_as("etcdserverpb.TxnRequest", txn), expected, "nested: {key:?} {end:?}");
        }
    }

    #[test]
    fn removals_of_members_are_recognised() {
        assert!(harms_as("etcdserverpb.MemberRemoveRequest", pb::MemberRemoveRequest { id: 2 }));
        assert!(!harms_as("etcdserverpb.MemberRemoveRequest", pb::MemberRemoveRequest { id: 4 }));
    }
}
