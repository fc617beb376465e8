//! Lies in the records of the workload `leases`, for controls: a record with an answer that no node
//! gave or of a request that was not sent, or a request without a record. Each is a violation in a
//! real run that a checker must find.

use super::{Control, REQUEST_TIMEOUT};
use crate::client::Target;
use crate::history::{Answer, Body, Freshness, Outcome, Request};

/// A request that a lie can be about is falsified if its number is a multiple of this.
const EVERY: u64 = 20;

/// The lie about this request: `control`, if it can be about such a request and `number` is a
/// multiple of [`EVERY`]; else `None`. `number` counts the requests of the client.
pub(super) fn due(control: Option<Control>, request: &Request, number: u64) -> Option<Control> {
    let fits = match (control?, request) {
        (Control::LostWrite | Control::RefusedWrite | Control::RepeatedWrite | Control::WrongRevision, _) => {
            matches!(request, Request::Put { .. })
        }
        (Control::SecretDelete | Control::SecretRevoke, Request::Put { lease, .. }) => *lease != 0,
        (Control::LostRevoke, Request::Revoke { .. }) => true,
        (Control::WrongCompare, Request::Txn { when, .. }) => !when.is_empty(),
        (Control::WrongCount, Request::Delete { .. } | Request::DeleteRange { .. }) => true,
        (Control::WrongBefore, Request::Replace { .. } | Request::DeleteRange { .. }) => true,
        (Control::WrongRead, Request::Read { prefix: true, .. }) => true,
        _ => false,
    };
    (fits && number.is_multiple_of(EVERY)).then_some(control?)
}

/// The outcome to be recorded for `request` under `lie`. Most lies send `request` and falsify its
/// outcome. Others send it twice, or another request after it, or only a read.
pub(super) async fn execute(lie: Control, target: &Target, request: &Request) -> Outcome {
    let send = |request: Request| async move { target.send(&request, REQUEST_TIMEOUT).await };
    match (lie, request) {
        // Only a request for the revision is sent.
        (Control::LostWrite | Control::LostRevoke, _) => {
            let look = Request::Read { key: "leases/".into(), prefix: false, freshness: Freshness::Linearizable };
            let body = if lie == Control::LostWrite { Body::Put } else { Body::Revoked };
            altered(send(look).await, |answer| Answer { body, ..answer })
        }
        (Control::RepeatedWrite, _) => {
            let first = send(request.clone()).await;
            drop(send(request.clone()).await);
            first
        }
        (Control::RefusedWrite, _) => match send(request.clone()).await {
            Outcome::Ok(_) => Outcome::Failed("a lie".to_owned()),
            other => other,
        },
        (Control::SecretDelete, Request::Put { key, .. }) => {
            let put = send(request.clone()).await;
            drop(send(Request::Delete { key: key.clone() }).await);
            put
        }
        (Control::SecretRevoke, Request::Put { lease, .. }) => {
            let put = send(request.clone()).await;
            drop(send(Request::Revoke { lease: *lease }).await);
            put
        }
        _ => altered(send(request.clone()).await, |answer| wrong(lie, answer)),
    }
}

fn altered(outcome: Outcome, change: impl FnOnce(Answer) -> Answer) -> Outcome {
    match outcome {
        Outcome::Ok(answer) => Outcome::Ok(change(answer)),
        other => other,
    }
}

/// The answer with the falsification that `lie` names: the revision of a put is one less,
/// `succeeded` of a transaction is inverted, a count is one more, or the previous pair or the last
/// pair of a list is left out. Unchanged if the answer has nothing of the kind, such as for an
/// empty list of pairs.
fn wrong(lie: Control, answer: Answer) -> Answer {
    let Answer { revision, index, body } = answer;
    let answer = |body| Answer { revision, index, body };
    match (lie, body) {
        (Control::WrongRevision, body) => Answer { revision: revision - 1, index, body },
        (Control::WrongCompare, Body::Txn { succeeded, steps }) => answer(Body::Txn { succeeded: !succeeded, steps }),
        (Control::WrongCount, Body::Deleted(count)) => answer(Body::Deleted(count + 1)),
        (Control::WrongCount, Body::Removed { count, before }) => answer(Body::Removed { count: count + 1, before }),
        (Control::WrongBefore, Body::Removed { count, mut before }) => {
            before.pop();
            answer(Body::Removed { count, before })
        }
        (Control::WrongBefore, Body::Replaced(_)) => answer(Body::Replaced(None)),
        (Control::WrongRead, Body::Pairs(mut pairs)) => {
            pairs.pop();
            answer(Body::Pairs(pairs))
        }
        (_, body) => answer(body),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Pair;

    #[test]
    fn a_lie_is_told_of_what_it_is_about_and_only_now_and_then() {
        let revoke = Request::Revoke { lease: 7 };
        let put = |lease| Request::Put { key: "k".into(), value: "v".into(), lease };
        assert_eq!(due(None, &revoke, 0), None);
        assert_eq!(due(Some(Control::LostRevoke), &revoke, 0), Some(Control::LostRevoke));
        assert_eq!(due(Some(Control::LostRevoke), &revoke, 1), None);
        assert_eq!(due(Some(Control::LostRevoke), &put(7), 0), None);
        assert_eq!(due(Some(Control::SecretDelete), &put(0), 0), None);
        assert_eq!(due(Some(Control::NoFsync), &put(7), 0), None);
    }

    #[test]
    fn an_answer_is_falsified_as_the_lie_says() {
        let pair =
            |key: &str| Pair { key: key.into(), value: "v".into(), created: 2, modified: 2, version: 1, lease: 0 };
        let answer = |revision, body| Answer { revision, index: 9, body };
        let removed =
            |count, keys: &[&str]| Body::Removed { count, before: keys.iter().map(|key| pair(key)).collect() };
        for (lie, body, wanted) in [
            (Control::WrongRevision, Body::Put, answer(4, Body::Put)),
            (Control::WrongCount, Body::Deleted(1), answer(5, Body::Deleted(2))),
            (Control::WrongCount, removed(2, &["a", "b"]), answer(5, removed(3, &["a", "b"]))),
            (Control::WrongBefore, removed(2, &["a", "b"]), answer(5, removed(2, &["a"]))),
            (Control::WrongBefore, removed(0, &[]), answer(5, removed(0, &[]))),
            (Control::WrongBefore, Body::Replaced(Some(pair("a"))), answer(5, Body::Replaced(None))),
            (Control::WrongRead, Body::Pairs(vec![pair("a")]), answer(5, Body::Pairs(vec![]))),
            (Control::WrongRead, Body::Deleted(1), answer(5, Body::Deleted(1))),
        ] {
            assert_eq!(wrong(lie, answer(5, body.clone())), wanted, "{lie:?} about {body:?}");
        }
    }
}
