use std::collections::BTreeSet;
use std::path::PathBuf;

use serde_json::Value;

use super::cargo::{Graph, LockFile, LockedPackage, Package, host, packages, root};
use super::licence::Expression;
use super::policy::Policy;
use super::{bom, cargo};

#[test]
fn all_dependencies_have_allowed_licences_and_sources() {
    let (policy, lock) = (Policy::read().unwrap(), LockFile::read().unwrap());
    let packages = packages(&host().unwrap()).unwrap();
    assert!(packages.len() > 200 && lock.packages.len() >= packages.len(), "{}", packages.len());
    let found = policy.violations(&lock, &packages, &root().canonicalize().unwrap());
    assert!(found.is_empty(), "{} findings:\n{}", found.len(), found.join("\n"));
}

const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// A lock file and packages without a violation: one own package, and one of the registry.
fn clean() -> (Policy, LockFile, Vec<Package>) {
    let mut policy = Policy::read().unwrap();
    policy.licenses.allow = vec!["Apache-2.0".to_owned(), "MIT".to_owned()];
    let locked = |name: &str, source: Option<&str>| LockedPackage {
        name: name.to_owned(),
        version: "1.0.0".to_owned(),
        source: source.map(str::to_owned),
        checksum: source.map(|_| "00".repeat(32)),
    };
    let package = |name: &str, source: Option<&str>, license: &str, manifest: &str| Package {
        name: name.to_owned(),
        version: "1.0.0".to_owned(),
        license: Some(license.to_owned()),
        source: source.map(str::to_owned),
        manifest_path: PathBuf::from(manifest),
    };
    let lock = LockFile { packages: vec![locked("own", None), locked("other", Some(REGISTRY))] };
    let packages = vec![
        package("own", None, "Apache-2.0", "/project/own/Cargo.toml"),
        package("other", Some(REGISTRY), "MIT OR GPL-3.0-only", "/registry/other-1.0.0/Cargo.toml"),
    ];
    (policy, lock, packages)
}

#[test]
fn every_rule_finds_what_it_forbids() {
    type Break = fn(&mut Policy, &mut LockFile, &mut Vec<Package>);
    let cases: [(Break, Option<&str>); 14] = [
        (|_, _, _| {}, None),
        (|_, _, packages| packages[1].license = None, Some("other 1.0.0 names no licence")),
        (|_, _, packages| packages[1].license = Some("GPL-3.0-only".into()), Some("licence GPL-3.0-only, which")),
        (|_, _, packages| packages[1].license = Some("MIT AND GPL-3.0-only".into()), Some("which deny.toml does not")),
        (|_, _, packages| packages[1].license = Some("MIT ISC".into()), Some("is no licence expression")),
        (|policy, _, _| policy.licenses.allow.push("Zlib".into()), Some("allows Zlib, which no package has")),
        (|policy, _, _| policy.sources.allow_registry.clear(), Some("from registry+https://github.com")),
        (|policy, _, _| policy.sources.unknown_git = "warn".into(), Some("unknown-git is \"warn\"")),
        (|policy, _, _| policy.sources.unknown_registry = "allow".into(), Some("unknown-registry is \"allow\"")),
        (|_, lock, _| lock.packages[1].checksum = None, Some("other 1.0.0 has no checksum")),
        (
            |_, lock, _| lock.packages[1].source = Some("registry+https://example.com/index".into()),
            Some("from registry+https://example.com/index"),
        ),
        (|_, lock, _| lock.packages[1].source = Some("git+https://example.com/x?rev=1#1".into()), Some("from git+")),
        (|_, lock, _| lock.packages[1].source = Some("file:///x".into()), Some("from file:///x")),
        (
            |_, _, packages| packages[0].manifest_path = PathBuf::from("/elsewhere/own/Cargo.toml"),
            Some("own 1.0.0 is a folder outside of the project"),
        ),
    ];
    for (number, (change, wanted)) in cases.into_iter().enumerate() {
        let (mut policy, mut lock, mut packages) = clean();
        change(&mut policy, &mut lock, &mut packages);
        let found = policy.violations(&lock, &packages, "/project".as_ref());
        match wanted {
            None => assert!(found.is_empty(), "{found:?}"),
            Some(wanted) => assert!(found.iter().any(|line| line.contains(wanted)), "{number}: {found:?}"),
        }
    }
    let (mut policy, mut lock, packages) = clean();
    lock.packages[1].source = Some("git+https://example.com/x?rev=1#1".into());
    policy.sources.allow_git = vec!["https://example.com/x".into()];
    assert!(policy.violations(&lock, &packages, "/project".as_ref()).is_empty(), "an allowed repository");
}

fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value[key].as_str().unwrap_or_else(|| panic!("no {key} in {value}"))
}

#[test]
fn the_list_of_the_program_is_whole_and_names_everything_once() {
    let target = host().unwrap();
    let document = bom::of_program(&target).unwrap();
    assert_eq!(document, bom::of_program(&target).unwrap(), "it is the same each time");
    let document: Value = serde_json::from_str(&document).unwrap();
    assert_eq!((text(&document, "bomFormat"), text(&document, "specVersion")), ("CycloneDX", "1.5"));
    assert_eq!(document["version"], 1);
    let program = &document["metadata"]["component"];
    assert_eq!((text(program, "type"), text(program, "name")), ("application", cargo::PROGRAM));
    assert_eq!(text(program, "version"), env!("CARGO_PKG_VERSION"));
    assert!(program.get("purl").is_none(), "the registry has no such package of the project");

    let components = document["components"].as_array().unwrap();
    let lock = LockFile::read().unwrap();
    let checksums = lock.checksums();
    let mut references = BTreeSet::from([text(program, "bom-ref")]);
    for component in components {
        let (name, version) = (text(component, "name"), text(component, "version"));
        assert_eq!(text(component, "type"), "library", "{name}");
        assert!(["required", "excluded"].contains(&text(component, "scope")), "{name}");
        assert!(references.insert(text(component, "bom-ref")), "{name} {version} is there twice");
        let expression = text(&component["licenses"][0], "expression");
        assert_eq!(Expression::parse(expression).unwrap().to_string(), expression, "{name}");
        match checksums.get(&(name.to_owned(), version.to_owned())) {
            Some(checksum) => {
                assert_eq!(
                    (text(&component["hashes"][0], "alg"), text(&component["hashes"][0], "content")),
                    ("SHA-256", *checksum)
                );
                assert!(checksum.len() == 64 && checksum.bytes().all(|byte| byte.is_ascii_hexdigit()), "{name}");
                assert_eq!(text(component, "purl"), format!("pkg:cargo/{name}@{}", version.replace('+', "%2B")));
            }
            None => {
                assert!(name.starts_with("headwater-") && component.get("purl").is_none(), "{name}");
                assert!(component.get("hashes").is_none(), "{name}");
            }
        }
    }

    let mut described = BTreeSet::new();
    for dependency in document["dependencies"].as_array().unwrap() {
        assert!(described.insert(text(dependency, "ref")), "{dependency} is there twice");
        for wanted in dependency["dependsOn"].as_array().unwrap() {
            assert!(references.contains(wanted.as_str().unwrap()), "{wanted} is no component");
        }
    }
    assert_eq!(described, references, "each component has its dependencies");
}

#[test]
fn the_list_tells_what_is_linked_from_what_builds_and_has_nothing_of_tests() {
    let graph = Graph::of_program(&host().unwrap()).unwrap();
    let linked = |name: &str| {
        let found: Vec<bool> =
            graph.0.iter().filter(|((found, _), _)| found == name).map(|(_, node)| node.is_linked).collect();
        found.into_iter().reduce(|one, other| one || other)
    };
    for name in ["headwater-storage", "librocksdb-sys", "rustls", "tokio", "openraft"] {
        assert_eq!(linked(name), Some(true), "{name}");
    }
    for name in ["bindgen", "syn", "serde_derive"] {
        assert_eq!(linked(name), Some(false), "{name}");
    }
    for name in ["criterion", "etcd-client", "proptest", "headwater-chaos", "headwater-supply", "fail"] {
        assert_eq!(linked(name), None, "{name}");
    }
}
