//! Records of changes of users' rights, and of the watches of these users.
//!
//! Users and roles have no revision of keys, so their changes are recorded apart from the history
//! of keys, each with the log index of its entry and the revision of the keys there. Requests of
//! users are part of the history like all others; their keys name the user.

use parking_lot::Mutex;
use serde::Serialize;

use crate::history::Micros;

/// Prefix of the keys that rights are about.
pub(crate) const PREFIX: &str = "rights/";

/// Prefix of the keys of a user.
pub(crate) fn prefix_of(user: usize) -> String {
    format!("{PREFIX}{user}/")
}

/// The user to which a key belongs; `None` for a key outside [`PREFIX`], or without a user's number
/// after it.
pub(crate) fn user_of(key: &str) -> Option<usize> {
    key.strip_prefix(PREFIX)?.split('/').next()?.parse().ok()
}

/// Effect of a change on the user's right to its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum Effect {
    Gives,
    Takes,
    /// No effect by itself: the request prepares a later one, or sets the same password again.
    Neither,
}

/// Outcome of a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum Changed {
    /// Made at this log index, where the keys had this revision. If only a later read showed the
    /// change, index and revision are those of the read; the change was made at or before them.
    Done {
        index: u64,
        revision: i64,
    },
    /// Certainly not made, now or later.
    Failed(String),
    Unknown(String),
}

/// A request to change a user's rights. Each user has one administrator, which sends one request
/// after the other.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct RightsChange {
    pub user: usize,
    pub effect: Effect,
    /// Description of the request, for people.
    pub request: String,
    pub node: usize,
    pub call: Micros,
    pub done: Micros,
    pub outcome: Changed,
}

/// The end of a watch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum WatchEnd {
    /// The server cancelled it, with this reason.
    Cancelled(String),
    /// Its beginning was compacted.
    Compacted,
    /// The stream broke, or was never opened.
    Broken,
}

/// One watch of a user on its keys.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct UserWatch {
    pub user: usize,
    pub node: usize,
    pub call: Micros,
    /// Time of the node's message that the watch was created; `None` before that.
    pub opened: Option<Micros>,
    /// Time and revision of each event.
    pub events: Vec<(Micros, i64)>,
    /// Time and kind of its end; `None` if it was open at the end of the run.
    pub end: Option<(Micros, WatchEnd)>,
}

/// The records about rights, for the checker.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rights {
    pub changes: Vec<RightsChange>,
    pub watches: Vec<UserWatch>,
}

/// Collects the records about rights.
#[derive(Default)]
pub(crate) struct RightsLedger(Mutex<Rights>);

impl RightsLedger {
    pub(crate) fn changed(&self, change: RightsChange) {
        self.0.lock().changes.push(change);
    }

    /// Adds the record of a watch that begins; returns its number.
    pub(crate) fn begin(&self, watch: UserWatch) -> usize {
        let watches = &mut self.0.lock().watches;
        watches.push(watch);
        watches.len() - 1
    }

    /// Changes the record of the watch `number`, as [`Self::begin`] returned it.
    pub(crate) fn update(&self, number: usize, change: impl FnOnce(&mut UserWatch)) {
        change(&mut self.0.lock().watches[number]);
    }

    pub(crate) fn snapshot(&self) -> Rights {
        self.0.lock().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_tells_its_user() {
        assert_eq!(user_of(&format!("{}3", prefix_of(12))), Some(12));
        assert_eq!((user_of("rights/x/1"), user_of("set/1/2"), user_of("rights/")), (None, None, None));
    }
}
