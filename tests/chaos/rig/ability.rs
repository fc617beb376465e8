//! Abilities of this machine. Each is tried on a small scale, because in a container root alone
//! does not give them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use super::tool;

/// Size of the trial file system.
const TRIAL_BYTES: u64 = 4 << 20;

/// The reason why a node's disk cannot be a file system of its own; `None` if it can.
pub(crate) fn no_volumes() -> Option<String> {
    static FOUND: OnceLock<Option<String>> = OnceLock::new();
    FOUND.get_or_init(|| try_volume().err()).clone()
}

/// The reason why a node cannot have a network namespace of its own; `None` if it can.
pub(crate) fn no_namespaces() -> Option<String> {
    static FOUND: OnceLock<Option<String>> = OnceLock::new();
    FOUND.get_or_init(|| try_namespace().err()).clone()
}

fn try_volume() -> Result<(), String> {
    needs_root("mounting")?;
    installed(&["mkfs.ext4", "mount", "umount", "python3", "findmnt", "fsfreeze", "fallocate", "e2fsck"])?;
    let folder = std::env::temp_dir().join(format!("headwater-chaos-trial-{}", std::process::id()));
    let mount = folder.join("mount");
    let image = folder.join("image");
    let trial = || {
        std::fs::create_dir_all(&mount).map_err(|error| error.to_string())?;
        let made = std::fs::File::create(&image).and_then(|file| file.set_len(TRIAL_BYTES));
        made.map_err(|error| error.to_string())?;
        run("mkfs.ext4", &["-q".as_ref(), "-F".as_ref(), &image])?;
        run("mount", &["-o".as_ref(), "loop".as_ref(), &image, &mount])?;
        run("umount", &[&mount])
    };
    let done = trial();
    if let Err(error) = std::fs::remove_dir_all(&folder) {
        eprintln!("{}: {error}", folder.display());
    }
    done
}

fn try_namespace() -> Result<(), String> {
    needs_root("a network namespace")?;
    installed(&["ip", "nft", "tc", "nsenter"])?;
    let name = format!("hwtrial{}", std::process::id());
    let words =
        |line: &str| -> Vec<PathBuf> { line.split(' ').map(|word| PathBuf::from(word.replace('@', &name))).collect() };
    let ip = |line: &str| run("ip", &words(line).iter().map(PathBuf::as_path).collect::<Vec<_>>());
    ip("netns add @")?;
    let done = ip("netns exec @ nft add table inet trial").and_then(|()| ip("-n @ link add trial type bridge"));
    let gone = ip("netns del @");
    done.and(gone)
}

fn needs_root(what: &str) -> Result<(), String> {
    if tool::is_root() { Ok(()) } else { Err(format!("{what} needs root")) }
}

fn installed(programs: &[&str]) -> Result<(), String> {
    match programs.iter().find(|program| tool::find(program).is_none()) {
        Some(missing) => Err(format!("{missing} is not installed (scripts/setup chaos)")),
        None => Ok(()),
    }
}

fn run(program: &str, arguments: &[&Path]) -> Result<(), String> {
    let path = tool::find(program).unwrap_or_else(|| PathBuf::from(program));
    let done = Command::new(path).args(arguments).output().map_err(|error| format!("{program}: {error}"))?;
    if done.status.success() {
        return Ok(());
    }
    let answers = String::from_utf8_lossy(&done.stderr);
    Err(format!("not allowed here: {program}: {}", answers.lines().next().unwrap_or_default().trim()))
}
