//! The lock file, and cargo's own view of packages and of the graph between them.
//!
//! The lock file has the sources and checksums of all packages, for every platform. Licences are in
//! the packages themselves, which cargo has only for platforms that were built. `cargo metadata`
//! joins the features that tests ask for with those of the program, so the graph of the program
//! comes from `cargo tree`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail, ensure};
use serde::Deserialize;

/// The package of the program.
pub(crate) const PROGRAM: &str = "headwater";

/// Name and version of a package.
pub(crate) type PackageId = (String, String);

/// The lock file.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct LockFile {
    #[serde(rename = "package")]
    pub(crate) packages: Vec<LockedPackage>,
}

/// A package of the lock file.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct LockedPackage {
    pub(crate) name: String,
    pub(crate) version: String,
    /// Kind and URL of the source; `None` for a folder of this machine.
    #[cfg(test)]
    pub(crate) source: Option<String>,
    /// SHA-256 of the package, hexadecimal.
    pub(crate) checksum: Option<String>,
}

/// The folder of the project.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

impl LockFile {
    /// Reads the lock file of the project.
    pub(crate) fn read() -> anyhow::Result<Self> {
        let path = root().join("Cargo.lock");
        let text = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        toml::from_str(&text).with_context(|| format!("reading {}", path.display()))
    }

    /// The checksums of packages that have one.
    pub(crate) fn checksums(&self) -> BTreeMap<PackageId, &str> {
        let with_checksum = self.packages.iter().filter_map(|package| {
            Some(((package.name.clone(), package.version.clone()), package.checksum.as_deref()?))
        });
        with_checksum.collect()
    }
}

/// The platform of this machine, as rustc names it.
pub(crate) fn host() -> anyhow::Result<String> {
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let text = output(&rustc, &["-vV"])?;
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).context("rustc does not name its host")
}

fn cargo(arguments: &[&str]) -> anyhow::Result<String> {
    output(&std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned()), arguments)
}

fn output(program: &str, arguments: &[&str]) -> anyhow::Result<String> {
    let output = Command::new(program)
        .args(arguments)
        .current_dir(root())
        .output()
        .with_context(|| format!("running {program}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program} {}: {}\n{said}", arguments.join(" "), output.status);
    String::from_utf8(output.stdout).with_context(|| format!("{program} printed something else than text"))
}

/// A package as its manifest describes it.
#[cfg(test)]
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) license: Option<String>,
    pub(crate) source: Option<String>,
    pub(crate) manifest_path: PathBuf,
}

/// All packages of the workspace and all its dependencies on a platform, those of tests and build
/// scripts included. Uses no network.
#[cfg(test)]
pub(crate) fn packages(target: &str) -> anyhow::Result<Vec<Package>> {
    #[derive(Deserialize)]
    struct Metadata {
        packages: Vec<Package>,
    }
    let arguments = ["metadata", "--locked", "--offline", "--format-version", "1", "--filter-platform", target];
    let metadata: Metadata = serde_json::from_str(&cargo(&arguments)?).context("reading cargo's metadata")?;
    Ok(metadata.packages)
}

/// The graph of the program's dependencies.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Graph(pub(crate) BTreeMap<PackageId, Node>);

/// A package of the graph.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Node {
    /// The licence as the manifest has it; empty if it has none.
    pub(crate) licence: String,
    /// Whether the package is linked into the program; false for one that only its build uses.
    pub(crate) is_linked: bool,
    pub(crate) dependencies: BTreeSet<PackageId>,
}

impl Graph {
    /// The packages that the program is built from on a platform: those that are linked into it,
    /// and those of build scripts and macros.
    pub(crate) fn of_program(target: &str) -> anyhow::Result<Self> {
        let tree = |edges| {
            let format = ["--prefix", "depth", "--charset", "ascii", "--format", "|{p}|{l}"];
            let choice = ["tree", "--locked", "--package", PROGRAM, "--edges", edges, "--target", target];
            Self::parse(&cargo(&[&choice[..], &format].concat())?)
        };
        let (mut all, linked) = (tree("normal,build")?, tree("normal,no-proc-macro")?);
        for (id, node) in &mut all.0 {
            node.is_linked = linked.0.contains_key(id);
        }
        Ok(all)
    }

    /// Reads lines `DEPTH|NAME vVERSION …|LICENCE`. A line that ends in `(*)` has no dependencies
    /// below it, because an earlier line has them.
    pub(crate) fn parse(tree: &str) -> anyhow::Result<Self> {
        let mut graph = Self::default();
        let mut path: Vec<PackageId> = Vec::new();
        for line in tree.lines().filter(|line| !line.is_empty()) {
            let mut parts = line.splitn(3, '|');
            let (Some(depth), Some(package), Some(licence)) = (parts.next(), parts.next(), parts.next()) else {
                bail!("cargo printed {line:?}");
            };
            let depth: usize = depth.parse().with_context(|| format!("cargo printed {line:?}"))?;
            let mut words = package.split(' ');
            let (Some(name), Some(version)) = (words.next(), words.next().and_then(|word| word.strip_prefix('v')))
            else {
                bail!("cargo printed {line:?}");
            };
            ensure!(depth <= path.len(), "cargo printed {line:?} without the package above it");
            let id = (name.to_owned(), version.to_owned());
            path.truncate(depth);
            if let Some(parent) = path.last() {
                graph.0.entry(parent.clone()).or_default().dependencies.insert(id.clone());
            }
            let node = graph.0.entry(id.clone()).or_default();
            licence.trim_end_matches("(*)").trim().clone_into(&mut node.licence);
            path.push(id);
        }
        Ok(graph)
    }
}

#[cfg(test)]
mod unit_tests {
    use super::*;

    #[test]
    fn a_tree_is_read_with_what_an_earlier_line_has() {
        let tree = "0|a v1.0.0 (/x/a)|Apache-2.0\n1|b v2.1.0 (proc-macro)|MIT/Apache-2.0\n2|c v0.1.0+7|\n\
                    1|d v1.0.0|(MIT OR Zlib) AND ISC\n2|b v2.1.0 (proc-macro)|MIT/Apache-2.0 (*)\n1|c v0.2.0|MIT\n";
        let graph = Graph::parse(tree).unwrap();
        let id = |text: &str| {
            let (name, version) = text.split_once(' ').unwrap();
            (name.to_owned(), version.to_owned())
        };
        let of = |text: &str| {
            let node = &graph.0[&id(text)];
            (node.licence.as_str(), node.dependencies.iter().cloned().collect::<Vec<_>>())
        };
        assert_eq!(of("a 1.0.0"), ("Apache-2.0", vec![id("b 2.1.0"), id("c 0.2.0"), id("d 1.0.0")]));
        assert_eq!(of("b 2.1.0"), ("MIT/Apache-2.0", vec![id("c 0.1.0+7")]));
        assert_eq!(of("c 0.1.0+7"), ("", vec![]));
        assert_eq!(of("d 1.0.0"), ("(MIT OR Zlib) AND ISC", vec![id("b 2.1.0")]));
        for wrong in ["1|a v1|MIT", "0|a|MIT", "0|a v1", "x|a v1|MIT", "0|a 1|MIT", "0|a v1|MIT\n2|b v1|MIT"] {
            assert!(Graph::parse(wrong).is_err(), "{wrong}");
        }
    }
}
