//! The enemy's part of a run: the memory of nodes before it starts, their memory and answers while
//! it attacks and no fault is active, and the members and leases that it leaves in the end.

use std::time::{Duration, Instant};

use futures::future::join_all;
use headwater_proto::pb::etcdserverpb::RangeRequest;
use headwater_proto::pb::etcdserverpb::kv_client::KvClient;

use crate::args::Plan;
use crate::check::enemy::Siege;
use crate::enemy::{LEASE_IDS, possible};
use crate::history::{Answer, Body, Outcome, Request};
use crate::retry_budget::retry;
use crate::rig::Rig;
use crate::rig::enemy::{Enemy, EnemyOptions};
use crate::run::leases;
use crate::work::Control;

/// Time for which the enemy attacks before the first fault: nodes end a stalled stream only after
/// thirty seconds.
const ALONE: Duration = Duration::from_secs(45);
const ALONE_CONTROL: Duration = Duration::from_secs(15);
/// Longest wait until the memory of nodes under the load of all clients is level: windows of events
/// and caches fill for a minute and more.
const LEVEL_MAX: Duration = Duration::from_secs(180);
const LEVEL_MAX_CONTROL: Duration = Duration::from_secs(20);
/// Memory is level if it grew by less than 1 / this within [`LEVEL_TIME`].
const LEVEL_PARTS: u64 = 20;
const LEVEL_TIME: Duration = Duration::from_secs(20);
const SAMPLE: Duration = Duration::from_millis(250);
/// Time in which honest readers read everything, as the enemy does later: the memory that nodes
/// need for such answers is part of the measure without the enemy, as in `scripts/show-attacks`.
const HONEST: Duration = Duration::from_secs(15);
/// Number of honest readers at each node.
const HONEST_READERS: usize = 8;
/// Interval of keep-alives.
const KEEP_ALIVE: Duration = Duration::from_millis(300);
/// Time to live of the lease that is kept alive.
const LEASE_SECONDS: i64 = 20;
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// The attack that [`Control::OpenDoor`] replaces by a legal request.
const HARMLESS: &str = "foreign-origin";
/// The attack that the enemy of [`Control::IdleEnemy`] does not make.
const IDLE: &str = "last-term-vote";

/// The running enemy, and the evidence from the time before the first fault.
pub(crate) struct Besieged {
    enemy: Enemy,
    siege: Siege,
}

/// Measures the nodes' memory, starts the enemy, then measures memory and keep-alives under attack.
///
/// # Errors
///
/// If the enemy cannot be started.
pub(crate) async fn begin(plan: &Plan, rig: &Rig) -> anyhow::Result<Besieged> {
    let mut attacks: Vec<&'static str> = possible(plan.tls).map(|attack| attack.name).collect();
    let mut without = Vec::new();
    // Members of an older version know no invitations.
    if !rig.needs_invitations() || plan.next.is_some() {
        println!("skipped: attack join: nodes join without an invitation");
        attacks.retain(|name| *name != "join");
        without.push("join");
    }
    let control = |wanted| plan.control == Some(wanted);
    if control(Control::IdleEnemy) {
        without.push(IDLE);
    }
    let (alone, level_max) = match plan.control {
        Some(_) => (ALONE_CONTROL, LEVEL_MAX_CONTROL),
        None => (ALONE, LEVEL_MAX),
    };
    let level = level_memory(rig, level_max).await;
    let reading = async {
        let (most, taken) = tokio::join!(most_memory(rig, HONEST), honest_readers(rig, HONEST));
        println!("{taken} whole ranges were taken by honest readers");
        most
    };
    let quiet: Vec<u64> = level.into_iter().zip(reading.await).map(|(level, reading)| level.max(reading)).collect();
    let harmless = control(Control::OpenDoor).then_some(HARMLESS);
    let enemy = rig.start_enemy(&EnemyOptions { seed: plan.seed, without: &without, harmless })?;
    let (attacked, keep_alives) = tokio::join!(most_memory(rig, alone), keep_alives(rig, alone));
    let done: usize = enemy.tally().values().map(|tally| tally.refused).sum();
    println!("the enemy has been refused {done} times before the first fault");
    let siege = Siege { attacks, quiet, attacked, keep_alives, ..Siege::default() };
    Ok(Besieged { enemy, siege })
}

/// Ends the enemy, records members that are no nodes of the rig, and revokes the enemy's leases.
pub(crate) async fn end(Besieged { enemy, mut siege }: Besieged, rig: &Rig) -> Siege {
    siege.tally = enemy.tally();
    siege.ended = enemy.stop().await;
    let urls: Vec<String> = (0..rig.nodes.len()).map(|node| rig.peer_url(node)).collect();
    match retry(|| async { rig.members(0).await.map_err(|error| format!("{error:#}")) }).await {
        Ok(members) => {
            let strangers = members.iter().filter(|member| !member.peer_ur_ls.iter().all(|url| urls.contains(url)));
            siege.strangers = strangers.map(|member| format!("{member:?}")).collect();
        }
        Err(why) => siege.strangers = vec![format!("the members are not known: {why}")],
    }
    let target = &rig.nodes[0].target;
    for lease in leases(target).await.unwrap_or_default().into_iter().filter(|lease| LEASE_IDS.contains(lease)) {
        // The checker of leases finds a lease that this leaves.
        drop(target.send(&Request::Revoke { lease }, CALL_TIMEOUT).await);
    }
    siege
}

/// The highest resident memory of each node in the last of several periods, bytes. Periods of
/// [`LEVEL_TIME`] follow each other until the memory is level or `limit` has passed.
async fn level_memory(rig: &Rig, limit: Duration) -> Vec<u64> {
    let begin = Instant::now();
    let mut before = most_memory(rig, LEVEL_TIME.min(limit)).await;
    while begin.elapsed() < limit {
        let now = most_memory(rig, LEVEL_TIME).await;
        let is_level = now.iter().zip(&before).all(|(now, before)| *now < before + before / LEVEL_PARTS);
        before = now;
        if is_level {
            break;
        }
    }
    println!("memory under the load of all clients: {} s until it was level", begin.elapsed().as_secs());
    before
}

/// Reads all keys again and again for `time`, with [`HONEST_READERS`] readers at each node. Returns
/// the number of successful answers.
async fn honest_readers(rig: &Rig, time: Duration) -> usize {
    let end = Instant::now() + time;
    let readers = rig.nodes.iter().flat_map(|node| (0..HONEST_READERS).map(move |_| node)).map(|node| async move {
        let mut taken = 0;
        while Instant::now() < end {
            let Ok(channel) = node.target.channel().await else { break };
            let mut kv = KvClient::new(channel).max_decoding_message_size(usize::MAX);
            let all =
                RangeRequest { key: "\0".into(), range_end: "\0".into(), serializable: true, ..Default::default() };
            match tokio::time::timeout(CALL_TIMEOUT, kv.range(all)).await {
                Ok(Ok(_)) => taken += 1,
                Ok(Err(_)) | Err(_) => tokio::time::sleep(SAMPLE).await,
            }
        }
        taken
    });
    join_all(readers).await.into_iter().sum()
}

/// Samples the memory of each node for `time`; returns its highest resident memory, bytes.
async fn most_memory(rig: &Rig, time: Duration) -> Vec<u64> {
    let mut most = vec![0; rig.nodes.len()];
    let mut ticks = tokio::time::interval(SAMPLE);
    let begin = Instant::now();
    while begin.elapsed() < time {
        ticks.tick().await;
        for (node, most) in rig.nodes.iter().zip(&mut most) {
            *most = node.resident_bytes().max(*most);
        }
    }
    most
}

/// Keeps a lease alive at each node for `time`. Returns for each node the longest time without a
/// successful answer, or `time` if no lease was granted.
async fn keep_alives(rig: &Rig, time: Duration) -> Vec<Duration> {
    join_all(rig.nodes.iter().map(|node| async {
        let target = node.target.apart();
        let granted = target.send(&Request::Grant { ttl_seconds: LEASE_SECONDS }, CALL_TIMEOUT).await;
        let Outcome::Ok(Answer { body: Body::Granted { lease, .. }, .. }) = granted else {
            return time;
        };
        let begin = Instant::now();
        let (mut last, mut longest) = (begin, Duration::ZERO);
        while begin.elapsed() < time {
            let kept = target.send(&Request::KeepAlive { lease }, CALL_TIMEOUT).await;
            if matches!(kept, Outcome::Ok(Answer { body: Body::KeptAlive { ttl_seconds: 1.. }, .. })) {
                longest = longest.max(last.elapsed());
                last = Instant::now();
            }
            tokio::time::sleep(KEEP_ALIVE).await;
        }
        drop(target.send(&Request::Revoke { lease }, CALL_TIMEOUT).await);
        longest.max(last.elapsed())
    }))
    .await
}
