//! The wall clock of one node jumps and drifts. Nothing that a client can see may depend on it.
//!
//! By libfaketime, which reads the offset from a file while the node runs. The monotonic clock stays true, as it does on a
//! real machine.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;

use super::{Scene, Skipped};
use crate::rig::tool;

/// How long a node may take to start with a clock that lies.
const START_MAX: Duration = Duration::from_secs(15);
/// What the clock does, one after the other.
const STEPS: &[&str] = &["+3600", "-3600", "+0 x1.5", "+0"];

pub(crate) fn library() -> Result<PathBuf, String> {
    tool::library("faketime/libfaketimeMT.so.1")
        .ok_or_else(|| "libfaketime is not installed (scripts/setup chaos)".to_owned())
}

pub(crate) async fn jump(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    let library = library().map_err(anyhow::Error::msg)?;
    let node = scene.any();
    let rig = scene.rig;
    let file = rig.dir.join(format!("node{}", node + 1)).join("faketime");
    let set = |offset: &str| std::fs::write(&file, format!("{offset}\n")).context("the file with the offset");
    set("+0")?;
    let variables = [
        ("LD_PRELOAD", library.display().to_string()),
        ("FAKETIME_TIMESTAMP_FILE", file.display().to_string()),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
        ("DONT_FAKE_MONOTONIC", "1".to_owned()),
        ("FAKETIME_NO_CACHE", "1".to_owned()),
    ];
    rig.nodes[node].terminate().await;
    rig.nodes[node].set_environment(&variables.map(|(name, value)| (name.to_owned(), value)));
    rig.launch(node)?;
    // Some versions of it stand still inside a program that brings its own allocator.
    if tokio::time::timeout(START_MAX, rig.wait_serving(node)).await.is_err() {
        rig.nodes[node].kill().await;
        rig.nodes[node].set_environment(&[]);
        rig.restart(node).await?;
        return Err(Skipped("the program does not start with this libfaketime".to_owned()).into());
    }
    for offset in STEPS {
        let mark = rig.begin(Some(node), format!("clock {offset}"));
        set(offset)?;
        scene.hold(1500..2500).await;
        rig.end(mark);
    }
    rig.nodes[node].terminate().await;
    rig.nodes[node].set_environment(&[]);
    rig.launch(node)?;
    rig.wait_all_serving().await
}
