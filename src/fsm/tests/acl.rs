//! Consul's ACLs, by table: unique names and ids, links that exist, fields that never change, the
//! bootstrap, expiry, and rows that are removed together.

use super::bed::*;
use headwater_storage::state::{AclReader, Table, acl_rows};
use headwater_types::acl::{
    ACL_ANONYMOUS_ACCESSOR, ACL_GLOBAL_MANAGEMENT_ID, AclBinding, AclCommand, AclDone, AclGrants, AclKey, AclMethod,
    AclPolicy, AclRefusal, AclRole, AclRow, AclToken,
};
use headwater_types::auth::SecretHash;
use headwater_types::limits::ACL_LINKS_MAX;
use headwater_types::{Command, LogIndex, Outcome, Refusal, Term, Version, VersionChange};

/// A store of a cluster version that has Consul's ACLs.
fn bed() -> TestBed {
    let mut bed = TestBed::new();
    bed.apply(Command::SetVersion(VersionChange::Raise { to: Version::V0_4, term: Term(1) }));
    bed
}

fn token(accessor: &str, secret: &str) -> AclToken {
    AclToken { accessor: accessor.to_owned(), secret: SecretHash(bytes(secret)), ..AclToken::anonymous() }
}

fn policy(id: &str, name: &str) -> AclRow {
    AclRow::Policy(Box::new(AclPolicy { id: id.to_owned(), name: name.to_owned(), ..AclPolicy::default() }))
}

fn role(id: &str, name: &str, policies: &[&str]) -> AclRow {
    let grants = AclGrants { policies: policies.iter().map(|it| (*it).to_owned()).collect(), ..AclGrants::default() };
    AclRow::Role(Box::new(AclRole { id: id.to_owned(), name: name.to_owned(), grants, ..AclRole::default() }))
}

fn method(name: &str, kind: &str) -> AclRow {
    AclRow::Method(Box::new(AclMethod { name: name.to_owned(), kind: kind.to_owned(), ..AclMethod::default() }))
}

fn binding(id: &str, method: &str) -> AclRow {
    AclRow::Binding(Box::new(AclBinding { id: id.to_owned(), method: method.to_owned(), ..AclBinding::default() }))
}

fn of_token(token: AclToken) -> AclRow {
    AclRow::Token(Box::new(token))
}

fn make(row: AclRow) -> Command {
    Command::Acl(AclCommand::Put { row, is_new: true })
}

fn change(row: AclRow) -> Command {
    Command::Acl(AclCommand::Put { row, is_new: false })
}

fn delete(key: AclKey) -> Command {
    Command::Acl(AclCommand::Delete(key))
}

fn refused(refusal: AclRefusal) -> Outcome {
    Outcome::Refused(Refusal::Acl(refusal))
}

fn gone(changed: u64) -> Outcome {
    Outcome::Acl(AclDone { changed, created: LogIndex::ZERO })
}

/// Applies commands in order, and checks their outcomes. `Ok` has the log index at which the row
/// was created.
fn check(bed: &mut TestBed, cases: Vec<(&str, Command, Result<u64, AclRefusal>)>) {
    for (what, command, wanted) in cases {
        let wanted = match wanted {
            Ok(created) => Outcome::Acl(AclDone { changed: 1, created: LogIndex(created) }),
            Err(refusal) => refused(refusal),
        };
        assert_eq!(bed.apply(command), wanted, "{what}");
    }
}

fn read<T>(bed: &TestBed, read: impl FnOnce(&headwater_storage::ReadView<'_>) -> T) -> T {
    let db = bed.store.current();
    let view = db.view().unwrap();
    read(&view)
}

#[test]
fn names_and_ids_are_unique_and_links_exist() {
    let mut bed = bed();
    let at = bed.next;
    check(
        &mut bed,
        vec![
            ("a policy", make(policy("p1", "ops")), Ok(at)),
            ("its id again", make(policy("p1", "other")), Err(AclRefusal::IdTaken)),
            ("its name again", make(policy("p2", "ops")), Err(AclRefusal::NameTaken)),
            ("a builtin name", make(policy("p2", "global-management")), Err(AclRefusal::NameTaken)),
            ("a builtin id", make(policy(ACL_GLOBAL_MANAGEMENT_ID, "x")), Err(AclRefusal::Builtin)),
            ("a change of nothing", change(policy("p2", "x")), Err(AclRefusal::Absent)),
            ("another name", change(policy("p1", "staff")), Ok(at)),
            ("the name that is free now", make(policy("p2", "ops")), Ok(at + 7)),
            ("a role with a policy", make(role("r1", "web", &["p1", ACL_GLOBAL_MANAGEMENT_ID])), Ok(at + 8)),
            ("a role with none that exists", make(role("r2", "db", &["p9"])), Err(AclRefusal::PolicyAbsent)),
            ("its name again", make(role("r2", "web", &[])), Err(AclRefusal::NameTaken)),
            ("a token", make(of_token(token("t1", "s1"))), Ok(at + 11)),
            ("its secret again", make(of_token(token("t2", "s1"))), Err(AclRefusal::SecretTaken)),
            ("its accessor again", make(of_token(token("t1", "s2"))), Err(AclRefusal::IdTaken)),
            (
                "a role that does not exist",
                make(of_token(AclToken { roles: vec!["r9".to_owned()], ..token("t2", "s2") })),
                Err(AclRefusal::RoleAbsent),
            ),
            (
                "too many links",
                make(of_token(AclToken { roles: vec!["r1".to_owned(); ACL_LINKS_MAX + 1], ..token("t2", "s2") })),
                Err(AclRefusal::TooManyLinks),
            ),
            (
                "as many as can be",
                make(of_token(AclToken { roles: vec!["r1".to_owned(); ACL_LINKS_MAX], ..token("t2", "s2") })),
                Ok(at + 16),
            ),
            ("a rule of no method", make(binding("b1", "m")), Err(AclRefusal::MethodAbsent)),
            ("a method", make(method("m", "jwt")), Ok(at + 18)),
            ("of another kind", change(method("m", "oidc")), Err(AclRefusal::Fixed)),
            ("a rule", make(binding("b1", "m")), Ok(at + 20)),
        ],
    );
    let bed = bed.reopened();
    read(&bed, |view| {
        assert_eq!(view.acl_policy_id("staff").unwrap().as_deref(), Some("p1"));
        assert_eq!(view.acl_policy_id("ops").unwrap().as_deref(), Some("p2"));
        assert_eq!(view.acl_role_id("web").unwrap().as_deref(), Some("r1"));
        assert_eq!(view.acl_token_of_secret(b"s1").unwrap().unwrap().accessor, "t1");
        assert!(view.acl_token_of_secret(b"s9").unwrap().is_none());
        assert_eq!(view.head().rights_changed, LogIndex(at + 20));
    });
}

#[test]
fn a_change_keeps_what_never_changes() {
    let mut bed = bed();
    let made = AclToken { created_ms: 5, expires_ms: 9, method: String::new(), ..token("t", "s") };
    let at = bed.next;
    let wanted = AclToken { description: "new".to_owned(), ..made.clone() };
    let other = AclToken {
        description: "new".to_owned(),
        created_ms: 7,
        expires_ms: 0,
        method: "m".to_owned(),
        secret: SecretHash(bytes("other")),
        ..made.clone()
    };
    check(
        &mut bed,
        vec![
            ("a token", make(of_token(made.clone())), Ok(at)),
            ("a change", change(of_token(other)), Ok(at)),
            ("of its locality", change(of_token(AclToken { local: true, ..made })), Err(AclRefusal::Fixed)),
        ],
    );
    read(&bed, |view| {
        let found = view.acl_token("t").unwrap().unwrap();
        assert_eq!(found, AclToken { created: LogIndex(at), modified: LogIndex(at + 1), ..wanted });
        assert!(view.acl_token_of_secret(b"other").unwrap().is_none());
    });
}

#[test]
fn the_anonymous_token_is_always_there() {
    let mut bed = bed();
    let changed = AclToken { description: "all".to_owned(), ..AclToken::anonymous() };
    read(&bed, |view| assert_eq!(view.acl_token(ACL_ANONYMOUS_ACCESSOR).unwrap(), Some(AclToken::anonymous())));
    check(
        &mut bed,
        vec![
            ("made", make(of_token(AclToken::anonymous())), Err(AclRefusal::IdTaken)),
            ("changed", change(of_token(changed)), Ok(1)),
            ("removed", delete(AclKey::Token(ACL_ANONYMOUS_ACCESSOR.to_owned())), Err(AclRefusal::Builtin)),
            ("its policy", delete(AclKey::Policy(ACL_GLOBAL_MANAGEMENT_ID.to_owned())), Err(AclRefusal::Builtin)),
        ],
    );
    read(&bed, |view| assert_eq!(view.acl_token(ACL_ANONYMOUS_ACCESSOR).unwrap().unwrap().description, "all"));
}

#[test]
fn a_bootstrap_is_possible_once_and_again_by_its_index() {
    let mut bed = bed();
    let bootstrap = |accessor: &str, reset: u64| {
        let token = Box::new(token(accessor, accessor));
        Command::Acl(AclCommand::Bootstrap { token, reset: LogIndex(reset) })
    };
    let at = bed.next;
    check(
        &mut bed,
        vec![
            ("with an index that there is not", bootstrap("t0", 7), Err(AclRefusal::Bootstrapped)),
            ("the first", bootstrap("t1", 0), Ok(at + 1)),
            ("again", bootstrap("t2", 0), Err(AclRefusal::Bootstrapped)),
            ("with another index", bootstrap("t2", at), Err(AclRefusal::Bootstrapped)),
            ("with the index", bootstrap("t2", at + 1), Ok(at + 4)),
            ("with the same once more", bootstrap("t3", at + 1), Err(AclRefusal::Bootstrapped)),
        ],
    );
    read(&bed, |view| {
        assert_eq!(view.acl_bootstrapped().unwrap(), LogIndex(at + 4));
        assert_eq!(acl_rows(view, Table::AclToken).unwrap().len(), 2);
    });
}

#[test]
fn tokens_expire_unless_they_have_changed() {
    let mut bed = bed();
    let ends = |accessor: &str, expires_ms| AclToken { expires_ms, ..token(accessor, accessor) };
    let at = bed.next;
    for token in [ends("a", 5), ends("b", 5), ends("c", 0)] {
        bed.apply(make(of_token(token)));
    }
    bed.apply(change(of_token(ends("b", 5))));
    let expire = |tokens: &[(&str, u64)]| {
        let tokens = tokens.iter().map(|(accessor, modified)| ((*accessor).to_owned(), LogIndex(*modified)));
        Command::Acl(AclCommand::Expire(tokens.collect()))
    };
    let all = [("a", at), ("b", at + 1), ("c", at + 2), ("d", at + 3)];
    assert_eq!(bed.apply(expire(&all)), gone(1));
    assert_eq!(bed.apply(expire(&all)), gone(0));
    read(&bed, |view| {
        assert!(view.acl_token("a").unwrap().is_none() && view.acl_token_of_secret(b"a").unwrap().is_none());
        assert!(view.acl_token("b").unwrap().is_some() && view.acl_token("c").unwrap().is_some());
    });
}

#[test]
fn a_method_goes_with_its_rules_and_its_tokens_end() {
    let mut bed = bed();
    let of_method = |accessor: &str, name: &str| AclToken { method: name.to_owned(), ..token(accessor, accessor) };
    for row in [method("m", "jwt"), method("n", "jwt"), binding("b", "m"), binding("c", "n")] {
        bed.apply(make(row));
    }
    let at = bed.next;
    for token in [of_method("t", "m"), of_method("u", "n"), token("v", "v")] {
        bed.apply(make(of_token(token)));
    }
    assert_eq!(bed.apply(make(of_token(of_method("w", "gone")))), refused(AclRefusal::MethodAbsent));
    assert_eq!(bed.apply(delete(AclKey::Method("m".to_owned()))), gone(2));
    assert_eq!(bed.apply(delete(AclKey::Method("m".to_owned()))), gone(0));
    // Another method of the name does not bring them back.
    bed.apply(make(method("m", "jwt")));
    read(&bed, |view| {
        assert!(view.acl_binding("b").unwrap().is_none() && view.acl_binding("c").unwrap().is_some());
        let has_lost = |accessor| view.acl_method_is_gone(&view.acl_token(accessor).unwrap().unwrap()).unwrap();
        assert_eq!(["t", "u", "v"].map(has_lost), [true, false, false]);
    });
    let all = ["t", "u", "v"].iter().zip(at..).map(|(name, at)| ((*name).to_owned(), LogIndex(at))).collect();
    assert_eq!(bed.apply(Command::Acl(AclCommand::Expire(all))), gone(1));
    read(&bed, |view| assert_eq!(acl_rows(view, Table::AclToken).unwrap().len(), 2));
}

#[test]
fn a_new_token_changes_the_lists_and_nobodys_rights() {
    let mut bed = bed();
    bed.apply(make(policy("p", "ops")));
    let changes = |bed: &TestBed| read(bed, |view| (view.head().rights_changed, view.head().acl_changed));
    let before = changes(&bed).0;
    for (row, is_new, changes_rights) in [
        (token("t", "s"), true, false),
        (token("u", "z"), true, false),
        (token("t", "s"), false, true),
        // Requests without a secret were judged by it before.
        (AclToken::anonymous(), false, true),
    ] {
        let at = LogIndex(bed.next);
        let expected = (if changes_rights { at } else { changes(&bed).0 }, at);
        bed.apply(Command::Acl(AclCommand::Put { row: of_token(row), is_new }));
        assert_eq!(changes(&bed), expected);
    }
    assert!(changes(&bed).0 > before);
    let at = LogIndex(bed.next);
    bed.apply(delete(AclKey::Token("u".to_owned())));
    assert_eq!(changes(&bed), (at, at));
}

#[test]
fn a_removed_row_frees_its_name_and_the_revision_of_keys_stays() {
    let mut bed = bed();
    let revision = bed.revision();
    let at = bed.next;
    check(&mut bed, vec![("a policy", make(policy("p1", "ops")), Ok(at))]);
    assert_eq!(bed.apply(delete(AclKey::Policy("p1".to_owned()))), gone(1));
    assert_eq!(bed.apply(delete(AclKey::Policy("p1".to_owned()))), gone(0));
    check(&mut bed, vec![("its name", make(policy("p2", "ops")), Ok(at + 3))]);
    assert_eq!(bed.revision(), revision);
}

#[test]
fn an_older_cluster_refuses_all_of_it() {
    let mut bed = TestBed::new();
    let refused = Outcome::Refused(Refusal::NeedsVersion { needs: Version::V0_4 });
    assert_eq!(bed.apply(make(policy("p", "ops"))), refused);
    read(&bed, |view| assert!(acl_rows(view, Table::AclPolicy).unwrap().is_empty()));
}
