//! Rules of names (spec: consul §5.3). Names are not converted, such as to lower case: a name that
//! breaks a rule is refused.

use thiserror::Error;

use crate::limits::RESOURCE_NAME_BYTES_MAX;

/// Text that matches every value, where a query has a unit of tenancy or a part of a type.
pub const WILDCARD: &str = "*";
/// Name of the default partition, and of the default namespace of a partition.
pub const DEFAULT_UNIT: &str = "default";
/// The reason for which a name is refused. Its text is a predicate: the caller puts the name in
/// front.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NameProblem {
    /// The name is not a lower-case DNS label.
    #[error(
        "must consist of lower case alphanumeric characters or '-', must start and end with an alphanumeric character \
         and be less than 64 characters"
    )]
    Label,
    /// The group is not in lower snake case.
    #[error("must be lower snake case and have at least two characters, like \"catalog\"")]
    Group,
    /// The group version does not match `v([a-z\d]+)?\d`.
    #[error("must be \"v\", perhaps lower case letters and digits, and a digit, like \"v1\" or \"v2beta1\"")]
    GroupVersion,
    /// The kind is not in Pascal case.
    #[error("must be Pascal case and have at least two characters, like \"Service\"")]
    Kind,
}

/// Checks the name of a resource or of a unit of tenancy: 1 to 63 characters of `a-z`, `0-9` and
/// `-`, with a letter or digit at both ends.
///
/// # Errors
///
/// [`NameProblem::Label`].
pub fn check_name(name: &str) -> Result<(), NameProblem> {
    let bytes = name.as_bytes();
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let sound = !bytes.is_empty()
        && bytes.len() <= RESOURCE_NAME_BYTES_MAX
        && bytes.iter().all(|&byte| inner(byte))
        && bytes[0] != b'-'
        && bytes[bytes.len() - 1] != b'-';
    if sound { Ok(()) } else { Err(NameProblem::Label) }
}

/// Checks the group of a type to register: `[a-z][a-z\d_]+`.
///
/// # Errors
///
/// [`NameProblem::Group`].
pub fn check_group(group: &str) -> Result<(), NameProblem> {
    let rest = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    match group.as_bytes() {
        [first, others @ ..] if first.is_ascii_lowercase() && !others.is_empty() && others.iter().all(|&b| rest(b)) => {
            Ok(())
        }
        _ => Err(NameProblem::Group),
    }
}

/// Checks the group version of a type to register: `v([a-z\d]+)?\d`.
///
/// # Errors
///
/// [`NameProblem::GroupVersion`].
pub fn check_group_version(version: &str) -> Result<(), NameProblem> {
    let middle = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    match version.as_bytes() {
        [b'v', between @ .., last] if last.is_ascii_digit() && between.iter().all(|&b| middle(b)) => Ok(()),
        _ => Err(NameProblem::GroupVersion),
    }
}

/// Checks the kind of a type to register: `[A-Z][A-Za-z\d]+`.
///
/// # Errors
///
/// [`NameProblem::Kind`].
pub fn check_kind(kind: &str) -> Result<(), NameProblem> {
    match kind.as_bytes() {
        [first, others @ ..]
            if first.is_ascii_uppercase()
                && !others.is_empty()
                && others.iter().all(|byte| byte.is_ascii_alphanumeric()) =>
        {
            Ok(())
        }
        _ => Err(NameProblem::Kind),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_dns_labels() {
        let longest = "a".repeat(RESOURCE_NAME_BYTES_MAX);
        for name in ["a", "0", "a-b", "a--b", "0a9", longest.as_str()] {
            assert_eq!(check_name(name), Ok(()), "{name}");
        }
        let too_long = "a".repeat(RESOURCE_NAME_BYTES_MAX + 1);
        for name in ["", "-", "-a", "a-", "A", "aB", "a.b", "a_b", "a b", "ä", "a\0", "*", too_long.as_str()] {
            assert_eq!(check_name(name), Err(NameProblem::Label), "{name:?}");
        }
    }

    #[test]
    fn types_are_named_by_their_patterns() {
        for (group, sound) in [
            ("demo", true),
            ("a1", true),
            ("foo_bar", true),
            ("a_", true),
            ("", false),
            ("a", false),
            ("1a", false),
            ("_a", false),
            ("Foo", false),
            ("foo-bar", false),
            ("foo.bar", false),
        ] {
            assert_eq!(check_group(group).is_ok(), sound, "{group:?}");
        }
        for (version, sound) in [
            ("v1", true),
            ("v2beta1", true),
            ("v10", true),
            ("v", false),
            ("1", false),
            ("v1beta", false),
            ("V1", false),
            ("v1.1", false),
            ("va1", true),
            ("", false),
        ] {
            assert_eq!(check_group_version(version).is_ok(), sound, "{version:?}");
        }
        for (kind, sound) in [
            ("Artist", true),
            ("A1", true),
            ("RecordLabel", true),
            ("A", false),
            ("", false),
            ("artist", false),
            ("Record_Label", false),
            ("1A", false),
            ("Ärtist", false),
        ] {
            assert_eq!(check_kind(kind).is_ok(), sound, "{kind:?}");
        }
    }
}
