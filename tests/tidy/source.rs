//! A file as the rules see it: its text, and its code without comments, strings and test modules.

use std::path::{Path, PathBuf};

pub(crate) struct Source {
    pub(crate) path: PathBuf,
    pub(crate) text: String,
}

impl Source {
    pub(crate) fn new(path: &Path, text: String) -> Self {
        Self { path: path.to_owned(), text }
    }

    /// Reads the file `path` below `root`; `None` if it is not UTF-8 text.
    pub(crate) fn read(root: &Path, path: &Path) -> Option<Self> {
        std::fs::read_to_string(root.join(path)).ok().map(|text| Self::new(path, text))
    }

    pub(crate) fn is_rust(&self) -> bool {
        self.path.extension().is_some_and(|extension| extension == "rs")
    }

    /// Whether the file contains only tests, by its path.
    pub(crate) fn is_test(&self) -> bool {
        let name = self.path.file_stem().unwrap_or_default().to_string_lossy();
        name == "tests"
            || name.ends_with("_tests")
            || self.path.starts_with("tests")
            || self.path.components().any(|part| part.as_os_str() == "tests")
    }

    /// The first folder or module below `src` in the file's path; `None` for `src/lib.rs`,
    /// `src/main.rs` and files outside `src`.
    pub(crate) fn module(&self) -> Option<&str> {
        let mut parts = self.path.strip_prefix("src").ok()?.iter();
        let first = parts.next()?.to_str()?;
        let module = first.strip_suffix(".rs").unwrap_or(first);
        (!["lib", "main"].contains(&module)).then_some(module)
    }

    /// The text without comments, strings and character literals. Lines keep their numbers, and
    /// columns may change.
    pub(crate) fn code(&self) -> String {
        blank(&self.text)
    }

    /// [`Self::code`] without everything from `#[cfg(test)] mod … {` on.
    pub(crate) fn code_without_tests(&self) -> String {
        let code = self.code();
        match code.find("#[cfg(test)]\nmod ") {
            Some(at) if code[at..].lines().nth(1).is_some_and(|line| line.ends_with('{')) => code[..at].to_owned(),
            _ => code,
        }
    }
}

/// The text without comments, strings and character literals. Their line breaks stay.
fn blank(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let chars: Vec<char> = text.chars().collect();
    let at = |i: usize| chars.get(i).copied().unwrap_or('\0');
    let keep = |c: char| if c == '\n' { '\n' } else { ' ' };
    let mut i = 0;
    while i < chars.len() {
        match (at(i), at(i + 1)) {
            ('/', '/') => {
                while i < chars.len() && at(i) != '\n' {
                    i += 1;
                }
            }
            ('/', '*') => {
                let mut depth = 0;
                while i < chars.len() {
                    match (at(i), at(i + 1)) {
                        ('/', '*') => depth += 1,
                        ('*', '/') => depth -= 1,
                        _ => {
                            out.push(keep(at(i)));
                            i += 1;
                            continue;
                        }
                    }
                    i += 2;
                    if depth == 0 {
                        break;
                    }
                }
            }
            ('r', '"' | '#')
                if !at(i.wrapping_sub(1)).is_alphanumeric() && raw_string_hashes(&chars, i + 1).is_some() =>
            {
                let hashes = raw_string_hashes(&chars, i + 1).unwrap();
                i += 2 + hashes;
                while i < chars.len() && !(at(i) == '"' && (1..=hashes).all(|n| at(i + n) == '#')) {
                    out.push(keep(at(i)));
                    i += 1;
                }
                i += 1 + hashes;
            }
            ('"', _) => {
                i += 1;
                while i < chars.len() && at(i) != '"' {
                    let step = if at(i) == '\\' { 2 } else { 1 };
                    (0..step).for_each(|n| out.push(keep(at(i + n))));
                    i += step;
                }
                i += 1;
            }
            // A character, not a lifetime.
            ('\'', '\\') => {
                i += 3;
                while i < chars.len() && at(i) != '\'' {
                    i += 1;
                }
                i += 1;
            }
            ('\'', _) if at(i + 2) == '\'' => i += 3,
            (c, _) => {
                out.push(c);
                i += 1;
            }
        }
    }
    out
}

/// The number of `#` of a raw string; `from` is the position after its `r`. `None` if no raw string
/// begins there.
fn raw_string_hashes(chars: &[char], from: usize) -> Option<usize> {
    let hashes = chars[from..].iter().take_while(|c| **c == '#').count();
    (chars.get(from + hashes) == Some(&'"')).then_some(hashes)
}

#[test]
fn comments_and_strings_are_no_code() {
    for (text, code) in [
        ("a // b\nc", "a \nc"),
        ("a /* b /* c */ d */ e", "a        e"),
        ("f(\"x // y\") g", "f(      ) g"),
        ("r#\"a \"b\" c\"# d", "         d"),
        ("'\"' a", " a"),
        ("'\\'' a", " a"),
        ("&'a str", "&'a str"),
        ("\"a\\\"b\" c", "    c"),
    ] {
        let got = blank(text);
        assert_eq!(got.split_whitespace().collect::<String>(), code.split_whitespace().collect::<String>(), "{text:?}");
        assert_eq!(got.lines().count(), text.lines().count());
    }
}
