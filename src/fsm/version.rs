//! The cluster's version, and the programs that members announce.
//!
//! Owns the rules of both. A downgrade below the feature of invitations or of commits removes their
//! rows from the state. Rights are never removed: once etcd's Auth or a row of Consul's ACLs was
//! changed, a downgrade to a version without rights is refused. Invariant: a raise takes effect
//! only in a log entry of the term in which the leader decided it.

use super::error::FsmError;
use headwater_storage::StorageError;
use headwater_storage::state::{StateReader, WriteTxn};
use headwater_types::{
    ClusterVersion, Feature, MemberProgram, NodeId, Outcome, Refusal, Term, Version, VersionChange, VersionRefusal,
};

/// Raises the version, begins a downgrade, or ends one. A change whose conditions do not hold is a
/// [`VersionRefusal`]. A raise that this program does not support is an error, which stops the
/// node. `term` is the term of the log entry.
pub(super) fn change(txn: &mut WriteTxn<'_>, term: Term, change: VersionChange) -> Result<Outcome, FsmError> {
    let now = txn.head().version;
    let new = match change {
        VersionChange::Raise { to, term: decided_in } => {
            if decided_in != term || now.is_downgrading || to <= now.version {
                return Err(Refusal::from(VersionRefusal::Stale).into());
            }
            if !txn.programs()?.values().all(|program| program.supported.has(to)) {
                return Err(Refusal::from(VersionRefusal::Stale).into());
            }
            // If this program does not support the version, it must stop here: it must not apply
            // later entries.
            txn.supported().check("the cluster", to).map_err(StorageError::from)?;
            ClusterVersion { version: to, is_downgrading: false }
        }
        VersionChange::Downgrade { to } => {
            let allowed = now.check_downgrade(to, txn.programs()?.values(), txn.head().has_rights());
            allowed.map_err(Refusal::from)?;
            end_features(txn, to)?;
            ClusterVersion { version: to, is_downgrading: true }
        }
        VersionChange::EndDowngrade => {
            if !now.is_downgrading {
                return Err(Refusal::from(VersionRefusal::NotDowngrading).into());
            }
            ClusterVersion { is_downgrading: false, ..now }
        }
    };
    txn.set_version(new);
    Ok(Outcome::VersionSet)
}

/// Removes the invitations and the idempotency keys of commits if `to` does not have their feature.
/// Records of other features stay.
fn end_features(txn: &mut WriteTxn<'_>, to: Version) -> Result<(), StorageError> {
    if !Feature::Invitations.is_in(to) {
        for id in txn.invitations()?.into_keys() {
            txn.set_invitation(id, None);
        }
    }
    if !Feature::Commits.is_in(to) {
        txn.forget_commits();
    }
    #[cfg(feature = "next-version")]
    if !Feature::Notes.is_in(to) {
        txn.set_stand_in(None);
    }
    Ok(())
}

/// Stores the description of the program of `member`, in place of the one that it announced before.
pub(super) fn announce(txn: &mut WriteTxn<'_>, member: NodeId, program: &MemberProgram) -> Outcome {
    txn.set_program(member, Some(program.clone()));
    Outcome::ProgramAnnounced
}

/// Stores the text of a note, in place of the last one.
#[cfg(feature = "next-version")]
pub(super) fn note(txn: &mut WriteTxn<'_>, text: &bytes::Bytes) -> Result<Outcome, FsmError> {
    let stand_in = txn.stand_in()?;
    txn.set_stand_in(Some(headwater_storage::state::StandInRecord { note: text.clone(), ..stand_in }));
    Ok(Outcome::Noted)
}

/// Counts a proposal of the member `origin`.
#[cfg(feature = "next-version")]
pub(super) fn count_origin(txn: &mut WriteTxn<'_>, origin: NodeId) -> Result<(), StorageError> {
    let mut stand_in = txn.stand_in()?;
    *stand_in.origins.entry(origin).or_default() += 1;
    txn.set_stand_in(Some(stand_in));
    Ok(())
}
