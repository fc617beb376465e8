//! Rules about Markdown pages: links and paths lead to files that exist, tables of functions name
//! functions that exist, and the book's table of contents has every page of `docs`.
//!
//! Of Markdown, only these are read: fences, spans of code, links of the form `[text](target)`,
//! headings, and rows of tables.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use crate::rules::{Finding, LAYERS};
use crate::source::Source;

/// The table of contents of the book.
const SUMMARY: &str = "docs/SUMMARY.md";

/// A path in code font that begins with one of these must exist, from the root of the project.
const FOLDERS: &[&str] = &["src/", "tests/", "benches/", "examples/", "docs/", "proto/", "scripts/", "cluster/"];

/// Placeholders: a path in code font that contains one of these is not checked.
const PLACEHOLDERS: &[&str] = &["NAME", "FAMILY", "FOLDER", "FILE", "*", "…"];

/// Folders with pages about other projects: paths in code font are not checked there.
const FOREIGN: &[&str] = &["docs/spec"];

/// Findings in all pages of `sources`. `exists` returns whether a file or folder exists, by its
/// path from the root of the project.
pub(crate) fn check(sources: &[Source], exists: &dyn Fn(&Path) -> bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    for page in sources.iter().filter(|source| is_page(&source.path)) {
        for (line, text) in prose(&page.text) {
            let mut add = |what: String| findings.push(Finding::new(page, line, what));
            for target in links(&blank_code(text)) {
                if let Err(problem) = resolve(page, target, sources, exists) {
                    add(problem);
                }
            }
            if FOREIGN.iter().any(|folder| page.path.starts_with(folder)) {
                continue;
            }
            for path in paths(text).filter(|path| !exists(Path::new(path))) {
                add(format!("names {path}, which does not exist"));
            }
            for module in spans(text).filter(|span| !is_module(span, sources)) {
                add(format!("names {module}, which does not exist"));
            }
        }
        for (line, name) in missing_functions(&page.text, sources) {
            findings.push(Finding::new(page, line, format!("traces {name}, which is in no file of its row")));
        }
    }
    findings.extend(not_in_summary(sources));
    findings
}

fn is_page(path: &Path) -> bool {
    let is_at_root = path.components().count() == 1;
    path.extension().is_some_and(|extension| extension == "md") && (is_at_root || path.starts_with("docs"))
}

/// Lines outside of fences, with their numbers from 1.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(number, line)| {
        let is_fence = line.trim_start().starts_with("```");
        fenced ^= is_fence;
        (!fenced && !is_fence).then_some((number + 1, line))
    })
}

/// The line with the content of spans of code replaced by blanks.
fn blank_code(line: &str) -> String {
    let blank = |(number, part): (usize, &str)| if number % 2 == 0 { part.to_owned() } else { " ".repeat(part.len()) };
    line.split('`').enumerate().map(blank).collect::<Vec<_>>().join("`")
}

/// The contents of the spans of code in a line.
fn spans(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

fn links(line: &str) -> Vec<&str> {
    let targets = line.split("](").skip(1);
    targets.filter_map(|rest| rest.split([')', ' ']).next()).filter(|target| !target.contains("://")).collect()
}

fn resolve(page: &Source, target: &str, sources: &[Source], exists: &dyn Fn(&Path) -> bool) -> Result<(), String> {
    let (path, heading) = target.split_once('#').map_or((target, None), |(path, heading)| (path, Some(heading)));
    let path = match path {
        "" => page.path.clone(),
        path => normal(&page.path.parent().unwrap_or(Path::new("")).join(path)),
    };
    if !exists(&path) {
        return Err(format!("links to {}, which does not exist", path.display()));
    }
    let Some(heading) = heading else { return Ok(()) };
    let Some(linked) = sources.iter().find(|source| source.path == path) else { return Ok(()) };
    match anchors(&linked.text).contains(heading) {
        true => Ok(()),
        false => Err(format!("links to a heading {heading} of {}, which does not exist", path.display())),
    }
}

/// The path without `.` and `..`; empty for the root of the project.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => _ = normal.pop(),
            Component::CurDir => {}
            part => normal.push(part),
        }
    }
    normal
}

/// The anchors of the headings, as GitHub and mdBook derive them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    for (_, line) in prose(text) {
        let Some(title) = line.strip_prefix('#').map(|rest| rest.trim_start_matches('#')) else { continue };
        let kept = title.trim().chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
        let anchor: String = kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect();
        let repeated = (1..).map(|number| format!("{anchor}-{number}")).find(|name| !anchors.contains(name));
        match anchors.contains(&anchor) {
            true => anchors.extend(repeated),
            false => _ = anchors.insert(anchor),
        }
    }
    anchors
}

/// Paths in code font: the first word of each span, if it begins with one of [`FOLDERS`] and has no
/// placeholder.
fn paths(line: &str) -> impl Iterator<Item = &str> {
    let words = spans(line).filter_map(|span| span.split([' ', ':']).next());
    words.filter(|word| {
        FOLDERS.iter().any(|folder| word.starts_with(folder)) && !PLACEHOLDERS.iter().any(|part| word.contains(part))
    })
}

/// Whether a span such as `stream::kv` or `node::lease::keeper` names a module, or an item of one,
/// below `src`. True for a span that does not begin with a layer. Names of types are not looked up.
fn is_module(span: &str, sources: &[Source]) -> bool {
    let is_name = |part: &str| !part.is_empty() && part.chars().all(|c| c.is_alphanumeric() || c == '_');
    let parts: Vec<&str> = span.split("::").collect();
    if parts.len() < 2 || !parts.iter().all(|part| is_name(part)) || !LAYERS.iter().any(|layer| layer.name == parts[0])
    {
        return true;
    }
    let mut folder = PathBuf::from("src").join(parts[0]);
    let mut file = folder.join("mod.rs");
    for part in &parts[1..] {
        let source = |path: &Path| sources.iter().find(|source| source.path == path);
        let next = [folder.join(part).join("mod.rs"), folder.join(part).with_extension("rs")];
        match next.into_iter().find(|path| source(path).is_some()) {
            Some(found) => file = found,
            None => {
                let is_type = part.starts_with(char::is_uppercase);
                return is_type || source(&file).is_some_and(|source| defines(&source.text, part));
            }
        }
        folder.push(part);
    }
    true
}

/// Names in traces that are defined in no file of their row, with line numbers. A trace is a table
/// with a column "function" after a column of files.
fn missing_functions<'a>(text: &'a str, sources: &[Source]) -> Vec<(usize, &'a str)> {
    let mut missing = Vec::new();
    let mut is_trace = false;
    for (line, row) in prose(text) {
        let cells: Vec<&str> = row.split('|').collect();
        let [_, _, files, functions, _] = cells[..] else {
            is_trace = false;
            continue;
        };
        is_trace |= functions.trim() == "function";
        let files: Vec<&Source> =
            paths(files).filter_map(|path| sources.iter().find(|source| source.path == Path::new(path))).collect();
        let is_defined = |name: &&str| files.iter().any(|file| defines(&file.text, name));
        missing.extend(spans(functions).filter(|name| is_trace && !is_defined(name)).map(|name| (line, name)));
    }
    missing
}

/// Whether a Rust text defines the function or type that is the last part of a path such as
/// `Feed::publish`.
fn defines(text: &str, name: &str) -> bool {
    let name = name.rsplit("::").next().unwrap_or(name);
    ["fn", "struct", "enum", "trait"].iter().any(|keyword| {
        let definition = format!("{keyword} {name}");
        text.match_indices(&definition)
            .any(|(at, _)| !text[at + definition.len()..].starts_with(|c: char| c.is_alphanumeric() || c == '_'))
    })
}

/// Pages of `docs` to which the table of contents has no link.
fn not_in_summary(sources: &[Source]) -> Vec<Finding> {
    let Some(summary) = sources.iter().find(|source| source.path == Path::new(SUMMARY)) else { return Vec::new() };
    let linked: BTreeSet<PathBuf> = prose(&summary.text)
        .flat_map(|(_, line)| links(line))
        .map(|link| normal(&Path::new("docs").join(link)))
        .collect();
    let pages = sources.iter().filter(|source| source.path.starts_with("docs") && is_page(&source.path));
    let missing = pages.filter(|page| page.path != summary.path && !linked.contains(&page.path));
    missing.map(|page| Finding::new(page, 1, format!("is not in {SUMMARY}"))).collect()
}

#[test]
fn pages_that_lead_nowhere_are_found() {
    let source = |path: &str, text: &str| Source::new(Path::new(path), text.to_owned());
    let others = [
        source("docs/SUMMARY.md", "- [A](a.md)\n- [B](design/b.md)\n"),
        source("docs/design/b.md", "# B: one, two\n\n## Again\n\n## Again\n\n```sh\n# No heading\n```\n"),
        source("src/api/put.rs", "fn run() {}\nstruct Put;\n"),
        source("README.md", "# R\n"),
        source("src/node/mod.rs", "fn start() {}\n"),
        source("src/node/lease/mod.rs", ""),
        source("src/node/lease/keeper.rs", "struct LeaseKeeper;\n"),
    ];
    for (text, wanted) in [
        ("# A\n\n[b](design/b.md), [r](../README.md), [put](../src/api/put.rs), [folder](design)\n", None),
        ("[b](design/b.md#b-one-two) [again](design/b.md#again-1) [here](#a-b)\n\n# A b\n", None),
        ("[x](https://example.com/x.md) `[x](x.md)`\n\n```md\n[x](x.md)\n```\n", None),
        ("`src/api/put.rs`, `src/api/put.rs --flag`, `src/api/NAME.rs`, `/src/x`\n", None),
        ("| step | file | function |\n|---|---|---|\n| put | `src/api/put.rs` | `run`, `api::Put` |\n", None),
        ("| step | file | example |\n|---|---|---|\n| put | `src/api/put.rs` | `run_all` |\n", None),
        ("`node::lease::keeper`, `node::start`, `node::lease::LeaseKeeper`, `std::fs::read`, `node::*`\n", None),
        ("`node::lease::ender`\n", Some("1: names node::lease::ender, which does not exist")),
        ("`node::stop`\n", Some("1: names node::stop, which does not exist")),
        ("text\n[b](b.md)\n", Some("docs/a.md:2: links to docs/b.md, which does not exist")),
        (
            "[b](design/b.md#no-heading)\n",
            Some("1: links to a heading no-heading of docs/design/b.md, which does not exist"),
        ),
        ("[b](#b)\n", Some("1: links to a heading b of docs/a.md, which does not exist")),
        ("`src/api/get.rs`\n", Some("1: names src/api/get.rs, which does not exist")),
        (
            "| step | file | function |\n|---|---|---|\n| put | `src/api/put.rs` | `run_all`, `run` |\n",
            Some("3: traces run_all, which is in no file of its row"),
        ),
        (
            "| step | file | function |\n| put | `src/api/put.rs` | `Put::ru` |\n",
            Some("2: traces Put::ru, which is in no file of its row"),
        ),
    ] {
        let mut sources = vec![source("docs/a.md", text)];
        sources.extend(others.iter().map(|other| Source::new(&other.path, other.text.clone())));
        let exists = |path: &Path| sources.iter().any(|source| source.path.starts_with(path));
        let found: Vec<String> = check(&sources, &exists).iter().map(Finding::to_string).collect();
        match wanted {
            Some(wanted) => assert!(found.len() == 1 && found[0].contains(wanted), "{text:?}: {found:?}"),
            None => assert!(found.is_empty(), "{text:?}: {found:?}"),
        }
    }
    let forgotten = [source("docs/SUMMARY.md", "- [A](a.md)\n"), source("docs/a.md", ""), source("docs/b.md", "")];
    let found: Vec<String> = check(&forgotten, &|_| true).iter().map(Finding::to_string).collect();
    assert_eq!(found, ["docs/b.md:1: is not in docs/SUMMARY.md"]);
}
