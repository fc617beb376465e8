//! A savepoint of a write transaction: a point within a command to which its writes can be undone.
//!
//! Owns the savepoint's copies of small values and the list of everything that is undone. Knows no
//! rule of a command. Invariants: a command without a savepoint pays nothing; after a rollback the
//! transaction equals one in which the undone writes were never made.

use super::catalog::RowsMark;
use super::command_history::HistoryMark;
use super::head::StateHead;
use super::keys::Table;
use super::op_counts::OpCounts;
use super::overlay::Overlay;
use super::pending::Undoable;
use super::reader::NEWEST;
use super::record::Version;
use super::txn::{Command, WriteTxn};
use headwater_types::Alarm;

/// Two writes of one record in one command, each by its [`Version::position`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrittenTwice {
    /// [`Version::position`] of the earlier write.
    pub first: u32,
    /// [`Version::position`] of the later write.
    pub second: u32,
}

/// The state of a transaction at a savepoint, without the maps of uncommitted records: those keep
/// journals of their own.
pub(super) struct Savepoint {
    head: StateHead,
    command: Command,
    operations: OpCounts,
    lease_clock_ms: Option<u64>,
    alarms: Option<Vec<Alarm>>,
    /// Number of changes in the overlay.
    changes: usize,
    /// Number of changes of tokens.
    tokens: usize,
    rows: RowsMark,
    #[cfg(feature = "next-version")]
    stand_in: Option<Option<super::programs::StandInRecord>>,
    history: HistoryMark,
    written_twice: Option<WrittenTwice>,
}

impl Savepoint {
    /// Sets `written_twice` if the current command has written the record before, unless it is set
    /// already. Call it before the overlay has the write.
    pub(super) fn note_write(&mut self, overlay: &Overlay, table: Table, key: &[u8], version: &Version) {
        if let Some(known) = overlay.lookup(table, key, NEWEST).filter(|known| known.index == version.index) {
            self.written_twice.get_or_insert(WrittenTwice { first: known.position, second: version.position });
        }
    }
}

impl WriteTxn<'_> {
    /// Sets a savepoint in the current command. There is at most one at a time.
    ///
    /// # Panics
    ///
    /// If no command was begun, or a savepoint is set.
    pub fn set_savepoint(&mut self) {
        assert!(self.savepoint.is_none(), "invariant: savepoints are not nested");
        let command = self.command.clone().expect("invariant: a savepoint lies within a command");
        self.savepoint = Some(Box::new(Savepoint {
            head: self.head,
            command,
            operations: self.operations,
            lease_clock_ms: self.lease_clock_ms,
            alarms: self.alarms.clone(),
            changes: self.overlay.changes.len(),
            tokens: self.tokens.len(),
            rows: self.catalog.rows.mark(),
            #[cfg(feature = "next-version")]
            stand_in: self.stand_in.clone(),
            history: self.history.mark(),
            written_twice: None,
        }));
        self.each_map(|map| map.set_savepoint());
    }

    /// Ends the savepoint and keeps the writes since.
    ///
    /// # Panics
    ///
    /// If no savepoint is set.
    pub fn release_savepoint(&mut self) {
        drop(self.savepoint.take().expect("invariant: a savepoint was set"));
        self.each_map(|map| map.release());
    }

    /// Ends the savepoint and undoes the writes since.
    ///
    /// # Panics
    ///
    /// If no savepoint is set.
    pub fn roll_back(&mut self) {
        let savepoint = self.savepoint.take().expect("invariant: a savepoint was set");
        self.each_map(|map| map.roll_back());
        let Savepoint { head, command, operations, lease_clock_ms, alarms, changes, tokens, rows, history, .. } =
            *savepoint;
        self.head = head;
        self.command = Some(command);
        self.operations = operations;
        self.lease_clock_ms = lease_clock_ms;
        self.alarms = alarms;
        self.overlay.truncate(changes);
        self.tokens.truncate(tokens);
        self.catalog.rows.reset(rows);
        self.history.truncate(history);
        #[cfg(feature = "next-version")]
        {
            self.stand_in = savepoint.stand_in;
        }
    }

    /// The first write since the savepoint of a record that the command had written already, before
    /// or after the savepoint, with that earlier write. `None` if there is no such write, or no
    /// savepoint is set. Such a command must be rolled back: a command makes at most one version of
    /// a record.
    pub fn written_twice(&self) -> Option<WrittenTwice> {
        self.savepoint.as_ref()?.written_twice
    }

    /// Number of records that the current command has written to history so far, and so the
    /// [`Version::position`] of the last one.
    ///
    /// # Panics
    ///
    /// If no command was begun.
    pub fn written(&self) -> u32 {
        self.command.as_ref().expect("invariant: a command was begun").count
    }

    /// Calls `act` with every map of uncommitted records.
    fn each_map(&mut self, act: impl Fn(&mut dyn Undoable)) {
        act(&mut self.index);
        act(&mut self.resources.types);
        act(&mut self.resources.units);
        act(&mut self.catalog.query_indexes);
        act(&mut self.catalog.events);
        act(self.catalog.rows.undoable());
        act(&mut self.cluster);
        act(&mut self.leases);
        act(&mut self.programs);
        act(&mut self.invitations);
        self.commits.maps().into_iter().for_each(act);
    }
}
