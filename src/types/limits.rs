//! The limits of the store, each with its unit in the name, the type or the comment. A bound that
//! concerns only one module may be a constant there. The code that enforces a limit is tested at
//! the limit and one past it.

use std::time::Duration;

/// Default for the largest encoded command, bytes (etcd's `--max-request-bytes`; spec: etcd §1.8).
/// Each member checks requests on entry by its own setting; apply accepts every size that is in the
/// log.
pub const REQUEST_BYTES_MAX: usize = 1_572_864;
/// Smallest value of the setting `max-request-bytes`, bytes: the proposals of the members' own
/// tasks must fit. The default is [`REQUEST_BYTES_MAX`].
pub const REQUEST_BYTES_SET_MIN: usize = 64 * 1024;
/// Largest value of the setting `max-request-bytes`, bytes (etcd's recommended maximum): every
/// member accepts commands of this size from other members.
pub const REQUEST_BYTES_SET_MAX: usize = 10 * 1024 * 1024;
/// Simple tokens that a member keeps, count. A further one evicts the expired ones. If more than
/// nine tenths are left, it also evicts those that expire first, down to nine tenths.
pub const SIMPLE_TOKENS_MAX: usize = 100_000;
/// Longest password, bytes.
pub const PASSWORD_BYTES_MAX: usize = 4096;
/// Passwords that a member hashes or checks at a time, count. Each takes a core and 19 MiB of
/// memory, or up to 256 MiB if a client gave the hash.
pub const PASSWORDS_HASHED_AT_ONCE: usize = 2;
/// Passwords that are hashed or checked, or wait for it, count; one more is refused. One client
/// gets only a part of the last quarter.
pub const PASSWORDS_WAITING_MAX: usize = 256;
/// Users whose compiled rights a member caches, count; one more clears the cache.
pub const RIGHTS_CACHED_MAX: usize = 10_000;
/// Largest rights of a token that a proposal carries for apply, bytes as
/// [`Rights::size_within`](super::Rights::size_within) counts them. Larger ones are left out: apply
/// then checks only that no rights have changed since the member's verdict.
pub const CARRIED_RIGHTS_BYTES_MAX: usize = 64 << 10;
/// Intervals of a principal's rights that the keys of one lease may be spread over, count. With
/// more, the principal is denied access to the lease.
pub const LEASE_KEYS_JUDGED_MAX: usize = 1024;
/// Resources owned directly or indirectly for which the rights of a deletion are checked, count. An
/// owner of more can be deleted only by a principal that may write every resource.
pub const RESOURCE_CASCADE_JUDGED_MAX: usize = 1024;
/// Tokens that a member keeps for users that send name and password with each request, count; a
/// further one clears all others.
pub const PASSWORD_TOKENS_MAX: usize = 1024;
/// Lines of the audit log that wait for the disk, count. Further lines are lost; a line with their
/// number is written later.
pub const AUDIT_QUEUE_LINES: usize = 8192;
/// Intervals of keys in one line of the audit log, count; further ones are left out of the line.
pub const AUDIT_INTERVALS_MAX: usize = 16;
/// Pairs of principal and method of which the audit log counts repeated refusals instead of writing
/// each, count. The refusals of further pairs are written one by one.
pub const AUDIT_REFUSALS_REMEMBERED_MAX: usize = 1024;
/// Bytes by which a message on the client port may exceed the request limit before gRPC itself
/// refuses it.
pub const REQUEST_OVERHEAD_BYTES: usize = 512 * 1024;
/// Largest message that the client port receives with the default request limit, bytes. A response
/// of a watch that exceeds it is split if the client has asked for fragments.
pub const CLIENT_MESSAGE_BYTES_MAX: usize = REQUEST_BYTES_MAX + REQUEST_OVERHEAD_BYTES;
/// Longest block of HTTP/2 headers in which the client port repairs `:authority`, bytes, frame
/// headers included; longer blocks pass unchanged.
pub const HEADER_BLOCK_BYTES_MAX: usize = 8 * 1024;
/// Largest message that the peer port receives, bytes: a full append of the largest commands fits.
pub const PEER_MESSAGE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Default for the most operations, or compares, in one list of a transaction, count (etcd's
/// `--max-txn-ops`). Each member checks requests on entry by its own setting. Also the fixed limit
/// of operations in a transaction of Consul's API.
pub const TXN_OPS_MAX: usize = 128;
/// Largest value of the setting `max-txn-ops`, count: apply runs all operations of a transaction
/// before the next command. The default is [`TXN_OPS_MAX`].
pub const TXN_OPS_SET_MAX: usize = 16_384;
/// Most compares and operations of a transaction with all nested ones, as a multiple of the limit
/// of one list. Without it one request could have tens of thousands, because each list at each
/// level may hold as many as the limit of one list.
pub const TXN_TREE_FACTOR: usize = 4;
/// Keys that the compares of one transaction may visit, count. Its operations may visit as many
/// again. Every member visits them.
pub const TXN_READ_KEYS_MAX: usize = 1 << 20;
/// Bytes of values that the compares of one transaction may read. Its results may have as many
/// bytes again, of keys and values, with [`ENTRY_BYTES`] for each pair.
pub const TXN_READ_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Bytes that each key-value pair counts for, beside key and value, where lists and answers are
/// bounded in bytes: about its overhead in memory. Apply refuses by it, so that it is the same on
/// all members and never changes, unlike [`STATE_ENTRY_BYTES`].
pub const ENTRY_BYTES: usize = 128;
/// Largest depth of nested transactions, the outermost included, count. Every encoding of a
/// transaction, and of its outcome, must stay below protobuf's limit of 100 nested messages, of
/// which each level uses two: a deeper transaction could be replicated, but not decoded.
pub const TXN_DEPTH_MAX: usize = 40;
/// Longest idempotency key of a commit, bytes.
pub const COMMIT_KEY_BYTES_MAX: usize = 128;
/// Age, milliseconds by the clocks of proposers, beyond which an idempotency key may be removed.
/// There must also be [`COMMIT_KEY_KEPT_COMMITS`] later ones.
pub const COMMIT_KEY_KEPT_MS: u64 = 600_000;
/// Number of later commits with keys that must exist before an idempotency key may be removed,
/// however wrong the clocks of proposers are.
pub const COMMIT_KEY_KEPT_COMMITS: u64 = 6000;
/// Idempotency keys that are kept at a time, count. A commit with one more is refused if no key is
/// old enough to be removed.
pub const COMMIT_KEYS_MAX: u64 = 1_000_000;
/// Total size of all kept idempotency keys with their results, bytes. A commit that would exceed it
/// is refused if too few keys are old enough to be removed.
pub const COMMIT_KEYS_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// Most old idempotency keys that one commit with a key removes, count: more than the one that it
/// adds.
pub const COMMIT_KEYS_REMOVED_MAX: usize = 4;
/// As [`COMMIT_KEYS_REMOVED_MAX`], for a commit whose key would exceed a bound: a large result may
/// need the capacity of many small ones.
pub const COMMIT_KEYS_REMOVED_IF_FULL_MAX: usize = 64;
/// Proposals on one member that wait or have no answer yet, count (etcd refuses at a gap of 5000).
/// Beyond it, the client with the longest queue loses its newest proposal, which is refused.
pub const PENDING_PROPOSALS_MAX: usize = 5000;
/// As [`PENDING_PROPOSALS_MAX`], in bytes of commands.
pub const PENDING_PROPOSAL_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Linearizable reads that may wait for the leader's confirmation, or then for apply, count; one
/// more is refused. One client gets only a part of the last quarter.
pub const WAITING_READS_MAX: usize = 20_000;
/// Reads of more than one key that may run or wait for their turn, count; one more is refused. One
/// confirmation of the leader may release [`WAITING_READS_MAX`] of them at once.
pub const LONG_READS_MAX: usize = WAITING_READS_MAX;
/// Reads of more than one key that run at a time for clients, count: enough blocking threads are
/// left for the node's own work.
pub const LONG_READS_RUNNING_MAX: usize = 32;
/// Reads of more than one key that run at a time for one client, count. The remaining turns are for
/// other clients.
pub const LONG_READS_OF_CLIENT_MAX: usize = LONG_READS_RUNNING_MAX / 4 * 3;
/// Reads of the node's own tasks that run at a time, count.
pub const OWN_READS_RUNNING_MAX: usize = 4;
/// Streamed ranges that may be open at once, count. More wait for a permit; [`LONG_READS_MAX`]
/// bounds the open and the waiting ones together.
pub const RANGE_STREAMS_MAX: usize = 32;
/// Streamed ranges of one client that may be open at once, count: a stalled reader holds one for
/// long.
pub const RANGE_STREAMS_OF_CLIENT_MAX: usize = RANGE_STREAMS_MAX / 4 * 3;
/// Watchers on one member, of all kinds of streams together, count; one more is refused. One client
/// gets only a part of the last quarter. Each takes about a kilobyte. As high as
/// [`OPEN_REQUESTS_MAX`], because every open request may be a stream with one watcher.
pub const WATCHERS_MAX: usize = OPEN_REQUESTS_MAX;
/// Watchers on one stream of etcd's watch API, count; one more is refused. etcd's clients put all
/// their watchers on one stream, and one task serves it.
pub const WATCHERS_PER_STREAM_MAX: usize = 65_536;
/// Longest time from the start of a connection to the end of the head of its first request. A
/// connection that has had a request may stay idle for longer.
pub const FIRST_REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Streams that may be open on one HTTP/2 connection, count. Some clients use one stream for each
/// watcher, and more than 10,000 of them on a connection.
pub const STREAMS_PER_CONNECTION_MAX: u32 = 16_384;
/// Requests that may be open on the client port of one member, count, streams and blocking queries
/// included; one more is refused. The peer port and the metrics port each have the same bound of
/// their own.
pub const OPEN_REQUESTS_MAX: usize = 1 << 18;
/// Requests beyond [`OPEN_REQUESTS_MAX`] that may be open, count: a reserve for keep-alives and
/// health requests.
pub const RESERVED_REQUESTS_MAX: usize = 1024;
/// Largest headers of one request over HTTP/2, bytes, with 32 bytes more for each header (RFC 9113,
/// §6.5.2). Over HTTP/1, request line and headers together may have four times as many bytes.
pub const HEADER_LIST_BYTES_MAX: u32 = 16 * 1024;
/// Bytes of answers that clients have not yet received, of all connections together. Once half of
/// the bound is taken, a read whose answer would exceed the bound waits briefly, then is refused.
/// Small answers have a reserve, [`UNREAD_SMALL_ANSWERS_BYTES`]. A client that reads holds its
/// answer for moments, so this is enough for hundreds of clients. It is less than the memory of an
/// idle node with its caches.
pub const UNREAD_ANSWERS_BYTES_MAX: usize = 128 * 1024 * 1024;
/// Largest answer that may use the reserve [`UNREAD_SMALL_ANSWERS_BYTES`], bytes.
pub const SMALL_ANSWER_BYTES_MAX: usize = 16 * 1024;
/// Reserve beyond [`UNREAD_ANSWERS_BYTES_MAX`], bytes. Only answers of at most
/// [`SMALL_ANSWER_BYTES_MAX`] may take it.
pub const UNREAD_SMALL_ANSWERS_BYTES: usize = 32 * 1024 * 1024;
/// Largest part of an answer that is passed to a connection at once, bytes: the connection keeps it
/// until it is sent, also if its reader has stalled.
pub const ANSWER_CHUNK_BYTES_MAX: usize = 64 * 1024;
/// Time after which a stream or a connection is closed if its client takes no data although some
/// waits to be sent.
pub const STALLED_READER_TIMEOUT: Duration = Duration::from_secs(30);
/// As [`STALLED_READER_TIMEOUT`], for streams, while unread answers take half of
/// [`UNREAD_ANSWERS_BYTES_MAX`] or more.
pub const STALLED_READER_TIMEOUT_MIN: Duration = Duration::from_secs(5);
/// Contenders for locks and elections, and observers of elections, that may wait on one member,
/// count; one more is refused. One client gets only a part of the last quarter.
pub const CONTENDERS_MAX: usize = 20_000;
/// Time to live of the lease that the node makes for a contender without one, seconds (etcd's;
/// spec: etcd §4.4).
pub const SESSION_TTL_SECONDS: i64 = 60;
/// Bytes of commands at which a batch is full. What is added last may exceed them: one command
/// where a member gathers its own commands; a whole batch where batches are merged, because they
/// are not split. A read of the log for replication stays within it, but has at least one entry.
pub const APPEND_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Bytes of applied commands after which a snapshot is made. One is also made after
/// `raft.snapshot-every` entries, whichever comes first.
pub const SNAPSHOT_EVERY_BYTES: u64 = 128 * 1024 * 1024;
/// Most bytes of commands that the log keeps for lagging followers although a snapshot covers them.
/// `raft.log-keep` bounds them in entries; the smaller bound applies.
pub const LOG_KEEP_BYTES: u64 = 256 * 1024 * 1024;
/// Largest chunk of a snapshot file in one message, bytes.
pub const SNAPSHOT_CHUNK_BYTES: usize = 1024 * 1024;
/// Records of history that one step of reclaiming visits before it yields, count, approximately.
pub const RECLAIM_BATCH_ENTRIES: usize = 1000;
/// Number of keys that the cache of the newest versions of keys is made for. The cache is bounded
/// by bytes: 128 for each of them.
pub const KEY_CACHE_ENTRIES: usize = 200_000;
/// Commands that the cache of those at which past states are read is made for, count.
pub const LAST_COMMANDS_CACHED_MAX: usize = 1024;
/// Bytes of the cache of records that were read one by one lately.
pub const HOT_RECORDS_BYTES_MAX: usize = 16 << 20;
/// Largest record in that cache, bytes of its key and its value together.
pub const HOT_RECORD_BYTES_MAX: usize = 16 << 10;
/// Longest time to live of a lease, seconds (etcd's limit; spec: etcd §3.1).
pub const LEASE_TTL_SECONDS_MAX: i64 = 9_000_000_000;
/// Bytes that each lease counts for when the node compares all leases with the quota before it
/// proposes a grant: about a lease's memory and disk on a member. Apply does not add up leases: it
/// counts only the new one, with another cost.
pub const LEASE_QUOTA_BYTES: u64 = 256;
/// Bytes of the cache of leases with their keys, which write transactions use.
pub const LEASE_CACHE_BYTES_MAX: usize = 32 << 20;
/// Most keys of a lease in that cache, count: those of a lease with more are read from disk.
pub const CACHED_LEASE_KEYS_MAX: usize = 64;
/// Leases in one [`LeaseCheckpoint`](super::LeaseCheckpoint), count; further ones go into the next
/// one.
pub const LEASE_CHECKPOINTS_MAX: usize = 1000;
/// Commands that end expired leases in flight at once, count, while leases end in time: few beside
/// the writes of a busy store, and enough for thousands a second on an idle one.
pub const LEASE_EXPIRIES_MIN: usize = 16;
/// Commands that end expired leases in flight at once, count, when leases end late: few beside the
/// proposals that may be pending, so that writes continue. The number rises from
/// [`LEASE_EXPIRIES_MIN`] to this one as the delay grows.
pub const LEASE_EXPIRIES_MAX: usize = 512;
/// Alarms of one kind that may be active, count; a further one replaces another alarm of its kind.
pub const ALARMS_OF_KIND_MAX: usize = 64;
/// Alarms of all kinds that may be active in a cluster without
/// [`Feature::AlarmsByKind`](super::Feature::AlarmsByKind), count. A further one replaces another
/// alarm of its kind, if there is one.
pub const ALARMS_MAX: usize = 64;
/// Default quota for live keys and values, bytes (etcd's `--quota-backend-bytes`; spec: etcd §1.8).
pub const QUOTA_BYTES_DEFAULT: u64 = 2 << 30;
/// Default time for which history is kept, seconds.
pub const HISTORY_RETENTION_SECONDS_DEFAULT: u64 = 3600;
/// Smallest value of the setting `history.retention`, seconds: clients that reconnect after a
/// change of leader must find their position in history.
pub const HISTORY_RETENTION_SECONDS_MIN: u64 = 10;
/// Highest revision at which a store can be restored: half of all revisions are left for later
/// writes.
pub const RESTORED_REVISION_MAX: i64 = i64::MAX / 2;
/// Default for the number of log indexes that a restored store skips. A cluster that commits
/// 100,000 entries a second takes four months for as many.
pub const RESTORE_BUMP_INDEX_DEFAULT: u64 = 1 << 40;
/// Highest log index at which a store can be restored. JSON holds numbers up to 2^53, twice this,
/// exactly: half of them are left for later entries. With the default of
/// [`RESTORE_BUMP_INDEX_DEFAULT`], 4096 restores in a row fit below it.
pub const RESTORED_INDEX_MAX: u64 = 1 << 52;
/// Backups that one member makes or sends at once, count; one more is refused. Each keeps files on
/// disk that the store would delete.
pub const BACKUPS_MAX: usize = 4;
/// Backups that one member makes or sends to one client at once, count; one more is refused.
pub const BACKUPS_OF_CLIENT_MAX: usize = BACKUPS_MAX - 1;
/// Size of a chunk of a backup on the wire, bytes (etcd's; spec: etcd §4.2).
pub const BACKUP_CHUNK_BYTES: usize = 32 * 1024;
/// Questions about leases that may wait for the leader on one member, count; one more is refused.
/// Only keep-alives may take the last quarter.
pub const WAITING_LEASE_CALLS_MAX: usize = 20_000;
/// Questions about leases that a member sends to the leader in one call, count.
pub const LEADER_QUESTIONS_MAX: usize = 1024;
/// Members that vote, announced ones included, count. More would only slow down every write.
pub const VOTERS_MAX: usize = 9;
/// Members without a vote, but for those that await one, count (etcd's `--max-learners` is 1; here
/// learners scale reads and watches).
pub const LEARNERS_MAX: usize = 32;
/// Largest lag behind the leader's log at which a learner may be promoted, milliseconds: it has all
/// entries that are older. It is a time, because writes may have to wait until the missing entries
/// are sent. etcd requires nine tenths of the log instead, and the last tenth may be of any size.
pub const LEARNER_LAG_MS_MAX: u64 = 1000;
/// Versions of clients with a label of their own in metrics, count: a client may send any text as
/// its version. All further versions share one label.
pub const CLIENT_VERSIONS_SHOWN_MAX: usize = 32;
/// Longest version of a client with a label of its own in metrics, bytes. Longer ones share one
/// label.
pub const CLIENT_VERSION_BYTES_MAX: usize = 64;
/// Peers with a label of their own in metrics, count: the number of peers over time has no bound,
/// because ids are never reused. All further peers share one label.
pub const PEERS_SHOWN_MAX: usize = 256;
/// Longest name of a member, bytes.
pub const MEMBER_NAME_BYTES_MAX: usize = 256;
/// Unexpired invitations, count. One more replaces the oldest one that is used up by nodes that all
/// have joined; without such a one it is refused.
pub const INVITATIONS_MAX: usize = 64;
/// Longest name of an invitation, bytes.
pub const INVITATION_NAME_BYTES_MAX: usize = 256;
/// Longest time to live of an invitation, milliseconds: 30 days.
pub const INVITATION_TTL_MS_MAX: u64 = 30 * 24 * 3600 * 1000;
/// Largest bound on the uses of one invitation, count. Also the number of newest uses that are
/// recorded of an invitation without a bound.
pub const INVITATION_USES_MAX: u32 = 64;
/// Longest URL of a member, bytes.
pub const MEMBER_URL_BYTES_MAX: usize = 1024;
/// Longest name of a datacenter, bytes: a DNS label.
pub const DATACENTER_NAME_BYTES_MAX: usize = 63;
/// Endpoints of one remote datacenter in the configuration, count. The attempts to forward one
/// subscription share its remaining time.
pub const REMOTE_ENDPOINTS_MAX: usize = 32;
/// Largest body of a request of Consul's HTTP API, bytes. Writes of keys and transactions have
/// bounds of their own.
pub const CONSUL_BODY_BYTES_MAX: usize = 1024 * 1024;
/// Blocking queries of Consul's HTTP API that wait at once, count; one more is refused. One client
/// gets only a part of the last quarter.
pub const CONSUL_WAITING_MAX: usize = 50_000;
/// Longest wait of a blocking query, seconds, to which jitter is added. A longer one that a client
/// asks for counts as this one (spec: consul §3.6).
pub const CONSUL_WAIT_SECONDS_MAX: u64 = 600;
/// Total length of the `filter` expressions of one request, bytes.
pub const CONSUL_FILTER_BYTES_MAX: usize = 8 * 1024;
/// Largest nesting depth of a filter, count. A chain of operators may have four times as many:
/// evaluation recurses as deep as the chain is long.
pub const CONSUL_FILTER_DEPTH_MAX: usize = 64;
/// Largest compiled regular expression of a filter, bytes.
pub const CONSUL_FILTER_PATTERN_BYTES_MAX: usize = 256 * 1024;
/// Regular expressions in the filter of one request, count: a blocking query keeps them compiled in
/// memory.
pub const CONSUL_FILTER_PATTERNS_MAX: usize = 8;
/// Longest name of a resource or of a unit of tenancy, bytes: a DNS label (spec: consul §5.3).
pub const RESOURCE_NAME_BYTES_MAX: usize = 63;
/// Longest name of a tombstone, bytes: `tombstone-NAME-UID`.
pub const TOMBSTONE_NAME_BYTES_MAX: usize = 10 + RESOURCE_NAME_BYTES_MAX + 1 + 26;
/// Longest uid in a request, bytes. Uids made by the server have 26.
pub const RESOURCE_UID_BYTES_MAX: usize = 64;
/// Largest stored resource, bytes as [`Resource::content_bytes`](super::Resource::content_bytes)
/// counts them: metadata, statuses and data. A new resource in a write of at most
/// [`REQUEST_BYTES_MAX`] always fits. A later status, or new data beside stored statuses, may be
/// refused.
pub const RESOURCE_BYTES_MAX: usize = REQUEST_BYTES_MAX;
/// Bytes that each status, and each condition in it, counts for in the size of a resource, beside
/// its texts.
pub const RESOURCE_FINDING_BYTES: usize = 16;
/// Longest key of a status of a resource, bytes.
pub const RESOURCE_STATUS_KEY_BYTES_MAX: usize = 256;
/// Longest section of a reference from a condition of a status to another resource, bytes.
pub const RESOURCE_SECTION_BYTES_MAX: usize = 1024;
/// Children of a deleted resource that one command visits, count.
pub const RESOURCE_REAP_BATCH: usize = 256;
/// Stored bytes of children of a deleted resource after which one command visits no further child.
/// The last child may exceed it.
pub const RESOURCE_REAP_BYTES_MAX: u64 = 1024 * 1024;
/// Types that may be registered, count. Every member holds all of them in memory.
pub const RESOURCE_TYPES_MAX: u64 = 1000;
/// Stored bytes of resources in one answer of a list. A larger list must be requested in pages, and
/// a page ends with the resource that exceeds it. A larger list by owner is refused.
pub const RESOURCE_LIST_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Resources in one page of a list, count. A larger page size counts as this one.
pub const RESOURCE_PAGE_MAX: usize = 100_000;
/// Time for which the first state of a stream is cached, from the request that built it on, for
/// streams that begin shortly after (spec: consul §1.9).
pub const LISTING_KEPT: Duration = Duration::from_secs(10);
/// Changed entries that are merged into a cached first state for one stream, count. The commit that
/// reaches the limit is the last merged one; later changes are sent one by one.
pub const LISTING_MERGED_CHANGES_MAX: usize = 1024;
/// Size from which a list of names of services is split into several messages, bytes of events:
/// clients of gRPC accept 4 MiB in one message by default.
pub const SUBSCRIBE_LIST_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Largest set of descriptors of one type, bytes.
pub const DESCRIPTOR_SET_BYTES_MAX: usize = 512 * 1024;
/// Longest defaults of one type, bytes of JSON.
pub const TYPE_DEFAULTS_BYTES_MAX: usize = 64 * 1024;
/// Rules of one type, count.
pub const TYPE_RULES_MAX: usize = 64;
/// Longest expression of one rule, bytes.
pub const TYPE_RULE_BYTES_MAX: usize = 2048;
/// Longest message of a rule, bytes.
pub const TYPE_RULE_TEXT_BYTES_MAX: usize = 512;
/// Largest nesting depth of one rule, count: of brackets, with one level more for every four of the
/// operators `?`, `!` and `-`.
pub const TYPE_RULE_DEPTH_MAX: usize = 24;
/// Largest depth of the syntax tree of one rule, nodes. A chain of operators is as deep as it is
/// long, and evaluation recurses as deep.
pub const TYPE_RULE_TREE_DEPTH_MAX: usize = 100;
/// Most messages `google.protobuf.Any` in one another in the data of a resource: each costs a copy
/// of what it has inside.
pub const TYPE_ANY_DEPTH_MAX: usize = 16;
/// Most levels of messages below the data of a resource, those in a `google.protobuf.Any` included.
pub const TYPE_DATA_LEVELS_MAX: usize = 100;
/// Largest cost of evaluating all rules of a type for one resource, in evaluated nodes of syntax
/// trees. 16 bytes of text that are read or copied cost as much as one node; in `matches()`, each
/// byte costs as much as four. Bounds both time and memory.
pub const TYPE_RULE_COST_MAX: u64 = 1_000_000;
/// Longest name or id of a node, a service, a check, a gateway or a session, bytes.
pub const CATALOG_NAME_BYTES_MAX: usize = 512;
/// Checks in one registration, count.
pub const CATALOG_CHECKS_MAX: usize = 1024;
/// Services linked to one terminating gateway, count.
pub const GATEWAY_SERVICES_MAX: usize = 1024;
/// Largest compiled regular expression of `matches()` in a rule, bytes.
pub const TYPE_PATTERN_BYTES_MAX: usize = 64 * 1024;
/// Largest value that one request of Consul's KV API writes, bytes (Consul's `kv_max_value_size`;
/// spec: consul §8.3).
pub const CONSUL_VALUE_BYTES_MAX: usize = 512 * 1024;
/// Longest path of Consul's KV API, bytes.
pub const CONSUL_PATH_BYTES_MAX: usize = 2048;
/// Keys and rows of the catalog that one replicated command of Consul's API may read, count: every
/// member reads them. Also the bound for all operations on Consul's keys in one commit.
pub const CONSUL_TXN_RESULT_KEYS_MAX: usize = 16_384;
/// Bytes that one replicated command of Consul's API may read, with [`ENTRY_BYTES`] for each key
/// and row of the result. Every member reads them, and the outcome is one message. Also the bound
/// for all operations on Consul's keys in one commit.
pub const CONSUL_TXN_RESULT_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Bytes that one read of Consul's KV API, or a transaction that only reads, may return, with
/// [`ENTRY_BYTES`] for each key. A larger read is refused, and the client must split it.
pub const CONSUL_LIST_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Largest body of one transaction of Consul's API, bytes of JSON. With the default
/// `max-request-bytes`, the decoded content of such a body is a legal command.
pub const CONSUL_TXN_BODY_BYTES_MAX: usize = REQUEST_BYTES_MAX;
/// Shortest time to live of a session of Consul's API, milliseconds (Consul's; spec: consul §8.3).
/// 0 stands for none, and is accepted, too.
pub const SESSION_TTL_MS_MIN: u64 = 10_000;
/// Longest time to live of a session of Consul's API, milliseconds (Consul's).
pub const SESSION_TTL_MS_MAX: u64 = 24 * 60 * 60 * 1000;
/// Lock delay of a session that names none, milliseconds (Consul's).
pub const LOCK_DELAY_MS_DEFAULT: u64 = 15_000;
/// Longest lock delay, milliseconds (Consul's). A longer one counts as this one.
pub const LOCK_DELAY_MS_MAX: u64 = 60_000;
/// Shortest time for which a check must be critical before its service is deregistered, seconds
/// (Consul's). A shorter setting counts as this one.
pub const CRITICAL_SERVICE_SECONDS_MIN: i64 = 60;
/// Checks that one session of Consul's API may depend on, count.
pub const SESSION_CHECKS_MAX: usize = 64;
/// Most parts of the name of an element, not counting its space. The last part holds the rest of a
/// key with more parts.
pub const ENTITY_DEPTH_MAX: usize = 64;
/// Longest `target` of a watch of `google.watcher.v1`, bytes on the wire.
pub const ENTITY_TARGET_BYTES_MAX: usize = 16 * 1024;
/// Largest state of an entity with everything below it, bytes on the wire. A watch that begins with
/// a larger state is refused.
pub const ENTITY_STATE_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Memory of the initial states of streams on one member, total bytes: states that are being built,
/// that are cached, and that stalled readers hold. A state that does not fit is refused. Enough for
/// four encoded states of the largest size, or for one that consists of the smallest elements, with
/// their overhead in memory.
pub const STATES_BYTES_MAX: usize = 4 * ENTITY_STATE_BYTES_MAX;
/// Bytes that each element of a stream's initial state counts for beside its content: about its
/// overhead in memory. Nothing replicated depends on it, unlike on [`ENTRY_BYTES`].
pub const STATE_ENTRY_BYTES: usize = 128;
/// Number of waiting commits from which on a stream of an entity merges them into one group. Fewer
/// are sent one by one.
pub const ENTITY_BACKLOG_MAX: usize = 512;
/// Most commits in one sum of changes, count: bounds the memory of the sum. A sum has more only if
/// compaction has overtaken the stream: then it reaches the compaction point. The first group of a
/// resumed stream may consist of several sums.
pub const ENTITY_MERGED_COMMITS_MAX: usize = 8192;
/// Changes after which a stream of an entity takes no further waiting commit, count; the last
/// commit may exceed it. A merged group consists of two such takes, so it may have about twice as
/// many.
pub const ENTITY_MERGED_CHANGES_MAX: usize = 65_536;
/// Largest message of changes of `google.watcher.v1`, and its default, bytes. A larger change is
/// sent alone. The client may ask for smaller messages.
pub const ENTITY_BATCH_BYTES_MAX: usize = 64 * 1024;
/// Directories of one space (services, in the space of services) with a remembered key below,
/// count. The key existed when it was remembered, and is looked up again before it counts.
pub const ENTITY_KNOWN_KEYS_MAX: usize = 16_384;
/// Entities in one page of a read at a point of history, count, if the client names no number.
pub const STORE_PAGE_DEFAULT: usize = 1000;
/// Most entities in one page of a read at a point of history, count.
pub const STORE_PAGE_MAX: usize = 10_000;
/// Approximate size at which one page of a read at a point of history ends, bytes. The last entity
/// may exceed it.
pub const STORE_PAGE_BYTES_MAX: usize = 1024 * 1024;
/// Most targets of one request about the history, count.
pub const STORE_TARGETS_MAX: usize = 64;
/// Approximate size of a message of changes of `headwater.v1.Store` after which no further command
/// is added, bytes.
pub const STORE_CHANGES_BYTES_MAX: usize = 256 * 1024;
/// Approximate size of the largest message of changes of `headwater.v1.Store`, bytes; one change
/// always fits. A command with more takes several messages. Clients of gRPC take 4 MiB by default,
/// and two values of the default `max-request-bytes` fit into that.
pub const STORE_MESSAGE_BYTES_MAX: usize = 768 * 1024;

/// Size of the cache of ranges, bytes. For each cached interval it holds the newest versions of all
/// keys.
pub const RANGE_CACHE_BYTES_MAX: usize = 64 << 20;
/// Largest value in the cache of ranges, bytes. A larger one is read from history.
pub const RANGE_VALUE_CACHED_BYTES_MAX: usize = 16 << 10;
/// Size of the cache of decoded rows of the catalog, bytes.
pub const CATALOG_ROWS_CACHED_BYTES_MAX: u64 = 64 << 20;
/// Size of the cache of the lists of checks, one list for each instance, bytes.
pub const CATALOG_LISTS_CACHED_BYTES_MAX: u64 = 4 << 20;

/// Longest domain that DNS serves, bytes without the trailing dot: names below the domain need
/// space, too.
pub const DNS_DOMAIN_BYTES_MAX: usize = 100;
/// Longest DNS packet that is sent over UDP, bytes: it passes every network without fragmentation.
/// Announced to clients with EDNS.
pub const DNS_UDP_BYTES_MAX: u16 = 1232;
/// Longest DNS request that is read, bytes. Real requests are less than a tenth as long.
pub const DNS_REQUEST_BYTES_MAX: usize = 4096;
/// Largest value of the setting `dns.udp-answers`, count: more answers do not fit the 512 bytes of
/// a client without EDNS.
pub const DNS_UDP_ANSWERS_MAX: u64 = 40;
/// DNS questions in progress at once, count; one more is refused. One client gets only a part of
/// the last quarter.
pub const DNS_QUERIES_MAX: usize = 1024;
/// DNS connections that may be open, count; one more is closed at once.
pub const DNS_CONNECTIONS_MAX: usize = 256;

/// Longest text with the rules of one policy, bytes.
pub const ACL_RULES_BYTES_MAX: usize = 256 << 10;
/// Rules of one policy, count.
pub const ACL_RULES_MAX: usize = 4096;
/// Longest name in a rule, bytes.
pub const ACL_RULE_NAME_BYTES_MAX: usize = 2048;
/// Links of each kind of one token or role, count. The kinds are policies, roles, service
/// identities, node identities and templates.
pub const ACL_LINKS_MAX: usize = 256;
/// Longest description of a token, policy, role, auth method or binding rule, bytes.
pub const ACL_DESCRIPTION_BYTES_MAX: usize = 1024;
/// Tokens that one command removes because they have expired or their auth method is gone, count.
pub const ACL_EXPIRED_MAX: usize = 1000;
/// Tokens, by their secrets, for which a member caches the rights, count.
pub const ACL_CACHED_TOKENS_MAX: usize = 10_000;
/// Policies for which a member caches the parsed rules, count.
pub const ACL_CACHED_POLICIES_MAX: usize = 20_000;

const _: () =
    assert!(ACL_EXPIRED_MAX * 64 < REQUEST_BYTES_SET_MIN, "a full list of expired tokens must be a legal command");
const _: () = assert!(CONSUL_VALUE_BYTES_MAX + CONSUL_PATH_BYTES_MAX + 1024 < REQUEST_BYTES_MAX, "a value must fit");
const _: () = assert!(
    CONSUL_TXN_RESULT_BYTES_MAX + 2 * REQUEST_BYTES_MAX < PEER_MESSAGE_BYTES_MAX,
    "the outcome of a transaction must fit one message, with what its writes tell"
);
const _: () = assert!(
    TXN_OPS_MAX * (REQUEST_BYTES_MAX + ENTRY_BYTES) < TXN_READ_BYTES_MAX,
    "a full list of single keys must fit"
);
const _: () = assert!(DNS_REQUEST_BYTES_MAX <= u16::MAX as usize, "a question must fit a packet");
const _: () = assert!(DNS_DOMAIN_BYTES_MAX < 255 / 2, "a name below the domain must fit what a name may have");
const _: () = assert!(
    DESCRIPTOR_SET_BYTES_MAX
        + TYPE_DEFAULTS_BYTES_MAX
        + TYPE_RULES_MAX * (TYPE_RULE_BYTES_MAX + TYPE_RULE_TEXT_BYTES_MAX)
        < REQUEST_BYTES_MAX,
    "the largest registration must be a legal command"
);
const _: () = assert!(
    ENTITY_STATE_BYTES_MAX / 50 * (50 + STATE_ENTRY_BYTES) < STATES_BYTES_MAX,
    "the largest state must fit if its elements are as small as can be: the name of what they carry has most of 50 bytes"
);
const _: () = assert!(RESOURCE_LIST_BYTES_MAX <= ENTITY_STATE_BYTES_MAX, "the largest list must fit like a state");
const _: () = assert!(CONSUL_BODY_BYTES_MAX < REQUEST_BYTES_MAX, "the largest registration must be a legal command");
const _: () = assert!(LEASE_EXPIRIES_MIN < LEASE_EXPIRIES_MAX, "the later leases are, the more may end at once");
const _: () = assert!(
    (VOTERS_MAX + LEARNERS_MAX) * (MEMBER_NAME_BYTES_MAX + 2 * MEMBER_URL_BYTES_MAX + 64) < 1024 * 1024,
    "the largest membership must fit its record"
);
const _: () = assert!(VOTERS_MAX + LEARNERS_MAX <= ALARMS_OF_KIND_MAX, "every member may have an alarm");
const _: () = assert!(LEASE_EXPIRIES_MAX * 4 < PENDING_PROPOSALS_MAX, "expiries must leave room for writes");
const _: () = assert!(LEASE_CHECKPOINTS_MAX * 64 < REQUEST_BYTES_MAX, "a full checkpoint must be a legal command");
const _: () = assert!(
    REQUEST_BYTES_SET_MIN < REQUEST_BYTES_MAX && REQUEST_BYTES_MAX < REQUEST_BYTES_SET_MAX,
    "the default must be legal"
);
const _: () = assert!(TXN_OPS_MAX < TXN_OPS_SET_MAX, "the default must be legal");
const _: () = assert!(REQUEST_BYTES_MAX < APPEND_BYTES_MAX, "one command must fit one append");
const _: () =
    assert!(APPEND_BYTES_MAX + REQUEST_BYTES_SET_MAX < PEER_MESSAGE_BYTES_MAX, "a full append must fit one message");
