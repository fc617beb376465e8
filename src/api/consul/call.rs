//! One parsed request: the end of its path, its query and its body, its consistency and its wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Extensions, HeaderMap, StatusCode};
use percent_encoding::percent_decode_str;
use serde::Serialize;

use super::Shared;
use super::access;
use super::answer::{Answer, Refusal};
use super::decode::{self, Object};
use headwater_api_shared::caller::Caller;
use headwater_api_shared::{context, duration};
use headwater_node::{Consistency, Node, RequestContext, Secret};
use headwater_types::LogIndex;
use headwater_types::limits::CONSUL_WAIT_SECONDS_MAX;

/// The longest time that a blocking query waits if its `wait` is absent or zero, without jitter
/// (spec: consul §8.1).
const WAIT_DEFAULT: Duration = Duration::from_secs(300);
const WAIT_MAX: Duration = Duration::from_secs(CONSUL_WAIT_SECONDS_MAX);

/// One request of Consul's HTTP API.
pub(super) struct Call {
    pub(super) shared: Arc<Shared>,
    /// The part of the request's path after the endpoint's path, percent-decoded; may be empty.
    rest: Vec<u8>,
    pub(super) query: Query,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    /// The secret of the request's token. `None` if the request has no token.
    pub(super) secret: Option<Secret>,
    /// Whether something was left out of the answer because the token may not see it.
    pub(super) has_hidden: AtomicBool,
    /// The principal and the client that `api::access` has admitted.
    pub(super) caller: Caller,
}

impl Call {
    /// Parses a request; its caller is anonymous until [`made_by`](Self::made_by). Refuses a path
    /// or query with an invalid percent-encoding, a path with control characters or with white
    /// space other than plain spaces (Consul refuses all characters that cannot be printed), a
    /// parameter for a namespace, partition or peer that is not empty, and another datacenter.
    pub(super) fn new(
        shared: Arc<Shared>,
        rest: &str,
        query: Option<&str>,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Self, Refusal> {
        let rest = percent_decode(rest).ok_or_else(|| Refusal::bad("the path is not percent-encoded"))?;
        if !is_printable(&rest) {
            return Err(Refusal::bad("the path has a character that cannot be printed"));
        }
        let query = Query::read(query.unwrap_or_default())?;
        for (name, what) in [("ns", "Namespaces are"), ("partition", "Partitions are"), ("peer", "Peering is")] {
            if query.get(name).is_some_and(|value| !value.is_empty()) {
                return Err(Refusal::bad(format!("Invalid query parameter: {name:?} - {what} not supported here")));
            }
        }
        let secret = access::secret_of(&query, &headers);
        let has_hidden = AtomicBool::new(false);
        let call = Self { shared, rest, query, headers, body, secret, has_hidden, caller: Caller::default() };
        call.check_datacenter(call.query.get("dc").unwrap_or_default())?;
        Ok(call)
    }

    /// The same request, with `caller` as its client.
    pub(super) fn made_by(self, caller: Caller) -> Self {
        Self { caller, ..self }
    }

    pub(super) fn node(&self) -> &Node {
        &self.shared.node
    }

    /// Refuses (500, as Consul) the name of another datacenter. An empty name means this one.
    pub(super) fn check_datacenter(&self, name: &str) -> Result<(), Refusal> {
        match name.is_empty() || name == self.node().datacenter() {
            true => Ok(()),
            false => Err(Refusal::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                format!(
                    "No path to datacenter: {name:?} is not {:?}, which is the only one here",
                    self.node().datacenter()
                ),
            )),
        }
    }

    /// The context for requests to the node: the principal, the request timeout from now, and what
    /// the headers ask for ([`context_of`]). Each call begins a new timeout.
    pub(super) fn context(&self) -> Result<RequestContext, Refusal> {
        let ctx = context_of(&self.headers, self.shared.options.request_timeout)?;
        Ok(RequestContext { principal: self.principal(), ..self.caller.clone().fill(ctx) })
    }

    /// The part of the request's path after the endpoint's path. It may be empty, or not UTF-8.
    pub(super) fn rest_bytes(&self) -> &[u8] {
        &self.rest
    }

    /// The part of the request's path after the endpoint's path. Refused (400) if it is empty, with
    /// the text `missing`, and if it is not UTF-8.
    pub(super) fn rest(&self, missing: &str) -> Result<&str, Refusal> {
        let text = std::str::from_utf8(&self.rest).map_err(|_| Refusal::bad("the path is not UTF-8"))?;
        if text.is_empty() { Err(Refusal::bad(missing)) } else { Ok(text) }
    }

    /// The body as a JSON value. Refused (400) if it is no JSON.
    pub(super) fn json(&self) -> Result<serde_json::Value, Refusal> {
        decode::json(&self.body)
    }

    /// The body as a JSON object; an empty object for a blank body. Refused (400) if it is no JSON
    /// object.
    pub(super) fn json_or_nothing(&self) -> Result<serde_json::Value, Refusal> {
        if self.body.iter().all(u8::is_ascii_whitespace) {
            return Ok(serde_json::Value::Object(serde_json::Map::new()));
        }
        let body = self.json()?;
        Object::of(&body)?;
        Ok(body)
    }

    /// An answer of JSON, indented if the query has `?pretty`. With the header of a filtered list
    /// if something was hidden from the request so far.
    pub(super) fn answer(&self, value: &impl Serialize) -> Answer {
        let answer = if self.query.is_there("pretty") { Answer::pretty(value) } else { Answer::json(value) };
        if self.has_hidden.load(Ordering::Relaxed) { answer.filtered() } else { answer }
    }

    /// The consistency and the wait that the query asks for.
    pub(super) fn freshness(&self) -> Result<Freshness, Refusal> {
        Freshness::read(&self.query, self.node().leader_contact())
    }
}

/// The context that the headers of a request ask for, as the metadata of a gRPC call does. Its
/// timeout is `timeout_max`, or less by `grpc-timeout`. Refused (400) if a header cannot be read.
fn context_of(headers: &HeaderMap, timeout_max: Duration) -> Result<RequestContext, Refusal> {
    context::read(headers, &Extensions::new(), timeout_max).map_err(|invalid| Refusal::bad(invalid.wire().1))
}

/// The consistency of a read, and its wait for a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Freshness {
    pub(super) consistency: Consistency,
    /// The value of `X-Consul-Effective-Consistency`.
    pub(super) name: &'static str,
    /// `None` without `?index`, or with index 0: the answer is due at once.
    pub(super) wait: Option<Wait>,
}

/// The condition of a blocking query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wait {
    /// Waits for a change after this index.
    pub(super) after: LogIndex,
    /// Longest wait, without jitter.
    pub(super) at_most: Duration,
}

impl Wait {
    /// The wait with jitter: up to a sixteenth longer, so that clients that began together spread
    /// out.
    pub(super) fn with_jitter(&self) -> Duration {
        self.at_most + (self.at_most / 16).mul_f64(rand::random::<f64>())
    }
}

impl Freshness {
    /// Reads the parameters of the query. `silence` is the time since the last contact with the
    /// leader; `None` without any contact. With `?max_stale`, the read is stale only if `silence`
    /// is at most that long; else it is linearizable.
    fn read(query: &Query, silence: Option<Duration>) -> Result<Self, Refusal> {
        let wait = match query.get("index") {
            None | Some("") => 0,
            Some(text) => text.parse().map_err(|_| Refusal::bad(format!("Invalid index: {text:?}")))?,
        };
        let at_most = match query.get("wait") {
            None | Some("") => WAIT_DEFAULT,
            Some(text) => match duration::parse(text) {
                Some(Duration::ZERO) => WAIT_DEFAULT,
                Some(wait) => wait.min(WAIT_MAX),
                None => return Err(Refusal::bad(format!("Invalid wait time: {text:?}; write 30s, 5m or 300ms"))),
            },
        };
        let max_stale = match query.get("max_stale") {
            None => None,
            Some(text) => {
                Some(duration::parse(text).ok_or_else(|| Refusal::bad(format!("Invalid max_stale value {text:?}")))?)
            }
        };
        let (consistent, cached) = (query.is_there("consistent"), query.is_there("cached"));
        let mut stale = query.is_there("stale") || max_stale.is_some();
        let conflict = |with: &str| format!("Cannot specify ?{with} with ?consistent, conflicting semantics.");
        if consistent && (stale || cached) {
            return Err(Refusal::bad(conflict(if stale { "stale" } else { "cached" })));
        }
        if let Some(max) = max_stale {
            stale = silence.is_some_and(|silence| silence <= max);
        }
        let (consistency, name) = match (consistent, stale || cached) {
            (true, _) => (Consistency::Linearizable, "consistent"),
            (false, true) => (Consistency::Serializable, "stale"),
            (false, false) => (Consistency::Linearizable, "leader"),
        };
        Ok(Self { consistency, name, wait: (wait > 0).then_some(Wait { after: LogIndex(wait), at_most }) })
    }
}

/// The parameters of a URL's query, in their order. Names are not checked.
#[derive(Debug, Default)]
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    pub(super) fn read(text: &str) -> Result<Self, Refusal> {
        let decode = |text: &str| {
            let bytes = percent_decode(&text.replace('+', " "))?;
            String::from_utf8(bytes).ok()
        };
        let pair = |pair: &str| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Some((decode(name)?, decode(value)?))
        };
        let pairs = text.split('&').filter(|it| !it.is_empty()).map(pair).collect::<Option<_>>();
        pairs.map(Self).ok_or_else(|| Refusal::bad("the query is not percent-encoded UTF-8"))
    }

    /// The first value of a parameter; empty if it is written without one. `None` if it is missing.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Every value of a parameter.
    pub(super) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Whether a parameter is present, with any value.
    pub(super) fn is_there(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// A boolean parameter: one of Go's words, or true if it has no value. False if it is missing;
    /// refused (400) for any other text.
    pub(super) fn switch(&self, name: &str) -> Result<bool, Refusal> {
        match self.get(name) {
            None => Ok(false),
            Some("" | "1" | "t" | "T" | "true" | "TRUE" | "True") => Ok(true),
            Some("0" | "f" | "F" | "false" | "FALSE" | "False") => Ok(false),
            Some(_) => Err(Refusal::bad(format!("Invalid value for ?{name}"))),
        }
    }
}

/// Decodes escapes such as `%41`. `None` if a percent sign begins no escape: the library would keep
/// it as it is.
fn percent_decode(text: &str) -> Option<Vec<u8>> {
    let is_escape = |after: &str| after.len() >= 2 && after.as_bytes()[..2].iter().all(u8::is_ascii_hexdigit);
    // Two percent signs in a row end the first escape early, and the check fails.
    text.split('%').skip(1).all(is_escape).then(|| percent_decode_str(text).collect())
}

/// Whether a text has no control characters, and no white space but plain spaces. Bytes that are
/// not UTF-8 count as printable.
fn is_printable(text: &[u8]) -> bool {
    let is_printable = |letter: char| letter == ' ' || !(letter.is_control() || letter.is_whitespace());
    String::from_utf8_lossy(text).chars().all(is_printable)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn freshness(query: &str) -> Result<Freshness, String> {
        Freshness::read(&Query::read(query).unwrap(), Some(Duration::from_millis(50))).map_err(|refusal| refusal.text)
    }

    #[test]
    fn headers_shorten_the_timeout_with_and_without_a_minimum_index() {
        let asked = |headers: &[(&'static str, &str)]| {
            let headers = headers.iter().map(|(name, value)| {
                (http::HeaderName::from_static(name), http::HeaderValue::from_str(value).unwrap())
            });
            let before = Instant::now();
            context_of(&headers.collect(), Duration::from_secs(60))
                .map(|ctx| ((ctx.deadline - before).as_secs(), ctx.min_index.map(LogIndex::get)))
                .map_err(|refusal| (refusal.status, refusal.text))
        };
        assert_eq!(asked(&[]), Ok((60, None)));
        assert_eq!(asked(&[("grpc-timeout", "5S")]), Ok((5, None)));
        assert_eq!(asked(&[("grpc-timeout", "2M")]), Ok((60, None)), "it only shortens");
        assert_eq!(asked(&[("headwater-min-index", "7")]), Ok((60, Some(7))));
        assert_eq!(asked(&[("grpc-timeout", "5S"), ("headwater-min-index", "7")]), Ok((5, Some(7))));
        for name in ["grpc-timeout", "headwater-min-index"] {
            let (status, text) = asked(&[(name, "soon")]).unwrap_err();
            assert_eq!(status, StatusCode::BAD_REQUEST);
            assert!(text.contains(name), "{text}");
        }
    }

    #[test]
    fn index_and_wait_are_read_with_their_bounds() {
        for (query, wanted) in [
            ("", None),
            ("index=0&wait=5s", None),
            ("index=", None),
            ("wait=5s", None),
            ("index=7", Some((7, 300))),
            ("index=7&wait=30s", Some((7, 30))),
            ("index=7&wait=5000ms", Some((7, 5))),
            ("index=7&wait=0s", Some((7, 300))),
            ("index=7&wait=600s", Some((7, 600))),
            ("index=7&wait=601s", Some((7, 600))),
            ("index=18446744073709551615&wait=1h", Some((u64::MAX, 600))),
        ] {
            let wanted = wanted.map(|(after, s)| Wait { after: LogIndex(after), at_most: Duration::from_secs(s) });
            assert_eq!(freshness(query).unwrap().wait, wanted, "{query}");
        }
        for (query, wanted) in [
            ("index=x", "Invalid index"),
            ("index=-1", "Invalid index"),
            ("index=18446744073709551616", "Invalid index"),
            ("wait=soon", "Invalid wait time"),
            ("wait=-5s", "Invalid wait time"),
            ("wait=5", "Invalid wait time"),
            ("max_stale=x", "Invalid max_stale"),
            ("stale&consistent", "Cannot specify ?stale with ?consistent"),
            ("cached&consistent", "Cannot specify ?cached with ?consistent"),
        ] {
            let refused = freshness(query).unwrap_err();
            assert!(refused.starts_with(wanted), "{query}: {refused}");
        }
    }

    #[test]
    fn consistency_is_named_by_the_query() {
        for (query, wanted) in [
            ("", "leader"),
            ("leader", "leader"),
            ("stale", "stale"),
            ("stale=1", "stale"),
            ("cached", "stale"),
            ("consistent", "consistent"),
            ("max_stale=1s", "stale"),
            ("max_stale=10ms", "leader"),
        ] {
            let freshness = freshness(query).unwrap();
            assert_eq!(freshness.name, wanted, "{query}");
            assert_eq!(freshness.consistency == Consistency::Serializable, wanted == "stale", "{query}");
        }
    }

    #[test]
    fn jitter_is_a_sixteenth_at_most() {
        let wait = Wait { after: LogIndex(1), at_most: Duration::from_secs(16) };
        for _ in 0..100 {
            let jittered = wait.with_jitter();
            assert!(jittered >= wait.at_most && jittered <= Duration::from_secs(17), "{jittered:?}");
        }
    }

    #[test]
    fn queries_are_decoded() {
        let query = Query::read("tag=a&tag=b%20c+d&passing&x=%3D&=&filter=Service%3D%3D1").unwrap();
        assert_eq!(query.all("tag").collect::<Vec<_>>(), ["a", "b c d"]);
        assert_eq!(query.get("x"), Some("="));
        assert_eq!(query.get("filter"), Some("Service==1"));
        assert!(query.switch("passing").unwrap() && !query.switch("absent").unwrap());
        for bad in ["a=%", "a=%4", "a=%zz", "a=%ff"] {
            assert!(Query::read(bad).is_err(), "{bad}");
        }
        for (text, wanted) in [("passing=1", Some(true)), ("passing=false", Some(false)), ("passing=junk", None)] {
            assert_eq!(Query::read(text).unwrap().switch("passing").ok(), wanted, "{text}");
        }
    }
}
