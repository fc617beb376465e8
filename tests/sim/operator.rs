//! The operator of a cluster: announces programs, raises the cluster version and lowers it again.
//! In a cluster of mixed versions it also uses the features of the next version, some of them too
//! early.
//!
//! Programs change in `faults`, when a member restarts. A program of this version refuses commands
//! of the next version without decoding them; all members must stay equal.

use std::collections::BTreeMap;
use std::sync::Arc;

use openraft::async_runtime::watch::WatchReceiver;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::ms;
use super::world::{Phase, World};
use headwater_types::{Command, MemberProgram, NodeId, Outcome, Supported, Term, Version, VersionChange};

pub(super) async fn run(world: Arc<World>) {
    let mut rng = SmallRng::seed_from_u64(world.options.seed + 77);
    let mut announced: BTreeMap<u64, Supported> = BTreeMap::new();
    while *world.phase.borrow() == Phase::Living {
        tokio::time::sleep(ms(rng.random_range(20..200))).await;
        for machine in &world.machines {
            let supported = machine.supported();
            if announced.get(&machine.id) == Some(&supported) {
                continue;
            }
            let program = MemberProgram { program: format!("{}.0", supported.highest), supported };
            if propose(&world, Command::AnnounceProgram(NodeId(machine.id), program)).await {
                announced.insert(machine.id, supported);
            }
        }
        let Supported { lowest: before, highest: now } = Supported::RELEASE;
        let highest = if world.options.mixed { Supported::NEXT.highest } else { now };
        let command = match rng.random_range(0..8) {
            // As a leader does, only once every member has announced its program. Refused unless
            // all programs support the version, or if the term has changed.
            0..=1 if announced.len() == world.machines.len() => raise(&world, highest),
            2..=3 if announced.len() == world.machines.len() => raise(&world, now),
            0..=3 => None,
            4 => Some(Command::SetVersion(VersionChange::Downgrade { to: now })),
            // Seldom: the features of this version shall be used most of the time.
            5 if rng.random_range(0..4) == 0 => Some(Command::SetVersion(VersionChange::Downgrade { to: before })),
            5 | 6 => Some(Command::SetVersion(VersionChange::EndDowngrade)),
            _ if world.options.mixed => Some(Command::Note(format!("{}", rng.random_range(0..1000)).into())),
            _ => None,
        };
        if let Some(command) = command {
            propose(&world, command).await;
        }
    }
}

fn raise(world: &World, to: Version) -> Option<Command> {
    let id = *world.running().first()?;
    let term = world.member(id)?.raft.metrics().borrow_watched().current_term;
    Some(Command::SetVersion(VersionChange::Raise { to, term: Term(term) }))
}

/// Proposes a command at one member after the other until one answers. Returns whether the outcome
/// is no refusal; false without an answer.
async fn propose(world: &World, command: Command) -> bool {
    for id in world.running() {
        let Some(member) = world.member(id) else { continue };
        let writing = member.raft.client_write(world.encode(command.clone()));
        if let Ok(Ok(written)) = tokio::time::timeout(ms(1000), writing).await {
            world.note(format_args!("{command:?}: {:?}", written.data.outcome));
            return !matches!(written.data.outcome, Outcome::Refused(_));
        }
    }
    false
}
