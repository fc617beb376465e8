//! Records of clients as the judge gets them: a true history passes, and each lie in it is found.

use super::*;
use crate::history::{Answer, Condition, Pair};

fn get(key: &str) -> Step {
    Step::Get { key: key.into() }
}

fn put(key: &str, list: &str) -> Step {
    Step::Put { key: key.into(), value: list.into(), lease: 0 }
}

fn got(list: &str) -> StepDone {
    StepDone::Got((!list.is_empty()).then(|| Pair { value: list.into(), ..Pair::default() }))
}

fn answered(succeeded: bool, steps: Vec<StepDone>) -> Outcome {
    Outcome::Ok(Answer { revision: 2, index: 2, body: Body::Txn { succeeded, steps } })
}

/// A transaction of the workload: if its condition does not hold, every list is read instead.
fn record((call, done): (u64, u64), then: Vec<Step>, outcome: Outcome) -> Record {
    let when = vec![Condition::Modified { key: "x".into(), is: 0 }];
    let request = Request::Txn { when, then, or_else: vec![get("x"), get("y")] };
    // Ids are in the order of the ends.
    Record { id: done, workload: "append".into(), process: 1, node: 0, call, done, request, outcome }
}

fn unanswered(outcome: fn(String) -> Outcome) -> Outcome {
    outcome("why".into())
}

/// A true history of transactions on two lists. One append has no answer, one is certainly not
/// carried out, and one fails its condition, so that it reads the lists instead.
fn faithful() -> Vec<Record> {
    vec![
        record((0, 10), vec![put("x", "1"), put("y", "2")], answered(true, vec![StepDone::Put, StepDone::Put])),
        record((11, 20), vec![put("x", "1 3")], unanswered(Outcome::Unknown)),
        record((21, 30), vec![put("x", "1 4")], unanswered(Outcome::Failed)),
        record((31, 40), vec![put("x", "1 5")], answered(false, vec![got("1 3"), got("2")])),
        record((41, 50), vec![get("y"), put("x", "1 3 6")], answered(true, vec![got("2"), StepDone::Put])),
        record((51, 60), vec![get("x"), get("y")], answered(true, vec![got("1 3 6"), got("2")])),
    ]
}

#[test]
fn a_faithful_history_passes() {
    let mut records = faithful();
    // The write is under way: the read need not see it.
    records.insert(5, record((42, 52), vec![get("x")], answered(true, vec![got("1 3")])));
    // A record of another workload.
    records.push(Record {
        workload: "register".into(),
        ..record((61, 70), vec![get("x")], answered(true, vec![got("")]))
    });
    let findings = check(&records);
    assert_eq!(findings.whats(), [""; 0], "{:?}", findings.kept);
    assert_eq!(findings.judged, 7);
    assert_eq!(check(&[]).judged, 0);
}

#[test]
fn every_lie_is_found() {
    type Lie = fn(&mut Vec<Record>);
    let lies: [(&str, Lie); 8] = [
        ("a read misses what was acknowledged", |all| all[5].outcome = answered(true, vec![got("1 3"), got("2")])),
        ("so does one instead of a write", |all| all[3].outcome = answered(false, vec![got("1 3"), got("")])),
        ("a refused element is there", |all| all[5].outcome = answered(true, vec![got("1 3 6 4"), got("2")])),
        ("an element is there before it was asked for", |all| (all[1].call, all[1].done) = (41, 50)),
        ("an element is gone", |all| all[5].outcome = answered(true, vec![got("1 6"), got("2")])),
        ("a list is in another order", |all| all[5].outcome = answered(true, vec![got("3 1 6"), got("2")])),
        ("what is appended to is old", |all| {
            all[4] = record((41, 50), vec![put("x", "1 6")], answered(true, vec![StepDone::Put]));
            all.pop();
        }),
        ("two see each other too late", |all| {
            all.push(record(
                (61, 80),
                vec![get("x"), put("y", "2 7")],
                answered(true, vec![got("1 3 6"), StepDone::Put]),
            ));
            all.push(record(
                (62, 81),
                vec![get("y"), put("x", "1 3 6 8")],
                answered(true, vec![got("2"), StepDone::Put]),
            ));
            let seen = answered(true, vec![got("1 3 6 8"), got("2 7")]);
            all.push(record((90, 99), vec![get("x"), get("y")], seen));
        }),
    ];
    for (what, lie) in lies {
        let mut records = faithful();
        lie(&mut records);
        let findings = check(&records);
        let is_found = findings.whats().iter().any(|found| found.starts_with("anomaly"));
        assert!(is_found, "{what}: {:?}", findings.kept);
    }
}

#[test]
fn what_cannot_be_told_to_the_judge_is_found() {
    let cannot = "a transaction cannot be told to the judge";
    let strange = Outcome::Ok(Answer { revision: 2, index: 2, body: Body::Put });
    let deletion = vec![Step::Delete { key: "x".into() }];
    for record in [
        record((0, 10), vec![get("x")], strange),
        record((0, 10), deletion, unanswered(Outcome::Unknown)),
        record((0, 10), vec![put("x", "no number")], unanswered(Outcome::Unknown)),
    ] {
        let findings = check(std::slice::from_ref(&record));
        assert_eq!((findings.whats(), findings.judged), (vec![cannot], 0), "{record:?}");
    }
}
