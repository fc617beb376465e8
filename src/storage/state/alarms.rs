//! Quota and alarms, as transactions of the state machine change them.

use super::keys;
use super::txn::WriteTxn;
use super::view::read_alarms;
use crate::StorageError;
use headwater_types::{Alarm, Quota};

impl WriteTxn<'_> {
    /// Sets the quota.
    pub fn set_quota(&mut self, quota: Quota) {
        self.head.quota = Some(quota);
    }

    /// The active alarms with the changes of this transaction, sorted.
    ///
    /// # Errors
    ///
    /// If the disk failed, or a record cannot be decoded.
    pub fn alarms(&self) -> Result<Vec<Alarm>, StorageError> {
        match &self.alarms {
            Some(alarms) => Ok(alarms.clone()),
            None => read_alarms(self.db.db.get_pinned_cf(self.families.meta, keys::META_ALARMS)?.as_deref()),
        }
    }

    /// Replaces the active alarms.
    pub fn set_alarms(&mut self, mut alarms: Vec<Alarm>) {
        alarms.sort_unstable();
        self.head.alarms = alarms.iter().map(|alarm| alarm.kind).collect();
        self.alarms = Some(alarms);
    }
}
