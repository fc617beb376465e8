//! One watcher on a stream: its options, and the reads and filters of its events.

use std::collections::VecDeque;

use bytes::Bytes;
use smallvec::{SmallVec, smallvec};

use super::encode;
use headwater_api_shared::frames::EncodedFields;
use headwater_node::{CloseReason, Encoding, Item, KeyWatch, Kv, Node, NodeError, RunBounds};
use headwater_proto::pb::etcdserverpb::{WatchCreateRequest, watch_create_request::FilterType};
use headwater_types::limits::ANSWER_CHUNK_BYTES_MAX;
use headwater_types::{ChangeKind, KeyRange, LogIndex, Revision};

/// Limit of the revisions in one response, count (etcd replays at most 1000 at a time).
const BATCH_REVISIONS_MAX: usize = 1000;
/// Size at which a response takes no further revision: its changes, with their previous pairs if
/// asked for, bytes as the feed counts them. The last revision may exceed it. A stalled reader
/// holds one response.
const BATCH_BYTES_MAX: usize = ANSWER_CHUNK_BYTES_MAX;

/// Revisions that a watch reads in one piece if others read them as well. The feed counts a change
/// more than twice as large as it is when encoded, so the piece has less than
/// [`ANSWER_CHUNK_BYTES_MAX`] bytes, and is sent as it is: a longer one would be copied for each
/// connection, part by part.
const RUN: RunBounds =
    RunBounds { commits_min: 8, commits_max: BATCH_REVISIONS_MAX, bytes_max: 2 * ANSWER_CHUNK_BYTES_MAX };

/// Cancel reason of a watch of an empty range (spec: etcd §2.1).
pub(super) const RANGE_IS_EMPTY: &str = "mvcc: watcher range is empty";
/// Cancel reason of a watch that begins above the client's request rate.
pub(super) const TOO_FAST: &str = "etcdserver: too many requests";
/// Cancel reason of a watch with the id of another watch on the same stream.
pub(super) const DUPLICATE_ID: &str = "mvcc: duplicate watch ID provided on the WatchStream";
/// Cancel reason of a watch that begins at a negative revision.
pub(super) const COMPACTED: &str = "etcdserver: mvcc: required revision has been compacted";

/// The options of one watch, from its create request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WatchOptions {
    pub(super) range: KeyRange,
    pub(super) start: Option<Revision>,
    pub(super) prev_kv: bool,
    pub(super) fragment: bool,
    pub(super) progress_notify: bool,
    no_put: bool,
    no_delete: bool,
}

impl WatchOptions {
    /// Reads a request. The error is etcd's text for the refusal of an invalid one.
    pub(super) fn read(request: WatchCreateRequest) -> Result<Self, &'static str> {
        let start = match request.start_revision {
            ..0 => return Err(COMPACTED),
            0 => None,
            revision => Some(Revision(revision)),
        };
        let key = if request.key.is_empty() { Bytes::from_static(b"\0") } else { request.key };
        let range = KeyRange::from_etcd(key, request.range_end);
        if range.is_empty() {
            return Err(RANGE_IS_EMPTY);
        }
        let has = |filter: FilterType| request.filters.contains(&(filter as i32));
        Ok(Self {
            range,
            start,
            prev_kv: request.prev_kv,
            fragment: request.fragment,
            progress_notify: request.progress_notify,
            no_put: has(FilterType::Noput),
            no_delete: has(FilterType::Nodelete),
        })
    }

    /// Whether the watch sends what every other watch of its range sends, in answers that are never
    /// split: it can share encoded runs of revisions.
    fn shares_runs(&self) -> bool {
        !(self.prev_kv || self.fragment || self.no_put || self.no_delete)
    }

    fn wants(&self, kind: ChangeKind) -> bool {
        match kind {
            ChangeKind::Put => !self.no_put,
            ChangeKind::Delete | ChangeKind::Expire => !self.no_delete,
        }
    }
}

/// One watcher.
pub(super) struct Watcher {
    pub(super) id: i64,
    pub(super) options: WatchOptions,
    watch: KeyWatch,
    /// Items that were read, and with their previous pairs did not fit into the last response. The
    /// next read begins with them. Without these pairs they fit into one response.
    held: VecDeque<Item<Kv>>,
    /// Whether no event was sent since the last tick of progress.
    pub(super) is_idle: bool,
}

/// The result of one read of a watcher.
pub(super) struct Batch {
    /// The encoded events, in one piece or in several; empty if there are none or all were filtered
    /// out.
    pub(super) events: EncodedFields,
    /// Number of events.
    pub(super) count: usize,
    /// The revision for the header: that of the last change that was read, also if it was filtered
    /// out; 0 if none was read. While the watcher catches up, that of the store.
    pub(super) revision: Revision,
    /// Whether another read may find more events at once.
    pub(super) more: bool,
    /// Reason for which the watcher has ended; `None` while it continues.
    pub(super) ended: Option<CloseReason>,
}

impl Watcher {
    pub(super) fn new(id: i64, options: WatchOptions, watch: KeyWatch) -> Self {
        Self { id, options, watch, held: VecDeque::new(), is_idle: true }
    }

    /// Whether the watcher has yielded every event up to `index`. The caller gets `index` from
    /// [`Follow::published`](headwater_node::Follow::published) before this call.
    pub(super) fn is_through(&self, index: LogIndex) -> bool {
        match self.held.front() {
            Some(item) => item.index() > index,
            None => self.watch.is_through(index),
        }
    }

    /// Whether the watcher is behind the live changes: it reads missed changes from the window or
    /// from history, or has such changes queued. Changes in `held` do not count.
    pub(super) fn is_lagging(&self) -> bool {
        self.watch.is_lagging()
    }

    fn next_through(&mut self, through: LogIndex) -> Result<Option<Item<Kv>>, CloseReason> {
        if self.held.is_empty() {
            return self.watch.try_next_through(through);
        }
        Ok(self.held.pop_front_if(|item| item.index() <= through))
    }

    /// Reads whole revisions up to the log index `through`, as many as fit a response.
    pub(super) async fn read(&mut self, node: &Node, through: LogIndex) -> Result<Batch, NodeError> {
        let mut items: SmallVec<[Item<Kv>; 4]> = SmallVec::new();
        let (mut bytes, mut more, mut ended) = (0, false, None);
        let may_share = self.options.shares_runs() && through == LogIndex(u64::MAX);
        if may_share && let Some(run) = self.watch.try_next_run(Encoding::Etcd, &RUN, encode::append) {
            debug_assert!(run.bytes().len() <= ANSWER_CHUNK_BYTES_MAX, "invariant: a run is sent as it is");
            let (events, count) = (smallvec![run.bytes().clone()], run.events());
            let revision = run.revision().unwrap_or_default();
            return Ok(Batch { events, count, revision, more: true, ended: None });
        }
        let catching_up = self.is_lagging();
        loop {
            if may_share && !items.is_empty() && self.watch.is_at_run() {
                more = true;
                break;
            }
            match self.next_through(through) {
                Ok(Some(item)) => {
                    bytes += item.commit().bytes();
                    items.push(item);
                    if items.len() >= BATCH_REVISIONS_MAX || bytes >= BATCH_BYTES_MAX {
                        more = true;
                        break;
                    }
                }
                Ok(None) => break,
                Err(reason) => {
                    ended = Some(reason);
                    break;
                }
            }
        }
        if self.options.prev_kv {
            let fitting = node.follow().resolve_predecessors(&items, BATCH_BYTES_MAX).await?;
            if fitting < items.len() {
                // The watch stays ended, and returns the reason again after the held items.
                (more, ended) = (true, None);
            }
            for item in items.drain(fitting..).rev() {
                self.held.push_front(item);
            }
        }
        let mut events = EncodedFields::new();
        // A watch from the compaction point on has no predecessor of the first change, as in etcd,
        // also where this member still has it.
        let begins_compacted = |revision: Option<Revision>| {
            revision.is_some() && revision == self.options.start && revision <= node.follow().compacted()
        };
        for item in &items {
            let has_prev = self.options.prev_kv && !begins_compacted(item.commit().revision());
            for position in item.positions() {
                if self.options.wants(item.commit().events()[position].kind) {
                    events.push(encode::event(item, position, has_prev));
                }
            }
        }
        let last = items.last().and_then(|item| item.commit().revision()).unwrap_or_default();
        let revision = if catching_up { last.max(node.follow().published().revision) } else { last };
        let count = events.len();
        Ok(Batch { events, count, revision, more, ended })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(key: &'static str, range_end: &'static str) -> WatchCreateRequest {
        WatchCreateRequest { key: key.into(), range_end: range_end.into(), ..Default::default() }
    }

    #[test]
    fn intervals_follow_etcd() {
        let span = |start: &'static str, end: Option<&'static str>| KeyRange::Span {
            start: start.into(),
            end: end.map(Into::into),
        };
        for (key, range_end, wanted) in [
            ("a", "", Ok(KeyRange::One("a".into()))),
            ("a", "b", Ok(span("a", Some("b")))),
            ("a", "\0", Ok(span("a", None))),
            ("", "\0", Ok(span("\0", None))),
            ("", "", Ok(KeyRange::One("\0".into()))),
            ("", "b", Ok(span("\0", Some("b")))),
            ("b", "a", Err(RANGE_IS_EMPTY)),
            ("a", "a", Err(RANGE_IS_EMPTY)),
        ] {
            assert_eq!(
                WatchOptions::read(request(key, range_end)).map(|options| options.range),
                wanted,
                "{key:?} {range_end:?}"
            );
        }
    }

    #[test]
    fn starts_and_filters() {
        let read = |start_revision, filters: &[FilterType]| {
            let filters = filters.iter().map(|filter| *filter as i32).collect();
            WatchOptions::read(WatchCreateRequest { start_revision, filters, ..request("a", "") })
        };
        assert_eq!(read(-1, &[]), Err(COMPACTED));
        assert_eq!(read(0, &[]).unwrap().start, None);
        assert_eq!(read(5, &[]).unwrap().start, Some(Revision(5)));
        let wants = |filters: &[FilterType]| {
            let options = read(0, filters).unwrap();
            [ChangeKind::Put, ChangeKind::Delete, ChangeKind::Expire].map(|kind| options.wants(kind))
        };
        assert_eq!(wants(&[]), [true, true, true]);
        assert_eq!(wants(&[FilterType::Noput]), [false, true, true]);
        assert_eq!(wants(&[FilterType::Nodelete]), [true, false, false]);
        assert_eq!(wants(&[FilterType::Noput, FilterType::Nodelete]), [false, false, false]);
    }

    #[test]
    fn only_watches_that_send_everything_in_whole_answers_share_runs() {
        let shares = |request| WatchOptions::read(request).unwrap().shares_runs();
        let plain = || request("a", "b");
        assert!(shares(WatchCreateRequest { start_revision: 3, watch_id: 7, progress_notify: true, ..plain() }));
        assert!(!shares(WatchCreateRequest { prev_kv: true, ..plain() }));
        assert!(!shares(WatchCreateRequest { fragment: true, ..plain() }));
        for filter in [FilterType::Noput, FilterType::Nodelete] {
            assert!(!shares(WatchCreateRequest { filters: vec![filter as i32], ..plain() }));
        }
    }
}
