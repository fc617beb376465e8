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
        _ => altered(send(request.clone()).await, wrong),
    }
}

fn altered(outcome: Outcome, change: impl FnOnce(Answer) -> Answer) -> Outcome {
    match outcome {
        Outcome::Ok(answer) => Outcome::Ok(change(answer)),
        other => other,
    }
}

/// The answer with one falsification: the revision of a put is one less, `succeeded` of a
/// transaction is inverted, a count is one more, or the previous pair or the last pair of a list is
/// left out. Unchanged if nothing of this is possible, such as for an empty list of pairs.
fn wrong(answer: Answer) -> Answer {
    let Answer { revision, index, body } = answer;
    let answer = |body| Answer { revision, index, body };
    match body {
        Body::Put => Answer { revision: revision - 1, index, body },
        Body::Txn { succeeded, steps } => answer(Body::Txn { succeeded: !succeeded, steps }),
        Body::Deleted(count) => answer(Body::Deleted(count + 1)),
        Body::Removed { count, before } if before.is_empty() => answer(Body::Removed { count: count + 1, before }),
        Body::Removed { count, mut before } => {
            before.pop();
            answer(Body::Removed { count, before })
        }
        Body::Replaced(Some(_)) => answer(Body::Replaced(None)),
        Body::Pairs(mut pairs) => {
            pairs.pop();
            answer(Body::Pairs(pairs))
        }
        other => answer(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
