//! Every limit of the store, with its unit in the name or the type. The code that enforces a limit
//! is tested at the limit and one past it.

use std::time::Duration;

/// Default for the largest encoded command, bytes (etcd's `--max-request-bytes`; spec: etcd §1.8).
/// Each member checks requests on entry by its own setting; apply accepts every size that is in the
/// log.
pub const REQUEST_BYTES_MAX: usize = 1_572_864;
/// Smallest value that may be configured for [`REQUEST_BYTES_MAX`], bytes: the proposals of the
/// members' own tasks must fit.
pub const REQUEST_BYTES_SET_MIN: usize = 64 * 1024;
/// Largest value that may be configured for [`REQUEST_BYTES_MAX`], bytes (etcd's recommended
/// maximum): every member accepts commands of this size from other members.
pub const REQUEST_BYTES_SET_MAX: usize = 10 * 1024 * 1024;
/// Simple tokens that a member keeps, count; a further one evicts those that have expired or expire
/// first.
pub const SIMPLE_TOKENS_MAX: usize = 100_000;
/// Longest password, bytes.
pub const PASSWORD_BYTES_MAX: usize = 4096;
/// Passwords that a member hashes or checks at a time, count. Each takes a core and 19 MiB of
/// memory, or up to 256 MiB if a client gave the hash.
pub const PASSWORDS_HASHED_AT_ONCE: usize = 2;
/// Passwords that are being hashed or wait to be hashed, count; one more is refused. One client
/// cannot take all.
pub const PASSWORDS_WAITING_MAX: usize = 256;
/// Users with compiled rights in the cache of a member, count.
pub const RIGHTS_CACHED_MAX: usize = 10_000;
/// Largest rights in a proposal, bytes as [`Rights::size`](super::Rights::size) counts them.
pub const CARRIED_RIGHTS_BYTES_MAX: usize = 64 << 10;
/// Most intervals of a principal's rights that the keys of one lease may lie in, count: beyond it
/// the principal is denied access to the lease.
pub const LEASE_KEYS_JUDGED_MAX: usize = 1024;
/// Most owned resources for which the rights of a deletion are checked, count. An owner of more can
/// be deleted only by a principal that may write every resource.
pub const RESOURCE_CASCADE_JUDGED_MAX: usize = 1024;
/// Tokens that a member keeps for users that send name and password with each request, count; a
/// further one clears all others.
pub const PASSWORD_TOKENS_MAX: usize = 1024;
/// Lines of the audit log that wait for the disk, count; further lines are not written, only their
/// number is.
pub const AUDIT_QUEUE_LINES: usize = 8192;
/// Intervals of keys in one line of the audit log, count; further ones are left out.
pub const AUDIT_INTERVALS_MAX: usize = 16;
/// Kinds of refused requests with a counter of repetitions in the audit log, count; requests of
/// further kinds are written one by one.
pub const AUDIT_REFUSALS_REMEMBERED_MAX: usize = 1024;
/// Bytes by which a message on the client port may exceed the request limit before gRPC itself
/// refuses it.
pub const REQUEST_OVERHEAD_BYTES: usize = 512 * 1024;
/// Largest message that the client port receives with the default request limit, bytes. Responses
/// of a watch are split at this size.
pub const CLIENT_MESSAGE_BYTES_MAX: usize = REQUEST_BYTES_MAX + REQUEST_OVERHEAD_BYTES;
/// Longest block of HTTP/2 headers in which the client port repairs `:authority`, bytes, frame
/// headers included; longer blocks pass unchanged.
pub const HEADER_BLOCK_BYTES_MAX: usize = 8 * 1024;
/// Largest message that the peer port receives, bytes: a full append of the largest commands fits.
pub const PEER_MESSAGE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Default for the most operations, or compares, in one list of a transaction (etcd's
/// `--max-txn-ops`). Each member checks requests on entry by its own setting.
pub const TXN_OPS_MAX: usize = 128;
/// Largest value that may be configured for [`TXN_OPS_MAX`], count: apply runs all operations of a
/// transaction before the next command.
pub const TXN_OPS_SET_MAX: usize = 16_384;
/// Most compares and operations of a transaction with all nested ones, as a multiple of the limit
/// of one list. Without it one request could have tens of thousands, because each list at each
/// level may hold as many as the limit of one list.
pub const TXN_TREE_FACTOR: usize = 4;
/// Keys that the compares of one transaction may visit, count, and as many again that its
/// operations may: every member visits them.
pub const TXN_READ_KEYS_MAX: usize = 1 << 20;
/// Values that the compares of one transaction may read, bytes, and as many bytes again of keys and
/// values in its results.
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
/// Shortest time for which an idempotency key is kept, milliseconds by the clocks of proposers.
pub const COMMIT_KEY_KEPT_MS: u64 = 600_000;
/// Number of later commits with keys through which an idempotency key is kept, however wrong the
/// clocks of proposers are.
pub const COMMIT_KEY_KEPT_COMMITS: u64 = 6000;
/// Idempotency keys that are kept at a time, count; a commit with one more is refused. With each
/// commit that has a key, those that have become too old are removed.
pub const COMMIT_KEYS_MAX: u64 = 1_000_000;
/// Size of all kept idempotency keys with their results, bytes.
pub const COMMIT_KEYS_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// Idempotency keys that one commit removes at most, count: more than it adds, so that old ones go.
pub const COMMIT_KEYS_REMOVED_MAX: usize = 4;
/// As [`COMMIT_KEYS_REMOVED_MAX`], if no further key can be kept: a large commit may need the room
/// of many small ones.
pub const COMMIT_KEYS_REMOVED_IF_FULL_MAX: usize = 64;
/// Proposals that may wait for the log before new ones are refused, count (etcd refuses at a gap of
/// 5000).
pub const PENDING_PROPOSALS_MAX: usize = 5000;
/// Total size of the commands that wait for the log, bytes; one more is refused.
pub const PENDING_PROPOSAL_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Linearizable reads that may wait for the leader's confirmation, count; one more is refused.
pub const WAITING_READS_MAX: usize = 20_000;
/// Reads of more than one key that may run or wait for a thread, count; one more is refused. One
/// confirmation of the leader may release [`WAITING_READS_MAX`] of them at once.
pub const LONG_READS_MAX: usize = WAITING_READS_MAX;
/// Reads of more than one key that run at a time, count, so that enough blocking threads are left
/// for the node's own work.
pub const LONG_READS_RUNNING_MAX: usize = 32;
/// Reads of more than one key that run at a time for one client, count: the rest is for other
/// clients.
pub const LONG_READS_OF_CLIENT_MAX: usize = LONG_READS_RUNNING_MAX / 4 * 3;
/// Reads of the node's own tasks that run at a time, count.
pub const OWN_READS_RUNNING_MAX: usize = 4;
/// Streamed ranges that may be open at once, count. More wait for a permit; [`LONG_READS_MAX`]
/// bounds the open and the waiting ones together.
pub const RANGE_STREAMS_MAX: usize = 32;
/// Streamed ranges of one client that may be open at once, count: a stalled reader holds one for
/// long.
pub const RANGE_STREAMS_OF_CLIENT_MAX: usize = RANGE_STREAMS_MAX / 4 * 3;
/// Watchers on one member, of all kinds of streams together, count; one more is refused. Each takes
/// about a kilobyte. Every open request may be a stream with one watcher.
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
/// Requests that may be open on one member, count, including streams and blocking queries; one more
/// is refused.
pub const OPEN_REQUESTS_MAX: usize = 1 << 18;
/// Reserve beyond [`OPEN_REQUESTS_MAX`] that only keep-alives and health requests may take, count.
pub const RESERVED_REQUESTS_MAX: usize = 1024;
/// Largest headers of one request, bytes. On HTTP/2 each header counts 32 bytes more (RFC 9113,
/// §6.5.2); on HTTP/1 the request line counts too.
pub const HEADER_LIST_BYTES_MAX: u32 = 16 * 1024;
/// Answers that clients have not yet received, of all connections together, bytes. Beyond it a read
/// with a larger answer than [`SMALL_ANSWER_BYTES_MAX`] waits briefly, then is refused. A client
/// that reads holds its answer for moments, so that this is enough for hundreds of clients; it is
/// less than the memory of an idle node with its caches.
pub const UNREAD_ANSWERS_BYTES_MAX: usize = 128 * 1024 * 1024;
/// Largest answer that may use the reserve [`UNREAD_SMALL_ANSWERS_BYTES`], bytes. A read with a
/// larger one may have to wait.
pub const SMALL_ANSWER_BYTES_MAX: usize = 16 * 1024;
/// Bytes beyond [`UNREAD_ANSWERS_BYTES_MAX`] that only answers up to [`SMALL_ANSWER_BYTES_MAX`] may
/// take.
pub const UNREAD_SMALL_ANSWERS_BYTES: usize = 32 * 1024 * 1024;
/// Largest part of an answer that is passed to a connection at once, bytes: the connection keeps it
/// until it is sent, also if its reader has stalled.
pub const ANSWER_CHUNK_BYTES_MAX: usize = 64 * 1024;
/// Time after which a stream or a connection is closed if its client receives nothing although data
/// waits.
pub const STALLED_READER_TIMEOUT: Duration = Duration::from_secs(30);
/// The shorter [`STALLED_READER_TIMEOUT`] that applies while unread answers fill half of
/// [`UNREAD_ANSWERS_BYTES_MAX`] or more.
pub const STALLED_READER_TIMEOUT_MIN: Duration = Duration::from_secs(5);
/// Contenders for locks and elections, and observers of elections, that may wait on one member,
/// count; one more is refused.
pub const CONTENDERS_MAX: usize = 20_000;
/// Time to live of the lease that is made for a contender without one, seconds (etcd's; spec: etcd
/// §4.4).
pub const SESSION_TTL_SECONDS: i64 = 60;
/// Commands in one append to the log, bytes. A batch closes once it has as many bytes, so that its
/// last proposal may exceed the limit. A read of the log for replication stays within it, but has
/// at least one entry.
pub const APPEND_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Commands between two snapshots, bytes. A snapshot is made at this limit or at that of
/// `raft.snapshot-every`, which counts entries, whichever comes first.
pub const SNAPSHOT_EVERY_BYTES: u64 = 128 * 1024 * 1024;
/// Most commands that the log keeps for lagging followers although a snapshot covers them, bytes.
/// `raft.log-keep` bounds them in entries; the smaller bound applies.
pub const LOG_KEEP_BYTES: u64 = 256 * 1024 * 1024;
/// Largest chunk of a snapshot file in one message, bytes.
pub const SNAPSHOT_CHUNK_BYTES: usize = 1024 * 1024;
/// Records of history that one step of reclamation visits before it yields, count.
pub const RECLAIM_BATCH_ENTRIES: usize = 1000;
/// Keys in the cache of the newest versions of keys, count.
pub const KEY_CACHE_ENTRIES: usize = 200_000;
/// Longest time to live of a lease, seconds (etcd's limit; spec: etcd §3.1).
pub const LEASE_TTL_SECONDS_MAX: i64 = 9_000_000_000;
/// Bytes that each lease counts for when the node compares all leases with the quota before it
/// proposes a grant: about a lease's memory and disk on a member. Apply does not add up leases: it
/// counts only the new one, with another cost.
pub const LEASE_QUOTA_BYTES: u64 = 256;
/// Leases in one [`LeaseCheckpoint`](super::LeaseCheckpoint), count; more go into the next one.
pub const LEASE_CHECKPOINTS_MAX: usize = 1000;
/// Commands in flight at once that end expired leases, while leases end in time, count: few beside
/// the writes of a busy store, and enough for thousands a second on an idle one.
pub const LEASE_EXPIRIES_MIN: usize = 16;
/// Commands in flight at once that end expired leases, when leases end late, count: few beside the
/// proposals that may be pending, so that writes continue while very many leases end together.
pub const LEASE_EXPIRIES_MAX: usize = 512;
/// Alarms of one kind that may be active, count; a further one replaces another alarm of its kind.
pub const ALARMS_OF_KIND_MAX: usize = 64;
/// Alarms that may be active before [`Feature::AlarmsByKind`](super::Feature::AlarmsByKind), count;
/// a further one replaces another alarm of its kind, if there is one.
pub const ALARMS_MAX: usize = 64;
/// Default quota for live keys and values, bytes (etcd's `--quota-backend-bytes`; spec: etcd §1.8).
pub const QUOTA_BYTES_DEFAULT: u64 = 2 << 30;
/// Default time for which history is kept, seconds.
pub const HISTORY_RETENTION_SECONDS_DEFAULT: u64 = 3600;
/// Shortest time for which history can be kept, seconds: long enough for clients that reconnect
/// after a change of leader to find their position in it.
pub const HISTORY_RETENTION_SECONDS_MIN: u64 = 10;
/// Highest revision at which a store can be restored: half of all revisions are left for later
/// writes.
pub const RESTORED_REVISION_MAX: i64 = i64::MAX / 2;
/// Default for the number of log indexes that a restored store skips. A cluster that commits
/// 100,000 entries a second takes four months for as many.
pub const RESTORE_BUMP_INDEX_DEFAULT: u64 = 1 << 40;
/// Highest log index at which a store can be restored. JSON holds numbers up to 2^53, twice this,
/// exactly, so that half of them are left for later entries; 4096 restores in a row fit below it.
pub const RESTORED_INDEX_MAX: u64 = 1 << 52;
/// Backups that one member sends at once, count; one more is refused. Each keeps files on disk that
/// the store would delete.
pub const BACKUPS_MAX: usize = 4;
/// Backups of one client that one member sends at once, count.
pub const BACKUPS_OF_CLIENT_MAX: usize = BACKUPS_MAX - 1;
/// Size of a chunk of a backup on the wire, bytes (etcd's; spec: etcd §4.2).
pub const BACKUP_CHUNK_BYTES: usize = 32 * 1024;
/// Questions about leases that may wait for the leader, count; one more is refused.
pub const WAITING_LEASE_CALLS_MAX: usize = 20_000;
/// Questions about leases in one call to the leader, count.
pub const LEADER_QUESTIONS_MAX: usize = 1024;
/// Members that vote, count. More would only slow down every write.
pub const VOTERS_MAX: usize = 9;
/// Members without a vote, count (etcd's `--max-learners` is 1; here learners scale reads and
/// watches).
pub const LEARNERS_MAX: usize = 32;
/// Largest lag behind the leader's log at which a learner may be promoted, milliseconds. In time,
/// because writes may have to wait until the missing entries are sent; etcd requires nine tenths of
/// the log, and the last tenth may be of any size.
pub const LEARNER_LAG_MS_MAX: u64 = 1000;
/// Versions of clients with a label of their own in metrics, count: a client may send any text as
/// its version. All further versions share one label.
pub const CLIENT_VERSIONS_SHOWN_MAX: usize = 32;
/// Longest version of a client that metrics show, bytes.
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
/// Most uses that an invitation with a bound may allow, count; also the number of newest uses that
/// are recorded of an invitation without a bound.
pub const INVITATION_USES_MAX: u32 = 64;
/// Longest URL of a member, bytes.
pub const MEMBER_URL_BYTES_MAX: usize = 1024;
/// Longest name of a datacenter, bytes: a DNS label.
pub const DATACENTER_NAME_BYTES_MAX: usize = 63;
/// Endpoints of one remote datacenter in the configuration, count. Attempts to forward a
/// subscription share its remaining time equally.
pub const REMOTE_ENDPOINTS_MAX: usize = 32;
/// Largest body of a request of Consul's HTTP API that registers something, bytes.
pub const CONSUL_BODY_BYTES_MAX: usize = 1024 * 1024;
/// Blocking queries of Consul's HTTP API that wait at once, count; one more is refused.
pub const CONSUL_WAITING_MAX: usize = 50_000;
/// Longest wait of a blocking query that a client can ask for, seconds; jitter is added (spec:
/// consul §3.6).
pub const CONSUL_WAIT_SECONDS_MAX: u64 = 600;
/// Longest `filter` expressions of one request, bytes, all together.
pub const CONSUL_FILTER_BYTES_MAX: usize = 8 * 1024;
/// Largest nesting depth of a filter, count: evaluation recurses as deep.
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
/// Largest stored resource, bytes: its texts and its data, with [`RESOURCE_FINDING_BYTES`] for each
/// finding and each status. The resource of one write within [`REQUEST_BYTES_MAX`] always fits, but
/// a status that a controller adds later may be refused.
pub const RESOURCE_BYTES_MAX: usize = REQUEST_BYTES_MAX;
/// Overhead of each status, and of each finding in it, beside its texts, bytes.
pub const RESOURCE_FINDING_BYTES: usize = 16;
/// Longest key of a status of a resource, bytes.
pub const RESOURCE_STATUS_KEY_BYTES_MAX: usize = 256;
/// Longest section of a reference from a status to another resource, bytes.
pub const RESOURCE_SECTION_BYTES_MAX: usize = 1024;
/// Children of a deleted resource that one command visits, count.
pub const RESOURCE_REAP_BATCH: usize = 256;
/// Stored size of the children of a deleted resource that one command visits, bytes; one child of
/// any size always fits.
pub const RESOURCE_REAP_BYTES_MAX: u64 = 1024 * 1024;
/// Types that may be registered, count. Every member holds all of them in memory.
pub const RESOURCE_TYPES_MAX: u64 = 1000;
/// Resources in one answer without pages, bytes as stored; a larger list must be requested in
/// pages.
pub const RESOURCE_LIST_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Resources in one page of a list, count.
pub const RESOURCE_PAGE_MAX: usize = 100_000;
/// Time for which the first state of a stream is cached for streams that begin shortly after it was
/// made (spec: consul §1.9).
pub const LISTING_KEPT: Duration = Duration::from_secs(10);
/// Changed entries that are merged into a cached first state for one stream, count; the commit that
/// reaches the limit is the last merged one, and later changes are sent one by one.
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
/// Largest nesting depth of brackets in one rule, count.
pub const TYPE_RULE_DEPTH_MAX: usize = 24;
/// Largest depth of the syntax tree of one rule, nodes: a chain of as many operators. Evaluation
/// recurses as deep.
pub const TYPE_RULE_TREE_DEPTH_MAX: usize = 100;
/// Largest cost of evaluating all rules of a type for one resource, in evaluated nodes of syntax
/// trees; 16 bytes of text that are read or copied cost as much as one node. Bounds both time and
/// memory.
pub const TYPE_RULE_COST_MAX: u64 = 1_000_000;
/// Longest name or id of a node, a service or a check, bytes.
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
/// Keys and rows of the catalog that one replicated transaction of Consul's API may read, count:
/// every member reads them.
pub const CONSUL_TXN_RESULT_KEYS_MAX: usize = 16_384;
/// Bytes that one replicated transaction of Consul's API may read: every member reads them, and the
/// outcome is one message.
pub const CONSUL_TXN_RESULT_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Bytes that one request of Consul's KV API may read; a larger read is refused, and the client
/// must split it.
pub const CONSUL_LIST_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Largest body of one transaction of Consul's API, bytes of JSON: so bounded, its decoded content
/// is a legal command.
pub const CONSUL_TXN_BODY_BYTES_MAX: usize = REQUEST_BYTES_MAX;
/// Shortest time to live of a session, milliseconds (Consul's; spec: consul §8.3).
pub const SESSION_TTL_MS_MIN: u64 = 10_000;
/// Longest time to live of a session, milliseconds (Consul's).
pub const SESSION_TTL_MS_MAX: u64 = 24 * 60 * 60 * 1000;
/// Lock delay of a session that names none, milliseconds (Consul's).
pub const LOCK_DELAY_MS_DEFAULT: u64 = 15_000;
/// Longest lock delay, milliseconds (Consul's).
pub const LOCK_DELAY_MS_MAX: u64 = 60_000;
/// Shortest time for which a check is critical before its service is deregistered, seconds
/// (Consul's). A shorter setting counts as this one.
pub const CRITICAL_SERVICE_SECONDS_MIN: i64 = 60;
/// Checks that one session depends on, count.
pub const SESSION_CHECKS_MAX: usize = 64;
/// Most parts of the name of an element, not counting its space. The last part holds the rest of a
/// key with more parts.
pub const ENTITY_DEPTH_MAX: usize = 64;
/// Longest `target` of a watch of `google.watcher.v1`, bytes on the wire.
pub const ENTITY_TARGET_BYTES_MAX: usize = 16 * 1024;
/// Largest state of an entity with everything below it, bytes on the wire; a watch of a larger one
/// is refused.
pub const ENTITY_STATE_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Initial states of streams on one member, total bytes: states that are being built, that are
/// cached, and that stalled readers hold; one more is refused. Enough for four encoded states of
/// the largest size, or for one that consists of the smallest elements, with their overhead in
/// memory.
pub const STATES_BYTES_MAX: usize = 4 * ENTITY_STATE_BYTES_MAX;
/// Bytes that each element of a stream's initial state counts for beside its content: about its
/// overhead in memory. Nothing replicated depends on it, unlike on [`ENTRY_BYTES`].
pub const STATE_ENTRY_BYTES: usize = 128;
/// Commits that wait for a stream of an entity from which on they are merged, count; fewer are sent
/// one by one.
pub const ENTITY_BACKLOG_MAX: usize = 512;
/// Commits merged into one atomic group, count: bounds the memory of the merge.
pub const ENTITY_MERGED_COMMITS_MAX: usize = 8192;
/// Changes merged into one atomic group, count; the commit that reaches the limit is the last of
/// the group, and may exceed it.
pub const ENTITY_MERGED_CHANGES_MAX: usize = 65_536;
/// Largest message of changes, and its default, bytes; a larger change is sent alone. The client
/// may ask for less.
pub const ENTITY_BATCH_BYTES_MAX: usize = 64 * 1024;
/// Directories for which the name of one existing key below is cached, count.
pub const ENTITY_KNOWN_KEYS_MAX: usize = 16_384;
/// Entities of one page of a read at a point of history, count, if the client names no number.
pub const STORE_PAGE_DEFAULT: usize = 1000;
/// Most entities of one such page, count.
pub const STORE_PAGE_MAX: usize = 10_000;
/// Approximate size at which such a page ends, bytes; one entity always fits.
pub const STORE_PAGE_BYTES_MAX: usize = 1024 * 1024;
/// Most targets of one request about the history, count.
pub const STORE_TARGETS_MAX: usize = 64;
/// Approximate size at which one message of changes ends after a command, bytes.
pub const STORE_CHANGES_BYTES_MAX: usize = 256 * 1024;
/// Approximate size of the largest message of changes, bytes; one change always fits. A command
/// with more takes several messages. Clients of gRPC take 4 MiB by default, and two values of the
/// default `max-request-bytes` fit into that.
pub const STORE_MESSAGE_BYTES_MAX: usize = 768 * 1024;

/// Size of the cache of ranges: the newest versions of all keys of intervals, bytes.
pub const RANGE_CACHE_BYTES_MAX: usize = 64 << 20;
/// Largest value in the cache of ranges, bytes. A larger one is read from history.
pub const RANGE_VALUE_CACHED_BYTES_MAX: usize = 16 << 10;
/// Size of the cache of decoded rows of the catalog, bytes.
pub const CATALOG_ROWS_CACHED_BYTES_MAX: u64 = 64 << 20;
/// Size of the cache with the list of checks of each instance, bytes.
pub const CATALOG_LISTS_CACHED_BYTES_MAX: u64 = 4 << 20;

/// Longest domain that DNS serves, bytes without the trailing dot: names below it need space, too.
pub const DNS_DOMAIN_BYTES_MAX: usize = 100;
/// Longest DNS packet that is sent over UDP, bytes: it passes every network without fragmentation.
/// Announced to clients with EDNS.
pub const DNS_UDP_BYTES_MAX: u16 = 1232;
/// Longest DNS request, bytes; real requests are less than a tenth as long.
pub const DNS_REQUEST_BYTES_MAX: usize = 4096;
/// Largest value of the setting `dns.udp-answers`, count: more answers do not fit the 512 bytes of
/// a client without EDNS.
pub const DNS_UDP_ANSWERS_MAX: u64 = 40;
/// DNS questions in progress at once, count; one more is refused.
pub const DNS_QUERIES_MAX: usize = 1024;
/// DNS connections that may be open, count; one more is closed at once.
pub const DNS_CONNECTIONS_MAX: usize = 256;

/// Longest text of the rules of a policy, bytes.
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
/// Expired tokens that one command removes, count.
pub const ACL_EXPIRED_MAX: usize = 1000;
/// Secrets of tokens for which a member caches the rights, count.
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
