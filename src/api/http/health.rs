//! `/health`: etcd's old health check, which load balancers use.

use std::sync::Arc;

use axum::extract::{Query, State};
use axum::http::{Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tracing::warn;

use super::{HttpState, Params, only_get, values};
use headwater_api_shared::etcd_texts::{alarm_name, node_error};
use headwater_node::{Consistency, NodeError};
use headwater_types::AlarmKind;

/// Answers `/health`. `exclude` names alarms that do not count; with `serializable=true` the check
/// is a read of this member's own state.
pub(super) async fn health(
    State(state): State<Arc<HttpState>>,
    method: Method,
    Query(params): Query<Params>,
) -> Response {
    if let Some(refusal) = only_get(&method) {
        return refusal;
    }
    let consistency = consistency(&params);
    let alarms = AlarmKind::ALL.into_iter().filter(|kind| state.node.maintenance().active_alarms().has(*kind));
    let health = match (Health::of_alarms(alarms, &params), consistency) {
        (Some(alarmed), _) => alarmed,
        (None, Consistency::Linearizable) if state.node.live_leader().is_none() => Health::without_leader(),
        (None, Consistency::Linearizable | Consistency::Serializable) => {
            Health::of_read(state.check_read(consistency).await)
        }
    };
    if health.is_ok() {
        state.healthy.inc();
    } else {
        state.unhealthy.inc();
        warn!(reason = health.reason, "health check failed");
    }
    health.response()
}

fn consistency(params: &Params) -> Consistency {
    match values(params, "serializable").next() {
        Some("true") => Consistency::Serializable,
        _ => Consistency::Linearizable,
    }
}

#[derive(Serialize)]
struct Health {
    health: &'static str,
    reason: String,
}

impl Health {
    /// Unhealthy for the first alarm that is not excluded. `None` without such an alarm.
    fn of_alarms(mut active: impl Iterator<Item = AlarmKind>, params: &Params) -> Option<Self> {
        let counts = |kind: &AlarmKind| !values(params, "exclude").any(|name| name == alarm_name(*kind));
        let kind = active.find(counts)?;
        Some(Self { health: "false", reason: format!("ALARM {}", alarm_name(kind)) })
    }

    fn without_leader() -> Self {
        Self { health: "false", reason: "RAFT NO LEADER".into() }
    }

    fn of_read(read: Result<(), NodeError>) -> Self {
        match read {
            Ok(()) => Self { health: "true", reason: String::new() },
            Err(error) => Self { health: "false", reason: format!("RANGE ERROR:{}", node_error(&error).1) },
        }
    }

    fn is_ok(&self) -> bool {
        self.health == "true"
    }

    fn response(&self) -> Response {
        let body = serde_json::to_string(self).expect("two strings are always JSON");
        let (status, body) = match self.is_ok() {
            true => (StatusCode::OK, body),
            false => (StatusCode::SERVICE_UNAVAILABLE, body + "\n"),
        };
        (status, [(header::CONTENT_TYPE, "application/json")], body).into_response()
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    #[test]
    fn only_true_asks_this_member_alone() {
        let params = |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
        assert_eq!(consistency(&params(&[])), Consistency::Linearizable);
        assert_eq!(consistency(&params(&[("serializable", "false")])), Consistency::Linearizable);
        assert_eq!(consistency(&params(&[("serializable", "")])), Consistency::Linearizable);
        let exclude = params(&[("exclude", "NOSPACE"), ("serializable", "true")]);
        assert_eq!(consistency(&exclude), Consistency::Serializable);
    }

    #[test]
    fn alarms_count_unless_they_are_excluded() {
        use AlarmKind::{Corrupt, NoSpace};
        for (active, excluded, reason) in [
            (&[][..], &[][..], None),
            (&[NoSpace], &[], Some("ALARM NOSPACE")),
            (&[Corrupt], &[], Some("ALARM CORRUPT")),
            (&[NoSpace], &["NOSPACE"], None),
            (&[NoSpace], &["CORRUPT"], Some("ALARM NOSPACE")),
            (&[NoSpace, Corrupt], &["NOSPACE"], Some("ALARM CORRUPT")),
            (&[NoSpace, Corrupt], &["CORRUPT", "NOSPACE"], None),
        ] {
            let params = excluded.iter().map(|name| ("exclude".to_owned(), (*name).to_owned())).collect();
            let health = Health::of_alarms(active.iter().copied(), &params);
            assert_eq!(health.as_ref().map(|health| health.reason.as_str()), reason, "{active:?} {excluded:?}");
            assert!(health.is_none_or(|health| !health.is_ok()));
        }
    }

    #[tokio::test]
    async fn bodies_are_etcds() {
        let table = [
            (Health::of_read(Ok(())), 200, "{\"health\":\"true\",\"reason\":\"\"}"),
            (Health::without_leader(), 503, "{\"health\":\"false\",\"reason\":\"RAFT NO LEADER\"}\n"),
            (
                Health::of_read(Err(NodeError::Timeout)),
                503,
                "{\"health\":\"false\",\"reason\":\"RANGE ERROR:etcdserver: request timed out\"}\n",
            ),
        ];
        for (health, code, body) in table {
            let response = health.response();
            assert_eq!(response.status().as_u16(), code);
            assert_eq!(response.headers()[header::CONTENT_TYPE], "application/json");
            assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), body);
        }
    }
}
