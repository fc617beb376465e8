//! `/livez` and `/readyz`: named checks, one line each in verbose answers and in failures.
//!
//! Alive means that the process answers from its own state and should not be restarted. Ready means
//! that it can be sent requests. A member without a quorum is alive and not ready.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, Query, State};
use axum::http::{Method, StatusCode};
use axum::response::Response;
use prometheus::{IntCounterVec, IntGaugeVec, Opts, Registry};

use super::{HttpState, Params, not_found, only_get, text, values};
use headwater_api_shared::etcd_texts::node_error;
use headwater_node::{Consistency, NodeError};
use headwater_types::AlarmKind;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Check {
    /// The stored state is readable, and no alarm says that members differ.
    DataCorruption,
    /// A serializable read is answered. Unless `when_recovered`, a member that still recovers
    /// passes as well, if its stored state is readable. A restarted member serves no read before it
    /// has received the commit index from a leader.
    SerializableRead {
        when_recovered: bool,
    },
    LinearizableRead,
    NonLearner,
    /// No stall of applying has lasted for `stall_max`. Short stalls never count
    /// ([`Node::stands_still`](headwater_node::Node::stands_still)).
    Progress {
        stall_max: Duration,
    },
}

/// Length of a stall after which the liveness probe fails, so that the node is restarted: every
/// recovery without a restart was tried by then.
const STALL_LIVE_MAX: Duration = Duration::from_secs(60);

const LIVE: &[Check] =
    &[Check::SerializableRead { when_recovered: false }, Check::Progress { stall_max: STALL_LIVE_MAX }];
/// Checks of the readiness probe. Every stall that counts fails it: other members serve requests
/// better then.
const READY: &[Check] = &[
    Check::DataCorruption,
    Check::SerializableRead { when_recovered: true },
    Check::LinearizableRead,
    Check::NonLearner,
    Check::Progress { stall_max: Duration::ZERO },
];

impl Check {
    fn name(self) -> &'static str {
        match self {
            Self::DataCorruption => "data_corruption",
            Self::SerializableRead { .. } => "serializable_read",
            Self::LinearizableRead => "linearizable_read",
            Self::NonLearner => "non_learner",
            Self::Progress { .. } => "progress",
        }
    }

    async fn run(self, state: &HttpState) -> Result<(), String> {
        let error_text = |error: NodeError| node_error(&error).1.into_owned();
        match self {
            Self::DataCorruption => {
                let alarms = state.node.status().map_err(error_text)?.alarms;
                match alarms.iter().any(|alarm| alarm.kind == AlarmKind::Corrupt) {
                    true => Err("alarm activated: CORRUPT".to_owned()),
                    false => Ok(()),
                }
            }
            Self::SerializableRead { when_recovered } => {
                // A restart would not help a member that waits for a leader.
                let recovering = !state.node.status().map_err(error_text)?.serving;
                match recovering && !when_recovered {
                    true => Ok(()),
                    false => state.check_read(Consistency::Serializable).await.map_err(error_text),
                }
            }
            Self::LinearizableRead => state.check_read(Consistency::Linearizable).await.map_err(error_text),
            Self::NonLearner => match state.node.status().map_err(error_text)?.is_learner {
                true => Err("this member is a learner".to_owned()),
                false => Ok(()),
            },
            Self::Progress { stall_max } => match state.node.stands_still().filter(|lasts| *lasts >= stall_max) {
                Some(lasts) => Err(format!("nothing was applied for {} s although more is committed", lasts.as_secs())),
                None => Ok(()),
            },
        }
    }
}

/// Results of the checks, under etcd's names.
pub(super) struct CheckMetrics {
    last: IntGaugeVec,
    done: IntCounterVec,
}

impl CheckMetrics {
    pub(super) fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let last = Opts::new("etcd_server_healthcheck", "Result of the last check: 1 for success, else 0.");
        let done = Opts::new("etcd_server_healthchecks_total", "Checks by result.");
        let this = Self {
            last: IntGaugeVec::new(last, &["type", "name"])?,
            done: IntCounterVec::new(done, &["type", "name", "status"])?,
        };
        registry.register(Box::new(this.last.clone()))?;
        registry.register(Box::new(this.done.clone()))?;
        Ok(this)
    }

    fn count(&self, probe: &str, check: &str, success: bool) {
        self.last.with_label_values(&[probe, check]).set(success.into());
        let status = if success { "success" } else { "error" };
        self.done.with_label_values(&[probe, check, status]).inc();
    }
}

/// Name of the path `/livez` in metrics.
const LIVEZ: &str = "livez";
/// Name of the path `/readyz` in metrics.
const READYZ: &str = "readyz";

pub(super) async fn livez(state: State<Arc<HttpState>>, method: Method, params: Query<Params>) -> Response {
    probe(state, method, (LIVEZ, LIVE), params).await
}

pub(super) async fn readyz(state: State<Arc<HttpState>>, method: Method, params: Query<Params>) -> Response {
    probe(state, method, (READYZ, READY), params).await
}

pub(super) async fn livez_one(
    state: State<Arc<HttpState>>,
    method: Method,
    Path(name): Path<String>,
    params: Query<Params>,
) -> Response {
    match one(LIVE, &name) {
        Some(check) => probe(state, method, (LIVEZ, check), params).await,
        None => not_found().await,
    }
}

pub(super) async fn readyz_one(
    state: State<Arc<HttpState>>,
    method: Method,
    Path(name): Path<String>,
    params: Query<Params>,
) -> Response {
    match one(READY, &name) {
        Some(check) => probe(state, method, (READYZ, check), params).await,
        None => not_found().await,
    }
}

fn one<'a>(checks: &'a [Check], name: &str) -> Option<&'a [Check]> {
    let found = checks.iter().position(|check| check.name() == name)?;
    Some(&checks[found..=found])
}

async fn probe(
    State(state): State<Arc<HttpState>>,
    method: Method,
    (name, checks): (&str, &[Check]),
    Query(params): Query<Params>,
) -> Response {
    if let Some(refusal) = only_get(&method) {
        return refusal;
    }
    let mut results = Vec::new();
    for &check in checks {
        if !values(&params, "exclude").any(|excluded| excluded == check.name()) {
            let result = check.run(&state).await;
            state.checks.count(name, check.name(), result.is_ok());
            results.push((check.name(), result));
        }
    }
    let verbose = values(&params, "verbose").next().is_some();
    render(&results, verbose)
}

/// The answer to a probe: 200, or 503 if a check failed. It has a line for each check if it is
/// verbose, or if a check failed.
fn render(results: &[(&'static str, Result<(), String>)], verbose: bool) -> Response {
    let mut lines = String::new();
    for (name, result) in results {
        match result {
            Ok(()) => lines += &format!("[+]{name} ok\n"),
            Err(error) => lines += &format!("[-]{name} failed: {error}\n"),
        }
    }
    if results.iter().any(|(_, result)| result.is_err()) {
        text(StatusCode::SERVICE_UNAVAILABLE, lines)
    } else if verbose {
        text(StatusCode::OK, lines + "ok\n")
    } else {
        text(StatusCode::OK, "ok\n")
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    #[tokio::test]
    async fn failures_are_told_and_successes_only_if_asked() {
        let good = || vec![("serializable_read", Ok(())), ("non_learner", Ok(()))];
        let bad = || vec![("serializable_read", Ok(())), ("linearizable_read", Err("no leader".to_owned()))];
        let lines = "[+]serializable_read ok\n[-]linearizable_read failed: no leader\n";
        let table = [
            (good(), false, 200, "ok\n"),
            (good(), true, 200, "[+]serializable_read ok\n[+]non_learner ok\nok\n"),
            (vec![], true, 200, "ok\n"),
            (bad(), false, 503, lines),
            (bad(), true, 503, lines),
        ];
        for (results, verbose, code, body) in table {
            let response = render(&results, verbose);
            assert_eq!(response.status().as_u16(), code);
            assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), body);
        }
    }

    #[test]
    fn each_check_has_a_path_where_it_belongs() {
        assert_eq!(one(READY, "linearizable_read"), Some(&[Check::LinearizableRead][..]));
        assert_eq!(one(READY, "non_learner"), Some(&[Check::NonLearner][..]));
        let [live, ready] = [false, true].map(|when_recovered| [Check::SerializableRead { when_recovered }]);
        assert_eq!(one(LIVE, "serializable_read"), Some(&live[..]));
        assert_eq!(one(READY, "serializable_read"), Some(&ready[..]));
        assert_eq!(one(LIVE, "progress"), Some(&[Check::Progress { stall_max: STALL_LIVE_MAX }][..]));
        assert_eq!(one(READY, "progress"), Some(&[Check::Progress { stall_max: Duration::ZERO }][..]));
        assert_eq!(one(LIVE, "linearizable_read"), None);
        assert_eq!(one(READY, ""), None);
    }
}
