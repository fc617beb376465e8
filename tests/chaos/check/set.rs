//! Sets of unique elements: every acknowledged one is there at the end, none was invented, none
//! disappeared.

use std::collections::{BTreeMap, BTreeSet};

use super::{Finding, Findings};
use crate::history::{Body, Outcome, Record, Request};

/// Judges the workload `set`. `last_reads` has the number of each member, and the elements that it
/// has at the end, after everything was healed.
pub(crate) fn check(records: &[Record], last_reads: &[(usize, BTreeSet<String>)]) -> Findings {
    let mut findings = Findings::new("set");
    let mut asked: BTreeMap<&str, &Record> = BTreeMap::new();
    let mut seen_first: BTreeMap<String, u64> = BTreeMap::new();
    let mut reads: Vec<(&Record, BTreeSet<String>, &str)> = Vec::new();
    for record in records.iter().filter(|record| record.workload == "set") {
        match (&record.request, &record.outcome) {
            (Request::Put { key, .. }, _) => {
                asked.insert(key, record);
            }
            (Request::Read { key, .. }, Outcome::Ok(answer)) => {
                let Body::Pairs(pairs) = &answer.body else { continue };
                let keys: BTreeSet<String> = pairs.iter().map(|pair| pair.key.clone()).collect();
                for found in &keys {
                    let first = seen_first.entry(found.clone()).or_insert(record.done);
                    *first = record.done.min(*first);
                }
                reads.push((record, keys, key));
            }
            _ => {}
        }
    }
    for (member, there) in last_reads {
        for (key, record) in &asked {
            match (&record.outcome, there.contains(*key)) {
                (Outcome::Ok(_), false) => {
                    findings.add(Finding::of(
                        record,
                        "an acknowledged element is lost",
                        format!("{key}, member {}", member + 1),
                    ));
                }
                (Outcome::Failed(why), true) => {
                    findings.add(Finding::of(record, "a refused element is there", format!("{key}: {why}")));
                }
                _ => {}
            }
        }
        for key in there.iter().filter(|key| !asked.contains_key(key.as_str())) {
            findings.add(Finding::new("an element was invented", format!("{key}, member {}", member + 1)));
        }
    }
    for (read, there, prefix) in &reads {
        let gone = seen_first
            .range((*prefix).to_owned()..)
            .take_while(|(key, _)| key.starts_with(*prefix))
            .find(|(key, first)| **first < read.call && !there.contains(key.as_str()));
        if let Some((key, _)) = gone {
            findings.add(Finding::of(read, "an element that had been seen was gone", key));
        }
    }
    let members = last_reads.len();
    let nothing = asked.is_empty() && reads.is_empty();
    let scope = format!("{} elements, {} reads, {members} members at the end", asked.len(), reads.len());
    findings.scope(scope).nothing_if(nothing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Answer, Freshness, Pair};

    fn put(id: u64, key: &str, outcome: Outcome) -> Record {
        let request = Request::Put { key: key.into(), value: "1".into(), lease: 0 };
        Record { id, workload: "set".into(), process: 1, node: 0, call: id * 10, done: id * 10 + 5, request, outcome }
    }

    fn read(id: u64, keys: &[&str]) -> Record {
        let request = Request::Read { key: "s/".into(), prefix: true, freshness: Freshness::Linearizable };
        let pairs = keys.iter().map(|key| Pair { key: (*key).into(), ..Pair::default() }).collect();
        let outcome = Outcome::Ok(Answer { revision: 1, index: 1, body: Body::Pairs(pairs) });
        Record { id, workload: "set".into(), process: 2, node: 0, call: id * 10, done: id * 10 + 5, request, outcome }
    }

    fn acknowledged() -> Outcome {
        Outcome::Ok(Answer { revision: 1, index: 1, body: Body::Put })
    }

    fn there(keys: &[&str]) -> Vec<(usize, BTreeSet<String>)> {
        vec![(0, keys.iter().map(|key| (*key).to_owned()).collect())]
    }

    #[test]
    fn lost_refused_invented_and_vanished_elements_are_found() {
        let base = || {
            vec![
                put(1, "s/a", acknowledged()),
                put(2, "s/b", Outcome::Unknown("?".into())),
                put(3, "s/c", Outcome::Failed("no".into())),
            ]
        };
        for (last, more, wanted) in [
            (&["s/a"][..], None, None),
            (&["s/a", "s/b"], None, None),
            (&["s/b"], None, Some("an acknowledged element is lost")),
            (&["s/a", "s/c"], None, Some("a refused element is there")),
            (&["s/a", "s/z"], None, Some("an element was invented")),
            (&["s/a"], Some([read(4, &["s/a"]), read(5, &[])]), Some("an element that had been seen was gone")),
        ] {
            let mut records = base();
            records.extend(more.into_iter().flatten());
            let findings = check(&records, &there(last));
            assert_eq!(findings.whats().first().copied(), wanted, "{last:?}");
        }
    }
}
