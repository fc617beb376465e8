//! The window: the last commits of a topic, bounded in items and bytes. It owns the nodes of the
//! live lists, and lagging readers catch up from it first.
//!
//! A commit counts with its nodes, one for each subject that it concerns: many subjects make the
//! window short. Derived data counts when it is added; the window is then trimmed by the next
//! commit, by the next reader that rejoins, or by `Feed::evict_excess`.
//!
//! Invariant: it holds every published commit of the topic above `floor`.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use smallvec::SmallVec;

use super::commit::Commit;
use super::link::Node;
use super::topic::Topic;
use headwater_types::LogIndex;

pub(super) struct Entry<T: Topic> {
    pub(super) commit: Arc<Commit<T>>,
    /// Keeps the nodes alive for the readers of the lists: a list itself holds none (see `link`).
    #[expect(dead_code, reason = "held, not read")]
    nodes: SmallVec<[Arc<Node<T>>; 2]>,
    /// Memory, bytes: the commit and its nodes, without derived data beyond the commit's cost.
    bytes: usize,
}

impl<T: Topic> Entry<T> {
    pub(super) fn new(commit: Arc<Commit<T>>, nodes: SmallVec<[Arc<Node<T>>; 2]>) -> Self {
        let bytes = commit.bytes() + nodes.iter().map(|node| node.bytes()).sum::<usize>();
        Self { commit, nodes, bytes }
    }
}

pub(super) struct Window<T: Topic> {
    entries: VecDeque<Entry<T>>,
    bytes: usize,
    /// Derived data of the commits beyond their cost, bytes.
    added: Arc<AtomicUsize>,
    floor: LogIndex,
    items_max: usize,
    bytes_max: usize,
}

impl<T: Topic> Window<T> {
    pub(super) fn new(floor: LogIndex, items_max: usize, bytes_max: usize) -> Self {
        Self { entries: VecDeque::new(), bytes: 0, added: Arc::default(), floor, items_max, bytes_max }
    }

    /// Adds the newest commit. Evicted commits are moved to `evicted`, so that the caller drops
    /// them outside of its lock.
    pub(super) fn push(&mut self, entry: Entry<T>, evicted: &mut Vec<Entry<T>>) {
        self.bytes += entry.bytes;
        entry.commit.count_in(&self.added);
        self.entries.push_back(entry);
        self.trim(evicted);
    }

    /// Evicts the oldest commits while the window exceeds a limit.
    pub(super) fn trim(&mut self, evicted: &mut Vec<Entry<T>>) {
        while self.entries.len() > self.items_max || self.bytes() > self.bytes_max {
            let Some(oldest) = self.entries.pop_front() else { break };
            self.bytes -= oldest.bytes;
            oldest.commit.count_out();
            self.floor = oldest.commit.index();
            evicted.push(oldest);
        }
    }

    /// Removes and returns everything. The next commit must be above `floor`.
    pub(super) fn clear(&mut self, floor: LogIndex) -> VecDeque<Entry<T>> {
        self.floor = floor;
        self.bytes = 0;
        // Old commits that readers still hold count into the old counter, which nothing reads.
        self.added = Arc::default();
        std::mem::take(&mut self.entries)
    }

    /// Whether the window has every published commit after `position`.
    pub(super) fn covers(&self, position: LogIndex) -> bool {
        position >= self.floor
    }

    /// The commits after `position`, in order, up to one of the limits but at least one if there is
    /// any. The flag is true if these are all.
    pub(super) fn after(&self, position: LogIndex, items_max: usize, bytes_max: usize) -> (Vec<Arc<Commit<T>>>, bool) {
        let from = self.entries.partition_point(|entry| entry.commit.index() <= position);
        let mut taken = Vec::new();
        let mut bytes = 0;
        for entry in self.entries.range(from..) {
            bytes += entry.commit.bytes();
            if !taken.is_empty() && (taken.len() >= items_max || bytes > bytes_max) {
                return (taken, false);
            }
            taken.push(Arc::clone(&entry.commit));
        }
        (taken, true)
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes + self.added.load(Ordering::Relaxed)
    }
}
