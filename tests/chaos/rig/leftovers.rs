//! Leftovers of a run that was killed before it could clear up: mounts, images of disks, a network.
//!
//! A run writes the id of its process (`own_id`) to a file in its folder, and to the alias of its
//! bridge. Leftovers of a process that has ended are removed.

use std::fs;
use std::path::Path;

use anyhow::Context;

use super::{net, tool};

/// Name of the file in a run's folder with the id of the run's process, as `own_id` makes it.
const OWNER: &str = "pid";

/// Writes this process's id into the run's folder.
pub(crate) fn claim(dir: &Path) -> anyhow::Result<()> {
    fs::write(dir.join(OWNER), own_id()).context("a run's folder")
}

/// Removes the leftovers of runs that have ended, if this process is root. Prints those that cannot
/// be removed.
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
            // Thawing fails unless it is frozen.
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

/// An id of this process that no later process has: process id and time of start.
pub(super) fn own_id() -> String {
    let pid = std::process::id().to_string();
    let started = started(&pid).unwrap_or_default();
    format!("{pid} {started}")
}

/// Whether the process with this id, as [`own_id`] makes it, still runs.
fn runs(id: &str) -> bool {
    id.trim().split_once(' ').is_some_and(|(pid, start)| started(pid).is_some_and(|found| found == start))
}

/// The time at which a process was started, in the kernel's ticks; `None` if it does not run.
fn started(pid: &str) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // After the name, field 2, which may have any characters: field 22.
    let (_, fields) = stat.rsplit_once(") ")?;
    fields.split(' ').nth(19).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_runs_is_known_by_number_and_start() {
        assert!(runs(&own_id()) && runs(&format!("{}\n", own_id())));
        assert!(!runs(&format!("{} 1", std::process::id())), "somebody who had the number before");
        assert!(!runs("4194999 1") && !runs("1") && !runs(""), "nobody");
    }
}
