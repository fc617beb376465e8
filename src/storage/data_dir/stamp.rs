//! The stamp: version, owner and store id of a data directory, as TOML.
//!
//! Owns the text. Invariant: replaced atomically, never repaired.

use std::path::Path;

use headwater_files as files;
use serde::{Deserialize, Serialize};

use super::{Owner, notes};
use crate::StorageError;
use headwater_types::{ClusterId, NodeId, Supported, Version};

pub(super) const STAMP: &str = "STAMP";
pub(super) const DRAFT: &str = "STAMP.tmp";
pub(super) const HEADER: &str =
    "# Whose data this is. Written by headwater and compared at every start; do not edit.\n";

/// The content of the stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    pub(super) owner: Owner,
    pub(super) store_id: u64,
    pub(super) in_use: bool,
    /// The lowest version that understands everything in the directory.
    pub(super) needs: Version,
}

/// The stamp as it is written. Ids are text: one of 64 bits can exceed TOML's signed integers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    /// The lowest version that understands everything in the directory, as [`Version::byte`].
    format: u8,
    cluster_id: String,
    node_id: String,
    store_id: String,
    in_use: bool,
}

/// The field that the stamps of all formats have.
#[derive(Deserialize)]
struct AnyText {
    format: u8,
}

impl Stamp {
    /// Replaces the stamp of the directory.
    pub(super) fn write(&self, dir: &Path) -> Result<(), StorageError> {
        let text = Text {
            format: self.needs.byte(),
            cluster_id: format!("{:016x}", self.owner.cluster_id.get()),
            node_id: self.owner.node_id.to_string(),
            store_id: format!("{:016x}", self.store_id),
            in_use: self.in_use,
        };
        let body = toml::to_string(&text).expect("invariant: a flat struct of text and numbers is TOML");
        Ok(files::replace(&dir.join(STAMP), format!("{HEADER}{body}").as_bytes())?)
    }

    /// An error if `configured` is not the owner of the stamp.
    pub(super) fn check_owner(&self, dir: &Path, configured: Owner) -> Result<(), StorageError> {
        if self.owner == configured {
            return Ok(());
        }
        let name = |owner: Owner| format!("node {} of cluster {:016x}", owner.node_id, owner.cluster_id.get());
        let detail = format!(
            "data directory belongs to {}, and this node is configured as {}: correct the configuration (a node that \
             joined is started with --join), or choose another data directory",
            name(self.owner),
            name(configured)
        );
        Err(StorageError::WrongDirectory { path: dir.into(), detail })
    }
}

/// The stamp of the directory. `None` if it has none: before the first start or the end of a
/// restore.
///
/// # Errors
///
/// [`StorageError::TooNew`] if the directory needs a newer version than `supported` has,
/// [`StorageError::Corrupt`] for a malformed stamp, [`StorageError::Io`] if it cannot be read.
pub(super) fn read(dir: &Path, supported: Supported) -> Result<Option<Stamp>, StorageError> {
    let path = dir.join(STAMP);
    let Some(text) = notes::read(&path)? else { return Ok(None) };
    let corrupt = |detail| StorageError::Corrupt { location: path.display().to_string(), detail };
    let unreadable = |error: toml::de::Error| {
        corrupt(format!("{}; put back the original, which is written at the first start only", error.message()))
    };
    let AnyText { format } = toml::from_str(&text).map_err(unreadable)?;
    let needs = Version::from_byte(format);
    supported.check(format!("the data directory {}", dir.display()), needs)?;
    let text: Text = toml::from_str(&text).map_err(unreadable)?;
    let number = |field: &str, text: &str, radix| {
        u64::from_str_radix(text, radix).map_err(|error| corrupt(format!("{field} is {text:?}: {error}")))
    };
    let owner = Owner {
        cluster_id: ClusterId(number("cluster_id", &text.cluster_id, 16)?),
        node_id: NodeId(number("node_id", &text.node_id, 10)?),
    };
    Ok(Some(Stamp { owner, store_id: number("store_id", &text.store_id, 16)?, in_use: text.in_use, needs }))
}
