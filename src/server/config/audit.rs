//! The settings of the audit log, with their bounds.

use super::check::Findings;
use super::draft::Draft;
use headwater_node::{AuditLevel, AuditOptions};

/// Size at which the file is rotated if nothing else is set, bytes.
pub(super) const ROTATE_BYTES_DEFAULT: u64 = 64 << 20;
/// Earlier files that are kept if nothing else is set, count.
pub(super) const KEEP_DEFAULT: u64 = 8;
/// Smallest `audit.rotate-size`, bytes.
const FILE_BYTES_MIN: u64 = 64 << 10;
/// Largest `audit.keep`, count.
const FILES_MAX: u64 = 1000;

pub(super) fn read(draft: &Draft, found: &mut Findings) -> Option<AuditOptions> {
    let rotate_bytes = draft.audit_rotate_size.unwrap_or(ROTATE_BYTES_DEFAULT);
    if rotate_bytes < FILE_BYTES_MIN {
        found.add("audit.rotate-size", "must be at least 64KiB".to_owned());
    }
    let keep = draft.audit_keep.unwrap_or(KEEP_DEFAULT);
    if keep > FILES_MAX {
        found.add("audit.keep", format!("must be at most {FILES_MAX}"));
    }
    let level = match draft.audit_level.as_deref() {
        None | Some("changes") => AuditLevel::Changes,
        Some("denied") => AuditLevel::Denied,
        Some("all") => AuditLevel::All,
        Some(other) => {
            found.add("audit.level", format!("{other:?} must be denied, changes or all"));
            AuditLevel::Changes
        }
    };
    let file = draft.audit_file.clone().flatten()?;
    Some(AuditOptions { file, rotate_bytes, keep: u32::try_from(keep).unwrap_or(u32::MAX), level })
}
