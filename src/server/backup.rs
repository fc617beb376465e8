//! Backups for the command line: their inspection, the restore of a data directory from one, and
//! the salvage of a data directory into one.
//!
//! Owns the mapping from a [`Config`] to a restore. The restore itself is in [`headwater_node`],
//! the format in `headwater_storage`.

use std::path::Path;

use super::{Config, cluster_id, initial_members};
use headwater_node::RestoreOptions;

pub use headwater_node::{
    EntryRun, RestoreError, Restored, Salvage, SalvageError, SalvageOptions, SalvageReport, salvage, write_backup,
};
pub use headwater_storage::backup::{BackupError, Verified, inspect};

/// Makes the data directory of the member that `config` describes from the backup `file`; see
/// [`headwater_node::restore`] and [`RestoreOptions`] for the parameters. Blocks.
///
/// # Errors
///
/// [`RestoreError`].
pub fn restore(
    file: &Path,
    config: &Config,
    bump_index: u64,
    bump_revision: i64,
    mark_compacted: bool,
    disable_auth: bool,
) -> Result<Restored, RestoreError> {
    headwater_node::restore(&RestoreOptions {
        file: file.to_owned(),
        data_dir: config.data_dir.clone(),
        node_id: config.node.id,
        cluster_id: cluster_id(config),
        members: initial_members(config),
        bump_index,
        bump_revision,
        mark_compacted,
        disable_auth,
    })
}

/// The id of the cluster that `config` describes.
pub fn cluster_of(config: &Config) -> u64 {
    cluster_id(config).get()
}
