//! `headwater watch`: prints changes as they happen, from any node that answers, without a loss or
//! a repetition.
//!
//! Owns the start revision of the next attempt. Invariant: it is one past the last revision that
//! was printed, or that the server has reported as complete. Before that it is the requested one;
//! for 0, one past the revision at which the watch was created.

use std::io::Write;

use tonic::Status;

use crate::ClientArgs;
use crate::connect::Cluster;
use crate::error::CliError;
use crate::open_call::{Contact, ended, keep_open};
use crate::output::{self, WriteOut, json};
use headwater_client::Attempt;
use headwater_proto::pb::etcdserverpb::watch_request::RequestUnion;
use headwater_proto::pb::etcdserverpb::{WatchCreateRequest, WatchRequest, WatchResponse};
use headwater_proto::pb::mvccpb::event::EventType;

/// Error text for a start revision that was compacted, if the server gives no reason.
const COMPACTED: &str = "etcdserver: mvcc: required revision has been compacted";

/// Part of the error text of a server that does not know the user's token.
pub(crate) const STALE_TOKEN: &str = "invalid auth token";

/// Print changes of a key or a range of keys as they happen
///
/// Resumes by itself after the last revision seen, at the next endpoint, when a node stops or the
/// connection breaks.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct WatchArgs {
    /// The key, or the first one
    key: String,
    /// The first key after the range
    range_end: Option<String>,
    /// Every key that begins with KEY
    #[arg(long)]
    prefix: bool,
    /// Every key from KEY on
    #[arg(long)]
    from_key: bool,
    /// Begin with this revision, which may lie in the past or in the future; 0 is from now on
    #[arg(long, default_value_t = 0, value_name = "REVISION")]
    rev: i64,
    /// Print the pair before each change too
    #[arg(long)]
    prev_kv: bool,
    /// Print from time to time how far the watch has come
    #[arg(long, alias = "progress-notify")]
    progress: bool,
}

pub(crate) async fn run(args: WatchArgs, cluster: &Cluster, client: &ClientArgs) -> Result<(), CliError> {
    let (key, range_end) = super::interval(&args.key, args.range_end.as_deref(), args.prefix, args.from_key)?;
    let mut request = WatchCreateRequest {
        key,
        range_end,
        start_revision: args.rev,
        prev_kv: args.prev_kv,
        progress_notify: args.progress,
        ..Default::default()
    };
    keep_open(cluster, async |attempt, contact| follow(attempt, &mut request, contact, client.write_out).await).await
}

/// Watches at one endpoint until the stream ends, and advances the request's start revision.
/// Returns the reason to try the next endpoint; an error if no endpoint can continue the watch.
async fn follow(
    attempt: &Attempt,
    request: &mut WatchCreateRequest,
    contact: &mut Contact,
    format: WriteOut,
) -> Result<String, CliError> {
    let create = WatchRequest { request_union: Some(RequestUnion::CreateRequest(request.clone())) };
    // The client's side stays open: a server may end a stream that its client has closed (spec:
    // etcd §2.1).
    let requests = futures::StreamExt::chain(futures::stream::iter([create]), futures::stream::pending());
    let mut streaming = tonic::Request::new(requests);
    attempt.authorize(&mut streaming);
    streaming.metadata_mut().insert("hasleader", tonic::metadata::MetadataValue::from_static("true"));
    let mut responses = match attempt.watch().watch(streaming).await {
        Ok(responses) => responses.into_inner(),
        Err(status) => return ended(&status),
    };
    let mut out = std::io::stdout();
    loop {
        let response = match responses.message().await {
            Ok(Some(response)) => response,
            Ok(None) => return Ok("the stream ended".to_owned()),
            Err(status) => return ended(&status),
        };
        if response.canceled {
            return Err(cancelled(&response));
        }
        contact.made();
        if !response.created {
            print(&mut out, &response, format)?;
        }
        request.start_revision = start_after(request.start_revision, &response);
    }
}

/// Start revision to resume from after `response`, never 0. `start` is the start revision until
/// now; 0 if the watch began with the next change.
fn start_after(start: i64, response: &WatchResponse) -> i64 {
    let revision = response.header.as_ref().map_or(0, |header| header.revision);
    if response.created {
        // The requested revision stays: events of the past are still to come, or it lies in the
        // future.
        return if start == 0 { revision + 1 } else { start };
    }
    // Events may be of the past, although the header has the current revision. Without events, all
    // up to the header's revision is complete.
    let last = response.events.iter().filter_map(|event| event.kv.as_ref()).map(|kv| kv.mod_revision).max();
    start.max(last.unwrap_or(revision) + 1)
}

/// The error of a watch that the server has cancelled.
fn cancelled(response: &WatchResponse) -> CliError {
    match response.cancel_reason.contains(STALE_TOKEN) {
        true => CliError::StreamRefused(Box::new(Status::unauthenticated(&response.cancel_reason))),
        false => CliError::Finding(why_cancelled(response)),
    }
}

fn why_cancelled(response: &WatchResponse) -> String {
    match (response.compact_revision, response.cancel_reason.as_str()) {
        (0, reason) => format!("watch was canceled ({reason})"),
        (point, reason) => {
            let reason = if reason.is_empty() { COMPACTED } else { reason };
            format!("watch was canceled ({reason})\nThe oldest revision that can still be watched is {point}.")
        }
    }
}

fn print(out: &mut impl Write, response: &WatchResponse, format: WriteOut) -> Result<(), CliError> {
    if response.events.is_empty() {
        let revision = response.header.as_ref().map_or(0, |header| header.revision);
        writeln!(out, "progress notify: {revision}")?;
    }
    match format {
        WriteOut::Json => output::print_json(out, &json::Watch::from(response))?,
        WriteOut::Simple | WriteOut::Table => {
            for event in &response.events {
                writeln!(out, "{}", event_name(event.r#type()))?;
                for kv in event.prev_kv.iter().chain(&event.kv) {
                    output::print_pair(out, kv)?;
                }
            }
        }
    }
    Ok(out.flush()?)
}

fn event_name(kind: EventType) -> &'static str {
    match kind {
        EventType::Put => "PUT",
        EventType::Delete => "DELETE",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_proto::pb::etcdserverpb::ResponseHeader;
    use headwater_proto::pb::mvccpb::{Event, KeyValue};

    fn response() -> WatchResponse {
        let kv = |value: &'static str, mod_revision| {
            Some(KeyValue { key: "k".into(), value: value.into(), mod_revision, ..Default::default() })
        };
        WatchResponse {
            header: Some(ResponseHeader { cluster_id: 1, member_id: 2, revision: 9, raft_term: 3 }),
            events: vec![
                Event { kv: kv("v", 8), prev_kv: kv("u", 7), ..Default::default() },
                Event { r#type: EventType::Delete.into(), kv: kv("", 9), ..Default::default() },
            ],
            ..Default::default()
        }
    }

    fn printed(response: &WatchResponse, format: WriteOut) -> String {
        let mut out = Vec::new();
        print(&mut out, response, format).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_watch_goes_on_after_what_it_was_told() {
        let created = |revision| WatchResponse { created: true, ..progress(revision) };
        fn progress(revision: i64) -> WatchResponse {
            WatchResponse { header: Some(ResponseHeader { revision, ..Default::default() }), ..Default::default() }
        }
        let events = |header, revisions: &[i64]| {
            let event = |&mod_revision| Event {
                kv: Some(KeyValue { mod_revision, ..Default::default() }),
                ..Default::default()
            };
            WatchResponse { events: revisions.iter().map(event).collect(), ..progress(header) }
        };
        for (name, start, response, wanted) in [
            ("made, from now on", 0, created(9), 10),
            ("made in an empty store, from now on", 0, created(1), 2),
            ("made, from the past", 4, created(9), 4),
            ("made, from what is now", 9, created(9), 9),
            ("made, from the future", 20, created(9), 20),
            ("one event", 4, events(9, &[5]), 6),
            ("several revisions of the past", 4, events(9, &[4, 5, 5, 7]), 8),
            ("what is now", 10, events(10, &[10]), 11),
            ("complete so far", 4, progress(9), 10),
            ("complete before the start", 20, progress(9), 20),
            ("nothing new", 10, progress(9), 10),
        ] {
            assert_eq!(start_after(start, &response), wanted, "{name}");
        }
    }

    #[test]
    fn events_look_as_etcdctl_prints_them() {
        assert_eq!(printed(&response(), WriteOut::Simple), "PUT\nk\nu\nk\nv\nDELETE\nk\n\n");
        assert_eq!(
            printed(&response(), WriteOut::Json),
            "{\"Header\":{\"cluster_id\":1,\"member_id\":2,\"revision\":9,\"raft_term\":3},\"Events\":[\
             {\"kv\":{\"key\":\"aw==\",\"mod_revision\":8,\"value\":\"dg==\"},\
             \"prev_kv\":{\"key\":\"aw==\",\"mod_revision\":7,\"value\":\"dQ==\"}},\
             {\"type\":1,\"kv\":{\"key\":\"aw==\",\"mod_revision\":9}}],\
             \"CompactRevision\":0,\"Canceled\":false,\"Created\":false}\n"
        );
        let progress = WatchResponse { events: vec![], ..response() };
        assert_eq!(printed(&progress, WriteOut::Simple), "progress notify: 9\n");
    }

    #[test]
    fn a_cancelled_watch_says_what_to_do() {
        let compacted = WatchResponse { canceled: true, compact_revision: 5, ..Default::default() };
        let text = why_cancelled(&compacted);
        assert!(text.contains(COMPACTED) && text.ends_with("is 5."), "{text}");
        let refused = WatchResponse { cancel_reason: "mvcc: watcher range is empty".to_owned(), ..Default::default() };
        assert_eq!(why_cancelled(&refused), "watch was canceled (mvcc: watcher range is empty)");
    }
}
