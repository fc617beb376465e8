//! Events of the cluster itself (leases, members): records that only history has, for subscribers.
//!
//! Leases and the membership are stored in `meta`, with their present state only. Subscribers get
//! their changes from these records, both live and from history. Owns the bytes of the records,
//! which the golden test below pins.

use bytes::{Buf, BufMut, Bytes};

use super::db::undecodable;
use super::keys::Table;
use super::options::HISTORY;
use super::record::{FORMAT, HistoryRecord};
use super::txn::WriteTxn;
use super::view::CommandHistory;
use crate::StorageError;
use headwater_types::{ClusterEvent, ClusterMember, LeaseId, LogIndex, NodeId};

const LEASE_GRANTED: u8 = 1;
const LEASE_ENDED: u8 = 2;
const MEMBER_CHANGED: u8 = 3;
const MEMBER_LEFT: u8 = 4;

impl WriteTxn<'_> {
    /// Adds an event of the cluster to the current command.
    pub fn add_cluster_event(&mut self, event: ClusterEvent) {
        let slot = self.next_slot();
        self.record_history(slot, Table::ClusterEvents, encode(&event));
        let known = self.cluster.get(&slot.index).cloned().unwrap_or_default();
        self.cluster.insert(slot.index, known.into_iter().chain([event]).collect());
    }
}

impl CommandHistory {
    /// The events of the cluster in this command, in order.
    ///
    /// # Errors
    ///
    /// If a record of it cannot be decoded.
    pub fn cluster_events(&self) -> Result<Vec<ClusterEvent>, StorageError> {
        let records = self.records.iter().filter(|record| record.table == Table::ClusterEvents);
        records.map(|record| record.cluster_event(self.index)).collect()
    }
}

impl HistoryRecord {
    /// The event of the cluster in this record, which is one of the table `ClusterEvents`, of the
    /// command at `index`. The table is not checked.
    ///
    /// # Errors
    ///
    /// If the value is no such event that this version understands.
    pub fn cluster_event(&self, index: LogIndex) -> Result<ClusterEvent, StorageError> {
        let value = &self.kv.value;
        decode(value.clone())
            .ok_or_else(|| undecodable(HISTORY, &index.get().to_be_bytes(), value, "no change of the cluster"))
    }
}

fn encode(event: &ClusterEvent) -> Bytes {
    let mut out = vec![FORMAT];
    match event {
        ClusterEvent::LeaseGranted { id, ttl_seconds } => {
            out.put_u8(LEASE_GRANTED);
            out.put_i64(id.get());
            out.put_i64(*ttl_seconds);
        }
        ClusterEvent::LeaseEnded(id) => {
            out.put_u8(LEASE_ENDED);
            out.put_i64(id.get());
        }
        ClusterEvent::MemberChanged(member) => {
            out.put_u8(MEMBER_CHANGED);
            out.put_u64(member.id.get());
            out.put_u8(member.is_learner.into());
            for text in [&member.name, &member.peer_url, &member.client_url] {
                out.put_u32(u32::try_from(text.len()).expect("invariant: names and URLs are short"));
                out.put_slice(text.as_bytes());
            }
        }
        ClusterEvent::MemberLeft(id) => {
            out.put_u8(MEMBER_LEFT);
            out.put_u64(id.get());
        }
    }
    out.into()
}

fn decode(mut bytes: Bytes) -> Option<ClusterEvent> {
    if bytes.try_get_u8().ok()? != FORMAT {
        return None;
    }
    let event = match bytes.try_get_u8().ok()? {
        LEASE_GRANTED => {
            let id = LeaseId(bytes.try_get_i64().ok()?);
            ClusterEvent::LeaseGranted { id, ttl_seconds: bytes.try_get_i64().ok()? }
        }
        LEASE_ENDED => ClusterEvent::LeaseEnded(LeaseId(bytes.try_get_i64().ok()?)),
        MEMBER_CHANGED => {
            let id = NodeId(bytes.try_get_u64().ok()?);
            let is_learner = bytes.try_get_u8().ok()? != 0;
            let mut text = || {
                let length = bytes.try_get_u32().ok()? as usize;
                let text = (length <= bytes.len()).then(|| bytes.split_to(length))?;
                String::from_utf8(text.to_vec()).ok()
            };
            let (name, peer_url, client_url) = (text()?, text()?, text()?);
            ClusterEvent::MemberChanged(ClusterMember { id, name, peer_url, client_url, is_learner }.into())
        }
        MEMBER_LEFT => ClusterEvent::MemberLeft(NodeId(bytes.try_get_u64().ok()?)),
        _ => return None,
    };
    bytes.is_empty().then_some(event)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_pinned() {
        let member = ClusterMember {
            id: NodeId(3),
            name: "n".to_owned(),
            peer_url: "p".to_owned(),
            client_url: String::new(),
            is_learner: true,
        };
        let cases: [(ClusterEvent, &[u8]); 4] = [
            (
                ClusterEvent::LeaseGranted { id: LeaseId(2), ttl_seconds: 60 },
                b"\x01\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x3c",
            ),
            (ClusterEvent::LeaseEnded(LeaseId(2)), b"\x01\x02\0\0\0\0\0\0\0\x02"),
            (
                ClusterEvent::MemberChanged(member.into()),
                b"\x01\x03\0\0\0\0\0\0\0\x03\x01\0\0\0\x01n\0\0\0\x01p\0\0\0\0",
            ),
            (ClusterEvent::MemberLeft(NodeId(3)), b"\x01\x04\0\0\0\0\0\0\0\x03"),
        ];
        for (event, bytes) in cases {
            assert_eq!(encode(&event), bytes, "{event:?}");
            assert_eq!(decode(Bytes::from_static(bytes)), Some(event));
            assert_eq!(decode(Bytes::copy_from_slice(&bytes[..bytes.len() - 1])), None);
        }
        assert_eq!(decode(Bytes::from_static(b"\x02\x02\0\0\0\0\0\0\0\x02")), None);
    }
}
