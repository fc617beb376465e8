//! Users, roles, turning authentication on and off (spec: etcd §4.3), and the judgement of
//! proposals (security §3).

use std::sync::Arc;

use super::bed::*;
use super::commit::commit;
use crate::spaces_judged_on_state;
use headwater_storage::state::{AppliedState, AuthReader, Committed, Table};
use headwater_types::auth::{
    AuthCommand, AuthRefusal, Permission, PermissionKind, Proposer, ROOT, SecretHash, TokenChange,
};
use headwater_types::catalog::{CatalogCommand, CatalogNode, Check, Registration};
use headwater_types::commit::{CommitCondition, CommitEntity, EntityTest};
use headwater_types::consul::{ConsulCommand, Session, SessionCreate};
use headwater_types::{
    Access, Command, KeyRange, LeaseAttach, LeaseChoice, LeaseId, LeaseRevoke, LeaseTxn, LogIndex, Outcome, Proposal,
    Put, RangeQuery, Refusal, Rights, Space, Term, Txn, TxnOp, Version, VersionChange, VersionRefusal,
};

/// A state of the version that has users.
fn bed() -> TestBed {
    TestBed::with([Command::SetVersion(VersionChange::Raise { to: Version::V0_4, term: Term(1) })])
}

fn auth(command: AuthCommand) -> Command {
    Command::Auth(command)
}

fn user_add(name: &str) -> Command {
    auth(AuthCommand::UserAdd { name: name.to_owned(), password: Some(SecretHash("h".into())) })
}

fn role_add(name: &str) -> Command {
    auth(AuthCommand::RoleAdd { name: name.to_owned() })
}

fn give(user: &str, role: &str) -> Command {
    auth(AuthCommand::UserGrantRole { user: user.to_owned(), role: role.to_owned() })
}

fn take(user: &str, role: &str) -> Command {
    auth(AuthCommand::UserRevokeRole { user: user.to_owned(), role: role.to_owned() })
}

fn permit(role: &str, kind: PermissionKind, key: &str, range_end: &str) -> Command {
    let permission = Permission { kind, key: bytes(key), range_end: bytes(range_end) };
    auth(AuthCommand::RoleGrantPermission { role: role.to_owned(), permission })
}

fn forbid(role: &str, key: &str, range_end: &str) -> Command {
    auth(AuthCommand::RoleRevokePermission { role: role.to_owned(), key: bytes(key), range_end: bytes(range_end) })
}

/// A state with the user root and the role root. Authentication is still off.
fn with_root() -> TestBed {
    let mut bed = bed();
    for command in [user_add(ROOT), role_add(ROOT), give(ROOT, ROOT)] {
        assert!(matches!(bed.apply(command), Outcome::AuthChanged { .. }));
    }
    bed
}

fn auth_revision(bed: &TestBed) -> u64 {
    bed.store.current().head().auth.revision
}

/// Applies a command as a principal.
fn apply_as(bed: &mut TestBed, proposer: Option<Proposer>, command: Command) -> (Outcome, Committed) {
    let db = bed.store.current();
    let mut txn = bed.store.begin(&db).unwrap();
    let index = LogIndex(bed.next);
    let proposal = Proposal { proposer, ..Proposal::new(1, command) };
    let outcome = crate::apply(&mut txn, Term(1), index, &proposal, true).unwrap();
    txn.set_applied(&AppliedState { term: Term(1), index, membership: None });
    bed.next += 1;
    (outcome, txn.commit().unwrap())
}

/// Applies a command as a user with a token of the present auth revision.
fn as_user(bed: &mut TestBed, name: &str, command: Command) -> Outcome {
    let auth_revision = auth_revision(bed);
    apply_as(bed, Some(Proposer::User { name: name.to_owned(), auth_revision }), command).0
}

fn refused(refusal: AuthRefusal) -> Outcome {
    Outcome::Refused(Refusal::Auth(refusal))
}

#[test]
fn users_and_roles_follow_etcds_rules() {
    use AuthRefusal as R;
    use PermissionKind::{Read, ReadWrite, Write};
    let mut bed = bed();
    let steps: [(Command, Result<u64, AuthRefusal>); 40] = [
        (auth(AuthCommand::Enable), Err(R::RootUserNotExist)),
        (user_add(""), Err(R::UserEmpty)),
        (user_add(ROOT), Ok(2)),
        (user_add(ROOT), Err(R::UserExists)),
        (auth(AuthCommand::Enable), Err(R::RootRoleNotExist)),
        (give("nobody", ROOT), Err(R::UserNotFound)),
        (give(ROOT, "r"), Err(R::RoleNotFound)),
        // The role root need not exist.
        (give(ROOT, ROOT), Ok(3)),
        (give(ROOT, ROOT), Ok(3)),
        (role_add(""), Err(R::RoleEmpty)),
        (role_add("r"), Ok(4)),
        (role_add("r"), Err(R::RoleExists)),
        (user_add("u"), Ok(5)),
        (take("u", "r"), Err(R::RoleNotGranted)),
        (take("nobody", "r"), Err(R::UserNotFound)),
        (give("u", "r"), Ok(6)),
        (permit("x", Read, "k", ""), Err(R::RoleNotFound)),
        (permit("r", Read, "", ""), Err(R::InvalidManagement)),
        (permit("r", Read, "k", "k"), Err(R::InvalidManagement)),
        (permit("r", Read, "k", "j"), Err(R::InvalidManagement)),
        (permit("r", Read, "k", ""), Ok(7)),
        // Another end is another permission; the same interval is replaced.
        (permit("r", Read, "k", "m"), Ok(8)),
        (permit("r", Write, "k", "m"), Ok(9)),
        (permit("r", ReadWrite, "z", "\0"), Ok(10)),
        (forbid("r", "k", "n"), Err(R::PermissionNotGranted)),
        (forbid("x", "k", ""), Err(R::RoleNotFound)),
        (forbid("r", "z", "\0"), Ok(11)),
        (auth(AuthCommand::UserChangePassword { name: "nobody".to_owned(), password: None }), Err(R::UserNotFound)),
        (auth(AuthCommand::UserChangePassword { name: "u".to_owned(), password: None }), Ok(12)),
        (auth(AuthCommand::Disable), Ok(12)),
        (auth(AuthCommand::Enable), Ok(12)),
        (auth(AuthCommand::Enable), Err(R::UserEmpty)),
        (auth(AuthCommand::UserDelete { name: ROOT.to_owned() }), Err(R::InvalidManagement)),
        (auth(AuthCommand::RoleDelete { name: ROOT.to_owned() }), Err(R::InvalidManagement)),
        (take(ROOT, ROOT), Err(R::InvalidManagement)),
        (auth(AuthCommand::RoleDelete { name: "x".to_owned() }), Err(R::RoleNotFound)),
        (auth(AuthCommand::RoleDelete { name: "r".to_owned() }), Ok(13)),
        (take("u", "r"), Err(R::RoleNotGranted)),
        (auth(AuthCommand::Disable), Ok(14)),
        (auth(AuthCommand::UserDelete { name: ROOT.to_owned() }), Ok(15)),
    ];
    for (number, (command, wanted)) in steps.into_iter().enumerate() {
        let what = format!("{number}: {command:?}");
        let before = bed.revision();
        // The first one after it was turned on is anonymous.
        let enabled = bed.store.current().head().auth.enabled;
        let outcome = match enabled && wanted != Err(R::UserEmpty) {
            true => as_user(&mut bed, ROOT, command),
            false => bed.apply(command),
        };
        let wanted = match wanted {
            Ok(auth_revision) => Outcome::AuthChanged { auth_revision },
            Err(refusal) => refused(refusal),
        };
        assert_eq!(outcome, wanted, "{what}");
        assert_eq!(bed.revision(), before, "{what}: the revision of keys does not move");
        if number == 26 {
            let role = bed.store.current().view().unwrap().role("r").unwrap().unwrap();
            let shown: Vec<_> =
                role.permissions.iter().map(|it| (it.kind, it.key.clone(), it.range_end.clone())).collect();
            assert_eq!(shown, [(Read, bytes("k"), bytes("")), (Write, bytes("k"), bytes("m"))]);
        }
    }
    let bed = bed.reopened();
    let db = bed.store.current();
    let view = db.view().unwrap();
    assert_eq!(view.auth_names(Table::AuthUser).unwrap(), ["u"]);
    assert_eq!(view.auth_names(Table::AuthRole).unwrap(), Vec::<String>::new());
    assert_eq!(view.user("u").unwrap().unwrap().password, None);
    assert_eq!((view.head().auth.enabled, view.head().auth.revision), (false, 15));
}

#[test]
fn tokens_are_told_and_end_with_their_user() {
    let mut bed = with_root();
    let issue = |auth_revision| {
        auth(AuthCommand::Issue { name: ROOT.to_owned(), auth_revision, token: SecretHash("t".into()) })
    };
    assert_eq!(bed.apply(issue(4)), refused(AuthRefusal::NotEnabled));
    bed.apply(auth(AuthCommand::Enable));
    let old = apply_as(&mut bed, Some(Proposer::System), issue(3)).0;
    assert_eq!(old, refused(AuthRefusal::OldRevision), "the password may have changed");
    let nobody = AuthCommand::Issue { name: "x".to_owned(), auth_revision: 4, token: SecretHash("t".into()) };
    assert_eq!(apply_as(&mut bed, Some(Proposer::System), auth(nobody)).0, refused(AuthRefusal::UserNotFound));
    let forged = apply_as(&mut bed, None, issue(4)).0;
    assert_eq!(forged, refused(AuthRefusal::UserEmpty), "only the store itself issues tokens");
    let index = LogIndex(bed.next);
    let (outcome, committed) = apply_as(&mut bed, Some(Proposer::System), issue(4));
    assert_eq!(outcome, Outcome::AuthChanged { auth_revision: 4 });
    let issued = TokenChange::Issued { name: ROOT.to_owned(), token: SecretHash("t".into()), index };
    assert_eq!((committed.tokens, committed.rights_changed), (vec![issued], false));
    let change = auth(AuthCommand::UserChangePassword { name: ROOT.to_owned(), password: None });
    let (_, committed) = apply_as(&mut bed, Some(Proposer::System), change);
    assert_eq!(committed.tokens, [TokenChange::UserEnded(ROOT.to_owned())]);
    assert!(committed.rights_changed);
    let (_, committed) = apply_as(&mut bed, Some(Proposer::System), auth(AuthCommand::Disable));
    assert_eq!(committed.tokens, [TokenChange::AllEnded]);
}

#[test]
fn a_user_without_a_password_gets_none() {
    let mut bed = bed();
    let hash = |text: &'static str| Some(SecretHash(text.into()));
    bed.apply(auth(AuthCommand::UserAdd { name: "none".to_owned(), password: None }));
    bed.apply(user_add("some"));
    for (name, wanted) in [("none", None), ("some", hash("new"))] {
        bed.apply(auth(AuthCommand::UserChangePassword { name: name.to_owned(), password: hash("new") }));
        let state = bed.store.current();
        assert_eq!(state.view().unwrap().user(name).unwrap().unwrap().password, wanted, "{name}");
    }
}

/// A store with keys and two leases, and the user `u` with rights to read `r*`, to write `w*`, and
/// to do both on `b*`. `w1` is attached to lease 1; `w2` and the foreign `x` are attached to lease
/// 2. Authentication is on.
fn guarded() -> TestBed {
    let mut bed = with_root();
    bed.grant(1);
    bed.grant(2);
    let on = |key: &str, lease| Command::Put(Put { lease: LeaseChoice::Set(LeaseId(lease)), ..put_of(key, "v") });
    for command in [
        put("r", "v"),
        put("w", "v"),
        put("b", "v"),
        on("w1", 1),
        on("w2", 2),
        on("x", 2),
        user_add("u"),
        role_add("one"),
        role_add("two"),
        permit("one", PermissionKind::Read, "r", "s"),
        permit("one", PermissionKind::Write, "w", "x"),
        permit("two", PermissionKind::ReadWrite, "b", "c"),
        give("u", "one"),
        give("u", "two"),
        auth(AuthCommand::Enable),
    ] {
        assert!(!matches!(bed.apply(command.clone()), Outcome::Refused(_)), "{command:?}");
    }
    bed
}

#[test]
fn every_part_of_a_command_needs_its_right() {
    let on = |key: &str, lease| Put { lease: LeaseChoice::Set(LeaseId(lease)), ..put_of(key, "v") };
    let prev = |key: &str| Put { prev_kv: true, ..put_of(key, "v") };
    let del_prev = |key: &str| headwater_types::DeleteRange { range: KeyRange::One(bytes(key)), prev_kv: true };
    let plain = |success: Vec<TxnOp>, failure: Vec<TxnOp>| Command::Txn(Txn { compares: vec![], success, failure });
    let nested = |op: TxnOp| TxnOp::Txn(Txn { compares: vec![], success: vec![], failure: vec![op] });
    let reads = |key: &str| TxnOp::Range(RangeQuery::new(KeyRange::One(bytes(key))));
    let compares = |key: &str| {
        let compare = headwater_types::Compare {
            range: KeyRange::One(bytes(key)),
            op: headwater_types::CompareOp::Equal,
            target: headwater_types::CompareTarget::Version(1),
        };
        Command::Txn(Txn { compares: vec![compare], success: vec![], failure: vec![] })
    };
    let attach = |key: &str, lease| LeaseAttach { id: LeaseId(lease), key: bytes(key) };
    let session = |node: &str| {
        let session = Session { node: node.to_owned(), ..Session::default() };
        Command::Consul(ConsulCommand::SessionCreate(Box::new(SessionCreate { session, ..SessionCreate::default() })))
    };
    let commit_if = |key: &str| {
        let condition =
            CommitCondition::Entity(CommitEntity::Key(bytes(key)), EntityTest::UnchangedSince(LogIndex(0)), None);
        let Command::Commit(mut guarded) = commit(vec![put("w", "v")]) else { unreachable!("invariant: a commit") };
        guarded.conditions.push(condition);
        Command::Commit(guarded)
    };
    let cases: Vec<(&str, Command, bool)> = vec![
        ("a put", put("w", "v"), true),
        ("a put where it may only read", put("r", "v"), false),
        ("a put elsewhere", put("z", "v"), false),
        ("the previous pair needs READ", Command::Put(prev("w")), false),
        ("which it has here", Command::Put(prev("b")), true),
        ("a lease of its own keys", Command::Put(on("w", 1)), true),
        ("a lease with a foreign key, which would be deleted with it", Command::Put(on("w", 2)), false),
        ("a delete", del("w", ""), true),
        ("a delete of an interval", del("w", "x"), true),
        ("a delete of more", del("w", "x\0"), false),
        ("a deleted pair needs READ", Command::DeleteRange(del_prev("w")), false),
        ("which it has here", Command::DeleteRange(del_prev("b")), true),
        ("a compare needs READ", compares("w"), false),
        ("which it has here", compares("r"), true),
        ("a read in a transaction", plain(vec![reads("r")], vec![TxnOp::Put(put_of("w", "v"))]), true),
        ("a read of what it may only write", plain(vec![reads("w")], vec![]), false),
        ("the branch that does not run", plain(vec![], vec![TxnOp::Put(put_of("z", "v"))]), false),
        ("a nested branch that does not run", plain(vec![nested(TxnOp::Put(put_of("z", "v")))], vec![]), false),
        ("a nested read", plain(vec![nested(reads("w"))], vec![]), false),
        ("a nested put", plain(vec![nested(TxnOp::Put(put_of("w", "v")))], vec![]), true),
        ("prev_kv inside", plain(vec![TxnOp::Put(prev("w"))], vec![]), false),
        ("a lease inside", plain(vec![TxnOp::Put(on("w", 2))], vec![]), false),
        ("prev_kv of a delete, nested", plain(vec![nested(TxnOp::DeleteRange(del_prev("w")))], vec![]), false),
        ("a lease of nobody's", grant(9, 60), true),
        ("the end of a lease", Command::LeaseRevoke(LeaseRevoke { id: LeaseId(1) }), true),
        ("the end of a foreign lease", Command::LeaseRevoke(LeaseRevoke { id: LeaseId(2) }), false),
        ("an attachment", Command::LeaseAttach(attach("w", 1)), true),
        ("an attachment of a foreign key", Command::LeaseAttach(attach("r", 1)), false),
        ("an attachment to a foreign lease", Command::LeaseAttach(attach("w", 2)), false),
        (
            "an attachment by the branch that does not run",
            Command::LeaseTxn(LeaseTxn {
                txn: Txn { compares: vec![], success: vec![], failure: vec![] },
                success: vec![],
                failure: vec![attach("w", 2)],
            }),
            false,
        ),
        ("a commit", commit(vec![put("w", "v"), grant(9, 60), del("b", "")]), true),
        ("a commit with a foreign operation", commit(vec![put("w", "v"), put("r", "v")]), false),
        ("a commit in a foreign space", commit(vec![put("w", "v"), session("n")]), false),
        (
            "a commit that ends a foreign lease",
            commit(vec![Command::LeaseRevoke(LeaseRevoke { id: LeaseId(2) })]),
            false,
        ),
        ("a condition on what it may read", commit_if("r"), true),
        ("a condition on what it may only write", commit_if("w"), false),
        ("a compaction", compact(2), false),
        ("an alarm", set_alarm(1, headwater_types::AlarmKind::NoSpace, true), false),
        ("a downgrade", Command::SetVersion(VersionChange::Downgrade { to: Version::V0_3 }), false),
        ("a user", user_add("v"), false),
        ("the switch", auth(AuthCommand::Disable), false),
        ("itself", give("u", ROOT), false),
    ];
    for (name, command, is_permitted) in cases {
        let mut bed = guarded();
        let before = bed.pairs();
        let outcome = as_user(&mut bed, "u", command.clone());
        let denied = refused(AuthRefusal::PermissionDenied);
        assert_eq!(outcome != denied, is_permitted, "{name}: {outcome:?}");
        assert!(is_permitted || bed.pairs() == before, "{name}: nothing changed");
        let by_root = as_user(&mut bed, ROOT, command.clone());
        assert!(!matches!(by_root, Outcome::Refused(Refusal::Auth(AuthRefusal::PermissionDenied))), "{name}");
        let mut bed = guarded();
        let by_nobody = bed.apply(command.clone());
        assert_eq!(by_nobody, refused(AuthRefusal::UserEmpty), "{name}");
        let by_a_stranger = as_user(&mut bed, "stranger", command);
        assert_eq!(by_a_stranger, denied, "{name}");
    }
}

#[test]
fn what_exists_is_not_told_to_the_denied() {
    // The same answer whether the key, the lease or the value is there or not.
    let mut bed = guarded();
    let keep = |key: &str| Command::Put(Put { value: headwater_types::ValueChoice::Keep, ..put_of(key, "") });
    for command in [keep("r"), keep("z"), Command::LeaseRevoke(LeaseRevoke { id: LeaseId(2) })] {
        assert_eq!(as_user(&mut bed, "u", command), refused(AuthRefusal::PermissionDenied));
    }
}

#[test]
fn a_proposal_of_an_older_auth_revision_is_refused_and_the_stores_own_is_not() {
    let mut bed = guarded();
    let let_in_at = auth_revision(&bed);
    let u = || Some(Proposer::User { name: "u".to_owned(), auth_revision: let_in_at });
    assert!(matches!(apply_as(&mut bed, u(), put("w", "1")).0, Outcome::Put(_)));
    as_user(&mut bed, ROOT, role_add("other"));
    let outcome = apply_as(&mut bed, u(), put("w", "2")).0;
    assert_eq!(outcome, refused(AuthRefusal::OldRevision));
    assert!(matches!(apply_as(&mut bed, Some(Proposer::System), put("w", "3")).0, Outcome::Put(_)));
    // A token is judged where it proposes; the judgement counts until rights change.
    let rights_changed = bed.store.current().head().rights_changed;
    let token = |as_of| Some(Proposer::Token { accessor: "a".to_owned(), as_of, rights: None });
    assert_eq!(apply_as(&mut bed, token(LogIndex::ZERO), put("w", "4")).0, refused(AuthRefusal::OldRevision));
    assert!(matches!(apply_as(&mut bed, token(rights_changed), put("w", "4")).0, Outcome::Put(_)));
    // Rights that are taken away are gone with the entry that takes them.
    as_user(&mut bed, ROOT, take("u", "one"));
    assert_eq!(as_user(&mut bed, "u", put("w", "5")), refused(AuthRefusal::PermissionDenied));
    assert!(matches!(as_user(&mut bed, "u", put("b", "6")), Outcome::Put(_)));
}

#[test]
fn the_version_is_not_lowered_where_there_are_users() {
    let mut bed = with_root();
    let lower = Command::SetVersion(VersionChange::Downgrade { to: Version::V0_3 });
    assert_eq!(bed.apply(lower), Outcome::Refused(Refusal::Version(VersionRefusal::Guarded)));
}

#[test]
fn each_of_many_keys_of_a_lease_is_judged() {
    let mut bed = guarded();
    let on = |key: &str, lease| Put { lease: LeaseChoice::Set(LeaseId(lease)), ..put_of(key, "v") };
    let puts = |from: usize| (from..from + 100).map(|n| TxnOp::Put(on(&format!("w{n:05}"), 1))).collect();
    let txn = |success| Command::Txn(Txn { compares: vec![], success, failure: vec![] });
    for from in (0..2500).step_by(100) {
        let outcome = as_user(&mut bed, "u", txn(puts(from)));
        assert!(matches!(outcome, Outcome::Txn(_)), "{outcome:?}");
    }
    // The last in the order of keys.
    assert!(matches!(as_user(&mut bed, ROOT, Command::Put(on("x", 1))), Outcome::Put(_)));
    for command in [txn(puts(0)), Command::LeaseRevoke(LeaseRevoke { id: LeaseId(1) })] {
        assert_eq!(as_user(&mut bed, "u", command), refused(AuthRefusal::PermissionDenied));
    }
}

#[test]
fn a_tokens_write_is_judged_again_where_its_verdict_depends_on_data() {
    let mut bed = guarded();
    let as_of = bed.store.current().head().rights_changed;
    let rights = Arc::new(Rights::union([(Space::Kv, KeyRange::prefix(bytes("w")), Access::WRITE)]));
    let token = |rights| Some(Proposer::Token { accessor: "a".to_owned(), as_of, rights });
    let on = |key: &str, lease| Command::Put(Put { lease: LeaseChoice::Set(LeaseId(lease)), ..put_of(key, "v") });
    let nested = |command| match command {
        Command::Put(put) => {
            let txn = |success| Txn { compares: vec![], success, failure: vec![] };
            Command::Txn(txn(vec![TxnOp::Txn(txn(vec![TxnOp::Put(put)]))]))
        }
        other => other,
    };
    let revoke = || Command::LeaseRevoke(LeaseRevoke { id: LeaseId(1) });
    for command in [on("w1", 1), nested(on("w1", 1)), revoke()] {
        assert_eq!(spaces_judged_on_state(&command), [Space::Kv], "{command:?}");
    }
    assert_eq!(spaces_judged_on_state(&put("w", "1")), []);
    let outcome = apply_as(&mut bed, token(Some(rights.clone())), on("w1", 1)).0;
    assert!(matches!(outcome, Outcome::Put(_)), "{outcome:?}");
    // The member that took the request had yet to apply this.
    assert!(matches!(as_user(&mut bed, ROOT, on("x", 1)), Outcome::Put(_)));
    for command in [on("w2", 1), nested(on("w2", 1)), revoke()] {
        let outcome = apply_as(&mut bed, token(Some(rights.clone())), command).0;
        assert_eq!(outcome, refused(AuthRefusal::PermissionDenied));
    }
}

#[test]
fn keys_of_a_lease_between_and_beside_the_rights_are_found() {
    let write =
        |key: &str, end: &str| (Space::Kv, KeyRange::Span { start: bytes(key), end: Some(bytes(end)) }, Access::WRITE);
    let rights = Rights::union([write("a", "b"), write("b", "d"), write("f", "f\0"), write("h", "k")]);
    for (attached, is_permitted) in [
        (&["a", "az", "b", "c", "czzz", "f", "h", "j\u{7f}"][..], true),
        (&["a", "d"], false),
        (&["a", "f\0"], false),
        (&["f", "g"], false),
        (&["a", "k"], false),
        (&["0"], false),
        (&["h", "l"], false),
        (&[], true),
    ] {
        let mut bed = bed();
        bed.apply(grant(1, 60));
        for key in attached {
            let outcome = bed.apply(Command::Put(Put { lease: LeaseChoice::Set(LeaseId(1)), ..put_of(key, "v") }));
            assert!(matches!(outcome, Outcome::Put(_)), "{outcome:?}");
        }
        let judged = bed.store.read(|view| crate::permit_lease(view, &rights, LeaseId(1), Access::WRITE)).unwrap();
        assert_eq!(judged.is_ok(), is_permitted, "{attached:?}");
    }
}

#[test]
fn the_checks_of_a_node_are_replaced_with_the_right_to_the_node() {
    let mut bed = bed();
    let node = CatalogNode { name: "n".to_owned(), ..CatalogNode::default() };
    let check = Check { node: "n".to_owned(), id: "alive".to_owned(), ..Check::default() };
    let register = |node: &CatalogNode, checks| {
        let node = node.clone();
        Registration { node, checks, skip_node_update: true, replace_checks: true, ..Registration::default() }
    };
    let command = |it| Command::Catalog(CatalogCommand::Register(Box::new(it)));
    bed.apply(command(register(&node, vec![check])));
    let replace = command(register(&node, vec![]));
    let write = |space, name: &str| Rights::union([(space, KeyRange::prefix(bytes(name)), Access::WRITE)]);
    for (rights, is_permitted) in [
        (Rights::none(), false),
        (write(Space::CatalogService, ""), false),
        (write(Space::CatalogNode, "m"), false),
        (write(Space::CatalogNode, "n"), true),
    ] {
        let judged = bed.store.read(|view| crate::permit_command(view, &rights, &replace)).unwrap();
        assert_eq!(judged.is_ok(), is_permitted, "{rights:?}");
    }
}
