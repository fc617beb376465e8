//! The path of a contender: it enters the queue, waits until its key is the oldest, and leaves if
//! its client has gone away or the wait has failed.
//!
//! It runs as a task of its own: if its client goes away, its outstanding proposal is still
//! observed and can be undone.

use std::future::pending;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::oneshot;

use super::{Contender, ContestError, Owner, created_at, key_of, oldest, prefix_of};
use crate::{Node, NodeError, RequestContext};
use headwater_types::limits::SESSION_TTL_SECONDS;
use headwater_types::{
    Command, Compare, CompareOp, CompareTarget, DeleteRange, KeyRange, LeaseChoice, LeaseId, LeaseRevoke, LogIndex,
    Outcome, Put, RangeQuery, Refusal, Revision, Txn, TxnOp, TxnOpDone, ValueChoice,
};

/// Pause before a proposal is repeated, unless the leader changes first.
const RETRY_PAUSE: Duration = Duration::from_millis(50);
/// Timeout of one attempt to remove a key.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for all attempts to remove a key. After it, the end of its lease removes the key.
const LEAVE_TIME_MAX: Duration = Duration::from_secs(60);
/// Interval of the keep-alives of a lease that was made for a contender.
const SESSION_EVERY: Duration = Duration::from_secs(SESSION_TTL_SECONDS as u64 / 3);

/// A contender in the queue: its key, fencing token and lease.
pub(super) struct QueuePosition {
    pub(super) prefix: Bytes,
    pub(super) key: Bytes,
    /// Create revision of the contender's key: the fencing token.
    pub(super) token: Revision,
    pub(super) lease: LeaseId,
}

/// The result of entering the queue.
struct Entered {
    position: QueuePosition,
    /// Revision of this call's write of the key.
    written: Revision,
    /// Whether the key existed before this call.
    was_there: bool,
    /// Index and revision of the state in which the key was the oldest of the queue; `None` if it
    /// was not.
    turn: Option<(LogIndex, Revision)>,
}

/// The write that a call undoes if its client has gone away or its wait has failed. A later write
/// of the key, by another call of the same lease or by the owner, stays.
struct Written {
    key: Bytes,
    /// Revision of the write. The key is removed only if this is still its mod revision.
    at: Revision,
}

impl Written {
    /// The command that removes the key, unless the key was written again after `at`.
    fn removal(&self) -> Command {
        let is_mine = Compare {
            range: KeyRange::One(self.key.clone()),
            op: CompareOp::Equal,
            target: CompareTarget::ModRevision(self.at.get()),
        };
        let remove = DeleteRange { range: KeyRange::One(self.key.clone()), prev_kv: false };
        Command::Txn(Txn { compares: vec![is_mine], success: vec![TxnOp::DeleteRange(remove)], failure: vec![] })
    }
}

/// The reason for which a contender's wait has ended.
enum Ended {
    /// The contender owns the name.
    Turn(Owner),
    /// The client has gone away.
    Abandoned,
    Failed(ContestError),
}

pub(super) async fn contend(
    node: &Node,
    ctx: &RequestContext,
    contender: Contender,
    until: Option<Instant>,
) -> Result<Owner, ContestError> {
    let permit = node.contender_permit(ctx.client)?;
    let (answer, answered) = oneshot::channel();
    let (node, ctx) = (node.clone(), ctx.clone());
    tokio::spawn(async move {
        let _permit = permit;
        run(&node, &ctx, contender, until, answer).await;
    });
    answered.await.unwrap_or(Err(ContestError::Node(NodeError::Stopped)))
}

async fn run(
    node: &Node,
    ctx: &RequestContext,
    contender: Contender,
    until: Option<Instant>,
    mut answer: oneshot::Sender<Result<Owner, ContestError>>,
) {
    let is_session = !contender.lease.is_some();
    let lease = if is_session {
        match node.leases().grant(ctx, LeaseId::NONE, SESSION_TTL_SECONDS).await {
            Ok(granted) => granted.id,
            Err(error) => return give(answer, Err(error.into())),
        }
    } else {
        contender.lease
    };
    let session = is_session.then_some(lease);
    let entered = match enter(node, ctx, &contender, lease).await {
        Ok(entered) => entered,
        Err(error) => {
            give(answer, Err(error.into()));
            return leave(node, session, None).await;
        }
    };
    let (position, was_owner) = (entered.position, entered.was_there && entered.turn.is_some());
    let written = Written { key: position.key.clone(), at: entered.written };
    let ended = match entered.turn {
        Some((index, revision)) => {
            Ended::Turn(Owner { index, revision, key: position.key.clone(), token: position.token, lease })
        }
        None => wait(node, ctx, &position, session, until, &mut answer).await,
    };
    match ended {
        // A client that owned the name before this call stays the owner.
        Ended::Turn(owner) => {
            if answer.send(Ok(owner)).is_err() && !was_owner {
                leave(node, session, Some(&written)).await;
            }
        }
        Ended::Abandoned => leave(node, session, Some(&written)).await,
        // The contender keeps its position: its client continues at another member.
        Ended::Failed(error @ ContestError::Node(NodeError::Stopped)) => give(answer, Err(error)),
        Ended::Failed(error) => {
            give(answer, Err(error));
            leave(node, session, Some(&written)).await;
        }
    }
}

fn give(answer: oneshot::Sender<Result<Owner, ContestError>>, result: Result<Owner, ContestError>) {
    let _asker_gone = answer.send(result).is_err();
}

/// Puts the contender's key. An existing key is written again: it stays where it is in the queue,
/// and an earlier call of the same lease, possibly abandoned at another member, can no longer
/// remove it. Repeating does no harm, so an unanswered attempt is repeated until the deadline.
async fn enter(node: &Node, ctx: &RequestContext, contender: &Contender, lease: LeaseId) -> Result<Entered, NodeError> {
    let (prefix, key) = (prefix_of(&contender.name), key_of(&contender.name, lease));
    let first = TxnOp::Range(RangeQuery { keys_only: true, ..oldest(prefix.clone()) });
    let own = TxnOp::Range(RangeQuery { keys_only: true, ..RangeQuery::new(KeyRange::One(key.clone())) });
    let write = |value| TxnOp::Put(Put { key: key.clone(), value, lease: LeaseChoice::Set(lease), prev_kv: false });
    let value = contender.value.clone();
    let txn = Txn {
        compares: vec![created_at(&key, Revision(0))],
        success: vec![write(ValueChoice::Set(value.clone().unwrap_or_default())), own.clone(), first.clone()],
        failure: vec![write(value.map_or(ValueChoice::Keep, ValueChoice::Set)), own, first],
    };
    let before = node.inner.store.current().head().revision;
    let mut attempts = 0;
    let applied = loop {
        attempts += 1;
        match node.propose(ctx, Command::Txn(txn.clone())).await {
            Err(NodeError::Indeterminate(_)) if Instant::now() < ctx.deadline => {
                node.inner.consensus.leadership().wait_for_change(RETRY_PAUSE).await;
            }
            result => break result?,
        }
    };
    let Outcome::Txn(done) = &applied.outcome else { unreachable!("invariant: a transaction ends as one") };
    let [_, own, first] = [0, 1, 2].map(|op| match done.responses.get(op) {
        Some(TxnOpDone::Range(ranged)) => ranged.result.kvs.first().map(|kv| kv.create_revision),
        _ => None,
    });
    let token = own.expect("invariant: the key was written by the same transaction");
    // An attempt of this call that was not answered may have put the key, and then it is younger
    // than the call.
    let was_there = !done.succeeded && (attempts == 1 || token <= before);
    let turn = (first == Some(token)).then_some((applied.index, applied.revision));
    Ok(Entered { position: QueuePosition { prefix, key, token, lease }, written: applied.revision, was_there, turn })
}

async fn wait(
    node: &Node,
    ctx: &RequestContext,
    position: &QueuePosition,
    session: Option<LeaseId>,
    until: Option<Instant>,
    answer: &mut oneshot::Sender<Result<Owner, ContestError>>,
) -> Ended {
    let out_of_time = async {
        match until {
            Some(until) => tokio::time::sleep_until(until.into()).await,
            None => pending().await,
        }
    };
    tokio::select! {
        biased;
        // First, because a stopping member also loses its clients, and then the position must stay.
        () = node.streams_closing() => Ended::Failed(NodeError::Stopped.into()),
        () = answer.closed() => Ended::Abandoned,
        _ = node.inner.consensus.ended() => Ended::Failed(NodeError::Stopped.into()),
        () = out_of_time => Ended::Failed(ContestError::OutOfTime),
        turn = node.locks().wait_until_oldest(ctx, position) => match turn {
            Ok(owner) => Ended::Turn(owner),
            Err(error) => Ended::Failed(error),
        },
        () = keep(node, session) => unreachable!("it goes on for ever"),
    }
}

/// Keeps the lease that was made for a contender alive, if there is one; never returns. If the
/// lease ends all the same, its key is removed, and that ends the wait.
async fn keep(node: &Node, session: Option<LeaseId>) {
    let Some(lease) = session else { return pending().await };
    loop {
        tokio::time::sleep(SESSION_EVERY).await;
        let kept = node.leases().keep_alive(&RequestContext::system(SESSION_EVERY), lease).await;
        if let Err(error) = kept {
            tracing::debug!(%lease, %error, "the lease of a waiting contender was not kept alive");
        }
    }
}

/// Takes a contender out of the queue: revokes the lease that was made for it, or else removes its
/// key. Retries after every error, for `LEAVE_TIME_MAX` at most.
async fn leave(node: &Node, session: Option<LeaseId>, written: Option<&Written>) {
    let leaving = async {
        loop {
            let ctx = RequestContext::system(LEAVE_TIMEOUT);
            let command = match (session, written) {
                (Some(id), _) => Command::LeaseRevoke(LeaseRevoke { id }),
                (None, Some(written)) => written.removal(),
                (None, None) => return,
            };
            match node.propose(&ctx, command).await {
                Ok(_) | Err(NodeError::Refused(Refusal::LeaseNotFound)) => return,
                Err(error) => tracing::debug!(%error, "a contender that was given up has not left its queue yet"),
            }
            node.inner.consensus.leadership().wait_for_change(RETRY_PAUSE).await;
        }
    };
    tokio::select! {
        () = leaving => {}
        _ = node.inner.consensus.ended() => {}
        () = tokio::time::sleep(LEAVE_TIME_MAX) => {
            tracing::warn!("a contender that was given up is left to its lease: there was no leader");
        }
    }
}
