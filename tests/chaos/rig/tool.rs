//! Programs of the system that the rig calls.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use tokio::process::Command;

/// Folders of system programs, which are not always in `PATH`.
const FOLDERS: &[&str] = &["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/local/bin", "/usr/bin", "/bin"];

/// Runs a program and returns its standard output. An error unless its exit status is 0.
pub(crate) async fn run(program: &str, arguments: &[&str]) -> anyhow::Result<String> {
    let path = find(program).unwrap_or_else(|| PathBuf::from(program));
    let shown = format!("{program} {}", arguments.join(" "));
    // A process group of its own, which Ctrl-C does not reach: the run needs these programs to
    // clean up.
    let mut command = Command::new(path);
    command.args(arguments).process_group(0).kill_on_drop(true);
    let done = command.output().await.with_context(|| shown.clone())?;
    if !done.status.success() {
        bail!("{shown}: {}", String::from_utf8_lossy(&done.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}

/// Path of a program in [`FOLDERS`]; `None` if it is not installed.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    FOLDERS.iter().map(|folder| Path::new(folder).join(program)).find(|path| path.is_file())
}

/// Path of a system library by its file name; `None` if it is not installed.
pub(crate) fn library(name: &str) -> Option<PathBuf> {
    let folders = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"];
    folders.iter().map(|folder| Path::new(folder).join(name)).find(|path| path.is_file())
}

/// Whether this process has the rights of root.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
