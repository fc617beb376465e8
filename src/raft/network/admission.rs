//! Checks of calls between members: messages that no member of the cluster can have sent are
//! refused before consensus receives them.
//!
//! Consensus trusts its messages. A term near the highest number, or the vote of another member,
//! would be saved and stop this member for good. Owns the rules and their bounds. Knows no
//! transport. Invariant: a refused message changes nothing.

use openraft::entry::RaftEntry;
use openraft::raft::AppendEntriesRequest;
use tonic::Status;

use crate::consensus::Consensus;
use crate::convert::Malformed;
use crate::roster::Members;
use crate::types::{LogId, TypeConfig, Vote, term_of};
use headwater_tls::Identity;
use headwater_types::NodeId;

/// Largest step of the term in one message, count. A member that was away must learn the present
/// term in one step: so many elections, ten a second, take thirteen years. A sender that claims the
/// largest step must repeat it 2^32 times to reach the highest term.
pub(crate) const TERM_STEP_MAX: u64 = 1 << 32;
/// Most members that may have been added since this member applied its last membership, count. Each
/// takes a log entry and an operator or a joining node.
const NEWER_MEMBERS_MAX: u64 = 1 << 20;

/// Refuses a sender that cannot be another member: id 0, this member's own id, a removed one, and
/// one more than [`NEWER_MEMBERS_MAX`] above the highest known one. Lower unknown ids are accepted:
/// they may belong to members added since, and a member that is behind must be able to follow them.
/// Before the first applied membership, every id but 0 and the own one is accepted.
pub(super) fn check_sender(members: Members<'_>, me: NodeId, from: NodeId) -> Result<(), Status> {
    let highest = members.highest_id();
    let is_known = if highest == NodeId(0) {
        // No membership was applied yet.
        from != NodeId(0)
    } else {
        from != NodeId(0) && from.get() <= highest.get() + NEWER_MEMBERS_MAX && !members.has_removed(from)
    };
    if is_known && from != me {
        return Ok(());
    }
    Err(no_member(from))
}

/// Refuses a sender that is not in the newest membership that this member has, committed or not.
/// For the calls that a member makes to its leader or about it: the leader has appended every
/// membership, so it knows all members. `UNAVAILABLE` for an id that this member may not know yet.
pub(super) fn check_known(members: Members<'_>, from: NodeId) -> Result<(), Status> {
    if members.has(from) {
        return Ok(());
    }
    if from > members.highest_id() {
        return Err(Status::unavailable(format!(
            "this member does not know a member {from} yet: a node becomes a member by --join"
        )));
    }
    Err(no_member(from))
}

/// Refuses a sender that is not in the newest membership while this member is in contact with
/// another leader, which sends it every new membership. Once that leader is silent, the sender may
/// be a leader or candidate that was added since. A single voter is in contact with itself alone:
/// its disk may be older than the cluster, so it accepts every sender.
pub(super) fn check_newcomer(consensus: &Consensus, from: NodeId) -> Result<(), Status> {
    let Some(leader) = consensus.leadership().live_leader() else { return Ok(()) };
    let is_alone = || leader == consensus.node_id() && consensus.members().roster().voters().count() == 1;
    if leader == from || consensus.follows(from) || consensus.members().has(from) || is_alone() {
        return Ok(());
    }
    Err(Status::unavailable(format!("member {leader} leads, and has announced no member {from}")))
}

fn no_member(from: NodeId) -> Status {
    Status::permission_denied(format!(
        "{from} is not another member of this cluster: a node becomes a member by --join"
    ))
}

/// Refuses a certificate that is not for the member `from`, from which the call claims to be. A
/// member without a known name, and a node that is no member yet, may show any certificate of the
/// authority of members.
pub(super) fn check_certificate(consensus: &Consensus, from: NodeId, identity: &Identity) -> Result<(), Status> {
    match consensus.name_of(from) {
        Some(name) if !name.is_empty() && !identity.is_for(&name) => {
            Err(other_certificate(&format!("member {from} is {name:?}"), identity))
        }
        _ => Ok(()),
    }
}

/// Refuses a node that joins under a name that its certificate is not for. The other members would
/// refuse its calls.
pub(super) fn check_joining_name(name: &str, identity: &Identity) -> Result<(), Status> {
    if identity.is_for(name) {
        return Ok(());
    }
    Err(other_certificate(&format!("the node joins as {name:?}"), identity))
}

fn other_certificate(wanted: &str, identity: &Identity) -> Status {
    Status::permission_denied(format!(
        "{wanted}, and the certificate is for {}: the certificate of a member is for its node.name (`headwater certs` \
         makes them)",
        identity.names().join(", ")
    ))
}

/// Refuses a term that is too far above this member's own.
pub(crate) fn check_term(own: u64, claimed: u64) -> Result<(), Malformed> {
    if claimed <= own.saturating_add(TERM_STEP_MAX) {
        return Ok(());
    }
    Err(Malformed(format!("term {claimed} is implausible, as this member is in term {own}")))
}

/// Refuses a leader's vote that is not the sender's own, that no majority has granted, or with a
/// term too far above `own_term`.
pub(super) fn check_leader(from: NodeId, vote: &Vote, own_term: u64) -> Result<(), Malformed> {
    check_owner(from, vote)?;
    if !vote.committed {
        return Err(Malformed(format!("{from} was not elected by the vote that it shows")));
    }
    check_term(own_term, vote.leader_id.term)
}

/// Refuses a candidate's vote that is not the sender's own, that claims to be granted already, or
/// with a term too far above `own_term`.
pub(super) fn check_candidate(from: NodeId, vote: &Vote, own_term: u64) -> Result<(), Malformed> {
    check_owner(from, vote)?;
    if vote.committed {
        return Err(Malformed(format!("{from} asks for a vote as if it were elected")));
    }
    check_term(own_term, vote.leader_id.term)
}

fn check_owner(from: NodeId, vote: &Vote) -> Result<(), Malformed> {
    if vote.leader_id.voted_for == from.get() {
        return Ok(());
    }
    Err(Malformed(format!("the vote is that of member {}, and the sender is {from}", vote.leader_id.voted_for)))
}

/// Refuses a log id that the owner of `vote` cannot have: a leader or candidate has no entries of
/// later terms, and no index above half of the number range.
pub(super) fn check_log_id(vote: &Vote, id: Option<&LogId>) -> Result<(), Malformed> {
    match id {
        Some(id) if term_of(id) > vote.leader_id.term || id.index > u64::MAX / 2 => {
            Err(Malformed(format!("log id {id} is implausible in term {}", vote.leader_id.term)))
        }
        _ => Ok(()),
    }
}

/// Refuses an append with entries that do not follow each other, or with a log id that
/// [`check_log_id`] refuses.
pub(super) fn check_entries(request: &AppendEntriesRequest<TypeConfig>) -> Result<(), Malformed> {
    check_log_id(&request.vote, request.prev_log_id.as_ref())?;
    check_log_id(&request.vote, request.leader_commit.as_ref())?;
    let mut before = request.prev_log_id;
    for entry in &request.entries {
        let id = entry.log_id();
        check_log_id(&request.vote, Some(&id))?;
        let expected = before.map_or(0, |before| before.index + 1);
        if id.index != expected || before.is_some_and(|before| term_of(&id) < term_of(&before)) {
            return Err(Malformed(format!("log entry {id} follows {before:?}")));
        }
        before = Some(id);
    }
    Ok(())
}

/// Lowers the commit index of an append to its last entry, or without entries to the entry before,
/// as Raft prescribes. openraft keeps the highest commit index of a term and never lowers it, so a
/// too high one would mark later entries as committed before they are.
pub(super) fn bound_commit(request: &mut AppendEntriesRequest<TypeConfig>) {
    let last = request.entries.last().map(RaftEntry::log_id).or(request.prev_log_id);
    if request.leader_commit > last {
        request.leader_commit = last;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{EncodedCommand, EntryPayload, LogEntry, log_id};

    fn vote(term: u64, of: u64, committed: bool) -> Vote {
        Vote { leader_id: openraft::impls::leader_id_std::LeaderId { term, voted_for: of }, committed }
    }

    #[test]
    fn a_term_may_rise_by_years_of_elections_and_no_more() {
        assert!(check_term(7, 1).is_ok(), "consensus refuses old terms itself");
        assert!(check_term(7, 7 + TERM_STEP_MAX).is_ok());
        assert!(check_term(7, 8 + TERM_STEP_MAX).is_err());
        assert!(check_term(7, u64::MAX).is_err());
    }

    #[test]
    fn a_vote_is_shown_by_its_owner() {
        assert!(check_leader(NodeId(2), &vote(5, 2, true), 5).is_ok());
        assert!(check_leader(NodeId(2), &vote(5, 3, true), 5).is_err());
        assert!(check_leader(NodeId(2), &vote(5, 2, false), 5).is_err());
        assert!(check_candidate(NodeId(2), &vote(6, 2, false), 5).is_ok());
        assert!(check_candidate(NodeId(2), &vote(6, 3, false), 5).is_err());
        assert!(check_candidate(NodeId(2), &vote(6, 2, true), 5).is_err());
    }

    fn append(
        prev: Option<(u64, u64)>,
        entries: &[(u64, u64)],
        commit: Option<(u64, u64)>,
    ) -> AppendEntriesRequest<TypeConfig> {
        let id = |(term, index): (u64, u64)| log_id(term, index);
        let payload = || EntryPayload::Normal(EncodedCommand(bytes::Bytes::new()));
        AppendEntriesRequest {
            vote: vote(5, 2, true),
            prev_log_id: prev.map(id),
            entries: entries.iter().map(|entry| LogEntry::new(id(*entry), payload())).collect(),
            leader_commit: commit.map(id),
        }
    }

    #[test]
    fn entries_follow_each_other() {
        for (prev, entries, is_sound) in [
            (None, &[][..], true),
            (None, &[(1, 0), (1, 1)], true),
            (None, &[(1, 1)], false),
            (Some((3, 7)), &[(3, 8), (4, 9), (5, 10)], true),
            (Some((3, 7)), &[(3, 9)], false),
            (Some((3, 7)), &[(2, 8)], false),
            (Some((3, 7)), &[(6, 8)], false),
            (Some((3, 7)), &[(3, 8), (3, 8)], false),
            (Some((3, u64::MAX)), &[(3, 0)], false),
            (Some((6, 7)), &[], false),
        ] {
            assert_eq!(check_entries(&append(prev, entries, None)).is_ok(), is_sound, "{prev:?} {entries:?}");
        }
        assert!(check_entries(&append(None, &[], Some((6, 1)))).is_err());
    }

    #[test]
    fn an_append_commits_what_it_vouches_for() {
        for (prev, entries, commit, bound) in [
            (Some((3, 7)), &[(3, 8), (3, 9)][..], Some((3, 8)), Some((3, 8))),
            (Some((3, 7)), &[(3, 8), (3, 9)], Some((3, 12)), Some((3, 9))),
            (Some((3, 7)), &[], Some((3, 12)), Some((3, 7))),
            (Some((3, 7)), &[], Some((2, 5)), Some((2, 5))),
            (None, &[], Some((3, 12)), None),
            (None, &[], None, None),
        ] {
            let mut request = append(prev, entries, commit);
            bound_commit(&mut request);
            assert_eq!(request.leader_commit, bound.map(|(term, index)| log_id(term, index)), "{prev:?} {commit:?}");
        }
    }
}
