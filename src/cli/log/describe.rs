//! One line for the content of a log entry.

use headwater_proto::codec::raft::{self, Membership, RecordKind};
use headwater_proto::codec::{CodecError, decode_proposal};
use headwater_server::inspect::log::LogRecord;
use headwater_types::Supported;

/// The content of a log entry, in one line. An error if it cannot be decoded, or is a command that
/// a program of the `supported` versions can neither apply nor skip.
pub(super) fn describe(record: &LogRecord, supported: Supported) -> Result<String, CodecError> {
    match record.kind {
        RecordKind::Blank => Ok("the first entry of a term".to_owned()),
        RecordKind::Normal if record.payload.is_empty() => Ok("empty".to_owned()),
        RecordKind::Normal => Ok(match decode_proposal(record.payload.clone(), supported)? {
            Some(proposal) => proposal.command.summary(),
            None => "of a newer version, which marked it as safe to skip".to_owned(),
        }),
        RecordKind::Membership => raft::decode::<Membership>(&record.payload).map(|members| membership(&members)),
    }
}

fn membership(members: &Membership) -> String {
    let sets: Vec<String> = members
        .configs
        .iter()
        .map(|voters| voters.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))
        .collect();
    let learners: Vec<String> = members
        .nodes
        .keys()
        .filter(|id| !members.configs.iter().any(|voters| voters.contains(id)))
        .map(ToString::to_string)
        .collect();
    let learners = if learners.is_empty() { String::new() } else { format!("; learners {}", learners.join(", ")) };
    format!("voters {}{learners}", sets.join(" and "))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use headwater_proto::codec::encode_proposal;
    use headwater_types::{Command, LogIndex, Proposal, StoreEpoch, Term};

    fn record(kind: RecordKind, payload: Bytes) -> LogRecord {
        LogRecord { term: Term(1), index: LogIndex(1), kind, payload }
    }

    #[test]
    fn an_entry_is_one_line() {
        let payload = encode_proposal(&Proposal::new(1, Command::Bootstrap(StoreEpoch(0x1f)))).unwrap();
        let text = describe(&record(RecordKind::Normal, payload), Supported::RELEASE).unwrap();
        assert_eq!(text, "Bootstrap epoch 000000000000001f");
        assert_eq!(describe(&record(RecordKind::Normal, Bytes::new()), Supported::RELEASE).unwrap(), "empty");
        assert_eq!(
            describe(&record(RecordKind::Blank, Bytes::new()), Supported::RELEASE).unwrap(),
            "the first entry of a term"
        );
    }

    #[test]
    fn what_no_member_can_apply_is_an_error() {
        // A put with a key and a value, and without a lease.
        let payload = Bytes::from_static(b"\x01\x5a\x06\x0a\x01k\x12\x01v");
        for payload in [payload, Bytes::from_static(b"\x01\xff"), Bytes::from_static(b"\x63")] {
            assert!(describe(&record(RecordKind::Normal, payload.clone()), Supported::RELEASE).is_err(), "{payload:?}");
        }
        assert!(describe(&record(RecordKind::Membership, Bytes::from_static(b"x")), Supported::RELEASE).is_err());
    }
}
