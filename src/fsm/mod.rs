//! The effect of each command: the one place where the rules of spec etcd §1, §3 and §7.5 and of
//! spec consul §2, §5.6 to §5.10 and §8.3 live. One command, one file.
//!
//! Owns every mutation rule and the meaning of a range. Knows no clock, randomness, environment,
//! hash order or thread; the lints at the top of this file enforce it. Invariant: the state after a
//! command, and its outcome, follow from the state before, the term and index of the log entry, and
//! the proposal alone. The state depends neither on whether the outcome is wanted nor on how far
//! space was reclaimed.
//!
//! A refusal is an [`Outcome`] and changes nothing, except that a full store raises its alarm; an
//! `Err` means that the disk failed, or that the cluster rises to a version that this program does
//! not support, and the node must stop.

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

mod acl;
mod alarm;
mod auth;
mod authorize;
mod bootstrap;
mod catalog;
mod commit;
mod compact;
mod consul;
mod delete_range;
mod error;
mod invitation;
mod lease_attach;
mod lease_checkpoint;
mod lease_end;
mod lease_grant;
mod lease_txn;
mod put;
mod quota;
mod range;
mod range_cursor;
mod read_budget;
mod resource;
mod txn;
mod validate;
mod version;
mod writer;

pub use authorize::{permit_command, permit_everywhere, permit_lease, permit_txn, spaces_judged_on_state};
pub use consul::read_txn as read_consul_txn;
pub use range::{Selection, range, select};
pub use range_cursor::{RangeCursor, RangePart};
pub use resource::{resolve_owner, unit_is_marked};
pub use txn::read_txn;
pub use validate::{InvalidTxn, validate};

use error::{FsmError, split_refusal};
use writer::KvWriter;

use headwater_storage::StorageError;
use headwater_storage::state::{StateReader, WriteTxn};
use headwater_types::catalog::CatalogDone;
use headwater_types::{Command, LogIndex, Outcome, Proposal, Refusal, Term, Version};

/// Applies the command of the log entry of `term` at `index`. Its effect is part of `txn`
/// afterwards, and visible to later commands in it. A refusal is the outcome [`Outcome::Refused`].
/// With `want_outcome` false the outcome is [`Outcome::Nothing`], and results that only the
/// proposer needs are not computed; the effect is the same.
///
/// # Errors
///
/// If the disk failed, or the cluster rises to a version that this program does not support. `txn`
/// must be dropped then, and the node must stop.
pub fn apply(
    txn: &mut WriteTxn<'_>,
    term: Term,
    index: LogIndex,
    proposal: &Proposal,
    want_outcome: bool,
) -> Result<Outcome, StorageError> {
    if proposal.needs() > txn.head().version.version {
        return Ok(refuse_newer(txn, index, proposal.needs(), want_outcome));
    }
    txn.begin_command(index, proposal.unix_ms);
    txn.set_authorship(proposal.authorship());
    #[cfg(feature = "next-version")]
    if let Some(origin) = proposal.origin {
        version::count_origin(txn, origin)?;
    }
    // Rights come first: a refusal is the same whether an object exists or not.
    let admitted = authorize::admit(txn, proposal).and_then(|()| match commit::is_known(txn, &proposal.command)? {
        true => Ok(()),
        false => Ok(quota::admit(txn, &proposal.command)?),
    });
    let done = admitted.and_then(|()| run(txn, (term, index), &proposal.command, want_outcome));
    let outcome = split_refusal(done)?.unwrap_or_else(Outcome::Refused);
    if matches!(outcome, Outcome::Refused(_)) {
        txn.count(|done| done.refused += 1);
    }
    if outcome == Outcome::Refused(Refusal::NoSpace) {
        alarm::raise_no_space(txn)?;
    }
    txn.end_command();
    Ok(if want_outcome { outcome } else { Outcome::Nothing })
}

/// Applies the entry at `index` as a refusal, because its command needs a newer version than the
/// cluster's. Also used by programs that cannot decode the command, so that all members agree.
pub fn refuse_newer(txn: &mut WriteTxn<'_>, index: LogIndex, needs: Version, want_outcome: bool) -> Outcome {
    txn.begin_command(index, 0);
    txn.count(|done| done.refused += 1);
    txn.end_command();
    if want_outcome { Outcome::Refused(Refusal::NeedsVersion { needs }) } else { Outcome::Nothing }
}

fn run(txn: &mut WriteTxn<'_>, at: (Term, LogIndex), command: &Command, want: bool) -> Result<Outcome, FsmError> {
    let (term, index) = at;
    match command {
        Command::Bootstrap(epoch) => Ok(bootstrap::apply(txn, *epoch)),
        Command::Compact(compact) => compact::apply(txn, compact),
        Command::TrimHistory(trim) => compact::trim(txn, index, *trim),
        Command::Put(put) => {
            let mut writer = KvWriter::new(txn);
            let done = put::apply(&mut writer, put, want)?;
            writer.finish();
            Ok(Outcome::Put(done))
        }
        Command::DeleteRange(delete) => {
            let mut writer = KvWriter::new(txn);
            let done = delete_range::run(&mut writer, delete, want)?;
            writer.finish();
            Ok(Outcome::DeleteRange(done))
        }
        Command::Txn(request) => {
            let mut writer = KvWriter::new(txn);
            let done = txn::apply(&mut writer, request, want)?;
            writer.finish();
            Ok(Outcome::Txn(done))
        }
        Command::LeaseGrant(grant) => lease_grant::apply(txn, index, grant),
        Command::LeaseCheckpoint(checkpoint) => lease_checkpoint::apply(txn, term, checkpoint),
        Command::LeaseRevoke(revoke) => {
            let mut writer = KvWriter::new(txn);
            let done = lease_end::revoke(&mut writer, revoke)?;
            writer.finish();
            Ok(done)
        }
        Command::LeaseExpire(expire) => {
            let mut writer = KvWriter::new(txn);
            let done = lease_end::expire(&mut writer, (term, index), expire)?;
            writer.finish();
            Ok(done)
        }
        Command::LeaseAttach(attach) => {
            let mut writer = KvWriter::new(txn);
            let done = lease_attach::apply(&mut writer, attach)?;
            writer.finish();
            Ok(done)
        }
        Command::LeaseTxn(request) => {
            let mut writer = KvWriter::new(txn);
            let done = lease_txn::apply(&mut writer, request, want)?;
            writer.finish();
            Ok(Outcome::Txn(done))
        }
        Command::SetAlarm(set) => alarm::apply(txn, set),
        Command::SetQuota(quota) => {
            txn.set_quota(*quota);
            Ok(Outcome::QuotaSet)
        }
        Command::Resource(command) => resource::apply(txn, index, command, want),
        Command::Consul(command) => {
            let mut writer = KvWriter::new(txn);
            let done = consul::apply(&mut writer, index, command, want)?;
            writer.finish();
            Ok(Outcome::Consul(done))
        }
        Command::Catalog(command) => {
            let mut writer = KvWriter::new(txn);
            let effect = catalog::apply(writer.txn, index, command)?;
            consul::cascade(&mut writer, index, &effect)?;
            writer.finish();
            Ok(Outcome::Catalog(CatalogDone { changed: effect.changed }))
        }
        Command::SetVersion(change) => version::change(txn, term, *change),
        Command::AnnounceProgram(member, program) => Ok(version::announce(txn, *member, program)),
        Command::Invitation(command) => invitation::apply(txn, index, command),
        Command::Auth(command) => auth::apply(txn, index, command),
        Command::Acl(command) => acl::apply(txn, index, command),
        Command::Commit(request) => commit::apply(txn, index, request, want),
        #[cfg(feature = "next-version")]
        Command::Note(text) => version::note(txn, text),
    }
}

/// Tests of the rules. With the feature `testing`, the simulation compares a cluster with their
/// model.
#[cfg(any(test, feature = "testing"))]
#[allow(missing_docs, clippy::unwrap_used, clippy::new_without_default, reason = "tests")]
#[cfg_attr(not(test), allow(dead_code, unreachable_pub, unused_imports, reason = "only the model is used"))]
pub mod tests;
