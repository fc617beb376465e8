//! Merges the watchers of one stream into one order of commits.
//!
//! Owns the watchers and the next commit of each. Must not know clients. Invariants: commits come
//! in the order of their indexes, except from watchers that are catching up; the end of a watcher
//! comes after its last commit.

use std::collections::{BTreeMap, HashSet, VecDeque};

use headwater_node::{CloseReason, Item, KeyWatch, Kv};
use headwater_types::LogIndex;

/// A source of commits, such as a watcher.
pub(super) trait Source {
    type Item;

    /// The next commit with its index, `None` if there is none now, or the reason why none will
    /// follow.
    fn try_next(&mut self) -> Result<Option<(LogIndex, Self::Item)>, CloseReason>;
}

impl Source for KeyWatch {
    type Item = Item<Kv>;

    fn try_next(&mut self) -> Result<Option<(LogIndex, Item<Kv>)>, CloseReason> {
        Ok(Self::try_next(self)?.map(|item| (item.index(), item)))
    }
}

/// The next step of the merge.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum MergeStep<T> {
    /// A commit, restricted to the changes that one watcher wants.
    Changed(T),
    /// One of the watchers has ended, for this reason.
    Ended(CloseReason),
}

pub(super) struct Merge<W: Source> {
    /// Watchers by token; `None` for one that has ended.
    watchers: Vec<Option<W>>,
    /// Whether a watcher may have become readable since the last [`gather`](Self::gather).
    is_raised: bool,
    /// The next item of each watcher that has one: by index, then by watcher.
    heads: BTreeMap<(LogIndex, u64), W::Item>,
    /// The watcher of the last returned commit. It has no commit in `heads`: the next call of
    /// [`next`](Self::next) first reads its next commit, or its end.
    last: Option<u64>,
    /// Reasons of watchers that have ended, not yet returned.
    ended: VecDeque<CloseReason>,
    /// Every next commit up to this index is in `heads`, for all watchers that are not catching up.
    complete_through: LogIndex,
}

impl<W: Source> Merge<W> {
    pub(super) fn new() -> Self {
        Self {
            watchers: Vec::new(),
            is_raised: false,
            heads: BTreeMap::new(),
            last: None,
            ended: VecDeque::new(),
            complete_through: LogIndex::ZERO,
        }
    }

    /// The token that the next added watcher gets: the number of watchers added so far.
    pub(super) fn next_token(&self) -> u64 {
        self.watchers.len() as u64
    }

    pub(super) fn add(&mut self, watch: W) {
        self.watchers.push(Some(watch));
        self.is_raised = true;
    }

    /// Notes that a watcher may have a next commit or have ended.
    pub(super) fn raise(&mut self) {
        self.is_raised = true;
    }

    /// Whether no watcher is left.
    pub(super) fn is_empty(&self) -> bool {
        self.watchers.iter().all(Option::is_none)
    }

    /// The next step; `None` if there is none now. `published` returns the log index up to which
    /// the feed has published.
    pub(super) fn next(&mut self, published: impl Fn() -> LogIndex) -> Option<MergeStep<W::Item>> {
        if let Some(token) = self.last.take() {
            self.pull(token);
        }
        // A second pass is enough: every commit that the first pass read was published before the
        // second one.
        for _ in 0..2 {
            let next = self.heads.keys().next().map(|(index, _)| *index);
            if !self.is_raised && next.is_some_and(|next| next <= self.complete_through) {
                break;
            }
            self.gather(published());
        }
        if let Some(reason) = self.ended.pop_front() {
            return Some(MergeStep::Ended(reason));
        }
        let ((_, token), item) = self.heads.pop_first()?;
        self.last = Some(token);
        Some(MergeStep::Changed(item))
    }

    /// Reads the next commit, or the end, of every watcher without a commit in `heads`. The feed
    /// has reached `point`.
    fn gather(&mut self, point: LogIndex) {
        self.is_raised = false;
        let has_head: HashSet<u64> = self.heads.keys().map(|(_, token)| *token).collect();
        for token in (0..self.next_token()).filter(|token| !has_head.contains(token)) {
            self.pull(token);
        }
        self.complete_through = point;
    }

    /// Reads the next commit, or the end, of one watcher, which must have no commit in `heads`.
    fn pull(&mut self, token: u64) {
        let Some(watch) = &mut self.watchers[token as usize] else { return };
        match watch.try_next() {
            Ok(Some((index, item))) => {
                self.heads.insert((index, token), item);
            }
            Ok(None) => {}
            Err(reason) => {
                self.watchers[token as usize] = None;
                self.ended.push_back(reason);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_types::Revision;

    const COMPACTED: CloseReason = CloseReason::Compacted { revision: Revision(9) };

    /// Commits with these indexes, then the end, if there is one.
    struct Script(VecDeque<u64>, Option<CloseReason>);

    impl Source for Script {
        type Item = u64;

        fn try_next(&mut self) -> Result<Option<(LogIndex, u64)>, CloseReason> {
            match (self.0.pop_front(), &self.1) {
                (Some(index), _) => Ok(Some((LogIndex(index), index))),
                (None, Some(reason)) => Err(reason.clone()),
                (None, None) => Ok(None),
            }
        }
    }

    fn all(merge: &mut Merge<Script>, point: u64) -> Vec<MergeStep<u64>> {
        std::iter::from_fn(|| merge.next(|| LogIndex(point))).collect()
    }

    #[test]
    fn a_watcher_ends_after_its_last_commit() {
        let mut merge = Merge::new();
        merge.add(Script([1, 3, 5].into(), Some(COMPACTED)));
        merge.add(Script([2, 4, 6].into(), None));
        let changed = [1, 2, 3, 4, 5].map(MergeStep::Changed);
        let wanted: Vec<_> = changed.into_iter().chain([MergeStep::Ended(COMPACTED), MergeStep::Changed(6)]).collect();
        assert_eq!(all(&mut merge, 6), wanted);
        assert!(!merge.is_empty());
        merge.add(Script([].into(), Some(CloseReason::Reset)));
        assert_eq!(all(&mut merge, 6), [MergeStep::Ended(CloseReason::Reset)], "it had nothing");
        let mut alone = Merge::new();
        alone.add(Script([7].into(), Some(COMPACTED)));
        assert_eq!(all(&mut alone, 7), [MergeStep::Changed(7), MergeStep::Ended(COMPACTED)]);
        assert!(alone.is_empty());
    }

    #[test]
    fn what_comes_while_there_is_more_is_put_in_its_place() {
        let mut merge = Merge::new();
        merge.add(Script([1, 2, 4].into(), None));
        merge.add(Script(VecDeque::new(), None));
        assert_eq!(merge.next(|| LogIndex(2)), Some(MergeStep::Changed(1)));
        merge.watchers[1].as_mut().unwrap().0.push_back(3);
        assert_eq!(merge.next(|| LogIndex(4)), Some(MergeStep::Changed(2)));
        assert_eq!(all(&mut merge, 4), [3, 4].map(MergeStep::Changed), "nobody had to say that there is more");
        merge.watchers[0].as_mut().unwrap().0.push_back(5);
        merge.raise();
        assert_eq!(all(&mut merge, 5), [MergeStep::Changed(5)]);
    }
}
