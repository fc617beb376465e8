//! Refusals of the store's API as texts for people: one target, flags in place of fields, dates in
//! place of milliseconds.
//!
//! The texts are found by parts of them. Invariant: a text without those parts stays as it is.

use tonic::{Code, Status};

use super::point::time_text;
use crate::error::CliError;
use headwater_client::CallError;

/// The spaces, as the texts list them.
const SPACES: &str = "/kv, /resources, /services, /nodes, /leases, /cluster";

/// The error of a stream of changes.
pub(super) fn stream_error(error: CallError) -> CliError {
    match error {
        CallError::Refused { status, .. } => CliError::StreamRefused(Box::new(for_people(&status))),
        other @ (CallError::Indeterminate(_) | CallError::Unreachable(_)) => other.into(),
    }
}

/// The error of a read.
pub(super) fn read_error(error: CallError) -> CliError {
    match error {
        CallError::Refused { endpoint, status } => CallError::Refused { endpoint, status: for_people(&status) },
        other @ (CallError::Indeterminate(_) | CallError::Unreachable(_)) => other,
    }
    .into()
}

/// The error of a stream of changes between two points, which the user gave with the flags `older`
/// and `newer`.
pub(super) fn interval_error(error: CliError, older: &str, newer: &str) -> CliError {
    match &error {
        CliError::StreamRefused(status) => match reversed(status) {
            Some((first, second)) => {
                let (old, new) = (first.max(second), first.min(second));
                CliError::Usage(format!("{older} (#{old}) lies after {newer} (#{new})"))
            }
            None => error,
        },
        _ => error,
    }
}

/// The log indexes of an interval that ends before it begins.
fn reversed(status: &Status) -> Option<(u64, u64)> {
    let rest = status.message().strip_prefix("the history from index ")?;
    let (interval, _) = rest.split_once(" is empty").filter(|_| status.code() == Code::InvalidArgument)?;
    let (from, to) = interval.split_once(" to index ")?;
    Some((from.parse().ok()?, to.parse().ok()?))
}

fn for_people(status: &Status) -> Status {
    Status::with_metadata(status.code(), text(status.message()), status.metadata().clone())
}

fn text(text: &str) -> String {
    let text = text.strip_prefix("targets[0]: ").unwrap_or(text);
    let text = text.strip_prefix("target: ").unwrap_or(text);
    if text.starts_with("\"/\" alone names no entity") {
        return format!("\"/\" alone names no entity: add -r for everything, or name a space ({SPACES})");
    }
    with_date(text)
}

/// Replaces `unix_ms 1795731318089` by a date that the flags with a point take.
fn with_date(text: &str) -> String {
    const UNIT: &str = "unix_ms ";
    let found = text.split_once(UNIT).and_then(|(before, rest)| {
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let date = time_text(rest[..end].parse().ok()?);
        (!date.is_empty()).then(|| format!("{before}{date}{}", &rest[end..]))
    });
    found.unwrap_or_else(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_the_api_are_told_with_flags_and_dates() {
        for (given, wanted) in [
            (
                "targets[0]: target: there is no space \"nosuch\"; the spaces are /kv and /nodes",
                "there is no space \"nosuch\"; the spaces are /kv and /nodes",
            ),
            (
                "targets[0]: target: \"/\" alone names no entity; write \"/?recursive=true\" for everything, or name a space",
                "\"/\" alone names no entity: add -r for everything, or name a space \
                 (/kv, /resources, /services, /nodes, /leases, /cluster)",
            ),
            (
                "the time is older than the history, which is kept from index 79 on (unix_ms 1001)",
                "the time is older than the history, which is kept from index 79 on (1970-01-01T00:00:01.001Z)",
            ),
            ("kept from index 79 on (unix_ms x)", "kept from index 79 on (unix_ms x)"),
            ("there is no face \"tcp\"", "there is no face \"tcp\""),
        ] {
            assert_eq!(text(given), wanted);
        }
    }

    #[test]
    fn an_interval_that_ends_before_it_begins_is_told_with_its_flags() {
        let told = |status| {
            let error = CallError::Refused { endpoint: "127.0.0.1:2379".to_owned(), status };
            interval_error(stream_error(error), "--from", "--to")
        };
        let wrong = told(Status::invalid_argument(
            "the history from index 34 to index 30 is empty: \"from\" comes first in the direction of the request",
        ));
        assert_eq!((wrong.to_string().as_str(), wrong.exit_code()), ("--from (#34) lies after --to (#30)", 2));
        assert_eq!(told(Status::invalid_argument("other")).to_string(), "other");
    }
}
