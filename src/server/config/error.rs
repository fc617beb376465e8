//! Errors of a configuration: all problems at once, each with the key of its setting.

use std::fmt;
use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// The refusal of a configuration.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration file {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The file is not TOML.
    #[error("{} is not valid TOML: {detail}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Positions and mistakes, over several lines.
        detail: String,
    },
    /// The settings are wrong, singly or together.
    #[error("{}", list(problems))]
    Invalid {
        /// Every problem that was found, at least one.
        problems: Vec<Problem>,
    },
}

/// One mistake in the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The source of the setting (a file, a variable, a flag). Empty if the value could be read,
    /// but breaks a bound or a rule.
    pub origin: String,
    /// Key of the setting or of a part of it. For an unknown name: the key or the variable as it
    /// was given.
    pub key: String,
    /// The mistake, and the correct form.
    pub detail: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.origin.is_empty() {
            write!(f, "{}: {}", self.key, self.detail)
        } else {
            write!(f, "{} (from {}): {}", self.key, self.origin, self.detail)
        }
    }
}

fn list(problems: &[Problem]) -> String {
    let mut text = match problems.len() {
        1 => "the configuration has a problem:".to_owned(),
        count => format!("the configuration has {count} problems:"),
    };
    for problem in problems {
        text.push_str("\n  ");
        text.push_str(&problem.to_string());
    }
    text
}
