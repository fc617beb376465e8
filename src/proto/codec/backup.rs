//! Encoding of the description at the start of a backup.

use bytes::Bytes;

use super::CodecError;
use super::command::{NEWEST, decode_message, encode_message};
use crate::pb::internal as pb;
use headwater_types::{BackupFile, BackupInfo, ClusterId, LogIndex, NodeId, Revision, StoreEpoch, Term, Version};

const WHAT: &str = "backup";

/// The bytes of the description of a backup. The first byte is the lowest version that understands
/// the state.
pub fn encode_backup(info: &BackupInfo) -> Bytes {
    let file = |file: &BackupFile| pb::BackupFile { name: file.name.clone(), size: file.size };
    let message = pb::Backup {
        cluster_id: info.cluster_id.get(),
        node_id: info.node_id.get(),
        epoch: info.epoch.map(StoreEpoch::get),
        term: info.term.get(),
        index: info.index.get(),
        revision: info.revision.get(),
        compact_revision: info.compact_revision.map(Revision::get),
        live_keys: info.live_keys,
        live_bytes: info.live_bytes,
        leases: info.leases,
        taken_unix_ms: info.taken_unix_ms,
        version: info.version.clone(),
        files: info.files.iter().map(file).collect(),
    };
    encode_message(info.needs.byte(), &message)
}

/// The inverse of [`encode_backup`].
///
/// # Errors
///
/// [`CodecError::TooNew`] if the state needs a newer version than this program's; other errors for
/// malformed bytes. Unknown fields are ignored.
pub fn decode_backup(bytes: Bytes) -> Result<BackupInfo, CodecError> {
    let needs = Version::from_byte(*bytes.first().ok_or(CodecError::Empty { what: WHAT })?);
    NEWEST.check("the backup", needs)?;
    let message: pb::Backup = decode_message(WHAT, needs.byte(), bytes)?;
    let file = |file: pb::BackupFile| BackupFile { name: file.name, size: file.size };
    Ok(BackupInfo {
        cluster_id: ClusterId(message.cluster_id),
        node_id: NodeId(message.node_id),
        epoch: message.epoch.map(StoreEpoch),
        term: Term(message.term),
        index: LogIndex(message.index),
        revision: Revision(message.revision),
        compact_revision: message.compact_revision.map(Revision),
        live_keys: message.live_keys,
        live_bytes: message.live_bytes,
        leases: message.leases,
        taken_unix_ms: message.taken_unix_ms,
        version: message.version,
        needs,
        files: message.files.into_iter().map(file).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes() {
        let info = BackupInfo {
            cluster_id: ClusterId(1),
            node_id: NodeId(2),
            epoch: Some(StoreEpoch(3)),
            term: Term(4),
            index: LogIndex(5),
            revision: Revision(6),
            compact_revision: Some(Revision(7)),
            live_keys: 8,
            live_bytes: 9,
            leases: 10,
            taken_unix_ms: 300,
            version: "v".into(),
            needs: Version::V0_3,
            files: vec![BackupFile { name: "a".into(), size: 11 }],
        };
        let bytes = encode_backup(&info);
        assert_eq!(
            bytes.as_ref(),
            b"\x03\x08\x01\x10\x02\x18\x03\x20\x04\x28\x05\x30\x06\x38\x07\x40\x08\x48\x09\x50\x0a\
              \x58\xac\x02\x62\x01v\x6a\x05\x0a\x01a\x10\x0b"
        );
        assert_eq!(decode_backup(bytes.clone()), Ok(info));
        let newer = [&[9], &bytes[1..]].concat();
        assert!(matches!(decode_backup(newer.into()), Err(CodecError::TooNew(_))));
    }
}
