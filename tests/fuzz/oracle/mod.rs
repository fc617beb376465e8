//! Oracles: each judges one property that must hold for every input, however hostile.
//!
//! [`process::has_ended`] is checked during an attack; if true, the attack ends. [`after`] waits
//! until the cluster has recovered, and runs the other oracles. Only [`status`] is run by targets,
//! on each answer.

pub(crate) mod agreement;
pub(crate) mod descriptors;
pub(crate) mod memory;
pub(crate) mod process;
pub(crate) mod progress;
pub(crate) mod sentinel;
pub(crate) mod status;

use std::time::{Duration, Instant};

use headwater_proto::pb::etcdserverpb as pb;
use headwater_proto::pb::etcdserverpb::maintenance_client::MaintenanceClient;

use crate::rig::{RECOVERY_TIMEOUT, Rig};
use sentinel::Sentinels;

/// Measurements of the cluster before the attack.
pub(crate) struct Before {
    memory: Vec<u64>,
    sockets: Vec<usize>,
}

/// Measures the cluster before the attack.
pub(crate) fn before(rig: &Rig) -> anyhow::Result<Before> {
    Ok(Before { memory: memory::resident(rig)?, sockets: descriptors::sockets(rig)? })
}

/// The findings about the cluster after an attack. `peak` is the highest resident memory of each
/// node during it, bytes.
pub(crate) async fn after(rig: &Rig, before: &Before, peak: &[u64], sentinels: &Sentinels) -> Vec<String> {
    let mut findings = process::findings(rig);
    if !findings.is_empty() {
        return findings;
    }
    // First, because a member with an alarm may not report itself as ready.
    let disarmed = eventually(async || disarm(rig).await).await;
    if let Err(error) = rig.wait_ready().await {
        findings.push(format!("the cluster does not recover: {error:#}"));
        findings.extend(process::findings(rig));
        return findings;
    }
    for error in [disarmed, progress::check(rig).await, agreement::check(rig).await] {
        findings.extend(error.err().map(|error| format!("{error:#}")));
    }
    findings.extend(sentinels.findings(rig).await);
    findings.extend(memory::findings(&before.memory, peak));
    findings.extend(descriptors::findings(rig, &before.sockets).await);
    // Last, because the other oracles may have caused a panic of a task.
    findings.extend(process::findings(rig));
    findings
}

/// Deactivates all alarms: an attack is allowed to raise them, and with them writes are refused.
async fn disarm(rig: &Rig) -> anyhow::Result<()> {
    let mut client = MaintenanceClient::new(rig.reach.channel(rig.node(0).client)?);
    for alarm in [pb::AlarmType::Nospace, pb::AlarmType::Corrupt] {
        for member in 0..=rig.nodes.len() as u64 {
            let request = pb::AlarmRequest {
                action: pb::alarm_request::AlarmAction::Deactivate as i32,
                member_id: member,
                alarm: alarm as i32,
            };
            client.alarm(request).await?;
        }
    }
    Ok(())
}

/// Repeats a check until it succeeds, for at most [`RECOVERY_TIMEOUT`]; else returns its last
/// error.
async fn eventually(mut check: impl AsyncFnMut() -> anyhow::Result<()>) -> anyhow::Result<()> {
    let give_up = Instant::now() + RECOVERY_TIMEOUT;
    loop {
        match check().await {
            Ok(()) => return Ok(()),
            Err(error) if Instant::now() >= give_up => return Err(error),
            Err(_) => tokio::time::sleep(Duration::from_millis(200)).await,
        }
    }
}
