//! One line of the audit log, and its form as JSON.
//!
//! A key is written as text if it is UTF-8 without control characters. Any other is written in
//! hexadecimal, in a member of another name, so that the two cannot be confused.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use serde::ser::{Serialize, SerializeMap, Serializer};

use headwater_types::KeyRange;

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditLine {
    /// The time of the verdict; the time of [`write`](super::AuditLog::write) if it is `None`.
    pub time: Option<SystemTime>,
    /// The identity of the client.
    pub who: AuditIdentity,
    /// The address of the client; empty for a Unix socket.
    pub from: String,
    /// The name of the API.
    pub face: &'static str,
    /// The method of gRPC, or the method and path of HTTP without names of objects.
    pub method: Arc<str>,
    /// The intervals that were judged.
    pub on: Vec<AuditInterval>,
    /// False if the request was refused for lack of rights or of valid credentials. A request that
    /// failed for another reason counts as allowed.
    pub allowed: bool,
    /// The log index of the answer, if it has one.
    pub index: Option<u64>,
    /// Number of refusals of the same principal and method before this one that were not written.
    pub repeated: u64,
}

/// The identity of a client in a line: names alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuditIdentity {
    /// No identity.
    Anonymous,
    /// A user, by name.
    User(String),
    /// A user, by the common name of its certificate.
    Certificate(String),
    /// A token, by its accessor.
    Token(String),
    /// Credentials that no principal has.
    Unknown,
    /// The node itself.
    System,
}

impl fmt::Display for AuditIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Anonymous => f.write_str("anonymous"),
            Self::User(name) => write!(f, "user {name}"),
            Self::Certificate(name) => write!(f, "certificate {name}"),
            Self::Token(accessor) => write!(f, "token {accessor}"),
            Self::Unknown => f.write_str("unknown"),
            Self::System => f.write_str("system"),
        }
    }
}

impl Serialize for AuditIdentity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (kind, name) = match self {
            Self::Anonymous => return serializer.serialize_str("anonymous"),
            Self::Unknown => return serializer.serialize_str("unknown"),
            Self::System => return serializer.serialize_str("system"),
            Self::User(name) => ("user", name),
            Self::Certificate(name) => ("certificate", name),
            Self::Token(accessor) => ("token", accessor),
        };
        let mut map = serializer.serialize_map(Some(1))?;
        map.serialize_entry(kind, name)?;
        map.end()
    }
}

/// An interval with the rights that a request needed on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditInterval {
    /// The name of the space.
    pub space: &'static str,
    /// The keys.
    pub keys: KeyRange,
    /// The names of the rights.
    pub rights: &'static str,
}

impl Serialize for AuditInterval {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("space", self.space)?;
        match &self.keys {
            KeyRange::One(key) => key_entry(&mut map, ["key", "key_hex"], key)?,
            KeyRange::Span { start, end } => {
                key_entry(&mut map, ["from", "from_hex"], start)?;
                if let Some(end) = end {
                    key_entry(&mut map, ["to", "to_hex"], end)?;
                }
            }
        }
        map.serialize_entry("rights", self.rights)?;
        map.end()
    }
}

fn key_entry<M: SerializeMap>(map: &mut M, names: [&str; 2], key: &Bytes) -> Result<(), M::Error> {
    match std::str::from_utf8(key) {
        Ok(text) if !text.chars().any(char::is_control) => map.serialize_entry(names[0], text),
        _ => {
            let hex: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
            map.serialize_entry(names[1], &hex)
        }
    }
}

impl Serialize for AuditLine {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("time", &written(self.time.unwrap_or(SystemTime::UNIX_EPOCH)))?;
        map.serialize_entry("who", &self.who)?;
        map.serialize_entry("from", &self.from)?;
        map.serialize_entry("face", self.face)?;
        map.serialize_entry("method", &*self.method)?;
        if !self.on.is_empty() {
            map.serialize_entry("on", &self.on)?;
        }
        map.serialize_entry("allowed", &self.allowed)?;
        if let Some(index) = self.index {
            map.serialize_entry("index", &index)?;
        }
        if self.repeated > 0 {
            map.serialize_entry("repeated", &self.repeated)?;
        }
        map.end()
    }
}

/// The number of requests whose lines were lost, as a line of the log.
struct Dropped(u64);

impl Serialize for Dropped {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("time", &written(SystemTime::now()))?;
        map.serialize_entry("dropped", &self.0)?;
        map.end()
    }
}

fn written(time: SystemTime) -> String {
    humantime::format_rfc3339_millis(time).to_string()
}

impl AuditLine {
    /// Number of requests that the line stands for.
    pub(super) fn requests(&self) -> u64 {
        1 + self.repeated
    }

    /// Appends the line to `out`.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        append(self, out);
    }
}

/// Appends a line with the number of requests whose lines were lost.
pub(super) fn write_dropped(count: u64, out: &mut Vec<u8>) {
    append(&Dropped(count), out);
}

fn append(line: &impl Serialize, out: &mut Vec<u8>) {
    serde_json::to_writer(&mut *out, line).expect("texts and numbers are always JSON, and memory takes all of it");
    out.push(b'\n');
}
