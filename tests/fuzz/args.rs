//! The command line.

use std::path::PathBuf;

use anyhow::Context;
use clap::Parser;

use crate::target::{TARGETS, Target};

/// Send hostile input to a cluster, by seed, and judge whether it goes on
///
/// Each target is tried on a cluster of its own: three real processes on loopback. The last line is
/// the verdict; a finding comes with the line that replays it. Ctrl-C ends the attack, and the
/// cluster is still judged.
#[derive(Clone, Debug, Parser)]
#[command(name = "scripts/fuzz", max_term_width = 110)]
pub(crate) struct Args {
    /// Targets, or `list`, which prints them [default: all]
    targets: Vec<String>,
    /// How long each target is tried, seconds; ignored with `--inputs`
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Repeats the inputs of the run with this seed [default: a new one]
    #[arg(long)]
    seed: Option<u64>,
    /// Number of the first input, from 0. Target, seed and number together determine an input
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Ends after so many inputs
    #[arg(long)]
    inputs: Option<u64>,
    /// Inputs that are under way at once; 1 to tell which one breaks something [default: as the
    /// target has it]
    #[arg(long)]
    lanes: Option<usize>,
    /// Targets that are tried at once
    #[arg(long, default_value_t = 1)]
    jobs: usize,
    /// Prints each input before it is sent
    #[arg(long)]
    pub(crate) verbose: bool,
    /// Folder of the nodes' data and logs, kept after a failure [default: a new folder below the
    /// one for temporary files]
    #[arg(long)]
    dir: Option<PathBuf>,
    /// The program under test [default: the one built beside this one]
    #[arg(long, env = "HEADWATER_BIN")]
    binary: Option<PathBuf>,
}

impl Args {
    pub(crate) fn list(&self) -> bool {
        self.targets.iter().any(|name| name == "list")
    }

    /// The chosen targets, in the order of [`TARGETS`].
    pub(crate) fn targets(&self) -> anyhow::Result<Vec<&'static Target>> {
        for name in &self.targets {
            let is_known = TARGETS.iter().any(|target| target.name == name);
            anyhow::ensure!(is_known, "there is no target {name}; see scripts/fuzz list");
        }
        let is_wanted =
            |target: &&Target| self.targets.is_empty() || self.targets.iter().any(|name| name == target.name);
        Ok(TARGETS.iter().filter(is_wanted).collect())
    }

    /// The inputs of each target. Without `--seed`, chooses a new seed.
    pub(crate) fn extent(&self) -> Extent {
        let seed = self.seed.unwrap_or_else(|| u64::from(rand::random::<u32>()));
        Extent { seed, first: self.first, inputs: self.inputs, seconds: self.seconds, lanes: self.lanes }
    }

    /// Number of targets that are tried at once.
    pub(crate) fn jobs(&self) -> usize {
        self.jobs.max(1)
    }

    pub(crate) fn binary(&self) -> anyhow::Result<PathBuf> {
        let binary = match &self.binary {
            Some(binary) => binary.clone(),
            None => std::env::current_exe()?.with_file_name("headwater"),
        };
        binary.canonicalize().with_context(|| format!("{}: the program under test", binary.display()))
    }

    /// The folder of the run: that of `--dir`, made if it does not exist, or a new temporary one.
    pub(crate) fn dir(&self) -> anyhow::Result<PathBuf> {
        match &self.dir {
            Some(dir) => {
                std::fs::create_dir_all(dir)?;
                Ok(dir.canonicalize()?)
            }
            None => Ok(tempfile::Builder::new().prefix("headwater-fuzz-").tempdir()?.keep()),
        }
    }
}

/// The inputs of each target: those of `seed`, from number `first` on. The attack on a target ends
/// after `inputs`; only without that, after `seconds`. `lanes` is how many are under way at once;
/// `None` for the target's own number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    pub(crate) seed: u64,
    pub(crate) first: u64,
    /// Most inputs; `None` for as many as the time allows.
    pub(crate) inputs: Option<u64>,
    pub(crate) seconds: u64,
    pub(crate) lanes: Option<usize>,
}

pub(crate) fn print_list() {
    for target in TARGETS {
        println!("{:14}{}", target.name, target.about);
    }
}
