//! The option with which reading a RocksDB writes nothing into its folder.

use rocksdb::{InfoLogger, LogLevel, Options};

/// Turns off RocksDB's information log, which is otherwise written into the folder of the database.
pub(crate) fn silence(options: &mut Options) {
    options.set_info_logger(InfoLogger::new_callback_logger(LogLevel::Fatal, |_, _| {}));
}
