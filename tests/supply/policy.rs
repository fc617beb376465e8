//! The rules of `deny.toml` on licences and sources, as cargo-deny reads them.
//!
//! Knows only the keys that the project uses: another key of these two sections is an error, so
//! that cargo-deny cannot judge by a rule that is not checked here.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Context;
use serde::Deserialize;

use super::cargo::{LockFile, Package, root};
use super::licence::Expression;

/// The parts of `deny.toml` that are checked here.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Policy {
    pub(crate) licenses: Licences,
    pub(crate) sources: Sources,
}

/// The section `licenses`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Licences {
    /// Licences that packages may have, as SPDX names them.
    pub(crate) allow: Vec<String>,
    #[serde(rename = "confidence-threshold")]
    _confidence_threshold: f64,
    #[serde(rename = "unused-allowed-license")]
    _unused_allowed_license: String,
}

/// The section `sources`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Sources {
    pub(crate) unknown_registry: String,
    pub(crate) unknown_git: String,
    /// URLs of registries.
    pub(crate) allow_registry: Vec<String>,
    /// URLs of repositories.
    pub(crate) allow_git: Vec<String>,
}

impl Policy {
    /// Reads `deny.toml` of the project.
    pub(crate) fn read() -> anyhow::Result<Self> {
        let path = root().join("deny.toml");
        let text = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        toml::from_str(&text).with_context(|| format!("reading {}", path.display()))
    }

    /// Everything in the lock file and in the packages that breaks a rule, one line each.
    pub(crate) fn violations(&self, lock: &LockFile, packages: &[Package], root: &Path) -> Vec<String> {
        let mut found = Vec::new();
        self.check_sources(lock, packages, root, &mut found);
        self.check_licences(packages, &mut found);
        found
    }

    fn check_sources(&self, lock: &LockFile, packages: &[Package], root: &Path, found: &mut Vec<String>) {
        for (what, rule) in
            [("unknown-registry", &self.sources.unknown_registry), ("unknown-git", &self.sources.unknown_git)]
        {
            if rule != "deny" {
                found.push(format!("deny.toml: {what} is {rule:?}, and must be \"deny\""));
            }
        }
        let own: BTreeSet<&str> = packages
            .iter()
            .filter(|package| package.source.is_none() && package.manifest_path.starts_with(root))
            .map(|package| package.name.as_str())
            .collect();
        for package in &lock.packages {
            let name = format!("{} {}", package.name, package.version);
            let Some(source) = &package.source else {
                if !own.contains(package.name.as_str()) {
                    found.push(format!("{name} is a folder outside of the project"));
                }
                continue;
            };
            let (kind, url) = source.split_once('+').unwrap_or(("", source));
            let is_allowed = match kind {
                "registry" | "sparse" => self.sources.allow_registry.iter().any(|allowed| allowed == url),
                "git" => {
                    let repository = url.split(['?', '#']).next().unwrap_or(url);
                    self.sources.allow_git.iter().any(|allowed| allowed == repository)
                }
                _ => false,
            };
            if !is_allowed {
                found.push(format!("{name} is from {source}, which deny.toml does not allow"));
            }
            if kind != "git" && package.checksum.is_none() {
                found.push(format!("{name} has no checksum in Cargo.lock"));
            }
        }
    }

    fn check_licences(&self, packages: &[Package], found: &mut Vec<String>) {
        let mut met = BTreeSet::new();
        for package in packages {
            let name = format!("{} {}", package.name, package.version);
            let Some(text) = &package.license else {
                found.push(format!("{name} names no licence"));
                continue;
            };
            match Expression::parse(text) {
                Err(error) => found.push(format!("{name}: {error:#}")),
                Ok(expression) => {
                    met.extend(expression.licences().into_iter().map(str::to_owned));
                    if !expression.is_satisfied(&|licence| self.licenses.allow.iter().any(|allowed| allowed == licence))
                    {
                        found.push(format!("{name} has the licence {text}, which deny.toml does not allow"));
                    }
                }
            }
        }
        for allowed in self.licenses.allow.iter().filter(|allowed| !met.contains(*allowed)) {
            found.push(format!("deny.toml allows {allowed}, which no package has"));
        }
    }
}
