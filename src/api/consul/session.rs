//! `/v1/session`: sessions, which hold locks (spec: consul §8.3).

use std::time::Duration;

use http::StatusCode;
use serde::Serialize;
use serde_json::Value;

use super::access::Right;
use super::answer::{Answer, Refusal};
use super::call::Call;
use super::decode::{Object, failed};
use super::lookup::look_up;
use headwater_api_shared::duration;
use headwater_node::{CatalogSubject, Consistency};
use headwater_types::catalog::CatalogTable;
use headwater_types::consul::{Session, SessionBehavior, SessionCreate};
use headwater_types::limits::{
    CATALOG_NAME_BYTES_MAX, LOCK_DELAY_MS_DEFAULT, LOCK_DELAY_MS_MAX, SESSION_CHECKS_MAX, SESSION_TTL_MS_MAX,
    SESSION_TTL_MS_MIN,
};
use headwater_types::{Access, Space};

const MISSING_SESSION: &str = "Missing session";
/// The subject of queries that wait for a change of sessions.
const SESSIONS: CatalogSubject = CatalogSubject::Table(CatalogTable::Sessions);
/// Bound between the two units of a lock delay that is a number: a smaller one is in seconds, any
/// other in nanoseconds. Clients send both.
const SECONDS_BELOW: f64 = 1000.0;

/// A session as JSON.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct SessionBody<'a> {
    #[serde(rename = "ID")]
    id: &'a str,
    name: &'a str,
    node: &'a str,
    /// Lock delay, nanoseconds.
    lock_delay: u64,
    behavior: &'static str,
    #[serde(rename = "TTL")]
    ttl: &'a str,
    node_checks: &'a [String],
    service_checks: Option<Vec<ServiceCheck<'a>>>,
    create_index: u64,
    modify_index: u64,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct ServiceCheck<'a> {
    #[serde(rename = "ID")]
    id: &'a str,
    namespace: &'static str,
}

impl<'a> SessionBody<'a> {
    fn of(session: &'a Session) -> Self {
        let service_checks: Vec<_> =
            session.service_checks.iter().map(|id| ServiceCheck { id, namespace: "" }).collect();
        Self {
            id: &session.id,
            name: &session.name,
            node: &session.node,
            lock_delay: session.lock_delay_ms * 1_000_000,
            behavior: match session.behavior {
                SessionBehavior::Release => "release",
                SessionBehavior::Delete => "delete",
            },
            ttl: &session.ttl,
            node_checks: &session.node_checks,
            service_checks: (!service_checks.is_empty()).then_some(service_checks),
            create_index: session.created.get(),
            modify_index: session.created.get(),
        }
    }
}

#[derive(Serialize)]
struct Created {
    #[serde(rename = "ID")]
    id: String,
}

/// Creates a session, on the catalog node with this member's name unless the request names another.
/// The answer has the session's id.
pub(super) async fn create(call: Call) -> Result<Answer, Refusal> {
    let body = call.json_or_nothing()?;
    let create = read(&Object::of(&body)?, call.node().name())?;
    call.require(&session_right(&create.session.node, Access::WRITE))?;
    let done = call.node().consul().create_session(&call.context()?, create).await?;
    Ok(call.answer(&Created { id: done.value }).at(done.index))
}

fn read(body: &Object<'_>, own_node: &str) -> Result<SessionCreate, Refusal> {
    let named = body.text("Node")?;
    let behavior = match body.text("Behavior")?.as_str() {
        "" | "release" => SessionBehavior::Release,
        "delete" => SessionBehavior::Delete,
        other => return Err(Refusal::bad(format!("Invalid Behavior setting {other:?}; it is release or delete"))),
    };
    let ttl = body.text("TTL")?;
    let ttl_ms = match ttl.as_str() {
        "" => 0,
        text => {
            let ms = duration::parse(text).map(millis);
            let ms = ms.ok_or_else(|| failed(&format!("TTL: {text:?} is no duration; write 10s or 1m30s")))?;
            if ms != 0 && !(SESSION_TTL_MS_MIN..=SESSION_TTL_MS_MAX).contains(&ms) {
                let (min, max) = (SESSION_TTL_MS_MIN / 1000, SESSION_TTL_MS_MAX / 1000);
                return Err(Refusal::bad(format!("Invalid Session TTL {text:?}, must be between [{min}s={max}s]")));
            }
            ms
        }
    };
    let name = body.text("Name")?;
    for (what, text) in [("Name", &name), ("Node", &named), ("TTL", &ttl)] {
        if text.len() > CATALOG_NAME_BYTES_MAX {
            return Err(Refusal::bad(format!(
                "{what} of a session has at most {CATALOG_NAME_BYTES_MAX} bytes; make it shorter"
            )));
        }
        if text.chars().any(char::is_control) {
            return Err(Refusal::bad(format!("{what} of a session has control characters")));
        }
    }
    let mut service_checks = Vec::new();
    for check in body.objects("ServiceChecks")? {
        service_checks.push(check.text("ID")?);
    }
    // Older clients name them `Checks`.
    let mut node_checks = body.texts("NodeChecks")?;
    node_checks.extend(body.texts("Checks")?);
    for checks in [&mut node_checks, &mut service_checks] {
        checks.retain(|check| !check.is_empty());
        checks.sort_unstable();
        checks.dedup();
    }
    if node_checks.len() + service_checks.len() > SESSION_CHECKS_MAX {
        return Err(Refusal::bad(format!("a session has at most {SESSION_CHECKS_MAX} checks")));
    }
    // A list of checks of the node, even an empty one, replaces the default check. Checks of
    // services do not: they are added to it.
    let is_said = ["Checks", "NodeChecks"].into_iter().any(|name| body.get(name).is_some());
    Ok(SessionCreate {
        default_check: !is_said,
        node_required: !named.is_empty() && named != own_node,
        session: Session {
            name,
            node: if named.is_empty() { own_node.to_owned() } else { named },
            node_checks,
            service_checks,
            behavior,
            lock_delay_ms: lock_delay_ms(body)?.min(LOCK_DELAY_MS_MAX),
            ttl_ms,
            ttl: if ttl_ms == 0 { String::new() } else { ttl },
            ..Session::default()
        },
    })
}

fn lock_delay_ms(body: &Object<'_>) -> Result<u64, Refusal> {
    match body.get("LockDelay") {
        None => Ok(LOCK_DELAY_MS_DEFAULT),
        Some(Value::Number(number)) if number.as_f64().is_some_and(|number| (0.0..SECONDS_BELOW).contains(&number)) => {
            Ok((number.as_f64().unwrap_or_default() * 1000.0) as u64)
        }
        Some(_) => Ok(millis(body.duration("LockDelay")?)),
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn session_right(node: &str, access: Access) -> Right<'_> {
    Right::name(Space::Session, node, access)
}

/// Refuses to change a session for a request without the write right to sessions of the session's
/// node. For a session that does not exist, a write right to sessions of any node is enough; a
/// request without one that may not read the session gets the same refusal in both cases.
async fn require_write(call: &Call, id: &str) -> Result<(), Refusal> {
    if call.authorizer()?.is_open() {
        return Ok(());
    }
    let read = call.node().consul().session(&call.context()?, Consistency::Linearizable, id.to_owned()).await?;
    match &read.value.value {
        Some(session) => call.require_discreet(session_right(&session.node, Access::WRITE)),
        None => call.require_some(Space::Session, Access::WRITE),
    }
}

/// Destroys a session. The answer is `true`, also for a session that does not exist.
pub(super) async fn destroy(call: Call) -> Result<Answer, Refusal> {
    let id = call.rest(MISSING_SESSION)?.to_owned();
    require_write(&call, &id).await?;
    let done = call.node().consul().destroy_session(&call.context()?, id).await?;
    Ok(call.answer(&true).at(done.index))
}

/// Renews a session: its TTL starts again. 404 if there is no such session, or it has expired.
pub(super) async fn renew(call: Call) -> Result<Answer, Refusal> {
    let id = call.rest(MISSING_SESSION)?.to_owned();
    require_write(&call, &id).await?;
    let renewed = call.node().consul().renew_session(&call.context()?, id.clone()).await?;
    match &renewed.value {
        Some(session) => Ok(call.answer(&[SessionBody::of(session)]).at(renewed.index)),
        None => Err(Refusal::new(StatusCode::NOT_FOUND, format!("Session id '{id}' not found"))),
    }
}

/// A list of the one session with that id; empty if it does not exist, or the request may not see
/// it.
pub(super) async fn info(call: Call) -> Result<Answer, Refusal> {
    let id = call.rest(MISSING_SESSION)?.to_owned();
    let found = look_up(&call, vec![SESSIONS], |node, ctx, consistency| {
        let id = id.clone();
        async move { node.consul().session(&ctx, consistency, id).await }
    });
    let found = found.await?;
    let visibility = call.visibility()?;
    let mut shown: Vec<&Session> = found.found.value.iter().collect();
    visibility.keep(&mut shown, |session| visibility.sees(Space::Session, &session.node));
    Ok(found.answer(&call, &shown.into_iter().map(SessionBody::of).collect::<Vec<_>>()))
}

/// Every session that the request may see.
pub(super) async fn list(call: Call) -> Result<Answer, Refusal> {
    some(&call, None).await
}

/// The sessions of a node that the request may see.
pub(super) async fn of_node(call: Call) -> Result<Answer, Refusal> {
    let node = call.rest("Missing node name")?.to_owned();
    some(&call, Some(node)).await
}

async fn some(call: &Call, of: Option<String>) -> Result<Answer, Refusal> {
    let found = look_up(call, vec![SESSIONS], |node, ctx, consistency| {
        let of = of.clone();
        async move { node.consul().sessions(&ctx, consistency, of).await }
    });
    let mut found = found.await?;
    let visibility = call.visibility()?;
    visibility.keep(&mut found.found.value, |session| visibility.sees(Space::Session, &session.node));
    Ok(found.answer(call, &found.found.value.iter().map(SessionBody::of).collect::<Vec<_>>()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn created(body: &Value) -> Result<SessionCreate, String> {
        read(&Object::of(body).unwrap(), "own").map_err(|refusal| refusal.text)
    }

    #[test]
    fn what_is_left_out_is_completed() {
        let create = created(&json!({})).unwrap();
        let session = &create.session;
        assert!(create.default_check && !create.node_required);
        assert_eq!((session.node.as_str(), session.behavior, session.ttl_ms), ("own", SessionBehavior::Release, 0));
        assert_eq!(session.lock_delay_ms, 15_000);
        let create = created(&json!({
            "node": "other", "checks": ["b", "a", "a"], "ServiceChecks": [{"ID": "c"}], "behavior": "delete",
            "ttl": "10s", "LockDelay": "2m", "name": "n"
        }))
        .unwrap();
        let session = &create.session;
        assert!(!create.default_check && create.node_required);
        assert_eq!(session.node_checks, ["a", "b"]);
        assert_eq!(session.service_checks, ["c"]);
        assert_eq!((session.ttl_ms, session.ttl.as_str(), session.lock_delay_ms), (10_000, "10s", 60_000));
        assert!(!created(&json!({"NodeChecks": []})).unwrap().default_check);
        let of_service = created(&json!({"ServiceChecks": [{"ID": "c"}]})).unwrap();
        assert!(of_service.default_check, "it stands on its node as well");
        assert!(!created(&json!({"Checks": [], "ServiceChecks": [{"ID": "c"}]})).unwrap().default_check);
    }

    #[test]
    fn lock_delays_are_seconds_or_nanoseconds() {
        for (delay, wanted) in [
            (json!("1s"), 1000),
            (json!(15), 15_000),
            (json!(0), 0),
            (json!(999), 60_000),
            (json!(15_000_000_000_u64), 15_000),
            (json!(1000), 0),
        ] {
            assert_eq!(created(&json!({ "LockDelay": delay })).unwrap().session.lock_delay_ms, wanted, "{delay}");
        }
    }

    #[test]
    fn bounds_are_kept() {
        for (body, wanted) in [
            (json!({"TTL": "9999ms"}), "Invalid Session TTL"),
            (json!({"TTL": "24h1ms"}), "Invalid Session TTL"),
            (json!({"TTL": "soon"}), "is no duration"),
            (json!({"Name": "n".repeat(513)}), "Name of a session has at most 512 bytes"),
            (json!({"Node": "n".repeat(513)}), "Node of a session has at most 512 bytes"),
            (json!({"TTL": format!("{}10s", "0h".repeat(255))}), "TTL of a session has at most 512 bytes"),
            (json!({"Name": "n\u{0}"}), "Name of a session has control characters"),
            (json!({"Node": "n\n"}), "Node of a session has control characters"),
            (json!({"Behavior": "keep"}), "Invalid Behavior"),
            (json!({"LockDelay": "x"}), "is no duration"),
            (json!({"LockDelay": -1}), "wanted a duration"),
            (json!({"Checks": "a"}), "wanted a list of texts"),
            (
                json!({"NodeChecks": vec!["x"; 65].iter().enumerate().map(|(n, _)| n.to_string()).collect::<Vec<_>>()}),
                "at most 64",
            ),
        ] {
            let refused = created(&body).unwrap_err();
            assert!(refused.contains(wanted), "{body}: {refused}");
        }
        assert!(created(&json!({"Name": "n".repeat(512)})).is_ok());
        for ttl in ["10s", "24h"] {
            assert!(created(&json!({ "TTL": ttl })).is_ok(), "{ttl}");
        }
    }
}
