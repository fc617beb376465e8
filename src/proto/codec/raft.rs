//! The records that Raft itself needs: vote, log id, membership, ids of members, the header of a
//! log record, the tip of the log, and the id of the data directory that a log belongs to.
//!
//! They are structs of our own because those of the Raft library promise no stable form. Their
//! bytes are one format byte, then bincode 2 through serde in its standard configuration:
//! little-endian, variable-length integers (one byte below 251), enum variants by number, maps
//! and sets as a length and their items in order. The fields of a format never change: a record
//! with other fields gets another format byte. Tests pin the bytes.

use std::collections::{BTreeMap, BTreeSet};

use bincode::config::{Configuration, Limit, LittleEndian, Varint};
use bincode::error::DecodeError;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::CodecError;
use super::command::unknown_format;
use headwater_types::{LogIndex, NodeId, Term};

/// The first format byte of every record. Most records have no other.
const FORMAT: u8 = 1;

/// Largest encoded record, bytes. Far above the largest membership; bounds the memory that a
/// damaged length can allocate.
const RECORD_BYTES_MAX: usize = 1024 * 1024;

const fn config() -> Configuration<LittleEndian, Varint, Limit<RECORD_BYTES_MAX>> {
    bincode::config::standard().with_limit::<RECORD_BYTES_MAX>()
}

/// A record that [`encode`] and [`decode`] handle.
pub trait RaftRecord: Serialize + DeserializeOwned {
    /// The kind of record, as errors name it.
    const WHAT: &'static str;
    /// The newest format byte.
    const FORMAT: u8 = FORMAT;

    /// The format byte and the body in an older format, so that members of an earlier version can
    /// read the record. `None` if no older format can hold all of it: then the newest is written.
    fn in_older_format(&self) -> Option<(u8, impl Serialize)> {
        None::<(u8, ())>
    }

    /// Reads a record from the front of `body`, which has the older format `format`. Also returns
    /// the number of bytes read. `None` if there is no such older format.
    fn read_older(_format: u8, _body: &[u8]) -> Option<Result<(Self, usize), DecodeError>> {
        None
    }
}

/// The vote that a member stores: the highest term that it knows, and the candidate that it voted
/// for in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vote {
    /// The term.
    pub term: Term,
    /// The candidate; the leader of the term if `committed` is true.
    pub node_id: NodeId,
    /// Whether a quorum has voted for the candidate, so that it leads the term.
    pub committed: bool,
}

/// Identity of a log entry: the term of the leader that proposed it, and its log index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LogId {
    /// Term of the leader.
    pub term: Term,
    /// Log index.
    pub index: LogIndex,
}

/// The name, the addresses and the state of a member.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeInfo {
    /// Configured name of the member; empty until its first start, if `MemberAdd` added it, as a
    /// voter or as a learner.
    pub name: String,
    /// URL of its peer port: `http://host:port`, or `https://` with TLS.
    pub peer_url: String,
    /// URL of its client port: `http://host:port`, or `https://` with TLS. Empty while `name` is.
    pub client_url: String,
    /// Random id of the data directory that has this member id. 0 for the first members, and
    /// while `name` is empty.
    pub incarnation: u64,
    /// Whether the member, a learner, becomes a voter once it has caught up.
    pub awaits_vote: bool,
    /// A former peer URL, at which the member was reached before it moved; empty if there is none.
    /// Other members still call it until the member answers at `peer_url`.
    pub former_peer_url: String,
}

/// Membership of the cluster: the ids of the voters, and every member with its name, addresses and
/// state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Membership {
    /// The ids of the voters: one set, or the old and the new one during a change (joint
    /// consensus).
    pub configs: Vec<BTreeSet<NodeId>>,
    /// Every member; those in no set of voters are learners.
    pub nodes: BTreeMap<NodeId, NodeInfo>,
}

/// Record of the ids that were ever assigned to members.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberIds {
    /// The highest id that any member has ever had.
    pub highest: NodeId,
}

/// The kind of the payload of a log record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RecordKind {
    /// Empty payload: the first entry of a new leader.
    Blank,
    /// An encoded proposal.
    Normal,
    /// An encoded [`Membership`].
    Membership,
}

/// The header of a log record; the payload follows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordHeader {
    /// Term of the leader that proposed the entry.
    pub term: Term,
    /// Log index of the entry.
    pub index: LogIndex,
    /// The kind of the payload.
    pub kind: RecordKind,
}

/// Extent of the log after a batch of writes. Every batch has it. When the log is opened, its
/// entries are compared with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogTip {
    /// Number of the batch, counted from 1 since the log was created.
    pub batch: u64,
    /// Log index of the first entry that is not purged.
    pub first: LogIndex,
    /// Log id of the last entry; of the last purged one if no entry is left; `None` for a new log.
    pub last: Option<LogId>,
}

/// Random id of the data directory that a log belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreId(pub u64);

impl RaftRecord for StoreId {
    const WHAT: &'static str = "store id";
}
impl RaftRecord for Vote {
    const WHAT: &'static str = "vote";
}
impl RaftRecord for LogId {
    const WHAT: &'static str = "log id";
}
impl RaftRecord for Membership {
    const WHAT: &'static str = "membership";
    const FORMAT: u8 = 3;

    fn in_older_format(&self) -> Option<(u8, impl Serialize)> {
        let has_moved = self.nodes.values().any(|node| !node.former_peer_url.is_empty());
        (!has_moved).then(|| (second_format::FORMAT, second_format::Membership::from(self)))
    }

    fn read_older(format: u8, body: &[u8]) -> Option<Result<(Self, usize), DecodeError>> {
        match format {
            first_format::FORMAT => Some(read_as::<first_format::Membership, Self>(body)),
            second_format::FORMAT => Some(read_as::<second_format::Membership, Self>(body)),
            _ => None,
        }
    }
}
impl RaftRecord for MemberIds {
    const WHAT: &'static str = "member ids";
}
impl RaftRecord for RecordHeader {
    const WHAT: &'static str = "log record header";
}
impl RaftRecord for LogTip {
    const WHAT: &'static str = "log tip";
}

fn read_as<Old: DeserializeOwned + Into<New>, New>(body: &[u8]) -> Result<(New, usize), DecodeError> {
    let (old, len): (Old, usize) = bincode::serde::decode_from_slice(body, config())?;
    Ok((old.into(), len))
}

/// The format of memberships before `former_peer_url` was added. Written while no member has moved,
/// so that older programs can read it.
mod second_format {
    use super::{BTreeMap, BTreeSet, Deserialize, NodeId, Serialize};

    pub(super) const FORMAT: u8 = 2;

    #[derive(Serialize, Deserialize)]
    pub(super) struct NodeInfo {
        name: String,
        peer_url: String,
        client_url: String,
        incarnation: u64,
        awaits_vote: bool,
    }

    #[derive(Serialize, Deserialize)]
    pub(super) struct Membership {
        configs: Vec<BTreeSet<NodeId>>,
        nodes: BTreeMap<NodeId, NodeInfo>,
    }

    impl From<&super::Membership> for Membership {
        fn from(new: &super::Membership) -> Self {
            let node = |info: &super::NodeInfo| {
                let super::NodeInfo { name, peer_url, client_url, incarnation, awaits_vote, former_peer_url: _ } =
                    info.clone();
                NodeInfo { name, peer_url, client_url, incarnation, awaits_vote }
            };
            Self { configs: new.configs.clone(), nodes: new.nodes.iter().map(|(id, info)| (*id, node(info))).collect() }
        }
    }

    impl From<Membership> for super::Membership {
        fn from(old: Membership) -> Self {
            let node = |info: NodeInfo| {
                let NodeInfo { name, peer_url, client_url, incarnation, awaits_vote } = info;
                let former_peer_url = String::new();
                super::NodeInfo { name, peer_url, client_url, incarnation, awaits_vote, former_peer_url }
            };
            Self { configs: old.configs, nodes: old.nodes.into_iter().map(|(id, info)| (id, node(info))).collect() }
        }
    }
}

/// The format of memberships before members could be added and removed. Only read.
mod first_format {
    use super::{BTreeMap, BTreeSet, Deserialize, NodeId, Serialize};

    pub(super) const FORMAT: u8 = super::FORMAT;

    #[derive(Serialize, Deserialize)]
    pub(super) struct NodeInfo {
        pub(super) name: String,
        pub(super) peer_url: String,
        pub(super) client_url: String,
    }

    #[derive(Serialize, Deserialize)]
    pub(super) struct Membership {
        pub(super) configs: Vec<BTreeSet<NodeId>>,
        pub(super) nodes: BTreeMap<NodeId, NodeInfo>,
    }

    impl From<Membership> for super::Membership {
        fn from(old: Membership) -> Self {
            let node = |NodeInfo { name, peer_url, client_url }| super::NodeInfo {
                name,
                peer_url,
                client_url,
                ..super::NodeInfo::default()
            };
            Self { configs: old.configs, nodes: old.nodes.into_iter().map(|(id, info)| (id, node(info))).collect() }
        }
    }
}

/// Appends the bytes of `record` to `out`.
pub fn encode_into<T: RaftRecord>(record: &T, out: &mut Vec<u8>) {
    let written = match record.in_older_format() {
        Some((format, body)) => {
            out.push(format);
            bincode::serde::encode_into_std_write(&body, out, config())
        }
        None => {
            out.push(T::FORMAT);
            bincode::serde::encode_into_std_write(record, out, config())
        }
    };
    written.expect("invariant: plain structs encode, and writing to memory does not fail");
}

/// The bytes of `record`.
pub fn encode<T: RaftRecord>(record: &T) -> Vec<u8> {
    let mut out = Vec::with_capacity(32);
    encode_into(record, &mut out);
    out
}

/// Reads a record, which must be all of `bytes`.
///
/// # Errors
///
/// [`CodecError::Empty`] for no bytes, [`CodecError::TooNew`] or [`CodecError::UnknownFormat`] for
/// another format byte, [`CodecError::Malformed`] for anything else that is not exactly one record.
pub fn decode<T: RaftRecord>(bytes: &[u8]) -> Result<T, CodecError> {
    let (record, len) = decode_prefix(bytes)?;
    if len != bytes.len() {
        let detail = format!("{} bytes follow the record", bytes.len() - len);
        return Err(CodecError::Malformed { what: T::WHAT, detail });
    }
    Ok(record)
}

/// Reads a record from the front of `bytes`. Returns it with the number of bytes that it has, the
/// format byte included.
///
/// # Errors
///
/// As [`decode`], but more bytes may follow.
pub fn decode_prefix<T: RaftRecord>(bytes: &[u8]) -> Result<(T, usize), CodecError> {
    let (&format, body) = bytes.split_first().ok_or(CodecError::Empty { what: T::WHAT })?;
    let read = if format == T::FORMAT {
        bincode::serde::decode_from_slice(body, config())
    } else {
        T::read_older(format, body).ok_or_else(|| unknown_format(T::WHAT, format))?
    };
    let (record, len) = read.map_err(|error| CodecError::Malformed { what: T::WHAT, detail: error.to_string() })?;
    Ok((record, len + 1))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn membership() -> Membership {
        let node = |name: &str| NodeInfo {
            name: name.into(),
            peer_url: "p".into(),
            client_url: "c".into(),
            ..NodeInfo::default()
        };
        let joined = NodeInfo { incarnation: 9, awaits_vote: true, ..node("") };
        Membership {
            configs: vec![BTreeSet::from([NodeId(1), NodeId(2)]), BTreeSet::from([NodeId(300)])],
            nodes: BTreeMap::from([(NodeId(1), node("a")), (NodeId(300), joined)]),
        }
    }

    /// As `membership`, after the peer URL of node 1 was changed.
    fn moved() -> Membership {
        let mut moved = membership();
        moved.nodes.get_mut(&NodeId(1)).unwrap().former_peer_url = "o".into();
        moved
    }

    /// These bytes are on disks: do not edit them; a change needs a new format byte.
    #[test]
    fn golden_bytes() {
        assert_eq!(encode(&Vote { term: Term(7), node_id: NodeId(3), committed: true }), [1, 7, 3, 1]);
        assert_eq!(encode(&Vote { term: Term(250), node_id: NodeId(251), committed: false }), [1, 250, 251, 251, 0, 0]);
        assert_eq!(
            encode(&LogId { term: Term(2), index: LogIndex(70_000) }),
            [1, 2, 252, 0x70, 0x11, 0x01, 0x00],
            "an index from 65536 on takes a marker and four bytes"
        );
        assert_eq!(
            encode(&LogId { term: Term(1), index: LogIndex(u64::MAX) }),
            [1, 1, 253, 255, 255, 255, 255, 255, 255, 255, 255]
        );
        for (kind, byte) in [(RecordKind::Blank, 0), (RecordKind::Normal, 1), (RecordKind::Membership, 2)] {
            assert_eq!(encode(&RecordHeader { term: Term(5), index: LogIndex(9), kind }), [1, 5, 9, byte]);
        }
        assert_eq!(encode(&StoreId(1 << 40)), [1, 253, 0, 0, 0, 0, 0, 1, 0, 0]);
        assert_eq!(encode(&LogTip { batch: 4, first: LogIndex(2), last: None }), [1, 4, 2, 0]);
        assert_eq!(
            encode(&LogTip { batch: 4, first: LogIndex(2), last: Some(LogId { term: Term(1), index: LogIndex(8) }) }),
            [1, 4, 2, 1, 1, 8]
        );
        assert_eq!(
            encode(&membership()),
            [
                2, // format
                2, 2, 1, 2, 1, 251, 44, 1, // two sets of voters
                2, 1, 1, b'a', 1, b'p', 1, b'c', 0, 0, // node 1
                251, 44, 1, 0, 1, b'p', 1, b'c', 9, 1, // node 300
            ],
            "what nobody has moved in is written as it was before members could be reached at two addresses"
        );
        assert_eq!(
            encode(&moved()),
            [
                3, // format
                2, 2, 1, 2, 1, 251, 44, 1, // two sets of voters
                2, 1, 1, b'a', 1, b'p', 1, b'c', 0, 0, 1, b'o', // node 1
                251, 44, 1, 0, 1, b'p', 1, b'c', 9, 1, 0, // node 300
            ]
        );
        assert_eq!(encode(&MemberIds { highest: NodeId(300) }), [1, 251, 44, 1]);
    }

    #[test]
    fn a_membership_of_the_first_format_is_read() {
        let bytes = [
            1, // format
            2, 2, 1, 2, 1, 251, 44, 1, // two sets of voters
            2, 1, 1, b'a', 1, b'p', 1, b'c', // node 1
            251, 44, 1, 0, 1, b'p', 1, b'c', // node 300
        ];
        let mut wanted = membership();
        let plain = NodeInfo { incarnation: 0, awaits_vote: false, ..wanted.nodes[&NodeId(300)].clone() };
        wanted.nodes.insert(NodeId(300), plain);
        assert_eq!(decode::<Membership>(&bytes), Ok(wanted));
        assert!(decode::<Membership>(&bytes[..bytes.len() - 1]).is_err());
    }

    #[test]
    fn a_record_of_another_format_is_refused_with_what_to_do() {
        let mut bytes = encode(&Vote { term: Term(1), node_id: NodeId(1), committed: false });
        bytes[0] = 2;
        let error = decode::<Vote>(&bytes).unwrap_err();
        assert!(matches!(error, CodecError::UnknownFormat { what: "vote", .. }), "{error:?}");
        bytes[0] = 9;
        let error = decode::<Vote>(&bytes).unwrap_err();
        assert!(error.to_string().contains("vote needs version 0.9"), "{error}");
        assert_eq!(decode::<Vote>(&[]), Err(CodecError::Empty { what: "vote" }));
    }

    #[test]
    fn every_proper_prefix_and_every_extension_is_refused() {
        for record in [membership(), moved()] {
            let bytes = encode(&record);
            for len in 0..bytes.len() {
                assert!(decode::<Membership>(&bytes[..len]).is_err(), "{len} of {} bytes", bytes.len());
            }
            let mut longer = bytes.clone();
            longer.push(0);
            assert!(matches!(decode::<Membership>(&longer), Err(CodecError::Malformed { .. })));
            assert_eq!(decode_prefix::<Membership>(&longer), Ok((record, bytes.len())));
        }
    }

    #[test]
    fn a_damaged_length_allocates_nothing() {
        // A name that claims 2^60 bytes.
        for format in [1, 2, 3] {
            let bytes = [format, 0, 1, 1, 253, 0, 0, 0, 0, 0, 0, 0, 16];
            assert!(matches!(decode::<Membership>(&bytes), Err(CodecError::Malformed { .. })));
        }
    }

    fn node_info() -> impl Strategy<Value = NodeInfo> {
        ("[a-z]{0,9}", "[a-z:/]{0,20}", "[a-z:/]{0,20}", any::<u64>(), any::<bool>(), "[a-z:/]{0,20}").prop_map(
            |(name, peer_url, client_url, incarnation, awaits_vote, former_peer_url)| NodeInfo {
                name,
                peer_url,
                client_url,
                incarnation,
                awaits_vote,
                former_peer_url,
            },
        )
    }

    proptest! {
        #[test]
        fn round_trips(
            term: u64,
            index: u64,
            node: u64,
            committed: bool,
            configs in prop::collection::vec(prop::collection::btree_set(any::<u64>().prop_map(NodeId), 0..5), 0..3),
            nodes in prop::collection::btree_map(any::<u64>().prop_map(NodeId), node_info(), 0..5),
        ) {
            let vote = Vote { term: Term(term), node_id: NodeId(node), committed };
            prop_assert_eq!(decode::<Vote>(&encode(&vote)), Ok(vote));
            let id = LogId { term: Term(term), index: LogIndex(index) };
            prop_assert_eq!(decode::<LogId>(&encode(&id)), Ok(id));
            let tip = LogTip { batch: node, first: LogIndex(index), last: committed.then_some(id) };
            prop_assert_eq!(decode::<LogTip>(&encode(&tip)), Ok(tip));
            let membership = Membership { configs, nodes };
            prop_assert_eq!(decode::<Membership>(&encode(&membership)), Ok(membership));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), known_format: bool) {
            let mut bytes = bytes;
            if let (true, Some(first)) = (known_format, bytes.first_mut()) {
                *first = FORMAT;
            }
            // Decoding must return; the decoded value does not matter.
            drop(decode::<Vote>(&bytes));
            drop(decode::<LogId>(&bytes));
            drop(decode::<Membership>(&bytes));
            drop(decode::<MemberIds>(&bytes));
            drop(decode::<LogTip>(&bytes));
            drop(decode_prefix::<RecordHeader>(&bytes));
        }
    }
}
