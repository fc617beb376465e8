//! The membership as our own record: openraft's structures are not stable, ours are.

use bytes::Bytes;

use super::types::{MemberInfo, Membership, StoredMembership, log_id, term_of};
use headwater_proto::codec::{CodecError, raft as record};
use headwater_types::{LogIndex, NodeId, Term};

/// The record of a membership that is part of a log entry.
pub(crate) fn encode(membership: &Membership) -> Bytes {
    record::encode(&to_record(membership)).into()
}

/// Reads [`encode`]'s record.
pub(crate) fn decode(bytes: &[u8]) -> Result<Membership, CodecError> {
    from_record(record::decode(bytes)?)
}

/// The record that the state machine stores: that of [`encode_stored`], then the highest id that
/// any member has had so far.
pub(crate) fn encode_applied(stored: &StoredMembership, highest: NodeId) -> Bytes {
    let mut out = encode_stored(stored).to_vec();
    record::encode_into(&record::MemberIds { highest }, &mut out);
    out.into()
}

/// Reads [`encode_applied`]'s record: the membership, and the highest id that any member has had. A
/// record of [`encode_stored`] alone is accepted, too: then the highest id is that of the
/// membership.
pub(crate) fn decode_applied(bytes: &[u8]) -> Result<(StoredMembership, NodeId), CodecError> {
    let (stored, read) = decode_stored_prefix(bytes)?;
    let highest = match &bytes[read..] {
        [] => highest_id(stored.membership()),
        rest => record::decode::<record::MemberIds>(rest)?.highest,
    };
    Ok((stored, highest))
}

/// The highest id in a membership; 0 if it has no members.
pub(crate) fn highest_id(membership: &Membership) -> NodeId {
    NodeId(membership.nodes().map(|(id, _)| *id).max().unwrap_or(0))
}

/// The id of the log entry that made a membership, then the record of that membership. No bytes
/// before the first membership.
pub(crate) fn encode_stored(stored: &StoredMembership) -> Bytes {
    let Some(id) = stored.log_id() else { return Bytes::new() };
    let mut out = record::encode(&record::LogId { term: Term(term_of(id)), index: LogIndex(id.index) });
    record::encode_into(&to_record(stored.membership()), &mut out);
    out.into()
}

/// Reads [`encode_stored`]'s record.
pub(crate) fn decode_stored(bytes: &[u8]) -> Result<StoredMembership, CodecError> {
    let (stored, read) = decode_stored_prefix(bytes)?;
    if read != bytes.len() {
        let detail = format!("{} bytes follow the record", bytes.len() - read);
        return Err(CodecError::Malformed { what: "membership", detail });
    }
    Ok(stored)
}

fn decode_stored_prefix(bytes: &[u8]) -> Result<(StoredMembership, usize), CodecError> {
    if bytes.is_empty() {
        return Ok((StoredMembership::default(), 0));
    }
    let (id, read): (record::LogId, usize) = record::decode_prefix(bytes)?;
    let (members, len): (record::Membership, usize) = record::decode_prefix(&bytes[read..])?;
    let membership = from_record(members)?;
    Ok((StoredMembership::new(Some(log_id(id.term.get(), id.index.get())), membership), read + len))
}

fn to_record(membership: &Membership) -> record::Membership {
    record::Membership {
        configs: membership
            .get_joint_config()
            .iter()
            .map(|voters| voters.iter().copied().map(NodeId).collect())
            .collect(),
        nodes: membership
            .nodes()
            .map(|(id, info)| {
                let MemberInfo { name, peer_url, client_url, incarnation, awaits_vote, former_peer_url } = info.clone();
                let info = record::NodeInfo { name, peer_url, client_url, incarnation, awaits_vote, former_peer_url };
                (NodeId(*id), info)
            })
            .collect(),
    }
}

fn from_record(record: record::Membership) -> Result<Membership, CodecError> {
    if record.configs.is_empty() {
        return Ok(Membership::default());
    }
    let configs = record.configs.into_iter().map(|voters| voters.into_iter().map(NodeId::get).collect()).collect();
    let nodes = record.nodes.into_iter().map(|(id, node)| {
        let record::NodeInfo { name, peer_url, client_url, incarnation, awaits_vote, former_peer_url } = node;
        (id.get(), MemberInfo { name, peer_url, client_url, incarnation, awaits_vote, former_peer_url })
    });
    let nodes: std::collections::BTreeMap<u64, MemberInfo> = nodes.collect();
    Membership::new(configs, nodes)
        .map_err(|error| CodecError::Malformed { what: "membership", detail: error.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn three() -> Membership {
        let nodes = [1u64, 2, 3].map(|id| {
            let info = MemberInfo {
                name: format!("n{id}"),
                peer_url: format!("http://127.0.0.1:{id}2380"),
                incarnation: 7 * id,
                awaits_vote: id == 3,
                former_peer_url: if id == 2 { "http://127.0.0.1:9".to_owned() } else { String::new() },
                ..MemberInfo::default()
            };
            (id, info)
        });
        let nodes: std::collections::BTreeMap<_, _> = nodes.into();
        Membership::new(vec![[1, 2].into(), [2, 3].into()], nodes).unwrap()
    }

    #[test]
    fn a_membership_survives_its_record() {
        assert_eq!(decode(&encode(&three())).unwrap(), three());
        let stored = StoredMembership::new(Some(log_id(3, 7)), three());
        assert_eq!(decode_stored(&encode_stored(&stored)).unwrap(), stored);
        let applied = encode_applied(&stored, NodeId(9));
        assert_eq!(decode_applied(&applied).unwrap(), (stored.clone(), NodeId(9)));
        let before = encode_stored(&stored);
        assert_eq!(decode_applied(&before).unwrap(), (stored, NodeId(3)), "without the ids, the members' count");
        let none = StoredMembership::default();
        assert_eq!(decode_stored(&encode_stored(&none)).unwrap(), none);
    }

    #[test]
    fn a_cut_record_is_an_error() {
        let whole = encode_stored(&StoredMembership::new(Some(log_id(3, 7)), three()));
        for cut in 1..whole.len() {
            assert!(decode_stored(&whole[..cut]).is_err(), "{cut}");
            assert!(decode_applied(&whole[..cut]).is_err(), "{cut}");
        }
    }
}
