//! Random faults at random times, by the seed.

use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

use super::ms;
use super::world::World;

/// Injects faults for `life_ms` of the options, then heals all of them.
pub(super) async fn happen(world: &World) {
    let mut rng = SmallRng::seed_from_u64(world.options.seed);
    let ids: Vec<u64> = world.machines.iter().map(|machine| machine.id).collect();
    // Stopped members: time of their restart, simulated milliseconds, and id.
    let mut away: Vec<(u64, u64)> = Vec::new();
    loop {
        tokio::time::sleep(ms(rng.random_range(20..300))).await;
        let now_ms = world.now_us() / 1000;
        if now_ms >= world.options.life_ms {
            break;
        }
        while let Some(at) = away.iter().position(|(due_ms, _)| *due_ms <= now_ms) {
            let id = away.swap_remove(at).1;
            if world.options.mixed && rng.random_range(0..3) == 0 {
                world.note(format_args!("member {id} is upgraded"));
                world.machine(id).upgrade();
            }
            world.start(id).await;
        }
        let id = *ids.choose(&mut rng).unwrap();
        let other = *ids.choose(&mut rng).unwrap();
        match rng.random_range(0..20) {
            0..=3 => crash(world, &mut rng, &mut away, &[id]).await,
            4 => crash(world, &mut rng, &mut away, &ids).await,
            5 => {
                world.note(format_args!("member {id} is cut off"));
                for peer in ids.iter().filter(|peer| **peer != id) {
                    world.net.cut(id, *peer);
                    world.net.cut(*peer, id);
                }
            }
            6 if id != other => {
                world.note(format_args!("nothing gets through from {id} to {other}"));
                world.net.cut(id, other);
            }
            7..=9 => {
                world.note("the network heals");
                world.net.heal();
            }
            10 => {
                world.note("messages are late and get lost");
                world.net.set_weather(15, 60);
            }
            11..=12 => {
                let flush_ms_max = *[3, 30, 200].choose(&mut rng).unwrap();
                world.note(format_args!("the disk of {id} takes up to {flush_ms_max} ms"));
                world.machine(id).disk.set_flush_ms_max(flush_ms_max);
            }
            13..=14 => {
                let Some(member) = world.member(id) else { continue };
                world.note(format_args!("member {id} makes a snapshot"));
                drop(member.raft.trigger().snapshot().await);
            }
            15..=16 => {
                let Some(member) = world.member(id) else { continue };
                let flushed = member.store.current().flush().unwrap();
                world.note(format_args!("member {id} flushes its state up to {flushed:?}"));
            }
            17 => {
                let Some(member) = world.member(id) else { continue };
                world.note(format_args!("member {id}, if it leads, hands over to {other}"));
                drop(member.raft.trigger().transfer_leader(other).await);
            }
            18 => {
                let Some(member) = world.member(id) else { continue };
                let more = member.store.current().reclaim_step(50).unwrap();
                world.note(format_args!("member {id} reclaims space: {more:?}"));
            }
            _ => {}
        }
    }
    world.net.heal();
    for machine in &world.machines {
        machine.disk.set_flush_ms_max(3);
    }
    for (_, id) in away {
        world.start(id).await;
    }
    world.note("everything heals");
}

async fn crash(world: &World, rng: &mut SmallRng, away: &mut Vec<(u64, u64)>, ids: &[u64]) {
    for id in ids {
        if world.member(*id).is_some() {
            world.lose_power(*id).await;
            let back_ms = world.now_us() / 1000 + rng.random_range(10..800);
            away.push((back_ms, *id));
        }
    }
}
