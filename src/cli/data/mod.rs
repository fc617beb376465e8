//! Data sets from text files: written key by key with `load`, read back and compared with `verify`.
//!
//! A line is a key; its value is the number of the line, or the text after the first tab. Only the
//! first line of a repeated key counts, so that the expected content does not depend on the order
//! in which concurrent writes arrive.

pub(super) mod load;
pub(super) mod verify;

use std::collections::HashSet;
use std::io::{IsTerminal, Read};
use std::path::Path;

use bytes::Bytes;

use super::error::CliError;
use super::progress::Progress;

/// The progress of a command: shown if `wanted`, and always if standard error is a terminal.
fn progress(what: &'static str, total: usize, wanted: bool) -> Progress {
    if wanted || std::io::stderr().is_terminal() { Progress::new(what, Some(total as u64)) } else { Progress::Off }
}

/// Pairs in the order of the file, each key once.
struct DataSet {
    pairs: Vec<(Bytes, Bytes)>,
    /// Number of lines that gave no pair: those with repeated or empty keys. Empty lines are not
    /// counted.
    skipped: usize,
}

impl DataSet {
    fn read(path: &Path, prefix: &str) -> Result<Self, CliError> {
        let mut text = Vec::new();
        let outcome = if path.as_os_str() == "-" {
            std::io::stdin().lock().read_to_end(&mut text)
        } else {
            std::fs::File::open(path).and_then(|mut file| file.read_to_end(&mut text))
        };
        outcome.map_err(|error| CliError::Usage(format!("cannot read {}: {error}", path.display())))?;
        Ok(Self::parse(&text, prefix))
    }

    fn parse(text: &[u8], prefix: &str) -> Self {
        let mut pairs = Vec::new();
        let mut seen = HashSet::new();
        let mut skipped = 0;
        for (number, line) in text.split(|byte| *byte == b'\n').enumerate() {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            let (name, value) = match line.iter().position(|byte| *byte == b'\t') {
                Some(tab) => (&line[..tab], Bytes::copy_from_slice(&line[tab + 1..])),
                None => (line, Bytes::from((number + 1).to_string())),
            };
            let key = Bytes::from([prefix.as_bytes(), name].concat());
            if name.is_empty() || !seen.insert(key.clone()) {
                skipped += usize::from(!line.is_empty());
                continue;
            }
            pairs.push((key, value));
        }
        Self { pairs, skipped }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_pairs() {
        let data = DataSet::parse(b"b\na\r\n\nb\nk\tv\tw\n\tx\n", "p/");
        let pairs: Vec<(&[u8], &[u8])> = data.pairs.iter().map(|(k, v)| (k.as_ref(), v.as_ref())).collect();
        assert_eq!(pairs, [(b"p/b".as_ref(), b"1".as_ref()), (b"p/a", b"2"), (b"p/k", b"v\tw")]);
        assert_eq!(data.skipped, 2, "the repeated key and the line without one");
    }
}
