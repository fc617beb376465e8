//! What a run left behind that was killed before it could clear up: mounts, images of disks, a network.
//!
//! A run writes its process id into its folder and onto its bridge. What belongs to a process that is gone is nobody's.

use std::fs;
use std::path::Path;

use anyhow::Context;

use super::{net, tool};

/// The file in a run's folder that names its process.
const OWNER: &str = "pid";

/// Notes that the folder is this process's.
pub(crate) fn claim(dir: &Path) -> anyhow::Result<()> {
    fs::write(dir.join(OWNER), std::process::id().to_string()).context("a run's folder")
}

/// Removes what runs have left whose processes are gone. What cannot be removed is left for people, and said.
pub(crate) async fn sweep() {
    if !tool::is_root() {
        return;
    }
    let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
    for disk in mounts.lines().filter_map(|line| line.split(' ').nth(1)).map(Path::new) {
        // DIR/node1/disk
        let Some(home) = disk.parent().filter(|_| disk.ends_with("disk")) else { continue };
        let Some(owner) = home.parent().and_then(|dir| fs::read_to_string(dir.join(OWNER)).ok()) else { continue };
        if runs(&owner) {
            continue;
        }
        eprintln!("removing {}, left behind by a run that was killed", disk.display());
        for (program, argument) in [("fsfreeze", "-u"), ("umount", "-l")] {
            // Only a frozen one can be thawed.
            let done = tool::run(program, &[argument, &disk.to_string_lossy()]).await;
            if let (Err(error), "umount") = (done, program) {
                eprintln!("{error:#}");
            }
        }
        if let Err(error) = fs::remove_file(home.join("disk.img")) {
            eprintln!("{}: {error}", home.display());
        }
    }
    net::sweep(runs).await;
}

/// Whether the process that an id names is a run of this program.
fn runs(id: &str) -> bool {
    let name = |id: &str| fs::read_to_string(format!("/proc/{}/comm", id.trim())).ok();
    name(id).is_some_and(|found| Some(found) == name("self"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_program_owns_something() {
        assert!(runs(&format!("{}\n", std::process::id())));
        assert!(!runs("1"), "another program");
        assert!(!runs("0") && !runs("4194999") && !runs(""), "nobody");
    }
}
