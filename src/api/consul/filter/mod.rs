//! `?filter=`: expressions about the elements of an answer, in the language of go-bexpr.
//!
//! Owns the language ([`parse`]), the names that an expression may use ([`shape`]) and evaluation
//! on an element's JSON. Invariant: a parsed expression can always be evaluated; every error is
//! found when it is parsed (400).

mod parse;
pub(super) mod shape;
#[cfg(test)]
mod tests;

use regex::{Regex, RegexBuilder};
use serde::Serialize;
use serde_json::Value;

use super::answer::Refusal;
use super::call::Call;
use headwater_types::limits::{CONSUL_FILTER_BYTES_MAX, CONSUL_FILTER_PATTERN_BYTES_MAX, CONSUL_FILTER_PATTERNS_MAX};
use parse::{Match, Op, Parsed};
use shape::Shape;

/// A filter of elements of one shape; `None` if every element passes.
#[derive(Debug)]
pub(super) struct Filter(Option<Expression>);

#[derive(Debug)]
enum Expression {
    Or(Box<Expression>, Box<Expression>),
    And(Box<Expression>, Box<Expression>),
    Not(Box<Expression>),
    Match { path: Vec<String>, shape: Shape, is_negated: bool, test: Test },
}

/// The test of one comparison.
#[derive(Debug)]
enum Test {
    Text(String),
    Number(f64),
    Flag(bool),
    In(String),
    Pattern(Regex),
    Empty,
}

impl Filter {
    /// The filter of a request: all of its `?filter` expressions must hold. Without one, every
    /// element passes. Refused (400) if one is invalid for the shape.
    pub(super) fn of(call: &Call, shape: Shape) -> Result<Self, Refusal> {
        read_all(call.query.all("filter"), shape)
            .map(Self)
            .map_err(|why| Refusal::bad(format!("Failed to create filter: {why}")))
    }

    /// The filter of one expression; every element passes a blank one. The error is the reason why
    /// the expression is invalid.
    pub(super) fn read(text: &str, shape: Shape) -> Result<Self, String> {
        read_all(std::iter::once(text), shape).map(Self)
    }

    /// Whether the filter has no expression, so that every element passes.
    pub(super) fn takes_all(&self) -> bool {
        self.0.is_none()
    }

    /// Whether an element, given as JSON, passes.
    pub(super) fn takes(&self, element: &Value) -> bool {
        self.0.as_ref().is_none_or(|expression| expression.is_true_of(element))
    }

    /// Whether an element passes. It is serialized only if there is an expression.
    pub(super) fn takes_element(&self, element: &impl Serialize) -> bool {
        self.takes_all() || self.takes(&serde_json::to_value(element).expect("what is answered has texts for keys"))
    }

    /// The elements that pass, in their order.
    pub(super) fn keep<T: Serialize>(&self, mut elements: Vec<T>) -> Vec<T> {
        elements.retain(|element| self.takes_element(element));
        elements
    }
}

/// Reads expressions and joins them by `and`; `None` if all are blank. The limits on bytes and on
/// regular expressions apply to all of them together.
fn read_all<'a>(texts: impl Iterator<Item = &'a str>, shape: Shape) -> Result<Option<Expression>, String> {
    let (mut all, mut bytes, mut patterns_left) = (None, 0, CONSUL_FILTER_PATTERNS_MAX);
    for text in texts.filter(|text| !text.trim().is_empty()) {
        bytes += text.len();
        if bytes > CONSUL_FILTER_BYTES_MAX {
            return Err(format!("it has {bytes} bytes, more than {CONSUL_FILTER_BYTES_MAX}"));
        }
        let one = check(parse::parse(text)?, shape, &mut patterns_left)?;
        all = Some(match all {
            None => one,
            Some(before) => Expression::And(Box::new(before), Box::new(one)),
        });
    }
    Ok(all)
}

fn check(parsed: Parsed, shape: Shape, patterns_left: &mut usize) -> Result<Expression, String> {
    let mut check = |inner: Box<Parsed>| check(*inner, shape, patterns_left).map(Box::new);
    Ok(match parsed {
        Parsed::Or(left, right) => Expression::Or(check(left)?, check(right)?),
        Parsed::And(left, right) => Expression::And(check(left)?, check(right)?),
        Parsed::Not(inner) => Expression::Not(check(inner)?),
        Parsed::Match(found) => check_match(found, shape, patterns_left)?,
    })
}

fn check_match(found: Match, shape: Shape, patterns_left: &mut usize) -> Result<Expression, String> {
    let Match { path, op, is_negated, value } = found;
    let selector = path.join(".");
    let at = path
        .iter()
        .try_fold(shape, |shape, name| shape.step(name))
        .ok_or_else(|| format!("Selector {selector:?} is not valid"))?;
    let misfit = |what: &str| format!("{selector:?} is {}, which {what}", at.describe());
    let test = match (op, at) {
        (Op::Equal, Shape::Text | Shape::Open) => Test::Text(value),
        (Op::Equal, Shape::Number) => Test::Number(value.parse().map_err(|_| misfit(&format!("{value:?} is not")))?),
        (Op::Equal, Shape::Flag) => Test::Flag(match value.as_str() {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => true,
            "0" | "f" | "F" | "false" | "FALSE" | "False" => false,
            _ => return Err(misfit(&format!("{value:?} is not"))),
        }),
        (Op::Equal, _) => return Err(misfit("is not compared with one value; use in or contains")),
        (Op::In, Shape::Number | Shape::Flag | Shape::Struct(_)) => return Err(misfit("contains nothing")),
        (Op::In, _) => Test::In(value),
        (Op::Matches, Shape::Text | Shape::Open) => {
            *patterns_left = patterns_left
                .checked_sub(1)
                .ok_or_else(|| format!("it has more than {CONSUL_FILTER_PATTERNS_MAX} regular expressions"))?;
            let pattern = RegexBuilder::new(&value)
                .size_limit(CONSUL_FILTER_PATTERN_BYTES_MAX)
                .dfa_size_limit(CONSUL_FILTER_PATTERN_BYTES_MAX)
                .build();
            Test::Pattern(pattern.map_err(|error| format!("{value:?} is no regular expression: {error}"))?)
        }
        (Op::Matches, _) => return Err(misfit("a regular expression is not for")),
        (Op::Empty, Shape::Number | Shape::Flag | Shape::Struct(_)) => return Err(misfit("is never empty")),
        (Op::Empty, _) => Test::Empty,
    };
    Ok(Expression::Match { path, shape, is_negated, test })
}

impl Expression {
    fn is_true_of(&self, element: &Value) -> bool {
        match self {
            Self::Or(left, right) => left.is_true_of(element) || right.is_true_of(element),
            Self::And(left, right) => left.is_true_of(element) && right.is_true_of(element),
            Self::Not(inner) => !inner.is_true_of(element),
            Self::Match { path, shape, is_negated, test } => holds(path, shape, Some(element), test, *is_negated),
        }
    }
}

/// Whether the test, negated if `is_negated` is set, holds for the value at the path.
///
/// In a [`Shape::List`], a number picks one element; without that element the result is
/// `is_negated`. Any other name is looked up in each element, and one element for which the test,
/// negated if set, holds is enough. In free-form JSON ([`Shape::Open`]) a number picks an element
/// too, but a name is not looked up in elements. A value that is missing there, or from a map, is
/// empty, equals nothing and contains nothing.
fn holds(path: &[String], shape: &Shape, value: Option<&Value>, test: &Test, is_negated: bool) -> bool {
    let Some((name, rest)) = path.split_first() else { return test.holds(shape, value) != is_negated };
    let Some(next) = shape.step(name) else { return is_negated };
    if let Shape::List(inner) = shape {
        let elements = value.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        return match name.parse::<usize>() {
            Ok(position) => match elements.get(position) {
                Some(element) => holds(rest, inner, Some(element), test, is_negated),
                None => is_negated,
            },
            Err(_) => elements.iter().any(|element| holds(path, inner, Some(element), test, is_negated)),
        };
    }
    let found = match value {
        Some(Value::Array(elements)) => name.parse::<usize>().ok().and_then(|position| elements.get(position)),
        value => value.and_then(|value| value.get(name)),
    };
    match (shape, found) {
        // A key that is missing from a map equals nothing, contains nothing and is empty.
        (Shape::Map(_) | Shape::Open, None) => matches!(test, Test::Empty) != is_negated,
        _ => holds(rest, &next, found, test, is_negated),
    }
}

impl Test {
    /// Whether the test, not negated, holds for a value. A value that is missing from the JSON, or
    /// null, counts as its type's zero value.
    fn holds(&self, shape: &Shape, value: Option<&Value>) -> bool {
        let value = value.filter(|value| !value.is_null());
        match self {
            Self::Text(wanted) => match (shape, value) {
                (Shape::Open, Some(value)) => match value {
                    Value::String(text) => text == wanted,
                    other => {
                        let shown = other.to_string();
                        shown == *wanted
                    }
                },
                (_, value) => text(value) == wanted,
            },
            Self::Number(wanted) => value.and_then(Value::as_f64).unwrap_or(0.0) == *wanted,
            Self::Flag(wanted) => value.and_then(Value::as_bool).unwrap_or(false) == *wanted,
            Self::In(wanted) => match value {
                None => false,
                Some(Value::Array(elements)) => elements.iter().any(|element| element.as_str() == Some(wanted)),
                Some(Value::Object(members)) => members.contains_key(wanted),
                Some(value) => text(Some(value)).contains(wanted.as_str()),
            },
            Self::Pattern(pattern) => pattern.is_match(text(value)),
            Self::Empty => match value {
                None => true,
                Some(Value::Array(elements)) => elements.is_empty(),
                Some(Value::Object(members)) => members.is_empty(),
                Some(Value::String(text)) => text.is_empty(),
                Some(_) => false,
            },
        }
    }
}

fn text(value: Option<&Value>) -> &str {
    value.and_then(Value::as_str).unwrap_or_default()
}
