//! Keys of the catalog's rows, of their secondary indexes and of the query indexes.
//!
//! Names of nodes and services are in lower case in every key, except in the entries by exact name
//! and tag. Ids of instances and checks are as they were registered. A name before other fields is
//! escaped and terminated like keys of `versions`, so that no name is a prefix of another. The
//! golden tests below pin the bytes.

use bytes::Bytes;

use super::super::keys::{push_terminated, unescape_terminated};
use headwater_types::catalog::{CheckStatus, QueryIndexSubject, canonical};

// Kinds of entries in `index`; the others are in the `keys` of the state. The numbers are on disk.
const INSTANCE: u8 = 3;
const NAME_TAG: u8 = 4;
const MESH: u8 = 5;
const NODE_SERVICE: u8 = 6;
const SERVICE_CHECK: u8 = 7;
const STATUS: u8 = 8;
const NODE_ID: u8 = 9;
const LINK: u8 = 10;

/// First byte of the `meta` key of a query index.
const META_QUERY_INDEX: u8 = 9;

/// Precedes the text of a tag: so an empty tag differs from the entry that each instance has
/// without a tag.
const TAG: char = 't';

/// Key of a node.
pub fn node(name: &str) -> Bytes {
    canonical(name).into()
}

/// Key of the instance, or of the check, `id` on a node.
pub fn on_node(node: &str, id: &str) -> Bytes {
    let mut key = terminated(&canonical(node));
    key.extend_from_slice(id.as_bytes());
    key.into()
}

/// Splits a key made by [`on_node`] into the key of the node and the id. `None` if the key does not
/// begin with a terminated name, or if the rest is not UTF-8. Keys of other kinds may pass as well.
pub(super) fn split_on_node(key: &[u8]) -> Option<(Bytes, &str)> {
    let (node, id) = unescape_terminated(key)?;
    Some((node.into(), std::str::from_utf8(id).ok()?))
}

/// Key of the configuration of a terminating gateway: its name in lower case.
pub(super) fn gateway(name: &str) -> Bytes {
    canonical(name).into()
}

/// Prefix of the instances of a service; the key of the instance follows.
pub(super) fn instances(service: &str) -> Vec<u8> {
    named(INSTANCE, &canonical(service))
}

/// Prefix of the instances of all services.
pub(super) const ALL_INSTANCES: &[u8] = &[INSTANCE];

/// Splits an entry, without the prefix [`ALL_INSTANCES`], into the canonical name of the service
/// and the key of the instance.
pub(super) fn split_instance(entry: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    unescape_terminated(entry)
}

/// Prefix of the instances by exact name and tag; the key of the instance follows.
pub(super) fn name_and_tag(service: &str, tag: Option<&str>) -> Vec<u8> {
    let mut out = exact_name(service);
    let tag = tag.map(|tag| format!("{TAG}{tag}")).unwrap_or_default();
    push_terminated(&mut out, tag.as_bytes());
    out
}

/// Prefix of the instances with exactly this service name (case-sensitive); the tag and the key of
/// the instance follow.
pub(super) fn exact_name(service: &str) -> Vec<u8> {
    named(NAME_TAG, service)
}

/// Prefix of all entries by exact name and tag.
pub(super) const ALL_NAMES: &[u8] = &[NAME_TAG];

/// Reads name and tag of an entry without the prefix [`ALL_NAMES`]. The tag is `None` in the entry
/// that each instance has without one. Also returns the number of bytes that both take in the
/// entry. `None` for a malformed entry.
pub(super) fn split_name_and_tag(entry: &[u8]) -> Option<(String, Option<String>, usize)> {
    let (name, rest) = unescape_terminated(entry)?;
    let (tag, instance) = unescape_terminated(rest)?;
    let tag = String::from_utf8(tag).ok()?;
    let tag = tag.strip_prefix(TAG).map(str::to_owned);
    Some((String::from_utf8(name).ok()?, tag, entry.len() - instance.len()))
}

/// The first key after all entries of a name and a tag, to seek to. `group` is the part of an entry
/// with both.
pub(super) fn after_group(group: &[u8]) -> Vec<u8> {
    let mut after = group.to_vec();
    // The last byte is the end of the terminator: `00 02` is above `00 01` and below every
    // continuation, `00 FF`.
    *after.last_mut().expect("invariant: a group ends with a terminator") += 1;
    after
}

/// Prefix of the instances that speak the mesh's protocol for a service, native ones and sidecars;
/// the key of the instance follows.
pub(super) fn mesh(service: &str) -> Vec<u8> {
    named(MESH, &canonical(service))
}

/// Prefix of the instances on a node; the id of the instance follows.
pub(super) fn services_of(node: &str) -> Vec<u8> {
    named(NODE_SERVICE, &canonical(node))
}

/// Prefix of all checks on a node; the ids of the instance and of the check follow.
pub(super) fn checks_on(node: &str) -> Vec<u8> {
    named(SERVICE_CHECK, &canonical(node))
}

/// Prefix of the checks of an instance, or with an empty id of the node itself; the id of the check
/// follows.
pub(super) fn checks_of(node: &str, service_id: &str) -> Vec<u8> {
    let mut out = checks_on(node);
    push_terminated(&mut out, service_id.as_bytes());
    out
}

/// The [`checks_of`] prefix of an entry; `None` for any other entry.
pub(super) fn list_of_check(entry: &[u8]) -> Option<&[u8]> {
    let rest = entry.strip_prefix(&[SERVICE_CHECK])?;
    let (_, rest) = unescape_terminated(rest)?;
    let (_, id) = unescape_terminated(rest)?;
    Some(&entry[..entry.len() - id.len()])
}

/// Reads the id of the check of an entry without the prefix [`checks_on`].
pub(super) fn split_check(entry: &[u8]) -> Option<&str> {
    let (_, id) = unescape_terminated(entry)?;
    std::str::from_utf8(id).ok()
}

/// Prefix of the checks with a status; the key of the check follows.
pub(super) fn status(status: CheckStatus) -> [u8; 2] {
    [STATUS, status as u8]
}

/// Prefix of the nodes with a UUID; the key of the node follows.
pub(super) fn node_id(id: &str) -> Vec<u8> {
    named(NODE_ID, id)
}

/// Prefix of the terminating gateways that stand for a service; the canonical name of the gateway
/// follows.
pub(super) fn links(service: &str) -> Vec<u8> {
    named(LINK, &canonical(service))
}

/// The `meta` key of a query index.
pub(super) fn query_index(subject: &QueryIndexSubject) -> Vec<u8> {
    let (kind, name) = match subject {
        QueryIndexSubject::Table(table) => return vec![META_QUERY_INDEX, 1, *table as u8],
        QueryIndexSubject::Service(name) => (2, name.as_str()),
        QueryIndexSubject::Connect(name) => (3, name.as_str()),
        QueryIndexSubject::Node(name) => (4, name.as_str()),
        QueryIndexSubject::ServiceGone => (5, ""),
        QueryIndexSubject::ConnectGone => (6, ""),
        QueryIndexSubject::NodeGone => (7, ""),
    };
    let mut out = vec![META_QUERY_INDEX, kind];
    out.extend_from_slice(name.as_bytes());
    out
}

fn named(kind: u8, name: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(name.len() + 40);
    out.push(kind);
    push_terminated(&mut out, name.as_bytes());
    out
}

fn terminated(name: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(name.len() + 40);
    push_terminated(&mut out, name.as_bytes());
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use headwater_types::catalog::CatalogTable;

    #[test]
    fn bytes_are_pinned() {
        let cases: [(&str, Vec<u8>, &[u8]); 15] = [
            ("node", node("N1").to_vec(), b"n1"),
            ("instance", on_node("N1", "Web").to_vec(), b"n1\x00\x01Web"),
            ("gateway", gateway("GW").to_vec(), b"gw"),
            ("instances", instances("Web"), b"\x03web\x00\x01"),
            ("name", name_and_tag("Web", None), b"\x04Web\x00\x01\x00\x01"),
            ("name and tag", name_and_tag("Web", Some("v1")), b"\x04Web\x00\x01tv1\x00\x01"),
            ("mesh", mesh("Web"), b"\x05web\x00\x01"),
            ("services of a node", services_of("N1"), b"\x06n1\x00\x01"),
            ("checks of a node", checks_of("N1", ""), b"\x07n1\x00\x01\x00\x01"),
            ("checks of an instance", checks_of("N1", "Web"), b"\x07n1\x00\x01Web\x00\x01"),
            ("status", status(CheckStatus::Critical).to_vec(), b"\x08\x03"),
            ("node id", node_id("a-b"), b"\x09a-b\x00\x01"),
            ("links", links("Web"), b"\x0aweb\x00\x01"),
            (
                "marks of tables and of what is gone",
                [
                    query_index(&QueryIndexSubject::Table(CatalogTable::Checks)),
                    query_index(&QueryIndexSubject::ServiceGone),
                    query_index(&QueryIndexSubject::ConnectGone),
                    query_index(&QueryIndexSubject::NodeGone),
                ]
                .concat(),
                &[9, 1, 3, 9, 5, 9, 6, 9, 7],
            ),
            (
                "marks of names",
                [
                    query_index(&QueryIndexSubject::Service("a".to_owned())),
                    query_index(&QueryIndexSubject::Connect("b".to_owned())),
                    query_index(&QueryIndexSubject::Node("c".to_owned())),
                ]
                .concat(),
                b"\x09\x02a\x09\x03b\x09\x04c",
            ),
        ];
        for (name, got, want) in cases {
            assert_eq!(got, want, "{name}");
        }
    }

    fn name() -> impl Strategy<Value = String> {
        prop::collection::vec(prop::sample::select(vec!['\0', '\u{1}', 'a', 'b', 'ä']), 0..5)
            .prop_map(|chars| chars.into_iter().collect())
    }

    proptest! {
        #[test]
        fn keys_read_back(one in name(), other in name(), tag in prop::option::of(name())) {
            let key = on_node(&one, &other);
            prop_assert_eq!(split_on_node(&key), Some((node(&one), other.as_str())));
            let entry = [&name_and_tag(&one, tag.as_deref())[1..], other.as_bytes()].concat();
            let read = split_name_and_tag(&entry).map(|(name, tag, len)| (name, tag, entry.len() - len));
            prop_assert_eq!(read, Some((one.clone(), tag.clone(), other.len())));
        }

        #[test]
        fn a_look_up_goes_on_right_after_a_group(
            one in name(), other in name(), tag in prop::option::of(name()), rest in name(),
        ) {
            let checks = checks_of(&one, &other);
            let (check, another) = ([&checks[..], rest.as_bytes()].concat(), [&services_of(&one)[..], b"x"].concat());
            prop_assert_eq!(list_of_check(&check), Some(&checks[..]));
            prop_assert_eq!(list_of_check(&another), None);
            let group = name_and_tag(&one, tag.as_deref());
            let after = after_group(&group);
            let inside = [&group[..], rest.as_bytes()].concat();
            prop_assert!(inside < after);
            let elsewhere = name_and_tag(&other, None);
            prop_assert_eq!(elsewhere > after, elsewhere > group && !elsewhere.starts_with(&group));
        }
    }
}
