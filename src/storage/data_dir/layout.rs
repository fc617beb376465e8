//! Paths below a data directory.
//!
//! Invariant: these names are public; people and scripts know them.

use std::path::{Path, PathBuf};

use super::FlagNote;

/// The paths of one data directory, which need not exist.
#[derive(Clone, Debug)]
pub struct Layout {
    root: PathBuf,
}

impl Layout {
    /// The layout of the data directory `root`.
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// The data directory.
    pub fn path(&self) -> &Path {
        &self.root
    }

    /// The folder of the Raft log.
    pub fn log_dir(&self) -> PathBuf {
        self.root.join("log")
    }

    /// The folder of the state machine.
    pub fn state_dir(&self) -> PathBuf {
        self.root.join("state")
    }

    /// The folder of the checkpoints for other members.
    pub fn snapshots_dir(&self) -> PathBuf {
        self.root.join("snapshots")
    }

    /// The folder of the snapshots that other members send.
    pub fn incoming_dir(&self) -> PathBuf {
        self.root.join("incoming")
    }

    /// The folder of the checkpoints for backups.
    pub fn backups_dir(&self) -> PathBuf {
        self.root.join("backups")
    }

    /// The note `REJOINING`: set while this member, a first member that lost its data, must not
    /// vote.
    pub fn rejoining(&self) -> FlagNote {
        FlagNote::at(self.root.join("REJOINING"))
    }

    /// The note `REMOVED`: set for good when this member learns that it was removed from its
    /// cluster.
    pub fn removed(&self) -> FlagNote {
        FlagNote::at(self.root.join("REMOVED"))
    }
}
