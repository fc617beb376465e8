//! Applies the recorded log of each released version: outcomes and hashes of the state must equal
//! the recorded ones.
//!
//! A file of `tests/sim/golden` holds the entries of one version, one a line: term, index, entry
//! and outcome (these two in hexadecimal), and after every [`HASH_EVERY`] entries the hash of the
//! state. A file is never changed: a rule with another result needs a gate of a newer version
//! (`types::version`). `scripts/golden` makes the file of this version before its release.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;

use crate::member::small_state;
use headwater_proto::codec;
use headwater_storage::StateStore;
use headwater_storage::state::{AppliedState, StateOptions};
use headwater_types::acl::{
    AclBinding, AclCommand, AclGrants, AclKey, AclMethod, AclPolicy, AclRole, AclRow, AclToken,
};
use headwater_types::auth::{AuthCommand, Permission, PermissionKind, SecretHash};
use headwater_types::catalog::{
    CatalogCommand, CatalogNode, Check, CheckStatus, Deregistration, Registration, Service,
};
use headwater_types::commit::{Commit, CommitCondition, CommitEntity, CommitKey, CommitOp, EntityTest};
use headwater_types::consul::{ConsulCommand, KvOp, KvVerb};
use headwater_types::resource::{ResourceCommand, ResourceWrite, Scope, Tenancy, Type, TypeName};
use headwater_types::{
    Access, Alarm, AlarmKind, Applied, Command, Face, Feature, InvitationCommand, InvitationId, KeyRange, LeaseChoice,
    LeaseGrant, LeaseId, LeaseRevoke, LogIndex, MemberProgram, NewInvitation, NodeId, Proposal, Proposer, Put, Quota,
    Resource, ResourceId, Rights, SetAlarm, Space, StoreEpoch, Supported, Term, TokenHash, ValueChoice, VersionChange,
};

/// Number of random commands in a file. All other commands are fixed.
const RANDOM_COMMANDS: usize = 120;
/// Number of entries between two hashes.
const HASH_EVERY: u64 = 20;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sim/golden")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

fn unhex(text: &str) -> Bytes {
    let digits = text.as_bytes().chunks(2);
    digits.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

/// A state in a temporary folder. Entries are applied to it as the state machine applies them.
struct Machine {
    store: StateStore,
    supported: Supported,
    _dir: tempfile::TempDir,
}

impl Machine {
    fn new(supported: Supported) -> Self {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let store = StateStore::open(dir.path(), &StateOptions { supported, ..small_state() }).unwrap();
        Self { store, supported, _dir: dir }
    }

    fn apply(&self, term: Term, index: LogIndex, entry: Bytes) -> Bytes {
        let db = self.store.current();
        let mut txn = self.store.begin(&db).unwrap();
        let proposal = codec::decode_proposal(entry, self.supported).unwrap().unwrap();
        let outcome = headwater_fsm::apply(&mut txn, term, index, &proposal, true).unwrap();
        txn.set_applied(&AppliedState { term, index, membership: None });
        let revision = txn.commit().unwrap().head.revision;
        codec::encode_applied(&Applied { index, revision, outcome })
    }

    fn hash(&self) -> u64 {
        self.store.current().view().unwrap().state_hash().unwrap()
    }
}

#[test]
fn the_log_of_every_released_version_has_its_recorded_state() {
    let mut files = 0;
    for entry in std::fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        let machine = Machine::new(codec::NEWEST);
        let text = std::fs::read_to_string(&path).unwrap();
        for (number, line) in text.lines().enumerate() {
            let location = format!("{}:{}", path.display(), number + 1);
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                ["#", ..] => {}
                ["=", hash] => assert_eq!(format!("{:016x}", machine.hash()), hash, "{location}: the state"),
                [term, index, entry, outcome] => {
                    let (term, index) = (Term(term.parse().unwrap()), LogIndex(index.parse().unwrap()));
                    assert_eq!(hex(&machine.apply(term, index, unhex(entry))), outcome, "{location}: the outcome");
                }
                _ => panic!("{location}: {line}"),
            }
        }
        files += 1;
    }
    assert!(files > 0, "no file in {}", folder().display());
}

/// Writes the file of this version, which must not exist yet; see `scripts/golden`.
#[test]
#[ignore = "writes a file"]
fn write_the_log_of_this_version() {
    let version = Supported::RELEASE.highest;
    let path = folder().join(format!("{version}.log"));
    assert!(!path.exists(), "{} is there: a released version does not change", path.display());
    let machine = Machine::new(Supported::RELEASE);
    let mut text = format!("# The log of version {version}: term, index, entry, outcome; = the hash of the state.\n");
    let open = commands().into_iter().map(|command| (None, command));
    for (number, (proposer, command)) in open.chain(guarded()).enumerate() {
        let (term, index) = (Term(1), LogIndex(number as u64 + 1));
        // Every face, and none.
        let has_faces = Feature::Authors.is_in(machine.store.current().head().version.version);
        let face = Face::ALL.get(number % (Face::ALL.len() + 1)).copied().filter(|_| has_faces);
        let proposal = Proposal { proposer, face, ..Proposal::new(1_000_000 + index.get(), command) };
        let entry = codec::encode_proposal(&proposal).unwrap();
        let outcome = machine.apply(term, index, entry.clone());
        writeln!(text, "{term} {index} {} {}", hex(&entry), hex(&outcome)).unwrap();
        if index.get().is_multiple_of(HASH_EVERY) {
            writeln!(text, "= {:016x}", machine.hash()).unwrap();
        }
    }
    writeln!(text, "= {:016x}", machine.hash()).unwrap();
    std::fs::create_dir_all(folder()).unwrap();
    std::fs::write(path, text).unwrap();
}

/// Commands of every kind except those that change users, roles or Consul's ACLs.
fn commands() -> Vec<Command> {
    let mut runner = TestRunner::deterministic();
    let strategy = headwater_fsm::tests::model::command();
    let random = (0..RANDOM_COMMANDS).map(|_| strategy.new_tree(&mut runner).unwrap().current());
    let Supported { lowest: before, highest: version } = Supported::RELEASE;
    let program = MemberProgram { program: "a".into(), supported: Supported::RELEASE };
    let alarm =
        |active| Command::SetAlarm(SetAlarm { alarm: Alarm { member: NodeId(1), kind: AlarmKind::NoSpace }, active });
    let mut all = vec![
        Command::Bootstrap(StoreEpoch(7)),
        Command::AnnounceProgram(NodeId(1), program.clone()),
        Command::AnnounceProgram(NodeId(2), program),
        Command::SetVersion(VersionChange::Raise { to: version, term: Term(1) }),
        Command::SetQuota(Quota { bytes_max: Some(1 << 20), member: NodeId(1) }),
    ];
    all.extend(random);
    all.extend([alarm(true), alarm(false), register_type()]);
    let type_version = LogIndex(all.len() as u64);
    all.extend(["one", "two", "one"].map(|name| resource(name, type_version)));
    let kv = |verb, path: &str, value: &str, index| {
        let (path, value) = (Bytes::from(path.to_owned()), Bytes::from(value.to_owned()));
        let (flags, index, session) = (3, LogIndex(index), String::new());
        Command::Consul(ConsulCommand::Kv(KvOp { verb, path, value, flags, index, session }))
    };
    all.extend([
        kv(KvVerb::Set, "a/b", "1", 0),
        kv(KvVerb::Cas, "a/b", "2", 1),
        kv(KvVerb::Set, "a/c", "3", 0),
        Command::Consul(ConsulCommand::SessionDestroy("6a2c0c5e-7b1f-4c2e-9f0a-000000000001".into())),
    ]);
    let node = |name: &str| CatalogNode { name: name.into(), address: "10.0.0.1".into(), ..CatalogNode::default() };
    let web = Service { node: "n1".into(), id: "web1".into(), name: "web".into(), port: 80, ..Service::default() };
    let check = Check {
        node: "n1".into(),
        id: "c".into(),
        name: "c".into(),
        status: CheckStatus::Critical,
        service_id: "web1".into(),
        service_name: "web".into(),
        ..Check::default()
    };
    let register = |node, service, checks| {
        Command::Catalog(CatalogCommand::Register(Box::new(Registration {
            node,
            service,
            checks,
            ..Registration::default()
        })))
    };
    all.extend([
        register(node("n1"), Some(web.clone()), vec![]),
        register(node("n1"), Some(web), vec![check]),
        register(node("n2"), None, vec![]),
        Command::Catalog(CatalogCommand::Deregister(Box::new(Deregistration {
            node: "n1".into(),
            ..Deregistration::default()
        }))),
        Command::SetVersion(VersionChange::EndDowngrade),
    ]);
    all.extend(invitations());
    all.extend(commits(type_version));
    // A downgrade removes the data of this version, and the next upgrade begins without it.
    all.extend([
        Command::SetVersion(VersionChange::Downgrade { to: before }),
        Command::SetVersion(VersionChange::EndDowngrade),
        Command::SetVersion(VersionChange::Raise { to: version, term: Term(1) }),
    ]);
    all.extend(invitations());
    all.extend(commits(type_version));
    all
}

/// Commits with operations of all faces, and commits of keys alone: done, repeated, and failed by
/// another content for a key, by an operation, and by a condition. `type_version` is that of the
/// registered type.
fn commits(type_version: LogIndex) -> Vec<Command> {
    let operation = |command| CommitOp::new(command).expect("an operation of a commit");
    let put = |key: &'static str| {
        let (value, lease) = (ValueChoice::Set("v".into()), LeaseChoice::Set(LeaseId(0)));
        operation(Command::Put(Put { key: key.into(), value, lease, prev_kv: true }))
    };
    let (path, value, session) = ("golden".into(), "v".into(), String::new());
    let kv = KvOp { verb: KvVerb::Set, path, value, flags: 3, index: LogIndex(0), session };
    let node = CatalogNode { name: "n3".into(), address: "10.0.0.3".into(), ..CatalogNode::default() };
    let register = Registration { node, ..Registration::default() };
    let all = || {
        vec![
            put("golden/a"),
            operation(resource("three", type_version)),
            operation(Command::Catalog(CatalogCommand::Register(Box::new(register.clone())))),
            operation(Command::Consul(ConsulCommand::Kv(kv.clone()))),
        ]
    };
    // Keys of random commits may have small ids.
    let commit = |operations, id: u8, body: u8| {
        let key = CommitKey { id: [id; 16], body: [body; 16] };
        Command::Commit(Box::new(Commit { conditions: vec![], operations, key: Some(key) }))
    };
    let key = CommitEntity::Key("golden/a".into());
    let guarded = |test| {
        let conditions = vec![CommitCondition::Entity(key.clone(), test, None)];
        Command::Commit(Box::new(Commit { conditions, operations: vec![put("golden/b")], key: None }))
    };
    let absent = operation(Command::LeaseRevoke(LeaseRevoke { id: LeaseId(777) }));
    vec![
        commit(all(), 201, 1),
        commit(all(), 201, 1),
        commit(all(), 201, 2),
        commit(vec![put("golden/c"), absent], 202, 1),
        commit(vec![put("golden/c"), put("golden/c")], 202, 1),
        guarded(EntityTest::Exists(true)),
        guarded(EntityTest::Index(LogIndex(0))),
        guarded(EntityTest::UnchangedSince(LogIndex(1))),
        guarded(EntityTest::UnchangedSince(LogIndex(1_000_000))),
    ]
}

/// Commands that change users, roles and Consul's ACLs, and commands of proposers with and without
/// rights.
fn guarded() -> Vec<(Option<Proposer>, Command)> {
    let system = || Some(Proposer::System);
    let user = |name: &str, auth_revision| Some(Proposer::User { name: name.into(), auth_revision });
    let text = str::to_owned;
    let hash = |text: &'static str| SecretHash(Bytes::from_static(text.as_bytes()));
    let add = |name: &str| AuthCommand::UserAdd { name: text(name), password: Some(hash("$argon2id$")) };
    let role = |name: &str| AuthCommand::RoleAdd { name: text(name) };
    let grant = |user: &str, role: &str| AuthCommand::UserGrantRole { user: text(user), role: text(role) };
    let permit = |kind, key: &'static str, end: &'static str| {
        let permission = Permission { kind, key: key.into(), range_end: end.into() };
        AuthCommand::RoleGrantPermission { role: text("r"), permission }
    };
    let put = |key: &'static str| {
        let (value, lease) = (ValueChoice::Set("v".into()), LeaseChoice::Set(LeaseId(0)));
        Command::Put(Put { key: key.into(), value, lease, prev_kv: false })
    };
    let issue = |auth_revision| AuthCommand::Issue { name: text("u"), auth_revision, token: hash("letters") };
    let revoke = |key: &'static str, range_end: &'static str| AuthCommand::RoleRevokePermission {
        role: text("r"),
        key: key.into(),
        range_end: range_end.into(),
    };
    let of_users = [
        AuthCommand::Enable,
        add("root"),
        AuthCommand::Enable,
        role("root"),
        grant("root", "root"),
        add("u"),
        add("u"),
        role("r"),
        grant("u", "r"),
        permit(PermissionKind::ReadWrite, "a", "b"),
        permit(PermissionKind::Read, "b", ""),
        permit(PermissionKind::Write, "b", "a"),
        AuthCommand::UserGrantRole { user: text("u"), role: text("none") },
        issue(1),
        AuthCommand::Enable,
    ];
    // Eight changes of users and roles came before.
    let last = 9;
    let mut all: Vec<_> = of_users.into_iter().map(|command| (None, Command::Auth(command))).collect();
    all.extend([
        (None, put("a")),
        (system(), put("a")),
        (user("root", last), put("z")),
        (user("u", last), put("a1")),
        (user("u", last), put("b")),
        (user("u", last - 1), put("a1")),
        (user("nobody", last), put("a1")),
        (user("u", last), Command::SetVersion(VersionChange::EndDowngrade)),
        (user("u", last), Command::Auth(issue(last))),
        (system(), Command::Auth(issue(last))),
        (user("u", last), Command::Auth(role("other"))),
        (user("u", last), Command::Invitation(InvitationCommand::Delete(InvitationId(1)))),
        (
            None,
            Command::Invitation(InvitationCommand::Use { hash: TokenHash([20; 32]), incarnation: 5, node: text("m") }),
        ),
    ]);
    all.extend(
        [
            AuthCommand::UserChangePassword { name: text("u"), password: None },
            revoke("b", ""),
            revoke("b", "c"),
            AuthCommand::UserRevokeRole { user: text("u"), role: text("r") },
            AuthCommand::RoleDelete { name: text("r") },
            AuthCommand::UserDelete { name: text("root") },
            AuthCommand::UserDelete { name: text("u") },
            AuthCommand::Disable,
            AuthCommand::Disable,
        ]
        .map(|command| (user("root", last), Command::Auth(command))),
    );
    all.extend(lists().into_iter().map(|command| (None, Command::Acl(command))));
    let by_token = |as_of| Some(Proposer::Token { accessor: text("t"), as_of: LogIndex(as_of), rights: None });
    let rights = Arc::new(Rights::union([(Space::Kv, KeyRange::prefix("t".into()), Access::WRITE)]));
    let carrying =
        || Some(Proposer::Token { accessor: text("t"), as_of: LogIndex(1_000_000), rights: Some(Arc::clone(&rights)) });
    let on_lease = |key: &'static str| {
        let (value, lease) = (ValueChoice::Set("v".into()), LeaseChoice::Set(LeaseId(77)));
        Command::Put(Put { key: key.into(), value, lease, prev_kv: false })
    };
    all.extend([
        (by_token(1), put("t")),
        (by_token(1_000_000), put("t")),
        (carrying(), Command::LeaseGrant(LeaseGrant { id: LeaseId(77), ttl_seconds: 5000 })),
        (carrying(), on_lease("t/1")),
        (carrying(), on_lease("other")),
        (by_token(1_000_000), on_lease("other")),
        (carrying(), Command::LeaseRevoke(LeaseRevoke { id: LeaseId(77) })),
        // Refused, because the older version has no rights.
        (None, Command::SetVersion(VersionChange::Downgrade { to: Supported::RELEASE.lowest })),
    ]);
    all
}

/// Commands that change Consul's tokens, policies, roles, auth methods and binding rules. Some are
/// refused.
fn lists() -> Vec<AclCommand> {
    let text = str::to_owned;
    let secret = |text: &'static str| SecretHash(Bytes::from_static(text.as_bytes()));
    let token = |accessor: &str, of: &'static str| AclToken {
        accessor: text(accessor),
        secret: secret(of),
        expires_ms: 2_000_000,
        ..AclToken::anonymous()
    };
    let put = |row| AclCommand::Put { row, is_new: true };
    let of_token = |token| AclRow::Token(Box::new(token));
    let policy = AclPolicy { id: text("p"), name: text("p"), rules: text("key \"\" {}"), ..AclPolicy::default() };
    let grants = |policy: &str| AclGrants { policies: vec![text(policy)], ..AclGrants::default() };
    let role = |policy: &str| AclRole { id: text("r"), name: text("r"), grants: grants(policy), ..AclRole::default() };
    let method = AclMethod { name: text("m"), kind: text("jwt"), config_json: text("{}"), ..AclMethod::default() };
    let binding = |method: &str| AclBinding { id: text("b"), method: text(method), ..AclBinding::default() };
    vec![
        AclCommand::Bootstrap { token: Box::new(token("boot", "s0")), reset: LogIndex::ZERO },
        AclCommand::Bootstrap { token: Box::new(token("again", "s9")), reset: LogIndex::ZERO },
        put(AclRow::Policy(Box::new(policy.clone()))),
        put(AclRow::Policy(Box::new(policy))),
        put(AclRow::Role(Box::new(role("none")))),
        put(AclRow::Role(Box::new(role("p")))),
        put(AclRow::Method(Box::new(method))),
        put(AclRow::Binding(Box::new(binding("none")))),
        put(AclRow::Binding(Box::new(binding("m")))),
        put(of_token(token("t", "s1"))),
        put(of_token(token("other", "s1"))),
        AclCommand::Put { row: of_token(token("t", "s1")), is_new: false },
        AclCommand::Put { row: of_token(token("none", "s2")), is_new: false },
        put(of_token(AclToken { method: text("m"), ..token("l", "s3") })),
        AclCommand::Expire(vec![(text("t"), LogIndex(1)), (text("none"), LogIndex(1))]),
        AclCommand::Delete(AclKey::Method(text("m"))),
        AclCommand::Delete(AclKey::Role(text("r"))),
        AclCommand::Delete(AclKey::Policy(text("none"))),
        AclCommand::Delete(AclKey::Token(text("boot"))),
    ]
}

/// Commands about invitations, with every outcome except the refusal because there are too many.
fn invitations() -> Vec<Command> {
    let hash = |number| TokenHash([number; 32]);
    let create = |number, expires_unix_ms, uses_max| {
        InvitationCommand::Create(NewInvitation {
            name: format!("i{number}"),
            hash: hash(number),
            expires_unix_ms,
            uses_max,
            learner: number == 21,
        })
    };
    let used = |number, incarnation| InvitationCommand::Use { hash: hash(number), incarnation, node: "m".into() };
    let changes = [
        create(20, 2_000_000, Some(1)),
        create(21, 2_000_000, None),
        create(22, 1, None),
        used(20, 5),
        used(20, 5),
        used(20, 6),
        used(21, 6),
        used(23, 6),
        InvitationCommand::Delete(InvitationId(1)),
    ];
    changes.into_iter().map(Command::Invitation).collect()
}

const ULID: &str = "01ARZ3NDEKTSV4RRFFQ69G5FAV";

fn item() -> Type {
    Type::new("golden", "v1", "Item")
}

fn register_type() -> Command {
    let (uid, name) = (String::new(), TypeName::of(&item()).0);
    let id = ResourceId { uid, name, type_: Type::resource_type(), tenancy: Tenancy::default() };
    write_of(id, LogIndex::ZERO, Some((item(), Scope::Cluster)))
}

fn resource(name: &str, type_version: LogIndex) -> Command {
    let (uid, name) = (String::new(), name.to_owned());
    write_of(ResourceId { uid, name, type_: item(), tenancy: Tenancy::default() }, type_version, None)
}

fn write_of(id: ResourceId, type_version: LogIndex, registers: Option<(Type, Scope)>) -> Command {
    let resource = Resource { id, ..Resource::default() };
    let (uid, generation) = (ULID.to_owned(), ULID.to_owned());
    let write = ResourceWrite { resource, expected: None, uid, generation, type_version, registers };
    Command::Resource(ResourceCommand::Write(Box::new(write)))
}
