//! The stream of changes: parts of history, read one after the other in either direction, and then
//! new changes.
//!
//! Owns the position of a stream, and the size of its parts. A live stream reads history as well,
//! when the applied index moves, so that it is the same on every member and misses nothing. A
//! command that is larger than a message takes several parts, and the reported position stays
//! before it until the last one. Invariant: the changes of every command between two reported
//! positions were sent, in order and once.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::changes::{CommandChanges, Filter, Gatherer, Place};
use super::error::StoreError;
use super::{Depth, Found, Point, Store, StoreTarget, Wanted, point};
use crate::watcher::{kv, resources};
use crate::{Consistency, EntitySpace, Node, NodeError, Position, RequestContext, Watching};
use headwater_storage::state::{HistorySpan, Table, WalkedCommand};
use headwater_storage::{ReadView, StorageError};
use headwater_types::limits::{STORE_CHANGES_BYTES_MAX, STORE_MESSAGE_BYTES_MAX};
use headwater_types::{Face, KeyRange, LogIndex, StoreEpoch};

/// Most commands with changes in the first part, count: it is short, so that it comes soon.
const FIRST_COMMANDS: usize = 64;
/// Most commands with changes in one part, count.
const COMMANDS_MAX: usize = 1024;
/// Records after which a part ends, count: selected or not.
const VISITED_MAX: usize = 65_536;
/// Most versions of one interval of keys that are searched for the commands that changed it, count.
/// If there are more, the stream reads all commands of its span instead.
const VERSIONS_MAX: usize = 65_536;
/// Timeout of one part.
const PART_TIMEOUT: Duration = Duration::from_secs(30);
/// Least time between two parts of new changes: a busy store is read in larger parts.
const LIVE_PAUSE: Duration = Duration::from_millis(10);
/// Longest time without a page while only changes are read that the request does not select.
const POSITION_EVERY: Duration = Duration::from_secs(5);
/// Longest time without a page of a live stream.
const SILENCE_MAX: Duration = Duration::from_secs(15);

/// The changes to stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryQuery {
    /// The entities; [`StoreTarget::everything`] for all.
    pub targets: Vec<StoreTarget>,
    /// Changes after this point are streamed; `None` for the beginning of history.
    pub after: Option<Point>,
    /// Changes up to this point are streamed; `None` for the newest state.
    pub through: Option<Point>,
    /// Whether the newest changes come first.
    pub is_backward: bool,
    /// Whether the stream goes on with new changes. The caller combines it neither with `through`
    /// nor with `is_backward`.
    pub is_live: bool,
    /// Changes by these faces are streamed; empty for all.
    pub faces: Vec<Face>,
    /// Most commands with changes that are streamed, count; `None` for no bound.
    pub limit: Option<NonZeroU64>,
    /// Whether the states before and after changes are left out.
    pub names_only: bool,
    /// The consistency of the read with which the stream begins.
    pub consistency: Consistency,
}

/// A part of the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryPage {
    /// Commands with changes, in the direction of the stream. May be empty. A command that is
    /// continued is the only one.
    pub commands: Vec<CommandChanges>,
    /// The position of the stream: all selected changes up to it were streamed; backward, all those
    /// after it. It stays before a command that is continued.
    pub reached: LogIndex,
    /// The oldest index whose state can be read; all changes after it are kept.
    pub oldest: LogIndex,
    /// The lineage of the indexes.
    pub epoch: Option<StoreEpoch>,
}

/// The part of history that is left to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rest {
    /// Changes after this index are left to read.
    after: LogIndex,
    /// Changes up to this index are left to read.
    through: LogIndex,
    is_backward: bool,
    /// Whether `after` is the beginning of history, wherever that is by now.
    is_open: bool,
    /// The commands to read after `after` up to `through`, ascending; `None` for all.
    commands: Option<Arc<[LogIndex]>>,
    /// The next command and the cursor in it, if a part of the command was streamed.
    within: Option<(LogIndex, Place)>,
}

impl Rest {
    pub(super) fn is_empty(&self) -> bool {
        self.after >= self.through
    }

    /// Sets the position: everything up to `reached` was read, or backward everything after it.
    fn advance(&mut self, reached: LogIndex) {
        if self.is_backward {
            self.through = reached;
        } else {
            (self.after, self.is_open) = (reached, false);
        }
        self.within = None;
    }

    /// The position right before the command at `index`, in the direction of the stream.
    fn position_before(&self, index: LogIndex) -> LogIndex {
        if self.is_backward { index } else { LogIndex(index.get() - 1) }
    }

    /// The position right after the command at `index`, in the direction of the stream.
    fn position_after(&self, index: LogIndex) -> LogIndex {
        if self.is_backward { LogIndex(index.get() - 1) } else { index }
    }

    fn span(&self) -> HistorySpan {
        HistorySpan { after: self.after, through: self.through }
    }
}

/// A page that was read, and the rest of history that is left to read.
pub(super) struct Part {
    pub(super) page: HistoryPage,
    pub(super) rest: Rest,
}

/// A stream of changes.
pub struct HistoryReader {
    node: Node,
    context: RequestContext,
    wanted: Wanted,
    filter: Arc<Filter>,
    rest: Rest,
    is_live: bool,
    /// Commands that may still be handed out, count; `None` for no bound.
    limit: Option<u64>,
    commands_max: usize,
    epoch: Option<StoreEpoch>,
    /// The next part, which is read while the one before is sent.
    reading: Option<Reading>,
    /// Whether a part was handed out. The first part is handed out even if it has no changes, so
    /// that the client learns the position of the stream.
    has_begun: bool,
    /// Time at which the last part was handed out, or the stream was opened.
    last: Instant,
    /// Time at which the last part was read, or the stream was opened.
    last_read: Instant,
    /// The wait for new changes.
    wait: Option<BoxFuture<'static, ()>>,
    _watching: Option<Watching>,
}

/// A part that is being read, in two steps: the walk over its commands, then the states before its
/// changes. The walk of the next part can begin after the first step. Dropping it aborts the read,
/// unless that already runs.
struct Reading {
    /// The rest of history after the part, sent after the first step. Closed if the read failed
    /// before.
    walked: oneshot::Receiver<Rest>,
    part: JoinHandle<Result<Part, StoreError>>,
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.part.abort();
    }
}

impl Store<'_> {
    /// Begins a stream of changes.
    ///
    /// # Errors
    ///
    /// [`StoreError`]; among them [`StoreError::Denied`] if the principal may not read a target,
    /// and [`NodeError::TooManyWatchers`] for a live stream.
    pub async fn history(self, ctx: &RequestContext, query: HistoryQuery) -> Result<HistoryReader, StoreError> {
        let node = self.node;
        node.ready_to_read(ctx, query.consistency).await?;
        let wanted = Wanted::permitted(node, ctx, &query.targets)?;
        let watching = query.is_live.then(|| node.follow().begin_watching(ctx)).transpose()?;
        let HistoryQuery { targets, after, through, is_backward, is_live, faces, limit, names_only, .. } = query;
        for point in [after, through] {
            self.await_point(ctx, point).await?;
        }
        let filter = Arc::new(Filter { targets, faces, names_only });
        let shared = Arc::clone(&filter);
        let read = node.read(false, ctx, move |view| Ok(Ok(begin(view, &shared, (after, through), is_backward)?)));
        let (rest, epoch) = read.await?.value?;
        Ok(HistoryReader {
            node: node.clone(),
            context: ctx.clone(),
            wanted,
            filter,
            rest,
            is_live,
            limit: limit.map(NonZeroU64::get),
            commands_max: FIRST_COMMANDS,
            epoch,
            reading: None,
            has_begun: false,
            last: Instant::now(),
            last_read: Instant::now(),
            wait: None,
            _watching: watching,
        })
    }
}

/// The part of history between two points, and the lineage of the view. The inner error if a point
/// cannot be read, or if they are reversed.
pub(super) fn begin(
    view: &ReadView<'_>,
    filter: &Filter,
    (after, through): (Option<Point>, Option<Point>),
    is_backward: bool,
) -> Found<(Rest, Option<StoreEpoch>)> {
    let through = match point::resolve(view, through)? {
        Ok(through) => through,
        Err(error) => return Ok(Err(error)),
    };
    let is_open = after.is_none();
    let after = match after {
        None => view.head().compacted_index(),
        Some(after) => match point::resolve(view, Some(after))? {
            Ok(after) => after,
            Err(error) => return Ok(Err(error)),
        },
    };
    if after > through {
        let (from, to) = if is_backward { (through, after) } else { (after, through) };
        return Ok(Err(StoreError::Reversed { from, to }));
    }
    let commands = few_commands(view, filter, HistorySpan { after, through })?;
    let rest = Rest { after, through, is_backward, is_open, commands, within: None };
    Ok(Ok((rest, view.head().epoch)))
}

/// The commands of a part of history that changed the targets, ascending. `None` if all commands
/// must be read: a target has no keys ([`keys_of`]), or more than [`VERSIONS_MAX`] versions in one
/// interval.
fn few_commands(
    view: &ReadView<'_>,
    filter: &Filter,
    span: HistorySpan,
) -> Result<Option<Arc<[LogIndex]>>, StorageError> {
    let mut all = Vec::new();
    for target in &filter.targets {
        let Some((table, ranges)) = keys_of(target) else { return Ok(None) };
        for range in ranges {
            match view.changes_in(table, &range, span, VERSIONS_MAX)? {
                Some(found) => all.extend(found),
                None => return Ok(None),
            }
        }
    }
    all.sort_unstable();
    all.dedup();
    Ok(Some(all.into()))
}

/// The keys whose versions name every change of the target. `None` for a whole space, and for
/// targets in spaces other than keys and resources.
fn keys_of(target: &StoreTarget) -> Option<(Table, Vec<KeyRange>)> {
    match target.space {
        EntitySpace::Kv if target.name.is_empty() => None,
        EntitySpace::Kv => {
            let own = KeyRange::One(kv::key(&target.name).into());
            let below = kv::prefix(&target.name).filter(|_| target.depth != Depth::Itself).map(KeyRange::prefix);
            Some((Table::Kv, std::iter::once(own).chain(below).collect()))
        }
        // A move to another version of the kind keeps the key, which has no version.
        EntitySpace::Resources if !target.name.is_empty() => {
            Some((Table::Resource, vec![resources::key_range(&target.name)]))
        }
        EntitySpace::Resources
        | EntitySpace::Services
        | EntitySpace::Nodes
        | EntitySpace::Leases
        | EntitySpace::Cluster => None,
    }
}

/// Reads the next part of `rest`: at most `commands_max` commands, or a part of one that is larger
/// than a message. Calls `walked` with the rest after the part before it loads the states before
/// the changes.
pub(super) fn read_part(
    view: &ReadView<'_>,
    filter: &Filter,
    mut rest: Rest,
    epoch: Option<StoreEpoch>,
    commands_max: usize,
    walked: impl FnOnce(&Rest),
) -> Found<Part> {
    let head = view.head();
    let begun = Position { index: rest.after, epoch };
    if begun.is_of_another_lineage(head) {
        return Ok(Err(StoreError::OtherEpoch));
    }
    let oldest = head.compacted_index();
    if let Some((index, place)) = rest.within {
        if index <= oldest {
            // The rest of the command is gone.
            return point::compacted(view, Some(LogIndex(index.get() - 1))).map(Err);
        }
        return read_within(view, filter, rest, index, place, walked).map(Ok);
    }
    if rest.is_open && rest.after < oldest {
        // It begins, or ends, where history begins.
        rest.after = oldest;
        rest.through = rest.through.max(oldest);
    }
    if rest.after < oldest && !rest.is_empty() {
        return point::compacted(view, Some(rest.after)).map(Err);
    }
    let mut gatherer = Gatherer::new(view, filter);
    let mut walk = view.walk(rest.span(), rest.is_backward, filter.tables());
    let mut listed = rest.commands.as_deref().map(|all| Listed::new(all, rest.span(), rest.is_backward));
    let end = if rest.is_backward { rest.after } else { rest.through };
    let mut reached = end;
    loop {
        if let Some(listed) = &mut listed {
            match listed.next() {
                Some(index) => walk.skip_to(index),
                None => break,
            }
        }
        let (index, is_added) = match walk.next_within(STORE_MESSAGE_BYTES_MAX)? {
            None => break,
            Some(WalkedCommand::Whole(command)) => (command.index, gatherer.add(&command)?),
            Some(WalkedCommand::Large(index, head)) => (index, !gatherer.has_face(&head)),
        };
        if !is_added && gatherer.len() == 0 {
            return read_within(view, filter, rest, index, Place::default(), walked).map(Ok);
        }
        if !is_added {
            reached = rest.position_before(index);
            break;
        }
        let is_full = gatherer.len() >= commands_max
            || gatherer.bytes() >= STORE_CHANGES_BYTES_MAX
            || walk.visited() >= VISITED_MAX;
        if is_full {
            reached = rest.position_after(index);
            break;
        }
    }
    rest.advance(reached);
    walked(&rest);
    let page = HistoryPage { commands: gatherer.finish()?, reached, oldest, epoch: head.epoch };
    Ok(Ok(Part { page, rest }))
}

/// Reads the changes of the command at `index` from the cursor `place` on, as many as fit into one
/// message.
fn read_within(
    view: &ReadView<'_>,
    filter: &Filter,
    mut rest: Rest,
    index: LogIndex,
    place: Place,
    walked: impl FnOnce(&Rest),
) -> Result<Part, StorageError> {
    let mut gatherer = Gatherer::new(view, filter);
    match gatherer.add_part(index, place)? {
        None => rest.advance(rest.position_after(index)),
        Some(place) => {
            rest.advance(rest.position_before(index));
            rest.within = Some((index, place));
        }
    }
    walked(&rest);
    let reached = if rest.is_backward { rest.through } else { rest.after };
    let head = view.head();
    let page = HistoryPage { commands: gatherer.finish()?, reached, oldest: head.compacted_index(), epoch: head.epoch };
    Ok(Part { page, rest })
}

/// The commands of a list that lie in a span, in the direction of the stream.
struct Listed<'a> {
    commands: &'a [LogIndex],
    is_backward: bool,
}

impl<'a> Listed<'a> {
    fn new(all: &'a [LogIndex], span: HistorySpan, is_backward: bool) -> Self {
        let first = all.partition_point(|index| *index <= span.after);
        let end = all.partition_point(|index| *index <= span.through);
        Self { commands: &all[first..end.max(first)], is_backward }
    }

    fn next(&mut self) -> Option<LogIndex> {
        let (index, rest) = if self.is_backward { self.commands.split_last()? } else { self.commands.split_first()? };
        self.commands = rest;
        Some(*index)
    }
}

impl HistoryReader {
    /// Reads the next part. `None` if there is nothing now. A live stream below its limit goes on
    /// when [`poll_ready`](Self::poll_ready) is ready; any other stream has ended.
    ///
    /// # Errors
    ///
    /// The reason for the end of the stream. A new stream can go on at the last position, unless
    /// that was compacted.
    pub async fn next(&mut self) -> Result<Option<HistoryPage>, StoreError> {
        loop {
            if self.is_live && self.rest.is_empty() && self.last_read.elapsed() >= LIVE_PAUSE {
                let newest = (*self.node.applied().borrow()).max(self.rest.through);
                (self.rest.through, self.rest.commands) = (newest, None);
            }
            let is_silent = self.is_live && self.last.elapsed() >= SILENCE_MAX;
            let has_nothing = self.limit == Some(0) || (self.rest.is_empty() && !is_silent);
            if has_nothing && self.reading.is_none() && self.has_begun {
                return Ok(None);
            }
            let mut reading = self.reading.take().unwrap_or_else(|| self.begin_part(&self.rest));
            // A limit counts the commands of this part first.
            let ahead = match (self.limit, (&mut reading.walked).await) {
                (None, Ok(rest)) if !rest.is_empty() => Some(self.begin_part(&rest)),
                (..) => None,
            };
            let part = match (&mut reading.part).await {
                Ok(part) => part?,
                Err(_) => return Err(NodeError::Stopped.into()),
            };
            (self.rest, self.last_read) = (part.rest, Instant::now());
            let mut page = part.page;
            self.cut(&mut page);
            self.commands_max = (4 * self.commands_max).min(COMMANDS_MAX);
            let goes_on = self.limit != Some(0) && !self.rest.is_empty();
            if goes_on {
                self.reading = Some(ahead.unwrap_or_else(|| self.begin_part(&self.rest)));
            }
            // Parts without changes only say the position: at the beginning, at the end, and now
            // and then.
            let is_due = !self.has_begun || self.last.elapsed() >= POSITION_EVERY || !(goes_on || self.is_live);
            if !page.commands.is_empty() || is_due {
                (self.has_begun, self.last) = (true, Instant::now());
                return Ok(Some(page));
            }
        }
    }

    /// Counts the commands of a page against the limit, and leaves out those beyond it. At the
    /// limit the stream ends after the last command.
    fn cut(&mut self, page: &mut HistoryPage) {
        let Some(limit) = &mut self.limit else { return };
        let most = usize::try_from(*limit).unwrap_or(usize::MAX);
        if page.commands.len() > most {
            page.commands.truncate(most);
        }
        // A command counts with its last part.
        *limit -= page.commands.iter().filter(|command| !command.is_continued).count() as u64;
        if *limit == 0
            && let Some(last) = page.commands.last()
        {
            page.reached = self.rest.position_after(last.index);
            self.rest.advance(page.reached);
        }
    }

    /// Whether the stream has ended: no part follows. Always false for a live stream without a
    /// limit.
    pub fn is_finished(&self) -> bool {
        self.has_begun && self.reading.is_none() && (self.limit == Some(0) || (!self.is_live && self.rest.is_empty()))
    }

    /// Begins to read the next part of `rest`.
    fn begin_part(&self, rest: &Rest) -> Reading {
        let (node, context) = (self.node.clone(), self.context.within_stream(PART_TIMEOUT));
        let (filter, rest, epoch) = (Arc::clone(&self.filter), rest.clone(), self.epoch);
        let limit = self.limit.and_then(|limit| usize::try_from(limit).ok());
        let commands_max = self.commands_max.min(limit.unwrap_or(usize::MAX));
        let (sender, walked) = oneshot::channel();
        let part = tokio::spawn(async move {
            // If nobody waits for the rest, the reader is gone or has a limit.
            let tell = |rest: &Rest| drop(sender.send(rest.clone()));
            let read = node
                .read(false, &context, move |view| Ok(Ok(read_part(view, &filter, rest, epoch, commands_max, tell)?)));
            read.await?.value
        });
        Reading { walked, part }
    }

    /// Ready when a live stream should be read again: new changes may have come, or a message
    /// without changes is due. Pending for ever for other streams, and once the limit is reached.
    pub fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.is_live || self.limit == Some(0) {
            return Poll::Pending;
        }
        let (mut applied, through) = (self.node.applied(), self.rest.through);
        let (allowed, overdue) = (self.last_read + LIVE_PAUSE, self.last + SILENCE_MAX);
        let wait = self.wait.get_or_insert_with(|| {
            let changes = async move {
                if applied.wait_for(|applied| *applied > through).await.is_err() {
                    // The node stops, and ends the stream.
                    std::future::pending::<()>().await;
                }
                tokio::time::sleep_until(allowed.into()).await;
            };
            async move { drop(tokio::time::timeout_at(overdue.into(), changes).await) }.boxed()
        });
        let polled = wait.poll_unpin(cx);
        if polled.is_ready() {
            self.wait = None;
        }
        polled
    }

    /// Judges the principal again, after rights have changed.
    ///
    /// # Errors
    ///
    /// If the principal may not read all of the targets any more: the stream must end then.
    pub fn rejudge(&self, node: &Node, ctx: &RequestContext) -> Result<(), NodeError> {
        self.wanted.permit(node, ctx)
    }
}
