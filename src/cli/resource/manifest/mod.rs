//! Manifests: files that describe the wanted resources.
//!
//! Owns the grammar of manifests, and the location of a mistake in a file. Talks to no server: its
//! knowledge of the cluster is the catalogue that it is given. Invariant: either all documents of
//! all files are valid, or the result is problems only.
//!
//! ```yaml
//! type: Artist                # or demo.v2.Artist, or {group: demo, groupVersion: v2, kind: Artist}
//! name: korn
//! tenancy: {namespace: music} # left out: default
//! owner: {type: RecordLabel, name: immortal}
//! metadata: {team: core}
//! data: {name: Korn, genre: GENRE_METAL}
//! ```

mod draft;
pub(super) mod node;
mod plan;
mod proto;
mod registration;

use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::error::CliError;
use crate::notice;
pub(crate) use node::{Content, Location, Problem, YamlEntry, YamlNode, documents};
pub(super) use plan::{Planned, plan};
pub(crate) use plan::{named, plan_one};

/// The text of a file or of standard input, as it was read.
#[derive(Debug)]
pub(crate) struct Source {
    /// Name of the file in messages.
    pub(crate) name: String,
    /// Folder to which the paths in the manifest are relative; `None` for standard input.
    pub(crate) folder: Option<PathBuf>,
    pub(crate) text: String,
}

impl Source {
    /// The text of `problem`, with this file, and with line and column if they are known.
    pub(crate) fn located(&self, problem: Problem) -> String {
        Located { file: self.name.as_str().into(), problem }.to_string()
    }
}

/// A problem, with its file.
#[derive(Clone, Debug)]
pub(super) struct Located {
    file: Rc<str>,
    problem: Problem,
}

impl fmt::Display for Located {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some(Location { line, column }) = self.problem.location {
            write!(f, ":{line}:{column}")?;
        }
        write!(f, ": {}", self.problem.text)
    }
}

/// Endings of the files that count as manifests in a folder.
const ENDINGS: &[&str] = &["yaml", "yml", "json"];

/// Reads the arguments of `-f`: files, folders (their manifests, without subfolders), or `-` for
/// standard input. Commits in folders are left out, with a note on standard error. A folder without
/// a manifest is an error.
pub(super) fn read(names: &[String]) -> Result<Vec<Source>, CliError> {
    read_without(names, |commit| notice!("{commit}: left out, it is a commit (headwater commit -f)"))
}

/// As [`read`], with `left_out` in place of the note; it gets the name of the file.
fn read_without(names: &[String], mut left_out: impl FnMut(&str)) -> Result<Vec<Source>, CliError> {
    let mut sources = Vec::new();
    for name in names {
        let path = Path::new(name);
        if name == "-" {
            let mut text = String::new();
            let read = std::io::stdin().read_to_string(&mut text);
            read.map_err(|error| CliError::Usage(format!("standard input cannot be read: {error}")))?;
            sources.push(Source { name: "standard input".to_owned(), folder: None, text });
        } else if path.is_dir() {
            let before = sources.len();
            for file in manifests(path)? {
                let source = read_file(&file)?;
                if is_commit(&source.text) {
                    left_out(&source.name);
                } else {
                    sources.push(source);
                }
            }
            if sources.len() == before {
                return Err(CliError::Usage(format!("{name} has no .yaml, .yml or .json file with resources")));
            }
        } else {
            sources.push(read_file(path)?);
        }
    }
    Ok(sources)
}

/// Reads one file, or standard input if `name` is `-`. A folder is an error.
pub(crate) fn read_one(name: &str) -> Result<Source, CliError> {
    if Path::new(name).is_dir() {
        return Err(CliError::Usage(format!("{name} is a folder: name one file")));
    }
    let mut sources = read(&[name.to_owned()])?;
    Ok(sources.remove(0))
}

fn manifests(folder: &Path) -> Result<Vec<PathBuf>, CliError> {
    let failed = |error| CliError::Usage(format!("{}: {error}", folder.display()));
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let is_manifest = path.extension().and_then(|ending| ending.to_str()).is_some_and(|it| ENDINGS.contains(&it));
        if is_manifest && path.is_file() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Whether a text is a commit for `headwater commit`: one document with `operations`, which no
/// manifest has.
fn is_commit(text: &str) -> bool {
    let Ok(documents) = documents(text) else { return false };
    matches!(&documents[..], [YamlNode { content: Content::Map(entries), .. }]
        if entries.iter().any(|entry| entry.key == "operations"))
}

fn read_file(path: &Path) -> Result<Source, CliError> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| CliError::Usage(format!("{} cannot be read: {error}", path.display())))?;
    Ok(Source { name: path.display().to_string(), folder: path.parent().map(Path::to_owned), text })
}

#[cfg(test)]
mod tests;
