//! The rules about single files: layers, faces, owned crates, determinism, heads, lengths and
//! paths.

use std::fmt;

use crate::source::Source;

/// Most lines of a Rust file.
pub(crate) const LINES_MAX: usize = 700;
/// Longest line with a comment in a Rust file, characters: rustfmt wraps code, and not comments.
pub(crate) const COMMENT_CHARS_MAX: usize = 100;

/// A crate of `src`, and the project's crates that its manifest may depend on (ARCHITECTURE.md,
/// "Layers"). A name is the folder with `_` between its parts: `api_shared` is `src/api/shared`.
/// The compiler does the rest: code cannot import a crate that its manifest does not name.
pub(crate) struct Layer {
    pub(crate) name: &'static str,
    may_import: &'static [&'static str],
}

const fn layer(name: &'static str, may_import: &'static [&'static str]) -> Layer {
    Layer { name, may_import }
}

/// All crates of `src`, lower layers first.
pub(crate) const LAYERS: &[Layer] = &[
    layer("fail_points", &[]),
    layer("files", &[]),
    layer("tls", &[]),
    layer("types", &[]),
    layer("proto", &["types"]),
    layer("schema", &["types"]),
    layer("client", &["tls", "types", "proto"]),
    layer("storage", &["fail_points", "files", "types", "proto"]),
    layer("stream", &["fail_points", "types"]),
    layer("fsm", &["types", "storage"]),
    layer("raft", &["fail_points", "files", "tls", "types", "proto", "storage", "stream", "fsm"]),
    layer("node", &["fail_points", "files", "tls", "types", "proto", "storage", "stream", "fsm", "raft", "schema"]),
    layer("api_shared", &["fail_points", "types", "node", "proto"]),
    layer("api_console", &[]),
    layer("api_consul", &["types", "node", "api_shared"]),
    layer("api_dns", &["types", "node"]),
    layer("api_etcd", &["types", "node", "proto", "api_shared"]),
    // The draft has the validation and the texts of the later API. The commits of the store
    // have operations of three faces, which decode and refuse them. No other face imports a face.
    layer("api_early", &["types", "node", "proto", "api_shared", "api_etcd"]),
    layer("api_resource", &["types", "proto", "schema", "node", "api_shared"]),
    layer("api_store", &["types", "proto", "node", "api_shared", "api_etcd", "api_resource"]),
    layer("api_subscribe", &["types", "proto", "node", "api_shared"]),
    layer("api_watcher", &["types", "proto", "node", "api_shared"]),
    layer(
        "api",
        &[
            "types",
            "schema",
            "node",
            "proto",
            "api_shared",
            "api_console",
            "api_consul",
            "api_dns",
            "api_early",
            "api_etcd",
            "api_resource",
            "api_store",
            "api_subscribe",
            "api_watcher",
        ],
    ),
    layer("server", &["files", "tls", "types", "proto", "storage", "stream", "fsm", "raft", "node", "api"]),
    layer("terminal", &["tls", "proto", "client"]),
    layer("load", &["tls", "types", "proto", "client", "server", "terminal"]),
    layer("cli", &["files", "tls", "types", "schema", "proto", "client", "server", "terminal", "load"]),
];

/// Folders of `src/api` that serve one API each, as modules of the crate. A face imports
/// `headwater-api-shared` and its own files.
pub(crate) const FACES: &[&str] = &["gateway", "http", "invitations", "members", "rest", "versions"];

/// Layers that may use the encodings of records and commands in `proto`, and not its messages of
/// gRPC (`pb`).
const WITHOUT_MESSAGES: &[&str] = &["storage", "node"];

/// External crates, and the only folder with code that may name each.
const OWNED: &[(&str, &str)] = &[
    ("rocksdb", "src/storage"),
    ("openraft", "src/raft"),
    ("cel", "src/schema"),
    ("hickory_proto", "src/api/dns"),
    ("hcl_edit", "src/node/acl"),
];

/// Exceptions from [`OWNED`]: crates, and folders of tests that may name them as well. The
/// simulation implements openraft's network and log store; a DNS client of the tests decodes
/// answers.
const STAND_INS: &[(&str, &str)] = &[("openraft", "tests/sim"), ("hickory_proto", "tests/it/dns")];

/// Modules that must be deterministic, and names that they must not contain: with these, two
/// replicas could come to different results. Clippy forbids the same items by path (`clippy.toml`),
/// but allows exceptions.
const NONDETERMINISTIC: &[(&str, &[&str])] = &[
    ("types", &["SystemTime", "Instant", "HashMap", "HashSet", "rand", "tokio", "async", "thread_rng"]),
    ("fsm", &["SystemTime", "Instant", "HashMap", "HashSet", "rand", "tokio", "async", "thread_rng", "env"]),
];

/// Crates with commands. They print with `notice!` of `terminal` and with `writeln!`: the macros in
/// [`PANICKING`] end the command if nobody reads its output.
const COMMANDS: &[&str] = &["cli", "load", "terminal"];

const PANICKING: &[&str] = &["eprintln", "eprint", "println", "print"];

/// Folders that no text of the project may name: they exist only on some machines.
const MACHINE_FOLDERS: &[&str] = &["/home/", "/root/", "/work/", "/Users/", "/tmp/wt"];

/// A violation of a rule, at a line of a file.
#[derive(Debug)]
pub(crate) struct Finding {
    path: String,
    line: usize,
    what: String,
}

impl Finding {
    pub(crate) fn new(source: &Source, line: usize, what: String) -> Self {
        Self { path: source.path.display().to_string(), line, what }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.what)
    }
}

/// The violations of all rules about single files in `source`.
pub(crate) fn check(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut add = |line: usize, what: String| {
        findings.push(Finding::new(source, line, what));
    };
    manifest(source, &mut add);
    if source.is_rust() {
        messages(source, &mut add);
        faces(source, &mut add);
        owned_crates(source, &mut add);
        determinism(source, &mut add);
        output(source, &mut add);
        head(source, &mut add);
        length(source, &mut add);
        comments(source, &mut add);
    }
    machine_paths(source, &mut add);
    findings
}

/// The name in [`LAYERS`] of the crate of which `source` is the manifest; `None` if it is no
/// manifest below `src`.
pub(crate) fn crate_of(source: &Source) -> Option<String> {
    let folder = source.path.strip_prefix("src").ok()?.to_str()?.strip_suffix("/Cargo.toml")?;
    Some(folder.replace('/', "_"))
}

/// A manifest below `src` depends only on the project's crates that [`LAYERS`] allows. Dependencies
/// of tests are not checked.
fn manifest(source: &Source, add: &mut impl FnMut(usize, String)) {
    let Some(name) = crate_of(source) else { return };
    let Some(layer) = LAYERS.iter().find(|layer| layer.name == name) else {
        return add(1, format!("{name} is not in the layering table"));
    };
    let mut section = "";
    for (number, line) in source.text.lines().enumerate() {
        if line.starts_with('[') {
            section = line;
        }
        let Some(rest) = line.strip_prefix("headwater-").filter(|_| section == "[dependencies]") else { continue };
        let target = rest.split(['.', ' ', '=']).next().unwrap_or_default().replace('-', "_");
        if !layer.may_import.contains(&target.as_str()) {
            add(number + 1, format!("{name} must not import {target}"));
        }
    }
}

fn messages(source: &Source, add: &mut impl FnMut(usize, String)) {
    if !source.module().is_some_and(|module| WITHOUT_MESSAGES.contains(&module)) {
        return;
    }
    let code = source.code();
    for (at, _) in names(&code, "headwater_proto") {
        let rest = &code[at..];
        if rest.starts_with("headwater_proto::pb") || rest.starts_with("headwater_proto::{") {
            add(line_of(&code, at), "must not name the messages on the wire".to_owned());
        }
    }
}

/// A face that is a module of the crate `api` does not import another face, be that a module or a
/// crate. For faces that are crates, [`manifest`] checks the same.
fn faces(source: &Source, add: &mut impl FnMut(usize, String)) {
    let Ok(path) = source.path.strip_prefix("src/api") else { return };
    let modules: Vec<&str> = path.iter().filter_map(|part| part.to_str()).filter(|part| *part != "mod.rs").collect();
    let Some(own) = modules.first().filter(|first| FACES.contains(first)) else { return };
    let code = source.code();
    let root = "super::".repeat(modules.len());
    for (at, name) in root_modules(&code, "crate::").chain(root_modules(&code, &root)) {
        if FACES.contains(&name) && name != *own {
            add(line_of(&code, at), format!("the face {own} must not import the face {name}"));
        }
    }
    let part_of_name = |c: char| c.is_alphanumeric() || c == '_';
    for (at, _) in code.match_indices("headwater_api_") {
        let rest = code[at..].trim_start_matches("headwater_api_");
        let name = &rest[..rest.find(|c| !part_of_name(c)).unwrap_or(rest.len())];
        if name != "shared" {
            add(line_of(&code, at), format!("the face {own} must not import the face {name}"));
        }
    }
}

/// The name after `root` in each path that begins with it, and its position; of `root::{a, b::c}`
/// both `a` and `b`.
fn root_modules<'a>(code: &'a str, root: &str) -> impl Iterator<Item = (usize, &'a str)> {
    // Modules of tests are one level deeper.
    let rest = move |at: usize| code[at..].trim_start_matches(root).trim_start_matches("super::");
    code.match_indices(root).map(move |(at, _)| (at, rest(at))).flat_map(|(at, rest)| {
        let mut depth = 0;
        let list = match rest.strip_prefix('{') {
            // Splits at the commas of this list, not at those of lists inside it.
            Some(list) => {
                let end = list.find(|c| {
                    depth += i32::from(c == '{') - i32::from(c == '}');
                    depth < 0
                });
                &list[..end.unwrap_or(list.len())]
            }
            None => &rest[..rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len())],
        };
        let mut depth = 0;
        let items = list.split(move |c| {
            depth += i32::from(c == '{') - i32::from(c == '}');
            c == ',' && depth == 0
        });
        items.map(move |item| (at, item.trim().split("::").next().unwrap_or_default()))
    })
}

fn owned_crates(source: &Source, add: &mut impl FnMut(usize, String)) {
    let code = source.code();
    for (name, owner) in OWNED {
        let stands_in = STAND_INS.iter().any(|(owned, path)| owned == name && source.path.starts_with(path));
        if source.path.starts_with(owner) || stands_in {
            continue;
        }
        for (at, _) in names(&code, name).filter(|(at, _)| is_crate(&code, *at, name)) {
            add(line_of(&code, at), format!("{name} belongs to {owner}"));
        }
    }
}

/// Whether the name at `at` is that of a crate: it is followed by `::`, or stands after `use`.
fn is_crate(code: &str, at: usize, name: &str) -> bool {
    code[at + name.len()..].starts_with("::") || code[..at].trim_end().ends_with("use")
}

fn determinism(source: &Source, add: &mut impl FnMut(usize, String)) {
    let Some((module, forbidden)) = NONDETERMINISTIC.iter().find(|(module, _)| source.module() == Some(*module)) else {
        return;
    };
    if source.is_test() {
        return;
    }
    let code = source.code_without_tests();
    for name in *forbidden {
        if let Some((at, _)) = names(&code, name).next() {
            add(line_of(&code, at), format!("{module} must not name {name}: replicas must come to the same result"));
        }
    }
}

fn output(source: &Source, add: &mut impl FnMut(usize, String)) {
    if source.is_test() || !source.module().is_some_and(|module| COMMANDS.contains(&module)) {
        return;
    }
    let code = source.code();
    for name in PANICKING {
        for (at, _) in names(&code, name).filter(|(at, _)| code[at + name.len()..].starts_with('!')) {
            add(line_of(&code, at), format!("{name}! panics if nobody reads: use notice! or writeln!"));
        }
    }
}

fn head(source: &Source, add: &mut impl FnMut(usize, String)) {
    if !source.is_test() && !source.text.trim_start().starts_with("//!") {
        add(1, "has no //! head that says what the file owns".to_owned());
    }
}

fn length(source: &Source, add: &mut impl FnMut(usize, String)) {
    let lines = source.text.lines().count();
    if lines > LINES_MAX {
        add(lines, format!("has {lines} lines, at most {LINES_MAX}: it owns too much"));
    }
}

fn comments(source: &Source, add: &mut impl FnMut(usize, String)) {
    let mut is_in_block = false;
    for (number, line) in source.text.lines().enumerate() {
        let Some(comment) = line.trim_start().strip_prefix("//") else {
            is_in_block = false;
            continue;
        };
        let text = comment.trim_start_matches(['/', '!']).trim_start();
        is_in_block ^= text.starts_with("```");
        // Diagrams and tables cannot be wrapped.
        if is_in_block || text.starts_with('|') {
            continue;
        }
        let length = line.chars().count();
        if length > COMMENT_CHARS_MAX {
            add(number + 1, format!("is a comment of {length} characters, at most {COMMENT_CHARS_MAX}: wrap it"));
        }
    }
}

fn machine_paths(source: &Source, add: &mut impl FnMut(usize, String)) {
    // The rule itself and its tests must name these folders.
    if source.path.starts_with("tests/tidy") {
        return;
    }
    for (number, line) in source.text.lines().enumerate() {
        if let Some(folder) = MACHINE_FOLDERS.iter().find(|folder| line.contains(**folder)) {
            add(number + 1, format!("names a machine's folder: {folder}"));
        }
    }
}

/// Whole-word occurrences of `name` in `code`: byte offset and matched text.
fn names<'a>(code: &'a str, name: &'a str) -> impl Iterator<Item = (usize, &'a str)> {
    let part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    code.match_indices(name)
        .filter(move |(at, _)| !part(code[..*at].chars().next_back()) && !part(code[at + name.len()..].chars().next()))
}

fn line_of(code: &str, at: usize) -> usize {
    code[..at].matches('\n').count() + 1
}
