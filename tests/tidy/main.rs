//! Rules about the project's text that the compiler does not check: imports only of lower layers,
//! external crates with one owner, heads and lengths of files, references and links that resolve,
//! no path of one machine, the wording of comments. Every rule is also run on a text that breaks
//! it, to show that it finds something.

// The whole program is a test; clippy knows only functions that are.
#![allow(clippy::unwrap_used)]

mod pages;
mod references;
mod rules;
mod source;
mod words;

use std::path::{Path, PathBuf};

use rules::{Finding, check};
use source::Source;

/// Folders with files of the project. The files in the root belong to it, too.
const FOLDERS: &[&str] =
    &["src", "tests", "benches", "examples", "docs", "proto", "scripts", "cluster", ".ci", ".cargo"];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn project() -> Vec<Source> {
    let mut sources = Vec::new();
    for folder in FOLDERS {
        collect(&root(), Path::new(folder), &mut sources);
    }
    for entry in std::fs::read_dir(root()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_file() && ["md", "toml", "rs"].iter().any(|ending| name.ends_with(&format!(".{ending}"))) {
            sources.extend(Source::read(&root(), Path::new(&name)));
        }
    }
    sources
}

fn collect(root: &Path, folder: &Path, sources: &mut Vec<Source>) {
    let Ok(entries) = std::fs::read_dir(root.join(folder)) else { return };
    for entry in entries {
        let entry = entry.unwrap();
        let path = folder.join(entry.file_name());
        // Data of the local cluster.
        if path == Path::new("cluster/run") {
            continue;
        }
        if entry.file_type().unwrap().is_dir() {
            collect(root, &path, sources);
        } else {
            sources.extend(Source::read(root, &path));
        }
    }
}

#[test]
fn the_project_is_tidy() {
    let sources = project();
    assert!(sources.len() > 50, "only {} files were found: the walk is broken", sources.len());
    for name in rules::LAYERS.iter().map(|layer| layer.name) {
        let present = sources.iter().any(|source| rules::crate_of(source).is_some_and(|found| found == name));
        assert!(present, "crate {name} of the layering table does not exist: correct the table");
    }
    for face in rules::FACES {
        let head = Path::new("src/api").join(face).join("mod.rs");
        assert!(sources.iter().any(|source| source.path == head), "face {face} does not exist: correct the table");
    }
    let pages = references::Pages::of(&sources);
    assert!(pages.count() > 3, "the pages of docs/spec were not found");
    let findings = sources.iter().flat_map(|source| {
        // The tests of this program contain references that do not resolve.
        let is_own = source.path.starts_with("tests/tidy");
        let references = if is_own { Vec::new() } else { pages.check(source) };
        check(source).into_iter().chain(references)
    });
    let links = pages::check(&sources, &|path| root().join(path).exists());
    let findings: Vec<String> =
        findings.chain(links).map(|finding| finding.to_string()).chain(words::Words::of(&sources).finding()).collect();
    assert!(findings.is_empty(), "{} findings:\n{}", findings.len(), findings.join("\n"));
}

/// Path and text of a source, and a part of the finding that it must cause; `None` for no finding.
const VIOLATIONS: &[(&str, &str, Option<&str>)] = &[
    // Layers
    (
        "src/types/Cargo.toml",
        "[dependencies]\nheadwater-storage.workspace = true\n",
        Some("types must not import storage"),
    ),
    ("src/fsm/Cargo.toml", "[dependencies]\nheadwater-fail-points = \"1\"\n", Some("fsm must not import fail_points")),
    (
        "src/api/Cargo.toml",
        "[dependencies]\nbytes = \"1\"\nheadwater-raft = { path = \"x\" }\n",
        Some("api must not import raft"),
    ),
    ("src/types/Cargo.toml", "[dependencies]\n\n[dev-dependencies]\nheadwater-storage.workspace = true\n", None),
    ("src/api/Cargo.toml", "[dependencies]\nheadwater-node.workspace = true\n", None),
    ("src/unknown/Cargo.toml", "", Some("unknown is not in the layering table")),
    ("src/node/x.rs", "//! Head.\nuse headwater_proto::pb::etcdserverpb;\n", Some("must not name the messages")),
    ("src/node/x.rs", "//! Head.\nuse headwater_proto::{codec, pb};\n", Some("must not name the messages")),
    ("src/node/x.rs", "//! Head.\nuse headwater_proto::codec;\n", None),
    ("src/api/x.rs", "//! Head.\nuse headwater_proto::pb::etcdserverpb;\n", None),
    // Faces
    (
        "src/api/rest/x.rs",
        "//! Head.\nuse crate::gateway::y;\n",
        Some("the face rest must not import the face gateway"),
    ),
    ("src/api/rest/x.rs", "//! Head.\nuse super::super::gateway::y;\n", Some("must not import the face gateway")),
    ("src/api/rest/mod.rs", "//! Head.\nuse super::gateway::y;\n", Some("rest must not import the face gateway")),
    ("src/api/rest/x.rs", "//! Head.\nuse crate::{service, gateway::y};\n", Some("must not import the face gateway")),
    ("src/api/rest/x.rs", "//! Head.\nuse headwater_api_etcd::y;\n", Some("rest must not import the face etcd")),
    ("src/api/rest/x.rs", "//! Head.\nuse crate::rest::y;\nuse headwater_api_shared::errors;\n", None),
    ("src/api/service.rs", "//! Head.\nuse super::gateway::Gateway;\nuse headwater_api_dns::DnsService;\n", None),
    (
        "src/api/dns/Cargo.toml",
        "[dependencies]\nheadwater-api-consul.workspace = true\n",
        Some("api_dns must not import api_consul"),
    ),
    (
        "src/api/shared/Cargo.toml",
        "[dependencies]\nheadwater-api-dns.workspace = true\n",
        Some("api_shared must not import api_dns"),
    ),
    (
        "src/api/etcd/Cargo.toml",
        "[dependencies]\nheadwater-api-early.workspace = true\n",
        Some("api_etcd must not import api_early"),
    ),
    ("src/api/early/Cargo.toml", "[dependencies]\nheadwater-api-etcd.workspace = true\n", None),
    ("src/api/consul/Cargo.toml", "[dependencies]\nheadwater-api-shared.workspace = true\n", None),
    ("src/api/unknown/Cargo.toml", "", Some("api_unknown is not in the layering table")),
    // Crates with one owner
    ("src/fsm/x.rs", "//! Head.\nuse rocksdb::DB;\n", Some("rocksdb belongs to src/storage")),
    ("src/node/x.rs", "//! Head.\nfn f(e: openraft::Entry) {}\n", Some("openraft belongs to src/raft")),
    ("src/cli/x.rs", "//! Head.\nuse cel::Program;\n", Some("cel belongs to src/schema")),
    ("src/storage/x.rs", "//! Head.\nuse rocksdb::DB;\n", None),
    ("tests/it/x.rs", "//! Head.\nuse openraft::Raft;\n", Some("openraft belongs to src/raft")),
    ("tests/sim/x.rs", "//! Head.\nuse openraft::Raft;\n", None),
    ("tests/sim/x.rs", "//! Head.\nuse rocksdb::DB;\n", Some("rocksdb belongs to src/storage")),
    // Determinism
    ("src/fsm/x.rs", "//! Head.\nfn f() { std::time::Instant::now(); }\n", Some("fsm must not name Instant")),
    ("src/fsm/x.rs", "//! Head.\nuse std::collections::HashMap;\n", Some("fsm must not name HashMap")),
    ("src/fsm/x.rs", "//! Head.\nasync fn f() {}\n", Some("fsm must not name async")),
    ("src/types/x.rs", "//! Head.\nuse rand::Rng;\n", Some("types must not name rand")),
    ("src/fsm/tests/x.rs", "//! Head.\nuse std::collections::HashMap;\n", None),
    ("src/fsm/x.rs", "//! Head.\n#[cfg(test)]\nmod tests {\n    use std::collections::HashMap;\n}\n", None),
    // Output of commands
    ("src/cli/x.rs", "//! Head.\nfn f() { eprintln!(\"x\"); }\n", Some("eprintln! panics if nobody reads")),
    ("src/load/x.rs", "//! Head.\nfn f() { println!(\"x\"); }\n", Some("println! panics if nobody reads")),
    ("src/cli/x.rs", "//! Head.\nfn f() { print(1); notice!(\"x\"); }\n", None),
    ("src/cli/x/tests.rs", "fn f() { eprintln!(\"x\"); }\n", None),
    ("src/node/x.rs", "//! Head.\nfn f() { eprintln!(\"x\"); }\n", None),
    // Heads and lengths
    ("src/node/x.rs", "use crate::types::Put;\n", Some("has no //! head")),
    ("src/node/tests.rs", "use super::*;\n", None),
    // Text
    ("README.md", "Look into /home/somebody/notes.\n", Some("names a machine's folder: /home/")),
    ("scripts/x", "cd /root/project\n", Some("names a machine's folder: /root")),
];

#[test]
fn every_rule_finds_what_it_forbids() {
    for (path, text, wanted) in VIOLATIONS {
        let found: Vec<String> =
            check(&Source::new(Path::new(path), (*text).to_owned())).iter().map(Finding::to_string).collect();
        match wanted {
            Some(wanted) => {
                assert!(found.len() == 1 && found[0].contains(wanted), "{path} {text:?}: wanted {wanted:?}, {found:?}");
            }
            None => assert!(found.is_empty(), "{path} {text:?}: {found:?}"),
        }
    }
    let long = Source::new(Path::new("src/node/x.rs"), "//! Head.\n".repeat(rules::LINES_MAX + 1));
    assert!(check(&long)[0].to_string().contains("lines"), "a long file is found");
    let bearable = Source::new(Path::new("src/node/x.rs"), "//! Head.\n".repeat(rules::LINES_MAX));
    assert!(check(&bearable).is_empty());
    let comment = |chars: usize| format!("//! Head.\nfn f() {{\n    // {}\n}}\n", "ä".repeat(chars - "    // ".len()));
    let wide = Source::new(Path::new("src/node/x.rs"), comment(rules::COMMENT_CHARS_MAX + 1));
    assert!(check(&wide)[0].to_string().starts_with("src/node/x.rs:3: is a comment of"), "a wide comment is found");
    let bearable = Source::new(Path::new("src/node/x.rs"), comment(rules::COMMENT_CHARS_MAX));
    assert!(check(&bearable).is_empty());
}

#[test]
fn an_upward_import_in_a_real_manifest_is_found() {
    let path = Path::new("src/types/Cargo.toml");
    let text = std::fs::read_to_string(root().join(path)).unwrap();
    assert!(check(&Source::new(path, text.clone())).is_empty());
    let broken = text.replace("[dependencies]", "[dependencies]\nheadwater-node.workspace = true");
    assert_eq!(check(&Source::new(path, broken)).len(), 1);
}
