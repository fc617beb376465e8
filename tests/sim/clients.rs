//! Clients: each sends writes and reads, one after the other, to the member that was last known to
//! lead.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use openraft::ReadPolicy;
use openraft::errors::{ClientWriteError, RaftError};
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

use super::world::{Control, Phase, World};
use super::{ms, us};
use headwater_types::catalog::{
    CatalogCommand, CatalogNode, Check, CheckStatus, Deregistration, DeregistrationTarget, Registration, Service,
};
use headwater_types::commit::{CommitCondition, CommitEntity, CommitKey, CommitOp, EntityTest};
use headwater_types::{
    Applied, Command, Commit, Compact, Compare, CompareOp, CompareTarget, DeleteRange, InvitationCommand, InvitationId,
    KeyRange, KeyValue, LeaseAttach, LeaseChoice, LeaseGrant, LeaseId, LeaseRevoke, LogIndex, NewInvitation, Outcome,
    Put, RangeQuery, Revision, TokenHash, Txn, TxnOp, ValueChoice,
};

/// Keys of all clients: few, so that clients conflict.
const KEYS: [&str; 6] = ["a", "a/1", "a/2", "b", "b/1", "c"];
/// Time limit of a write, and of each of the two steps of a read.
const REQUEST_TIMEOUT: Duration = ms(1500);

/// A write and its answer. `command` is the encoded proposal; times are simulated microseconds.
#[derive(Debug)]
pub(super) struct Op {
    pub(super) client: u64,
    pub(super) began_us: u64,
    pub(super) ended_us: u64,
    pub(super) command: Bytes,
    pub(super) answer: Answer,
}

#[derive(Debug)]
pub(super) enum Answer {
    Done(Applied),
    /// The member was not the leader: the write has no effect, now or later.
    NotDone,
    InDoubt,
}

impl Op {
    pub(super) fn acknowledged(&self) -> Option<&Applied> {
        match &self.answer {
            Answer::Done(applied) => Some(applied),
            Answer::NotDone | Answer::InDoubt => None,
        }
    }

    pub(super) fn is_in_doubt(&self) -> bool {
        matches!(self.answer, Answer::InDoubt)
    }
}

/// A linearizable read and its result. `index` is the log index of the state that was read.
#[derive(Debug)]
pub(super) struct ReadSeen {
    pub(super) client: u64,
    pub(super) began_us: u64,
    pub(super) index: LogIndex,
    pub(super) key: Bytes,
    pub(super) found: Option<KeyValue>,
}

pub(super) fn plain_put() -> Put {
    Put { key: Bytes::new(), value: ValueChoice::Keep, lease: LeaseChoice::Set(LeaseId::NONE), prev_kv: false }
}

pub(super) async fn run(world: Arc<World>, client: u64) {
    let mut rng = SmallRng::seed_from_u64(world.options.seed * 1000 + client);
    let (mut target, mut number) = (1, 0);
    while *world.phase.borrow() == Phase::Living {
        tokio::time::sleep(us(rng.random_range(500..40_000))).await;
        number += 1;
        let next = match rng.random_range(0..4) {
            0 => read(&world, client, target, key(&mut rng)).await,
            _ => {
                let command = command(&mut rng, &world, &format!("{client}.{number}"));
                write(&world, client, target, command).await
            }
        };
        let running = world.running();
        target = next.or_else(|| running.choose(&mut rng).copied()).unwrap_or(target);
    }
}

fn key(rng: &mut SmallRng) -> Bytes {
    Bytes::from_static(KEYS.choose(rng).unwrap().as_bytes())
}

fn command(rng: &mut SmallRng, world: &World, value: &str) -> Command {
    let lease = |rng: &mut SmallRng| LeaseId(rng.random_range(1..=3));
    let put = |rng: &mut SmallRng| Put {
        key: key(rng),
        value: ValueChoice::Set(value.to_owned().into()),
        lease: LeaseChoice::Set(if rng.random_range(0..5) == 0 { lease(rng) } else { LeaseId::NONE }),
        prev_kv: rng.random(),
    };
    let delete = |rng: &mut SmallRng| {
        let key = key(rng);
        let range = if rng.random() { KeyRange::One(key) } else { KeyRange::prefix(key) };
        DeleteRange { range, prev_kv: rng.random() }
    };
    match rng.random_range(0..30) {
        0..=7 => Command::Put(put(rng)),
        8..=9 => Command::DeleteRange(delete(rng)),
        10..=13 => {
            let compare = Compare {
                range: KeyRange::One(key(rng)),
                op: CompareOp::Greater,
                target: CompareTarget::Version(rng.random_range(0..2)),
            };
            let other = TxnOp::Range(RangeQuery::new(KeyRange::prefix("a".into())));
            Command::Txn(Txn {
                compares: vec![compare],
                success: vec![TxnOp::Put(put(rng)), other.clone()],
                failure: vec![other, TxnOp::DeleteRange(delete(rng))],
            })
        }
        14..=15 => Command::LeaseGrant(LeaseGrant { id: lease(rng), ttl_seconds: 60 }),
        16 => Command::LeaseRevoke(LeaseRevoke { id: lease(rng) }),
        20..=23 => Command::Catalog(catalog_command(rng)),
        24..=26 => Command::Invitation(invitation_command(rng, world)),
        27..=29 => {
            let conditions = match rng.random_range(0..3) {
                0 => {
                    let test = EntityTest::Exists(rng.random());
                    vec![CommitCondition::Entity(CommitEntity::Key(key(rng)), test, None)]
                }
                _ => Vec::new(),
            };
            let mut operations = Vec::new();
            for _ in 0..rng.random_range(1..=3) {
                let operation = match rng.random_range(0..6) {
                    0 => Command::DeleteRange(delete(rng)),
                    1 => Command::LeaseGrant(LeaseGrant { id: lease(rng), ttl_seconds: 60 }),
                    2 => Command::LeaseRevoke(LeaseRevoke { id: lease(rng) }),
                    _ => Command::Put(put(rng)),
                };
                operations.push(CommitOp::new(operation).expect("an operation of a commit"));
            }
            let key = CommitKey { id: [rng.random_range(0..8); 16], body: [rng.random_range(0..2); 16] };
            let key = rng.random::<bool>().then_some(key);
            Command::Commit(Box::new(Commit { conditions, operations, key }))
        }
        17..=18 => Command::LeaseAttach(LeaseAttach { id: lease(rng), key: key(rng) }),
        _ => {
            let known = world.ops.lock().iter().rev().find_map(|op| Some(op.acknowledged()?.revision.get()));
            let revision = known.unwrap_or(1) - rng.random_range(0..30);
            Command::Compact(Compact { revision: Revision(revision) })
        }
    }
}

/// A random command that changes or uses one of a few invitations. These end soon: their clock is
/// the number of proposals ([`World::proposed`]).
fn invitation_command(rng: &mut SmallRng, world: &World) -> InvitationCommand {
    let hash = TokenHash([rng.random_range(0..4); 32]);
    match rng.random_range(0..8) {
        0..=2 => InvitationCommand::Create(NewInvitation {
            name: String::new(),
            hash,
            expires_unix_ms: world.proposed() + rng.random_range(0..400),
            uses_max: rng.random::<bool>().then(|| rng.random_range(1..3)),
            learner: rng.random(),
        }),
        3 => {
            let known = world.ops.lock().iter().rev().find_map(|op| match op.acknowledged()?.outcome {
                Outcome::Invitation(done) => Some(done.id),
                _ => None,
            });
            InvitationCommand::Delete(known.unwrap_or(InvitationId(1)))
        }
        _ => InvitationCommand::Use { hash, incarnation: rng.random_range(1..4), node: "n".to_owned() },
    }
}

/// A random registration of one of two nodes of the catalog, with a check of random status and
/// perhaps an instance; or the deregistration of such a node or instance.
fn catalog_command(rng: &mut SmallRng) -> CatalogCommand {
    let node = format!("n{}", rng.random_range(1..=2));
    let name = ["web", "api"].choose(rng).unwrap().to_string();
    if rng.random_range(0..3) == 0 {
        let what = if rng.random() { DeregistrationTarget::Node } else { DeregistrationTarget::Service(name) };
        return CatalogCommand::Deregister(Box::new(Deregistration { node, what, guard: None }));
    }
    let status = *CheckStatus::ALL.choose(rng).unwrap();
    let check = Check { id: "alive".to_owned(), service_id: name.clone(), status, ..Check::default() };
    let mut registration = Registration {
        node: CatalogNode {
            name: node,
            address: format!("10.0.0.{}", rng.random_range(1..=2)),
            ..CatalogNode::default()
        },
        service: rng.random::<bool>().then(|| Service { name, ..Service::default() }),
        checks: vec![check],
        ..Registration::default()
    };
    registration.complete().expect("invariant: it may be proposed");
    CatalogCommand::Register(Box::new(registration))
}

/// Writes at the member `target`, and records the write. Returns the member to ask next. `None` if
/// `target` does not run, if the write is indeterminate, or if `target` knows no leader.
async fn write(world: &World, client: u64, target: u64, command: Command) -> Option<u64> {
    let member = world.member(target)?;
    let name = format!("{command:?}");
    let encoded = world.encode(command);
    let began_us = world.now_us();
    let written = tokio::time::timeout(REQUEST_TIMEOUT, member.raft.client_write(encoded.clone())).await;
    let (answer, next) = match written {
        Ok(Ok(written)) => (Answer::Done(written.data), Some(target)),
        Ok(Err(RaftError::APIError(ClientWriteError::ForwardToLeader(forward)))) => {
            (Answer::NotDone, forward.leader_id)
        }
        Ok(Err(_)) | Err(_) => (Answer::InDoubt, None),
    };
    match &answer {
        Answer::Done(applied) => {
            world.note(format_args!("client {client}: {name} on {target}: {} {:?}", applied.index, applied.outcome));
        }
        Answer::NotDone => {}
        Answer::InDoubt => world.note(format_args!("client {client}: {name} on {target}: in doubt")),
    }
    let op = Op { client, began_us, ended_us: world.now_us(), command: encoded.0, answer };
    world.ops.lock().push(op);
    next
}

/// Reads a key linearizably at the member `target`, and records the read. Returns the member to ask
/// next. `None` for a failed read, which is not recorded.
async fn read(world: &World, client: u64, target: u64, key: Bytes) -> Option<u64> {
    let member = world.member(target)?;
    let began_us = world.now_us();
    if world.options.control != Some(Control::StaleReads) {
        let linearizer = member.raft.get_read_linearizer(ReadPolicy::ReadIndex);
        let linearizer = tokio::time::timeout(REQUEST_TIMEOUT, linearizer).await.ok()?.ok()?;
        let from = linearizer.read_log_id().index();
        let mut applied = member.applied.clone();
        let reached = applied.wait_for(|applied| applied.get() >= from);
        let _seen = tokio::time::timeout(REQUEST_TIMEOUT, reached).await.ok()?.ok()?;
    }
    let db = member.store.current();
    let view = db.view().ok()?;
    let found = headwater_fsm::range(&view, &RangeQuery::new(KeyRange::One(key.clone()))).ok()?.ok()?.kvs.pop();
    let index = view.applied();
    world.reads.lock().push(ReadSeen { client, began_us, index, key, found });
    Some(target)
}
