//! Tells the program the commit and the profile that it is built from. Only an optimised build asks
//! for the commit: other builds would be compiled again after each commit.

use std::path::PathBuf;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=src/build.rs");
    let is_optimised = std::env::var("OPT_LEVEL").is_ok_and(|level| level != "0");
    let commit = is_optimised.then(commit).flatten();
    let build = match (is_optimised, commit) {
        (true, Some(commit)) => format!("{commit}, optimised"),
        (true, None) => "unknown commit, optimised".to_owned(),
        (false, _) => "unoptimised".to_owned(),
    };
    println!("cargo::rustc-env=HEADWATER_BUILD={build}");
}

/// The commit of the sources, marked if they differ from it; `None` outside of a repository.
fn commit() -> Option<String> {
    let git = |args: &[&str]| {
        let output = Command::new("git").args(args).output().ok().filter(|output| output.status.success())?;
        String::from_utf8(output.stdout).ok().map(|text| text.trim().to_owned())
    };
    let dir = PathBuf::from(git(&["rev-parse", "--absolute-git-dir"])?);
    for file in [dir.join("HEAD"), dir.join("logs/HEAD")] {
        if file.exists() {
            println!("cargo::rerun-if-changed={}", file.display());
        }
    }
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    let is_clean = git(&["status", "--porcelain", "--untracked-files=no"])?.is_empty();
    Some(if is_clean { commit } else { format!("{commit} with changes") })
}
