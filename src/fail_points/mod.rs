//! Fail points: places in the code where a test may end or delay the process or a task, to check
//! that no data is lost.
//!
//! Owns the macro and the list of all fail points. Knows nothing of the code around them.
//! Invariant: fail points do nothing in the released program; they act only with the feature
//! `enabled`. `tests/crash` uses them.
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

/// Runs when the process reaches a fail point. Does nothing, because the feature `enabled` is off.
#[cfg(not(feature = "enabled"))]
#[inline(always)]
pub fn hit(_point: Point) {}

/// Runs when the process reaches `point`. Does the action that a test has configured for this fail
/// point; nothing by default.
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

            /// Name of the fail point, as in the code and in the configuration by tests.
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
    /// After a batch of the log is written and synced, before the mark file is written.
    LogSynced,
    /// After the mark file of a batch of the log is written, before the append is reported as done.
    LogMarked,
    /// Before a change that removes entries from the end of the log is added to a batch.
    LogTruncate,
    /// After the removal of entries from the end of the log is durable.
    LogTruncated,
    /// Before entries are purged from the beginning of the log.
    LogPurge,
    /// After a purge of the log is durable, before the space of the purged entries is reclaimed.
    LogPurged,
    /// Before files of purged entries are dropped.
    LogReclaim,
    /// After files of purged entries are dropped.
    LogReclaimed,
    /// After the file of the log's next segment has its name, before anything is written to it.
    LogSegment,
    /// After the log is written in another form, before that becomes the log.
    LogConvert,
    /// After the log has another form, before the former one is removed.
    LogConverted,
    /// Before a run of applied entries is committed to the state.
    StateCommit,
    /// After a run of applied entries is committed to the state, before its events are published.
    StateCommitted,
    /// After the events of a committed run are published, before proposers get their outcomes.
    StatePublished,
    /// During the apply of an entry that changes the membership.
    MembershipApply,
    /// Before the batch of one step of reclaiming history is written.
    StateReclaim,
    /// After the batch of one step of reclaiming history is written.
    StateReclaimed,
    /// After the checkpoint for a snapshot is made, before it is durable.
    SnapshotCheckpoint,
    /// After the checkpoint for a snapshot is durable, before consensus gets it as the newest
    /// snapshot.
    SnapshotBuilt,
    /// In the sender, after a follower has named the files that it lacks of an offered snapshot.
    SnapshotOffered,
    /// In the sender, after a chunk of a snapshot was sent.
    SnapshotChunkSent,
    /// In the receiver, after a chunk of a snapshot was received and written.
    SnapshotChunkReceived,
    /// After a received file of a snapshot is complete and durable.
    SnapshotFileReceived,
    /// After all received files, and their folder, are durable.
    SnapshotReceived,
    /// Before a received snapshot is moved into the folder `state`, beside the current state. It
    /// becomes the state only at `InstallSwitch`.
    InstallRename,
    /// After a received snapshot is moved into the folder `state`, before it is opened.
    InstallRenamed,
    /// After a received snapshot is opened, before it is given to consensus.
    InstallOpened,
    /// Before an installed snapshot becomes the state, by the rename of the file that names the
    /// state.
    InstallSwitch,
    /// After the rename of the file that names the state, by which an installed snapshot has become
    /// the state.
    InstallSwitched,
    /// After the subscriptions to the replaced state are ended, before waiting requests see the
    /// index of the installed snapshot.
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
