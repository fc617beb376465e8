//! Removes an interval of keys (spec: etcd §1.5): all removals share one revision, and their
//! sub-revisions follow the order of keys.

use super::error::FsmError;
use super::range;
use super::writer::KvWriter;
use headwater_storage::state::{NEWEST, StateReader};
use headwater_types::{ChangeKind, DeleteRange, Deleted};

pub(super) fn run(writer: &mut KvWriter<'_, '_>, delete: &DeleteRange, want: bool) -> Result<Deleted, FsmError> {
    writer.txn.count(|done| done.deletes += 1);
    let mut doomed = Vec::new();
    range::visit(&*writer.txn, &delete.range, NEWEST, |key, version| {
        doomed.push((key.to_bytes(), version));
        true
    })?;
    let prev = if delete.prev_kv && want {
        let versions: Vec<_> = doomed.iter().map(|(_, version)| *version).collect();
        writer.txn.load(&versions)?.into_iter().map(|record| record.kv).collect()
    } else {
        Vec::new()
    };
    let deleted = doomed.len() as u64;
    for (key, version) in doomed {
        writer.delete(key, ChangeKind::Delete, &version)?;
    }
    Ok(Deleted { revision: writer.revision(), deleted, prev })
}
