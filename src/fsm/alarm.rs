//! Raises and disarms alarms (spec: etcd §4.2). The module `quota` refuses commands while an alarm
//! is active.

use super::error::FsmError;
use headwater_storage::StorageError;
use headwater_storage::state::{StateReader, WriteTxn};
use headwater_types::limits::{ALARMS_MAX, ALARMS_OF_KIND_MAX};
use headwater_types::{Alarm, AlarmKind, Feature, Outcome, SetAlarm, Version};

pub(super) fn apply(txn: &mut WriteTxn<'_>, set: &SetAlarm) -> Result<Outcome, FsmError> {
    let was_active = change(txn, set)?;
    Ok(Outcome::AlarmSet { was_active })
}

/// Raises the alarm `NOSPACE`, unless one is active for any member. The alarm names the member that
/// configured the quota.
pub(super) fn raise_no_space(txn: &mut WriteTxn<'_>) -> Result<(), StorageError> {
    let head = *txn.head();
    if head.alarms.has(AlarmKind::NoSpace) {
        return Ok(());
    }
    let quota = head.quota.expect("invariant: without a quota no store is full");
    let alarm = Alarm { member: quota.member, kind: AlarmKind::NoSpace };
    change(txn, &SetAlarm { alarm, active: true }).map(|_| ())
}

/// Raises or disarms an alarm. Returns whether it was active before.
fn change(txn: &mut WriteTxn<'_>, set: &SetAlarm) -> Result<bool, StorageError> {
    let mut alarms = txn.alarms()?;
    let found = alarms.iter().position(|alarm| *alarm == set.alarm);
    match (found, set.active) {
        (Some(position), false) => {
            alarms.remove(position);
        }
        (None, true) => {
            // A full list drops another alarm of the same kind, so that the set of active kinds
            // stays right.
            if is_full(txn.head().version.version, &alarms, set.alarm.kind)
                && let Some(position) = alarms.iter().position(|alarm| alarm.kind == set.alarm.kind)
            {
                alarms.remove(position);
            }
            alarms.push(set.alarm);
        }
        (Some(_), true) | (None, false) => return Ok(found.is_some()),
    }
    txn.set_alarms(alarms);
    Ok(found.is_some())
}

/// Whether the list is full for one more alarm of this kind. Clusters with
/// [`Feature::AlarmsByKind`] bound each kind, older ones all kinds together.
fn is_full(version: Version, alarms: &[Alarm], kind: AlarmKind) -> bool {
    if Feature::AlarmsByKind.is_in(version) {
        alarms.iter().filter(|alarm| alarm.kind == kind).count() >= ALARMS_OF_KIND_MAX
    } else {
        alarms.len() >= ALARMS_MAX
    }
}
