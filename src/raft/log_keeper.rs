//! Keeps the log short: openraft counts entries, this module counts their bytes.
//!
//! At every poll it makes a snapshot if enough bytes were applied since it last made one, and
//! purges the entries before the newest snapshot that exceed the limits. openraft never purges an
//! entry that no snapshot holds, and a snapshot is durable when it is announced: nothing is purged
//! that a restart needs. Nor does openraft purge an entry that it may still send to a follower. It
//! waits for a follower that answers, however slowly. A follower that takes entries and answers
//! nothing loses its session after a while, and then gets a snapshot; so does a live follower
//! without progress of its log (`replication_gaps`).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::consensus::Consensus;
use super::progress::LogPoints;
use super::replication_gaps::{OverdueGap, ReplicationGaps};
use super::roster::MemberProgress;
use super::start::PURGE_BATCH;
use headwater_types::{LogIndex, NodeId};

/// Interval of the byte count: following every apply would slow each write.
const POLL: Duration = Duration::from_millis(500);
/// Polls in a row without progress of a purge that is due, after which silent sessions are ended,
/// count: ten seconds.
const HELD_POLLS: u32 = 20;

/// Bounds of the log.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogLimits {
    /// Command bytes after which a snapshot is made, counted from the last snapshot made for this
    /// bound, or from the start of the process.
    pub(super) snapshot_every_bytes: u64,
    /// Most command bytes that stay in the log below the applied index, if a snapshot holds them.
    pub(super) keep_bytes: u64,
    /// Entries that stay in the log although a snapshot holds them. openraft purges the others, and
    /// may leave up to [`PURGE_BATCH`] more.
    pub(super) keep_entries: u64,
    /// Time without progress after which a live follower is sent a snapshot, if sessions with it
    /// have failed meanwhile.
    pub(super) gap_max: Duration,
}

/// Most samples within the kept bytes, count: memory must not grow with time on an idle cluster.
const SAMPLES_MAX: u64 = 1024;

/// Applied index at some time, and the command bytes applied until then.
type Sample = (LogIndex, u64);

/// Keeps the log short until consensus ends. `applied_bytes` counts the command bytes that this
/// process has applied.
pub(super) async fn run(consensus: Consensus, applied_bytes: Arc<AtomicU64>, limits: LogLimits) {
    let mut at_snapshot = 0;
    let mut samples = VecDeque::new();
    let mut asked = LogIndex::ZERO;
    let mut stall = PurgeStallDetector::default();
    let mut gaps = ReplicationGaps::new(limits.gap_max);
    let mut closing: Option<OverdueGap> = None;
    while !consensus.has_ended() {
        tokio::time::sleep(POLL).await;
        let points = consensus.progress().points();
        let total = applied_bytes.load(Ordering::Relaxed);
        if total - at_snapshot >= limits.snapshot_every_bytes {
            at_snapshot = total;
            if consensus.raft().trigger().snapshot().await.is_err() {
                return;
            }
        }
        note(&mut samples, (points.applied, total), limits.keep_bytes);
        let by_bytes =
            surplus(&mut samples, total, limits.keep_bytes).map_or(LogIndex::ZERO, |upto| upto.min(points.snapshot));
        // openraft purges only after it has made a snapshot: not after a restart.
        let mut wanted = by_bytes.max(surplus_entries(points.snapshot, limits.keep_entries));
        let me = consensus.node_id();
        if consensus.leadership().current().leader != Some(me) {
            closing = None;
        }
        let ended = |follower| consensus.metrics().peer(me, follower).sessions_ended();
        if let Some(gap) = gaps.check(&followers(&consensus), points.committed, ended, Instant::now()) {
            let OverdueGap { follower, matched } = gap;
            tracing::error!(%follower, %matched, "a follower lives and lacks the same entries for long: it is sent a snapshot");
            closing = Some(gap);
            if points.snapshot <= matched && consensus.raft().trigger().snapshot().await.is_err() {
                return;
            }
        }
        // Once a snapshot holds its missing entries they are purged, so that only the snapshot can
        // be sent.
        let closed = closing.take_if(|gap| points.snapshot > gap.matched);
        if let Some(gap) = closed {
            wanted = wanted.max(gap.matched.next());
        }
        if wanted > points.purged.max(asked) {
            asked = wanted;
            if consensus.raft().trigger().purge_log(wanted.get()).await.is_err() {
                return;
            }
        }
        // Checked at every poll, because it counts polls. At most one order is given in a poll:
        // both use one `watch` channel, where a second order would replace the first before it is
        // read.
        let is_held = stall.check(&points, wanted);
        match closed {
            Some(gap) => consensus.end_session(gap.follower),
            None if is_held => consensus.end_silent_sessions(),
            None => {}
        }
    }
}

/// Progress of the other members; empty if this one does not lead. A receiver of a snapshot counts
/// as not live: its log does not move.
fn followers(consensus: &Consensus) -> BTreeMap<NodeId, MemberProgress> {
    let me = consensus.node_id();
    let mut members = consensus.members().progress();
    members.remove(&me);
    for (id, progress) in &mut members {
        progress.is_live &= !consensus.metrics().peer(me, *id).is_sending();
    }
    members
}

/// Adds a sample, unless nothing, or less than a [`SAMPLES_MAX`]th of `keep`, was applied since the
/// last one.
fn note(samples: &mut VecDeque<Sample>, (applied, total): Sample, keep: u64) {
    let is_news = |&(index, bytes): &Sample| index < applied && total - bytes >= keep / SAMPLES_MAX;
    if samples.back().is_none_or(is_news) {
        samples.push_back((applied, total));
    }
}

/// The newest sampled index after which at least `keep` bytes were applied; drops the samples
/// before it. `None` if there is no such sample.
fn surplus(samples: &mut VecDeque<Sample>, total: u64, keep: u64) -> Option<LogIndex> {
    let old = samples.partition_point(|(_, bytes)| total - bytes >= keep);
    samples.drain(..old.saturating_sub(1));
    (old > 0).then(|| samples[0].0)
}

/// The index up to which openraft itself purges after a snapshot: it keeps `keep` entries, and up
/// to a batch more. Zero if there is nothing to purge.
fn surplus_entries(snapshot: LogIndex, keep: u64) -> LogIndex {
    LogIndex(snapshot.get().saturating_sub(keep).saturating_sub(PURGE_BATCH))
}

/// Detects a log that is not purged although it should be.
#[derive(Debug, Default)]
struct PurgeStallDetector {
    purged: LogIndex,
    polls: u32,
}

impl PurgeStallDetector {
    /// True at every [`HELD_POLLS`]th poll in a row at which the purged index has not moved
    /// although it should have reached `wanted`.
    fn check(&mut self, points: &LogPoints, wanted: LogIndex) -> bool {
        if points.purged >= wanted || points.purged != self.purged {
            *self = Self { purged: points.purged, polls: 0 };
            return false;
        }
        self.polls += 1;
        self.polls.is_multiple_of(HELD_POLLS)
    }
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

    #[test]
    fn a_log_that_hardly_grows_is_hardly_noted() {
        let (mut samples, keep) = (VecDeque::new(), 1 << 20);
        for second in 1..=100_000 {
            note(&mut samples, (LogIndex(second), second * 100), keep);
            surplus(&mut samples, second * 100, keep);
        }
        assert!((SAMPLES_MAX / 2..=SAMPLES_MAX + 1).contains(&(samples.len() as u64)), "{}", samples.len());
        // Without applied bytes there is no new sample.
        let last = samples.back().copied().unwrap();
        note(&mut samples, (last.0, last.1 + keep), keep);
        assert_eq!(samples.back(), Some(&last));
    }

    #[test]
    fn what_is_kept_is_counted_in_entries() {
        for (snapshot, keep, removed) in [(5000, 1000, 2976), (5000, 4000, 0), (0, 0, 0), (5000, u64::MAX, 0)] {
            assert_eq!(surplus_entries(LogIndex(snapshot), keep), LogIndex(removed));
        }
    }

    #[test]
    fn a_log_is_held_that_does_not_move_although_it_should() {
        let mut stall = PurgeStallDetector::default();
        let mut check = |purged, wanted| {
            stall.check(&LogPoints { purged: LogIndex(purged), ..LogPoints::default() }, LogIndex(wanted))
        };
        for round in 0..3 {
            let found: Vec<bool> = (0..HELD_POLLS).map(|_| check(10, 50)).collect();
            // The very first poll only records the purged index.
            let reports = found.iter().filter(|reported| **reported).count();
            assert_eq!(reports, usize::from(round > 0), "{found:?}");
        }
        for step in 0..=2 * u64::from(HELD_POLLS) {
            assert!(!check(11 + step, 1000), "it moves");
        }
        for _ in 0..=2 * HELD_POLLS {
            assert!(!check(100, 100), "it is as short as it should be");
        }
    }
}
