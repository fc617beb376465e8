//! Oracles: each judges one thing that must hold however hostile the input was.
//!
//! [`process::has_ended`] is checked during an attack, and ends it. `after` waits until the cluster
//! has settled, and runs the others.

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

/// The quiet cluster, before the attack.
pub(crate) struct Before {
    memory: Vec<u64>,
    sockets: Vec<usize>,
}

/// Measures the quiet cluster.
pub(crate) fn before(rig: &Rig) -> anyhow::Result<Before> {
    Ok(Before { memory: memory::resident(rig)?, sockets: descriptors::sockets(rig)? })
}

/// Everything that is wrong with the cluster after an attack.
pub(crate) async fn after(rig: &Rig, before: &Before, peak: &[u64], sentinels: &Sentinels) -> Vec<String> {
    let mut findings = process::findings(rig);
    if !findings.is_empty() {
        return findings;
    }
    // First: a member with an alarm may not say that it is ready.
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
    // Last: a panic of one task may be what the others have shown.
    findings.extend(process::findings(rig));
    findings
}

/// Takes back the alarms that an attack was allowed to raise: they refuse writes.
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

/// Repeats a check until it holds; its last error if it does not within the time.
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
