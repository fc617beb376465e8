//! Rules for requests of web pages on the client port: the allowed origins, and the allowed names
//! of the server.
//!
//! A page in an operator's browser reaches every server that the browser reaches. Two rules
//! restrict pages. They apply to gRPC, the gateway, REST, Consul and plain HTTP alike:
//!
//! * **Origin.** A request that a page of another origin makes is refused, unless the operator
//!   allows the origin. Browsers name the origin in `Origin` or call the request `cross-site` or
//!   `same-site` in `Sec-Fetch-Site`. Following a link to a page of this server is allowed: the
//!   other page cannot read the answer, and `GET` changes nothing.
//! * **Host.** A request of a browser must name the server by an IP address, `localhost` or an
//!   allowed name. Without that a page can point its own name at this server (DNS rebinding), and
//!   its requests are of the same origin. A page can leave out `Origin` by `GET`, and browsers send
//!   `Sec-Fetch-*` only to names that they trust; so a request counts as one of a browser also by
//!   `Referer`, `Accept-Language` or the name of the browser. Clients such as etcdctl, curl,
//!   Consul's libraries and kubelets send none of them, and may use any name.
//!
//! Users and their rights do not matter here. Programs other than browsers can evade both rules.

use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, header};
use tonic::body::Body;

use headwater_api_shared::http_errors;
use headwater_node::{Limit, LimitCounters};
use tonic::Status;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");

/// The allowed origins of pages, and the allowed names of the server. By default only the server's
/// own pages are allowed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BrowserPolicy {
    /// Origins such as `https://console.example.com`; `*` is all of them.
    pub allowed_origins: Vec<String>,
    /// Names of this server, without a port, beside IP addresses, `localhost` and names below it;
    /// `*` is all of them.
    pub allowed_hosts: Vec<String>,
}

/// The decision on a request.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// The request continues to its service. The value is the origin of the page that may read the
    /// answer, if a page of another origin sent the request.
    Allowed(Option<HeaderValue>),
    /// The request is answered by this refusal.
    Refused(Response<Body>),
}

impl BrowserPolicy {
    /// Decides on a request; counts a refusal.
    pub(crate) fn judge<B>(&self, request: &Request<B>, limit_counters: &LimitCounters) -> Verdict {
        let headers = request.headers();
        // Most requests are of other programs.
        if !is_of_browser(headers) {
            return Verdict::Allowed(None);
        }
        let host = host_of(request);
        if !host.is_some_and(|host| self.allows_host(name_of(host))) {
            limit_counters.count(Limit::Host);
            let text = format!(
                "browsers may not use this server by the name {:?}; use its IP address, or list the name in http.allowed-hosts",
                host.unwrap_or_default()
            );
            return Verdict::Refused(refusal(text));
        }
        match headers.get(header::ORIGIN) {
            Some(origin) if is_same(origin, host) => Verdict::Allowed(None),
            Some(origin) if self.allows_origin(origin) => Verdict::Allowed(Some(origin.clone())),
            None if !is_made_elsewhere(request.method(), headers) => Verdict::Allowed(None),
            origin => {
                limit_counters.count(Limit::Origin);
                let origin = origin.map_or("another site", |origin| origin.to_str().unwrap_or_default());
                let text =
                    format!("pages of {origin} may not call this server; http.allowed-origins lists the ones that may");
                Verdict::Refused(refusal(text))
            }
        }
    }

    fn allows_origin(&self, origin: &HeaderValue) -> bool {
        self.allowed_origins
            .iter()
            .any(|allowed| allowed == "*" || origin.as_bytes().eq_ignore_ascii_case(allowed.as_bytes()))
    }

    fn allows_host(&self, name: &str) -> bool {
        let is_address = name.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok();
        let lower = name.trim_end_matches('.').to_ascii_lowercase();
        is_address
            || lower == "localhost"
            || lower.ends_with(".localhost")
            || self.allowed_hosts.iter().any(|allowed| allowed == "*" || allowed.eq_ignore_ascii_case(&lower))
    }
}

/// The name by which a request addresses the server, with the port if it has one. `None` if the
/// request has no such name.
fn host_of<B>(request: &Request<B>) -> Option<&str> {
    let authority = request.uri().authority().map(http::uri::Authority::as_str);
    authority.or_else(|| request.headers().get(header::HOST)?.to_str().ok())
}

/// A host without its port.
fn name_of(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !name.ends_with(':') => name,
        _ => host,
    }
}

fn is_of_browser(headers: &HeaderMap) -> bool {
    // One pass over the few headers of a program costs less than a look-up of each name.
    headers.iter().any(|(name, value)| {
        let tells_browser = [header::ORIGIN, SEC_FETCH_SITE, header::ACCEPT_LANGUAGE, header::REFERER].contains(name);
        tells_browser || (name == header::USER_AGENT && value.as_bytes().starts_with(b"Mozilla/"))
    })
}

/// Whether `origin` is this server's own: `http` or `https` at `host`.
fn is_same(origin: &HeaderValue, host: Option<&str>) -> bool {
    let origin = origin.to_str().unwrap_or_default();
    let own = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    own.is_some() && own.zip(host).is_some_and(|(own, host)| own.eq_ignore_ascii_case(host))
}

/// Whether a request without `Origin` comes from a page of another origin. Following a link does
/// not count.
fn is_made_elsewhere(method: &Method, headers: &HeaderMap) -> bool {
    let is_elsewhere = headers.get(SEC_FETCH_SITE).is_some_and(|site| site != "same-origin" && site != "none");
    let is_link = matches!(*method, Method::GET | Method::HEAD)
        && headers.get(SEC_FETCH_MODE).is_some_and(|mode| mode == "navigate");
    is_elsewhere && !is_link
}

fn refusal(text: String) -> Response<Body> {
    http_errors::with_status(StatusCode::FORBIDDEN, &Status::permission_denied(text))
}

const METHODS_AND_HEADERS: [(HeaderName, HeaderValue); 3] = [
    (header::ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static("accept, content-type, authorization")),
    (header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("POST, GET, OPTIONS, PUT, DELETE")),
    (header::VARY, HeaderValue::from_static("Origin")),
];

/// The answer to `OPTIONS` for any path: browsers send it as a preflight request. `None` for
/// another method.
pub(crate) fn preflight<B>(request: &Request<B>) -> Option<Response<Body>> {
    (request.method() == Method::OPTIONS).then(|| Response::new(Body::empty()))
}

/// Adds CORS headers for `origin`, which is allowed already: its page may send requests and read
/// the answers. Without an origin the response is unchanged.
pub(crate) fn allow(mut response: Response<Body>, origin: Option<HeaderValue>) -> Response<Body> {
    if let Some(origin) = origin {
        response.headers_mut().extend(METHODS_AND_HEADERS);
        response.headers_mut().insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(policy: &BrowserPolicy, method: &str, headers: &[(&str, &str)]) -> Result<Option<String>, String> {
        let mut request = Request::builder().method(method).uri("/v3/kv/put");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let limit_counters = LimitCounters::default();
        match policy.judge(&request.body(()).unwrap(), &limit_counters) {
            Verdict::Allowed(origin) => Ok(origin.map(|origin| origin.to_str().unwrap().to_owned())),
            Verdict::Refused(response) => {
                assert_eq!(response.status(), StatusCode::FORBIDDEN);
                assert_eq!(response.headers().get(header::ACCESS_CONTROL_ALLOW_ORIGIN), None);
                let counted = [Limit::Host, Limit::Origin].map(|limit| limit_counters.counter(limit).get());
                Err(if counted == [1, 0] { "host" } else { "origin" }.to_owned())
            }
        }
    }

    const LOCAL: (&str, &str) = ("host", "127.0.0.1:2379");
    const BROWSER: (&str, &str) = ("user-agent", "Mozilla/5.0 (X11)");

    #[test]
    fn programs_may_use_any_name() {
        let policy = BrowserPolicy::default();
        for agent in ["curl/8.5.0", "Python-urllib/3.12", "Go-http-client/1.1", "kube-probe/1.31"] {
            let headers = [("host", "etcd.example.com:2379"), ("user-agent", agent), ("accept", "*/*")];
            assert_eq!(judge(&policy, "POST", &headers), Ok(None), "{agent}");
        }
        assert_eq!(judge(&policy, "POST", &[]), Ok(None), "HTTP/1.0 needs no name");
    }

    #[test]
    fn pages_of_other_origins_are_refused_and_links_are_not() {
        let policy = BrowserPolicy::default();
        let refused = Err("origin".to_owned());
        for origin in ["http://evil.example", "http://127.0.0.1:8080", "http://localhost:2379", "null"] {
            for method in ["GET", "POST", "PUT", "DELETE", "OPTIONS"] {
                assert_eq!(judge(&policy, method, &[LOCAL, BROWSER, ("origin", origin)]), refused, "{origin} {method}");
            }
        }
        let site = |site, mode| [LOCAL, BROWSER, ("sec-fetch-site", site), ("sec-fetch-mode", mode)];
        for other in ["cross-site", "same-site"] {
            assert_eq!(judge(&policy, "GET", &site(other, "no-cors")), refused);
            assert_eq!(judge(&policy, "POST", &site(other, "navigate")), refused, "a form");
            assert_eq!(judge(&policy, "GET", &site(other, "navigate")), Ok(None), "a link");
        }
        for own in ["same-origin", "none"] {
            assert_eq!(judge(&policy, "POST", &site(own, "cors")), Ok(None));
        }
        assert_eq!(judge(&policy, "POST", &[LOCAL, BROWSER, ("origin", "http://127.0.0.1:2379")]), Ok(None));
    }

    #[test]
    fn allowed_origins_may_read_the_answer() {
        let policy = BrowserPolicy { allowed_origins: vec!["https://ui.example".to_owned()], ..Default::default() };
        let ask =
            |origin| judge(&policy, "POST", &[LOCAL, BROWSER, ("origin", origin), ("sec-fetch-site", "cross-site")]);
        assert_eq!(ask("https://ui.example"), Ok(Some("https://ui.example".to_owned())));
        assert_eq!(ask("https://ui.example.evil"), Err("origin".to_owned()));
        assert_eq!(ask("http://ui.example"), Err("origin".to_owned()));
        let all = BrowserPolicy { allowed_origins: vec!["*".to_owned()], ..Default::default() };
        assert!(judge(&all, "PUT", &[LOCAL, BROWSER, ("origin", "http://any.example")]).is_ok());
        let response = allow(Response::new(Body::empty()), Some(HeaderValue::from_static("https://ui.example")));
        assert_eq!(response.headers()[header::ACCESS_CONTROL_ALLOW_ORIGIN], "https://ui.example");
        assert!(allow(Response::new(Body::empty()), None).headers().is_empty());
    }

    #[test]
    fn browsers_use_addresses_and_allowed_names() {
        let policy = BrowserPolicy { allowed_hosts: vec!["node1.example".to_owned()], ..Default::default() };
        for host in [
            "127.0.0.1",
            "10.0.0.7:2379",
            "[::1]:2379",
            "[2001:db8::1]",
            "localhost:1",
            "a.localhost",
            "Node1.example:2379",
        ] {
            assert_eq!(judge(&policy, "GET", &[("host", host), BROWSER]), Ok(None), "{host}");
        }
        // A rebinding page's requests are of the same origin, and may leave out what the page
        // chooses.
        for mark in
            [BROWSER, ("accept-language", "en"), ("referer", "http://evil.example/"), ("sec-fetch-site", "same-origin")]
        {
            assert_eq!(
                judge(&policy, "GET", &[("host", "evil.example:2379"), mark]),
                Err("host".to_owned()),
                "{mark:?}"
            );
        }
        let own = [("host", "evil.example:2379"), ("origin", "http://evil.example:2379")];
        assert_eq!(judge(&policy, "POST", &own), Err("host".to_owned()));
    }
}
