//! Reads a RocksDB without writing into its folder.

use rocksdb::{InfoLogger, LogLevel, Options};

/// Drops RocksDB's information log, which is otherwise written into the folder of the database.
pub(crate) fn silence(options: &mut Options) {
    options.set_info_logger(InfoLogger::new_callback_logger(LogLevel::Fatal, |_, _| {}));
}
