//! Compiles the rules of a token into its rights.
//!
//! Owns the default of each space, and which rules stand in for missing ones. Knows no state.
//! Invariant: the same rules, in any order, give the same rights.

use bytes::Bytes;

use headwater_types::KeyRange;
use headwater_types::rights::{Access, Name, Rights, Rule, Space};

/// The rights that the rules of all policies of a token give together. `manages` is set if one of
/// the policies is that of unlimited access: it adds a rule for all names of every space, also of
/// spaces that Consul does not have. A space of the mesh or of peerings without rules takes those
/// of the operator. With `default_allow`, everything without a rule is allowed, except in the
/// spaces of rights and of the cluster.
pub(super) fn compile(mut rules: Vec<Rule>, manages: bool, default_allow: bool) -> Rights {
    if manages {
        let everything = Name::Prefix(Bytes::new());
        rules.extend(Space::ALL.map(|space| Rule { space, name: everything.clone(), access: Access::ALL }));
    }
    // Rules of the operator stand in for missing ones of the mesh and of peerings.
    for space in [Space::Mesh, Space::Peering] {
        if !rules.iter().any(|rule| rule.space == space) {
            let stand_ins: Vec<Rule> = rules
                .iter()
                .filter(|rule| rule.space == Space::Operator)
                .map(|rule| Rule { space, ..rule.clone() })
                .collect();
            rules.extend(stand_ins);
        }
    }
    let rights = Rights::of_rules(rules, |space| match space {
        // Without a rule nobody has access to rights or to the cluster, as in Consul.
        Space::Auth | Space::Cluster => Access::NONE,
        _ if default_allow => Access::ALL,
        _ => Access::NONE,
    });
    let is_all = |space| rights.covers(space, &KeyRange::all(), Access::ALL);
    if manages && Space::ALL.into_iter().all(is_all) { Rights::everything() } else { rights }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::rules::parse;
    use super::*;
    use headwater_types::acl::builtin_policies;
    use headwater_types::consul::consul_key;

    fn rights(policies: &[&str], default_allow: bool) -> Rights {
        let rules = policies.iter().flat_map(|text| parse(text).unwrap()).collect();
        compile(rules, false, default_allow)
    }

    fn key(path: &str) -> Bytes {
        consul_key(path.as_bytes())
    }

    #[test]
    fn the_exact_rule_counts_then_the_longest_prefix_then_the_default() {
        let policies = [
            "key \"a/b\" { policy = \"deny\" }\nkey_prefix \"a/\" { policy = \"write\" }",
            "key_prefix \"a/c\" { policy = \"read\" }\nkey_prefix \"\" { policy = \"list\" }",
        ];
        let rights = rights(&policies, true);
        for (path, wanted) in [
            ("a/b", Access::NONE),
            ("a/bb", Access::ALL),
            ("a/c", Access::READ),
            ("a/cc", Access::READ),
            ("z", Access::READ | Access::LIST),
            ("", Access::READ | Access::LIST),
        ] {
            assert_eq!(rights.access_to(Space::Kv, &key(path)), wanted, "{path}");
        }
        // The default, of a key that is no path, and of a space without rules.
        assert_eq!(rights.access_to(Space::Kv, b"other"), Access::ALL);
        assert_eq!(rights.access_to(Space::CatalogNode, b"n"), Access::ALL);
        assert_eq!(rights.access_to(Space::Auth, b""), Access::NONE);
    }

    #[test]
    fn deny_wins_among_equals_and_otherwise_the_stronger_word() {
        let of = |one: &str, other: &str| {
            let text = |word: &str| format!("node \"n\" {{ policy = \"{word}\" }}");
            rights(&[&text(one), &text(other)], true).access_to(Space::CatalogNode, b"n")
        };
        assert_eq!(of("write", "deny"), Access::NONE);
        assert_eq!(of("deny", "read"), Access::NONE);
        assert_eq!(of("read", "write"), Access::ALL);
        assert_eq!(of("read", "read"), Access::READ | Access::LIST);
    }

    #[test]
    fn all_keys_below_a_prefix_are_deleted_with_the_right_to_each() {
        let rights = rights(
            &[
                "key_prefix \"a/\" { policy = \"write\" }\nkey \"a/x\" { policy = \"read\" }\nkey_prefix \"b/\" { policy = \"write\" }",
            ],
            false,
        );
        let covers = |prefix: &str| rights.covers(Space::Kv, &KeyRange::prefix(key(prefix)), Access::WRITE);
        assert!(covers("b/") && covers("b/1") && covers("a/y"));
        assert!(!covers("a/") && !covers("a/x") && !covers("b") && !covers(""));
    }

    #[test]
    fn the_operator_stands_in_for_mesh_and_peering() {
        let both = rights(&["operator = \"write\"\nmesh = \"deny\""], false);
        assert!(both.allows(Space::Peering, b"", Access::WRITE) && !both.allows(Space::Mesh, b"", Access::READ));
        assert!(!rights(&["mesh = \"write\""], false).allows(Space::Peering, b"", Access::READ));
    }

    #[test]
    fn management_is_everything_unless_something_is_denied() {
        let [management, read_only] = builtin_policies();
        let all = compile(parse(&management.rules).unwrap(), true, false);
        assert!(all.may_everything());
        let mut rules = parse(&management.rules).unwrap();
        rules.extend(parse("key \"secret\" { policy = \"deny\" }").unwrap());
        let most = compile(rules, true, false);
        assert!(!most.may_everything());
        assert!(!most.allows(Space::Kv, &key("secret"), Access::READ));
        assert!(most.allows(Space::Kv, &key("other"), Access::ALL) && most.allows(Space::Auth, b"", Access::WRITE));
        assert!(most.allows(Space::Kv, b"etcd", Access::ALL) && most.allows(Space::Cluster, b"", Access::WRITE));
        let some = rights(&[&read_only.rules], false);
        assert!(some.allows(Space::Auth, b"", Access::READ) && !some.allows(Space::Auth, b"", Access::WRITE));
        assert!(some.allows(Space::Kv, &key("x"), Access::READ) && !some.allows(Space::Kv, b"etcd", Access::READ));
    }

    fn word() -> impl Strategy<Value = &'static str> {
        prop_oneof![Just("read"), Just("list"), Just("write"), Just("deny")]
    }

    fn strength(word: &str) -> Access {
        match word {
            "read" => Access::READ,
            "list" => Access::READ | Access::LIST,
            "write" => Access::ALL,
            _ => Access::NONE,
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        /// Access to a key of Consul's KV by parsed and compiled policies equals that by a naive
        /// model: exact rules, else the longest prefix, else the default; among equals deny wins.
        #[test]
        fn policies_mean_what_a_naive_model_says(
            policies in proptest::collection::vec(
                proptest::collection::vec((any::<bool>(), "[ab/]{0,3}", word()), 0..4), 0..4),
            asked in "[ab/]{0,4}",
            default_allow in any::<bool>(),
        ) {
            let texts: Vec<String> = policies.iter().map(|rules| {
                let line = |(is_prefix, name, word): &(bool, String, &str)| {
                    format!("{} \"{name}\" {{ policy = \"{word}\" }}\n", if *is_prefix { "key_prefix" } else { "key" })
                };
                rules.iter().map(line).collect()
            }).collect();
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            let rights = rights(&texts, default_allow);
            let all: Vec<_> = policies.iter().flatten().collect();
            let exact: Vec<_> = all.iter().filter(|(is_prefix, name, _)| !is_prefix && *name == asked).collect();
            let longest = all
                .iter()
                .filter(|(is_prefix, name, _)| *is_prefix && asked.starts_with(name.as_str()))
                .map(|(_, name, _)| name.len())
                .max();
            let best: Vec<_> = match (exact.is_empty(), longest) {
                (false, _) => exact,
                (true, Some(len)) => all
                    .iter()
                    .filter(|(is_prefix, name, _)| *is_prefix && name.len() == len && asked.starts_with(name.as_str()))
                    .collect(),
                (true, None) => Vec::new(),
            };
            let wanted = if best.is_empty() {
                if default_allow { Access::ALL } else { Access::NONE }
            } else if best.iter().any(|(_, _, word)| *word == "deny") {
                Access::NONE
            } else {
                best.iter().fold(Access::NONE, |sum, (_, _, word)| sum | strength(word))
            };
            prop_assert_eq!(rights.access_to(Space::Kv, &key(&asked)), wanted);
        }
    }
}
