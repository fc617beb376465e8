//! Keeps the log from growing without bound: openraft counts entries, this counts their bytes.
//!
//! Every so often it makes a snapshot when enough was applied since the last one, and removes entries behind the newest
//! snapshot that are more than is worth keeping for a follower that comes back. openraft itself never removes an entry
//! that no snapshot holds, and a snapshot is durable when it is announced: nothing is purged that a restart needs.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::consensus::Consensus;
use crate::types::LogIndex;

/// How often the bytes are looked at: following every apply would cost each write.
const POLL: Duration = Duration::from_millis(500);

/// How many bytes the log may hold.
#[derive(Clone, Copy, Debug)]
pub(super) struct ByteLimits {
    /// Command bytes applied since the last snapshot after which the next is made.
    pub(super) snapshot_every: u64,
    /// Command bytes kept behind what is applied.
    pub(super) keep: u64,
}

/// Where the log was at some time: index, and command bytes applied until then.
type Sample = (LogIndex, u64);

/// Runs as long as consensus does. `applied_bytes` only grows.
pub(super) async fn run(consensus: Consensus, applied_bytes: Arc<AtomicU64>, limits: ByteLimits) {
    let mut at_snapshot = 0;
    let mut samples = VecDeque::new();
    while !consensus.has_ended() {
        tokio::time::sleep(POLL).await;
        let points = consensus.log_points();
        let total = applied_bytes.load(Ordering::Relaxed);
        if total - at_snapshot >= limits.snapshot_every {
            at_snapshot = total;
            if consensus.raft().trigger().snapshot().await.is_err() {
                return;
            }
        }
        if samples.back().is_none_or(|(index, _)| *index < points.applied) {
            samples.push_back((points.applied, total));
        }
        let Some(upto) = surplus(&mut samples, total, limits.keep) else { continue };
        let upto = upto.min(points.snapshot);
        if upto > points.purged && consensus.raft().trigger().purge_log(upto.get()).await.is_err() {
            return;
        }
    }
}

/// The newest index that has at least `keep` bytes behind it; forgets the samples up to it, but for that one.
fn surplus(samples: &mut VecDeque<Sample>, total: u64, keep: u64) -> Option<LogIndex> {
    let old = samples.partition_point(|(_, bytes)| total - bytes >= keep);
    samples.drain(..old.saturating_sub(1));
    (old > 0).then(|| samples[0].0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_counted_in_bytes() {
        let mut samples: VecDeque<Sample> =
            [(10, 100), (20, 200), (30, 300), (40, 400)].map(|(index, bytes)| (LogIndex(index), bytes)).into();
        assert_eq!(surplus(&mut samples, 400, 1000), None);
        assert_eq!(samples.len(), 4);
        assert_eq!(surplus(&mut samples, 400, 250), Some(LogIndex(10)));
        assert_eq!(surplus(&mut samples, 400, 100), Some(LogIndex(30)));
        assert_eq!(samples.len(), 2, "older samples are of no use any more");
        assert_eq!(surplus(&mut samples, 400, 100), Some(LogIndex(30)));
        assert_eq!(surplus(&mut samples, 400, 0), Some(LogIndex(40)));
    }
}
