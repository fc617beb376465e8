//! The check of the settings of watches, which depend on each other and on the clocks of consensus.

use std::time::Duration;

use super::check::Findings;
use super::{RaftConfig, WatchConfig};

/// Smallest and largest window of recent changes, bytes. Another check compares the window with
/// `max-request-bytes`: a window must hold the largest request twice, decoded and encoded.
const WINDOW_BYTES: std::ops::RangeInclusive<u64> = (4 << 20)..=(64 << 30);
const WINDOW_COMMITS: std::ops::RangeInclusive<u64> = 16..=(1 << 30);
/// Smallest limit of one read from history, bytes.
const CATCH_UP_BYTES_MIN: u64 = 4 << 10;
/// Shortest and longest time between two reports of progress.
const PROGRESS_INTERVAL: std::ops::RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(86_400);
const LEADER_LOSS_TIMEOUT_MAX: Duration = Duration::from_secs(3600);

pub(super) fn check_watch(watch: &WatchConfig, raft: &RaftConfig, found: &mut Findings) {
    if !WINDOW_BYTES.contains(&watch.window_bytes) {
        found.add("watch.window-size", "must lie between 4MiB and 64GiB");
    }
    if !WINDOW_COMMITS.contains(&watch.window_commits) {
        let (least, most) = (WINDOW_COMMITS.start(), WINDOW_COMMITS.end());
        found.add("watch.window-commits", format!("must lie between {least} and {most}"));
    }
    if watch.catch_up_bytes < CATCH_UP_BYTES_MIN {
        found.add("watch.catch-up-size", "must be at least 4KiB");
    }
    if watch.catch_up_bytes > watch.window_bytes {
        found.add("watch.catch-up-size", "must be at most watch.window-size, which bounds what a reader may hold");
    }
    if watch.catch_up_commits == 0 {
        found.add("watch.catch-up-commits", "must be above zero");
    }
    if watch.catch_up_commits > watch.window_commits {
        found
            .add("watch.catch-up-commits", "must be at most watch.window-commits, which bounds what a reader may hold");
    }
    if !PROGRESS_INTERVAL.contains(&watch.progress_interval) {
        found.add("watch.progress-interval", "must lie between 100ms and 24h");
    }
    if watch.leader_loss_timeout < raft.election_max * 2 {
        found.add(
            "watch.leader-loss-timeout",
            "must be at least twice raft.election-max, or an ordinary election ends streams",
        );
    }
    if watch.leader_loss_timeout > LEADER_LOSS_TIMEOUT_MAX {
        found.add("watch.leader-loss-timeout", "must be at most 1h");
    }
}
