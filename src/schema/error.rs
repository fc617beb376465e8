//! Refusals of registrations and of data. Clients see the texts, so they say how to correct the
//! input.

use thiserror::Error;

use headwater_types::resource::NameProblem;

/// The refusal of a registration.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum SchemaError {
    /// More than a limit allows.
    #[error("{what} is {size}, more than the {max} that are allowed")]
    TooLarge {
        /// The kind of the limited value.
        what: String,
        /// The given amount.
        size: usize,
        /// The limit.
        max: usize,
    },
    /// A part of the type's name is malformed.
    #[error("{field} is {given:?}, but it {problem}")]
    Name {
        /// The part of the name.
        field: &'static str,
        /// The given name.
        given: String,
        /// The problem with the name.
        problem: NameProblem,
    },
    /// The descriptors cannot be read, or do not belong together.
    #[error("the descriptor set cannot be used: {0}; it must hold the message's file and all that it imports")]
    Descriptors(String),
    /// The message is not among the descriptors.
    #[error("the descriptor set has no message {name:?}{}", list(.known))]
    NoSuchMessage {
        /// The requested name.
        name: String,
        /// The known names.
        known: Vec<String>,
    },
    /// Something needs a message, and none is named.
    #[error("{0} need a message, and the type names none")]
    NoMessage(&'static str),
    /// The defaults are not the message.
    #[error("the defaults are not {message} as JSON: {why}")]
    Defaults {
        /// The message.
        message: String,
        /// The position and the reason.
        why: String,
    },
    /// A rule cannot be used.
    #[error("rule {number} cannot be used: {why}: {expression}")]
    Rule {
        /// The number of the rule, from 1.
        number: usize,
        /// As it was given, cut when long.
        expression: String,
        /// The reason.
        why: String,
    },
    /// This machine could not do it now; says nothing about the registration.
    #[error("rules cannot be compiled at the moment: {0}")]
    Unavailable(String),
}

/// The refusal of data.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Violation {
    /// Another message than the type's.
    #[error("resource.data is of wrong type: {given:?}, but the type's data is {wanted:?}")]
    WrongType {
        /// The type's.
        wanted: String,
        /// The data's.
        given: String,
    },
    /// The type has no data.
    #[error("resource.data is of wrong type: {given:?}, but the type has no data")]
    NoDataWanted {
        /// The data's.
        given: String,
    },
    /// Not an encoding of the message.
    #[error("resource.data is not an encoded {message}: {why}")]
    Malformed {
        /// The message.
        message: String,
        /// The error of the decoder.
        why: String,
    },
    /// Rules are broken; their texts.
    #[error("{}", .0.join("; "))]
    Broken(Vec<String>),
    /// A rule came to no result.
    #[error("a rule of the type has no answer for this data: {why}: {expression}")]
    Undecided {
        /// The rule.
        expression: String,
        /// The reason.
        why: String,
    },
    /// Judging the data would take too long.
    #[error("the rules of the type cost too much for this much data; judging stopped at: {expression}")]
    TooCostly {
        /// The rule during which the budget was spent.
        expression: String,
    },
}

fn list(known: &[String]) -> String {
    match known {
        [] => String::new(),
        [one] => format!("; it has {one}"),
        many => format!("; it has {}", many.join(", ")),
    }
}
