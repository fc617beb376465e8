//! Prints the dependencies of the program as a CycloneDX document: `sbom [TARGET]`, where TARGET is
//! the platform of the program, by default that of this machine.
//!
//! | module | contents |
//! |---|---|
//! | `cargo` | the lock file, the packages and the graph, as cargo tells them |
//! | `licence` | SPDX expressions |
//! | `policy` | the allowed licences and sources of `deny.toml`, and what breaks them |
//! | `bom` | the document |
//!
//! The tests judge all dependencies of the workspace by `deny.toml`, without the network.

mod bom;
mod cargo;
mod licence;
#[cfg(test)]
mod policy;
#[cfg(test)]
mod tests;

use std::io::Write;

use anyhow::ensure;

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let target = arguments.next().map_or_else(cargo::host, Ok)?;
    ensure!(arguments.next().is_none() && !target.starts_with('-'), "usage: sbom [TARGET]");
    let document = bom::of_program(&target)?;
    writeln!(std::io::stdout().lock(), "{document}")?;
    Ok(())
}
