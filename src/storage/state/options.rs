//! RocksDB's options for the state: column families, filters, memory, triggers.
//!
//! Owns every RocksDB setting of the state. Invariant: none of them may trade durability for speed;
//! the write-ahead log is off because the Raft log is the write-ahead log (ARCHITECTURE.md §4), and
//! families are flushed atomically so that the state on disk is always that of one prefix of the
//! log.

use std::sync::Arc;

use rocksdb::{
    BlockBasedIndexType, BlockBasedOptions, Cache, ColumnFamilyDescriptor, DBCompressionType, LogLevel,
    LruCacheOptions, Options, SliceTransform, WriteOptions,
};

use super::keys;
use super::ranges::RangeCacheMetrics;
use crate::data_dir::VersionMark;
use headwater_proto::codec::NEWEST;
use headwater_types::Supported;
use headwater_types::limits::{HOT_RECORDS_BYTES_MAX, KEY_CACHE_ENTRIES, LEASE_CACHE_BYTES_MAX, RANGE_CACHE_BYTES_MAX};

/// Column family of the changes of every command, in order: the only one with values of keys.
pub(super) const HISTORY: &str = "history";
/// Column family that leads from a key to its versions, newest first, without values.
pub(super) const VERSIONS: &str = "versions";
/// Column family that leads from the first revision of a run to its log index.
pub(super) const REVISIONS: &str = "revisions";
/// Column family of secondary indexes of the current state.
pub(super) const INDEX: &str = "index";
/// Column family of all small records: the head, the membership, leases, alarms, types and counts
/// of resources, query indexes, programs, invitations, kept commits, and this node's progress of
/// reclamation.
pub(super) const META: &str = "meta";

/// Every family that is used; RocksDB insists on `default` too, which stays empty.
pub(super) const FAMILIES: [&str; 5] = [HISTORY, VERSIONS, REVISIONS, INDEX, META];

/// Options of the state.
#[derive(Clone, Debug)]
pub struct StateOptions {
    /// Cache of uncompressed blocks, indexes and filters, bytes; shared by all families and
    /// generations.
    pub block_cache_bytes: usize,
    /// One memtable, bytes. A flush begins when one is full.
    pub memtable_bytes: usize,
    /// Cache of the newest versions of hot keys, without their values, bytes.
    pub key_cache_bytes: u64,
    /// Cache of the live keys and values of intervals that were scanned lately, bytes.
    pub range_cache_bytes: usize,
    /// Cache of records that were read one by one lately, bytes.
    pub hot_records_bytes: u64,
    /// Cache of leases with their keys, bytes.
    pub lease_cache_bytes: u64,
    /// Files that RocksDB keeps open, count.
    pub open_files_max: i32,
    /// The versions that the program supports; less than it was built for only in tests.
    pub supported: Supported,
    /// The version of the data directory, if the state is part of one.
    pub version_mark: Option<VersionMark>,
}

impl Default for StateOptions {
    fn default() -> Self {
        Self {
            block_cache_bytes: 32 << 20,
            memtable_bytes: 16 << 20,
            key_cache_bytes: KEY_CACHE_ENTRIES as u64 * 128,
            range_cache_bytes: RANGE_CACHE_BYTES_MAX,
            hot_records_bytes: HOT_RECORDS_BYTES_MAX as u64,
            lease_cache_bytes: LEASE_CACHE_BYTES_MAX as u64,
            open_files_max: 512,
            supported: NEWEST,
            version_mark: None,
        }
    }
}

/// Options with the block cache that all generations share.
#[derive(Clone)]
pub(super) struct Tuning {
    pub(super) options: StateOptions,
    pub(super) range_metrics: Arc<RangeCacheMetrics>,
    cache: Cache,
}

impl Tuning {
    pub(super) fn new(options: StateOptions) -> Self {
        let mut lru = LruCacheOptions::default();
        lru.set_capacity(options.block_cache_bytes);
        // Left to itself RocksDB cuts a cache of this size into shards of half a megabyte, which
        // large entries do not fit.
        lru.set_num_shard_bits(1);
        let cache = Cache::new_lru_cache_opts(&lru);
        Self { options, range_metrics: Arc::default(), cache }
    }

    /// Options of the database as a whole. With `create` the database must not exist yet; without,
    /// it must exist.
    pub(super) fn database(&self, create: bool) -> Options {
        let mut db = Options::default();
        db.create_if_missing(create);
        db.create_missing_column_families(create);
        db.set_error_if_exists(create);
        db.set_paranoid_checks(true);
        db.set_atomic_flush(true);
        db.set_allow_concurrent_memtable_write(false);
        db.set_enable_pipelined_write(false);
        db.set_unordered_write(false);
        db.set_max_open_files(self.options.open_files_max);
        db.set_max_background_jobs(2);
        db.set_bytes_per_sync(1 << 20);
        db.set_skip_stats_update_on_db_open(true);
        db.set_stats_dump_period_sec(0);
        db.set_stats_persist_period_sec(0);
        db.set_max_manifest_file_size(4 << 20);
        db.set_log_level(LogLevel::Warn);
        db.set_max_log_file_size(4 << 20);
        db.set_keep_log_file_num(2);
        db
    }

    /// Every column family with its options.
    pub(super) fn families(&self) -> Vec<ColumnFamilyDescriptor> {
        let family = |name: &str| ColumnFamilyDescriptor::new(name, self.family(name));
        FAMILIES.into_iter().map(family).chain([ColumnFamilyDescriptor::new("default", Options::default())]).collect()
    }

    fn family(&self, name: &str) -> Options {
        let mut table = BlockBasedOptions::default();
        table.set_block_cache(&self.cache);
        table.set_format_version(6);
        // Indexes and filters count against the cache, so that memory stays bounded however large
        // the store is.
        table.set_cache_index_and_filter_blocks(true);
        table.set_cache_index_and_filter_blocks_with_high_priority(true);
        table.set_pin_l0_filter_and_index_blocks_in_cache(true);
        // Small partitions: the cache holds only those in use.
        table.set_index_type(BlockBasedIndexType::TwoLevelIndexSearch);
        table.set_partition_filters(true);
        table.set_metadata_block_size(4 << 10);
        table.set_pin_top_level_index_and_filter(true);

        let mut cf = Options::default();
        cf.set_write_buffer_size(self.options.memtable_bytes);
        cf.set_max_write_buffer_number(6);
        cf.set_target_file_size_base(32 << 20);
        cf.set_max_bytes_for_level_base(128 << 20);
        cf.set_level_zero_file_num_compaction_trigger(4);
        // High limits, because a stalled write would stall the thread that runs the node. They
        // still bound the backlog of compactions.
        cf.set_level_zero_slowdown_writes_trigger(48);
        cf.set_level_zero_stop_writes_trigger(96);
        cf.set_soft_pending_compaction_bytes_limit(64 << 30);
        cf.set_hard_pending_compaction_bytes_limit(256 << 30);
        match name {
            HISTORY => {
                // Written in order, so files do not overlap and move down without being rewritten;
                // one compression for all levels keeps it so.
                cf.set_compression_type(DBCompressionType::Lz4);
                table.set_block_size(4 << 10);
            }
            VERSIONS => {
                cf.set_prefix_extractor(SliceTransform::create(
                    "headwater.version-prefix",
                    keys::version_prefix_of,
                    Some(keys::is_in_prefix_domain),
                ));
                cf.set_memtable_prefix_bloom_ratio(0.05);
                table.set_whole_key_filtering(false);
                table.set_bloom_filter(10.0, false);
                table.set_optimize_filters_for_memory(true);
                // Keys come in any order, so every compaction of the top level rewrites the next
                // one: rare compactions are better, and the filters keep reads cheap.
                cf.set_level_zero_file_num_compaction_trigger(16);
                cf.set_compression_per_level(&[
                    DBCompressionType::None,
                    DBCompressionType::None,
                    DBCompressionType::Lz4,
                    DBCompressionType::Lz4,
                    DBCompressionType::Lz4,
                    DBCompressionType::Lz4,
                    DBCompressionType::Lz4,
                ]);
            }
            META => {
                // Each commit with an idempotency key asks for a key that is not there.
                cf.set_memtable_prefix_bloom_ratio(0.05);
                cf.set_memtable_whole_key_filtering(true);
                table.set_bloom_filter(10.0, false);
                table.set_optimize_filters_for_memory(true);
                cf.set_compression_type(DBCompressionType::Lz4);
            }
            _ => cf.set_compression_type(DBCompressionType::Lz4),
        }
        cf.set_block_based_table_factory(&table);
        cf
    }
}

/// Options of every write to the state: without a write-ahead log, never synced by itself.
pub(super) fn write_options() -> WriteOptions {
    let mut options = WriteOptions::default();
    options.disable_wal(true);
    options
}
