//! The console: a web page below `/ui/` that shows the store and changes it, by the public APIs of
//! this port alone.
//!
//! Owns the files, their headers and the switch `ui`. The files hold no data, so everybody may load
//! them; each request that the page makes has the rights of the credentials that its user gave.
//! Knows no node. Invariant: the page can load code, styles and data from this server only.
//!
//! ```text
//! GET /ui/                200 index.html, with Content-Security-Policy and ETag
//! GET /ui/app.js          304 if If-None-Match has its ETag
//! GET /ui/settings.json   {"ui":"read","member":"node1",…}
//! ```

mod files;

use std::fmt;
use std::io::Read;

use bytes::Bytes;
use flate2::read::GzDecoder;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use prometheus::{IntCounterVec, Opts, Registry};
use serde_json::json;
use sha2::{Digest, Sha256};
use tonic::body::Body;

use files::{FILES, PackedFile};

/// The root of the console's paths.
const ROOT: &str = "/ui";
/// The file for the root.
const INDEX: &str = "index.html";
/// The path of the settings, below the root.
const SETTINGS: &str = "settings.json";
const JSON: &str = "application/json";

/// Headers of every answer, unless the answer sets the header itself. The page loads from its own
/// server only, is shown in no frame, and sends other servers no referrer.
const HEADERS: [(HeaderName, HeaderValue); 5] = [
    (
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static("default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"),
    ),
    (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    (header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
    // A new program has new files: browsers ask each time, and get 304 while nothing changed.
    (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
];

/// Whether the console is served, and whether it offers changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ConsoleMode {
    /// The paths answer 404.
    Off,
    /// The page offers no changes. This is no access check: requests are judged by their own
    /// rights.
    #[default]
    Read,
    /// The page offers changes.
    Write,
}

impl ConsoleMode {
    /// The name in settings: `off`, `read` or `write`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Read => "read",
            Self::Write => "write",
        }
    }

    /// The mode of a name; `None` for any other text.
    pub fn named(name: &str) -> Option<Self> {
        [Self::Off, Self::Read, Self::Write].into_iter().find(|mode| mode.name() == name)
    }
}

/// Facts for the page, served as `/ui/settings.json`.
#[derive(Clone, Debug, Default)]
pub struct ConsoleOptions {
    /// Whether the console is served, and whether it offers changes.
    pub mode: ConsoleMode,
    /// Name of this member.
    pub member: String,
    /// Program of this member, for people.
    pub program: String,
    /// The domain of names in DNS; empty if DNS is not served.
    pub dns_domain: String,
    /// Most operations in one commit (`max-txn-ops`), count.
    pub max_txn_ops: u64,
}

/// Serves the console.
pub struct Console {
    mode: ConsoleMode,
    settings: Bytes,
    files: Vec<ServedFile>,
    requests: IntCounterVec,
}

/// A file with its entity tags, which differ by encoding.
struct ServedFile {
    file: &'static PackedFile,
    packed_tag: HeaderValue,
    plain_tag: HeaderValue,
}

impl fmt::Debug for Console {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Console").field("mode", &self.mode).finish_non_exhaustive()
    }
}

impl Console {
    /// Makes the service.
    ///
    /// # Errors
    ///
    /// If `registry` already holds the counter.
    pub fn new(options: ConsoleOptions, registry: &Registry) -> Result<Self, prometheus::Error> {
        let opts = Opts::new("headwater_console_requests_total", "Requests below /ui/ by status code.");
        let requests = IntCounterVec::new(opts, &["code"])?;
        registry.register(Box::new(requests.clone()))?;
        let ConsoleOptions { mode, member, program, dns_domain, max_txn_ops } = options;
        let settings = json!({
            "ui": mode.name(), "member": member, "program": program, "dns_domain": dns_domain,
            "max_txn_ops": max_txn_ops,
        });
        Ok(Self {
            mode,
            settings: settings.to_string().into(),
            files: FILES.iter().map(ServedFile::new).collect(),
            requests,
        })
    }

    /// Whether a path is `/ui` or below it.
    pub fn owns(path: &str) -> bool {
        path.strip_prefix(ROOT).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// Answers a request for a path of the console, and counts it by its status code.
    pub fn call<B>(&self, request: &Request<B>) -> Response<Body> {
        let mut response = self.answer(request.method(), request.uri().path(), request.headers());
        for (name, value) in HEADERS {
            response.headers_mut().entry(name).or_insert(value);
        }
        self.requests.with_label_values(&[response.status().as_str()]).inc();
        response
    }

    fn answer(&self, method: &Method, path: &str, headers: &HeaderMap) -> Response<Body> {
        if self.mode == ConsoleMode::Off {
            return text(StatusCode::NOT_FOUND, "the console is off: the setting ui turns it on\n");
        }
        if !matches!(*method, Method::GET | Method::HEAD) {
            let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed\n");
            response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
            return response;
        }
        let Some(name) = path.strip_prefix(ROOT).and_then(|rest| rest.strip_prefix('/')) else {
            let mut response = text(StatusCode::PERMANENT_REDIRECT, "");
            response.headers_mut().insert(header::LOCATION, HeaderValue::from_static("/ui/"));
            return response;
        };
        let is_head = method == Method::HEAD;
        if name == SETTINGS {
            let mut response = content(JSON, self.settings.clone(), is_head);
            response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
            return response;
        }
        let name = if name.is_empty() { INDEX } else { name };
        match self.files.iter().find(|served| served.file.name == name) {
            Some(served) => served.answer(headers, is_head),
            None => text(StatusCode::NOT_FOUND, "404 page not found\n"),
        }
    }
}

impl ServedFile {
    fn new(file: &'static PackedFile) -> Self {
        let digest = Sha256::digest(file.gzip);
        let hash: String = digest[..12].iter().map(|byte| format!("{byte:02x}")).collect();
        let tag = |text: String| HeaderValue::try_from(text).expect("hexadecimal digits in quotes");
        Self { file, packed_tag: tag(format!("\"{hash}-gzip\"")), plain_tag: tag(format!("\"{hash}\"")) }
    }

    fn answer(&self, headers: &HeaderMap, is_head: bool) -> Response<Body> {
        let is_packed = accepts_gzip(headers);
        let tag = if is_packed { &self.packed_tag } else { &self.plain_tag };
        let mut response = if has_tag(headers, tag) {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            response
        } else if is_packed {
            let mut response = content(self.file.content_type, Bytes::from_static(self.file.gzip), is_head);
            response.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            response
        } else {
            content(self.file.content_type, self.file.unpacked().into(), is_head)
        };
        response.headers_mut().insert(header::ETAG, tag.clone());
        response.headers_mut().insert(header::VARY, HeaderValue::from_static("accept-encoding"));
        response
    }
}

impl PackedFile {
    /// The content of the file.
    fn unpacked(&self) -> Vec<u8> {
        let mut content = Vec::new();
        GzDecoder::new(self.gzip).read_to_end(&mut content).expect("it was packed by the build");
        content
    }
}

/// Whether the client accepts gzip, by `Accept-Encoding`.
fn accepts_gzip(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|coding| {
        let mut parts = coding.split(';').map(str::trim);
        let is_gzip = parts.next().is_some_and(|name| name.eq_ignore_ascii_case("gzip"));
        let is_refused = parts.any(|part| {
            part.strip_prefix("q=").is_some_and(|weight| weight.parse::<f32>().is_ok_and(|weight| weight == 0.0))
        });
        is_gzip && !is_refused
    })
}

/// Whether `If-None-Match` has the tag, compared weakly, or `*`.
fn has_tag(headers: &HeaderMap, tag: &HeaderValue) -> bool {
    let values = headers.get_all(header::IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    values
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .any(|known| known == "*" || known.strip_prefix("W/").unwrap_or(known).as_bytes() == tag.as_bytes())
}

fn content(content_type: &'static str, body: Bytes, is_head: bool) -> Response<Body> {
    let length = HeaderValue::from(body.len());
    let mut response = Response::new(if is_head { Body::empty() } else { Body::new(Full::new(body)) });
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    if is_head {
        response.headers_mut().insert(header::CONTENT_LENGTH, length);
    }
    response
}

fn text(status: StatusCode, body: &'static str) -> Response<Body> {
    let mut response = content("text/plain; charset=utf-8", Bytes::from_static(body.as_bytes()), false);
    *response.status_mut() = status;
    response
}

#[cfg(test)]
#[path = "console_tests.rs"]
mod tests;
