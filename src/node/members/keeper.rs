//! The leader's side of the membership: makes changes one after the other, and gives announced
//! members their vote once they have caught up.
//!
//! A voter is never added before it has caught up: until then it is a learner, and so cannot block
//! the quorum. Invariant: an id is never given twice (spec: reliability §3.2, 7).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use futures::future::{BoxFuture, FutureExt};
use tokio::sync::{Mutex, OwnedMutexGuard};

use super::MembershipPolicy;
use super::invited::join_label;
use super::rules::{MembershipStatus, is_unstarted};
use headwater_raft::{
    ChangeError, ChangeFrom, Consensus, MemberInfo, MemberProgress, MemberRecord, MembershipService, MembershipStep,
    ReadIndexError, Roster, StepError,
};
use headwater_storage::StateStore;
use headwater_types::limits::LEARNER_LAG_MS_MAX;
use headwater_types::{Joining, LogIndex, MemberChange, MemberChanged, MemberRefusal, NodeId};

/// Largest lag of a learner that may be promoted: it has all log entries older than this.
const LEARNER_LAG_MAX: Duration = Duration::from_millis(LEARNER_LAG_MS_MAX);
/// Longest wait for the promotion of a learner that seems ready. A promotion that has begun
/// continues after it; one that has not is offered again by a later check.
const PROMOTE_TIMEOUT: Duration = Duration::from_secs(2);
/// Longest wait of a join until this leader has applied its whole log.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(1);
/// Time after which a half-done change of voters is logged as a warning.
const JOINT_CHANGE_MAX: Duration = Duration::from_secs(2);
/// Interval at which the leader checks for members that have caught up.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// Longest wait for a change of leader before a membership change is offered again.
const LEADER_PAUSE: Duration = Duration::from_millis(50);

/// Makes changes of the membership; cheap to clone.
#[derive(Clone)]
pub(super) struct MemberKeeper {
    pub(super) consensus: Consensus,
    /// Held during a change: changes are made one after the other.
    turn: Arc<Mutex<()>>,
    log_ends: Arc<parking_lot::Mutex<LogEndHistory>>,
    hand_over_timeout: Duration,
    /// Whether a voter is announced only if all voters run.
    strict: bool,
    /// Whether a node that was not announced joins by invitation alone.
    pub(super) invited_only: bool,
    /// The store, for the cluster's version and the invitations. Weak, because consensus holds this
    /// keeper for as long as consensus lives.
    pub(super) store: Weak<StateStore>,
}

/// Recent ends of the leader's log, by time.
#[derive(Debug, Default)]
struct LogEndHistory {
    points: VecDeque<(Instant, LogIndex)>,
}

impl LogEndHistory {
    /// Records the end of the log now. Forgets points that are older than needed.
    fn note(&mut self, now: Instant, last: LogIndex) {
        self.points.push_back((now, last));
        while self.points.get(1).is_some_and(|(at, _)| now.duration_since(*at) >= LEARNER_LAG_MAX) {
            self.points.pop_front();
        }
    }

    /// The end of the log `LEARNER_LAG_MAX` ago; `None` if records do not reach back so far.
    fn recent(&self, now: Instant) -> Option<LogIndex> {
        let old_enough = self.points.iter().rev().find(|(at, _)| now.duration_since(*at) >= LEARNER_LAG_MAX);
        old_enough.map(|(_, last)| *last)
    }
}

/// A change of voters that is half done, as a joint configuration: the time at which this leader
/// first saw it, and whether the warning was logged.
#[derive(Debug, Default)]
struct JointChange {
    since: Option<Instant>,
    is_logged: bool,
}

impl JointChange {
    /// Logs a warning, once, if the change is still half done after `JOINT_CHANGE_MAX`. It needs a
    /// majority of the voters before it and of those after it; the warning names the silent voters.
    fn look(&mut self, consensus: &Consensus, roster: &Roster) {
        let since = *self.since.get_or_insert_with(Instant::now);
        if self.is_logged || since.elapsed() < JOINT_CHANGE_MAX {
            return;
        }
        self.is_logged = true;
        let progress = consensus.members().progress();
        let is_silent = |member: &&MemberRecord| !progress.get(&member.id).is_some_and(|progress| progress.is_live);
        let silent: Vec<u64> = roster.voters().filter(is_silent).map(|member| member.id.get()).collect();
        let leaving: Vec<u64> = roster.voters().filter(|member| member.leaving).map(|member| member.id.get()).collect();
        tracing::warn!(
            ?silent,
            ?leaving,
            "a change of voters is half done, and waits for a majority of the voters before it and of those after it: start a \
             silent member again, and it comes to its end by itself"
        );
    }
}

type Changed = Result<MemberChanged, ChangeError>;

impl MemberKeeper {
    pub(super) fn new(
        consensus: Consensus,
        hand_over_timeout: Duration,
        policy: MembershipPolicy,
        store: Weak<StateStore>,
    ) -> Self {
        let MembershipPolicy { strict, invited_only } = policy;
        Self {
            consensus,
            turn: Arc::default(),
            log_ends: Arc::default(),
            hand_over_timeout,
            strict,
            invited_only,
            store,
        }
    }

    /// Waits for the change under way, if any, and blocks further ones until the guard is dropped.
    pub(super) async fn hold_changes(&self) -> OwnedMutexGuard<()> {
        self.turn.clone().lock_owned().await
    }

    /// Makes a change on the leader, which may be another member. Retries until a leader answers, a
    /// majority is known to be lost, or `deadline` is near.
    pub(super) async fn anywhere(&self, change: MemberChange, deadline: Instant) -> Changed {
        loop {
            let result = match self.consensus.leadership().current().leader {
                Some(leader) if leader != self.consensus.node_id() => {
                    let limit = deadline.saturating_duration_since(Instant::now());
                    self.consensus.members().request_change(leader, change.clone(), limit).await
                }
                Some(_) => self.here(change.clone(), deadline).await,
                None => Err(ChangeError::NotLeader),
            };
            if result != Err(ChangeError::NotLeader)
                || self.consensus.leadership().lacks_majority()
                || Instant::now() + LEADER_PAUSE >= deadline
            {
                return result;
            }
            self.consensus.leadership().wait_for_change(LEADER_PAUSE).await;
        }
    }

    /// Makes a change on this member, which must lead. At `deadline` it returns: `NotLeader` if the
    /// change had not begun, else `Interrupted`. A change that has begun continues, and later
    /// changes wait for its end.
    pub(super) async fn here(&self, change: MemberChange, deadline: Instant) -> Changed {
        if let MemberChange::Join(joining) = &change {
            // Before its turn: many uninvited nodes must not delay other changes.
            let judging = async {
                self.confirm().await?;
                self.judge(joining)
            };
            let judged = tokio::time::timeout_at(deadline.into(), judging).await;
            if let Err(error) = judged.unwrap_or(Err(ChangeError::NotLeader)) {
                let refused = Err(error);
                self.count(&change, &refused);
                return refused;
            }
        }
        let Ok(turn) = tokio::time::timeout_at(deadline.into(), self.turn.clone().lock_owned()).await else {
            return Err(ChangeError::NotLeader);
        };
        let keeper = self.clone();
        let making = tokio::spawn(async move {
            let made = keeper.make(&change).await;
            keeper.count(&change, &made);
            drop(turn);
            made
        });
        match tokio::time::timeout_at(deadline.into(), making).await {
            Ok(Ok(made)) => made,
            Ok(Err(panicked)) => Err(ChangeError::Interrupted(panicked.to_string())),
            Err(_) => Err(ChangeError::Interrupted("a majority of the members has not taken it in time".to_owned())),
        }
    }

    fn count(&self, change: &MemberChange, made: &Changed) {
        let metrics = self.consensus.metrics();
        match (change, made) {
            (MemberChange::Promote(_), Ok(_)) => metrics.promoted(None),
            (MemberChange::Promote(_), Err(ChangeError::Refused(refusal))) => metrics.promoted(Some(refusal)),
            (MemberChange::Join(joining), made) => {
                if let Some(label) = join_label(made) {
                    metrics.joined(label);
                }
                if let Err(ChangeError::Refused(refusal)) = made {
                    tracing::warn!(node = joining.name, peer = joining.peer_url, %refusal, "a node may not join");
                }
            }
            _ => {}
        }
    }

    async fn make(&self, change: &MemberChange) -> Changed {
        self.confirm().await?;
        self.attempt(change).await
    }

    /// Confirms that this member leads, and waits until it has applied the changes of earlier
    /// leaders: then it knows every id that was ever given.
    async fn confirm(&self) -> Result<(), ChangeError> {
        let index = match self.consensus.leadership().confirm().await {
            Ok((_, index)) => index,
            Err(ReadIndexError::NotLeader(_) | ReadIndexError::NoQuorum) => return Err(ChangeError::NotLeader),
            Err(ReadIndexError::Stopped(_)) => return Err(ChangeError::NotLeader),
        };
        let mut applied = self.consensus.progress().applied();
        applied.wait_for(|applied| *applied >= index).await.map(drop).map_err(|_| ChangeError::NotLeader)
    }

    async fn attempt(&self, change: &MemberChange) -> Changed {
        let roster = self.settled().await?;
        let progress = self.asked(&roster, change).await;
        let membership_status = MembershipStatus { roster: &roster, progress: &progress, recent: self.recent() };
        match change {
            MemberChange::Add { peer_url, learner } => {
                membership_status.may_add(peer_url, *learner, self.strict)?;
                let info = MemberInfo { peer_url: peer_url.clone(), awaits_vote: !*learner, ..MemberInfo::default() };
                self.add(&roster, info).await
            }
            MemberChange::Join(joining) => self.join(&membership_status, joining).await,
            MemberChange::Promote(id) => {
                membership_status.may_promote(*id)?;
                let index = self.take(&roster, MembershipStep::MakeVoter(*id)).await?;
                tracing::info!(member = %id, %index, "the member votes");
                Ok(MemberChanged { id: *id, index })
            }
            MemberChange::Remove(id) => {
                membership_status.may_remove(*id)?;
                self.remove(&roster, *id).await
            }
            MemberChange::Update { id, peer_url } => {
                membership_status.may_move(*id, peer_url)?;
                let is_there = match roster.find(*id) {
                    Some(member) => self.consensus.members().answers_at(*id, &member.info.peer_url).await,
                    None => false,
                };
                self.rewrite(&roster, *id, |info| info.move_to(peer_url, is_there)).await
            }
            MemberChange::Describe { id, name, client_url } => {
                self.rewrite(&roster, *id, |info| {
                    info.name.clone_from(name);
                    info.client_url.clone_from(client_url);
                })
                .await
            }
        }
    }

    /// Waits until this member has applied its whole log, at most `CATCH_UP_TIMEOUT`: a change of
    /// the cluster's version may be in it.
    async fn catch_up(&self) -> Result<(), ChangeError> {
        let last = self.consensus.progress().points().last;
        let mut applied = self.consensus.progress().applied();
        match tokio::time::timeout(CATCH_UP_TIMEOUT, applied.wait_for(|applied| *applied >= last)).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(ChangeError::NotLeader),
        }
    }

    /// The progress of the members, with `is_live` set only for members that answer now. Earlier
    /// contact does not count: a failed member is noticed late, and a change that needs it would
    /// block everything. `confirm` has already reached a majority of today's voters.
    async fn asked(&self, roster: &Roster, change: &MemberChange) -> BTreeMap<NodeId, MemberProgress> {
        let mut progress = self.consensus.members().progress();
        let recent = self.recent();
        let with_answers = |answered: &BTreeSet<NodeId>, progress: &mut BTreeMap<NodeId, MemberProgress>| {
            for (id, progress) in progress {
                progress.is_live = answered.contains(id);
            }
        };
        let is_enough = |answered: &BTreeSet<NodeId>| {
            let mut progress = progress.clone();
            with_answers(answered, &mut progress);
            let membership_status = MembershipStatus { roster, progress: &progress, recent };
            match change {
                MemberChange::Promote(id) => membership_status.may_promote(*id).is_ok(),
                MemberChange::Remove(id) => membership_status.may_remove(*id).is_ok(),
                // No answer decides about these.
                MemberChange::Add { learner: true, .. }
                | MemberChange::Update { .. }
                | MemberChange::Describe { .. } => true,
                // All answers are needed: each, or its absence, may be a reason to refuse.
                MemberChange::Add { learner: false, .. } | MemberChange::Join(_) => false,
            }
        };
        let asked = whom_to_ask(roster, change);
        let answered = self.consensus.members().answering(roster, &asked, is_enough).await;
        with_answers(&answered, &mut progress);
        progress
    }

    /// The least log index of a member that counts as caught up: the end of this leader's log
    /// `LEARNER_LAG_MAX` ago, or its end now if the earlier one is unknown.
    fn recent(&self) -> LogIndex {
        let recent = self.log_ends.lock().recent(Instant::now());
        recent.unwrap_or_else(|| self.consensus.progress().points().last)
    }

    /// Completes a half-done change of voters, if there is one, and returns the roster afterwards.
    async fn settled(&self) -> Result<Roster, ChangeError> {
        let roster = self.consensus.members().roster();
        if !roster.is_joint {
            return Ok(roster);
        }
        let index = self.take(&roster, MembershipStep::Settle).await?;
        tracing::info!(%index, "brought a half-done change of voters to its end");
        Ok(self.consensus.members().roster())
    }

    async fn add(&self, roster: &Roster, info: MemberInfo) -> Changed {
        // Above every id that was ever given. Only a leader gives ids: this one has applied all
        // committed entries, and the step fails if the membership has changed since.
        let id = NodeId(self.consensus.members().highest_id().get() + 1);
        let peer = info.peer_url.clone();
        let index = self.take(roster, MembershipStep::AddLearner(id, info)).await?;
        tracing::info!(member = %id, peer, %index, "a new member");
        Ok(MemberChanged { id, index })
    }

    async fn join(&self, membership_status: &MembershipStatus<'_>, joining: &Joining) -> Changed {
        let Joining { incarnation, name, peer_url, client_url, learner, supported, token: _ } = joining;
        let roster = membership_status.roster;
        // A repeated request: the first answer was lost.
        if let Some(member) = roster.members.iter().find(|member| member.info.incarnation == *incarnation) {
            return Ok(MemberChanged { id: member.id, index: roster.index() });
        }
        self.catch_up().await?;
        let db = self.store.upgrade().ok_or(ChangeError::NotLeader)?.current();
        let (version, needs) = (db.head().version.version, db.directory_needs());
        let is_about_to_rise = !db.supported().has(version);
        drop(db);
        if is_about_to_rise {
            // A new cluster whose first change of the version is under way; the node asks again.
            return Err(ChangeError::NotLeader);
        }
        if !supported.has(version) {
            return Err(MemberRefusal::Version.into());
        }
        if needs > supported.highest {
            // The log still has entries from before a downgrade; the node asks again.
            return Err(ChangeError::NotLeader);
        }
        let mut info = MemberInfo {
            name: name.clone(),
            peer_url: peer_url.clone(),
            client_url: client_url.clone(),
            incarnation: *incarnation,
            awaits_vote: !*learner,
            ..MemberInfo::default()
        };
        let as_learner = *learner || self.is_invited_as_learner(joining)?;
        match roster.members.iter().find(|member| member.info.peer_url == *peer_url) {
            None => {
                membership_status.has_capacity(as_learner)?;
                if self.use_invitation(joining).await? {
                    info.awaits_vote = false;
                    membership_status.has_capacity(true)?;
                }
                self.add(roster, info).await
            }
            Some(member) if is_unstarted(member) => {
                // The announcement decides whether the member may vote.
                info.awaits_vote &= member.info.awaits_vote;
                let index = self.take(roster, MembershipStep::SetInfo(member.id, info)).await?;
                tracing::info!(member = %member.id, %index, "an announced member starts");
                Ok(MemberChanged { id: member.id, index })
            }
            Some(member) => {
                // A new leader has had no contact yet: all other members would seem dead.
                if self.log_ends.lock().recent(Instant::now()).is_none() {
                    return Err(MemberRefusal::StillRuns.into());
                }
                membership_status.may_replace(member.id, as_learner)?;
                if self.use_invitation(joining).await? {
                    info.awaits_vote = false;
                    membership_status.may_replace(member.id, true)?;
                }
                tracing::info!(member = %member.id, "its node comes back without data, under a new id");
                self.remove(roster, member.id).await?;
                let roster = self.consensus.members().roster();
                self.add(&roster, info).await
            }
        }
    }

    async fn remove(&self, roster: &Roster, id: NodeId) -> Changed {
        if id == self.consensus.node_id() {
            // The next leader removes it. The member that forwarded the request asks that leader.
            self.consensus.leadership().step_aside(self.hand_over_timeout).await;
            return Err(ChangeError::NotLeader);
        }
        let index = self.take(roster, MembershipStep::Drop(id)).await?;
        tracing::info!(member = %id, %index, "the member is removed");
        Ok(MemberChanged { id, index })
    }

    async fn rewrite(&self, roster: &Roster, id: NodeId, edit: impl FnOnce(&mut MemberInfo)) -> Changed {
        let member = roster.find(id).ok_or(MemberRefusal::NotFound)?;
        let mut info = member.info.clone();
        edit(&mut info);
        if info == member.info {
            return Ok(MemberChanged { id, index: roster.index() });
        }
        let index = self.take(roster, MembershipStep::SetInfo(id, info)).await?;
        Ok(MemberChanged { id, index })
    }

    async fn take(&self, roster: &Roster, step: MembershipStep) -> Result<LogIndex, ChangeError> {
        self.consensus.members().take_step(roster, step).await.map_err(|error| match error {
            // The caller offers the change to the leader again.
            StepError::NotLeader | StepError::Outdated => ChangeError::NotLeader,
            StepError::Interrupted(why) => ChangeError::Interrupted(why),
        })
    }

    /// While this member leads: promotes members that await their vote once they have caught up,
    /// and completes half-done changes of voters. Returns when consensus ends.
    pub(super) async fn run(self) {
        let mut joint_change = JointChange::default();
        loop {
            tokio::select! {
                // By a timer: a notification of every entry's progress would cost each write.
                () = tokio::time::sleep(LOOK_INTERVAL) => {}
                _ = self.consensus.ended() => return,
            }
            if self.consensus.leadership().current().leader != Some(self.consensus.node_id()) {
                *self.log_ends.lock() = LogEndHistory::default();
                joint_change = JointChange::default();
                continue;
            }
            self.log_ends.lock().note(Instant::now(), self.consensus.progress().points().last);
            let roster = self.consensus.members().roster();
            if !roster.is_joint {
                joint_change = JointChange::default();
            }
            if roster.is_joint {
                joint_change.look(&self.consensus, &roster);
                let Ok(_turn) = self.turn.try_lock() else { continue };
                let settling = async {
                    self.confirm().await?;
                    self.settled().await
                };
                if let Err(error) = settling.await {
                    tracing::debug!(%error, "a half-done change of voters stays so for now");
                }
            } else if let Some(member) = self.ready_to_vote(&roster) {
                let deadline = Instant::now() + PROMOTE_TIMEOUT;
                if let Err(error) = self.here(MemberChange::Promote(member.id), deadline).await {
                    tracing::debug!(member = %member.id, %error, "a member that has caught up does not vote yet");
                }
            }
        }
    }

    fn ready_to_vote<'a>(&self, roster: &'a Roster) -> Option<&'a MemberRecord> {
        let waiting = roster.members.iter().filter(|member| !member.voter && member.info.awaits_vote);
        let mut waiting = waiting.peekable();
        waiting.peek()?;
        let progress = self.consensus.members().progress();
        let membership_status = MembershipStatus { roster, progress: &progress, recent: self.recent() };
        waiting.find(|member| membership_status.may_promote(member.id).is_ok())
    }
}

/// The members that must be asked before a change: their answers decide whether it may be made.
fn whom_to_ask(roster: &Roster, change: &MemberChange) -> BTreeSet<NodeId> {
    let voters_and = |also: &dyn Fn(&MemberRecord) -> bool| {
        let asked = roster.members.iter().filter(|member| member.voter || also(member));
        asked.map(|member| member.id).collect()
    };
    match change {
        MemberChange::Add { learner: false, .. } => voters_and(&|member| member.info.awaits_vote),
        MemberChange::Promote(id) => voters_and(&|member| member.id == *id),
        MemberChange::Remove(id) if roster.find(*id).is_some_and(|member| member.voter) => voters_and(&|_| false),
        MemberChange::Join(joining) => match roster.members.iter().find(|at| at.info.peer_url == joining.peer_url) {
            Some(replaced) => voters_and(&|member| member.id == replaced.id),
            None => BTreeSet::new(),
        },
        // These change no quorum.
        MemberChange::Remove(_)
        | MemberChange::Add { learner: true, .. }
        | MemberChange::Update { .. }
        | MemberChange::Describe { .. } => BTreeSet::new(),
    }
}

impl MembershipService for MemberKeeper {
    fn change(&self, from: ChangeFrom, change: MemberChange, limit: Duration) -> BoxFuture<'static, Changed> {
        let keeper = self.clone();
        async move {
            let deadline = Instant::now() + limit;
            match from {
                ChangeFrom::Member => keeper.here(change, deadline).await,
                ChangeFrom::Outsider => keeper.anywhere(change, deadline).await,
            }
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_learner_may_lack_what_is_younger_than_the_limit() {
        let began = Instant::now();
        let at = |ms| began + Duration::from_millis(ms);
        let mut log_ends = LogEndHistory::default();
        assert_eq!(log_ends.recent(at(0)), None);
        for tick in 0..=30 {
            log_ends.note(at(tick * 100), LogIndex(tick));
            assert!(log_ends.points.len() as u64 <= LEARNER_LAG_MS_MAX / 100 + 2, "old points are forgotten");
        }
        assert_eq!(log_ends.recent(at(3000)), Some(LogIndex(20)));
        assert_eq!(log_ends.recent(at(3099)), Some(LogIndex(20)), "one that is a bit older, never a younger one");
        let mut new = LogEndHistory::default();
        new.note(at(0), LogIndex(7));
        assert_eq!(new.recent(at(LEARNER_LAG_MS_MAX - 1)), None);
        assert_eq!(new.recent(at(LEARNER_LAG_MS_MAX)), Some(LogIndex(7)));
    }
}
