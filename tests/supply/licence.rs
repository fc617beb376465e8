//! Licence expressions (SPDX 2.3, annex D), with the slash that older packages write for `OR`.
//!
//! Knows no list of licences: every identifier is taken.

use std::fmt;

use anyhow::{Context, bail, ensure};

/// A licence expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Expression {
    /// A licence, with its exception after ` WITH `, if there is one.
    Licence(String),
    /// `AND`: all of these hold.
    All(Vec<Self>),
    /// `OR`: the user chooses one of these.
    Any(Vec<Self>),
}

impl Expression {
    /// Reads an expression.
    ///
    /// # Errors
    ///
    /// If the text is no expression.
    pub(crate) fn parse(text: &str) -> anyhow::Result<Self> {
        let spaced = text.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
        let mut words = spaced.split_whitespace().peekable();
        let parsed = Self::any(&mut words).with_context(|| format!("{text:?} is no licence expression"))?;
        ensure!(words.next().is_none(), "{text:?} is no licence expression");
        Ok(parsed)
    }

    fn any<'w>(words: &mut std::iter::Peekable<impl Iterator<Item = &'w str>>) -> anyhow::Result<Self> {
        let mut parts = vec![Self::all(words)?];
        while words.next_if_eq(&"OR").is_some() {
            parts.push(Self::all(words)?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Self::Any(parts) })
    }

    fn all<'w>(words: &mut std::iter::Peekable<impl Iterator<Item = &'w str>>) -> anyhow::Result<Self> {
        let mut parts = vec![Self::one(words)?];
        while words.next_if_eq(&"AND").is_some() {
            parts.push(Self::one(words)?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Self::All(parts) })
    }

    fn one<'w>(words: &mut std::iter::Peekable<impl Iterator<Item = &'w str>>) -> anyhow::Result<Self> {
        let word = words.next().context("a licence is missing")?;
        if word == "(" {
            // Boxed by the vectors of the variants; the recursion ends with the text.
            let inner = Self::any(words)?;
            ensure!(words.next() == Some(")"), "a parenthesis is not closed");
            return Ok(inner);
        }
        let licence = identifier(word)?;
        match words.next_if_eq(&"WITH") {
            None => Ok(Self::Licence(licence.to_owned())),
            Some(_) => {
                let exception = identifier(words.next().context("an exception is missing")?)?;
                Ok(Self::Licence(format!("{licence} WITH {exception}")))
            }
        }
    }

    /// Whether the licences for which `allows` returns true suffice. A licence with an exception is
    /// passed to it as one text, such as `Apache-2.0 WITH LLVM-exception`.
    #[cfg(test)]
    pub(crate) fn is_satisfied(&self, allows: &impl Fn(&str) -> bool) -> bool {
        match self {
            Self::Licence(licence) => allows(licence),
            Self::All(parts) => parts.iter().all(|part| part.is_satisfied(allows)),
            Self::Any(parts) => parts.iter().any(|part| part.is_satisfied(allows)),
        }
    }

    /// All licences in the expression.
    #[cfg(test)]
    pub(crate) fn licences(&self) -> Vec<&str> {
        match self {
            Self::Licence(licence) => vec![licence],
            Self::All(parts) | Self::Any(parts) => parts.iter().flat_map(Self::licences).collect(),
        }
    }
}

fn identifier(word: &str) -> anyhow::Result<&str> {
    let is_identifier = word.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '+' | ':'));
    if !is_identifier || ["AND", "OR", "WITH"].contains(&word) {
        bail!("{word:?} is no licence");
    }
    Ok(word)
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (parts, operator) = match self {
            Self::Licence(licence) => return f.write_str(licence),
            Self::All(parts) => (parts, "AND"),
            Self::Any(parts) => (parts, "OR"),
        };
        for (number, part) in parts.iter().enumerate() {
            if number > 0 {
                write!(f, " {operator} ")?;
            }
            match part {
                Self::Licence(licence) => f.write_str(licence)?,
                Self::All(_) | Self::Any(_) => write!(f, "({part})")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod unit_tests {
    use super::*;

    #[test]
    fn expressions_are_read_and_written() {
        for (text, written) in [
            ("MIT", "MIT"),
            ("MIT OR Apache-2.0", "MIT OR Apache-2.0"),
            ("Apache-2.0 / MIT", "Apache-2.0 OR MIT"),
            ("MIT/Apache-2.0/BSD-3-Clause", "MIT OR Apache-2.0 OR BSD-3-Clause"),
            ("(MIT OR Apache-2.0) AND Unicode-3.0", "(MIT OR Apache-2.0) AND Unicode-3.0"),
            ("MIT OR Apache-2.0 AND ISC", "MIT OR (Apache-2.0 AND ISC)"),
            ("((MIT))", "MIT"),
            ("Apache-2.0 WITH LLVM-exception OR MIT", "Apache-2.0 WITH LLVM-exception OR MIT"),
            ("LicenseRef-own-1.0", "LicenseRef-own-1.0"),
        ] {
            let parsed = Expression::parse(text).unwrap();
            assert_eq!(parsed.to_string(), written, "{text}");
            assert_eq!(Expression::parse(written).unwrap(), parsed, "{text}");
        }
        for wrong in ["", "MIT OR", "OR MIT", "MIT MIT", "(MIT", "MIT)", "MIT WITH", "MIT, ISC", "AND", "MIT & ISC"] {
            assert!(Expression::parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn one_of_a_choice_suffices_and_all_of_the_rest() {
        let allows = |licence: &str| ["MIT", "ISC", "Apache-2.0 WITH LLVM-exception"].contains(&licence);
        for (text, is_satisfied) in [
            ("MIT", true),
            ("GPL-3.0-only", false),
            ("GPL-3.0-only OR MIT", true),
            ("GPL-3.0-only AND MIT", false),
            ("(GPL-3.0-only OR ISC) AND MIT", true),
            ("MIT OR Apache-2.0 AND GPL-3.0-only", true),
            ("Apache-2.0 WITH LLVM-exception", true),
            ("Apache-2.0", false),
            ("MIT WITH LLVM-exception", false),
        ] {
            assert_eq!(Expression::parse(text).unwrap().is_satisfied(&allows), is_satisfied, "{text}");
        }
    }
}
