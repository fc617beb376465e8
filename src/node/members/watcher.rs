//! A member's tasks about its own membership: publishes its name, and logs its progress.

use std::time::{Duration, Instant};

use super::keeper::MemberKeeper;
use headwater_raft::{Consensus, MemberInfo, MemberRecord};
use headwater_types::MemberChange;

/// Interval of the checks of this member's role.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);
/// Interval at which a member that catches up logs its progress.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);
/// Timeout of the request that publishes the name.
const DESCRIBE_TIMEOUT: Duration = Duration::from_secs(5);

/// The configuration that this member publishes about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct OwnMember {
    /// Configured name of the member.
    pub(crate) name: String,
    /// `http://host:port` of its client port.
    pub(crate) client_url: String,
}

/// A member's role, as it logs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// The member is not in the membership that it knows.
    Outside,
    /// A learner that gets its vote once it has caught up.
    CatchingUp,
    Learner,
    Voter,
}

impl Role {
    fn of(member: Option<&MemberRecord>) -> Self {
        match member {
            None => Self::Outside,
            Some(member) if member.voter => Self::Voter,
            Some(member) if member.info.awaits_vote => Self::CatchingUp,
            Some(_) => Self::Learner,
        }
    }
}

/// Publishes this member's name and client address whenever the membership has others or none, and
/// logs its role and progress. Returns when consensus ends or this member is removed.
pub(super) async fn run(consensus: Consensus, keeper: MemberKeeper, own: OwnMember) {
    let mut role = None;
    let mut logged_at = None;
    loop {
        tokio::select! {
            // By a timer, because progress is logged at intervals.
            () = tokio::time::sleep(LOOK_INTERVAL) => {}
            _ = consensus.ended() => return,
            () = consensus.removed() => return,
        }
        let roster = consensus.members().roster();
        let member = roster.find(consensus.node_id());
        let now = Role::of(member);
        if role != Some(now) {
            log_role(role, now);
            role = Some(now);
        }
        let is_published = |info: &MemberInfo| info.name == own.name && info.client_url == own.client_url;
        if consensus.leadership().current().leader.is_some() && member.is_some_and(|member| !is_published(&member.info))
        {
            describe(&consensus, &keeper, &own).await;
        }
        if matches!(now, Role::Outside | Role::CatchingUp)
            && logged_at.is_none_or(|at: Instant| at.elapsed() >= PROGRESS_INTERVAL)
        {
            let points = consensus.progress().points();
            tracing::info!(applied = %points.applied, committed = %points.committed, "catching up");
            logged_at = Some(Instant::now());
        }
    }
}

fn log_role(before: Option<Role>, now: Role) {
    match (before, now) {
        (_, Role::CatchingUp) => tracing::info!("this member is a learner, and votes once it has caught up"),
        (_, Role::Learner) => tracing::info!("this member is a learner"),
        (Some(_), Role::Voter) => tracing::info!("this member votes"),
        (None, Role::Voter) | (_, Role::Outside) => {}
    }
}

/// Publishes the configured name and client address, which the membership does not have yet.
async fn describe(consensus: &Consensus, keeper: &MemberKeeper, own: &OwnMember) {
    let OwnMember { name, client_url } = own.clone();
    let change = MemberChange::Describe { id: consensus.node_id(), name, client_url };
    match keeper.anywhere(change, Instant::now() + DESCRIBE_TIMEOUT).await {
        Ok(_) => tracing::info!(name = own.name, client = own.client_url, "the other members know this one's name"),
        Err(error) => tracing::debug!(%error, "the other members do not know this one's name yet"),
    }
}
