//! Changes as fields of a `ChangeBatch`, encoded one by one, so that batches are put together
//! without decoding.

use bytes::Bytes;
use prost::Message;

use super::marker;
use headwater_api_shared::entity_data::entity_data;
use headwater_api_shared::frames::field;
use headwater_node::{ElementChange, ElementEncoder, ElementState, Position};
use headwater_proto::pb::pbwatcher::change::State;
use headwater_proto::pb::pbwatcher::{Change, ChangeBatch};

/// Number of the field `ChangeBatch.changes`.
const CHANGES: u32 = 1;

/// Encodes changes of one target.
pub(super) struct ChangeEncoder {
    pub(super) target: u64,
    /// The name of the datacenter, which nodes of the catalog carry.
    pub(super) datacenter: String,
}

impl ElementEncoder for ChangeEncoder {
    fn encode(&self, change: &ElementChange, closes: Option<Position>) -> Bytes {
        let (state, data) = match &change.state {
            ElementState::Exists(data) => (State::Exists, Some(entity_data(data.clone(), &self.datacenter))),
            ElementState::Missing => (State::DoesNotExist, None),
            ElementState::Skipped => (State::InitialStateSkipped, None),
        };
        let change = Change {
            element: change.element.clone(),
            state: state.into(),
            resume_marker: closes.map(|at| marker::write(self.target, at)).unwrap_or_default().into(),
            continued: closes.is_none(),
            data,
        };
        field(CHANGES, &change)
    }

    fn close(&self, encoded: Bytes, closes: Position) -> Bytes {
        let batch = ChangeBatch::decode(encoded).expect("invariant: it was encoded here");
        let mut change = batch.changes.into_iter().next().expect("invariant: as one change");
        change.continued = false;
        change.resume_marker = marker::write(self.target, closes).into();
        field(CHANGES, &change)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_node::ElementData;
    use headwater_types::{LogIndex, StoreEpoch};

    const AT: Position = Position { epoch: Some(StoreEpoch(1)), index: LogIndex(10) };

    fn change(element: &str, state: ElementState) -> ElementChange {
        ElementChange { element: element.to_owned(), state }
    }

    #[test]
    fn w56_golden_bytes() {
        let batch = |change: Change| ChangeBatch { changes: vec![change] }.encode_to_vec();
        let with = |element: &str, state: State, continued| Change {
            element: element.to_owned(),
            state: state.into(),
            continued,
            ..Change::default()
        };
        assert_eq!(batch(with("a", State::Exists, true)), b"\x0a\x05\x0a\x01a\x28\x01");
        assert_eq!(batch(with("", State::InitialStateSkipped, false)), b"\x0a\x02\x10\x02");
        assert_eq!(batch(with("", State::DoesNotExist, false)), b"\x0a\x02\x10\x01");
        assert_eq!(batch(with("", State::Exists, false)), b"\x0a\x00");
        let request =
            headwater_proto::pb::pbwatcher::Request { target: "/app".to_owned(), resume_marker: "now".into() };
        assert_eq!(request.encode_to_vec(), b"\x0a\x04/app\x12\x03now");
        let numbered =
            Change { resume_marker: "m".into(), data: Some(prost_types::Any::default()), ..Change::default() };
        assert_eq!(numbered.encode_to_vec(), b"\x22\x01m\x32\x00");
    }

    #[test]
    fn w26_what_is_gone_has_no_data() {
        let encoder = ChangeEncoder { target: 1, datacenter: String::new() };
        let encoded = encoder.encode(&change("a", ElementState::Missing), None);
        assert_eq!(encoded, &b"\x0a\x07\x0a\x01a\x10\x01\x28\x01"[..]);
    }

    #[test]
    fn w19_only_the_last_change_of_a_group_has_a_marker() {
        let encoder = ChangeEncoder { target: 1, datacenter: String::new() };
        let change = change("a", ElementState::Exists(ElementData::Empty));
        let open = encoder.encode(&change, None);
        let read = ChangeBatch::decode(open.clone()).unwrap().changes.remove(0);
        assert!(read.continued && read.resume_marker.is_empty());
        let closed = encoder.encode(&change, Some(AT));
        let read = ChangeBatch::decode(closed.clone()).unwrap().changes.remove(0);
        assert!(!read.continued);
        assert_eq!(marker::read(1, &read.resume_marker), Ok(AT));
        assert_eq!(encoder.close(open, AT), closed);
    }
}
