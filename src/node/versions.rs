//! The cluster's version: each member announces its program, the leader raises the version, and
//! every member stores its log as the version allows, and readies its disk for a downgrade.
//!
//! Owns the decision to raise and the handle of requests about versions; the rules are in
//! `fsm::version`. Invariant: a change of the members and a raise exclude each other, so that no
//! member joins a version that its program does not support.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::{Consistency, Inner, Node, NodeError, RequestContext, tasks};
use headwater_raft::Roster;
use headwater_storage::log::LogForm;
use headwater_types::{
    Access, ClusterVersion, Command, Feature, MemberProgram, NodeId, Refusal, Supported, Term, Version, VersionChange,
    VersionRefusal,
};

/// Pause between two checks ([`check`]).
const CHECK_INTERVAL: Duration = Duration::from_millis(250);
/// Longest wait of a command for the version that it needs.
const RISE_WAIT: Duration = Duration::from_secs(2);
/// Timeout of each proposal by [`keep`], and of the removal of log entries for older programs.
/// Proposals for clients' requests have the deadlines of the requests.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(5);
/// Shortest time between two attempts to store the log in another form.
const CONVERT_RETRY: Duration = Duration::from_secs(10);
/// Interval at which a waiting proposal checks that the leader has a majority.
const MAJORITY_INTERVAL: Duration = Duration::from_millis(50);

/// The version of the cluster, and the programs of its members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterVersions {
    /// The version that the members have agreed on, and whether a downgrade is under way.
    pub cluster: ClusterVersion,
    /// The programs of the members that have announced one.
    pub programs: BTreeMap<NodeId, MemberProgram>,
}

/// Handle to the cluster's version.
#[derive(Clone, Copy)]
pub struct Versions<'a> {
    node: &'a Node,
}

impl Node {
    /// Handle to the cluster's version.
    pub fn versions(&self) -> Versions<'_> {
        Versions { node: self }
    }
}

impl Versions<'_> {
    /// The program of this member.
    pub fn own(self) -> MemberProgram {
        self.node.inner.profile.program.clone()
    }

    /// The version of the cluster as this member has applied it. Cheap.
    pub fn cluster(self) -> ClusterVersion {
        self.node.inner.store.current().head().version
    }

    /// The versions, after a read of the requested consistency.
    ///
    /// # Errors
    ///
    /// As [`Node::authorize_somebody`]; also any error of admission or of the read.
    pub async fn read(self, ctx: &RequestContext, consistency: Consistency) -> Result<ClusterVersions, NodeError> {
        self.node.ready_to_read(ctx, consistency).await?;
        self.node.authorize_somebody(ctx)?;
        self.known()
    }

    /// Whether the cluster's version is `needs` or newer. Waits for that, at most [`RISE_WAIT`] and
    /// until `deadline`. False at once if a program or a downgrade holds the version back. The
    /// members of a new cluster agree on its version within a second.
    ///
    /// # Errors
    ///
    /// If the disk failed.
    pub(super) async fn reaches(self, needs: Version, deadline: Instant) -> Result<bool, NodeError> {
        // Every cluster has the first version: most commands ask no further.
        if needs <= ClusterVersion::FIRST.version || self.cluster().version >= needs {
            return Ok(true);
        }
        let deadline = deadline.min(Instant::now() + RISE_WAIT);
        let mut applied = self.node.applied();
        loop {
            applied.mark_unchanged();
            let known = self.known()?;
            if known.cluster.version >= needs {
                return Ok(true);
            }
            let holds_back = known.programs.values().any(|program| !program.supported.has(needs));
            if known.cluster.is_downgrading || holds_back {
                return Ok(false);
            }
            match tokio::time::timeout_at(deadline.into(), applied.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) | Err(_) => return Ok(false),
            }
        }
    }

    fn known(self) -> Result<ClusterVersions, NodeError> {
        let read = self
            .node
            .inner
            .store
            .read(|view| Ok(ClusterVersions { cluster: view.head().version, programs: view.programs()? }));
        Ok(read?)
    }

    /// Checks whether the version can be lowered to `to` now, by the same rule as
    /// [`enable_downgrade`](Self::enable_downgrade). Changes nothing.
    ///
    /// # Errors
    ///
    /// [`NodeError::Refused`] with the [`VersionRefusal`] that
    /// [`enable_downgrade`](Self::enable_downgrade) would get now, or without the right; otherwise
    /// as [`read`](Self::read).
    pub async fn validate_downgrade(self, ctx: &RequestContext, to: Version) -> Result<(), NodeError> {
        let versions = self.read(ctx, Consistency::Linearizable).await?;
        self.node.authorize_cluster(ctx, Access::WRITE)?;
        let has_rights = self.node.inner.store.current().head().has_rights();
        let allowed = versions.cluster.check_downgrade(to, versions.programs.values(), has_rights);
        allowed.map_err(|refusal: VersionRefusal| NodeError::Refused(Refusal::from(refusal)))
    }

    /// Lowers the version to `to`, so that the members can be replaced by older programs.
    ///
    /// # Errors
    ///
    /// [`NodeError::Refused`] with the [`VersionRefusal`]; those of proposals.
    pub async fn enable_downgrade(self, ctx: &RequestContext, to: Version) -> Result<(), NodeError> {
        self.change(ctx, VersionChange::Downgrade { to }).await
    }

    /// Ends a downgrade: the version rises again once all members support the next one.
    ///
    /// # Errors
    ///
    /// [`NodeError::Refused`] with the [`VersionRefusal`]; those of proposals.
    pub async fn cancel_downgrade(self, ctx: &RequestContext) -> Result<(), NodeError> {
        self.change(ctx, VersionChange::EndDowngrade).await
    }

    async fn change(self, ctx: &RequestContext, change: VersionChange) -> Result<(), NodeError> {
        self.node.propose(ctx, Command::SetVersion(change)).await.map(drop)
    }
}

/// Announces this member's program. While this member leads, raises the cluster's version or ends a
/// downgrade. Readies the disk for older programs once the version is lowered. Ends when the node
/// is dropped.
pub(super) async fn keep(inner: Weak<Inner>) {
    if !tasks::once_serving(&inner).await {
        return;
    }
    let mut logged = BTreeSet::new();
    let mut convert_after = Instant::now();
    loop {
        let Some(inner) = inner.upgrade() else { return };
        let node = Node { inner };
        if let Err(error) = check(&node, &mut logged, &mut convert_after).await {
            tracing::debug!(%error, "the versions are checked again later");
        }
        drop(node);
        tokio::time::sleep(CHECK_INTERVAL).await;
    }
}

/// One check of [`keep`]: announces this member's program if the replicated state lacks it,
/// otherwise does the other steps that are due. `logged` has the members that were logged as
/// holding the version back; before `convert_after` the log is not converted.
async fn check(node: &Node, logged: &mut BTreeSet<NodeId>, convert_after: &mut Instant) -> Result<(), NodeError> {
    let versions = node.versions().known()?;
    let own = &node.inner.profile.program;
    let me = node.identity().node_id;
    let members = node.inner.consensus.members();
    let leadership = node.leadership();
    let is_member = members.applied_roster().find(me).is_some();
    if leadership.leader.is_some() && is_member && versions.programs.get(&me) != Some(own) {
        propose(node, Command::AnnounceProgram(me, own.clone())).await?;
        tracing::info!(program = own.program, "the other members know this one's program");
        return Ok(());
    }
    if leadership.leader == Some(me) {
        let roster = members.roster();
        let target = next_version(&versions, own.supported, &roster);
        let holding =
            if target == Target::Stay { holding_back(&versions, own.supported, &roster) } else { BTreeSet::new() };
        if holding != *logged {
            if !holding.is_empty() {
                let members: Vec<u64> = holding.iter().map(|id| id.get()).collect();
                tracing::info!(version = %versions.cluster.version, ?members, "the cluster's version rises once these are upgraded");
            }
            *logged = holding;
        }
        if target != Target::Stay {
            while_possible(node, change(node, leadership.term)).await?;
        }
    }
    #[cfg(feature = "next-version")]
    if leadership.leader == Some(me) && headwater_types::Feature::Notes.is_in(versions.cluster.version) {
        let text = format!("{}", super::unix_ms()).into();
        propose(node, Command::Note(text)).await?;
    }
    use_newest_log_form(node, convert_after).await?;
    ready_for_older_programs(node, convert_after).await
}

/// Proposes `command` and waits for its outcome, for as long as [`while_possible`] allows.
async fn propose(node: &Node, command: Command) -> Result<(), NodeError> {
    let ctx = RequestContext::own(CHANGE_TIMEOUT);
    while_possible(node, async { node.propose(&ctx, command).await.map(drop) }).await
}

/// Waits for `change`. Gives up when this node stops or the majority is lost: a longer wait would
/// hold the node's files, or keep other changes of the members waiting, until the deadline of
/// `change`. The next check decides again whether the change is due.
async fn while_possible(node: &Node, change: impl Future<Output = Result<(), NodeError>>) -> Result<(), NodeError> {
    let without_majority = async {
        while node.live_leader().is_some() {
            tokio::time::sleep(MAJORITY_INTERVAL).await;
        }
    };
    tokio::select! {
        made = change => made,
        () = node.streams_closing() => Err(NodeError::Stopped),
        _ = node.inner.consensus.ended() => Err(NodeError::Stopped),
        () = without_majority => Err(NodeError::NoLeader),
    }
}

/// Proposes the version change that is due, decided again while changes of the membership are held
/// back. `term` is the term in which this member leads.
async fn change(node: &Node, term: Term) -> Result<(), NodeError> {
    let _members_stay = node.inner.members.hold_changes().await;
    let versions = node.versions().known()?;
    let roster = node.inner.consensus.members().roster();
    let change = match next_version(&versions, node.inner.profile.program.supported, &roster) {
        Target::Raise(to) => VersionChange::Raise { to, term },
        Target::EndDowngrade => VersionChange::EndDowngrade,
        Target::Stay => return Ok(()),
    };
    node.propose(&RequestContext::own(CHANGE_TIMEOUT), Command::SetVersion(change)).await?;
    let version = node.versions().cluster().version;
    if change == VersionChange::EndDowngrade {
        tracing::info!(%version, "all members run it: the downgrade is complete");
    } else {
        tracing::info!(%version, "all members support it: the cluster's version");
    }
    Ok(())
}

/// The version change that is due, if any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    Raise(Version),
    EndDowngrade,
    Stay,
}

/// Decides the next step. `own` has the versions that this leader supports. The version stays while
/// any member has no announced program: the member has not started yet, or runs a version that does
/// not announce its program.
fn next_version(versions: &ClusterVersions, own: Supported, roster: &Roster) -> Target {
    let cluster = versions.cluster;
    let supported: Option<Vec<Supported>> = roster
        .members
        .iter()
        .map(|member| versions.programs.get(&member.id).map(|program| program.supported))
        .collect();
    let Some(supported) = supported.filter(|supported| !supported.is_empty()) else { return Target::Stay };
    let highest = supported.iter().map(|one| one.highest).fold(own.highest, Version::min);
    if cluster.is_downgrading {
        let is_done = supported.iter().all(|one| one.highest <= cluster.version);
        return if is_done { Target::EndDowngrade } else { Target::Stay };
    }
    if highest > cluster.version && supported.iter().all(|one| one.has(highest)) {
        Target::Raise(highest)
    } else {
        Target::Stay
    }
}

/// The members that are not known to support the leader's highest version, and so keep the
/// cluster's version below it. Empty during a downgrade, and once the cluster has that version.
/// `own` has the versions that this leader supports.
fn holding_back(versions: &ClusterVersions, own: Supported, roster: &Roster) -> BTreeSet<NodeId> {
    if versions.cluster.is_downgrading || own.highest <= versions.cluster.version {
        return BTreeSet::new();
    }
    let supports = |id| versions.programs.get(&id).is_some_and(|program| program.supported.has(own.highest));
    roster.members.iter().map(|member| member.id).filter(|id| !supports(*id)).collect()
}

/// Stores this member's log in segments, once the cluster's version has them.
async fn use_newest_log_form(node: &Node, convert_after: &mut Instant) -> Result<(), NodeError> {
    let version = node.inner.store.current().head().version.version;
    // The mark rises before the version is seen: a program that does not know segments does not
    // start on them.
    let needs = node.inner.lifecycle.data_dir.version_mark().needs();
    if !Feature::LogSegments.is_in(version.min(needs)) {
        return Ok(());
    }
    convert_log(node, LogForm::Segments, convert_after).await
}

/// Stores this member's log in `form`. Writes wait meanwhile. If it fails, the log stays as it is,
/// and `convert_after` is when it may be tried again.
async fn convert_log(node: &Node, form: LogForm, convert_after: &mut Instant) -> Result<(), NodeError> {
    let log = node.inner.lifecycle.log.upgrade().ok_or(NodeError::Stopped)?;
    if log.form() == form {
        return Ok(());
    }
    if Instant::now() < *convert_after {
        return Err(NodeError::Timeout);
    }
    let (done, converted) = oneshot::channel();
    log.convert(form, move |result| {
        // The node may stop meanwhile.
        drop(done.send(result));
    });
    drop(log);
    let Ok(result) = converted.await else { return Err(NodeError::Stopped) };
    result.map_err(|error| {
        *convert_after = Instant::now() + CONVERT_RETRY;
        tracing::warn!(%error, %form, retry = ?CONVERT_RETRY, "the log stays as it is, because it cannot be stored in another form");
        NodeError::Timeout
    })
}

/// Makes the data directory usable by older programs, if its mark needs a newer version than the
/// cluster's. Makes history plain, flushes the state, removes the applied log entries, stores the
/// log in the form that the version knows, then lowers the mark. The mark stays if the version or
/// the state has changed meanwhile.
async fn ready_for_older_programs(node: &Node, convert_after: &mut Instant) -> Result<(), NodeError> {
    let db = node.inner.store.current();
    let rises = db.version_rises();
    let version = db.head().version.version;
    let mark = node.inner.lifecycle.data_dir.version_mark();
    if mark.needs() <= version {
        return Ok(());
    }
    let through = db.head().applied_index();
    let flushing = Arc::clone(&db);
    let flushed = tokio::task::spawn_blocking(move || {
        flushing.make_history_plain()?;
        flushing.flush()
    });
    flushed.await.map_err(|_| NodeError::Stopped)??;
    if !node.inner.consensus.progress().forget_log(through, CHANGE_TIMEOUT).await {
        return Err(NodeError::Timeout);
    }
    if !Feature::LogSegments.is_in(version) {
        convert_log(node, LogForm::RocksDb, convert_after).await?;
    }
    // The version may have risen meanwhile, and may even have fallen again: then there are newer
    // records than those that were removed, and the next check removes them.
    let is_same = Arc::ptr_eq(&db, &node.inner.store.current()) && db.version_rises() == rises;
    if !is_same || db.head().version.version != version {
        return Ok(());
    }
    mark.lower(version)?;
    tracing::info!(%version, "this member's data can be taken over by that version's program");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_raft::{MemberInfo, MemberRecord};

    fn roster(ids: &[u64]) -> Roster {
        let record =
            |id: &u64| MemberRecord { id: NodeId(*id), info: MemberInfo::default(), voter: true, leaving: false };
        let mut roster = Roster::default();
        roster.members.extend(ids.iter().map(record));
        roster
    }

    #[test]
    fn the_version_rises_with_the_last_member_and_stays_low_in_a_downgrade() {
        let v = |minor| Version::new(0, minor);
        let program = |lowest, highest| MemberProgram {
            program: String::new(),
            supported: Supported { lowest: v(lowest), highest: v(highest) },
        };
        let decide = |cluster: u8, is_downgrading, own: u8, programs: &[(u64, u8, u8)]| {
            let programs = programs.iter().map(|(id, low, high)| (NodeId(*id), program(*low, *high))).collect();
            let cluster = ClusterVersion { version: v(cluster), is_downgrading };
            let own = Supported { lowest: v(own - 1), highest: v(own) };
            next_version(&ClusterVersions { cluster, programs }, own, &roster(&[1, 2, 3]))
        };
        let all_new = [(1, 3, 4), (2, 3, 4), (3, 3, 4)];
        assert_eq!(decide(3, false, 4, &all_new), Target::Raise(v(4)));
        assert_eq!(decide(4, false, 4, &all_new), Target::Stay, "it is there");
        assert_eq!(decide(3, false, 3, &all_new), Target::Stay, "this leader does not know it");
        assert_eq!(decide(3, false, 4, &[(1, 3, 4), (2, 3, 3), (3, 3, 4)]), Target::Stay);
        assert_eq!(decide(3, false, 4, &[(1, 3, 4), (3, 3, 4)]), Target::Stay, "one is silent");
        assert_eq!(decide(3, false, 4, &[(1, 3, 4), (2, 3, 4), (3, 3, 4), (9, 3, 3)]), Target::Raise(v(4)));
        assert_eq!(decide(3, true, 4, &all_new), Target::Stay, "older programs are on their way");
        let all_old = [(1, 3, 3), (2, 3, 3), (3, 3, 3)];
        assert_eq!(decide(3, true, 3, &all_old), Target::EndDowngrade);
        assert_eq!(decide(3, true, 4, &[(1, 3, 4), (2, 3, 3), (3, 3, 3)]), Target::Stay);

        let programs = [(1, 3, 4), (2, 3, 3)].map(|(id, low, high)| (NodeId(id), program(low, high)));
        let versions = ClusterVersions { cluster: ClusterVersion::FIRST, programs: programs.into() };
        let own = Supported { lowest: v(3), highest: v(4) };
        let holding = holding_back(&versions, own, &roster(&[1, 2, 3]));
        assert_eq!(holding, [NodeId(2), NodeId(3)].into(), "one is old, one is silent");
        let old = Supported { lowest: v(3), highest: v(3) };
        assert!(holding_back(&versions, old, &roster(&[1, 2, 3])).is_empty());
    }
}
