//! Encoding of commands about alarms and the quota.

use super::CodecError;
use super::kv::unknown;
use crate::pb::internal as pb;
use headwater_types::{Alarm, AlarmKind, NodeId, Quota, SetAlarm};

pub(super) fn write_alarm(set: &SetAlarm) -> pb::SetAlarm {
    let kind = match set.alarm.kind {
        AlarmKind::NoSpace => pb::AlarmKind::NoSpace,
        AlarmKind::Corrupt => pb::AlarmKind::Corrupt,
    };
    pb::SetAlarm { member: set.alarm.member.get(), kind: kind.into(), active: set.active }
}

pub(super) fn read_alarm(set: &pb::SetAlarm) -> Result<SetAlarm, CodecError> {
    let kind = match pb::AlarmKind::try_from(set.kind) {
        Ok(pb::AlarmKind::NoSpace) => AlarmKind::NoSpace,
        Ok(pb::AlarmKind::Corrupt) => AlarmKind::Corrupt,
        Ok(pb::AlarmKind::Unspecified) | Err(_) => return Err(unknown("SetAlarm.kind", set.kind)),
    };
    Ok(SetAlarm { alarm: Alarm { member: NodeId(set.member), kind }, active: set.active })
}

pub(super) fn write_quota(quota: Quota) -> pb::SetQuota {
    pb::SetQuota { bytes_max: quota.bytes_max, member: quota.member.get() }
}

pub(super) fn read_quota(quota: pb::SetQuota) -> Quota {
    Quota { bytes_max: quota.bytes_max, member: NodeId(quota.member) }
}
