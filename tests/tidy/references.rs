//! References to numbered sections must resolve: `spec: etcd §1.4` is a heading of
//! `docs/spec/etcd.md`, `ARCHITECTURE.md §4` one of that page.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::rules::Finding;
use crate::source::Source;

/// The section numbers of each page that can be referred to. A key is the page's name in
/// references, such as `spec etcd` or `ARCHITECTURE.md`.
pub(crate) struct Pages(BTreeMap<String, BTreeSet<String>>);

impl Pages {
    pub(crate) fn of(sources: &[Source]) -> Self {
        let mut pages = BTreeMap::new();
        for source in sources {
            let Some(name) = page_name(&source.path) else { continue };
            pages.insert(name, source.text.lines().filter_map(heading).map(str::to_owned).collect());
        }
        Self(pages)
    }

    /// References of `source` to sections that do not exist.
    pub(crate) fn check(&self, source: &Source) -> Vec<Finding> {
        let missing = references(source).into_iter().filter(|reference| {
            !self.0.get(reference.page.as_str()).is_some_and(|sections| sections.contains(&reference.section))
        });
        let finding = |reference: Reference| {
            let Reference { line, page, section } = reference;
            Finding::new(source, line, format!("refers to {page} §{section}, which does not exist"))
        };
        missing.map(finding).collect()
    }

    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }
}

fn page_name(path: &Path) -> Option<String> {
    if path == Path::new("ARCHITECTURE.md") {
        return Some("ARCHITECTURE.md".to_owned());
    }
    let name = path.strip_prefix("docs/spec").ok()?.to_str()?.strip_suffix(".md")?;
    (name != "README").then(|| format!("spec {name}"))
}

/// The number at the beginning of a heading: `4` and `1.4` of `## 4. Title` and `### 1.4 Title`.
fn heading(line: &str) -> Option<&str> {
    let title = line.strip_prefix('#')?.trim_start_matches('#').trim_start();
    let number = title.split_whitespace().next()?.trim_end_matches('.');
    is_section(number).then_some(number)
}

fn is_section(text: &str) -> bool {
    !text.is_empty() && text.split('.').all(|part| !part.is_empty() && part.chars().all(|c| c.is_ascii_digit()))
}

struct Reference {
    line: usize,
    page: String,
    section: String,
}

/// All references in a text. One may continue on the next line of a comment, and name several
/// sections: `spec: etcd §1.4, §2 and §3`.
fn references(source: &Source) -> Vec<Reference> {
    let words = words(&source.text);
    let mut found = Vec::new();
    let mut page: Option<String> = None;
    for (at, (line, word)) in words.iter().enumerate() {
        let bare = word.trim_matches(|c: char| !c.is_alphanumeric() && c != '§');
        let before = at.checked_sub(1).map_or("", |before| words[before].1);
        if before.trim_start_matches(['(', '[']) == "spec:" || before.ends_with("spec") && bare != "spec" {
            page = Some(format!("spec {bare}"));
        } else if bare.contains("ARCHITECTURE.md") {
            page = Some("ARCHITECTURE.md".to_owned());
        } else if let Some(section) = bare.strip_prefix('§') {
            let section = section.trim_end_matches(|c: char| !c.is_ascii_digit());
            if let Some(page) = page.clone().filter(|_| is_section(section)) {
                found.push(Reference { line: *line, page, section: section.to_owned() });
            }
        } else if bare != "and" {
            page = None;
        }
    }
    found
}

/// Words with their line numbers, without comment markers.
fn words(text: &str) -> Vec<(usize, &str)> {
    let lines = text.lines().enumerate();
    let words = lines.flat_map(|(number, line)| {
        let line = line.trim_start().trim_start_matches(['/', '!', '#', '*']);
        line.split_whitespace().map(move |word| (number + 1, word))
    });
    words.collect()
}

#[test]
fn references_are_resolved() {
    let source = |path: &str, text: &str| Source::new(Path::new(path), text.to_owned());
    let page = source("docs/spec/etcd.md", "# etcd\n\n## 1. Keys\n\n### 1.4 Ranges\n\n#### 8.10 More\n");
    let pages = Pages::of(&[page, source("ARCHITECTURE.md", "## 4. What is durable when\n")]);
    assert_eq!(pages.count(), 2);
    for (text, wanted) in [
        ("//! Ranges (spec: etcd §1.4).\n", &[][..]),
        ("//! Ranges (spec:\n//! etcd §1.4, §8.10 and\n//! §1).\n", &[]),
        ("// every rule of spec etcd §1\n", &[]),
        ("// [ARCHITECTURE.md](../ARCHITECTURE.md), §4\n", &[]),
        ("// RFC 9562 §5.4; DESIGN §9\n", &[]),
        ("//! (spec: etcd §1.5)\n", &["1: refers to spec etcd §1.5, which does not exist"]),
        ("//! (spec: etcd §1.4,\n//! §9)\n", &["2: refers to spec etcd §9, which does not exist"]),
        ("//! (spec: zookeeper §1)\n", &["1: refers to spec zookeeper §1, which does not exist"]),
        ("// ARCHITECTURE.md §5\n", &["1: refers to ARCHITECTURE.md §5, which does not exist"]),
    ] {
        let found: Vec<String> = pages.check(&source("src/node/x.rs", text)).iter().map(Finding::to_string).collect();
        let wanted: Vec<String> = wanted.iter().map(|wanted| format!("src/node/x.rs:{wanted}")).collect();
        assert_eq!(found, wanted, "{text:?}");
    }
}
