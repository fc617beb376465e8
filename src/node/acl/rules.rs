//! The language of policies: rules in HCL or JSON, as text, become rules of [`Rights`].
//!
//! Owns the syntax, and the names of kinds and accesses (spec: security §4). Knows no token.
//! Invariants: an accepted text means the same on every member; the refusal of a rule names its
//! line, or its path in JSON.
//!
//! ```text
//! key_prefix "app/" { policy = "write" }
//! operator = "read"
//! ```
//!
//! [`Rights`]: headwater_types::Rights

use std::fmt;

use bytes::Bytes;
use hcl_edit::expr::{Expression, ObjectKey};
use hcl_edit::structure::{Body, Structure};
use hcl_edit::{Span, parser};
use serde_json::Value;

use headwater_types::catalog::canonical;
use headwater_types::consul::consul_key;
use headwater_types::limits::{ACL_RULE_NAME_BYTES_MAX, ACL_RULES_BYTES_MAX, ACL_RULES_MAX};
use headwater_types::rights::{Access, Name, Rule, Space};

/// Reason for which the text of a policy is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RulesError {
    /// The line, from 1. `None` for a rule in JSON, whose path is in `problem`, and for a problem
    /// of the text as a whole. A syntax error in JSON has a line, too.
    line: Option<usize>,
    problem: String,
}

impl std::error::Error for RulesError {}

impl fmt::Display for RulesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.problem),
            None => f.write_str(&self.problem),
        }
    }
}

/// Kinds of rules that have names, with the space of each. Each kind exists also with `_prefix`.
const NAMED: [(&str, Space); 8] = [
    ("agent", Space::Agent),
    ("event", Space::Event),
    ("key", Space::Kv),
    ("node", Space::CatalogNode),
    ("query", Space::Query),
    // Headwater's own: `GROUP/KIND/PARTITION/NAMESPACE/NAME`.
    ("resource", Space::Resource),
    ("service", Space::CatalogService),
    ("session", Space::Session),
];

/// Kinds of rules without names.
const WHOLE: [(&str, Space); 5] = [
    ("acl", Space::Auth),
    ("keyring", Space::Keyring),
    ("mesh", Space::Mesh),
    ("operator", Space::Operator),
    ("peering", Space::Peering),
];

/// Reads the rules of a policy: JSON if the text begins with `{`, else HCL. A rule for services
/// gives two: for the service, and for its intentions.
///
/// # Errors
///
/// The first error that was found, with its line or its path in JSON. A text or a number of rules
/// above the limits is an error, too.
pub fn parse(text: &str) -> Result<Vec<Rule>, RulesError> {
    if text.len() > ACL_RULES_BYTES_MAX {
        return Err(whole(format!("the rules of a policy have at most {ACL_RULES_BYTES_MAX} bytes")));
    }
    let written = if text.trim_start().starts_with('{') { of_json(text)? } else { of_hcl(text)? };
    if written.len() > ACL_RULES_MAX {
        return Err(whole(format!("a policy has at most {ACL_RULES_MAX} rules")));
    }
    let mut rules = Vec::new();
    for rule in written {
        let Written { at, .. } = &rule;
        let at = at.clone();
        rule.read(&mut rules).map_err(|problem| at.error(problem))?;
    }
    Ok(rules)
}

fn whole(problem: String) -> RulesError {
    RulesError { line: None, problem }
}

/// The line of a rule in HCL, or its path in JSON.
#[derive(Clone, Debug)]
enum At {
    Line(usize),
    Path(String),
}

impl At {
    fn error(&self, problem: String) -> RulesError {
        match self {
            Self::Line(line) => RulesError { line: Some(*line), problem },
            Self::Path(path) => whole(format!("{path}: {problem}")),
        }
    }
}

/// One rule as parsed, from HCL or JSON.
#[derive(Debug)]
struct Written {
    at: At,
    kind: String,
    /// `None` for `operator = "read"`.
    name: Option<String>,
    /// The names and values in its block; `policy` alone for `operator = "read"`.
    members: Vec<(String, String)>,
}

impl Written {
    fn read(self, rules: &mut Vec<Rule>) -> Result<(), String> {
        let Self { kind, name, members, .. } = self;
        if let Some((_, space)) = WHOLE.iter().find(|(known, _)| *known == kind) {
            if name.is_some() {
                return Err(format!("{kind} has no names: write {kind} = \"read\""));
            }
            let access = access(*space, &kind, &policy_of(&kind, &members, &[])?)?;
            rules.push(Rule { space: *space, name: Name::Exact(Bytes::new()), access });
            return Ok(());
        }
        let (base, is_prefix) = match kind.strip_suffix("_prefix") {
            Some(base) => (base, true),
            None => (kind.as_str(), false),
        };
        let Some((_, space)) = NAMED.iter().find(|(known, _)| *known == base) else {
            return Err(format!("{kind:?} is no kind of rule"));
        };
        let Some(name) = name else {
            return Err(format!("{kind} needs a name: write {kind} \"NAME\" {{ policy = \"read\" }}"));
        };
        if name.len() > ACL_RULE_NAME_BYTES_MAX {
            return Err(format!("a name has at most {ACL_RULE_NAME_BYTES_MAX} bytes"));
        }
        let optional: &[&str] = if *space == Space::CatalogService { &["intentions"] } else { &[] };
        let policy = policy_of(&kind, &members, optional)?;
        let what = format!("{kind} {name:?}");
        let access_given = access(*space, &what, &policy)?;
        if *space == Space::CatalogService {
            let intentions = members.iter().find(|(member, _)| member == "intentions");
            let intentions = match intentions {
                Some((_, word)) => access(Space::Intention, &format!("the intentions of {what}"), word)?,
                // The right to read a service contains its intentions.
                None if access_given.is_none() => Access::NONE,
                None => Access::READ | Access::LIST,
            };
            let name = of_name(Space::Intention, &name, is_prefix);
            rules.push(Rule { space: Space::Intention, name, access: intentions });
        }
        rules.push(Rule { space: *space, name: of_name(*space, &name, is_prefix), access: access_given });
        Ok(())
    }
}

/// The keys in `space` to which a rule for `name` applies.
fn of_name(space: Space, name: &str, is_prefix: bool) -> Name {
    let key = match space {
        Space::Kv => consul_key(name.as_bytes()),
        // As in the catalog, letter case does not matter: a rule for `Web` applies to `web`.
        Space::CatalogNode | Space::CatalogService | Space::Intention | Space::Session | Space::Agent => {
            canonical(name).into()
        }
        _ => space.key_of(name),
    };
    if is_prefix { Name::Prefix(key) } else { Name::Exact(key) }
}

/// The value of the member `policy`, which must exist. Refuses members that are there twice, and
/// others than the `optional` ones.
fn policy_of(kind: &str, members: &[(String, String)], optional: &[&str]) -> Result<String, String> {
    let mut policy = None;
    for (at, (name, value)) in members.iter().enumerate() {
        if members[..at].iter().any(|(earlier, _)| earlier == name) {
            return Err(format!("{name} is there twice"));
        }
        match name.as_str() {
            "policy" => policy = Some(value.clone()),
            name if optional.contains(&name) => {}
            "sentinel" => return Err("sentinel is not supported".to_owned()),
            name => return Err(format!("a rule of {kind} has no member {name:?}")),
        }
    }
    policy.ok_or_else(|| format!("a rule of {kind} needs a policy"))
}

fn access(space: Space, what: &str, word: &str) -> Result<Access, String> {
    match (word, space) {
        ("deny", _) => Ok(Access::NONE),
        ("read", Space::Kv) => Ok(Access::READ),
        ("list", Space::Kv) | ("read", _) => Ok(Access::READ | Access::LIST),
        ("write", _) => Ok(Access::ALL),
        (word, Space::Kv) => Err(format!("invalid policy {word:?} of {what}: write read, list, write or deny")),
        (word, _) => Err(format!("invalid policy {word:?} of {what}: write read, write or deny")),
    }
}

fn of_hcl(text: &str) -> Result<Vec<Written>, RulesError> {
    let body = parser::parse_body(text).map_err(|error| RulesError {
        line: Some(error.location().line()),
        problem: format!("the rules are no HCL: {}", error.message().replace('\n', "; ")),
    })?;
    let lines = Lines(text);
    let mut written = Vec::new();
    for structure in &body {
        let line = lines.of(structure.span());
        let error = |problem: String| RulesError { line: Some(line), problem };
        match structure {
            Structure::Attribute(attribute) => {
                let kind = attribute.key.as_str();
                match &attribute.value {
                    Expression::Object(object) => {
                        for (name, value) in object {
                            let line = lines.of(name.span()).max(line);
                            let error = |problem: String| RulesError { line: Some(line), problem };
                            let (name, members) = (key_text(name).map_err(error)?, value.expr());
                            let members =
                                members.as_object().ok_or_else(|| error(format!("{kind}: wanted a block")))?;
                            let members = members
                                .iter()
                                .map(|(member, value)| Ok((key_text(member)?, text_of(value.expr())?)))
                                .collect::<Result<_, String>>()
                                .map_err(error)?;
                            written.push(Written {
                                at: At::Line(line),
                                kind: kind.to_owned(),
                                name: Some(name),
                                members,
                            });
                        }
                    }
                    value => {
                        let members = vec![("policy".to_owned(), text_of(value).map_err(error)?)];
                        written.push(Written { at: At::Line(line), kind: kind.to_owned(), name: None, members });
                    }
                }
            }
            Structure::Block(block) => {
                let kind = block.ident.as_str().to_owned();
                let name = match block.labels.as_slice() {
                    [] => None,
                    [name] => Some(name.as_str().to_owned()),
                    _ => return Err(error(format!("{kind} has one name"))),
                };
                let members = members_of(&block.body, &lines)?;
                written.push(Written { at: At::Line(line), kind, name, members });
            }
        }
    }
    Ok(written)
}

fn members_of(body: &Body, lines: &Lines<'_>) -> Result<Vec<(String, String)>, RulesError> {
    let member = |structure: &Structure| {
        let read = match structure {
            Structure::Attribute(attribute) => {
                text_of(&attribute.value).map(|text| (attribute.key.as_str().to_owned(), text))
            }
            Structure::Block(block) => Err(format!("there are no blocks in a rule, as {} is", block.ident.as_str())),
        };
        read.map_err(|problem| RulesError { line: Some(lines.of(structure.span())), problem })
    };
    body.iter().map(member).collect()
}

fn key_text(key: &ObjectKey) -> Result<String, String> {
    match key {
        ObjectKey::Ident(ident) => Ok(ident.as_str().to_owned()),
        ObjectKey::Expression(expression) => text_of(expression),
    }
}

fn text_of(expression: &Expression) -> Result<String, String> {
    let text = expression.as_str().map(str::to_owned);
    text.ok_or_else(|| "wanted a text in quotes, without ${…}".to_owned())
}

struct Lines<'a>(&'a str);

impl Lines<'_> {
    /// The line in which a part begins, from 1.
    fn of(&self, span: Option<std::ops::Range<usize>>) -> usize {
        let begin = span.map_or(0, |span| span.start).min(self.0.len());
        // A span may begin with the blanks before its first letter.
        let blank = self.0.as_bytes()[begin..].iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        1 + self.0.as_bytes()[..begin + blank].iter().filter(|byte| **byte == b'\n').count()
    }
}

fn of_json(text: &str) -> Result<Vec<Written>, RulesError> {
    let value: Value = serde_json::from_str(text)
        .map_err(|error| RulesError { line: Some(error.line()), problem: format!("the rules are no JSON: {error}") })?;
    let Value::Object(kinds) = value else { return Err(whole("the rules are no JSON object".to_owned())) };
    let mut written = Vec::new();
    for (kind, value) in &kinds {
        let texts = match value {
            Value::String(word) => {
                let members = vec![("policy".to_owned(), word.clone())];
                written.push(Written { at: At::Path(kind.clone()), kind: kind.clone(), name: None, members });
                continue;
            }
            Value::Object(names) => vec![names],
            // HCL's form in JSON: a list of objects.
            Value::Array(items) => items
                .iter()
                .map(|item| item.as_object().ok_or_else(|| whole(format!("{kind}: wanted a list of objects"))))
                .collect::<Result<_, _>>()?,
            _ => return Err(whole(format!("{kind}: wanted a text or an object"))),
        };
        for (name, value) in texts.into_iter().flatten() {
            let path = format!("{kind} {name:?}");
            let wanted = || whole(format!("{path}: wanted an object with texts, such as {{\"policy\": \"read\"}}"));
            let object = match value {
                Value::Object(object) => object,
                Value::Array(items) => match items.as_slice() {
                    [Value::Object(object)] => object,
                    _ => return Err(wanted()),
                },
                _ => return Err(wanted()),
            };
            let members = object
                .iter()
                .map(|(member, value)| Some((member.clone(), value.as_str()?.to_owned())))
                .collect::<Option<_>>()
                .ok_or_else(wanted)?;
            written.push(Written { at: At::Path(path), kind: kind.clone(), name: Some(name.clone()), members });
        }
    }
    Ok(written)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(space: Space, name: Name, access: Access) -> Rule {
        Rule { space, name, access }
    }

    fn exact(name: &'static str) -> Name {
        Name::Exact(name.into())
    }

    fn prefix(name: &'static str) -> Name {
        Name::Prefix(name.into())
    }

    #[test]
    fn resources_are_named_by_their_parts() {
        use headwater_types::resource::{ResourceId, Selector, Tenancy, Type, resource_key};
        let id = ResourceId {
            uid: String::new(),
            name: "korn".to_owned(),
            type_: Type::new("demo", "v2", "Artist"),
            tenancy: Tenancy::new("default", "default"),
        };
        let text = "resource \"demo/Artist/default/default/korn\" { policy = \"write\" }\n\
                    resource_prefix \"demo/Artist/\" { policy = \"read\" }";
        let rights = headwater_types::Rights::of_rules(parse(text).unwrap(), |_| Access::NONE);
        assert!(rights.allows(Space::Resource, &resource_key(&id), Access::WRITE));
        let kind = Selector::everywhere(id.type_.clone()).range();
        assert!(rights.covers(Space::Resource, &kind, Access::READ));
        assert!(!rights.covers(Space::Resource, &kind, Access::WRITE));
        let other = Selector::everywhere(Type::new("demo", "v2", "Artists")).range();
        assert!(!rights.touches(Space::Resource, &other, Access::READ));
    }

    #[test]
    fn every_kind_of_rule_is_read() {
        let read = Access::READ | Access::LIST;
        for (text, wanted) in [
            ("", vec![]),
            ("# nothing\n// at all\n/* here */", vec![]),
            ("key \"a/b\" {\n  policy = \"read\"\n}", vec![rule(Space::Kv, exact("consul/kv/a/b"), Access::READ)]),
            ("key_prefix \"\" { policy = \"list\" }", vec![rule(Space::Kv, prefix("consul/kv/"), read)]),
            ("key_prefix \"a\" { policy = \"deny\" }", vec![rule(Space::Kv, prefix("consul/kv/a"), Access::NONE)]),
            (
                "service \"Web\" { policy = \"write\" }",
                vec![
                    rule(Space::Intention, exact("web"), read),
                    rule(Space::CatalogService, exact("web"), Access::ALL),
                ],
            ),
            (
                "service_prefix \"w\" {\n policy = \"deny\"\n intentions = \"write\"\n}",
                vec![
                    rule(Space::Intention, prefix("w"), Access::ALL),
                    rule(Space::CatalogService, prefix("w"), Access::NONE),
                ],
            ),
            ("node \"N1\" { policy = \"read\" }", vec![rule(Space::CatalogNode, exact("n1"), read)]),
            ("session_prefix \"\" { policy = \"write\" }", vec![rule(Space::Session, prefix(""), Access::ALL)]),
            ("agent \"a\" { policy = \"read\" }", vec![rule(Space::Agent, exact("a"), read)]),
            ("event \"E\" { policy = \"write\" }", vec![rule(Space::Event, exact("E"), Access::ALL)]),
            ("query_prefix \"q\" { policy = \"read\" }", vec![rule(Space::Query, prefix("q"), read)]),
            (
                "operator = \"read\"\nkeyring = \"write\"\nacl = \"deny\"\nmesh = \"read\"\npeering = \"write\"",
                vec![
                    rule(Space::Operator, exact(""), read),
                    rule(Space::Keyring, exact(""), Access::ALL),
                    rule(Space::Auth, exact(""), Access::NONE),
                    rule(Space::Mesh, exact(""), read),
                    rule(Space::Peering, exact(""), Access::ALL),
                ],
            ),
            (
                "key_prefix = {\n \"a/\" = { policy = \"read\" }\n}",
                vec![rule(Space::Kv, prefix("consul/kv/a/"), Access::READ)],
            ),
            (
                r#"{"key": {"a": {"policy": "write"}}, "operator": "read"}"#,
                vec![rule(Space::Kv, exact("consul/kv/a"), Access::ALL), rule(Space::Operator, exact(""), read)],
            ),
            (r#"{"node_prefix": [{"": [{"policy": "read"}]}]}"#, vec![rule(Space::CatalogNode, prefix(""), read)]),
        ] {
            assert_eq!(parse(text).as_ref(), Ok(&wanted), "{text}");
        }
    }

    #[test]
    fn what_is_no_rule_is_refused_with_its_line() {
        for (text, wanted) in [
            ("key \"a\" {\n", "line 1: the rules are no HCL"),
            ("\nkeys \"a\" { policy = \"read\" }", "line 2: \"keys\" is no kind of rule"),
            (
                "key \"a\" { policy = \"reed\" }",
                "line 1: invalid policy \"reed\" of key \"a\": write read, list, write or deny",
            ),
            (
                "node \"a\" { policy = \"list\" }",
                "line 1: invalid policy \"list\" of node \"a\": write read, write or deny",
            ),
            ("\n\noperator = \"list\"", "line 3: invalid policy \"list\" of operator"),
            ("operator \"x\" { policy = \"read\" }", "line 1: operator has no names"),
            ("key { policy = \"read\" }", "line 1: key needs a name"),
            ("key = \"read\"", "line 1: key needs a name"),
            ("key \"a\" { }", "line 1: a rule of key needs a policy"),
            ("key \"a\" { intentions = \"read\" }", "line 1: a rule of key has no member \"intentions\""),
            (
                "key \"a\" {\n policy = \"read\"\n sentinel {\n }\n}",
                "line 3: there are no blocks in a rule, as sentinel is",
            ),
            ("key \"a\" {\n policy = 7\n}", "line 2: wanted a text in quotes"),
            ("key \"a\" \"b\" { policy = \"read\" }", "line 1: key has one name"),
            (
                "service \"a\" {\n policy = \"read\"\n intentions = \"list\"\n}",
                "line 1: invalid policy \"list\" of the intentions",
            ),
            ("{\n\"key\": ", "line 2: the rules are no JSON"),
            (r#"{"key": {"a": "read"}}"#, "key \"a\": wanted an object with texts"),
            (r#"{"key": {"a": {"policy": "x"}}}"#, "key \"a\": invalid policy \"x\""),
            (r#"{"keys": {"a": {"policy": "read"}}}"#, "keys \"a\": \"keys\" is no kind of rule"),
            (r#"{"operator": 7}"#, "operator: wanted a text or an object"),
        ] {
            let refused = parse(text).unwrap_err().to_string();
            assert!(refused.starts_with(wanted), "{text:?}: {refused}");
        }
        assert!(parse(&"#".repeat(ACL_RULES_BYTES_MAX)).is_ok());
        assert!(parse(&"#".repeat(ACL_RULES_BYTES_MAX + 1)).is_err());
        let rules =
            |count: usize| (0..count).map(|at| format!("key \"{at}\" {{ policy = \"read\" }}\n")).collect::<String>();
        assert!(parse(&rules(ACL_RULES_MAX)).is_ok());
        assert!(parse(&rules(ACL_RULES_MAX + 1)).is_err());
    }
}
