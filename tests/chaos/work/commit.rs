//! Groups of entities of several faces, which one commit gives one value; clients that read a group
//! at one index, histories of every node, and watchers of every face ([`super::commit_watchers`]).
//!
//! A commit without an answer is repeated with its idempotency key, at any node, and must take
//! effect once. Some commits have a condition, and some are sent once more after their answer.

use std::sync::Arc;
use std::time::Duration;

use headwater_proto::pb::headwater_v1 as pb;
use tokio::sync::OnceCell;
use tokio::task::JoinSet;

use super::{AsyncClientStep, Client, Control, Lab, REQUEST_TIMEOUT, commit_watchers};
use crate::client::Target;
use crate::commit::{
    self, CommitEvidence, CommitOutcome, CommitRecord, GROUPS, GroupState, Half, IDS, KIND, as_transaction, operations,
};
use crate::history::{Answer, Body, Freshness, Outcome, Record, Request, StepDone};
use crate::resource::register;

pub(crate) const NAME: &str = "commit";
const CLIENTS: u64 = 4;
const PAUSE: Duration = Duration::from_millis(40);
/// Most attempts of one commit. Another one follows while its outcome is not known.
const ATTEMPTS: usize = 5;
/// Pause before another attempt, and before a history is opened again.
const AGAIN: Duration = Duration::from_millis(100);

#[derive(Clone, Default)]
struct Groups {
    registered: Arc<OnceCell<()>>,
}

/// Starts the clients, and for each node a reader of its history and watchers.
pub(crate) fn start(lab: &Lab, tasks: &mut JoinSet<()>) {
    lab.clients(tasks, NAME, CLIENTS, PAUSE, |_| (), Groups::default());
    commit_watchers::start(lab, tasks);
    for target in &lab.targets {
        let (lab, target) = (lab.clone(), target.apart());
        tasks.spawn(async move {
            let stop = lab.stop.clone();
            tokio::select! {
                () = follow(&lab, &target) => {}
                () = stop.cancelled() => {}
            }
        });
    }
}

impl AsyncClientStep<()> for Groups {
    async fn step(&self, client: &mut Client, (): &mut ()) {
        let node = client.node();
        let target = &client.lab.targets[node];
        if self.registered.get_or_try_init(|| register(target, KIND, REQUEST_TIMEOUT)).await.is_err() {
            return;
        }
        let group = client.below(GROUPS);
        match client.below(3) {
            0 => drop(look(client, node, group).await),
            _ => write(client, node, group).await,
        }
    }
}

/// Reads a group at a node and records its state; returns the revision of the last change of its
/// first key, 0 if it does not exist. `None` if the read fails.
async fn look(client: &mut Client, node: usize, group: u64) -> Option<i64> {
    let serializable = client.below(3) == 0;
    let call = client.lab.recorder.clock.now();
    let (index, values, changed) =
        commit::read(&client.lab.targets[node], group, serializable, REQUEST_TIMEOUT).await.ok()?;
    let state = GroupState { node, call, group, index, is_linearizable: !serializable, values };
    client.lab.commits.keep_state(state);
    Some(changed)
}

async fn write(client: &mut Client, node: usize, group: u64) {
    let value = client.value();
    let control = client.lab.control;
    let conditions = match client.below(4) {
        0 => look(client, node, group).await.map(|revision| commit::condition(group, revision)).into_iter().collect(),
        _ => Vec::new(),
    };
    let request = pb::CommitRequest {
        conditions,
        operations: operations(group, &value, (control == Some(Control::HalfCommit)).then_some(Half::Keys)),
        idempotency_key: match control {
            Some(Control::Twice) => Vec::new(),
            _ => value.clone().into_bytes(),
        }
        .into(),
    };
    let clock = client.lab.recorder.clock;
    let call = clock.now();
    let mut became = repeat(client, node, &request).await;
    let mut again = None;
    if let Ok(done) = &became {
        let any = client.below(client.lab.targets.len() as u64) as usize;
        let other = &client.lab.targets[any];
        match control {
            Some(Control::HalfCommit) => {
                let operations = operations(group, &value, Some(Half::OtherFaces));
                let request = pb::CommitRequest { operations, ..Default::default() };
                became = commit::send(other, request, REQUEST_TIMEOUT).await;
            }
            Some(Control::Twice) => drop(commit::send(other, request, REQUEST_TIMEOUT).await),
            _ if client.rng_is_one_of(4) => {
                let other = &client.lab.targets[any];
                let repeated = commit::send(other, request, REQUEST_TIMEOUT).await.ok();
                again = repeated.map(|answer| (answer.index, answer.done_before));
                debug_assert!(done.index > 0);
            }
            _ => {}
        }
    }
    keep(client, node, call, (group, value, became, again));
}

/// Sends a commit until its outcome is known, at most [`ATTEMPTS`] times, after the first time to
/// random nodes. After an unknown outcome, only a success is certain: a failure leaves the result
/// `Unknown`.
async fn repeat(
    client: &mut Client,
    node: usize,
    request: &pb::CommitRequest,
) -> Result<pb::CommitResponse, CommitOutcome> {
    let mut doubt = None;
    for attempt in 0..ATTEMPTS {
        let node = if attempt == 0 { node } else { client.below(client.lab.targets.len() as u64) as usize };
        match commit::send(&client.lab.targets[node], request.clone(), REQUEST_TIMEOUT).await {
            Ok(done) => return Ok(done),
            Err(CommitOutcome::Unknown(why)) => doubt = Some(CommitOutcome::Unknown(why)),
            // An attempt before may still be on its way.
            Err(failed) if doubt.is_none() => return Err(failed),
            Err(_) => {}
        }
        if client.lab.stop.is_cancelled() || client.lab.control == Some(Control::Twice) {
            break;
        }
        tokio::time::sleep(AGAIN).await;
    }
    Err(doubt.expect("invariant: every attempt was in doubt"))
}

type Ended = (u64, String, Result<pb::CommitResponse, CommitOutcome>, Option<(u64, bool)>);

/// Records a commit, and its keys as a transaction.
fn keep(client: &Client, node: usize, call: u64, (group, value, became, again): Ended) {
    let recorder = &client.lab.recorder;
    let done = recorder.clock.now();
    let (outcome, became) = match became {
        Ok(pb::CommitResponse { index, revision, .. }) => {
            let body = Body::Txn { succeeded: true, steps: vec![StepDone::Put; 4] };
            (Outcome::Ok(Answer { revision, index, body }), CommitOutcome::Done { index, revision })
        }
        Err(CommitOutcome::Failed(why)) => (Outcome::Failed(why.clone()), CommitOutcome::Failed(why)),
        Err(CommitOutcome::Unknown(why)) => (Outcome::Unknown(why.clone()), CommitOutcome::Unknown(why)),
        Err(CommitOutcome::Done { .. }) => unreachable!("invariant: what is done has an answer"),
    };
    recorder.keep(Record {
        id: 0,
        workload: NAME.to_owned(),
        process: client.process,
        node,
        call,
        done,
        request: as_transaction(group, &value),
        outcome,
    });
    client.lab.commits.keep(CommitRecord { process: client.process, call, done, group, value, became, again });
}

/// Records the history of all groups at one node. After the end of a stream, resumes after the last
/// index that it reached.
async fn follow(lab: &Lab, target: &Target) {
    let mut reached = 0;
    loop {
        match commit::history(target, reached).await {
            Ok(mut stream) => loop {
                match stream.message().await {
                    Ok(Some(message)) => {
                        for command in &message.commands {
                            lab.commits.keep_change(target.node, command.index, commit::change_of(command));
                        }
                        reached = message.reached;
                    }
                    Ok(None) => break,
                    Err(status) => {
                        reached = after(&status, reached);
                        break;
                    }
                }
            },
            Err(status) => reached = after(&status, reached),
        }
        target.forget();
        tokio::time::sleep(AGAIN).await;
    }
}

/// The log index after which to resume after an error: 0, for all kept history, if the node does
/// not keep the changes after `reached`; else `reached`.
fn after(status: &tonic::Status, reached: u64) -> u64 {
    if status.code() == tonic::Code::FailedPrecondition { 0 } else { reached }
}

/// The records of all commits, completed by reads of the quiet cluster: of each group at each node,
/// and of the keys below [`IDS`].
pub(crate) async fn evidence(lab: &Lab) -> CommitEvidence {
    let mut evidence = lab.commits.snapshot();
    if evidence.commits.is_empty() {
        return evidence;
    }
    for (node, target) in lab.targets.iter().enumerate() {
        for group in 0..GROUPS {
            let call = lab.recorder.clock.now();
            if let Ok((index, values, _)) = commit::read(target, group, false, REQUEST_TIMEOUT).await {
                evidence.states.push(GroupState { node, call, group, index, is_linearizable: true, values });
            }
        }
    }
    let target = &lab.targets[0];
    let read = Request::Read { key: IDS.into(), prefix: true, freshness: Freshness::Linearizable };
    if let Outcome::Ok(Answer { body: Body::Pairs(pairs), .. }) = target.send(&read, REQUEST_TIMEOUT * 4).await {
        let ids = pairs.into_iter().map(|pair| (pair.key[IDS.len()..].to_owned(), pair.version));
        evidence.ids = Some(ids.collect());
    }
    evidence
}
