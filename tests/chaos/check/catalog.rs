//! Comparison of views of the catalog with linearizable reads.
//!
//! Both are converted to one form: for each instance the fields of [`Instance`], among them the log
//! indexes of the last changes of its node, of itself and of its checks. Equal content with another
//! log index is a difference.

use std::collections::BTreeMap;

use headwater_client::Instances;
use serde_json::Value;

/// The compared fields of one instance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Instance {
    /// Address of the instance's node.
    pub address: String,
    /// Value under `value` in the instance's meta; empty without it.
    pub value: String,
    /// Log indexes of the last changes of the node and of the instance.
    pub modified: (u64, u64),
    /// Status and log index of each check, by id.
    pub checks: BTreeMap<String, (String, u64)>,
}

/// Name of the catalog's node, and id of the instance.
type Key = (String, String);

/// The instances that a linearizable read has returned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReadInstances(BTreeMap<Key, Instance>);

/// The instances that a view shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ViewInstances(pub(super) BTreeMap<Key, Instance>);

impl ReadInstances {
    pub(crate) fn new(instances: BTreeMap<Key, Instance>) -> Self {
        Self(instances)
    }

    /// Reads an answer of `/v1/health/service/NAME`.
    ///
    /// # Errors
    ///
    /// A description with the whole answer, if it is no list or an instance lacks a field other
    /// than its value.
    pub(crate) fn of(answer: &Value) -> Result<Self, String> {
        let list = answer.as_array().ok_or_else(|| format!("no list: {answer}"))?;
        list.iter().map(read_instance).collect::<Option<_>>().map(Self).ok_or_else(|| format!("incomplete: {answer}"))
    }

    pub(crate) fn into_instances(self) -> BTreeMap<Key, Instance> {
        self.0
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

fn read_instance(item: &Value) -> Option<(Key, Instance)> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let (node, service) = (&item["Node"], &item["Service"]);
    let checks = item["Checks"]
        .as_array()?
        .iter()
        .map(|check| Some((text(&check["CheckID"])?, (text(&check["Status"])?, check["ModifyIndex"].as_u64()?))));
    let instance = Instance {
        address: text(&node["Address"])?,
        value: text(&service["Meta"]["value"]).unwrap_or_default(),
        modified: (node["ModifyIndex"].as_u64()?, service["ModifyIndex"].as_u64()?),
        checks: checks.collect::<Option<_>>()?,
    };
    Some(((text(&node["Node"])?, text(&service["ID"])?), instance))
}

impl ViewInstances {
    /// Converts the state of a view. Instances without a node or a service are left out; an absent
    /// log index becomes 0.
    pub(crate) fn of(state: &Instances) -> Self {
        let instances = state.instances().filter_map(|shown| {
            let (node, service) = (shown.node.as_ref()?, shown.service.as_ref()?);
            let checks = shown.checks.iter().map(|check| {
                let modified = check.raft_index.as_ref().map_or(0, |index| index.modify_index);
                (check.check_id.clone(), (check.status.clone(), modified))
            });
            let instance = Instance {
                address: node.address.clone(),
                value: service.meta.get("value").cloned().unwrap_or_default(),
                modified: (
                    node.raft_index.as_ref().map_or(0, |index| index.modify_index),
                    service.raft_index.as_ref().map_or(0, |index| index.modify_index),
                ),
                checks: checks.collect(),
            };
            Some(((node.node.clone(), service.id.clone()), instance))
        });
        Self(instances.collect())
    }

    /// Description of an instance with a record that was changed after `index`, the log index that
    /// the view claims. `None` if there is no such record.
    pub(crate) fn beyond(&self, index: u64) -> Option<String> {
        self.0.iter().find_map(|(key, instance)| {
            let checks = instance.checks.values().map(|(_, modified)| *modified);
            let newest = checks.chain([instance.modified.0, instance.modified.1]).max()?;
            (newest > index).then(|| format!("{key:?} was changed at {newest}, and the view is at {index}"))
        })
    }

    /// Description of the first difference from a read; `None` if both are equal.
    pub(crate) fn difference(&self, read_state: &ReadInstances) -> Option<String> {
        for (key, instance) in &read_state.0 {
            match self.0.get(key) {
                None => return Some(format!("{key:?} is missing")),
                Some(shown) if shown != instance => {
                    return Some(format!("{key:?} is {shown:?}, was read as {instance:?}"));
                }
                Some(_) => {}
            }
        }
        self.0
            .keys()
            .find(|key| !read_state.0.contains_key(*key))
            .map(|key| format!("{key:?} is shown and is not there"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn answer() -> Value {
        json!([{
            "Node": {"Node": "host-1", "Address": "10.0.0.1", "ModifyIndex": 5},
            "Service": {"ID": "web-1", "Service": "web", "Meta": {"value": "v"}, "ModifyIndex": 7},
            "Checks": [{"CheckID": "c", "Status": "passing", "ModifyIndex": 9}],
        }])
    }

    fn shown() -> ViewInstances {
        ViewInstances(ReadInstances::of(&answer()).unwrap().into_instances())
    }

    fn changed(change: impl FnOnce(&mut BTreeMap<Key, Instance>)) -> ViewInstances {
        let mut shown = shown();
        change(&mut shown.0);
        shown
    }

    #[test]
    fn each_difference_is_found() {
        let read_state = ReadInstances::of(&answer()).unwrap();
        let key = || ("host-1".to_owned(), "web-1".to_owned());
        assert_eq!(shown().difference(&read_state), None);
        let lies = [
            (changed(BTreeMap::clear), "is missing"),
            (changed(|all| drop(all.insert(("host-2".into(), "web-1".into()), Instance::default()))), "is not there"),
            (changed(|all| all.get_mut(&key()).unwrap().value = "old".into()), "was read as"),
            (changed(|all| all.get_mut(&key()).unwrap().address = "old".into()), "was read as"),
            (changed(|all| all.get_mut(&key()).unwrap().modified.0 = 4), "was read as"),
            (changed(|all| all.get_mut(&key()).unwrap().modified.1 = 6), "was read as"),
            (changed(|all| all.get_mut(&key()).unwrap().checks.clear()), "was read as"),
            (
                changed(|all| drop(all.get_mut(&key()).unwrap().checks.insert("c".into(), ("critical".into(), 9)))),
                "was read as",
            ),
        ];
        for (lie, found) in lies {
            let difference = lie.difference(&read_state).unwrap_or_default();
            assert!(difference.contains(found), "{lie:?}: {difference}");
        }
    }

    #[test]
    fn a_view_shows_nothing_from_after_its_index() {
        assert_eq!(shown().beyond(9), None);
        assert!(shown().beyond(8).is_some());
    }

    #[test]
    fn an_answer_that_is_none() {
        for bad in [json!({}), json!([{}]), json!([{"Node": {"Node": "n"}, "Service": {}, "Checks": []}])] {
            ReadInstances::of(&bad).unwrap_err();
        }
        assert_eq!(ReadInstances::of(&json!([])).unwrap().len(), 0);
    }
}
