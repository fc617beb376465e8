//! Keys of every column family of the state. Their byte order is the order of the records.
//!
//! Owns the encodings and nothing else: no I/O, no values. Knows no table's rules. Invariant: the
//! bytes are on disks, so they do not change; the golden tests below pin them.
//!
//! | family | key |
//! |---|---|
//! | `history` | LogIndex (8, BE) ‖ position (4, BE); position 0 is a head in a row of its own |
//! | `versions` | table (1) ‖ escaped key ‖ `00 01` ‖ !LogIndex (8, BE): the newest version comes first |
//! | `revisions` | Revision (8, BE; never negative) |
//! | `index` | kind (1) ‖ fields of the kind |
//! | `meta` | kind (1) ‖ fields of the kind |
//!
//! Escaping turns `00` into `00 FF`, so that the terminator `00 01` sorts below every continuation
//! of a key.

use bytes::Bytes;

use headwater_types::commit::CommitKeyId;
use headwater_types::consul::Deadline;
use headwater_types::resource::{ResourceId, Tenancy, TypeName, resource_key};
use headwater_types::{InvitationId, LeaseId, LogIndex, NodeId, Revision};

/// The table of a record; the first byte of a key in `versions`. The numbers are on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Table {
    /// Keys of the KV face.
    Kv = 1,
    /// Typed resources; their keys are those of [`resource_key`].
    Resource = 2,
    /// Nodes of the catalog.
    CatalogNode = 3,
    /// Service instances of the catalog.
    CatalogService = 4,
    /// Checks of the catalog.
    CatalogCheck = 5,
    /// Terminating gateways of the catalog.
    CatalogGateway = 6,
    /// Catalog events of commands. They have no key and no versions: only history has them.
    CatalogEvents = 7,
    /// Side records of Consul's keys, by path.
    ConsulSide = 8,
    /// Sessions of Consul's API, by id.
    Session = 9,
    /// Events of leases and members. They exist in history only.
    ClusterEvents = 10,
    /// Resources as they were before a write moved them to another version of their kind. They
    /// exist in history only.
    ResourceMoves = 11,
    /// Users of etcd's Auth, by name.
    AuthUser = 12,
    /// Roles of etcd's Auth, by name.
    AuthRole = 13,
    /// Whether etcd's authentication is on, and the auth revision; one record, of the empty key.
    AuthState = 14,
    /// Tokens of Consul's ACLs by accessor, the accessors by the hashes of secrets, and the record
    /// of the bootstrap.
    AclToken = 15,
    /// Policies of Consul's ACLs by id, and the ids by name.
    AclPolicy = 16,
    /// Roles of Consul's ACLs by id, and the ids by name.
    AclRole = 17,
    /// Auth methods of Consul's ACLs, by name.
    AclMethod = 18,
    /// Binding rules of Consul's ACLs, by id.
    AclBinding = 19,
}

impl Table {
    /// Every table, in order of its number.
    pub const ALL: [Self; 19] = [
        Self::Kv,
        Self::Resource,
        Self::CatalogNode,
        Self::CatalogService,
        Self::CatalogCheck,
        Self::CatalogGateway,
        Self::CatalogEvents,
        Self::ConsulSide,
        Self::Session,
        Self::ClusterEvents,
        Self::ResourceMoves,
        Self::AuthUser,
        Self::AuthRole,
        Self::AuthState,
        Self::AclToken,
        Self::AclPolicy,
        Self::AclRole,
        Self::AclMethod,
        Self::AclBinding,
    ];

    /// Whether the table's records exist in history only.
    pub(super) fn is_only_history(self) -> bool {
        matches!(self, Self::CatalogEvents | Self::ClusterEvents | Self::ResourceMoves)
    }

    pub(super) fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|table| *table as u8 == byte)
    }

    /// Index in [`Table::ALL`].
    pub(super) const fn slot(self) -> usize {
        self as usize - 1
    }
}

/// Bytes of a history key.
pub const HISTORY_KEY_LEN: usize = 12;
/// Bytes of the log index at the beginning of a history key, and of the inverted one at the end of
/// a version key.
pub(super) const INDEX_LEN: usize = 8;
const TERMINATOR: [u8; 2] = [0x00, 0x01];

/// Key of the record at `position` in the effect of the command at `index`; position 0 is that of a
/// head in a row of its own.
pub fn history(index: LogIndex, position: u32) -> [u8; HISTORY_KEY_LEN] {
    let mut key = [0; HISTORY_KEY_LEN];
    key[..8].copy_from_slice(&index.get().to_be_bytes());
    key[8..].copy_from_slice(&position.to_be_bytes());
    key
}

/// Reads back [`history`]. `None` for bytes of another length.
pub fn parse_history(key: &[u8]) -> Option<(LogIndex, u32)> {
    let (index, position) = key.split_first_chunk::<8>()?;
    Some((LogIndex(u64::from_be_bytes(*index)), u32::from_be_bytes(position.try_into().ok()?)))
}

/// Key of the entry that maps `revision` to its log index.
pub(super) fn revision(revision: Revision) -> [u8; 8] {
    revision.get().to_be_bytes()
}

/// Appends `table ‖ escaped key ‖ terminator`: the prefix of all versions of a key.
pub fn push_version_prefix(out: &mut Vec<u8>, table: Table, key: &[u8]) {
    out.push(table as u8);
    push_terminated(out, key);
}

/// Appends `escaped key ‖ terminator`.
pub(super) fn push_terminated(out: &mut Vec<u8>, key: &[u8]) {
    let mut rest = key;
    // Most keys have no zero byte, and one search of the whole key is far quicker than byte by
    // byte.
    if !key.contains(&0) {
        out.extend_from_slice(key);
        out.extend_from_slice(&TERMINATOR);
        return;
    }
    while let Some(zero) = rest.iter().position(|&byte| byte == 0) {
        out.extend_from_slice(&rest[..=zero]);
        out.push(0xff);
        rest = &rest[zero + 1..];
    }
    out.extend_from_slice(rest);
    out.extend_from_slice(&TERMINATOR);
}

/// Decodes [`push_terminated`] at the start of `bytes`. Returns the plain key and the bytes after
/// its terminator. `None` if there is no terminator, or a wrong escape.
pub(super) fn unescape_terminated(bytes: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut out = Vec::new();
    let mut rest = bytes;
    loop {
        let zero = rest.iter().position(|&byte| byte == 0)?;
        out.extend_from_slice(&rest[..zero]);
        match rest.get(zero + 1)? {
            0x01 => return Some((out, &rest[zero + 2..])),
            0xff => out.push(0),
            _ => return None,
        }
        rest = &rest[zero + 2..];
    }
}

/// Appends the inverted log index that ends a version key.
pub fn push_inverted(out: &mut Vec<u8>, index: LogIndex) {
    out.extend_from_slice(&(!index.get()).to_be_bytes());
}

/// The key of one version; a seek to it finds the newest version at or below `index`.
#[cfg(test)]
pub(super) fn version(table: Table, key: &[u8], index: LogIndex) -> Vec<u8> {
    let mut out = Vec::with_capacity(key.len() + 11);
    push_version_prefix(&mut out, table, key);
    push_inverted(&mut out, index);
    out
}

/// First possible key of `table` in `versions`.
pub(super) fn table_start(table: Table) -> Vec<u8> {
    vec![table as u8]
}

/// First key after all keys of `table` in `versions`.
pub(super) fn table_end(table: Table) -> Vec<u8> {
    vec![table as u8 + 1]
}

/// Splits a version key into its prefix (table, escaped user's key, terminator) and the log index.
/// `None` if it is no version key.
pub fn split_version(key: &[u8]) -> Option<(&[u8], LogIndex)> {
    let (prefix, inverted) = key.split_last_chunk::<INDEX_LEN>()?;
    (prefix.len() > TERMINATOR.len() && prefix.ends_with(&TERMINATOR))
        .then(|| (prefix, LogIndex(!u64::from_be_bytes(*inverted))))
}

/// Whether RocksDB's prefix filter covers `key`: it is a whole version key.
pub(super) fn is_in_prefix_domain(key: &[u8]) -> bool {
    split_version(key).is_some()
}

/// The part of a version key in RocksDB's prefix filter: everything but the log index.
pub(super) fn version_prefix_of(key: &[u8]) -> &[u8] {
    &key[..key.len().saturating_sub(INDEX_LEN)]
}

/// Appends the user's key in a version prefix to `out`. The prefix is that of [`split_version`].
pub fn unescape(prefix: &[u8], out: &mut Vec<u8>) {
    let mut rest = &prefix[1..prefix.len() - TERMINATOR.len()];
    if !rest.contains(&0) {
        out.extend_from_slice(rest);
        return;
    }
    while let Some(zero) = rest.iter().position(|&byte| byte == 0) {
        out.extend_from_slice(&rest[..=zero]);
        // The byte after a zero is its escape.
        rest = &rest[(zero + 2).min(rest.len())..];
    }
    out.extend_from_slice(rest);
}

/// [`unescape`] into a new buffer.
pub(super) fn unescaped(prefix: &[u8]) -> Bytes {
    let mut out = Vec::with_capacity(prefix.len() - 1 - TERMINATOR.len());
    unescape(prefix, &mut out);
    out.into()
}

/// Length of the user's key in a version prefix, bytes.
pub(super) fn unescaped_len(prefix: &[u8]) -> usize {
    let escaped = &prefix[1..prefix.len() - TERMINATOR.len()];
    escaped.len() - escaped.iter().filter(|&&byte| byte == 0).count()
}

// Kinds of entries in `index`; 3 to 10 are the catalog's (`catalog::keys`). The numbers are on
// disk.
const INDEX_LEASE_KEY: u8 = 1;
const INDEX_OWNED: u8 = 2;
const INDEX_SESSION_PATH: u8 = 16;
const INDEX_NODE_SESSION: u8 = 17;
const INDEX_CHECK_SESSION: u8 = 18;
const INDEX_DEADLINE_ABOUT: u8 = 19;
const INDEX_DEADLINE: u8 = 20;

/// Prefix of the `index` entries of a lease's keys.
pub(super) fn lease_keys_prefix(lease: LeaseId) -> [u8; 9] {
    let mut out = [INDEX_LEASE_KEY; 9];
    out[1..].copy_from_slice(&lease.get().to_be_bytes());
    out
}

/// The `index` entry of a `key` that is attached to `lease`. The user's key comes last, so it needs
/// no escaping.
pub(super) fn push_lease_key(out: &mut Vec<u8>, lease: LeaseId, key: &[u8]) {
    out.extend_from_slice(&lease_keys_prefix(lease));
    out.extend_from_slice(key);
}

/// Reads back [`push_lease_key`]: the lease and the key. `None` for entries of other kinds.
pub(super) fn split_lease_key(entry: &[u8]) -> Option<(LeaseId, &[u8])> {
    let (id, key) = entry.strip_prefix(&[INDEX_LEASE_KEY])?.split_first_chunk()?;
    Some((LeaseId(i64::from_be_bytes(*id)), key))
}

/// Prefix of the `index` entries of the resources that `owner` owns: the resource with exactly its
/// uid. The key of the owned resource follows unescaped.
pub(super) fn owned_prefix(owner: &ResourceId) -> Vec<u8> {
    let key = resource_key(owner);
    let uid = owner.uid.as_bytes();
    let uid_len = u32::try_from(uid.len()).expect("invariant: requests are far smaller than 4 GiB");
    let mut out = Vec::with_capacity(uid.len() + key.len() + 8);
    out.push(INDEX_OWNED);
    out.extend_from_slice(&uid_len.to_be_bytes());
    out.extend_from_slice(uid);
    push_version_prefix(&mut out, Table::Resource, &key);
    out
}

/// `kind ‖ part ‖ 00 01 ‖ part ‖ 00 01 …`, with zeros in the parts escaped. No list of parts is a
/// prefix of another list with the same number of parts.
fn index_entry(kind: u8, parts: &[&[u8]]) -> Vec<u8> {
    let mut out = vec![kind];
    for part in parts {
        push_terminated(&mut out, part);
    }
    out
}

/// Prefix of the `index` entries of the paths that a session of Consul holds; the path follows
/// unescaped.
pub(super) fn session_paths_prefix(session: &str) -> Vec<u8> {
    index_entry(INDEX_SESSION_PATH, &[session.as_bytes()])
}

/// Prefix of the `index` entries of the Consul sessions of a node; the id of the session follows
/// unescaped.
pub(super) fn node_sessions_prefix(node: &str) -> Vec<u8> {
    index_entry(INDEX_NODE_SESSION, &[node.as_bytes()])
}

/// Prefix of the `index` entries of the Consul sessions that depend on a check; the id of the
/// session follows unescaped.
pub(super) fn check_sessions_prefix(node: &str, check: &str) -> Vec<u8> {
    index_entry(INDEX_CHECK_SESSION, &[node.as_bytes(), check.as_bytes()])
}

/// Prefix of the `index` entry with the subject of a deadline; [`about_deadline`] follows.
pub(super) fn deadline_about_prefix(id: LeaseId) -> [u8; 9] {
    let mut out = [INDEX_DEADLINE_ABOUT; 9];
    out[1..].copy_from_slice(&id.get().to_be_bytes());
    out
}

/// Prefix of the `index` entry of the deadline of a subject; the lease id of the deadline follows,
/// 8 bytes.
pub(super) fn deadline_prefix(about: &Deadline) -> Vec<u8> {
    index_entry(INDEX_DEADLINE, &[&about_deadline(about)])
}

// Kinds of deadlines. The numbers are on disk.
const ABOUT_SESSION: u8 = 1;
const ABOUT_TTL_CHECK: u8 = 2;
const ABOUT_CRITICAL_SERVICE: u8 = 3;
const ABOUT_LOCK_DELAY: u8 = 4;

/// The subject of a deadline, as bytes.
pub(super) fn about_deadline(about: &Deadline) -> Vec<u8> {
    match about {
        Deadline::Session(id) => index_entry(ABOUT_SESSION, &[id.as_bytes()]),
        Deadline::TtlCheck { node, check } => index_entry(ABOUT_TTL_CHECK, &[node.as_bytes(), check.as_bytes()]),
        Deadline::CriticalService { node, check } => {
            index_entry(ABOUT_CRITICAL_SERVICE, &[node.as_bytes(), check.as_bytes()])
        }
        Deadline::LockDelay(path) => index_entry(ABOUT_LOCK_DELAY, &[path]),
    }
}

/// The deadline whose subject [`about_deadline`] wrote as these bytes. `None` if they are
/// malformed.
pub(super) fn parse_about_deadline(bytes: &[u8]) -> Option<Deadline> {
    let (&kind, mut rest) = bytes.split_first()?;
    let mut part = || {
        // A zero within a part is followed by its escape, so the first terminator is the end.
        let end = (0..rest.len()).find(|&at| rest[at..].starts_with(&TERMINATOR))?;
        let mut plain = Vec::with_capacity(end + 1);
        plain.push(0);
        plain.extend_from_slice(&rest[..end + TERMINATOR.len()]);
        rest = &rest[end + TERMINATOR.len()..];
        Some(unescaped(&plain))
    };
    let text = |part: Bytes| String::from_utf8(part.to_vec()).ok();
    let about = match kind {
        ABOUT_SESSION => Deadline::Session(text(part()?)?),
        ABOUT_TTL_CHECK => Deadline::TtlCheck { node: text(part()?)?, check: text(part()?)? },
        ABOUT_CRITICAL_SERVICE => Deadline::CriticalService { node: text(part()?)?, check: text(part()?)? },
        ABOUT_LOCK_DELAY => Deadline::LockDelay(part()?),
        _ => return None,
    };
    rest.is_empty().then_some(about)
}

/// Key of the head: the applied position, the revision and other small values that change with
/// every commit.
pub(super) const META_HEAD: &[u8] = &[1];
/// Key of the membership as of the applied position; opaque here.
pub(super) const META_MEMBERSHIP: &[u8] = &[2];
/// Key of the progress of reclamation on this node. The only entry that is not replicated.
pub(super) const META_RECLAIM: &[u8] = &[3];
/// First byte of the key of a lease.
const META_LEASE: u8 = 4;
/// Key of the lease clock.
pub(super) const META_LEASE_CLOCK: &[u8] = &[5];

/// Key of the active alarms.
pub(super) const META_ALARMS: &[u8] = &[6];

/// First byte of the key of a type of resources.
const META_TYPE: u8 = 7;
/// First byte of the key of a count of resources in a unit of tenancy; 9 is that of the catalog's
/// query indexes (`catalog::keys`).
const META_UNIT: u8 = 8;

/// The `meta` key of a type of resources.
pub(super) fn resource_type(name: &TypeName) -> Vec<u8> {
    let mut out = vec![META_TYPE];
    out.extend_from_slice(name.0.as_bytes());
    out
}

/// The `meta` key of the count of resources in a unit of tenancy.
pub(super) fn unit(tenancy: &Tenancy) -> Vec<u8> {
    let mut out = vec![META_UNIT];
    out.extend_from_slice(tenancy.partition.as_bytes());
    out.push(0);
    out.extend_from_slice(tenancy.namespace.as_bytes());
    out
}

/// First byte of the key of a member's program.
const META_PROGRAM: u8 = 10;
/// Key of the record of the stand-in for the next version, which only tests of upgrades use.
#[cfg(feature = "next-version")]
pub(super) const META_STAND_IN: &[u8] = &[11];

/// First byte of the key of an invitation.
const META_INVITATION: u8 = 12;

/// First possible `meta` key of an invitation, and the first key after all of them.
pub(super) const META_INVITATIONS: (&[u8], &[u8]) = (&[META_INVITATION], &[META_INVITATION + 1]);

/// The `meta` key of an invitation.
pub(super) fn invitation(id: InvitationId) -> [u8; 9] {
    let mut out = [META_INVITATION; 9];
    out[1..].copy_from_slice(&id.0.to_be_bytes());
    out
}

/// Reads back [`invitation`].
pub(super) fn parse_invitation(key: &[u8]) -> Option<InvitationId> {
    let id = key.strip_prefix(&[META_INVITATION])?;
    Some(InvitationId(u64::from_be_bytes(id.try_into().ok()?)))
}

/// First byte of the key of a kept commit.
const META_COMMIT: u8 = 13;
/// First byte of the key of an entry of the order of kept commits.
const META_COMMIT_ORDER: u8 = 14;

/// Key of the totals of kept commits.
pub(super) const META_COMMIT_TOTALS: &[u8] = &[15];
/// First key after the entries of the order of kept commits.
pub(super) const META_COMMIT_ORDER_END: &[u8] = &[META_COMMIT_ORDER + 1];
/// First possible `meta` key about kept commits, and the first key after all of them.
pub(super) const META_COMMITS: (&[u8], &[u8]) = (&[META_COMMIT], &[16]);

/// The `meta` key of a kept commit.
pub(super) fn kept_commit(id: &CommitKeyId) -> [u8; 17] {
    let mut out = [META_COMMIT; 17];
    out[1..].copy_from_slice(id);
    out
}

/// The `meta` key of an entry of the order of kept commits.
pub(super) fn commit_order(index: LogIndex) -> [u8; 9] {
    let mut out = [META_COMMIT_ORDER; 9];
    out[1..].copy_from_slice(&index.get().to_be_bytes());
    out
}

/// Reads back [`commit_order`].
pub(super) fn parse_commit_order(key: &[u8]) -> Option<LogIndex> {
    let index = key.strip_prefix(&[META_COMMIT_ORDER])?;
    Some(LogIndex(u64::from_be_bytes(index.try_into().ok()?)))
}

/// Whether a `meta` key is about kept commits.
pub(super) fn is_of_kept_commits(key: &[u8]) -> bool {
    META_COMMITS.0 <= key && key < META_COMMITS.1
}

/// First possible `meta` key of a member's program, and the first key after all of them.
pub(super) const META_PROGRAMS: (&[u8], &[u8]) = (&[META_PROGRAM], &[META_PROGRAM + 1]);

/// The `meta` key of a member's program.
pub(super) fn program(member: NodeId) -> [u8; 9] {
    let mut out = [META_PROGRAM; 9];
    out[1..].copy_from_slice(&member.get().to_be_bytes());
    out
}

/// Reads back [`program`].
pub(super) fn parse_program(key: &[u8]) -> Option<NodeId> {
    let id = key.strip_prefix(&[META_PROGRAM])?;
    Some(NodeId(u64::from_be_bytes(id.try_into().ok()?)))
}

/// First possible `meta` key of a lease, and the first key after all of them.
pub(super) const META_LEASES: (&[u8], &[u8]) = (&[META_LEASE], &[META_LEASE + 1]);

/// The `meta` key of a lease.
pub(super) fn lease(lease: LeaseId) -> [u8; 9] {
    let mut out = [META_LEASE; 9];
    out[1..].copy_from_slice(&lease.get().to_be_bytes());
    out
}

/// Reads back [`lease`].
pub(super) fn parse_lease(key: &[u8]) -> Option<LeaseId> {
    let id = key.strip_prefix(&[META_LEASE])?;
    Some(LeaseId(i64::from_be_bytes(id.try_into().ok()?)))
}

/// Smallest key above all keys that begin with `prefix`, which must have at least one byte below
/// `ff`.
pub(super) fn prefix_end(prefix: &[u8]) -> Vec<u8> {
    let kept = prefix.iter().rposition(|&byte| byte != 0xff).map_or(0, |last| last + 1);
    let mut end = prefix[..kept].to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use headwater_types::resource::Type;

    #[test]
    fn bytes_are_pinned() {
        let owner = ResourceId {
            uid: "u".to_owned(),
            name: "n".to_owned(),
            type_: Type::new("g", "v1", "K"),
            tenancy: Tenancy::new("p", ""),
        };
        let cases: [(&str, Vec<u8>, &[u8]); 14] = [
            ("history head", history(LogIndex(0x0102), 0).to_vec(), &[0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0]),
            ("history record", history(LogIndex(7), 258).to_vec(), &[0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 1, 2]),
            ("revision", revision(Revision(513)).to_vec(), &[0, 0, 0, 0, 0, 0, 2, 1]),
            ("version", version(Table::Kv, b"foo", LogIndex(1)), b"\x01foo\x00\x01\xff\xff\xff\xff\xff\xff\xff\xfe"),
            (
                "escaped version",
                version(Table::Kv, b"a\0b\0", LogIndex(0)),
                b"\x01a\x00\xffb\x00\xff\x00\x01\xff\xff\xff\xff\xff\xff\xff\xff",
            ),
            ("empty key", version(Table::Kv, b"", LogIndex(u64::MAX)), b"\x01\x00\x01\0\0\0\0\0\0\0\0"),
            ("table end", table_end(Table::Kv), &[2]),
            ("resource", version(Table::Resource, b"r", LogIndex(1)), b"\x02r\x00\x01\xff\xff\xff\xff\xff\xff\xff\xfe"),
            ("owned", owned_prefix(&owner), b"\x02\0\0\0\x01u\x02g\x01K\x01p\x01\x01n\x00\x01"),
            ("type", resource_type(&TypeName("g-v1-k".to_owned())), b"\x07g-v1-k"),
            ("unit", unit(&Tenancy::new("p", "n")), b"\x08p\0n"),
            ("lease", lease(LeaseId(0x11)).to_vec(), &[4, 0, 0, 0, 0, 0, 0, 0, 0x11]),
            (
                "lease key",
                {
                    let mut out = Vec::new();
                    push_lease_key(&mut out, LeaseId(2), b"k\0");
                    out
                },
                &[1, 0, 0, 0, 0, 0, 0, 0, 2, b'k', 0],
            ),
            (
                "meta",
                [META_HEAD, META_MEMBERSHIP, META_RECLAIM, META_LEASE_CLOCK, META_ALARMS].concat(),
                &[1, 2, 3, 5, 6],
            ),
        ];
        for (name, got, want) in cases {
            assert_eq!(got, want, "{name}");
        }
    }

    #[test]
    fn what_is_no_version_key_is_recognised() {
        for key in
            [&b""[..], b"\x01", b"\x00\x01\0\0\0\0\0\0\0\0", b"\x01foo\x00\x02\0\0\0\0\0\0\0\0", b"\x01foo\x00\x01"]
        {
            assert_eq!(split_version(key), None, "{key:?}");
        }
        assert_eq!(parse_history(&[0; 11]), None);
        assert_eq!(parse_history(&[0; 13]), None);
        assert_eq!(Table::from_byte(1), Some(Table::Kv));
        assert_eq!(Table::from_byte(2), Some(Table::Resource));
        assert_eq!(Table::from_byte(7), Some(Table::CatalogEvents));
        assert_eq!(Table::from_byte(8), Some(Table::ConsulSide));
        assert_eq!(Table::from_byte(9), Some(Table::Session));
        assert_eq!(Table::from_byte(10), Some(Table::ClusterEvents));
        assert_eq!(Table::from_byte(11), Some(Table::ResourceMoves));
        assert_eq!(Table::from_byte(12), Some(Table::AuthUser));
        assert_eq!(Table::from_byte(19), Some(Table::AclBinding));
        assert_eq!(Table::from_byte(20), None);
        assert_eq!(Table::from_byte(0), None);
    }

    #[test]
    fn the_end_of_a_lease_comes_before_the_next_one() {
        for id in [0, 1, 255, 256, i64::MAX, -1, i64::MIN] {
            let prefix = lease_keys_prefix(LeaseId(id));
            let end = prefix_end(&prefix);
            let mut last = prefix.to_vec();
            last.extend_from_slice(&[0xff; 20]);
            assert!(prefix.as_slice() < end.as_slice() && last < end, "{id}");
            let next = lease_keys_prefix(LeaseId(id.wrapping_add(1)));
            // The last lease of all is followed by another kind.
            assert_eq!(end <= next.to_vec(), id != -1, "{id}");
            assert_eq!(parse_lease(&lease(LeaseId(id))), Some(LeaseId(id)));
            let mut entry = Vec::new();
            push_lease_key(&mut entry, LeaseId(id), b"k\0");
            assert_eq!(split_lease_key(&entry), Some((LeaseId(id), &b"k\0"[..])));
        }
        assert_eq!(parse_lease(META_LEASE_CLOCK), None);
    }

    #[test]
    fn index_entries_of_sessions_are_pinned() {
        assert_eq!(session_paths_prefix("s"), b"\x10s\x00\x01");
        assert_eq!(node_sessions_prefix("n"), b"\x11n\x00\x01");
        assert_eq!(check_sessions_prefix("n", "c"), b"\x12n\x00\x01c\x00\x01");
        assert_eq!(deadline_about_prefix(LeaseId(i64::MIN + 1)), *b"\x13\x80\0\0\0\0\0\0\x01");
        assert_eq!(deadline_prefix(&Deadline::Session("s".to_owned())), b"\x14\x01s\x00\xff\x01\x00\x01");
    }

    #[test]
    fn what_a_deadline_is_about_reads_back() {
        let (node, check) = ("n\0".to_owned(), "c:1".to_owned());
        let cases: [(Deadline, &[u8]); 4] = [
            (Deadline::Session("s".to_owned()), b"\x01s\0\x01"),
            (Deadline::TtlCheck { node: node.clone(), check: check.clone() }, b"\x02n\0\xff\0\x01c:1\0\x01"),
            (Deadline::CriticalService { node, check }, b"\x03n\0\xff\0\x01c:1\0\x01"),
            (Deadline::LockDelay(Bytes::from_static(b"\0\x01\0")), b"\x04\0\xff\x01\0\xff\0\x01"),
        ];
        for (about, bytes) in cases {
            assert_eq!(about_deadline(&about), bytes, "{about:?}");
            assert_eq!(parse_about_deadline(bytes), Some(about));
        }
        for wrong in [&b""[..], b"\x01", b"\x01s", b"\x02n\0\x01", b"\x09s\0\x01", b"\x01s\0\x01x"] {
            assert_eq!(parse_about_deadline(wrong), None, "{wrong:?}");
        }
    }

    fn keys() -> impl Strategy<Value = Vec<u8>> {
        // Few distinct bytes, so that zeros, escapes and shared prefixes are common.
        prop::collection::vec(prop::sample::select(vec![0u8, 1, 2, 0x61, 0xfe, 0xff]), 0..8)
    }

    proptest! {
        #[test]
        fn version_order_is_key_order_then_newest_first(
            a in keys(), b in keys(), i in any::<u64>(), j in any::<u64>(),
        ) {
            let left = version(Table::Kv, &a, LogIndex(i));
            let right = version(Table::Kv, &b, LogIndex(j));
            prop_assert_eq!(left.cmp(&right), a.cmp(&b).then(j.cmp(&i)));
        }

        #[test]
        fn version_keys_read_back(key in prop::collection::vec(any::<u8>(), 0..40), index in any::<u64>()) {
            let encoded = version(Table::Kv, &key, LogIndex(index));
            let (prefix, read) = split_version(&encoded).expect("a version key");
            prop_assert_eq!(read, LogIndex(index));
            prop_assert_eq!(unescaped(prefix), key.clone());
            prop_assert_eq!(unescaped_len(prefix), key.len());
            prop_assert_eq!(unescape_terminated(&encoded[1..]), Some((key.clone(), &encoded[encoded.len() - INDEX_LEN..])));
            prop_assert_eq!(version_prefix_of(&encoded), prefix);
            prop_assert!(is_in_prefix_domain(&encoded));
        }

        #[test]
        fn no_key_is_a_prefix_of_another(a in keys(), b in keys()) {
            prop_assume!(a != b);
            let (mut left, mut right) = (Vec::new(), Vec::new());
            push_version_prefix(&mut left, Table::Kv, &a);
            push_version_prefix(&mut right, Table::Kv, &b);
            prop_assert!(!left.starts_with(&right) && !right.starts_with(&left));
        }

        #[test]
        fn history_order_is_index_then_position(i in any::<u64>(), p in any::<u32>(), j in any::<u64>(), q in any::<u32>()) {
            prop_assert_eq!(history(LogIndex(i), p).cmp(&history(LogIndex(j), q)), (i, p).cmp(&(j, q)));
            prop_assert_eq!(parse_history(&history(LogIndex(i), p)), Some((LogIndex(i), p)));
        }
    }
}
