//! One run of the program: its exit status and output.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::process::Command;

/// The exit status of a Rust program that panicked.
const PANIC_STATUS: i32 = 101;

/// The result of a run of the program.
pub(crate) struct Ran {
    /// `None` if the run did not end in time and was killed.
    status: Option<ExitStatus>,
    /// Standard output, then error output. The arguments if the run was killed.
    pub(crate) output: String,
}

impl Ran {
    pub(crate) fn is_success(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }

    pub(crate) fn succeeded(&self) -> anyhow::Result<()> {
        anyhow::ensure!(self.is_success(), "{:?}: {}", self.status, self.output);
        Ok(())
    }

    /// The defect that the end of the run shows: a hang, a signal, a panic, or a failure without
    /// output. `None` if there is none.
    pub(crate) fn defect(&self) -> Option<String> {
        let output = self.output.trim();
        match self.status {
            None => Some(format!("hangs: {output}")),
            Some(status) if status.signal().is_some() => Some(format!("ends by {status}: {output}")),
            Some(status) if status.code() == Some(PANIC_STATUS) || output.contains("panicked at") => {
                Some(format!("panics: {output}"))
            }
            Some(status) if !status.success() && output.is_empty() => Some("fails without a word".to_owned()),
            Some(_) => None,
        }
    }
}

/// Runs the program with these arguments and collects its standard output and error output. Kills
/// it after `timeout`.
pub(crate) async fn run_program(binary: &Path, arguments: &[String], timeout: Duration) -> anyhow::Result<Ran> {
    let mut command = Command::new(binary);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let child = command.spawn()?;
    match tokio::time::timeout(timeout, child.wait_with_output()).await {
        Ok(output) => {
            let output = output?;
            let text = [output.stdout, output.stderr].concat();
            Ok(Ran { status: Some(output.status), output: String::from_utf8_lossy(&text).into_owned() })
        }
        Err(_) => Ok(Ran { status: None, output: arguments.join(" ") }),
    }
}
