//! The wall clock of one node jumps and drifts. Nothing that a client can see may depend on it.
//!
//! Done by a library of our own (`rig/clock.c`), compiled with the machine's C compiler and
//! preloaded: libfaketime hangs in a program with an allocator of its own. The monotonic clock
//! stays true, as it does on a real machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};

use super::Scene;
use crate::rig::tool;

const SOURCE: &str = include_str!("../rig/clock.c");
/// Environment variable with the path of the file that the library reads its offsets from.
const VARIABLE: &str = "HEADWATER_CHAOS_CLOCK";
const HOUR: i64 = 3600;
/// Steps of the clock, in order: name, seconds ahead of the true time, and excess speed in parts
/// per million.
const STEPS: &[(&str, i64, i64)] = &[
    ("an hour ahead", HOUR, 0),
    ("an hour behind", -HOUR, 0),
    ("half as fast again", 0, 500_000),
    ("true again", 0, 0),
];

/// The reason why a node's clock cannot be changed on this machine; `None` if it can.
pub(crate) fn missing() -> Option<String> {
    let missing = compiler().is_none();
    missing.then(|| "a C compiler is needed for the library that bends clocks (scripts/setup build)".to_owned())
}

fn compiler() -> Option<PathBuf> {
    ["cc", "gcc", "clang"].into_iter().find_map(tool::find)
}

pub(crate) async fn jump(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    let node = scene.any();
    let rig = scene.rig;
    let library = library(&rig.dir).await?;
    let file = rig.dir.join(format!("node{}", node + 1)).join("clock");
    bend(&file, HOUR, 0)?;
    let variables = [("LD_PRELOAD", library.display().to_string()), (VARIABLE, file.display().to_string())];
    rig.nodes[node].terminate().await;
    rig.nodes[node].set_environment(&variables.map(|(name, value)| (name.to_owned(), value)));
    rig.launch(node)?;
    rig.wait_serving(node).await?;
    let (logged, truth) = (first_time(&rig.nodes[node].last_log()).unwrap_or_default(), utc(SystemTime::now()));
    if logged <= truth {
        bail!("the clock of node {} was not bent: its log begins at {logged:?}, and it is {truth}", node + 1);
    }
    for (what, ahead, fast) in STEPS {
        let mark = rig.begin(Some(node), format!("clock {what}"));
        bend(&file, *ahead, *fast)?;
        scene.hold(1500..2500).await;
        rig.end(mark);
    }
    rig.nodes[node].terminate().await;
    rig.nodes[node].set_environment(&[]);
    rig.launch(node)?;
    rig.wait_all_serving().await
}

/// Path of the library in `dir`. Compiles it at the first call.
async fn library(dir: &Path) -> anyhow::Result<PathBuf> {
    let (source, library) = (dir.join("clock.c"), dir.join("clock.so"));
    if !library.exists() {
        fs::write(&source, SOURCE)?;
        let compiler = compiler().context("no C compiler")?;
        let (compiler, source) = (compiler.to_string_lossy(), source.to_string_lossy());
        tool::run(&compiler, &["-O2", "-shared", "-fPIC", "-o", &library.to_string_lossy(), &source]).await?;
    }
    Ok(library)
}

/// Writes the offsets that the library adds to the true time from now on. Writes into the existing
/// file, if there is one, because the library has it mapped.
fn bend(file: &Path, ahead_seconds: i64, fast_ppm: i64) -> anyhow::Result<()> {
    use std::os::unix::fs::FileExt;
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as i64;
    let lie: Vec<u8> =
        [ahead_seconds * 1_000_000_000, fast_ppm, since].into_iter().flat_map(i64::to_ne_bytes).collect();
    let options = fs::OpenOptions::new().create(true).truncate(false).write(true).open(file);
    options.and_then(|open| open.write_all_at(&lie, 0)).context("the file of the clock that lies")
}

/// Date and time, to the second, of the first log line that begins with a time.
fn first_time(log: &str) -> Option<String> {
    let line = log.lines().find(|line| line.starts_with("20"))?;
    Some(line.get(..19)?.to_owned())
}

/// Date and time in the form of the nodes' logs, to the second.
fn utc(time: SystemTime) -> String {
    humantime::format_rfc3339_seconds(time).to_string().trim_end_matches('Z').to_owned()
}
