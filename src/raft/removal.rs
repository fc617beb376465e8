//! How a member learns that it is none any more.
//!
//! The leader stops speaking to a member as soon as it is removed, so the member usually never sees the log entry that says
//! so. It asks the others when it hears of no leader, or when it sees its removal begin. Ids are never used again, so a
//! member whose id was given and is not in a committed membership has been removed for good. Invariant: a removed member
//! notes it durably before it says so.

use std::time::Duration;

use super::consensus::Consensus;

/// How often a member looks whether it has reason to ask.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

impl Consensus {
    /// Whether this member was removed from its cluster.
    pub fn is_removed(&self) -> bool {
        *self.inner().removed.borrow()
    }

    /// Resolves once this member was removed from its cluster.
    pub async fn removed(&self) {
        let mut removed = self.inner().removed.subscribe();
        // This handle keeps the sender, so there is an end only by the value.
        let _ended = removed.wait_for(|removed| *removed).await.is_err();
    }

    /// Notes that this member was removed, and takes part in nothing from now on.
    pub(super) fn note_removed(&self) {
        let inner = self.inner();
        if let Err(error) = inner.removed_note.set() {
            // Asked again after a restart, so nothing is lost but time.
            tracing::error!(%error, "could not note that this member was removed");
        }
        self.raft().runtime_config().elect(false);
        tracing::warn!(member = %inner.me, "this member was removed from the cluster: it serves no more requests");
        inner.removed.send_replace(true);
    }

    /// Finds out when this member is removed; runs as long as consensus does.
    pub(super) async fn watch_for_removal(self) {
        while !self.has_ended() && !self.is_removed() {
            // Looked at now and then: that a leader is silent is no event.
            tokio::time::sleep(LOOK_INTERVAL).await;
            if self.has_reason_to_ask() && self.others_know_it_as_removed().await {
                self.note_removed();
            }
        }
    }

    fn has_reason_to_ask(&self) -> bool {
        let me = self.inner().me;
        let roster = self.roster();
        if roster.members.is_empty() {
            return false;
        }
        self.live_leader().is_none() || roster.find(me).is_none_or(|member| member.leaving)
    }

    async fn others_know_it_as_removed(&self) -> bool {
        let me = self.inner().me;
        let others = self.roster().members.into_iter().filter(|member| member.id != me);
        let answers = others.map(|member| async move { self.hello(member.id, &member.info).await });
        let answers = futures::future::join_all(answers).await;
        answers.into_iter().flatten().any(|answer| answer.removed)
    }
}
