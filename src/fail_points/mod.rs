//! Fail points: places in the code where a test may end the process, or a task, to see that nothing
//! is lost.
//!
//! Owns the macro and the list of all places. Knows nothing of what the places are in. Invariant:
//! the program that people run has none; they exist with the feature `enabled`, which tests ask
//! for. What uses them is `tests/crash`.
//!
//! ```
//! headwater_fail_points::fail_point!(LogSynced); // here the process may end
//! ```

/// A place where a test may end the process.
#[macro_export]
macro_rules! fail_point {
    ($point:ident) => {
        $crate::hit($crate::Point::$point)
    };
}

/// The process has come to `point`. Nothing without the feature `enabled`.
#[cfg(not(feature = "enabled"))]
#[inline(always)]
pub fn hit(_point: Point) {}

/// The process has come to `point`.
#[cfg(feature = "enabled")]
pub fn hit(point: Point) {
    fail::fail_point!(point.name());
}

macro_rules! points {
    ($($(#[$doc:meta])* $point:ident,)*) => {
        /// One place.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Point {
            $($(#[$doc])* $point,)*
        }

        impl Point {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$point,)*];

            /// Its name, here and on a command line.
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
    /// After its fsync, before anything says so.
    LogSynced,
    /// After the file beside the log says so, before anybody hears of it.
    LogMarked,
    /// Before entries are cut off the end of the log.
    LogTruncate,
    /// After that.
    LogTruncated,
    /// Before entries are purged from the beginning of the log.
    LogPurge,
    /// After that, before their space is given back.
    LogPurged,
    /// Before files of purged entries are dropped.
    LogReclaim,
    /// After that.
    LogReclaimed,
    /// Before a run of entries is committed to the state.
    StateCommit,
    /// After that, before its events are published.
    StateCommitted,
    /// After that, before anybody is answered.
    StatePublished,
    /// When an entry that changes the membership is applied.
    MembershipApply,
    /// Before a batch of what compaction reclaims is written.
    StateReclaim,
    /// After that.
    StateReclaimed,
    /// When a checkpoint of the state is made, and not yet durable.
    SnapshotCheckpoint,
    /// When it is durable, and nobody knows of it.
    SnapshotBuilt,
    /// After a snapshot was offered to a follower.
    SnapshotOffered,
    /// After a chunk of it was sent.
    SnapshotChunkSent,
    /// After a chunk of it was received and written.
    SnapshotChunkReceived,
    /// After a file of it is complete and durable.
    SnapshotFileReceived,
    /// After all files are.
    SnapshotReceived,
    /// Before a received snapshot is moved beside the state.
    InstallRename,
    /// After that.
    InstallRenamed,
    /// When it was opened, before consensus knows of it.
    InstallOpened,
    /// Before it becomes the state: before the rename of the file that names the state.
    InstallSwitch,
    /// After that.
    InstallSwitched,
    /// After subscribers were told, before consensus hears that it is installed.
    InstallPublished,
    /// Before the end of a lease that has run out is proposed.
    LeaseExpire,
    /// Before a leader sends entries.
    LeaderSend,
    /// Before a follower answers that it has them.
    FollowerAnswer,
    /// Before a follower forwards writes to the leader.
    FollowerForward,
    /// Before a response is given to a watch stream.
    WatchSend,
    /// Before history is read for readers that lag.
    CatchUpRead,
    /// After that, before they are given it.
    CatchUpAnswer,
}
