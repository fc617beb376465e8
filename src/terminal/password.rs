//! Passwords from the terminal, without an echo.

use std::io::{self, BufRead, IsTerminal, Write};

use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};

use super::error::CliError;
use crate::notice;

/// Reads one line of standard input, without its line ending. If `interactive` is true and the
/// input is a terminal, prints the prompt `words` on standard error first, and does not show the
/// typed text.
///
/// # Errors
///
/// [`CliError::Usage`] if the input is at its end; [`CliError::Other`] if the terminal or the input
/// fails.
pub fn ask_password(words: &str, interactive: bool) -> Result<String, CliError> {
    let stdin = io::stdin();
    let hidden = match interactive && stdin.is_terminal() {
        true => {
            let mut err = io::stderr();
            write!(err, "{words}").and_then(|()| err.flush()).map_err(CliError::other)?;
            Some(Hidden::begin().map_err(CliError::other)?)
        }
        false => None,
    };
    let mut line = String::new();
    let read = stdin.lock().read_line(&mut line).map_err(CliError::other);
    if let Some(hidden) = hidden {
        drop(hidden);
        // The line ending that the user typed was not shown.
        notice!("");
    }
    if read? == 0 {
        return Err(CliError::Usage("a password is one line of the input, and there is none".to_owned()));
    }
    line.truncate(line.trim_end_matches(['\r', '\n']).len());
    Ok(line)
}

/// A guard: the terminal does not show typed text until the guard is dropped.
struct Hidden {
    before: rustix::termios::Termios,
}

impl Hidden {
    fn begin() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut silent = before.clone();
        silent.local_modes.remove(LocalModes::ECHO);
        tcsetattr(io::stdin(), OptionalActions::Flush, &silent)?;
        Ok(Self { before })
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        // An error means that the terminal is closed, so that there is nothing to restore.
        let _gone = tcsetattr(io::stdin(), OptionalActions::Now, &self.before).is_err();
    }
}
