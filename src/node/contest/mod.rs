//! Locks and elections: queues of keys below a name. The oldest key owns it (spec: etcd §4.4).
//!
//! Owns the recipe. A contender's key is `NAME/LEASE` with the lease in hexadecimal, attached to
//! that lease. Contenders become the owner in the order of `create_revision`, which is the owner's
//! fencing token. etcd's clients follow the same recipe by themselves on the same keys. Knows no
//! face. Invariants: a contender is reported as the owner only if its key was the oldest in one
//! linearizable view that held it; a contender that is abandoned while it waits leaves no key, and
//! does not remove a key that another call with the same lease has written since.

mod enter;
mod observe;
mod turn;

use std::time::Instant;

use bytes::Bytes;
use thiserror::Error;

use super::{ClientKey, Consistency, Limit, Node, NodeError, Read, RequestContext, Share};
use headwater_types::{
    Command, Compare, CompareOp, CompareTarget, DeleteRange, KeyRange, KeyValue, LeaseChoice, LeaseId, LogIndex,
    Outcome, Put, RangeQuery, Revision, SortOrder, SortTarget, Txn, TxnOp, ValueChoice,
};

pub use observe::Observed;

/// One client's request to own a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contender {
    /// The name of the lock or election.
    pub name: Bytes,
    /// The lease of the contender's key. [`LeaseId::NONE`] makes a new one. The node keeps it alive
    /// while the contender waits, and revokes it if the wait ends without ownership, unless the
    /// node stops. The owner's client keeps it alive afterwards.
    pub lease: LeaseId,
    /// The value of the contender's key. `None` keeps the value of an existing key, and gives a new
    /// key an empty one.
    pub value: Option<Bytes>,
}

/// The owner of a name, for as long as the key exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Log index of the state in which the owner was found.
    pub index: LogIndex,
    /// Revision of the state in which the owner was found.
    pub revision: Revision,
    /// The owner's key.
    pub key: Bytes,
    /// The create revision of its key, which is the fencing token: larger than that of every
    /// earlier owner.
    pub token: Revision,
    /// The lease of its key.
    pub lease: LeaseId,
}

/// The key by which a client says that it owns a name, for [`Locks::proclaim`] and
/// [`Locks::resign`]. The claim holds while the key exists with the create revision `token`.
/// Whether it is the oldest of the contenders is not checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The key.
    pub key: Bytes,
    /// The create revision of the key.
    pub token: Revision,
    /// The lease to which [`Locks::proclaim`] attaches the key; [`LeaseId::NONE`] keeps the present
    /// one.
    pub lease: LeaseId,
}

/// The reason for which a client does not own a name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ContestError {
    /// The contender's key is gone: its lease has ended, or the key was removed.
    #[error("the place in the queue is gone")]
    PositionLost,
    /// The claim's key is gone, or was created again; nothing changed.
    #[error("the name has another owner")]
    NotOwner,
    /// The contender did not reach the head of the queue in time. Its key is being removed.
    #[error("it was not the contender's turn in time")]
    OutOfTime,
    /// Any other error.
    #[error(transparent)]
    Node(#[from] NodeError),
}

/// The common prefix of the keys of a name's contenders.
fn prefix_of(name: &[u8]) -> Bytes {
    [name, b"/"].concat().into()
}

/// A contender's key: `NAME/LEASE`, with the lease id in hexadecimal. A negative id is written as
/// `-` and its absolute value, as etcd's clients write it.
fn key_of(name: &[u8], lease: LeaseId) -> Bytes {
    let sign = if lease.get() < 0 { "-" } else { "" };
    [name, format!("/{sign}{:x}", lease.get().unsigned_abs()).as_bytes()].concat().into()
}

/// The query for the oldest contender.
fn oldest(prefix: Bytes) -> RangeQuery {
    RangeQuery {
        order: SortOrder::Ascend,
        target: SortTarget::Create,
        limit: 1,
        ..RangeQuery::new(KeyRange::prefix(prefix))
    }
}

fn created_at(key: &Bytes, revision: Revision) -> Compare {
    Compare {
        range: KeyRange::One(key.clone()),
        op: CompareOp::Equal,
        target: CompareTarget::CreateRevision(revision.get()),
    }
}

fn put(key: &Bytes, value: Bytes, lease: LeaseChoice) -> TxnOp {
    TxnOp::Put(Put { key: key.clone(), value: ValueChoice::Set(value), lease, prev_kv: false })
}

impl Claim {
    /// A command that does `op` if the claim holds (its key exists, created at its token), and
    /// nothing otherwise.
    fn guarded(&self, op: TxnOp) -> Command {
        Command::Txn(Txn { compares: vec![created_at(&self.key, self.token)], success: vec![op], failure: vec![] })
    }
}

/// Handle to locks and elections.
#[derive(Clone, Copy)]
pub struct Locks<'a> {
    pub(super) node: &'a Node,
}

impl Node {
    /// The share of a contender or an observer in the bound on both.
    fn contender_permit(&self, client: ClientKey) -> Result<Share, NodeError> {
        self.inner.contenders.take(client).ok_or_else(|| {
            self.inner.limit_counters.count(Limit::Contenders);
            NodeError::TooManyRequests
        })
    }

    /// Handle to locks and elections.
    pub fn locks(&self) -> Locks<'_> {
        Locks { node: self }
    }
}

impl Locks<'_> {
    /// Waits until the contender owns the name, or until `until` (`None`: without an end). Dropping
    /// the future abandons the contender. If this member stops, the contender keeps its position: a
    /// call with the same lease at another member continues from it.
    ///
    /// # Errors
    ///
    /// [`ContestError::PositionLost`] if its lease ends or its key is removed meanwhile;
    /// [`ContestError::OutOfTime`] at `until`; [`NodeError::TooManyRequests`] if too many requests
    /// contend or observe already; the errors of [`Node::propose`]. The context's deadline bounds
    /// the entry into the queue, not the wait in it.
    pub async fn contend(
        self,
        ctx: &RequestContext,
        contender: Contender,
        until: Option<Instant>,
    ) -> Result<Owner, ContestError> {
        self.node.admit(ctx).await?;
        let ctx = &self.node.stream_context(ctx)?;
        enter::contend(self.node, ctx, contender, until).await
    }

    /// Writes a new value to the key of a claim. Returns log index and revision of the write.
    ///
    /// # Errors
    ///
    /// [`ContestError::NotOwner`] if the claim does not hold; the errors of [`Node::propose`].
    pub async fn proclaim(
        self,
        ctx: &RequestContext,
        claim: &Claim,
        value: Bytes,
    ) -> Result<(LogIndex, Revision), ContestError> {
        let lease = if claim.lease.is_some() { LeaseChoice::Set(claim.lease) } else { LeaseChoice::KeepIfPresent };
        let applied = self.node.propose(ctx, claim.guarded(put(&claim.key, value, lease))).await?;
        match applied.outcome {
            Outcome::Txn(done) if done.succeeded => Ok((applied.index, applied.revision)),
            _ => Err(ContestError::NotOwner),
        }
    }

    /// Removes the key of a claim; changes nothing if the claim does not hold. Returns log index
    /// and revision of the command.
    ///
    /// # Errors
    ///
    /// The errors of [`Node::propose`]. It may be repeated.
    pub async fn resign(self, ctx: &RequestContext, claim: &Claim) -> Result<(LogIndex, Revision), NodeError> {
        let remove = TxnOp::DeleteRange(DeleteRange { range: KeyRange::One(claim.key.clone()), prev_kv: false });
        let applied = self.node.propose(ctx, claim.guarded(remove)).await?;
        Ok((applied.index, applied.revision))
    }

    /// The oldest contender's key and value, by a linearizable read: that contender owns the name.
    /// `None` without contenders.
    ///
    /// # Errors
    ///
    /// Those of the read path.
    pub async fn owner(self, ctx: &RequestContext, name: &[u8]) -> Result<Read<Option<KeyValue>>, NodeError> {
        let read = self.node.keys().range(ctx, Consistency::Linearizable, oldest(prefix_of(name))).await?;
        Ok(Read { index: read.index, revision: read.revision, value: read.value.kvs.into_iter().next() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_those_of_etcds_clients() {
        for (lease, key) in [(0x346a_a1f8_405b_d319, "L/346aa1f8405bd319"), (10, "L/a"), (-5, "L/-5")] {
            assert_eq!(key_of(b"L", LeaseId(lease)), key);
        }
        assert_eq!(key_of(b"", LeaseId(i64::MIN)), "/-8000000000000000");
    }
}
