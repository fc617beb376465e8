//! Alarms and the quota: reasons for a store to refuse writes although all members run (spec: etcd
//! §1.8, §4.2).
//!
//! Both are replicated, so that every member refuses the same commands. The quota is a setting of
//! each member; the leader's own setting applies to all.

use super::NodeId;

/// Kind of an alarm. The numbers are on disk and in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum AlarmKind {
    /// A command would have exceeded the quota, or a client raised the alarm. Commands that may
    /// need more space are refused.
    NoSpace = 1,
    /// A member's data differs from that of other members. Commands that change or compact data or
    /// change Consul's ACLs are refused. Expiries of leases are accepted, and so are, for example,
    /// changes of alarms, the quota, users and roles of etcd's Auth, invitations and versions.
    Corrupt = 2,
}

impl AlarmKind {
    /// Every kind, in order of its number.
    pub const ALL: [Self; 2] = [Self::NoSpace, Self::Corrupt];

    /// The kind with this number; `None` if it is unknown.
    pub fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// An alarm about one member. It stays active until a [`SetAlarm`] disarms it. Raising an alarm
/// while the list of alarms is full removes another one of the same kind, if there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Alarm {
    /// Id of the member. The member may have left since. For `NoSpace` a client may name any id.
    pub member: NodeId,
    /// Kind of the alarm.
    pub kind: AlarmKind,
}

/// The kinds of alarm that are active, on any member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AlarmSet(u8);

impl AlarmSet {
    /// No alarm.
    pub const NONE: Self = Self(0);

    /// Whether no alarm is active.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether an alarm of this kind is active.
    pub const fn has(self, kind: AlarmKind) -> bool {
        self.0 & (1 << kind as u8) != 0
    }

    /// The set as a number, for storage.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Reads back [`bits`](Self::bits); `None` if a bit stands for no known kind.
    pub fn from_bits(bits: u8) -> Option<Self> {
        let known = AlarmKind::ALL.into_iter().fold(0, |known, kind| known | 1 << kind as u8);
        (bits & !known == 0).then_some(Self(bits))
    }
}

impl FromIterator<AlarmKind> for AlarmSet {
    fn from_iter<T: IntoIterator<Item = AlarmKind>>(kinds: T) -> Self {
        Self(kinds.into_iter().fold(0, |bits, kind| bits | 1 << kind as u8))
    }
}

/// Raises or disarms an alarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetAlarm {
    /// The alarm.
    pub alarm: Alarm,
    /// True raises the alarm, false disarms it.
    pub active: bool,
}

/// Bound on the size of live keys and values, resources, and rows of the catalog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Largest size, bytes; `None` for no bound.
    pub bytes_max: Option<u64>,
    /// The member that configured the bound. The alarm that the quota raises names this member.
    pub member: NodeId,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_knows_its_kinds() {
        for (kinds, bits) in
            [(&[][..], 0), (&[AlarmKind::NoSpace], 2), (&[AlarmKind::Corrupt], 4), (&AlarmKind::ALL, 6)]
        {
            let set: AlarmSet = kinds.iter().copied().collect();
            assert_eq!(set.bits(), bits);
            assert_eq!(AlarmSet::from_bits(bits), Some(set));
            assert_eq!(set.is_empty(), kinds.is_empty());
            for kind in AlarmKind::ALL {
                assert_eq!(set.has(kind), kinds.contains(&kind), "{kind:?} in {kinds:?}");
            }
        }
        for unknown in [1, 8, 3] {
            assert_eq!(AlarmSet::from_bits(unknown), None);
        }
        assert_eq!(
            [0, 1, 2, 3].map(AlarmKind::from_byte),
            [None, Some(AlarmKind::NoSpace), Some(AlarmKind::Corrupt), None]
        );
    }
}
