//! Resources: bytes that must not change, round trips, and bytes that must be refused.

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::codec::{decode_applied, decode_proposal, encode_applied, encode_proposal};
use headwater_types::{Applied, Command, Outcome, Proposal, Refusal, Revision, Supported};

fn id(uid: &str) -> ResourceId {
    ResourceId {
        uid: uid.to_owned(),
        name: "n".to_owned(),
        type_: Type::new("g", "v1", "K"),
        tenancy: Tenancy::new("p", "s"),
    }
}

fn status() -> Status {
    let reference = Reference {
        type_: Type::new("g", "v1", "K"),
        tenancy: Tenancy::new("p", "s"),
        name: "r".into(),
        section: "x".into(),
    };
    let condition =
        Condition { type_: "T".into(), state: 1, reason: "R".into(), message: "M".into(), resource: Some(reference) };
    Status {
        observed_generation: "G".into(),
        conditions: vec![condition],
        updated_at: Some(Timestamp { seconds: 3, nanos: 4 }),
    }
}

fn resource() -> Resource {
    Resource {
        id: id("u"),
        owner: Some(id("o")),
        version: LogIndex(300),
        generation: "G".into(),
        metadata: [("b".to_owned(), "2".to_owned()), ("a".to_owned(), "1".to_owned())].into(),
        status: [("k".to_owned(), status())].into(),
        data: Some(Any { type_url: "t/M".into(), value: Bytes::from_static(b"d") }),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn chosen() -> ProposerChoices {
    ProposerChoices { ulid: 0x0102, now: "t".into() }
}

fn commands() -> Vec<(ResourceCommand, &'static str)> {
    let small = Resource { id: id(""), ..Resource::default() };
    let write = ResourceWrite {
        resource: small,
        expected: Some(LogIndex(0)),
        uid: "u".into(),
        generation: "g".into(),
        type_version: LogIndex(7),
        registers: Some((Type::new("g", "v1", "K"), Scope::Namespace)),
    };
    let status = ResourceWriteStatus { id: id("u"), expected: None, key: "k".into(), status: Status::default() };
    let delete = ResourceDelete { id: id(""), expected: Some(LogIndex(5)), chosen: chosen() };
    let reap = ResourceReap {
        owner: id("u"),
        tombstone_version: LogIndex(9),
        after: Bytes::from_static(b"a"),
        chosen: chosen(),
    };
    vec![
        (
            ResourceCommand::Write(Box::new(write)),
            "010805c202370a350a190a1712016e1a0a0a0167120276311a014b22060a017012017310001a01752201672807320e0a0a0a0167120276311a014b1003",
        ),
        (
            ResourceCommand::WriteStatus(Box::new(status)),
            "010805c2022312210a1a0a017512016e1a0a0a0167120276311a014b22060a01701201731a016b2200",
        ),
        (
            ResourceCommand::Delete(Box::new(delete)),
            "010805c202341a320a1712016e1a0a0a0167120276311a014b22060a017012017310051a150a1000000000000000000000000000000102120174",
        ),
        (
            ResourceCommand::Reap(Box::new(reap)),
            "010805c2023a22380a1a0a017512016e1a0a0a0167120276311a014b22060a017012017310091a016122150a1000000000000000000000000000000102120174",
        ),
    ]
}

fn outcomes() -> Vec<(Outcome, &'static str)> {
    let small = Resource { id: ResourceId { name: "n".into(), ..ResourceId::default() }, ..Resource::default() };
    let reaped = ResourceReaped { removed: 1, marked: 2, next: Some(Bytes::from_static(b"k")) };
    vec![
        (Outcome::Resource(ResourceOutcome::Written(Box::new(small))), "0108081004c2020b0a090a0712016e1a002200"),
        (Outcome::Resource(ResourceOutcome::Deleted(ResourceDeletion::Marked)), "0108081004c202021002"),
        (Outcome::Resource(ResourceOutcome::Reaped(reaped)), "0108081004c202091a07080110021a016b"),
        (Outcome::Refused(Refusal::Resource(ResourceRefusal::WrongUid)), "0108081004820103c0020e"),
    ]
}

#[test]
fn golden_bytes_of_stored_resources() {
    let stored = Resource { version: LogIndex::ZERO, ..resource() };
    let (bytes, _) = encode_resource(stored);
    assert_eq!(
        hex(&bytes),
        "010a1a0a017512016e1a0a0a0167120276311a014b22060a0170120173121a0a016f12016e1a0a0a0167120276311a014b22060a01701201732201472a060a01611201312a060a016212013232370a016b12320a014712270a015410011a015222014d2a1a0a0a0a0167120276311a014b12060a01701201731a01722201781a04080310043a080a03742f4d120164"
    );
    assert_eq!(decode_resource(bytes, LogIndex(300)), Ok(resource()), "the version is where the record is");
    // The stored bytes of a removed resource have its version: the record has another log index.
    assert_eq!(decode_resource(encode_resource(resource()).0, LogIndex(301)), Ok(resource()));
    assert!(decode_resource(Bytes::from_static(&[2]), LogIndex(1)).is_err());
    assert!(decode_resource(Bytes::from_static(&[1, 255]), LogIndex(1)).is_err());
}

#[test]
fn golden_bytes_of_commands() {
    for (command, bytes) in commands() {
        let proposal = Proposal::new(5, Command::Resource(command));
        let encoded = encode_proposal(&proposal).unwrap();
        assert_eq!(hex(&encoded), bytes, "{proposal:?}");
        assert_eq!(decode_proposal(encoded, Supported::RELEASE), Ok(Some(proposal)));
    }
}

#[test]
fn a_ulid_of_another_length_is_refused() {
    let wrong = |len| CodecError::WrongLength { field: "Chosen.ulid", len, wanted: 16 };
    for (length, error) in [(0, CodecError::Missing { field: "Chosen.ulid" }), (15, wrong(15)), (17, wrong(17))] {
        let chosen = pb::Chosen { ulid: vec![7; length].into(), now: String::new() };
        assert_eq!(read_chosen(Some(chosen)), Err(error), "{length}");
    }
    assert_eq!(wrong(15).to_string(), "Chosen.ulid has 15 bytes instead of 16");
}

#[test]
fn golden_bytes_of_outcomes() {
    for (outcome, bytes) in outcomes() {
        let applied = Applied { index: LogIndex(8), revision: Revision(4), outcome };
        let encoded = encode_applied(&applied);
        assert_eq!(hex(&encoded), bytes, "{applied:?}");
        assert_eq!(decode_applied(encoded), Ok(applied));
    }
    for refusal in ResourceRefusal::ALL {
        assert_eq!(read_refusal(refusal as i32), Ok(refusal));
    }
    assert!(read_refusal(0).is_err());
    assert!(read_refusal(1000).is_err());
}

#[test]
fn a_tombstone_says_whom_it_stands_for() {
    let data = tombstone_data(&id("u"));
    assert_eq!(data.message_name(), "hashicorp.consul.resource.Tombstone");
    assert_eq!(read_tombstone(&data), Ok(id("u")));
    assert!(read_tombstone(&Any { value: Bytes::new(), ..data }).is_err());
}

#[test]
fn a_type_is_read_with_its_defaults_as_json() {
    use prost_types::value::Kind;
    let value = |kind| prost_types::Value { kind: Some(kind) };
    let fields = [
        ("whole".to_owned(), value(Kind::NumberValue(3.0))),
        ("half".to_owned(), value(Kind::NumberValue(0.5))),
        ("text".to_owned(), value(Kind::StringValue("x".to_owned()))),
        ("none".to_owned(), value(Kind::NullValue(0))),
        (
            "list".to_owned(),
            value(Kind::ListValue(prost_types::ListValue { values: vec![value(Kind::BoolValue(true))] })),
        ),
    ];
    let message = headwater_v1::ResourceType {
        group: "demo".into(),
        group_version: "v2".into(),
        kind: "Artist".into(),
        scope: headwater_v1::resource_type::Scope::Namespace.into(),
        defaults: Some(prost_types::Struct { fields: fields.into() }),
        rules: vec![headwater_v1::resource_type::Rule { expression: "e".into(), message: "m".into() }],
        ..Default::default()
    };
    let read = decode_resource_type(message.encode_to_vec().into()).unwrap();
    assert_eq!((read.type_, read.scope), (Type::new("demo", "v2", "Artist"), Scope::Namespace));
    assert_eq!(read.defaults_json, r#"{"half":0.5,"list":[true],"none":null,"text":"x","whole":3}"#);
    assert_eq!(read.rules, [Rule { expression: "e".into(), message: "m".into() }]);
    let odd = headwater_v1::ResourceType { scope: 77, ..Default::default() };
    assert!(decode_resource_type(odd.encode_to_vec().into()).is_err());
    assert!(decode_resource_type(Bytes::from_static(&[255])).is_err());
}

fn text() -> impl Strategy<Value = String> {
    "[a-z]{0,3}"
}

fn any_id() -> impl Strategy<Value = ResourceId> {
    [(); 7].map(|()| text()).prop_map(|[uid, name, group, group_version, kind, partition, namespace]| ResourceId {
        uid,
        name,
        type_: Type { group, group_version, kind },
        tenancy: Tenancy { partition, namespace },
    })
}

fn any_resource() -> impl Strategy<Value = Resource> {
    let data = (text(), prop::collection::vec(any::<u8>(), 0..8))
        .prop_map(|(type_url, value)| Any { type_url, value: value.into() });
    (
        any_id(),
        prop::option::of(any_id()),
        text(),
        prop::collection::btree_map(text(), text(), 0..4),
        prop::collection::btree_map(text(), Just(status()), 0..3),
        prop::option::of(data),
    )
        .prop_map(|(id, owner, generation, metadata, status, data)| Resource {
            id,
            owner,
            version: LogIndex::ZERO,
            generation,
            metadata,
            status,
            data,
        })
}

proptest! {
    #[test]
    fn resources_round_trip(resource in any_resource(), at in 1..u64::MAX) {
        let (bytes, same) = encode_resource(resource.clone());
        prop_assert_eq!(&same, &resource);
        let stored = Resource { version: LogIndex(at), ..resource };
        prop_assert_eq!(decode_resource(bytes, LogIndex(at)), Ok(stored));
    }

    #[test]
    fn damaged_resources_never_panic(resource in any_resource(), at: prop::sample::Index, flip in 1..=255u8) {
        let mut bytes = encode_resource(resource).0.to_vec();
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        drop(decode_resource(bytes.into(), LogIndex(1)));
    }
}
