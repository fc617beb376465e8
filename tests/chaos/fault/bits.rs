//! A bit flips on one node's disk: in its log, its state, or a snapshot that it is receiving.
//!
//! The node must notice and end, saying what to do, or the bit must not matter. It must never serve it. Then the fault does
//! what the node says: an empty data directory, and the node comes back by a snapshot from the others, under its old id if
//! it is a first member, under another one if it had joined.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use headwater::pb::etcdserverpb::HashKvRequest;
use rand::Rng;
use rand::seq::IndexedRandom;

use super::{Scene, Skipped};
use crate::patience::within;

/// How long a node may take to notice while it is read from end to end.
const NOTICE_MAX: Duration = Duration::from_secs(30);
/// What a node with damaged data tells the operator to do.
const REMEDY: &str = "move this node's data directory away and start the node as before";
const POLL: Duration = Duration::from_millis(5);
/// Looks for a file of a snapshot that is under way.
const LOOKS: usize = 2000;

pub(crate) async fn log(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    flip(scene, "log", &["log", "sst"]).await
}

pub(crate) async fn state(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    flip(scene, "state", &["sst"]).await
}

async fn flip(scene: &mut Scene<'_>, folder: &str, kinds: &[&str]) -> anyhow::Result<()> {
    let node = scene.follower().await?;
    let rig = scene.rig;
    // In order for the state, so that there is something of it on disk.
    match folder {
        "state" => rig.nodes[node].terminate().await,
        _ => rig.nodes[node].kill().await,
    }
    let mark = rig.begin(Some(node), format!("bit flipped in {folder}"));
    let mut files = Vec::new();
    collect(&rig.disks[node].data().join(folder), kinds, &mut files);
    if files.is_empty() {
        rig.restart(node).await?;
        rig.end(mark);
        return Err(Skipped(format!("node {} has no file of its {folder} yet", node + 1)).into());
    }
    let file = files.choose(scene.rng).context("a file")?.clone();
    flip_bit(&file, scene.rng)?;
    rig.launch(node)?;
    rig.nodes[node].excuse();
    let noticed = notices(scene, node).await;
    if rig.nodes[node].ended().is_some() && !rig.nodes[node].last_log().contains(REMEDY) {
        bail!("node {} ended over a bit in {} and does not say what to do", node + 1, file.display());
    }
    let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let found = if noticed { "noticed" } else { "no harm to what was read" };
    println!("  node {}: a bit of {folder}/{name} flipped: {found}", node + 1);
    // Also if nobody noticed: it may be where only a compaction reads, and must not be blamed on a later fault.
    rig.nodes[node].kill().await;
    rig.disks[node].wipe()?;
    rig.launch(node)?;
    rig.end(mark);
    rig.wait_all_serving().await
}

/// Whether the node ends or refuses to read. Reads all that it has: a bit may be anywhere.
async fn notices(scene: &Scene<'_>, node: usize) -> bool {
    let rig = scene.rig;
    let reads = async {
        if rig.wait_serving(node).await.is_err() {
            return true;
        }
        let Ok(mut client) = rig.nodes[node].target.apart().maintenance().await else { return true };
        client.hash_kv(HashKvRequest { revision: 0 }).await.is_err()
    };
    tokio::select! {
        () = rig.nodes[node].wait_ended() => true,
        refused = within(NOTICE_MAX, reads) => refused.unwrap_or(true),
    }
}

pub(crate) async fn snapshot(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    let node = scene.follower().await?;
    let rig = scene.rig;
    rig.nodes[node].kill().await;
    rig.disks[node].wipe()?;
    let mark = rig.begin(Some(node), "bit flipped in a snapshot");
    rig.launch(node)?;
    let incoming = rig.disks[node].data().join("incoming");
    let mut caught = None;
    for _ in 0..LOOKS {
        let mut files = Vec::new();
        collect(&incoming, &["sst"], &mut files);
        if let Some(file) = files.into_iter().find(|file| file.metadata().is_ok_and(|meta| meta.len() > 0)) {
            rig.nodes[node].kill().await;
            caught = Some(file).filter(|file| file.exists());
            break;
        }
        tokio::time::sleep(POLL).await;
    }
    if let Some(file) = &caught {
        flip_bit(file, scene.rng)?;
    }
    if !rig.nodes[node].runs() {
        rig.launch(node)?;
    }
    rig.end(mark);
    rig.wait_all_serving().await?;
    match caught {
        Some(_) => Ok(()),
        None => Err(Skipped("the snapshot was through before a file of it could be damaged".to_owned()).into()),
    }
}

fn collect(folder: &Path, kinds: &[&str], files: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        let kind = path.extension().and_then(|kind| kind.to_str()).unwrap_or_default();
        if path.is_dir() {
            collect(&path, kinds, files);
        } else if kinds.contains(&kind) && path.metadata().is_ok_and(|meta| meta.len() > 0) {
            files.push(path);
        }
    }
    files.sort();
}

/// Turns over one bit that the seed chooses. The file gets a new inode: hard links elsewhere stay whole.
fn flip_bit(file: &Path, rng: &mut impl Rng) -> anyhow::Result<()> {
    let mut bytes = std::fs::read(file).with_context(|| file.display().to_string())?;
    let at = rng.random_range(0..bytes.len());
    bytes[at] ^= 1 << rng.random_range(0..8);
    let copy = file.with_extension("flipped");
    std::fs::write(&copy, bytes)?;
    std::fs::rename(&copy, file).context("replacing a file by its damaged copy")
}
