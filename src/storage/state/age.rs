//! The age of history, by the clocks of the members that proposed its commands.
//!
//! Owns the search. Clocks of members differ and may jump, so the result is approximate. It only
//! decides how much history is kept; no read depends on it.

use super::history_row::FirstRow;
use super::keys;
use super::view::ReadView;
use crate::StorageError;
use headwater_types::LogIndex;

impl ReadView<'_> {
    /// Log index of the last command after the beginning of history that was proposed at `unix_ms`
    /// or before. `None` if there is none. A binary search, as if the times of proposals were
    /// ascending: some dozens of reads, however long history is.
    ///
    /// # Errors
    ///
    /// If the disk failed, or history is damaged.
    pub fn last_command_until(&self, unix_ms: u64) -> Result<Option<LogIndex>, StorageError> {
        let mut found = None;
        // Commands up to `known` are old enough, those from `young` on are not.
        let (mut known, mut young) = (self.head().compacted_index().get(), self.applied().get() + 1);
        while young - known > 1 {
            let middle = known + (young - known) / 2;
            match self.first_from(LogIndex(middle))? {
                Some((index, proposed_ms)) if index.get() < young && proposed_ms <= unix_ms => {
                    known = index.get();
                    found = Some(index);
                }
                Some(_) | None => young = middle,
            }
        }
        Ok(found)
    }

    /// Log index of the first command in history at `from` or later with a known time of proposal,
    /// and that time (Unix ms). `None` if there is none. Changes of the membership have no known
    /// time.
    fn first_from(&self, from: LogIndex) -> Result<Option<(LogIndex, u64)>, StorageError> {
        let mut iter = self.db.db.raw_iterator_cf_opt(self.families.history, self.options());
        let mut next = from;
        loop {
            iter.seek(keys::history(next, 0));
            let Some((key, value)) = iter.item() else {
                iter.status()?;
                return Ok(None);
            };
            let FirstRow { index, head, .. } = FirstRow::decode(key, value)?;
            match head.unix_ms {
                0 => next = index.next(),
                known => return Ok(Some((index, known))),
            }
        }
    }
}
