//! `headwater bench watch` and `watch-latency`: how fast events reach watchers, and whether each
//! watcher gets them all.
//!
//! [`layout`] deals out watchers, [`readers`] are the threads that read [`stream`]s, [`decode`]
//! reads responses, [`run`] is the sequence of phases, [`report`] the result. The writers are those
//! of the other workloads. Invariant: a run succeeds only if every watcher saw every event of its
//! key, once and in order of revision.

mod args;
mod decode;
mod layout;
mod memory;
mod readers;
mod report;
mod run;
mod stream;

use std::sync::Arc;

use super::ClientArgs;
use crate::error::CliError;

pub(super) use args::{WatchArgs, WatchLatencyArgs};
pub(super) use decode::Splitter;

pub(super) fn watch(args: WatchArgs, endpoints: Arc<[String]>, client: &ClientArgs) -> Result<(), CliError> {
    run::run(args.spec()?, endpoints, client)
}

pub(super) fn latency(args: WatchLatencyArgs, endpoints: Arc<[String]>, client: &ClientArgs) -> Result<(), CliError> {
    run::run(args.spec()?, endpoints, client)
}
