//! Runs: the encoded changes of consecutive commits of one live list, in one piece for all readers
//! that have not read them.
//!
//! Readers of one subject with unread commits read the same ones, each for itself. The second of
//! them that begins at a node makes a run of the commits from there on; all later ones take it as a
//! whole. They go on after it, and so meet at the next one. A single reader makes none, and a
//! lagging one takes none: it is not on the live list.
//! Invariants: a run has the changes that a reader of its commits would have got one by one; it
//! belongs to its first node and goes with it, so that no position in a list pins one.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::{Bytes, BytesMut};

use super::commit::Item;
use super::link::{Link, Node};
use super::topic::Topic;
use headwater_types::{LogIndex, Revision};

/// Bounds of a run.
#[derive(Clone, Copy, Debug)]
pub struct RunBounds {
    /// Fewest commits, count, at least 1: fewer are read one by one.
    pub commits_min: usize,
    /// Most commits, count.
    pub commits_max: usize,
    /// Most bytes of the commits, as [`Commit::bytes`](super::Commit::bytes) counts them.
    pub bytes_max: usize,
}

/// The encoded changes of consecutive commits of one subject.
pub struct Run<T: Topic> {
    purpose: u64,
    bytes: Bytes,
    events: usize,
    pub(super) last: LogIndex,
    revision: Option<Revision>,
    pub(super) after: Arc<Link<T>>,
}

impl<T: Topic> Run<T> {
    /// The encoded changes, in order.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Number of changes.
    pub fn events(&self) -> usize {
        self.events
    }

    /// The KV revision of the last commit; `None` if it changed no KV key.
    pub fn revision(&self) -> Option<Revision> {
        self.revision
    }
}

/// The run that begins at a node, once it is made.
pub(super) struct RunSlot<T: Topic> {
    /// Whether a reader with [`RunBounds::commits_min`] unread commits has begun here, whatever
    /// their size.
    has_been_read: AtomicBool,
    run: OnceLock<Arc<Run<T>>>,
}

impl<T: Topic> Default for RunSlot<T> {
    fn default() -> Self {
        Self { has_been_read: AtomicBool::new(false), run: OnceLock::new() }
    }
}

impl<T: Topic> RunSlot<T> {
    pub(super) fn is_made(&self) -> bool {
        self.run.get().is_some()
    }

    fn get(&self, purpose: u64) -> Option<Arc<Run<T>>> {
        self.run.get().filter(|run| run.purpose == purpose).cloned()
    }
}

/// The run from `first` on, for a reader that begins there, and whether this call made it. `None`
/// for the first such reader, if the list ends before a run is long enough, and if a run for
/// another purpose is there. `encode` appends the changes of a commit.
pub(super) fn from<T: Topic>(
    first: &Arc<Node<T>>,
    purpose: u64,
    bounds: &RunBounds,
    mut encode: impl FnMut(&Item<T>, &mut BytesMut),
) -> Option<(Arc<Run<T>>, bool)> {
    if first.run.is_made() {
        return Some((first.run.get(purpose)?, false));
    }
    // Most readers have read everything, and a single one makes no run: for them this allocates
    // nothing.
    if !is_followed_by(first, bounds.commits_min - 1) || !first.run.has_been_read.swap(true, Ordering::Relaxed) {
        return None;
    }
    let nodes = nodes_from(first, bounds);
    let last = nodes.last().filter(|_| nodes.len() >= bounds.commits_min)?;
    let (mut bytes, mut events) = (BytesMut::new(), 0);
    for node in &nodes {
        encode(&node.item, &mut bytes);
        events += node.item.len();
    }
    let mut is_new = false;
    let run = first.run.run.get_or_init(|| {
        is_new = true;
        let (index, revision) = (last.item.index(), last.item.commit().revision());
        let after = Arc::clone(&last.after);
        // A copy of its exact size: the buffer has grown by doubling.
        let bytes = Bytes::copy_from_slice(&bytes);
        Arc::new(Run { purpose, bytes, events, last: index, revision, after })
    });
    if is_new {
        first.item.commit().add_bytes(run.bytes.len() + size_of::<Run<T>>());
    }
    Some((first.run.get(purpose)?, is_new))
}

/// Whether at least so many nodes follow `first`.
fn is_followed_by<T: Topic>(first: &Arc<Node<T>>, count: usize) -> bool {
    let nodes = std::iter::successors(first.after.next_node(), |node| node.after.next_node());
    nodes.take(count).count() == count
}

/// The nodes of a run that begins at `first`: up to the end of the list, the next run or a bound.
fn nodes_from<T: Topic>(first: &Arc<Node<T>>, bounds: &RunBounds) -> Vec<Arc<Node<T>>> {
    let mut bytes = first.item.commit().bytes();
    let mut nodes = vec![Arc::clone(first)];
    while nodes.len() < bounds.commits_max
        && let Some(next) = nodes.last().and_then(|last| last.after.next_node())
        && !next.run.is_made()
    {
        bytes += next.item.commit().bytes();
        if bytes > bounds.bytes_max {
            break;
        }
        nodes.push(next);
    }
    nodes
}
