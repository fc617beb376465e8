//! The rules themselves.

use std::collections::BTreeSet;
use std::fmt;

use crate::source::Source;

/// Most lines of a Rust file.
pub(crate) const LINES_MAX: usize = 700;
/// Longest line of a comment of a Rust file, characters: rustfmt keeps code to a width, and leaves comments as they are.
pub(crate) const COMMENT_CHARS_MAX: usize = 140;

/// A module of `src` and the ones that it may import besides itself (ARCHITECTURE.md, "Layers").
pub(crate) struct Layer {
    pub(crate) module: &'static str,
    may_import: &'static [&'static str],
}

const fn layer(module: &'static str, may_import: &'static [&'static str]) -> Layer {
    Layer { module, may_import }
}

/// From the bottom up.
pub(crate) const LAYERS: &[Layer] = &[
    layer("fail_points", &[]),
    layer("types", &[]),
    layer("pb", &[]),
    layer("schema", &["types"]),
    layer("client", &["pb"]),
    layer("controller", &["types", "pb", "client"]),
    layer("codec", &["types", "pb"]),
    layer("storage", &["types", "codec"]),
    layer("stream", &["types"]),
    layer("fsm", &["types", "storage"]),
    layer("raft", &["types", "codec", "storage", "stream", "fsm", "pb"]),
    layer("node", &["types", "codec", "storage", "stream", "fsm", "raft", "schema"]),
    layer("api", &["types", "schema", "node", "pb"]),
    layer("server", &["types", "codec", "storage", "stream", "fsm", "raft", "node", "api", "pb"]),
    layer("cli", &["types", "schema", "pb", "client", "controller", "server"]),
];

/// Crates that one module owns: nobody else names them.
const OWNED: &[(&str, &str)] =
    &[("rocksdb", "src/storage"), ("openraft", "src/raft"), ("cel", "src/schema"), ("hickory_proto", "src/api/dns")];

/// What stands in for a module where that cannot be: the simulation's network and disk are openraft's, as `src/raft`'s are,
/// and who asks over DNS reads what is answered.
const STAND_INS: &[(&str, &str)] = &[("openraft", "tests/sim"), ("hickory_proto", "tests/it/dns")];

/// What would let two replicas come to different results, in the modules where that must not be. Clippy's lists say the
/// same by path (`clippy.toml`); here it is said by name, for the modules that must not need an exception.
const NONDETERMINISTIC: &[(&str, &[&str])] = &[
    ("types", &["SystemTime", "Instant", "HashMap", "HashSet", "rand", "tokio", "async", "thread_rng"]),
    ("fsm", &["SystemTime", "Instant", "HashMap", "HashSet", "rand", "tokio", "async", "thread_rng", "env"]),
];

/// Beginnings of paths that exist on some machine only.
const MACHINE_FOLDERS: &[&str] = &["/home/", "/root/", "/work/", "/Users/", "/tmp/wt"];

/// Something that must not be.
#[derive(Debug)]
pub(crate) struct Finding {
    path: String,
    line: usize,
    what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.what)
    }
}

/// Everything that is wrong with a file.
pub(crate) fn check(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut add = |line: usize, what: String| {
        findings.push(Finding { path: source.path.display().to_string(), line, what });
    };
    if source.is_rust() {
        imports(source, &mut add);
        owned_crates(source, &mut add);
        determinism(source, &mut add);
        head(source, &mut add);
        length(source, &mut add);
        comments(source, &mut add);
    }
    machine_paths(source, &mut add);
    findings
}

fn imports(source: &Source, add: &mut impl FnMut(usize, String)) {
    let Some(module) = source.module() else { return };
    let Some(layer) = LAYERS.iter().find(|layer| layer.module == module) else {
        return add(1, format!("{module} is not in the layering table"));
    };
    let code = source.code();
    let known: BTreeSet<&str> = LAYERS.iter().map(|layer| layer.module).collect();
    for (at, _) in names(&code, "crate").chain(names(&code, "headwater")) {
        let rest = &code[at..];
        let Some(path) = rest.split_once("::").filter(|(name, _)| name.trim().len() <= "headwater".len()) else {
            continue;
        };
        for target in heads(path.1) {
            if known.contains(target) && target != module && !layer.may_import.contains(&target) {
                add(line_of(&code, at), format!("{module} must not import {target}"));
            }
        }
    }
}

/// The first names of a path or of each path in a group: `a::b` and `{a::b, c}`.
fn heads(path: &str) -> Vec<&str> {
    let path = path.trim_start();
    let Some(group) = path.strip_prefix('{') else { return vec![word(path)] };
    let mut depth = 0;
    let mut heads = Vec::new();
    let mut expects_head = true;
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => expects_head = true,
            c if expects_head && !c.is_whitespace() => {
                heads.push(word(&group[at..]));
                expects_head = false;
            }
            _ => {}
        }
    }
    heads
}

fn word(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    &text[..end]
}

fn owned_crates(source: &Source, add: &mut impl FnMut(usize, String)) {
    let code = source.code();
    for (name, owner) in OWNED {
        let stands_in = STAND_INS.iter().any(|(owned, place)| owned == name && source.path.starts_with(place));
        if source.path.starts_with(owner) || stands_in {
            continue;
        }
        for (at, _) in names(&code, name).filter(|(at, _)| is_crate(&code, *at, name)) {
            add(line_of(&code, at), format!("{name} belongs to {owner}"));
        }
    }
}

/// Whether the name is the crate's: followed by `::`, or imported.
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
    for (number, line) in source.text.lines().enumerate() {
        let length = line.chars().count();
        if line.trim_start().starts_with("//") && length > COMMENT_CHARS_MAX {
            add(number + 1, format!("is a comment of {length} characters, at most {COMMENT_CHARS_MAX}: wrap it"));
        }
    }
}

fn machine_paths(source: &Source, add: &mut impl FnMut(usize, String)) {
    // The rule itself and its proof have to name what they forbid.
    if source.path.starts_with("tests/tidy") {
        return;
    }
    for (number, line) in source.text.lines().enumerate() {
        if let Some(folder) = MACHINE_FOLDERS.iter().find(|folder| line.contains(**folder)) {
            add(number + 1, format!("names a machine's folder: {folder}"));
        }
    }
}

/// Where a name stands as a word of its own.
fn names<'a>(code: &'a str, name: &'a str) -> impl Iterator<Item = (usize, &'a str)> {
    let part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    code.match_indices(name)
        .filter(move |(at, _)| !part(code[..*at].chars().next_back()) && !part(code[at + name.len()..].chars().next()))
}

fn line_of(code: &str, at: usize) -> usize {
    code[..at].matches('\n').count() + 1
}
