//! A bit flips on one node's disk: in its log, its state, or a snapshot that it is receiving.
//!
//! The node must notice the bit and end with advice in its log, or the bit must not matter. It must
//! never serve damaged data. After a bit in log or state, the fault then follows the advice: it
//! starts the node with an empty data directory. The node gets a snapshot from the others, under
//! its old id if it is a first member, under a new one if it had joined. A damaged snapshot must
//! not be installed: the node has to notice it before.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use rand::Rng;
use rand::seq::IndexedRandom;

use super::{Scene, Skipped};
use crate::hashes;
use crate::retry_budget::RetryBudget;
use crate::rig::Rig;

/// Longest time in which a node with a flipped bit must show its advice, or prove by hashes of its
/// keys that the bit does no harm.
const NOTICE_MAX: Duration = Duration::from_secs(30);
/// Text that a node with damaged data logs as its advice.
const REMEDY: &str = "move this node's data directory away and start the node as before";
/// Result of [`read_all`] if the node noticed the bit.
const NOTICED: &str = "noticed";
const POLL: Duration = Duration::from_millis(5);
/// Most polls for a file of a snapshot in transfer, one each [`POLL`].
const LOOKS: usize = 2000;

pub(crate) async fn log(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    flip(scene, "log", &["segment", "log", "sst"]).await
}

pub(crate) async fn state(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    flip(scene, "state", &["sst"]).await
}

async fn flip(scene: &mut Scene<'_>, folder: &str, kinds: &[&str]) -> anyhow::Result<()> {
    let node = scene.follower().await?;
    let rig = scene.rig;
    // A clean stop for the state, so that some of it is on disk.
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
    let found = read_all(scene, node).await.with_context(|| format!("a bit flipped in {}", file.display()))?;
    let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    println!("  node {}: a bit of {folder}/{name} flipped: {found}", node + 1);
    let read_mark = rig.begin(Some(node), found);
    // Also if the node noticed nothing: the bit may be where only a compaction reads. It must be
    // gone before a later fault, which would be blamed for it.
    rig.nodes[node].kill().await;
    rig.wipe(node).await?;
    rig.launch(node)?;
    rig.end(read_mark);
    rig.end(mark);
    rig.wait_all_serving().await
}

/// Makes the node read all its state, for the bit may be anywhere. Returns [`NOTICED`] if the node
/// logs its advice, or another text if the hash of its keys equals that of another member.
///
/// # Errors
///
/// If the hashes differ, or the node ends without advice. Also if the hashes cannot be compared
/// within [`NOTICE_MAX`].
async fn read_all(scene: &mut Scene<'_>, node: usize) -> anyhow::Result<&'static str> {
    let rig = scene.rig;
    let other = (node + 1 + scene.rng.random_range(0..rig.nodes.len() - 1)) % rig.nodes.len();
    let mut budget = RetryBudget::new(NOTICE_MAX);
    loop {
        let is_over = budget.is_spent();
        let why = match key_hashes(rig, [node, other]).await {
            Ok([found, wanted]) if found == wanted => return Ok("no harm to what was read"),
            // A workload compacted between the two questions: the keys cannot be compared.
            Ok([(_, found), (_, wanted)]) if found != wanted => {
                anyhow!("nodes are compacted to {found} and {wanted}")
            }
            Ok(found) => bail!("nodes {} and {other} tell different keys: {found:?}", node + 1, other = other + 1),
            Err(why) => why,
        };
        // Checked first: the advice of an ended node is in its log.
        let has_ended = rig.nodes[node].ended().is_some();
        if rig.nodes[node].last_log().contains(REMEDY) {
            return Ok(NOTICED);
        }
        if has_ended || is_over {
            return Err(why.context(format!("node {} does not say what to do", node + 1)));
        }
        tokio::time::sleep(POLL).await;
    }
}

/// For each of two nodes, the hash of its keys at the newest revision that both have, and its
/// compaction point. The first node is made to read its whole state before; that takes so long that
/// a workload may have compacted what was new before it.
async fn key_hashes(rig: &Rig, nodes: [usize; 2]) -> anyhow::Result<[(u32, i64); 2]> {
    rig.wait_serving(nodes[0]).await?;
    let [found, wanted] = nodes.map(|node| &rig.nodes[node]);
    hashes::state(found).await?;
    let revision = hashes::revision(found).await?.min(hashes::revision(wanted).await?);
    Ok([hashes::keys(found, revision).await?, hashes::keys(wanted, revision).await?])
}

pub(crate) async fn snapshot(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    let node = scene.follower().await?;
    let rig = scene.rig;
    rig.nodes[node].kill().await;
    rig.wipe(node).await?;
    let mark = rig.begin(Some(node), "bit flipped in a snapshot");
    rig.launch(node)?;
    let incoming = rig.disks[node].data().join("incoming");
    let mut caught = None;
    for _ in 0..LOOKS {
        let mut files = Vec::new();
        collect(&incoming, &["sst"], &mut files);
        // Of two files the older one is complete. The node asks for the other one again in any
        // case.
        if files.len() > 1 {
            rig.nodes[node].kill().await;
            let written = |file: &PathBuf| file.metadata().and_then(|meta| meta.modified()).ok();
            caught = files.into_iter().filter(|file| file.exists()).min_by_key(written);
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
    let Some(file) = caught else {
        return Err(Skipped("the snapshot was through before a file of it could be damaged".to_owned()).into());
    };
    let found = read_all(scene, node).await.with_context(|| format!("a bit flipped in {}", file.display()))?;
    if found == NOTICED {
        bail!("node {} installed the damaged {}", node + 1, file.display());
    }
    Ok(())
}

/// Adds the paths of all files in `folder` and below that have an extension in `kinds` and are not
/// empty.
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

/// Flips one random bit of a file. The file gets a new inode: other hard links to it stay intact.
fn flip_bit(file: &Path, rng: &mut impl Rng) -> anyhow::Result<()> {
    let mut bytes = std::fs::read(file).with_context(|| file.display().to_string())?;
    // Not in what is filled with zeros for later.
    let written = bytes.iter().rposition(|byte| *byte != 0).map_or(bytes.len(), |last| last + 1);
    let at = rng.random_range(0..written);
    bytes[at] ^= 1 << rng.random_range(0..8);
    let copy = file.with_extension("flipped");
    std::fs::write(&copy, bytes)?;
    std::fs::rename(&copy, file).context("replacing a file by its damaged copy")
}
