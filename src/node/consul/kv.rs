//! Keys: reads with their query indexes, single operations, transactions.

use bytes::Bytes;
use thiserror::Error;

use super::{Consul, other};
use crate::{Consistency, NodeError, Read, RequestContext};
use headwater_storage::ReadView;
use headwater_storage::state::{ConsulReader, consul_entries, consul_newest, consul_tree};
use headwater_types::catalog::Indexed;
use headwater_types::consul::{ConsulCommand, ConsulOutcome, KvEntry, KvOp, TxnFault, TxnItem, TxnOp};
use headwater_types::limits::{CONSUL_LIST_BYTES_MAX, ENTRY_BYTES};

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

impl Consul<'_> {
    /// A key, with its query index.
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

    /// The keys that begin with `prefix`, in order, with the query index of the prefix; or
    /// [`ConsulTreeTooLarge`].
    ///
    /// # Errors
    ///
    /// As [`Consul::key`].
    pub async fn tree(
        self,
        ctx: &RequestContext,
        consistency: Consistency,
        prefix: Bytes,
    ) -> Result<Read<Result<Indexed<Vec<KvEntry>>, ConsulTreeTooLarge>>, NodeError> {
        self.node.ready_to_read(ctx, consistency).await?;
        self.node
            .read(false, ctx, move |view| {
                let tree = consul_tree(view, &prefix)?;
                if !fits(tree.versions.iter().map(|(path, version)| path.len() + version.value_len as usize)) {
                    return Ok(Ok(Err(ConsulTreeTooLarge)));
                }
                let index = view.head().floored(tree.newest.max(view.head().key_floor()));
                Ok(Ok(Ok(Indexed { index, value: consul_entries(view, &tree.versions)? })))
            })
            .await
    }

    /// The paths of the keys that begin with `prefix`, in order, with the query index of the
    /// prefix. With a separator, each path ends with the first one behind the prefix, and equal
    /// paths are listed once.
    ///
    /// # Errors
    ///
    /// As [`Consul::key`].
    pub async fn paths(
        self,
        ctx: &RequestContext,
        consistency: Consistency,
        prefix: Bytes,
        separator: Bytes,
    ) -> Result<Read<Indexed<Vec<Bytes>>>, NodeError> {
        self.node.ready_to_read(ctx, consistency).await?;
        self.node
            .read(false, ctx, move |view| {
                let tree = consul_tree(view, &prefix)?;
                let index = view.head().floored(tree.newest.max(view.head().key_floor()));
                let paths = tree.versions.into_iter().map(|(path, _)| path);
                Ok(Ok(Indexed { index, value: fold(paths, prefix.len(), &separator) }))
            })
            .await
    }

    /// Applies one operation to a path. True if its precondition held.
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

    /// Applies operations, all or none.
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

    /// Evaluates operations that change nothing on one view, without replicating them.
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

/// Whether keys fit into one answer. `lens`: path and value of each key together, bytes.
fn fits(mut lens: impl Iterator<Item = usize>) -> bool {
    lens.try_fold(CONSUL_LIST_BYTES_MAX, |left, len| left.checked_sub(ENTRY_BYTES + len)).is_some()
}

/// Ends each path with the first separator that begins at `from` or later. Equal results are
/// adjacent, because the paths are in order.
fn fold(paths: impl Iterator<Item = Bytes>, from: usize, separator: &[u8]) -> Vec<Bytes> {
    let mut folded: Vec<Bytes> = Vec::new();
    for path in paths {
        let cut = match separator {
            [] => None,
            separator => path[from..].windows(separator.len()).position(|window| window == separator),
        };
        let path = match cut {
            Some(at) => path.slice(..from + at + separator.len()),
            None => path,
        };
        if folded.last() != Some(&path) {
            folded.push(path);
        }
    }
    folded
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folded(paths: &[&'static str], prefix: &str, separator: &str) -> Vec<String> {
        let paths = paths.iter().map(|path| Bytes::from_static(path.as_bytes()));
        let folded = fold(paths, prefix.len(), separator.as_bytes());
        folded.iter().map(|path| String::from_utf8_lossy(path).into_owned()).collect()
    }

    #[test]
    fn an_answer_has_a_bound_in_values_and_in_keys() {
        let most = CONSUL_LIST_BYTES_MAX - ENTRY_BYTES;
        assert!(fits([most].into_iter()) && !fits([most + 1].into_iter()) && !fits([most, 0].into_iter()));
        let keys = CONSUL_LIST_BYTES_MAX / (ENTRY_BYTES + 1);
        assert!(fits(std::iter::repeat_n(1, keys)) && !fits(std::iter::repeat_n(1, keys + 1)));
        assert!(fits(std::iter::empty()));
    }

    #[test]
    fn paths_are_cut_at_the_separator() {
        let all = ["a", "a/1", "a/2/x", "a/2/y", "b/1"];
        for (prefix, separator, wanted) in
            [("", "", vec!["a", "a/1", "a/2/x", "a/2/y", "b/1"]), ("", "/", vec!["a", "a/", "b/"])]
        {
            assert_eq!(folded(&all, prefix, separator), wanted, "{prefix} {separator}");
        }
        assert_eq!(folded(&all[1..4], "a/", "/"), ["a/1", "a/2/"]);
        assert_eq!(folded(&all[1..4], "a", "/"), ["a/"]);
        assert_eq!(folded(&["a--b--c", "a--b--d"], "a--", "--"), ["a--b--"]);
        assert!(folded(&[], "", "/").is_empty());
    }
}
