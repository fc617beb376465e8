//! Keys: reads with their query indexes, single operations, transactions.

use bytes::Bytes;
use thiserror::Error;

use super::{Consul, other};
use crate::{Authorizer, Consistency, NodeError, Read, RequestContext};
use headwater_storage::state::{ConsulReader, Version, consul_entries, consul_newest, consul_tree};
use headwater_storage::{ReadView, StorageError};
use headwater_types::catalog::Indexed;
use headwater_types::consul::{ConsulCommand, ConsulOutcome, KvEntry, KvOp, TxnFault, TxnItem, TxnOp, consul_key};
use headwater_types::limits::{CONSUL_LIST_BYTES_MAX, ENTRY_BYTES};
use headwater_types::{Access, KeyRange, LogIndex, Space};

/// The result of a transaction: the answers of its operations, or the reasons for which nothing was
/// done.
pub type ConsulTxnDone = Result<Vec<TxnItem>, Vec<TxnFault>>;

/// The keys below a prefix exceed the size of one answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "the keys that begin so have more than {CONSUL_LIST_BYTES_MAX} bytes: ask for longer prefixes one by one, or with ?keys for \
     their paths alone"
)]
pub struct ConsulTreeTooLarge;

/// The part of a list that its reader may see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen<T> {
    /// The elements, in order.
    pub seen: Vec<T>,
    /// Whether elements may have been left out, because the reader may not see them.
    pub is_partial: bool,
}

impl Consul<'_> {
    /// A key, with its query index; `None` if it is absent. The caller checks the rights of the
    /// principal.
    ///
    /// # Errors
    ///
    /// Those of the read path, as [`Keys::range`](crate::Keys::range).
    pub async fn key(
        self,
        ctx: &RequestContext,
        consistency: Consistency,
        path: Bytes,
    ) -> Result<Read<Indexed<Option<KvEntry>>>, NodeError> {
        self.node.ready_to_read(ctx, consistency).await?;
        self.node
            .read(true, ctx, move |view| {
                let (index, value) = match view.consul_entry(&path)? {
                    Some((_, entry)) => (entry.modified, Some(entry)),
                    // One member may know a removal below the compaction point that another has
                    // forgotten.
                    None => (consul_newest(view, &path)?.max(view.head().key_floor()), None),
                };
                Ok(Ok(Indexed { index: view.head().floored(index), value }))
            })
            .await
    }

    /// The keys that begin with `prefix` and that `authorizer` may read, in order, with the query
    /// index of the prefix; or [`ConsulTreeTooLarge`].
    ///
    /// # Errors
    ///
    /// As [`Consul::key`].
    pub async fn tree(
        self,
        ctx: &RequestContext,
        consistency: Consistency,
        prefix: Bytes,
        authorizer: Authorizer,
    ) -> Result<Read<Result<Indexed<Seen<KvEntry>>, ConsulTreeTooLarge>>, NodeError> {
        self.node.ready_to_read(ctx, consistency).await?;
        self.node
            .read(false, ctx, move |view| {
                let Indexed { index, value: Seen { seen, is_partial } } = versions(view, &prefix, &authorizer)?;
                if !fits_in_answer(seen.iter().map(|(path, version)| path.len() + version.value_len as usize)) {
                    return Ok(Ok(Err(ConsulTreeTooLarge)));
                }
                let seen = consul_entries(view, &seen)?;
                Ok(Ok(Ok(Indexed { index, value: Seen { seen, is_partial } })))
            })
            .await
    }

    /// The paths of the keys that begin with `prefix` and that `authorizer` may read, in order,
    /// with the query index of the prefix.
    ///
    /// # Errors
    ///
    /// As [`Consul::key`].
    pub async fn paths(
        self,
        ctx: &RequestContext,
        consistency: Consistency,
        prefix: Bytes,
        authorizer: Authorizer,
    ) -> Result<Read<Indexed<Seen<Bytes>>>, NodeError> {
        self.node.ready_to_read(ctx, consistency).await?;
        self.node
            .read(false, ctx, move |view| {
                let Indexed { index, value: Seen { seen, is_partial } } = versions(view, &prefix, &authorizer)?;
                let seen = seen.into_iter().map(|(path, _)| path).collect();
                Ok(Ok(Indexed { index, value: Seen { seen, is_partial } }))
            })
            .await
    }

    /// Applies one operation to its path or prefix. False if the operation's precondition did not
    /// hold: nothing changed.
    ///
    /// # Errors
    ///
    /// [`Refusal::Session`](headwater_types::Refusal::Session) for a lock without a session that
    /// exists; those of [`Node::propose`](crate::Node::propose).
    pub async fn write(self, ctx: &RequestContext, op: KvOp) -> Result<Read<bool>, NodeError> {
        match self.propose(ctx, ConsulCommand::Kv(op)).await? {
            ((index, revision), ConsulOutcome::Kv(value)) => Ok(Read { index, revision, value }),
            (_, outcome) => Err(other(&outcome)),
        }
    }

    /// Applies operations, all or none. The value is the results, or the reasons for which none was
    /// applied.
    ///
    /// # Errors
    ///
    /// Those of [`Node::propose`](crate::Node::propose).
    pub async fn txn(self, ctx: &RequestContext, ops: Vec<TxnOp>) -> Result<Read<ConsulTxnDone>, NodeError> {
        let ((index, revision), outcome) = self.propose(ctx, ConsulCommand::Txn(ops)).await?;
        let value = match outcome {
            ConsulOutcome::Txn(items) => Ok(items),
            ConsulOutcome::TxnFailed(faults) => Err(faults),
            outcome => return Err(other(&outcome)),
        };
        Ok(Read { index, revision, value })
    }

    /// Evaluates operations that change nothing on one view, without replicating them. The caller
    /// checks the rights of the principal.
    ///
    /// # Errors
    ///
    /// As [`Consul::key`].
    pub async fn read_txn(
        self,
        ctx: &RequestContext,
        consistency: Consistency,
        ops: Vec<KvOp>,
    ) -> Result<Read<ConsulTxnDone>, NodeError> {
        self.node.ready_to_read(ctx, consistency).await?;
        self.node.read(false, ctx, move |view: &ReadView<'_>| headwater_fsm::read_consul_txn(view, &ops).map(Ok)).await
    }
}

/// The keys below a prefix that may be read, with the query index of the prefix. If nothing below a
/// prefix may be read, the prefix is not read at all, and no change of a key moves its index.
fn versions(
    view: &ReadView<'_>,
    prefix: &[u8],
    authorizer: &Authorizer,
) -> Result<Indexed<Seen<(Bytes, Version)>>, StorageError> {
    let range = KeyRange::prefix(consul_key(prefix));
    if authorizer.rights().is_some_and(|rights| !rights.touches(Space::Kv, &range, Access::READ)) {
        let index = view.head().floored(LogIndex(1));
        return Ok(Indexed { index, value: Seen { seen: Vec::new(), is_partial: true } });
    }
    let mut tree = consul_tree(view, prefix)?;
    let index = view.head().floored(tree.newest.max(view.head().key_floor()));
    let before = tree.versions.len();
    if authorizer.permit(Space::Kv, &range, Access::READ).is_err() {
        tree.versions.retain(|(path, _)| authorizer.allows(Space::Kv, &consul_key(path), Access::READ));
    }
    let is_partial = tree.versions.len() < before;
    Ok(Indexed { index, value: Seen { seen: tree.versions, is_partial } })
}

/// Whether keys fit into one answer. `lens`: path and value of each key together, bytes.
fn fits_in_answer(mut lens: impl Iterator<Item = usize>) -> bool {
    lens.try_fold(CONSUL_LIST_BYTES_MAX, |left, len| left.checked_sub(ENTRY_BYTES + len)).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_a_bound_in_values_and_in_keys() {
        let most = CONSUL_LIST_BYTES_MAX - ENTRY_BYTES;
        assert!(
            fits_in_answer([most].into_iter())
                && !fits_in_answer([most + 1].into_iter())
                && !fits_in_answer([most, 0].into_iter())
        );
        let keys = CONSUL_LIST_BYTES_MAX / (ENTRY_BYTES + 1);
        assert!(fits_in_answer(std::iter::repeat_n(1, keys)) && !fits_in_answer(std::iter::repeat_n(1, keys + 1)));
        assert!(fits_in_answer(std::iter::empty()));
    }
}
