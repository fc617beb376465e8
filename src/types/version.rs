//! Versions of the program, of clusters and of records, and the features that begin in them.
//!
//! Owns the one table of features with the version that each began in. A record begins with the
//! lowest version that understands all of it; a cluster has one replicated version, which all its
//! members support. Knows nothing of files and members. Invariants: a released version never
//! changes its meaning; a program refuses a newer record or cluster with an error that names it,
//! and never guesses.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// A released version, without its patch number: patches change no record and no rule.
///
/// It fits into the first byte of a record: three bits for the major number, five for the minor
/// one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(u8);

impl Version {
    /// The first version. Programs of this version do not announce their versions.
    pub const V0_1: Self = Self::new(0, 1);
    /// The first version in which members announce their programs.
    pub const V0_3: Self = Self::new(0, 3);
    /// The first version in which nodes join by invitation.
    pub const V0_4: Self = Self::new(0, 4);
    /// A stand-in for the next version, for tests of upgrades. Only programs with the feature
    /// `next-version` have it.
    #[cfg(feature = "next-version")]
    pub const V0_5: Self = Self::new(0, 5);

    /// The version `major.minor`.
    ///
    /// # Panics
    ///
    /// If `major` is above 7 or `minor` above 31.
    pub const fn new(major: u8, minor: u8) -> Self {
        assert!(major < 8 && minor < 32, "a version fits into one byte");
        Self(major << 5 | minor)
    }

    /// The version that the first byte of a record stands for. Every byte stands for a version,
    /// released or not.
    pub const fn from_byte(byte: u8) -> Self {
        Self(byte)
    }

    /// The version as the first byte of a record that needs it.
    pub const fn byte(self) -> u8 {
        self.0
    }

    /// The major number.
    pub const fn major(self) -> u8 {
        self.0 >> 5
    }

    /// The minor number.
    pub const fn minor(self) -> u8 {
        self.0 & 31
    }

    /// The version with the next lower minor number; `None` if the minor number is 0.
    pub const fn previous(self) -> Option<Self> {
        if self.minor() == 0 { None } else { Some(Self(self.0 - 1)) }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major(), self.minor())
    }
}

/// The error for a text that is not a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a version is MAJOR.MINOR, such as 0.3")]
pub struct BadVersion;

impl FromStr for Version {
    type Err = BadVersion;

    /// Reads `MAJOR.MINOR` or `MAJOR.MINOR.PATCH`. The patch number, 0 to 255, is checked and
    /// dropped.
    fn from_str(text: &str) -> Result<Self, BadVersion> {
        let number = |digits: &str| match digits.bytes().all(|byte| byte.is_ascii_digit()) {
            true => digits.parse().map_err(|_| BadVersion),
            false => Err(BadVersion),
        };
        let numbers: Vec<u8> = text.split('.').map(number).collect::<Result<_, _>>()?;
        match numbers[..] {
            [major @ 0..8, minor @ 0..32] | [major @ 0..8, minor @ 0..32, _] => Ok(Self::new(major, minor)),
            _ => Err(BadVersion),
        }
    }
}

/// The versions of clusters that a program can be a member of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Supported {
    /// The lowest version of a cluster that the program can be a member of.
    pub lowest: Version,
    /// The highest version of a cluster that the program can be a member of. Also the version of
    /// the newest records that the program understands.
    pub highest: Version,
}

impl Supported {
    /// The versions that this program supports.
    pub const RELEASE: Self = Self { lowest: Version::V0_3, highest: Version::V0_4 };
    /// The versions that the stand-in for the next version supports, in tests of upgrades.
    #[cfg(feature = "next-version")]
    pub const NEXT: Self = Self { lowest: Version::V0_4, highest: Version::V0_5 };

    /// Whether the program can be a member of a cluster of `version`. Both bounds are inclusive.
    pub fn has(self, version: Version) -> bool {
        self.lowest <= version && version <= self.highest
    }

    /// Checks that the program understands version `needs`: it is at most
    /// [`highest`](Self::highest). `what` names the record or the cluster that needs it, for the
    /// error.
    ///
    /// # Errors
    ///
    /// [`TooNew`] if `needs` is above [`highest`](Self::highest).
    pub fn check(self, what: impl Into<String>, needs: Version) -> Result<(), TooNew> {
        if needs <= self.highest { Ok(()) } else { Err(TooNew { what: what.into(), needs, highest: self.highest }) }
    }
}

/// Refusal of a record or a cluster that is newer than the program. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{what} needs version {needs}, and this program is version {highest}: run version {needs} or a newer one")]
pub struct TooNew {
    /// Description of the refused record or cluster.
    pub what: String,
    /// The lowest version that understands the record or the cluster.
    pub needs: Version,
    /// The newest version that the program understands.
    pub highest: Version,
}

/// A command, record, field or rule with the version that it began in. Until the cluster has that
/// version, no member proposes or applies it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    /// Members announce their programs; the cluster has a version.
    Versions,
    /// [`Command::Invitation`](super::Command::Invitation): nodes join by invitation.
    Invitations,
    /// Users and roles of etcd's Auth; proposals name their principal.
    Auth,
    /// Tokens, policies and roles of Consul's ACLs.
    Acl,
    /// A changed rule: the bound on active alarms counts each kind by itself.
    AlarmsByKind,
    /// Proposals name their face; history has the author and the face of each command, and the
    /// places of the versions that it replaced.
    Authors,
    /// [`Command::Commit`](super::Command::Commit): changes of entities of any faces, all of them
    /// or none, and idempotency keys.
    Commits,
    /// Each member stores its log in segments; before, in RocksDB.
    LogSegments,
    /// A command's only record has the head of the command in its row of history, and runs of
    /// revisions have one entry; before, each head had a row and each revision an entry of its own.
    CompactHistory,
    /// [`Command::Note`](super::Command::Note): a new command with a new record.
    #[cfg(feature = "next-version")]
    Notes,
    /// [`Proposal::origin`](super::Proposal::origin): a new field of every proposal.
    #[cfg(feature = "next-version")]
    Origins,
    /// A changed rule: the keys of a lease that ends are deleted in reverse order.
    #[cfg(feature = "next-version")]
    LastKeyFirst,
}

impl Feature {
    /// Every feature: the table of gates.
    pub const ALL: &'static [Self] = &[
        Self::Versions,
        Self::Invitations,
        Self::Auth,
        Self::Acl,
        Self::AlarmsByKind,
        Self::Authors,
        Self::Commits,
        Self::LogSegments,
        Self::CompactHistory,
        #[cfg(feature = "next-version")]
        Self::Notes,
        #[cfg(feature = "next-version")]
        Self::Origins,
        #[cfg(feature = "next-version")]
        Self::LastKeyFirst,
    ];

    /// The first version that has the feature.
    pub const fn since(self) -> Version {
        match self {
            Self::Versions => Version::V0_3,
            Self::Invitations
            | Self::Auth
            | Self::Acl
            | Self::AlarmsByKind
            | Self::Authors
            | Self::Commits
            | Self::LogSegments
            | Self::CompactHistory => Version::V0_4,
            #[cfg(feature = "next-version")]
            Self::Notes | Self::Origins | Self::LastKeyFirst => Version::V0_5,
        }
    }

    /// Whether a cluster of `version` has the feature.
    pub fn is_in(self, version: Version) -> bool {
        self.since() <= version
    }
}

/// The version that the members of a cluster have agreed on; replicated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClusterVersion {
    /// The version. All members support it, except that members of a new cluster may not support
    /// [`FIRST`](Self::FIRST).
    pub version: Version,
    /// Whether a downgrade is under way. It has lowered the version, which does not rise before the
    /// downgrade ends.
    pub is_downgrading: bool,
}

impl ClusterVersion {
    /// The version of a cluster that has not agreed on one. Every log begins with it, because the
    /// first members do not know each other's programs yet. The leader's first
    /// [`VersionChange::Raise`] raises a new cluster to the version that all members support. Until
    /// then the cluster uses no newer feature, even if no member supports this version any more.
    pub const FIRST: Self = Self { version: Version::V0_3, is_downgrading: false };

    /// Checks whether the version can be lowered to `to`. `programs` has what the members support;
    /// `has_rights` is whether users, roles or rows of the ACLs exist or have existed.
    ///
    /// # Errors
    ///
    /// [`VersionRefusal::Downgrading`], [`VersionRefusal::Target`] or [`VersionRefusal::Guarded`].
    pub fn check_downgrade<'a>(
        self,
        to: Version,
        programs: impl IntoIterator<Item = &'a MemberProgram>,
        has_rights: bool,
    ) -> Result<(), VersionRefusal> {
        if self.is_downgrading {
            return Err(VersionRefusal::Downgrading);
        }
        let is_supported = programs.into_iter().all(|program| program.supported.has(to));
        if self.version.previous() != Some(to) || to < Self::FIRST.version || !is_supported {
            return Err(VersionRefusal::Target);
        }
        // An older program would not check any request, and cannot read the records of users.
        if !Feature::Auth.is_in(to) && has_rights {
            return Err(VersionRefusal::Guarded);
        }
        Ok(())
    }
}

/// A member's program, as the member announces it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberProgram {
    /// Version, commit and profile, for people: `0.4.0 (1f2e3d4c, release)`.
    pub program: String,
    /// The versions of clusters that the program can be a member of.
    pub supported: Supported,
}

/// A change of the cluster's version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionChange {
    /// Raises the version to `to`, which all members support. Decided by the leader of `term`;
    /// refused if the log entry has another term, because members may have joined since.
    Raise {
        /// The new version.
        to: Version,
        /// The term of the leader that decided it.
        term: super::Term,
    },
    /// Begins a downgrade: lowers the version, so that older programs can be started.
    Downgrade {
        /// The new version: [`Version::previous`] of the present one.
        to: Version,
    },
    /// Ends the downgrade, whether it was completed or given up. The version stays, and may rise
    /// again.
    EndDowngrade,
}

/// The reason for which a [`VersionChange`] is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum VersionRefusal {
    /// The target of a downgrade is not one minor below, is below [`ClusterVersion::FIRST`], or is
    /// not supported by a member.
    #[error("the version cannot be lowered to that one")]
    Target,
    /// Another downgrade was requested while one is under way.
    #[error("a downgrade is under way")]
    Downgrading,
    /// The end of a downgrade was requested, and none is under way.
    #[error("no downgrade is under way")]
    NotDowngrading,
    /// A raise is refused. The log entry has another term than the deciding leader's, the version
    /// is as high already, a downgrade is under way, or a member does not support the new version.
    #[error("decision about the version is out of date")]
    Stale,
    /// A downgrade to a version without rights is refused, because users, roles or rows of the ACLs
    /// exist or have existed. An older program would not check any request.
    #[error("there are users and roles, which older versions do not have")]
    Guarded,
}

impl VersionRefusal {
    /// Every refusal, in the order of their numbers in records.
    pub const ALL: [Self; 5] = [Self::Target, Self::Downgrading, Self::NotDowngrading, Self::Stale, Self::Guarded];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_one_byte_and_keeps_its_order() {
        for (text, byte) in [("0.1", 1), ("0.2", 2), ("0.31", 31), ("1.0", 32), ("1.2.3", 34), ("7.31", 255)] {
            let version: Version = text.parse().unwrap();
            assert_eq!(version.byte(), byte);
            assert_eq!(Version::from_byte(byte), version);
            assert!(text.starts_with(&version.to_string()), "{text} {version}");
        }
        for text in ["", "0", "v0.2", "0.32", "8.0", "0.2.", "0.2.0.1", "0.-2", "0.2-rc1", "+0.2"] {
            assert_eq!(text.parse::<Version>(), Err(BadVersion), "{text:?}");
        }
        assert!(Version::new(0, 31) < Version::new(1, 0));
        assert_eq!(Version::new(0, 2).previous(), Some(Version::V0_1));
        assert_eq!(Version::new(1, 0).previous(), None);
    }

    #[test]
    fn what_is_too_new_is_named() {
        let next = Version::new(0, 5);
        let refused = Supported::RELEASE.check("the snapshot", next).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "the snapshot needs version 0.5, and this program is version 0.4: run version 0.5 or a newer one"
        );
        assert_eq!(Supported::RELEASE.check("x", Version::V0_1), Ok(()));
        assert!(Supported::RELEASE.has(Version::V0_3) && Supported::RELEASE.has(Version::V0_4));
        assert!(!Supported::RELEASE.has(next) && !Supported::RELEASE.has(Version::V0_1));
    }

    #[test]
    fn a_version_falls_by_one_and_not_below_its_users() {
        let program =
            |lowest| MemberProgram { program: String::new(), supported: Supported { lowest, highest: Version::V0_4 } };
        let now = ClusterVersion { version: Version::V0_4, is_downgrading: false };
        let check = |now: ClusterVersion, to, has_rights| {
            now.check_downgrade(to, &[program(Version::V0_3), program(Version::V0_3)], has_rights)
        };
        assert_eq!(check(now, Version::V0_3, false), Ok(()));
        assert_eq!(check(now, Version::V0_3, true), Err(VersionRefusal::Guarded));
        assert_eq!(check(now, Version::V0_4, true), Err(VersionRefusal::Target));
        assert_eq!(check(now, Version::new(0, 2), false), Err(VersionRefusal::Target));
        assert_eq!(check(ClusterVersion::FIRST, Version::new(0, 2), false), Err(VersionRefusal::Target));
        assert_eq!(now.check_downgrade(Version::V0_3, &[program(Version::V0_4)], false), Err(VersionRefusal::Target));
        let lowered = ClusterVersion { is_downgrading: true, ..now };
        assert_eq!(check(lowered, Version::V0_3, true), Err(VersionRefusal::Downgrading));
    }

    #[test]
    fn no_feature_is_newer_than_the_newest_program() {
        #[cfg(not(feature = "next-version"))]
        let newest = Supported::RELEASE.highest;
        #[cfg(feature = "next-version")]
        let newest = Supported::NEXT.highest;
        for feature in Feature::ALL {
            assert!(feature.is_in(newest), "{feature:?}");
        }
    }
}
