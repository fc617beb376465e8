//! Options of the log.

use std::fmt;
use std::sync::Arc;

use super::disk::LogForm;

const MEMTABLE_BYTES: usize = 4 * 1024 * 1024;

/// Length of one segment, bytes.
const SEGMENT_BYTES: usize = 8 * 1024 * 1024;

/// Called once, when the log fails, with the reason. It must not block.
pub type OnFailure = Arc<dyn Fn(&str) + Send + Sync>;

/// Options of the log.
#[derive(Clone)]
pub struct LogOptions {
    /// The id that the data directory was created with ([`crate::data_dir`]): a log of another
    /// store is refused.
    pub store_id: u64,
    /// Whether a missing log may be created. True only until the data directory has been in use:
    /// after that a missing log means that votes and entries are gone.
    pub create: bool,
    /// The form of a log that is created. An existing log keeps its form until it is converted.
    pub form: LogForm,
    /// Length of a segment, bytes, after which the next one begins.
    pub segment_bytes: usize,
    /// Size of one memtable of RocksDB, bytes.
    pub memtable_bytes: usize,
    /// Recent entries kept in memory, bytes. Entries that are not yet durable are kept beyond it.
    pub tail_bytes_max: usize,
    /// Most payload of one write batch, bytes. A larger append is written in a batch of its own.
    pub batch_bytes_max: usize,
    /// Whether every fsync is skipped. **Loses acknowledged writes when the power fails**: only for
    /// the proof that the durability tests notice a missing fsync.
    pub unsafe_no_fsync: bool,
    /// Called once when the log fails; the process should then end. `None`: nothing is called.
    pub on_failure: Option<OnFailure>,
}

impl Default for LogOptions {
    fn default() -> Self {
        Self {
            store_id: 0,
            create: true,
            form: LogForm::default(),
            segment_bytes: SEGMENT_BYTES,
            memtable_bytes: MEMTABLE_BYTES,
            tail_bytes_max: 16 * 1024 * 1024,
            batch_bytes_max: 8 * 1024 * 1024,
            unsafe_no_fsync: false,
            on_failure: None,
        }
    }
}

impl fmt::Debug for LogOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogOptions")
            .field("store_id", &self.store_id)
            .field("create", &self.create)
            .field("form", &self.form)
            .field("segment_bytes", &self.segment_bytes)
            .field("memtable_bytes", &self.memtable_bytes)
            .field("tail_bytes_max", &self.tail_bytes_max)
            .field("batch_bytes_max", &self.batch_bytes_max)
            .field("unsafe_no_fsync", &self.unsafe_no_fsync)
            .finish_non_exhaustive()
    }
}
