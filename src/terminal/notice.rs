//! Lines on standard error, for people.
//!
//! Invariant: a command does not end because nobody reads its standard error. So the crates with
//! commands use [`notice!`](macro@crate::notice) in place of `eprintln!`, which panics then;
//! `tests/tidy` holds that.

use std::fmt::Arguments;
use std::io::Write;

/// Prints a line on standard error, as `eprintln!` does. Ignores a failure, such as a closed pipe.
#[macro_export]
macro_rules! notice {
    ($($text:tt)*) => {
        $crate::print_notice(::std::format_args!($($text)*))
    };
}

/// Prints the line of [`notice!`](macro@crate::notice).
pub fn print_notice(text: Arguments<'_>) {
    print(&mut std::io::stderr().lock(), text);
}

fn print(out: &mut impl Write, text: Arguments<'_>) {
    // One write, so that lines of several processes do not mix.
    let _nobody_reads = out.write_all(format!("{text}\n").as_bytes()).is_err();
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pipe whose reader is gone.
    struct Closed;

    impl Write for Closed {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_that_nobody_reads_is_dropped() {
        print(&mut Closed, format_args!("unread"));
        let mut out = Vec::new();
        print(&mut out, format_args!("{} lines", 2));
        assert_eq!(out, b"2 lines\n");
    }
}
