//! Names of elements in `google.watcher.v1`: the mapping between keys of the store, which are any
//! bytes, and paths of text.
//!
//! Owns the mapping. A key is split at `/`; each part becomes one segment of the name. Most parts
//! are their own segments. The others are written with a tilde: an empty part is `~`, so that
//! `/app/a` is `~/app/a`. `.`, `..` and parts that begin with a tilde get a tilde in front. A part
//! that is not UTF-8, or that contains a slash, is `~x` and its bytes in hexadecimal. In the name
//! of a key, only the last part that the depth limit allows can contain slashes: it is the rest of
//! the key.
//!
//! Invariant: every key has exactly one name, every name belongs to at most one key, and the tree
//! of names has the shape of the tree of keys, down to the depth limit. The empty key, which is
//! never stored, stands for two directories: the root, with the empty name, has all keys below it,
//! and `~` those that begin with a slash.
//!
//! ```text
//! app/a    app/a          /app/a    ~/app/a          a//b    a/~/b          a/    a/~          ~a    ~~a
//! ```

use std::fmt::Write;

use thiserror::Error;

use super::limits::ENTITY_DEPTH_MAX;

/// Reason why a text is not a name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NameError {
    /// A part is empty: the text has two adjacent slashes, or a slash at either end.
    #[error("a part is empty; an empty part of a key is written ~, so that the key /app is at ~/app")]
    EmptyPart,
    /// A part is `.` or `..`, given here.
    #[error("{0:?} as a part would point elsewhere; the part of a key that is so called is written ~{0}")]
    Dots(String),
    /// A part, given here, is not the encoding of any part of a key. It begins with a tilde, or
    /// contains a slash (only from [`part_of`]).
    #[error("{0:?} is no part of a name: a part that begins with a tilde is written with one more in front")]
    Tilde(String),
    /// The name has more than [`ENTITY_DEPTH_MAX`] parts.
    #[error("more than {ENTITY_DEPTH_MAX} parts")]
    TooDeep,
}

/// The name of a key; `~` for the empty key. If the key has more than [`ENTITY_DEPTH_MAX`] parts,
/// the last segment encodes the rest of the key, slashes included.
pub fn name_of(key: &[u8]) -> String {
    let mut name = String::with_capacity(key.len());
    if let Some(same) = same_as_name(key) {
        name.push_str(same);
        return name;
    }
    for (number, part) in key.splitn(ENTITY_DEPTH_MAX, |byte| *byte == b'/').enumerate() {
        if number > 0 {
            name.push('/');
        }
        push_segment(&mut name, part);
    }
    name
}

/// `key` as text, if it has only letters, digits, `-`, `_` and single slashes between parts, and at
/// most [`ENTITY_DEPTH_MAX`] parts: it is its own name then. Others may be, too. Most keys are so,
/// and a list has thousands of them.
pub fn same_as_name(key: &[u8]) -> Option<&str> {
    let (mut slashes, mut is_empty_part) = (0, true);
    for byte in key {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => is_empty_part = false,
            b'/' if !is_empty_part => (slashes, is_empty_part) = (slashes + 1, true),
            _ => return None,
        }
    }
    let is_same = !is_empty_part && slashes < ENTITY_DEPTH_MAX;
    is_same.then(|| std::str::from_utf8(key).ok()).flatten()
}

/// Whether `name` is surely the name of the key with the same bytes. False for some that are, too:
/// [`key_of`] decides on every name.
pub fn is_own_key(name: &str) -> bool {
    same_as_name(name.as_bytes()).is_some()
}

fn push_segment(name: &mut String, part: &[u8]) {
    match std::str::from_utf8(part) {
        Ok(text) if !text.contains('/') => {
            if text.is_empty() || text == "." || text == ".." || text.starts_with('~') {
                name.push('~');
            }
            name.push_str(text);
        }
        Ok(_) | Err(_) => {
            name.push_str("~x");
            for byte in part {
                write!(name, "{byte:02x}").expect("a string takes what is written to it");
            }
        }
    }
}

/// The inverse of [`name_of`]: the key of a name. Gives the empty key for the root, whose name is
/// empty, and for `~`, the directory of keys that begin with a slash.
///
/// # Errors
///
/// [`NameError`] if `name` is not the name of any key.
pub fn key_of(name: &str) -> Result<Vec<u8>, NameError> {
    if name.is_empty() || is_own_key(name) {
        return Ok(name.as_bytes().to_vec());
    }
    let mut key = Vec::with_capacity(name.len());
    for (number, segment) in name.split('/').enumerate() {
        if number == ENTITY_DEPTH_MAX {
            return Err(NameError::TooDeep);
        }
        if number > 0 {
            key.push(b'/');
        }
        let start = key.len();
        read_segment(segment, &mut key)?;
        // Only the segment at the depth limit may contain encoded slashes. A text that `name_of`
        // would not write is refused: no key has two names.
        let has_slash = key[start..].contains(&b'/');
        let mut again = String::with_capacity(segment.len());
        push_segment(&mut again, &key[start..]);
        if again != segment || (has_slash && number + 1 != ENTITY_DEPTH_MAX) {
            return Err(NameError::Tilde(segment.to_owned()));
        }
    }
    Ok(key)
}

/// Encodes a whole part, slashes included, as one segment: for spaces that do not split names at
/// `/`, such as names of services.
pub fn segment_of(part: &[u8]) -> String {
    let mut segment = String::with_capacity(part.len());
    push_segment(&mut segment, part);
    segment
}

/// The inverse of [`segment_of`]: the part that a segment encodes.
///
/// # Errors
///
/// [`NameError`] if `segment` is not the encoding of any part.
pub fn part_of(segment: &str) -> Result<Vec<u8>, NameError> {
    let mut part = Vec::with_capacity(segment.len());
    read_segment(segment, &mut part)?;
    // No part has two encodings.
    if segment_of(&part) == segment { Ok(part) } else { Err(NameError::Tilde(segment.to_owned())) }
}

fn read_segment(segment: &str, key: &mut Vec<u8>) -> Result<(), NameError> {
    let wrong = || NameError::Tilde(segment.to_owned());
    match segment.as_bytes() {
        [] => return Err(NameError::EmptyPart),
        b"." | b".." => return Err(NameError::Dots(segment.to_owned())),
        b"~" => {}
        [b'~', b'x', hex @ ..] => {
            let digit = |byte: u8| (byte as char).to_digit(16).ok_or_else(wrong);
            let (pairs, rest) = hex.as_chunks::<2>();
            if !rest.is_empty() {
                return Err(wrong());
            }
            for [high, low] in pairs {
                key.push((digit(*high)? * 16 + digit(*low)?) as u8);
            }
        }
        [b'~', rest @ ..] => key.extend_from_slice(rest),
        plain => key.extend_from_slice(plain),
    }
    Ok(())
}

/// `name` relative to `root`, empty for `root` itself; `None` if `name` is neither `root` nor below
/// it. Every name is below the empty root.
pub fn relative<'a>(name: &'a str, root: &str) -> Option<&'a str> {
    if root.is_empty() {
        return Some(name);
    }
    let rest = name.strip_prefix(root)?;
    if rest.is_empty() { Some(rest) } else { rest.strip_prefix('/') }
}

/// The name of the parent; `None` for the root, the empty name.
pub fn parent(name: &str) -> Option<&str> {
    match name.rsplit_once('/') {
        Some((parent, _)) => Some(parent),
        None if name.is_empty() => None,
        None => Some(""),
    }
}

/// The inverse of [`relative`]: the full name of `name`, which is relative to `root`.
pub fn absolute(root: &str, name: &str) -> String {
    match (root, name) {
        ("", name) => name.to_owned(),
        (root, "") => root.to_owned(),
        (root, name) => format!("{root}/{name}"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_are_pinned() {
        for (key, name) in [
            (&b"app/a"[..], "app/a"),
            (b"/app/a", "~/app/a"),
            (b"/", "~/~"),
            (b"a//b", "a/~/b"),
            (b"a/", "a/~"),
            (b"~", "~~"),
            (b"~x41", "~~x41"),
            (b"./..", "~./~.."),
            (b"a b+\xe2\x82\xac", "a b+€"),
            (b"a/\xff\xfe", "a/~xfffe"),
            (b"a%2Fb", "a%2Fb"),
        ] {
            assert_eq!(name_of(key), name);
            assert_eq!(key_of(name).unwrap(), key, "{name}");
        }
        assert_eq!((name_of(b""), key_of("~").unwrap(), key_of("").unwrap()), ("~".to_owned(), vec![], vec![]));
        for (name, error) in [
            ("a//b", NameError::EmptyPart),
            ("/a", NameError::EmptyPart),
            ("a/", NameError::EmptyPart),
            ("a/../b", NameError::Dots("..".to_owned())),
            (".", NameError::Dots(".".to_owned())),
            ("~a", NameError::Tilde("~a".to_owned())),
            ("~x", NameError::Tilde("~x".to_owned())),
            ("~x4", NameError::Tilde("~x4".to_owned())),
            ("~x41", NameError::Tilde("~x41".to_owned())),
            ("~xFF", NameError::Tilde("~xFF".to_owned())),
            ("~x612f62", NameError::Tilde("~x612f62".to_owned())),
        ] {
            assert_eq!(key_of(name), Err(error), "{name}");
        }
    }

    #[test]
    fn the_last_segment_has_the_rest() {
        let at_the_limit = vec!["a"; ENTITY_DEPTH_MAX].join("/");
        assert_eq!(name_of(at_the_limit.as_bytes()), at_the_limit);
        let past = format!("{at_the_limit}/a");
        let name = name_of(past.as_bytes());
        assert_eq!(name.split('/').count(), ENTITY_DEPTH_MAX);
        assert!(name.ends_with("/~x612f61"), "{name}");
        assert_eq!(key_of(&name).unwrap(), past.as_bytes());
        assert_eq!(key_of(&past), Err(NameError::TooDeep));
    }

    #[test]
    fn parts_with_slashes_are_segments() {
        for (part, segment) in [
            (&b"web"[..], "web"),
            (b"a/b", "~x612f62"),
            (b"/", "~x2f"),
            (b"", "~"),
            (b"..", "~.."),
            (b"~x2f", "~~x2f"),
            (b"\xff", "~xff"),
        ] {
            assert_eq!(segment_of(part), segment);
            assert_eq!(part_of(segment).unwrap(), part, "{segment}");
        }
        for wrong in ["", ".", "a/b/../c/", "~x61", "~x2F", "~x2", "~a"] {
            assert!(part_of(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn trees_have_roots_and_parents() {
        for (name, root, wanted) in [
            ("a/b", "", Some("a/b")),
            ("a/b", "a", Some("b")),
            ("a", "a", Some("")),
            ("ab", "a", None),
            ("b", "a", None),
        ] {
            assert_eq!(relative(name, root), wanted, "{name} {root}");
            if let Some(wanted) = wanted {
                assert_eq!(absolute(root, wanted), name);
            }
        }
        assert_eq!((parent("a/b"), parent("a"), parent("")), (Some("a"), Some(""), None));
    }

    proptest! {
        #[test]
        fn every_key_has_one_name(key in prop::collection::vec(prop::sample::select(b"a/~.x\xff\xc3\xa4".to_vec()), 1..40)) {
            let name = name_of(&key);
            prop_assert_eq!(key_of(&name).unwrap(), key);
            prop_assert!(!name.starts_with('/') && !name.ends_with('/') && !name.contains("//"));
        }

        #[test]
        fn every_part_has_one_segment(part in prop::collection::vec(prop::sample::select(b"a/~.x\xff\xc3\xa4".to_vec()), 0..8)) {
            let segment = segment_of(&part);
            prop_assert!(!segment.is_empty() && !segment.contains('/'));
            prop_assert_eq!(part_of(&segment).unwrap(), part);
        }

        #[test]
        fn no_key_has_two_names(name in "[a~x./0-9]{1,12}") {
            if let Ok(key) = key_of(&name) {
                prop_assert_eq!(name_of(&key), name);
            }
        }
    }
}
