//! The rules for changes of the membership (spec: etcd §4.1, `strict-reconfig-check`). Pure
//! functions of a roster and its members' progress.
//!
//! Invariant: no change of the voters is allowed after which fewer than a majority of them answer.

use std::collections::BTreeMap;

use headwater_raft::{MemberProgress, MemberRecord, Roster};
use headwater_types::limits::{LEARNERS_MAX, VOTERS_MAX};
use headwater_types::{LogIndex, MemberRefusal, NodeId};

/// The leader's knowledge at the time of a decision.
pub(super) struct MembershipStatus<'a> {
    pub(super) roster: &'a Roster,
    pub(super) progress: &'a BTreeMap<NodeId, MemberProgress>,
    /// The least log index of a member that counts as caught up: the end of the leader's log a
    /// short time ago.
    pub(super) recent: LogIndex,
}

impl MembershipStatus<'_> {
    fn is_live(&self, id: NodeId) -> bool {
        self.progress.get(&id).is_some_and(|progress| progress.is_live)
    }

    /// Whether a member may be announced under this address. If not `strict`, the health of the
    /// voters does not matter: the member counts for no majority before it has its vote, which
    /// [`may_promote`](Self::may_promote) decides.
    pub(super) fn may_add(&self, peer_url: &str, learner: bool, strict: bool) -> Result<(), MemberRefusal> {
        if self.roster.members.iter().any(|member| member.info.peer_url == peer_url) {
            return Err(MemberRefusal::PeerUrlExists);
        }
        self.has_capacity(learner)?;
        if learner || !strict {
            return Ok(());
        }
        let counts = |member: &MemberRecord| member.voter || (member.info.awaits_vote && is_unstarted(member));
        let counted = self.roster.members.iter().filter(|member| counts(member));
        let started = counted.clone().filter(|member| !is_unstarted(member)).count();
        let with_new = counted.clone().count() + 1;
        // As in etcd: a single member may always add a second one.
        if started <= with_new / 2 && (started, with_new) != (1, 2) {
            return Err(MemberRefusal::NotEnoughStarted);
        }
        // etcd requires an answer of every voter before it adds one, and counts announced ones as
        // voters.
        let mut counted = counted;
        if counted.all(|member| self.is_live(member.id)) { Ok(()) } else { Err(MemberRefusal::Unhealthy) }
    }

    /// Whether the limits allow one more learner if `learner` is set, else one more member that
    /// votes or will as soon as it can.
    pub(super) fn has_capacity(&self, learner: bool) -> Result<(), MemberRefusal> {
        self.has_capacity_without(None, learner)
    }

    /// As [`has_capacity`](Self::has_capacity), once the member `leaving` is gone.
    fn has_capacity_without(&self, leaving: Option<NodeId>, learner: bool) -> Result<(), MemberRefusal> {
        let stay = || self.roster.members.iter().filter(|member| Some(member.id) != leaving);
        let voters = stay().filter(|member| member.voter || member.info.awaits_vote).count();
        if learner && stay().count() - voters >= LEARNERS_MAX {
            return Err(MemberRefusal::TooManyLearners);
        }
        if !learner && voters >= VOTERS_MAX {
            return Err(MemberRefusal::TooManyVoters);
        }
        Ok(())
    }

    /// Whether a member may get its vote. It is a learner that runs and has caught up; there are
    /// fewer than [`VOTERS_MAX`] voters; and of the voters and this member, a majority answers.
    pub(super) fn may_promote(&self, id: NodeId) -> Result<(), MemberRefusal> {
        let member = self.roster.find(id).ok_or(MemberRefusal::NotFound)?;
        if member.voter {
            return Err(MemberRefusal::NotLearner);
        }
        if self.roster.voters().count() >= VOTERS_MAX {
            return Err(MemberRefusal::TooManyVoters);
        }
        let matched = self.progress.get(&id).and_then(|progress| progress.matched);
        let has_caught_up = matched.is_some_and(|at| at >= self.recent);
        if is_unstarted(member) || !self.is_live(id) || !has_caught_up {
            return Err(MemberRefusal::LearnerNotReady);
        }
        let live = self.roster.voters().filter(|voter| self.is_live(voter.id)).count() + 1;
        self.is_majority(live, self.roster.voters().count() + 1)
    }

    /// Whether a member may leave: a majority of the remaining voters answers. A learner always
    /// may.
    pub(super) fn may_remove(&self, id: NodeId) -> Result<(), MemberRefusal> {
        let member = self.roster.find(id).ok_or(MemberRefusal::NotFound)?;
        if !member.voter {
            return Ok(());
        }
        let stay: Vec<_> = self.roster.voters().filter(|voter| voter.id != id).collect();
        if stay.is_empty() {
            return Err(MemberRefusal::NotEnoughStarted);
        }
        self.is_majority(stay.iter().filter(|voter| self.is_live(voter.id)).count(), stay.len())
    }

    /// Whether a member may move to this address: no other member has it.
    pub(super) fn may_move(&self, id: NodeId, peer_url: &str) -> Result<(), MemberRefusal> {
        self.roster.find(id).ok_or(MemberRefusal::NotFound)?;
        let is_taken = self.roster.members.iter().any(|member| member.id != id && member.info.peer_url == peer_url);
        if is_taken { Err(MemberRefusal::PeerUrlExists) } else { Ok(()) }
    }

    /// Whether a node without data may replace a member: the member does not answer and may leave,
    /// and the limits then allow one more learner if `learner` is set, else one more voter.
    pub(super) fn may_replace(&self, id: NodeId, learner: bool) -> Result<(), MemberRefusal> {
        if self.is_live(id) {
            return Err(MemberRefusal::StillRuns);
        }
        self.may_remove(id)?;
        self.has_capacity_without(Some(id), learner)
    }

    fn is_majority(&self, live: usize, of: usize) -> Result<(), MemberRefusal> {
        if live > of / 2 { Ok(()) } else { Err(MemberRefusal::Unhealthy) }
    }
}

/// Whether a member was added by `MemberAdd` and has not started: it has no name yet.
pub(super) fn is_unstarted(member: &MemberRecord) -> bool {
    member.info.name.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_raft::MemberInfo;

    const LAST: u64 = 100_000;

    /// A cluster in short form: `V` a voter that answers, `v` one that does not; `L` and `l`
    /// learners likewise; `A` a member that awaits its vote, `a` an announced one that has not
    /// started.
    struct Bed {
        roster: Roster,
        progress: BTreeMap<NodeId, MemberProgress>,
    }

    impl Bed {
        fn of(members: &str) -> Self {
            let record = |(at, kind): (usize, char)| {
                let id = NodeId(at as u64 + 1);
                let name = if kind == 'a' { String::new() } else { format!("n{id}") };
                let info = MemberInfo {
                    name,
                    peer_url: format!("http://p{id}"),
                    awaits_vote: matches!(kind, 'A' | 'a'),
                    ..MemberInfo::default()
                };
                let progress =
                    MemberProgress { matched: (kind != 'a').then_some(LogIndex(LAST)), is_live: kind.is_uppercase() };
                ((id, progress), MemberRecord { id, info, voter: matches!(kind, 'V' | 'v'), leaving: false })
            };
            let (progress, members): (BTreeMap<_, _>, Vec<_>) = members.chars().enumerate().map(record).unzip();
            let mut roster = Roster::default();
            roster.members = members;
            Self { roster, progress }
        }

        fn lagging(mut self, id: u64, by: u64) -> Self {
            self.progress.get_mut(&NodeId(id)).unwrap().matched = Some(LogIndex(LAST - by));
            self
        }

        fn membership_status(&self) -> MembershipStatus<'_> {
            MembershipStatus { roster: &self.roster, progress: &self.progress, recent: LogIndex(LAST) }
        }
    }

    #[test]
    fn what_would_lose_the_quorum_is_refused() {
        use MemberRefusal::*;
        for (members, id, wanted) in [
            ("VVV", 3, Ok(())),
            ("VVv", 3, Ok(())),
            ("VVv", 2, Err(Unhealthy)),
            ("Vv", 2, Ok(())),
            ("VV", 2, Ok(())),
            ("V", 1, Err(NotEnoughStarted)),
            ("VLL", 1, Err(NotEnoughStarted)),
            ("VVVvv", 4, Ok(())),
            ("VVVvv", 3, Err(Unhealthy)),
            ("VVVVv", 4, Ok(())),
            ("VVvL", 4, Ok(())),
            ("VVva", 4, Ok(())),
            ("VVV", 9, Err(NotFound)),
        ] {
            assert_eq!(Bed::of(members).membership_status().may_remove(NodeId(id)), wanted, "{members} without {id}");
        }
    }

    #[test]
    fn a_voter_is_announced_only_while_all_voters_run() {
        use MemberRefusal::*;
        let other = "http://other";
        for (members, url, learner, wanted) in [
            ("V", other, false, Ok(())),
            ("VVV", other, false, Ok(())),
            ("VVV", "http://p2", false, Err(PeerUrlExists)),
            ("VVV", "http://p2", true, Err(PeerUrlExists)),
            ("VVv", other, false, Err(Unhealthy)),
            ("VVv", other, true, Ok(())),
            ("VVVa", other, false, Err(Unhealthy)),
            ("Va", other, false, Err(NotEnoughStarted)),
            ("VVaa", other, false, Err(NotEnoughStarted)),
            ("VVVA", other, false, Ok(())),
            ("VVVl", other, false, Ok(())),
        ] {
            assert_eq!(Bed::of(members).membership_status().may_add(url, learner, true), wanted, "{members} and {url}");
        }
        for members in ["VVv", "VVVa", "Va", "VVaa"] {
            assert_eq!(
                Bed::of(members).membership_status().may_add(other, false, false),
                Ok(()),
                "{members}, not strict"
            );
        }
        let full = Bed::of(&"V".repeat(VOTERS_MAX));
        assert_eq!(full.membership_status().may_add(other, false, false), Err(TooManyVoters));
        assert_eq!(Bed::of("VV").membership_status().may_add("http://p2", false, false), Err(PeerUrlExists));
    }

    #[test]
    fn there_are_limits() {
        let voters = "V".repeat(VOTERS_MAX - 1);
        assert_eq!(Bed::of(&voters).membership_status().has_capacity(false), Ok(()));
        assert_eq!(
            Bed::of(&format!("{voters}A")).membership_status().has_capacity(false),
            Err(MemberRefusal::TooManyVoters)
        );
        let learners = format!("V{}", "L".repeat(LEARNERS_MAX - 1));
        assert_eq!(Bed::of(&learners).membership_status().has_capacity(true), Ok(()));
        assert_eq!(
            Bed::of(&format!("{learners}L")).membership_status().has_capacity(true),
            Err(MemberRefusal::TooManyLearners)
        );
        let full = Bed::of(&format!("{}L", "V".repeat(VOTERS_MAX)));
        let last = NodeId(VOTERS_MAX as u64 + 1);
        assert_eq!(full.membership_status().may_promote(last), Err(MemberRefusal::TooManyVoters));
    }

    #[test]
    fn only_a_learner_that_runs_and_has_caught_up_is_promoted() {
        use MemberRefusal::*;
        for (bed, id, wanted) in [
            (Bed::of("VVVL"), 4, Ok(())),
            (Bed::of("VA"), 2, Ok(())),
            (Bed::of("VVVL").lagging(4, 1), 4, Err(LearnerNotReady)),
            (Bed::of("VVVl"), 4, Err(LearnerNotReady)),
            (Bed::of("VVVa"), 4, Err(LearnerNotReady)),
            (Bed::of("VVV"), 3, Err(NotLearner)),
            (Bed::of("VVV"), 4, Err(NotFound)),
            (Bed::of("VVvL"), 4, Ok(())),
            (Bed::of("VvvL"), 4, Err(Unhealthy)),
        ] {
            assert_eq!(bed.membership_status().may_promote(NodeId(id)), wanted, "{:?}", bed.roster);
        }
    }

    #[test]
    fn only_a_member_that_is_down_is_replaced() {
        for (members, wanted) in [
            ("VVV", Err(MemberRefusal::StillRuns)),
            ("VVv", Ok(())),
            ("VVvv", Ok(())),
            ("VVvvv", Err(MemberRefusal::Unhealthy)),
        ] {
            assert_eq!(Bed::of(members).membership_status().may_replace(NodeId(3), false), wanted, "{members}");
        }
    }

    #[test]
    fn a_node_that_replaces_a_member_takes_no_more_than_its_place() {
        use MemberRefusal::*;
        let voters = "V".repeat(VOTERS_MAX - 1);
        let last_voter = VOTERS_MAX as u64;
        let learners = "L".repeat(LEARNERS_MAX - 1);
        let last_learner = LEARNERS_MAX as u64 + 1;
        for (members, id, learner, wanted) in [
            (format!("{voters}v"), last_voter, false, Ok(())),
            (format!("{voters}Vl"), last_voter + 1, false, Err(TooManyVoters)),
            (format!("{voters}Vl"), last_voter + 1, true, Ok(())),
            (format!("V{learners}l"), last_learner, true, Ok(())),
            (format!("V{learners}Lv"), last_learner + 1, true, Err(TooManyLearners)),
            (format!("V{learners}Lv"), last_learner + 1, false, Ok(())),
        ] {
            let bed = Bed::of(&members);
            let made = bed.membership_status().may_replace(NodeId(id), learner);
            assert_eq!(made, wanted, "{members}, {id} by a learner: {learner}");
        }
    }

    #[test]
    fn a_member_moves_to_an_address_of_its_own() {
        let bed = Bed::of("VV");
        assert_eq!(bed.membership_status().may_move(NodeId(1), "http://p1"), Ok(()));
        assert_eq!(bed.membership_status().may_move(NodeId(1), "http://p2"), Err(MemberRefusal::PeerUrlExists));
        assert_eq!(bed.membership_status().may_move(NodeId(3), "http://p3"), Err(MemberRefusal::NotFound));
    }
}
