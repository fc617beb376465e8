//! Watchers: each follows an interval of keys at one member after the other, and resumes from the
//! revision after the last delivered one.

use std::sync::Arc;

use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use tokio::time::Instant;

use super::member::Member;
use super::ms;
use super::world::{Phase, World};
use headwater_node::{KeyWatch, NodeError, WatchQuery, resolve_from};
use headwater_stream::{CloseReason, Session};
use headwater_types::{KeyRange, KeyValue, KvEvent, Refusal, Revision};

/// The deliveries to one watcher.
#[derive(Debug)]
pub(super) struct Watched {
    pub(super) number: u64,
    pub(super) range: KeyRange,
    pub(super) from: Revision,
    pub(super) delivered: Vec<DeliveredRevision>,
    /// Compacted revisions, as reported by members: each gap includes its first revision, and
    /// excludes its second.
    pub(super) gaps: Vec<(Revision, Revision)>,
}

/// The delivered changes of one revision.
#[derive(Debug)]
pub(super) struct DeliveredRevision {
    pub(super) revision: Revision,
    /// Each change, with the previous pair if there was one and history still has it.
    pub(super) changes: Vec<(KvEvent, Option<KeyValue>)>,
}

pub(super) async fn run(world: Arc<World>, number: u64) -> Watched {
    let mut rng = SmallRng::seed_from_u64(world.options.seed * 1000 + 500 + number);
    let range = match number {
        1 => KeyRange::all(),
        2 => KeyRange::prefix("a".into()),
        _ => KeyRange::One("b".into()),
    };
    let mut watched = Watched { number, range, from: Revision(2), delivered: Vec::new(), gaps: Vec::new() };
    let mut next = watched.from;
    loop {
        let id = world.running().choose(&mut rng).copied();
        let Some((id, member)) = id.and_then(|id| Some((id, world.member(id)?))) else {
            tokio::time::sleep(ms(20)).await;
            continue;
        };
        match follow(&world, &member, &mut rng, &mut watched, &mut next).await {
            Ended::AtTheEnd => return watched,
            Ended::OtherMember => {}
            Ended::Compacted(revision) => {
                world.note(format_args!("watcher {number} on {id}: {next} is compacted up to {revision}"));
                watched.gaps.push((next, revision));
                next = revision;
            }
        }
        world.note(format_args!("watcher {number} leaves {id} before revision {next}"));
        tokio::time::sleep(ms(rng.random_range(1..30))).await;
    }
}

enum Ended {
    AtTheEnd,
    OtherMember,
    Compacted(Revision),
}

async fn follow(
    world: &World,
    member: &Member,
    rng: &mut SmallRng,
    watched: &mut Watched,
    next: &mut Revision,
) -> Ended {
    let session = Session::new();
    let query = WatchQuery { range: watched.range.clone(), start: Some(*next) };
    let mut watch = match KeyWatch::open(&member.store, &member.events, query, &session, 0) {
        Ok(watch) => watch,
        Err(NodeError::Refused(Refusal::Compacted { compact_revision })) => return Ended::Compacted(compact_revision),
        Err(_) => return Ended::OtherMember,
    };
    let mut phase = world.phase.subscribe();
    // After a random time, the watcher either leaves for another member, or reads nothing for a
    // while. Events do not restart that time.
    let whim = tokio::time::sleep(ms(rng.random_range(50..1500)));
    let stalls_for = rng.random::<bool>().then(|| ms(rng.random_range(100..900)));
    tokio::pin!(whim);
    loop {
        loop {
            match watch.try_next() {
                Ok(Some(item)) => {
                    let revision = item.commit().revision().unwrap();
                    if resolve_from(&member.store, std::slice::from_ref(&item), usize::MAX).is_err() {
                        return Ended::OtherMember;
                    }
                    let change = |position: usize| {
                        let event = item.commit().events()[position].clone();
                        (event, item.commit().prev(position).and_then(|prev| prev.cloned()))
                    };
                    watched
                        .delivered
                        .push(DeliveredRevision { revision, changes: item.positions().map(change).collect() });
                    *next = revision.next();
                }
                Ok(None) => break,
                Err(CloseReason::Compacted { revision }) => return Ended::Compacted(revision),
                Err(_) => return Ended::OtherMember,
            }
        }
        let now = *phase.borrow_and_update();
        if let Phase::Ending(index) = now
            && member.events.kv().published().index >= index
            && watch.is_through(index)
        {
            return Ended::AtTheEnd;
        }
        tokio::select! {
            biased;
            () = &mut whim, if now == Phase::Living => match stalls_for {
                Some(stall) => {
                    tokio::time::sleep(stall).await;
                    whim.as_mut().reset(Instant::now() + ms(60_000));
                }
                None => return Ended::OtherMember,
            },
            _ = session.raised() => {}
            _ = phase.changed() => {}
            () = tokio::time::sleep(ms(50)) => {}
        }
    }
}
