//! `/v1/kv`: keys and locks (spec: consul §8.3, the table of KV).

use std::time::Instant;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode, header};
use serde::Serialize;

use super::access::Right;
use super::answer::{Answer, Meta, Refusal};
use super::blocking::{self, Found, WaitEnd};
use super::call::{Call, Freshness};
use headwater_node::ConsulSubject;
use headwater_types::consul::{KvEntry, KvOp, KvVerb};
use headwater_types::limits::CONSUL_PATH_BYTES_MAX;
use headwater_types::{Access, LogIndex};

const CONTENT_SECURITY_POLICY: HeaderName = header::CONTENT_SECURITY_POLICY;
const MISSING_KEY: &str = "Missing key name";

/// A key as JSON.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct EntryBody {
    lock_index: u64,
    key: String,
    flags: u64,
    value: Option<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    session: String,
    create_index: u64,
    modify_index: u64,
}

impl EntryBody {
    pub(super) fn of(entry: &KvEntry) -> Self {
        Self {
            lock_index: entry.side.lock_index,
            // JSON has only Unicode text; `?raw` and etcd's API give the bytes.
            key: String::from_utf8_lossy(&entry.path).into_owned(),
            flags: entry.side.flags,
            value: (!entry.value.is_empty()).then(|| STANDARD.encode(&entry.value)),
            session: entry.side.session.clone(),
            create_index: entry.side.created.get(),
            modify_index: entry.modified.get(),
        }
    }
}

/// One key; with `?recurse`, all keys with the path as their prefix; with `?keys`, only the paths
/// of those keys. 404 if no key is found; but an empty list for `?keys` with the empty prefix.
pub(super) async fn get(call: Call) -> Result<Answer, Refusal> {
    let path = Bytes::copy_from_slice(call.rest_bytes());
    let freshness = call.freshness()?;
    if call.query.is_there("keys") {
        return paths(&call, &freshness, path).await;
    }
    if call.query.is_there("recurse") {
        return tree(&call, &freshness, path).await;
    }
    check_path(&path)?;
    let (call, freshness) = (&call, &freshness);
    call.require(&Right::key(&path, Access::READ))?;
    let read = |ctx, consistency| {
        let path = path.clone();
        async move {
            let read = call.node().consul().key(&ctx, consistency, path).await?;
            Ok(Found { index: read.value.index, seen: read.index, value: read.value.value })
        }
    };
    let subject = ConsulSubject::Key(path.clone());
    let changed = |seen, deadline| changed(call, &subject, seen, deadline);
    let permitted = || call.require(&Right::key(&path, Access::READ));
    let found = blocking::query(call, freshness, read, changed, permitted).await?;
    let meta = found.meta(freshness);
    call.require(&Right::key(&path, Access::READ))?;
    let Some(entry) = found.value else { return Ok(nothing(meta)) };
    if call.query.is_there("raw") {
        return Ok(Answer::bytes(entry.value, "text/plain")
            .meta(meta)
            .header(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"))
            .header(CONTENT_SECURITY_POLICY, HeaderValue::from_static("sandbox")));
    }
    Ok(call.answer(&[EntryBody::of(&entry)]).meta(meta))
}

/// Refuses a request for the keys with a prefix if its credentials are invalid. With the setting
/// `acl.key-list-policy`, also if the request lacks the right to list the prefix.
fn require_list(call: &Call, prefix: &[u8]) -> Result<(), Refusal> {
    match call.node().acl().options().key_list_policy {
        true => call.require(&Right::keys(prefix, Access::LIST)),
        false => call.authorizer().map(drop),
    }
}

async fn tree(call: &Call, freshness: &Freshness, prefix: Bytes) -> Result<Answer, Refusal> {
    require_list(call, &prefix)?;
    let read = |ctx, consistency| {
        let prefix = prefix.clone();
        async move {
            let read = call.node().consul().tree(&ctx, consistency, prefix, call.authorizer()?).await?;
            let tree = read.value?;
            Ok(Found { index: tree.index, seen: read.index, value: tree.value })
        }
    };
    let subject = ConsulSubject::Tree(prefix.clone());
    let changed = |seen, deadline| changed(call, &subject, seen, deadline);
    let mut found = blocking::query(call, freshness, read, changed, || require_list(call, &prefix)).await?;
    require_list(call, &prefix)?;
    let visibility = call.visibility()?;
    let entries = visibility.take(&mut found.value, |entry| visibility.sees_key(&entry.path));
    if entries.is_empty() {
        return Ok(nothing(found.meta(freshness)));
    }
    let entries: Vec<EntryBody> = entries.iter().map(EntryBody::of).collect();
    Ok(call.answer(&entries).meta(found.meta(freshness)))
}

async fn paths(call: &Call, freshness: &Freshness, prefix: Bytes) -> Result<Answer, Refusal> {
    require_list(call, &prefix)?;
    // Clients know both spellings.
    let separator = call.query.get("separator").or_else(|| call.query.get("seperator")).unwrap_or_default();
    let read = |ctx, consistency| {
        let prefix = prefix.clone();
        async move {
            let read = call.node().consul().paths(&ctx, consistency, prefix, call.authorizer()?).await?;
            Ok(Found { index: read.value.index, seen: read.index, value: read.value.value })
        }
    };
    let subject = ConsulSubject::Tree(prefix.clone());
    let changed = |seen, deadline| changed(call, &subject, seen, deadline);
    let mut found = blocking::query(call, freshness, read, changed, || require_list(call, &prefix)).await?;
    require_list(call, &prefix)?;
    let visibility = call.visibility()?;
    // Filtered before paths are folded: a folded path is not a key.
    let paths = visibility.take(&mut found.value, |path| visibility.sees_key(path));
    if paths.is_empty() && !prefix.is_empty() {
        return Ok(nothing(found.meta(freshness)));
    }
    let paths = fold(paths.into_iter(), prefix.len(), separator.as_bytes());
    let paths: Vec<_> = paths.iter().map(|path| String::from_utf8_lossy(path)).collect();
    Ok(call.answer(&paths).meta(found.meta(freshness)))
}

async fn changed(call: &Call, subject: &ConsulSubject, seen: LogIndex, until: Instant) -> Result<WaitEnd, Refusal> {
    blocking::woken(call.node().consul().wait_for_change(subject, seen, until).await)
}

/// The answer for a missing key: 404 with an empty body, and the headers for a blocking query.
fn nothing(meta: Meta) -> Answer {
    Answer::empty().status(StatusCode::NOT_FOUND).meta(meta)
}

/// Writes a key: always; with `?cas`, if the key's `ModifyIndex` is that number, or for 0 if the
/// key does not exist; with `?acquire`, if the session gets the lock; with `?release`, if the
/// session holds the lock. The answer is `true` if the key was written, else `false`.
pub(super) async fn put(call: Call) -> Result<Answer, Refusal> {
    let path = Bytes::copy_from_slice(call.rest_bytes());
    check_path(&path)?;
    conflicts(&call, &["cas", "acquire", "release"])?;
    let flags = number(&call, "flags")?.unwrap_or(0);
    let (verb, index, session) = match (number(&call, "cas")?, call.query.get("acquire"), call.query.get("release")) {
        (Some(index), ..) => (KvVerb::Cas, index, ""),
        (None, Some(session), _) => (KvVerb::Lock, 0, session),
        (None, None, Some(session)) => (KvVerb::Unlock, 0, session),
        (None, None, None) => (KvVerb::Set, 0, ""),
    };
    call.require(&Right::key(&path, Access::WRITE))?;
    let value = call.body.clone();
    run(&call, KvOp { verb, path, value, flags, index: LogIndex(index), session: session.to_owned() }).await
}

/// Deletes a key: always; with `?cas`, if the key's `ModifyIndex` is that number; with `?recurse`,
/// all keys with a prefix. The answer is `false` only if the key exists with another
/// `ModifyIndex`.
pub(super) async fn delete(call: Call) -> Result<Answer, Refusal> {
    let path = Bytes::copy_from_slice(call.rest_bytes());
    conflicts(&call, &["recurse", "cas"])?;
    let (verb, index) = match (call.query.is_there("recurse"), number(&call, "cas")?) {
        (true, _) => (KvVerb::DeleteTree, 0),
        (false, Some(index)) => (KvVerb::DeleteCas, index),
        (false, None) => (KvVerb::Delete, 0),
    };
    if verb == KvVerb::DeleteTree {
        call.require(&Right::keys(&path, Access::WRITE))?;
    } else {
        check_path(&path)?;
        call.require(&Right::key(&path, Access::WRITE))?;
    }
    let op = KvOp { verb, path, value: Bytes::new(), flags: 0, index: LogIndex(index), session: String::new() };
    run(&call, op).await
}

async fn run(call: &Call, op: KvOp) -> Result<Answer, Refusal> {
    let done = call.node().consul().write(&call.context()?, op).await?;
    Ok(call.answer(&done.value).at(done.index))
}

/// Refuses (400) an empty path, and one of more than [`CONSUL_PATH_BYTES_MAX`] bytes.
pub(super) fn check_path(path: &[u8]) -> Result<(), Refusal> {
    match path.len() {
        0 => Err(Refusal::bad(MISSING_KEY)),
        1..=CONSUL_PATH_BYTES_MAX => Ok(()),
        _ => Err(Refusal::bad(format!("a key has at most {CONSUL_PATH_BYTES_MAX} bytes"))),
    }
}

/// Refuses (400) a request with two or more of the parameters `names`.
fn conflicts(call: &Call, names: &[&str]) -> Result<(), Refusal> {
    let there: Vec<&str> = names.iter().copied().filter(|name| call.query.is_there(name)).collect();
    match there.as_slice() {
        [] | [_] => Ok(()),
        several => Err(Refusal::bad(format!("Conflicting flags: {}", several.join(", ")))),
    }
}

fn number(call: &Call, name: &str) -> Result<Option<u64>, Refusal> {
    let Some(text) = call.query.get(name) else { return Ok(None) };
    text.parse().map(Some).map_err(|_| Refusal::bad(format!("Invalid value for ?{name}: {text:?} is no number")))
}

/// Cuts each path after the first separator that begins at byte `from` or later, and keeps one of
/// equal results. Equal results are adjacent, because the paths are in order. The separator stays
/// at the end of the result. An empty separator cuts nothing.
fn fold(paths: impl Iterator<Item = Bytes>, from: usize, separator: &[u8]) -> Vec<Bytes> {
    let mut folded: Vec<Bytes> = Vec::new();
    for path in paths {
        let cut = match separator {
            [] => None,
            separator => path[from..].windows(separator.len()).position(|window| window == separator),
        };
        let path = match cut {
            Some(at) => path.slice(..from + at + separator.len()),
            None => path,
        };
        if folded.last() != Some(&path) {
            folded.push(path);
        }
    }
    folded
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folded(paths: &[&'static str], prefix: &str, separator: &str) -> Vec<String> {
        let paths = paths.iter().map(|path| Bytes::from_static(path.as_bytes()));
        let folded = fold(paths, prefix.len(), separator.as_bytes());
        folded.iter().map(|path| String::from_utf8_lossy(path).into_owned()).collect()
    }

    #[test]
    fn paths_are_cut_at_the_separator() {
        let all = ["a", "a/1", "a/2/x", "a/2/y", "b/1"];
        for (prefix, separator, wanted) in
            [("", "", vec!["a", "a/1", "a/2/x", "a/2/y", "b/1"]), ("", "/", vec!["a", "a/", "b/"])]
        {
            assert_eq!(folded(&all, prefix, separator), wanted, "{prefix} {separator}");
        }
        assert_eq!(folded(&all[1..4], "a/", "/"), ["a/1", "a/2/"]);
        assert_eq!(folded(&all[1..4], "a", "/"), ["a/"]);
        assert_eq!(folded(&["a--b--c", "a--b--d"], "a--", "--"), ["a--b--"]);
        assert!(folded(&[], "", "/").is_empty());
    }
}
