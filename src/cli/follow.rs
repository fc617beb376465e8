//! `headwater follow`: prints an entity and then its changes, going on elsewhere from its last marker when a node stops.
//!
//! Invariant: `marker` is that of the last group that was printed to its end, so that nothing is missed; a group that was cut off
//! is printed again from its beginning.

use std::io::Write;
use std::sync::LazyLock;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use bytes::Bytes;
use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage};
use serde_json::{Value, json};
use tonic::{Code, Status};

use super::ClientArgs;
use super::connect::{Attempt, Cluster};
use super::error::{CliError, Tried};
use super::output::{WriteOut, print_json};
use crate::pb::pbwatcher::change::State;
use crate::pb::pbwatcher::{Change, Request};
use crate::pb::{PUBLIC_DESCRIPTORS, google, mvccpb, pbresource};

/// Pause after every endpoint was tried in vain.
const RETRY_PAUSE: Duration = Duration::from_millis(250);
/// The marker that asks for changes alone.
const NOW: &str = "now";

static POOL: LazyLock<DescriptorPool> =
    LazyLock::new(|| DescriptorPool::decode(PUBLIC_DESCRIPTORS).expect("a descriptor set that was compiled in"));

/// Print any part of the store, then every change of it as it happens
///
/// TARGET is a path: /kv/app, /resources/demo/v2/Artist, or / for the list of spaces. Goes on by itself after the last change seen,
/// at the next endpoint, when a node stops or the connection breaks.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct FollowArgs {
    /// What to follow; parts are percent-encoded, a key that begins with a slash is below /kv/~
    target: String,
    /// With everything below, not the children alone
    #[arg(long, short)]
    recursive: bool,
    /// Begin with the state (start), with changes alone (now), or after a marker that was printed before
    #[arg(long, default_value = "start", value_name = "now|start|MARKER")]
    from: String,
    /// Print the marker after each group of changes that happened together
    #[arg(long)]
    markers: bool,
}

/// How an attempt at one endpoint ended.
enum Ended {
    /// Another one may do better.
    Broken(String),
    /// The marker leads nowhere: the state comes again.
    Outdated(String),
    /// Nobody will.
    Final(CliError),
}

impl From<CliError> for Ended {
    fn from(error: CliError) -> Self {
        Self::Final(error)
    }
}

impl From<Status> for Ended {
    fn from(status: Status) -> Self {
        let text = status.message().to_owned();
        match status.code() {
            Code::InvalidArgument | Code::Unimplemented | Code::PermissionDenied | Code::Unauthenticated => {
                Self::Final(CliError::Finding(text))
            }
            Code::FailedPrecondition => Self::Outdated(text),
            _ => Self::Broken(text),
        }
    }
}

struct Follow {
    target: String,
    marker: Bytes,
    was_connected: bool,
    markers: bool,
    format: WriteOut,
}

pub(super) async fn run(args: FollowArgs, cluster: &Cluster, client: &ClientArgs) -> Result<(), CliError> {
    let mut follow = Follow {
        target: target(&args.target, args.recursive),
        marker: marker(&args.from)?,
        was_connected: false,
        markers: args.markers,
        format: client.write_out,
    };
    loop {
        let mut tried = Vec::new();
        for (number, name) in cluster.names().enumerate() {
            let ended = match cluster.attempt(number).await {
                Err(reason) => Ended::Broken(reason),
                Ok(attempt) => follow.at(&attempt).await,
            };
            let reason = match ended {
                Ended::Broken(reason) => reason,
                Ended::Outdated(reason) if follow.was_connected => {
                    eprintln!("{reason}; the state is printed anew");
                    follow.marker = Bytes::new();
                    reason
                }
                Ended::Outdated(reason) => return Err(CliError::Finding(reason)),
                Ended::Final(error) => return Err(error),
            };
            tried.push(Tried { endpoint: name.to_owned(), reason });
        }
        if !follow.was_connected {
            return Err(CliError::Unreachable(tried));
        }
        tokio::time::sleep(RETRY_PAUSE).await;
    }
}

fn target(given: &str, recursive: bool) -> String {
    match (recursive, given.contains('?')) {
        (false, _) => given.to_owned(),
        (true, false) => format!("{given}?recursive=true"),
        (true, true) => format!("{given}&recursive=true"),
    }
}

fn marker(from: &str) -> Result<Bytes, CliError> {
    match from {
        "start" => Ok(Bytes::new()),
        NOW => Ok(NOW.into()),
        marker => URL_SAFE_NO_PAD.decode(marker).map(Bytes::from).map_err(|_| {
            CliError::Usage(format!("--from {marker}: write start, now, or a marker as --markers prints it"))
        }),
    }
}

impl Follow {
    /// Follows at one endpoint until that ends.
    async fn at(&mut self, attempt: &Attempt) -> Ended {
        match self.print_all(attempt).await {
            Ok(()) => Ended::Broken("the stream ended".to_owned()),
            Err(ended) => ended,
        }
    }

    async fn print_all(&mut self, attempt: &Attempt) -> Result<(), Ended> {
        let request = Request { target: self.target.clone(), resume_marker: self.marker.clone() };
        let mut batches = attempt.watcher().watch(request).await?.into_inner();
        let mut out = std::io::stdout();
        while let Some(batch) = batches.message().await? {
            self.was_connected = true;
            for change in &batch.changes {
                print(&mut out, change, self.format, self.markers)?;
                if !change.continued && !change.resume_marker.is_empty() {
                    self.marker = change.resume_marker.clone();
                }
            }
            out.flush().map_err(CliError::from)?;
        }
        Ok(())
    }
}

fn print(out: &mut impl Write, change: &Change, format: WriteOut, markers: bool) -> Result<(), CliError> {
    if format == WriteOut::Json {
        return print_json(out, &as_json(change));
    }
    let element = if change.element.is_empty() { "." } else { &change.element };
    let (sign, told) = match change.state() {
        State::Exists => ("+", change.data.as_ref().map(shown).unwrap_or_default()),
        State::DoesNotExist => ("-", String::new()),
        State::InitialStateSkipped => ("~", String::new()),
        State::Error => ("!", change.data.as_ref().map(shown).unwrap_or_default()),
    };
    writeln!(out, "{}", format!("{sign} {element}  {told}").trim_end())?;
    if markers && !change.continued {
        writeln!(out, "= {}", URL_SAFE_NO_PAD.encode(&change.resume_marker))?;
    }
    Ok(())
}

fn name(any: &prost_types::Any) -> &str {
    any.type_url.rsplit('/').next().unwrap_or_default()
}

/// What an element carries, on one line for people.
fn shown(any: &prost_types::Any) -> String {
    let bytes = any.value.as_slice();
    match name(any) {
        "google.protobuf.Empty" => "/".to_owned(),
        "mvccpb.KeyValue" => mvccpb::KeyValue::decode(bytes)
            .map(|kv| String::from_utf8_lossy(&kv.value).escape_debug().to_string())
            .unwrap_or_default(),
        "hashicorp.consul.resource.Resource" => pbresource::Resource::decode(bytes)
            .map(|resource| format!("version {} generation {}", resource.version, resource.generation))
            .unwrap_or_default(),
        "google.rpc.Status" => google::rpc::Status::decode(bytes).map(|status| status.message).unwrap_or_default(),
        _ => data_as_json(any).to_string(),
    }
}

fn as_json(change: &Change) -> Value {
    let mut object = json!({"element": change.element, "state": change.state().as_str_name()});
    let fields = object.as_object_mut().expect("made as an object");
    if let Some(data) = &change.data {
        fields.insert("data".to_owned(), data_as_json(data));
    }
    if change.continued {
        fields.insert("continued".to_owned(), true.into());
    } else {
        fields.insert("marker".to_owned(), URL_SAFE_NO_PAD.encode(&change.resume_marker).into());
    }
    object
}

/// By the message that it is, if this program knows it and everything in it.
fn data_as_json(any: &prost_types::Any) -> Value {
    let message = POOL.get_message_by_name(name(any));
    let message = message.and_then(|message| DynamicMessage::decode(message, any.value.as_slice()).ok());
    match message.and_then(|message| serde_json::to_value(message).ok()) {
        Some(Value::Object(mut fields)) => {
            fields.insert("@type".to_owned(), any.type_url.as_str().into());
            Value::Object(fields)
        }
        Some(value) => json!({"@type": any.type_url, "value": value}),
        None => json!({"@type": any.type_url, "value": STANDARD.encode(&any.value)}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(change: &Change, format: WriteOut) -> String {
        let mut out = Vec::new();
        print(&mut out, change, format, true).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn changes_are_printed_for_people_and_for_programs() {
        let kv = mvccpb::KeyValue { key: "app/a".into(), value: "1\n".into(), ..Default::default() };
        let any = |name: &str, value| prost_types::Any { type_url: format!("type.googleapis.com/{name}"), value };
        let put = Change {
            element: "a".to_owned(),
            continued: true,
            data: Some(any("mvccpb.KeyValue", kv.encode_to_vec())),
            ..Change::default()
        };
        assert_eq!(printed(&put, WriteOut::Simple), "+ a  1\\n\n");
        let json: Value = serde_json::from_str(&printed(&put, WriteOut::Json)).unwrap();
        assert_eq!(json["data"]["value"], "MQo=");
        assert_eq!((&json["element"], &json["continued"]), (&json!("a"), &json!(true)));
        let gone = Change { state: State::DoesNotExist.into(), resume_marker: vec![0xfb].into(), ..Change::default() };
        assert_eq!(printed(&gone, WriteOut::Simple), "- .\n= -w\n");
        let directory =
            Change { continued: true, data: Some(any("google.protobuf.Empty", vec![])), ..Change::default() };
        assert_eq!(printed(&directory, WriteOut::Table), "+ .  /\n");
    }

    #[test]
    fn where_to_begin() {
        assert_eq!(marker("start").unwrap(), "");
        assert_eq!(marker("now").unwrap(), "now");
        assert_eq!(marker("-w").unwrap(), &b"\xfb"[..]);
        assert!(marker("yesterday!").is_err());
        assert_eq!(target("/kv/a", true), "/kv/a?recursive=true");
        assert_eq!(target("/kv/a?x=y", true), "/kv/a?x=y&recursive=true");
        assert_eq!(target("/kv/a", false), "/kv/a");
    }
}
