//! Fail points: places in the code where a test may end or delay the process or a task, to check
//! that no data is lost.
//!
//! Owns the macro and the list of all places. Knows nothing of the code around the places.
//! Invariant: the released program has none of them; they exist only with the feature `enabled`.
//! `tests/crash` uses them.
//!
//! ```
//! headwater_fail_points::fail_point!(LogSynced); // here the process may end
//! ```

/// Marks a fail point: a test may end or delay the process or the task here.
#[macro_export]
macro_rules! fail_point {
    ($point:ident) => {
        $crate::hit($crate::Point::$point)
    };
}

/// Called when the process reaches a fail point. Does nothing without the feature `enabled`.
#[cfg(not(feature = "enabled"))]
#[inline(always)]
pub fn hit(_point: Point) {}

/// Called when the process reaches `point`. Runs the action that the test has configured for it.
#[cfg(feature = "enabled")]
pub fn hit(point: Point) {
    fail::fail_point!(point.name());
}

macro_rules! points {
    ($($(#[$doc:meta])* $point:ident,)*) => {
        /// The fail points: tests may end or delay the process or a task there.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Point {
            $($(#[$doc])* $point,)*
        }

        impl Point {
            /// Every fail point.
            pub const ALL: &[Self] = &[$(Self::$point,)*];

            /// Name of the fail point, as in the code and on command lines.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$point => stringify!($point),)*
                }
            }
        }
    };
}

points! {
    /// Before a batch of the log is written.
    LogWrite,
    /// After the batch and its fsync, before the mark file is written.
    LogSynced,
    /// After the mark file is written, before the append is reported.
    LogMarked,
    /// Before a change that removes entries from the end of the log is added to a batch.
    LogTruncate,
    /// After the removal of entries from the end of the log is durable.
    LogTruncated,
    /// Before entries are purged from the beginning of the log.
    LogPurge,
    /// After the purge is durable, before its space is given back.
    LogPurged,
    /// Before files of purged entries are dropped.
    LogReclaim,
    /// After files of purged entries are dropped.
    LogReclaimed,
    /// Before a run of entries is committed to the state.
    StateCommit,
    /// After that commit, before its events are published.
    StateCommitted,
    /// After its events are published, before proposers get their outcomes.
    StatePublished,
    /// During the apply of an entry that changes the membership.
    MembershipApply,
    /// Before a batch of one step of reclamation is written.
    StateReclaim,
    /// After a batch of reclamation is written.
    StateReclaimed,
    /// After a checkpoint of the state is made, before it is durable.
    SnapshotCheckpoint,
    /// After the checkpoint is durable, before consensus gets it as the newest snapshot.
    SnapshotBuilt,
    /// After a follower has answered the offer of a snapshot.
    SnapshotOffered,
    /// After a chunk of a snapshot was sent.
    SnapshotChunkSent,
    /// After a chunk of a snapshot was received and written.
    SnapshotChunkReceived,
    /// After a received file of a snapshot is complete and durable.
    SnapshotFileReceived,
    /// After all received files, and their folder, are durable.
    SnapshotReceived,
    /// Before a received snapshot is moved to the folder of the state.
    InstallRename,
    /// After that move, before the snapshot is opened.
    InstallRenamed,
    /// After a received snapshot is opened, before it is given to consensus.
    InstallOpened,
    /// Before an installed snapshot becomes the state, by the rename of the file that names the
    /// state.
    InstallSwitch,
    /// After the rename of the file that names the state.
    InstallSwitched,
    /// After subscribers of the replaced state are reset, before waiters see the installed index.
    InstallPublished,
    /// Before the leader proposes the end of expired leases.
    LeaseExpire,
    /// Before a leader sends an append request.
    LeaderSend,
    /// Before a follower answers an append request.
    FollowerAnswer,
    /// Before a follower forwards writes to the leader.
    FollowerForward,
    /// Before a frame is given to a stream of changes.
    WatchSend,
    /// Before history is read for lagging readers.
    CatchUpRead,
    /// After history is read, before lagging readers get it.
    CatchUpAnswer,
}
