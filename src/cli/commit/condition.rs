//! Conditions that did not hold, as texts for people.

use tonic::Status;

use headwater_proto::pb::headwater_v1 as pb;
use headwater_proto::pb::headwater_v1::condition::Condition as Kind;

/// The condition for which a server refused a commit.
pub(crate) struct Failed<'c> {
    /// Its number in the commit, from 0.
    pub(super) number: usize,
    condition: &'c pb::Condition,
    /// Log index of the newest change of its target; 0 if there is none, and for a compare.
    changed: u64,
}

impl<'c> Failed<'c> {
    /// The condition that `status` names. `None` if the commit was refused for another reason.
    pub(crate) fn of(status: &Status, conditions: &'c [pb::Condition]) -> Option<Self> {
        let number = |name: &str| status.metadata().get(name)?.to_str().ok()?.parse::<u64>().ok();
        let changed = number("headwater-changed-index")?;
        let number = usize::try_from(number("headwater-condition")?).ok()?;
        Some(Self { number, condition: conditions.get(number)?, changed })
    }

    /// The condition as it was written, and the change that broke it.
    pub(super) fn text(&self) -> String {
        if let Some(compare) = &self.condition.key {
            let (key, what) = (String::from_utf8_lossy(&compare.key), compare.target().as_str_name());
            return format!("the compare of the key {key:?} ({what}) does not hold");
        }
        let (target, condition) = (&self.condition.target, &self.condition.condition);
        let wanted = match condition {
            Some(Kind::Index(index)) => format!("index: {index}"),
            Some(Kind::UnchangedSince(index)) => format!("unchangedSince: {index}"),
            Some(Kind::Exists(exists)) => format!("exists: {exists}"),
            None => "it".to_owned(),
        };
        match self.changed {
            0 => format!("{wanted} does not hold for {target}: it does not exist"),
            changed => {
                let what = if self.is_recursive() { "something below it" } else { "it" };
                format!("{wanted} does not hold for {target}: {what} changed at #{changed}")
            }
        }
    }

    /// What changed since somebody looked, for a condition that the user did not write.
    pub(crate) fn change(&self) -> String {
        let (path, _) = self.condition.target.split_once('?').unwrap_or((&self.condition.target, ""));
        let below = if self.is_recursive() { "something below " } else { "" };
        match self.changed {
            0 => format!("{below}{path} changed meanwhile"),
            changed => format!("{below}{path} changed at #{changed} meanwhile"),
        }
    }

    fn is_recursive(&self) -> bool {
        self.condition.target.ends_with("?recursive=true")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_proto::pb::etcdserverpb::Compare;

    #[test]
    fn the_condition_and_the_change_are_named() {
        let on = |target: &str, condition| pb::Condition {
            target: target.to_owned(),
            condition: Some(condition),
            ..Default::default()
        };
        let compare = Compare { key: "a".into(), ..Default::default() };
        let conditions = [
            on("/kv/a", Kind::Exists(true)),
            on("/kv/a", Kind::Index(7)),
            on("/kv?recursive=true", Kind::UnchangedSince(7)),
            pb::Condition { key: Some(compare), ..Default::default() },
        ];
        let failed = |number: usize, changed: u64| {
            let mut status = Status::failed_precondition("it does not hold");
            status.metadata_mut().insert("headwater-condition", number.into());
            status.metadata_mut().insert("headwater-changed-index", changed.into());
            let failed = Failed::of(&status, &conditions).unwrap();
            (failed.text(), failed.change())
        };
        assert_eq!(failed(0, 0).0, "exists: true does not hold for /kv/a: it does not exist");
        assert_eq!(failed(1, 59).0, "index: 7 does not hold for /kv/a: it changed at #59");
        assert_eq!(failed(1, 59).1, "/kv/a changed at #59 meanwhile");
        let below = "unchangedSince: 7 does not hold for /kv?recursive=true: something below it changed at #59";
        assert_eq!(failed(2, 59).0, below);
        assert_eq!(failed(2, 59).1, "something below /kv changed at #59 meanwhile");
        assert_eq!(failed(3, 0).0, "the compare of the key \"a\" (VERSION) does not hold");
        assert!(Failed::of(&Status::failed_precondition("compacted"), &conditions).is_none());
    }
}
