//! Shows the progress of a long command on standard error: a bar if that is a terminal, else a line
//! at most every two seconds.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use super::output::human_bytes;
use crate::notice;

const BETWEEN_LINES: Duration = Duration::from_secs(2);
const BETWEEN_DRAWS: Duration = Duration::from_millis(100);

/// The progress of a command, and the way in which it is shown.
pub enum Progress {
    /// Nothing is shown.
    Off,
    /// A bar, on a terminal.
    Bar(ProgressBar),
    /// Lines, for a file or a pipe.
    Lines {
        /// The work, in one word.
        what: &'static str,
        /// The position at the end of the work, if it is known.
        total: Option<u64>,
        /// Time at which the progress began.
        began: Instant,
        /// Time of the last line; before the first line, that of `began`.
        printed: Instant,
        /// The current position.
        done: u64,
        /// Whether positions are bytes, and are printed with a unit.
        bytes: bool,
    },
}

impl Progress {
    /// Begins at position 0. `total` is the position at the end of the work, if it is known.
    pub fn new(what: &'static str, total: Option<u64>) -> Self {
        if std::io::stderr().is_terminal() {
            let bar = match total {
                Some(total) => ProgressBar::new(total)
                    .with_style(style("{msg} [{bar:32}] {human_pos}/{human_len} {per_sec} eta {eta}")),
                None => ProgressBar::new_spinner().with_style(style("{msg} {spinner} {human_pos} {per_sec} {elapsed}")),
            };
            bar.set_message(what);
            bar.enable_steady_tick(BETWEEN_DRAWS);
            Self::Bar(bar)
        } else {
            let now = Instant::now();
            Self::Lines { what, total, began: now, printed: now, done: 0, bytes: false }
        }
    }

    /// Begins a progress in bytes. If standard error is not a terminal, it is shown only if
    /// `with_lines` is true.
    pub fn of_bytes(what: &'static str, total: u64, with_lines: bool) -> Self {
        let mut progress = Self::new(what, Some(total));
        match &mut progress {
            Self::Bar(bar) => bar.set_style(style("{msg} [{bar:32}] {bytes}/{total_bytes} {bytes_per_sec} eta {eta}")),
            Self::Lines { bytes, .. } if with_lines => *bytes = true,
            Self::Lines { .. } | Self::Off => progress = Self::Off,
        }
        progress
    }

    /// Sets the current position. Without a bar, prints a line if the last one is at least two
    /// seconds old.
    pub fn set(&mut self, position: u64) {
        match self {
            Self::Off => {}
            Self::Bar(bar) => bar.set_position(position),
            Self::Lines { printed, done, .. } => {
                *done = position;
                if printed.elapsed() >= BETWEEN_LINES {
                    *printed = Instant::now();
                    self.line();
                }
            }
        }
    }

    /// Ends the progress: removes the bar, or prints a last line with the current position.
    pub fn finish(&mut self) {
        match self {
            Self::Off => {}
            Self::Bar(bar) => bar.finish_and_clear(),
            Self::Lines { .. } => self.line(),
        }
    }

    fn line(&self) {
        if let Self::Lines { what, total, began, done, bytes, .. } = self {
            let show = |count: u64| if *bytes { human_bytes(count) } else { count.to_string() };
            let rate = *done as f64 / began.elapsed().as_secs_f64().max(1e-3);
            match total {
                Some(total) => {
                    let percent = done.saturating_mul(100).checked_div(*total).unwrap_or(100);
                    notice!("{what} {}/{} ({percent} %), {}/s", show(*done), show(*total), show(rate as u64));
                }
                None => notice!("{what} {done}, {rate:.0}/s"),
            }
        }
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("the templates of this file are valid").progress_chars("=> ")
}
