//! The live list of one subject: append-only, one writer, any number of readers.
//!
//! A reader holds the link after the last node that it read, never a node. Nodes belong to the
//! window. The link to an evicted node stays. It leads nowhere, but still holds the node's index,
//! so the reader knows where it fell behind. A stalled reader pins no node, and a list takes no
//! memory beyond the window's.

use std::sync::{Arc, OnceLock, Weak};

use super::commit::Item;
use super::run::RunSlot;
use super::topic::Topic;
use headwater_types::LogIndex;

/// The point between two nodes of a list, or at its end.
pub(super) struct Link<T: Topic> {
    next: OnceLock<Next<T>>,
}

/// The successor of a link. A link at the end of its list has none yet.
pub(super) enum Next<T: Topic> {
    /// The commit at `index`. The node is dead once the window has evicted it.
    Node { index: LogIndex, node: Weak<Node<T>> },
    /// The list was cut here. A reader at this link has everything up to `through`.
    Cut { through: LogIndex },
}

/// One commit in one list.
pub(super) struct Node<T: Topic> {
    pub(super) item: Item<T>,
    pub(super) after: Arc<Link<T>>,
    pub(super) run: RunSlot<T>,
}

impl<T: Topic> Node<T> {
    /// Memory of the node, the link after it and the pointer that holds it, bytes.
    pub(super) fn bytes(&self) -> usize {
        // `Self` and the link are each behind an `Arc` with two counters.
        let counters = 4 * size_of::<usize>();
        size_of::<Self>() + size_of::<Link<T>>() + counters + size_of::<Arc<Self>>() + self.item.picks_bytes()
    }
}

impl<T: Topic> Link<T> {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { next: OnceLock::new() })
    }

    pub(super) fn next(&self) -> Option<&Next<T>> {
        self.next.get()
    }

    /// The node after the link. `None` at the end of the list, and if the window has evicted it.
    pub(super) fn next_node(&self) -> Option<Arc<Node<T>>> {
        match self.next()? {
            Next::Node { node, .. } => node.upgrade(),
            Next::Cut { .. } => None,
        }
    }

    /// Appends an item and moves `tail` behind it. The caller keeps the returned node: a reader
    /// that reaches a dropped node has fallen behind.
    pub(super) fn append(tail: &mut Arc<Self>, item: Item<T>) -> Arc<Node<T>> {
        let after = Self::new();
        let index = item.index();
        let node = Arc::new(Node { item, after: Arc::clone(&after), run: RunSlot::default() });
        tail.set(Next::Node { index, node: Arc::downgrade(&node) });
        *tail = after;
        node
    }

    /// Ends the list. `tail` becomes the beginning of a new one.
    pub(super) fn cut(tail: &mut Arc<Self>, through: LogIndex) {
        tail.set(Next::Cut { through });
        *tail = Self::new();
    }

    fn set(&self, next: Next<T>) {
        let first = self.next.set(next).is_ok();
        assert!(first, "invariant: a list has one writer, which appends at its tail");
    }
}
