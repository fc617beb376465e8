//! Refusals of registrations and of data. Clients see the texts: each one says how to correct the
//! input.

use thiserror::Error;

use headwater_types::resource::NameProblem;

/// Reason why the registration of a type is refused.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum SchemaError {
    /// A value of the registration exceeds a limit.
    #[error("{what} is {size}, more than the {max} that are allowed")]
    TooLarge {
        /// Name of the limited value, with its unit.
        what: String,
        /// The given size, in that unit.
        size: usize,
        /// The limit, in that unit.
        max: usize,
    },
    /// A part of the type's name is malformed.
    #[error("{field} is {given:?}, but it {problem}")]
    Name {
        /// The part of the name: `group`, `group_version` or `kind`.
        field: &'static str,
        /// The given name, cut if it is long.
        given: String,
        /// The problem with the name.
        problem: NameProblem,
    },
    /// The descriptor set is empty or cannot be decoded, or its files do not fit together: an
    /// imported file is missing, for example. Holds the reason.
    #[error("the descriptor set cannot be used: {0}; it must hold the message's file and all that it imports")]
    Descriptors(String),
    /// The descriptors have no message of the given name, or it is the entry of a map field.
    #[error("the descriptor set has no message {name:?}{}", list(.known))]
    NoSuchMessage {
        /// The requested name.
        name: String,
        /// Full names of at most five messages of the descriptor set, without well-known types.
        /// Empty if `name` is the entry of a map field.
        known: Vec<String>,
    },
    /// The registration names no message, but has a part that needs one. Holds the name of the
    /// first such part: `descriptors`, `defaults` or `rules`.
    #[error("{0} need a message, and the type names none")]
    NoMessage(&'static str),
    /// The defaults cannot be read as the message.
    #[error("the defaults are not {message} as JSON: {why}")]
    Defaults {
        /// Full name of the type's message.
        message: String,
        /// The position in the JSON and the reason.
        why: String,
    },
    /// A rule cannot be compiled.
    #[error("rule {number} cannot be used: {why}: {expression}")]
    Rule {
        /// The number of the rule, from 1.
        number: usize,
        /// The expression as it was given, cut if it is long.
        expression: String,
        /// The reason.
        why: String,
    },
    /// The member could not start a thread to compile rules. Says nothing about the registration;
    /// retry.
    #[error("rules cannot be compiled at the moment: {0}")]
    Unavailable(String),
}

/// Reason why the data of a resource is refused: it does not match the schema of its type, or the
/// check could not be completed.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Violation {
    /// The data is another message than the type's.
    #[error("resource.data is of wrong type: {given:?}, but the type's data is {wanted:?}")]
    WrongType {
        /// Full name of the type's message.
        wanted: String,
        /// Full name of the data's message, cut if it is long.
        given: String,
    },
    /// Data was given, and the type has none.
    #[error("resource.data is of wrong type: {given:?}, but the type has no data")]
    NoDataWanted {
        /// Full name of the data's message, cut if it is long; `an object` for data in JSON.
        given: String,
    },
    /// The data is not an encoding of the message.
    #[error("resource.data is not an encoded {message}: {why}")]
    Malformed {
        /// Full name of the type's message.
        message: String,
        /// The error of the decoder.
        why: String,
    },
    /// The data breaks rules. Holds one text for each broken rule: the text of the rule or, if it
    /// has none, a text with its expression.
    #[error("{}", .0.join("; "))]
    Broken(Vec<String>),
    /// The evaluation of a rule failed, or its result is not a boolean.
    #[error("a rule of the type has no answer for this data: {why}: {expression}")]
    RuleFailed {
        /// Expression of the rule, cut if it is long.
        expression: String,
        /// The reason.
        why: String,
    },
    /// The evaluation of all rules together exceeds the budget
    /// [`TYPE_RULE_COST_MAX`](headwater_types::limits::TYPE_RULE_COST_MAX).
    #[error("the rules of the type cost too much for this much data; judging stopped at: {expression}")]
    TooCostly {
        /// Expression of the rule that exceeded the budget, cut if it is long.
        expression: String,
    },
    /// The member could not start a thread to evaluate rules. Says nothing about the data; retry.
    #[error("rules cannot be evaluated at the moment: {0}")]
    Unavailable(String),
}

fn list(known: &[String]) -> String {
    match known {
        [] => String::new(),
        [one] => format!("; it has {one}"),
        many => format!("; it has {}", many.join(", ")),
    }
}
