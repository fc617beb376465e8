//! The changes of an undo, as they are shown before they are made; with `-w json` after it.

use std::io::{IsTerminal, Write};

use serde_json::{Value, json};

use super::json::written_changes;
use super::render::{Style, print_change};
use crate::commit;
use crate::entity::Types;
use crate::error::CliError;
use crate::notice;
use headwater_proto::pb::headwater_v1 as pb;

/// The changes that an undo makes, and those that it leaves.
pub(super) struct Preview {
    pub(super) changes: Vec<pb::EntityChange>,
    /// Paths of changes that stay as they are, each with the reason.
    pub(super) left: Vec<(String, &'static str)>,
    /// The types of the resources in `changes`.
    pub(super) types: Types,
    /// The lineage of the log indexes in `changes`.
    pub(super) epoch: String,
}

impl Preview {
    /// Prints the changes line by line, then the paths that stay as they are.
    pub(super) fn print(&self, out: &mut impl Write) -> Result<(), CliError> {
        let style = Style::of_stdout(true);
        for change in &self.changes {
            print_change(out, change, &self.types, style)?;
        }
        for (path, why) in &self.left {
            writeln!(out, "left as it is: {path}: {why}")?;
        }
        Ok(out.flush()?)
    }

    /// The undo as JSON, with the answer of its commit; `None` if there was nothing to undo.
    pub(super) fn as_json(&self, done: Option<&pb::CommitResponse>) -> Value {
        let left = self.left.iter().map(|(path, why)| json!({"path": path, "reason": why}));
        json!({
            "epoch": self.epoch,
            "changes": written_changes(&self.changes, &self.types),
            "left": left.collect::<Vec<_>>(),
            "commit": done.map(commit::as_json),
        })
    }

    /// Asks on the terminal whether to make the changes.
    pub(super) fn confirm(&self, out: &mut impl Write) -> Result<(), CliError> {
        if !std::io::stdin().is_terminal() {
            return Err(CliError::Usage("nothing was undone: confirm with --yes, or on a terminal".to_owned()));
        }
        let count = self.changes.len();
        let what = if count == 1 { "this change".to_owned() } else { format!("these {count} changes") };
        write!(out, "make {what}? [y/N] ")?;
        out.flush()?;
        let mut line = String::new();
        std::io::stdin().read_line(&mut line)?;
        if matches!(line.trim(), "y" | "Y" | "yes") {
            return Ok(());
        }
        notice!("nothing was undone");
        Err(CliError::Exit(1))
    }
}

/// The error if the changes cannot be shown. Unlike other commands, an undo fails if its output is
/// closed: nobody has seen the changes, so they are not made.
pub(super) fn unseen_error(error: impl Into<CliError>) -> CliError {
    match error.into() {
        CliError::OutputClosed => {
            CliError::Finding("the output was closed before all changes were shown: nothing was undone".to_owned())
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_that_nobody_sees_are_not_made() {
        let closed = unseen_error(std::io::Error::from(std::io::ErrorKind::BrokenPipe));
        assert!(matches!(&closed, CliError::Finding(text) if text.contains("nothing was undone")), "{closed:?}");
        assert_eq!(closed.exit_code(), 1);
    }

    #[test]
    fn a_program_reads_one_object() {
        let change = pb::EntityChange { path: "/kv/a".to_owned(), kind: 3, ..Default::default() };
        let left = vec![("/nodes/n".to_owned(), "why")];
        let preview = Preview { changes: vec![change], left, types: Types::new(), epoch: "e".to_owned() };
        let done = pb::CommitResponse { index: 7, ..Default::default() };
        let json = preview.as_json(Some(&done));
        assert_eq!((&json["changes"][0]["path"], &json["changes"][0]["kind"]), (&json!("/kv/a"), &json!("REMOVED")));
        assert_eq!(json["left"], json!([{"path": "/nodes/n", "reason": "why"}]));
        assert_eq!((&json["commit"]["index"], &json["epoch"]), (&json!(7), &json!("e")));
        assert_eq!(preview.as_json(None)["commit"], Value::Null);
    }
}
