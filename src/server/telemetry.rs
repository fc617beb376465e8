//! Logs of the process.

use anyhow::Context;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::time::SystemTime;

use super::config::{LogConfig, LogFormat};

/// Sends the logs of this process to standard error, as configured. Called once.
///
/// # Errors
///
/// If the level cannot be understood.
pub(super) fn init(config: &LogConfig) -> anyhow::Result<()> {
    // openraft logs every step at INFO, and a WARN at every heartbeat that a dead member does not
    // answer; `headwater_raft` logs the same events once. openraft also logs an ERROR for every
    // call after its end, a dozen in an orderly stop; the callers get that error as a result
    // anyway.
    let directives = format!(
        "openraft=warn,openraft::core::heartbeat=error,openraft::replication=error,\
         openraft::engine::handler::replication_handler=error,openraft::core::raft_core=error,\
         openraft::raft::raft_inner=off,openraft::raft::stream_append=off,{}",
        targets(&config.level)
    );
    let filter = EnvFilter::try_new(&directives).with_context(|| format!("log.level {:?}", config.level))?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_timer(SystemTime).with_writer(std::io::stderr);
    match config.format {
        LogFormat::Text => builder.with_ansi(false).init(),
        LogFormat::Json => builder.json().init(),
    }
    Ok(())
}

/// Replaces `headwater::raft` by `headwater_raft` in the directives: each layer is a crate, and its
/// name is the target of its log lines. Both forms are understood.
fn targets(level: &str) -> String {
    level.replace("headwater::", "headwater_")
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_layer_may_be_named_as_a_module() {
        assert_eq!(
            super::targets("info,headwater::raft=debug,headwater_api=warn"),
            "info,headwater_raft=debug,headwater_api=warn"
        );
    }
}
