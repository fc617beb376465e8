//! Detection of this member's own removal from the cluster.
//!
//! The leader stops replicating to a removed member at once, so the member usually never receives
//! the entry of its removal. It asks the other members when it has no leader, or when it sees its
//! removal begin. Ids are never reused: an id that was assigned and is absent from a committed
//! membership has been removed for good. The note on this member's disk only saves the question
//! after a restart. If it could not be written, the removal is reported all the same, the process
//! ends, and the member asks again when it starts.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::watch;

use super::consensus::Consensus;
use headwater_storage::data_dir::FlagNote;

/// State of this member's removal, and of the end of its process.
pub(super) struct Removal {
    /// File that marks this member as removed.
    note: FlagNote,
    removed: watch::Sender<bool>,
    /// Whether the process is about to end.
    stopping: AtomicBool,
}

impl Removal {
    pub(super) fn new(note: FlagNote) -> Self {
        Self { note, removed: watch::Sender::new(false), stopping: AtomicBool::new(false) }
    }
}

/// Time between two checks whether this member has a reason to ask the others about its removal.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);

impl Consensus {
    /// Whether this member knows that it was removed from its cluster.
    pub fn is_removed(&self) -> bool {
        *self.inner().removal.removed.borrow()
    }

    /// Resolves once this member knows that it was removed from its cluster.
    pub async fn removed(&self) {
        let mut removed = self.inner().removal.removed.subscribe();
        // This handle keeps the sender alive: only the value ends the wait.
        let _ended = removed.wait_for(|removed| *removed).await.is_err();
    }

    /// Reports the removal: this member takes part in nothing from now on. Tries to record it on
    /// disk first.
    pub(super) fn note_removed(&self) {
        let inner = self.inner();
        if let Err(error) = inner.removal.note.set() {
            // The removal still counts; after a restart the others are asked again.
            tracing::error!(%error, "could not note that this member was removed");
        }
        self.raft().runtime_config().elect(false);
        tracing::warn!(member = %inner.me, "this member was removed from the cluster: it serves no more requests");
        inner.removal.removed.send_replace(true);
    }

    /// Records that this process is about to end, so that no change of the membership counts on it.
    pub fn note_stopping(&self) {
        self.inner().removal.stopping.store(true, Ordering::Release);
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.inner().removal.stopping.load(Ordering::Acquire)
    }

    /// Checks whether this member was removed, until that is known or consensus ends.
    pub(super) async fn watch_for_removal(self) {
        while !self.has_ended() && !self.is_removed() {
            // Polled: the silence of a leader is no event.
            tokio::time::sleep(CHECK_INTERVAL).await;
            if self.has_reason_to_ask() && self.others_know_it_as_removed().await {
                self.note_removed();
            }
        }
    }

    fn has_reason_to_ask(&self) -> bool {
        let me = self.inner().me;
        let roster = self.members().roster();
        if roster.members.is_empty() {
            return false;
        }
        self.leadership().live_leader().is_none() || roster.find(me).is_none_or(|member| member.leaving)
    }

    async fn others_know_it_as_removed(&self) -> bool {
        let me = self.inner().me;
        let others = self.members().roster().members.into_iter().filter(|member| member.id != me);
        let answers = others.map(|member| async move { self.hello(member.id, &member.info).await });
        let answers = futures::future::join_all(answers).await;
        answers.into_iter().flatten().any(|answer| answer.removed)
    }
}
