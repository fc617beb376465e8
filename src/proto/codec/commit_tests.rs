//! Commits and their outcomes: bytes that must not change, round trips.

use super::*;
use crate::codec::{decode_applied, decode_proposal, encode_applied, encode_proposal};
use headwater_types::catalog::{CatalogCommand, CatalogRefusal, Deregistration};
use headwater_types::consul::{KvOp, KvVerb, SessionCreate, SessionRefusal, TxnFaultReason};
use headwater_types::resource::{
    ProposerChoices, Resource, ResourceCommand, ResourceDelete, ResourceDeletion, Tenancy, Type,
};
use headwater_types::{
    Applied, Compare, CompareOp, CompareTarget, DeleteRange, KeyRange, KeyValue, LeaseChoice, LeaseGrant, LeaseRevoke,
    Outcome, Proposal, Put, Refusal, Supported, ValueChoice, Version,
};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn resource(name: &str) -> ResourceId {
    ResourceId {
        uid: String::new(),
        name: name.to_owned(),
        type_: Type::new("g", "v1", "K"),
        tenancy: Tenancy::new("p", "n"),
    }
}

/// Every kind of condition, each with a test that fits it.
fn conditions() -> Vec<CommitCondition> {
    let (index, since) = (EntityTest::Index(LogIndex(3)), EntityTest::UnchangedSince(LogIndex(3)));
    let instance = CommitEntity::Instance { service: "s".to_owned(), node: "n".to_owned(), id: "i".to_owned() };
    let selector =
        Selector { type_: Type::new("g", "v1", "*"), tenancy: Tenancy::new("*", "*"), name_prefix: "r".into() };
    vec![
        CommitCondition::Compare(Compare {
            range: KeyRange::One("a".into()),
            op: CompareOp::Equal,
            target: CompareTarget::Version(1),
        }),
        CommitCondition::Entity(CommitEntity::Key("k".into()), index, None),
        CommitCondition::Entity(CommitEntity::KeysBelow(Bytes::new()), since, None),
        CommitCondition::Entity(CommitEntity::Resource(resource("r")), EntityTest::Exists(false), None),
        CommitCondition::Entity(CommitEntity::Resources(selector), since, None),
        CommitCondition::Entity(instance, index, None),
        CommitCondition::Entity(CommitEntity::Instances { service: "s".to_owned(), node: String::new() }, since, None),
        CommitCondition::Entity(CommitEntity::Node("n".to_owned()), EntityTest::Exists(true), None),
        CommitCondition::Entity(CommitEntity::Lease(LeaseId(7)), index, None),
        CommitCondition::Entity(CommitEntity::Node("n".to_owned()), EntityTest::Exists(true), Some(StoreEpoch(3))),
    ]
}

/// Every kind of operation.
fn operations() -> Vec<Command> {
    let op = KvOp {
        verb: KvVerb::Set,
        path: "p".into(),
        value: "v".into(),
        flags: 0,
        index: LogIndex::ZERO,
        session: String::new(),
    };
    let deletion = ResourceDelete { id: resource("r"), expected: None, chosen: ProposerChoices::default() };
    let gone = Deregistration { node: "n".to_owned(), ..Deregistration::default() };
    vec![
        Command::Put(Put {
            key: "k".into(),
            value: ValueChoice::Set("v".into()),
            lease: LeaseChoice::Set(LeaseId::NONE),
            prev_kv: false,
        }),
        Command::DeleteRange(DeleteRange { range: KeyRange::One("d".into()), prev_kv: true }),
        Command::LeaseGrant(LeaseGrant { id: LeaseId(7), ttl_seconds: 60 }),
        Command::LeaseRevoke(LeaseRevoke { id: LeaseId(8) }),
        Command::Resource(ResourceCommand::Delete(Box::new(deletion))),
        Command::Catalog(CatalogCommand::Deregister(Box::new(gone))),
        Command::Consul(ConsulCommand::Kv(op)),
        Command::Consul(ConsulCommand::SessionCreate(Box::<SessionCreate>::default())),
        Command::Consul(ConsulCommand::SessionDestroy("s".to_owned())),
    ]
}

fn commit(conditions: Vec<CommitCondition>, operations: Vec<Command>, key: Option<CommitKey>) -> Command {
    let operations = operations.into_iter().map(|command| CommitOp::new(command).unwrap()).collect();
    Command::Commit(Box::new(Commit { conditions, operations, key }))
}

/// The bytes of a commit with one condition or one operation, behind its format, time, field and
/// length.
fn body(command: &Command) -> String {
    let encoded = encode_proposal(&Proposal::new(5, command.clone())).unwrap();
    let read = decode_proposal(encoded.clone(), Supported::RELEASE).unwrap().unwrap();
    assert_eq!((&read.command, read.unix_ms), (command, 5));
    let text = hex(&encoded);
    let body = text.strip_prefix("0408059204").expect("the version, the time, the field").to_owned();
    assert_eq!(usize::from_str_radix(&body[..2], 16).unwrap(), body.len() / 2 - 1);
    body[2..].to_owned()
}

#[test]
fn commits_are_pinned_and_need_the_version_that_began_them() {
    let conditions = conditions().into_iter().map(|condition| commit(vec![condition], vec![], None));
    let operations = operations().into_iter().map(|operation| commit(vec![], vec![operation], None));
    let key = commit(vec![], vec![], Some(CommitKey { id: [1; 16], body: [2; 16] }));
    let bodies: Vec<String> = conditions.chain(operations).chain([key.clone()]).map(|command| body(&command)).collect();
    assert_eq!(bodies, GOLDEN_COMMITS, "{bodies:#?}");
    assert_eq!(key.needs(), Version::V0_4);
}

/// One condition each, then one operation each, then an idempotency key.
const GOLDEN_COMMITS: [&str; 20] = [
    "0a0b0a090a030a016110011801",
    "0a0712050a016b5003",
    "0a06120412005803",
    "0a1d121b1a171201721a0a0a0167120276311a014b22060a017012016e6000",
    "0a1d121b22171201721a0a0a0167120276311a012a22060a012a12012a5803",
    "0a0f120d2a090a017312016e1a01695003",
    "0a09120732030a01735803",
    "0a0712053a016e6001",
    "0a06120440075003",
    "0a0912073a016e60016803",
    "120a0a080a016b1201762000",
    "120912070a030a01641001",
    "12061a040807103c",
    "120422020808",
    "12312a2f1a2d0a171201721a0a0a0167120276311a014b22060a017012016e1a120a1000000000000000000000000000000000",
    "1207320512030a016e",
    "120c3a0a0a0808011201701a0176",
    "12063a041a020a00",
    "12053a03220173",
    "1a240a1001010101010101010101010101010101121002020202020202020202020202020202",
];

#[test]
fn two_commits_with_the_same_content_have_one_body() {
    let of = |key, operations| match commit(conditions(), operations, key) {
        Command::Commit(commit) => commit_body(&commit),
        _ => unreachable!(),
    };
    let key = Some(CommitKey { id: [1; 16], body: [2; 16] });
    assert_eq!(of(None, operations()), of(key, operations()));
    assert_ne!(of(None, operations()), of(None, operations()[1..].to_vec()));
}

#[test]
fn a_commit_of_something_else_is_refused() {
    let reap = pb::CommitOperation {
        operation: Some(pb::commit_operation::Operation::Consul(pb::ConsulCommand {
            command: Some(pb::consul_command::Command::Txn(pb::ConsulTxn::default())),
        })),
    };
    let message = pb::Commit { operations: vec![reap], ..pb::Commit::default() };
    assert!(matches!(read_commit(message), Err(CodecError::Malformed { what: WHAT, .. })));
    let short = pb::CommitKey { id: vec![1; 15].into(), body: vec![2; 16].into() };
    let message = pb::Commit { key: Some(short), ..pb::Commit::default() };
    assert!(matches!(read_commit(message), Err(CodecError::Malformed { what: WHAT, .. })));
}

/// Every kind of result.
fn results() -> Vec<CommitResult> {
    let kv = KeyValue { key: "k".into(), ..KeyValue::default() };
    let written =
        Resource { id: resource("r"), version: LogIndex(9), generation: "g".to_owned(), ..Resource::default() };
    vec![
        CommitResult::Put { prev: Some(kv.clone()) },
        CommitResult::Deleted { deleted: 1, prev: vec![kv] },
        CommitResult::LeaseGranted { id: LeaseId(7), ttl_seconds: 60 },
        CommitResult::LeaseRevoked { deleted: 2 },
        CommitResult::ResourceWritten(Box::new(written)),
        CommitResult::ResourceDeleted(ResourceDeletion::Marked),
        CommitResult::Catalog { changed: true },
        CommitResult::SessionCreated { id: "s".to_owned() },
        CommitResult::SessionDestroyed,
        CommitResult::ConsulKv,
    ]
}

#[test]
fn outcomes_are_pinned() {
    let done = CommitDone { index: LogIndex(9), revision: Revision(4), is_repeated: true, results: results() };
    let condition = |reason| CommitFault::Condition { condition: 1, reason };
    let operation = |reason| CommitFault::Operation { operation: 2, reason };
    let of = |body: &str| body.replace(' ', "");
    for (outcome, bytes) in [
        (CommitOutcome::Done(CommitDone { results: vec![], ..done.clone() }), of("0a06 0809 1004 1801")),
        (CommitOutcome::Failed(condition(ConditionFault::Failed { changed: LogIndex(3) })), of("1206 0a04 0801 1003")),
        (
            CommitOutcome::Failed(condition(ConditionFault::Compacted { oldest: LogIndex(3) })),
            of("1206 0a04 0801 1803"),
        ),
        (CommitOutcome::Failed(condition(ConditionFault::Future { newest: LogIndex(3) })), of("1206 0a04 0801 2003")),
        (CommitOutcome::Failed(condition(ConditionFault::OtherEpoch)), of("1206 0a04 0801 2a00")),
        (CommitOutcome::Failed(condition(ConditionFault::TooMuchRead)), of("1206 0a04 0801 3200")),
        (
            CommitOutcome::Failed(operation(Refusal::Catalog(CatalogRefusal::MissingNode).into())),
            of("1209 1207 0802 1203 900302"),
        ),
        (
            CommitOutcome::Failed(operation(TxnFaultReason::Session(SessionRefusal::Invalid).into())),
            of("1208 1206 0802 1a02 4002"),
        ),
        (CommitOutcome::Failed(CommitFault::SameEntity { first: 1, second: 3 }), of("1206 1a04 0801 1003")),
        (CommitOutcome::Failed(CommitFault::OtherBody), of("1202 2200")),
        (CommitOutcome::Failed(CommitFault::TooManyKeys), of("1202 2a00")),
        (CommitOutcome::Done(done), String::new()),
    ] {
        let (index, revision) = (LogIndex(9), Revision(4));
        let applied = Applied { index, revision, outcome: Outcome::Commit(outcome) };
        let encoded = encode_applied(&applied);
        if !bytes.is_empty() {
            let wanted = format!("01 0809 1004 9204{:02x} {bytes}", bytes.len() / 2).replace(' ', "");
            assert_eq!(hex(&encoded), wanted, "{:?}", applied.outcome);
        }
        assert_eq!(decode_applied(encoded), Ok(applied));
    }
}

#[test]
fn kept_commits_are_pinned() {
    let kept = |results| KeptCommit { index: LogIndex(9), revision: Revision(4), unix_ms: 5, body: [2; 16], results };
    let mut bodies = Vec::new();
    for result in results() {
        let kept = kept(vec![result.into_brief()]);
        let encoded = encode_kept_commit(&kept);
        let head = format!("04 0809 1004 1805 2210 {}", "02".repeat(16)).replace(' ', "");
        bodies.push(hex(&encoded).strip_prefix(&head).expect("the version, places, and hash").to_owned());
        assert_eq!(decode_kept_commit(encoded), Ok(kept));
    }
    assert_eq!(bodies, GOLDEN_RESULTS, "{bodies:#?}");
}

/// One result each.
const GOLDEN_RESULTS: [&str; 10] = [
    "2a020a00",
    "2a0412021001",
    "2a061a040807103c",
    "2a0422020802",
    "2a232a210a1f0a171201721a0a0a0167120276311a014b22060a017012016e1a0139220167",
    "2a042a021002",
    "2a0432020801",
    "2a033a0173",
    "2a024200",
    "2a024a00",
];
