//! Options of the log's RocksDB (spec: reliability §2.4).

use rocksdb::{
    BlockBasedOptions, Cache, ColumnFamilyDescriptor, DBCompressionType, DBRecoveryMode, LogLevel, Options,
    ReadOptions, WriteOptions,
};

use crate::log::LogOptions;

/// Column family of the entries: index → record.
pub(in crate::log) const CF_ENTRIES: &str = "entries";
/// Column family of everything else: vote, committed id, purged id, tip, store id.
pub(in crate::log) const CF_META: &str = "meta";

const BLOCK_CACHE_BYTES: usize = 1024 * 1024;
const MANIFEST_BYTES_MAX: usize = 4 * 1024 * 1024;
const INFO_LOG_BYTES_MAX: usize = 1024 * 1024;

/// Options of the database as a whole.
pub(in crate::log) fn db_options(create: bool) -> Options {
    let mut options = Options::default();
    options.create_if_missing(create);
    options.create_missing_column_families(create);
    // Recovery: keep everything up to the first damaged write-ahead record, nothing after it. A
    // torn tail holds no acknowledged batch; the mark (see `mark`) reveals a longer loss.
    options.set_wal_recovery_mode(DBRecoveryMode::PointInTime);
    options.set_track_and_verify_wals_in_manifest(true);
    options.set_paranoid_checks(true);
    options.set_manual_wal_flush(false);
    // Both families are flushed together, so that the seldom-written one does not hold back
    // write-ahead files.
    options.set_atomic_flush(true);
    // One thread writes.
    options.set_allow_concurrent_memtable_write(false);
    options.set_max_background_jobs(2);
    options.set_max_manifest_file_size(MANIFEST_BYTES_MAX);
    options.set_keep_log_file_num(2);
    options.set_max_log_file_size(INFO_LOG_BYTES_MAX);
    options.set_log_level(LogLevel::Warn);
    options.set_stats_dump_period_sec(0);
    options.set_stats_persist_period_sec(0);
    options
}

/// The families. Keys are written in order and read in runs, so there is no bloom filter; payloads
/// are opaque and short-lived, so there is no compression.
pub(in crate::log) fn families(log: &LogOptions) -> Vec<ColumnFamilyDescriptor> {
    let cache = Cache::new_lru_cache(BLOCK_CACHE_BYTES);
    [CF_ENTRIES, CF_META]
        .into_iter()
        .map(|name| {
            let mut table = BlockBasedOptions::default();
            table.set_block_cache(&cache);
            table.set_block_size(16 * 1024);
            let mut options = Options::default();
            options.set_write_buffer_size(log.memtable_bytes);
            options.set_max_write_buffer_number(4);
            options.set_compression_type(DBCompressionType::None);
            options.set_block_based_table_factory(&table);
            ColumnFamilyDescriptor::new(name, options)
        })
        .collect()
}

pub(in crate::log) fn write_options(sync: bool) -> WriteOptions {
    let mut options = WriteOptions::default();
    options.set_sync(sync);
    options
}

/// Options of a read of entries before `end`, which adds no blocks to the cache.
pub(in crate::log) fn read_options(end: u64) -> ReadOptions {
    let mut options = ReadOptions::default();
    options.set_iterate_upper_bound(end.to_be_bytes());
    options.fill_cache(false);
    options
}
