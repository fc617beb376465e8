//! Parses text and TOML into typed values. Durations and most sizes carry their unit, so that no
//! number is misread.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use toml::Value;

use super::{InitialMember, LogFormat, SignedTokenConfig, TokenConfig};
use headwater_tls::{ClientCertificates, MinVersion};
use headwater_types::NodeId;
use headwater_types::limits::QUOTA_BYTES_DEFAULT;

/// Time to live of signed tokens if the setting has none, as in etcd.
const SIGNED_TOKEN_TTL: Duration = Duration::from_secs(300);

/// Reads a duration such as `100ms`, `2s` or `1h 30m`.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let hint = "write a number with a unit, such as \"100ms\" or \"2s\"";
    humantime::parse_duration(text).map_err(|error| format!("{text:?} is not a duration ({error}); {hint}"))
}

/// Reads a size such as `64MiB`, `10MB` or `512B` as bytes. The unit is required.
///
/// # Errors
///
/// A text for the user if `text` is no size, or too large.
pub fn size(text: &str) -> Result<u64, String> {
    const UNITS: &[(&str, u64)] = &[
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
        ("TiB", 1 << 40),
        ("kB", 1_000),
        ("KB", 1_000),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
        ("TB", 1_000_000_000_000),
        ("B", 1),
    ];
    let refused = || format!("{text:?} is not a size; write a whole number with a unit, such as \"64MiB\" or \"512B\"");
    let digits = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(refused)?;
    let number: u64 = text[..digits].parse().map_err(|_| refused())?;
    let unit = text[digits..].trim();
    let (_, factor) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(refused)?;
    number.checked_mul(*factor).ok_or_else(|| format!("{text:?} is larger than any memory"))
}

/// Reads a quota: a size, `off`, or a number of bytes as in etcd, where 0 is the default and a
/// negative number is no quota (`None`).
pub(super) fn quota(value: &Value) -> Result<Option<u64>, String> {
    let number = match value {
        Value::Integer(number) => Some(*number),
        Value::String(text) => text.parse().ok(),
        other => return Err(wrong_type("a size such as \"8GiB\", or \"off\"", other)),
    };
    match (number, value) {
        (Some(0), _) => Ok(Some(QUOTA_BYTES_DEFAULT)),
        (Some(bytes), _) => Ok(u64::try_from(bytes).ok()),
        (None, Value::String(text)) if text == "off" => Ok(None),
        (None, Value::String(text)) => match size(text)? {
            0 => Err("must be above zero; \"off\" is no quota".to_owned()),
            bytes => Ok(Some(bytes)),
        },
        (None, _) => unreachable!("invariant: a number or a text"),
    }
}

/// Reads a size, or a number of bytes without a unit, as in etcd.
pub(super) fn bytes(value: &Value) -> Result<u64, String> {
    match value {
        Value::Integer(number) => u64::try_from(*number).map_err(|_| "must not be negative".to_owned()),
        Value::String(text) => text.parse().or_else(|_| size(text)),
        other => Err(wrong_type("a size such as \"1536KiB\", or a number of bytes", other)),
    }
}

/// Longest path of a Unix socket, bytes: the system's address holds one more byte, the zero at the
/// end.
const SOCKET_PATH_BYTES_MAX: usize = 107;

/// Reads `unix:///PATH`, `unix:/PATH`, or the absolute path alone.
pub(super) fn socket(text: &str) -> Result<PathBuf, String> {
    let refused = |why: &str| Err(format!("{text:?} is no Unix socket ({why}); write unix:///PATH"));
    if text.starts_with("unixs:") {
        return refused("TLS is not supported yet");
    }
    let path = text.strip_prefix("unix://").or_else(|| text.strip_prefix("unix:")).unwrap_or(text);
    match path {
        _ if !path.starts_with('/') => refused("the path does not begin at the root"),
        _ if path.ends_with('/') => refused("the path names a directory"),
        _ if path.len() > SOCKET_PATH_BYTES_MAX => refused("the path has more than 107 bytes"),
        _ if path.contains('\0') => refused("the path has a zero byte"),
        _ => Ok(path.into()),
    }
}

/// Reads `ip:port`.
pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| format!("{text:?} is not an address; write IP:PORT, such as \"127.0.0.1:2379\""))
}

pub(super) fn client_certificates(text: &str) -> Result<ClientCertificates, String> {
    match text {
        "off" => Ok(ClientCertificates::Off),
        "request" => Ok(ClientCertificates::Request),
        "require" => Ok(ClientCertificates::Require),
        _ => Err(format!("{text:?} is none of off, request and require")),
    }
}

pub(super) fn min_version(text: &str) -> Result<MinVersion, String> {
    match text {
        "1.2" => Ok(MinVersion::V1_2),
        "1.3" => Ok(MinVersion::V1_3),
        _ => Err(format!("{text:?} is none of 1.2 and 1.3")),
    }
}

/// Reads `simple`, or `jwt` with etcd's options.
pub(super) fn token(text: &str) -> Result<TokenConfig, String> {
    let mut parts = text.split(',').map(str::trim);
    match parts.next() {
        Some("simple") if text == "simple" => return Ok(TokenConfig::Simple),
        Some("jwt") => {}
        _ => return Err(format!("{text:?} is neither simple nor jwt,pub-key=FILE,sign-method=METHOD")),
    }
    let (mut public, mut private, mut method, mut ttl) = (None, None, None, None);
    for part in parts {
        let (name, value) = part.split_once('=').ok_or_else(|| format!("{part:?} is no option of jwt: NAME=VALUE"))?;
        let slot = match name {
            "pub-key" => &mut public,
            "priv-key" => &mut private,
            "sign-method" => &mut method,
            "ttl" => &mut ttl,
            _ => return Err(format!("{name:?} is none of pub-key, priv-key, sign-method and ttl")),
        };
        if slot.replace(value.to_owned()).is_some() {
            return Err(format!("{name} is given twice"));
        }
    }
    let missing = |name: &str| format!("jwt needs {name}");
    Ok(TokenConfig::Signed(SignedTokenConfig {
        public_key: public.ok_or_else(|| missing("pub-key"))?.into(),
        private_key: private.map(Into::into),
        method: method.ok_or_else(|| missing("sign-method"))?,
        ttl: ttl.map_or(Ok(SIGNED_TOKEN_TTL), |ttl| duration(&ttl))?,
    }))
}

pub(super) fn log_format(text: &str) -> Result<LogFormat, String> {
    match text {
        "text" => Ok(LogFormat::Text),
        "json" => Ok(LogFormat::Json),
        other => Err(format!("{other:?} is not a format; write text or json")),
    }
}

/// Reads `http://HOST:PORT` or `https://HOST:PORT`; a `/` at the end is removed.
pub(super) fn url(text: &str) -> Result<String, String> {
    let refused = |why: &str| Err(format!("{text:?} is not a URL to reach a node by ({why}); write http://HOST:PORT"));
    let (scheme, rest) = match (text.strip_prefix("http://"), text.strip_prefix("https://")) {
        (Some(rest), _) => ("http", rest),
        (None, Some(rest)) => ("https", rest),
        (None, None) => return refused("it does not begin with http:// or https://"),
    };
    let authority = rest.strip_suffix('/').unwrap_or(rest);
    let Ok(uri) = format!("http://{authority}").parse::<http::Uri>() else { return refused("it is malformed") };
    if uri.path() != "/" || uri.query().is_some() {
        return refused("it has a path");
    }
    match (uri.host(), uri.port_u16()) {
        (Some(host), Some(port)) if !host.is_empty() && port != 0 => Ok(format!("{scheme}://{authority}")),
        _ => refused("host or port is missing"),
    }
}

/// Checks `HOST:PORT`: a name, an IPv4 address, or an IPv6 address in brackets, and a port that is
/// not 0.
pub(super) fn host_and_port(text: &str) -> Result<(), String> {
    let refused = |why: &str| Err(format!("{text:?} is not HOST:PORT ({why})"));
    if text.contains("://") {
        return refused("it is written without a scheme");
    }
    let Some((host, port)) = text.rsplit_once(':') else { return refused("it has no port") };
    let is_digits = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    if !is_digits || port.parse::<u16>().is_ok_and(|port| port == 0) || port.parse::<u16>().is_err() {
        return refused("the port is a number from 1 to 65535");
    }
    if let Some(inner) = host.strip_prefix('[') {
        let address = inner.strip_suffix(']').and_then(|inner| inner.parse::<Ipv6Addr>().ok());
        return if address.is_some() { Ok(()) } else { refused("in brackets stands an IPv6 address") };
    }
    if host.contains(':') {
        return refused("an IPv6 address stands in brackets");
    }
    let is_number = host.split('.').all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()));
    if is_number && host.parse::<Ipv4Addr>().is_err() {
        return refused("that is no IPv4 address");
    }
    let is_label = |label: &str| {
        let is_good = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        (1..=63).contains(&label.len())
            && label.bytes().all(is_good)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let name = host.strip_suffix('.').unwrap_or(host);
    if name.len() > 253 || !name.split('.').all(is_label) { refused("that is no name of a host") } else { Ok(()) }
}

/// Reads endpoints, separated by commas or as a list: `HOST:PORT` each, with `http://` (the
/// default) or `https://` in front. Returns URLs.
pub(super) fn endpoints(value: &Value) -> Result<Vec<String>, String> {
    let wrong = |other: &Value| wrong_type("a string or a list of strings such as \"10.0.0.1:2379\"", other);
    let texts: Vec<&str> = match value {
        Value::String(text) => text.split(',').map(str::trim).filter(|text| !text.is_empty()).collect(),
        Value::Array(items) => {
            items.iter().map(|item| item.as_str().ok_or_else(|| wrong(item))).collect::<Result<_, _>>()?
        }
        other => return Err(wrong(other)),
    };
    if texts.is_empty() {
        return Err("must name at least one endpoint".to_owned());
    }
    let with_scheme = |text: &str| if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    texts.into_iter().map(|text| url(&with_scheme(text))).collect()
}

/// Reads the list of first members. The error has every problem, as (key, detail).
pub(super) fn members(value: &Value) -> Result<Vec<InitialMember>, Vec<(String, String)>> {
    const KEYS: &[&str] = &["id", "name", "peer", "client"];
    let key = "cluster.initial";
    let Value::Array(items) = value else {
        let detail = "must be a list such as [{ id = 1, name = \"node1\", peer = \"http://127.0.0.1:2380\", \
                      client = \"http://127.0.0.1:2379\" }]";
        return Err(vec![(key.to_owned(), detail.to_owned())]);
    };
    let mut problems = Vec::new();
    let mut members = Vec::new();
    for (position, item) in items.iter().enumerate() {
        let at = format!("{key}[{position}]");
        let Value::Table(item) = item else {
            problems.push((at, "must be a table with id, name, peer and client".to_owned()));
            continue;
        };
        for unknown in item.keys().filter(|name| !KEYS.contains(&name.as_str())) {
            problems.push((format!("{at}.{unknown}"), unknown_key(unknown, KEYS.iter().copied())));
        }
        let mut text = |name: &str, check: fn(&str) -> Result<String, String>| {
            let found = match item.get(name) {
                Some(Value::String(text)) => check(text),
                Some(other) => Err(wrong_type("a string", other)),
                None => Err("is missing".to_owned()),
            };
            found.map_err(|detail| problems.push((format!("{at}.{name}"), detail))).ok()
        };
        let name = text("name", non_empty);
        let peer = text("peer", url);
        let client = text("client", url);
        let id = match item.get("id") {
            Some(Value::Integer(id)) if *id > 0 => Some(NodeId(id.unsigned_abs())),
            Some(other) => {
                problems.push((format!("{at}.id"), wrong_type("a whole number above zero", other)));
                None
            }
            None => {
                problems.push((format!("{at}.id"), "is missing".to_owned()));
                None
            }
        };
        if let (Some(id), Some(name), Some(peer), Some(client)) = (id, name, peer, client) {
            members.push(InitialMember { id, name, peer, client });
        }
    }
    if problems.is_empty() { Ok(members) } else { Err(problems) }
}

/// `None` for the text `off`, otherwise the value that `read` makes of the text.
pub(super) fn or_off<T>(text: &str, read: impl Fn(&str) -> Result<T, String>) -> Result<Option<T>, String> {
    if text == "off" { Ok(None) } else { read(text).map(Some) }
}

/// The text itself; an error if it is empty.
pub(super) fn non_empty(text: &str) -> Result<String, String> {
    if text.is_empty() { Err("must not be empty".to_owned()) } else { Ok(text.to_owned()) }
}

/// Text of the problem of a value with the wrong type.
pub(super) fn wrong_type(wanted: &str, got: &Value) -> String {
    format!("must be {wanted}, not {} {got}", got.type_str())
}

/// Text of the problem of an unknown key. Names the nearest known key if it is at most three edits
/// away, and at most half of the key's length.
pub(super) fn unknown_key<'a>(key: &str, known: impl Iterator<Item = &'a str>) -> String {
    let nearest = known.map(|name| (distance(key, name), name)).min();
    match nearest {
        Some((distance, name)) if distance <= 3.min(key.len() / 2) => format!("unknown key; did you mean {name}?"),
        _ => "unknown key".to_owned(),
    }
}

/// Levenshtein's distance of two texts: the least number of characters to insert, remove or
/// replace.
pub(super) fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
