//! `headwater follow`: prints an entity and then its changes. Resumes from its last marker at the
//! next endpoint when a node stops.
//!
//! Invariant: `marker` is that of the last completely printed group, so that no change is missed.
//! An interrupted group is printed again from its beginning.

use std::io::Write;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use serde_json::{Value, json};
use tonic::{Code, Status};

use super::ClientArgs;
use super::connect::Cluster;
use super::entity::{Types, data_as_json, shown};
use super::error::CliError;
use super::notice;
use super::open_call::{Contact, ended, keep_open};
use super::output::{WriteOut, print_json};
use headwater_client::Attempt;
use headwater_proto::pb::pbwatcher::change::State;
use headwater_proto::pb::pbwatcher::{Change, Request};

/// The marker that requests changes alone, without the state.
const NOW: &str = "now";

/// Print any part of the store, then every change of it as it happens
///
/// TARGET is a path: /kv/app, /resources/demo/v2/Artist, or / for the list of spaces. Resumes by
/// itself at the next endpoint when a node stops or the connection breaks, after the last group of
/// changes that was printed whole. A group that was cut off is printed again from its beginning.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct FollowArgs {
    /// Path to follow; parts are percent-encoded, a key that begins with a slash is below /kv/~
    target: String,
    /// Follow everything below the path, not its children alone
    #[arg(long, short)]
    recursive: bool,
    /// Begin with the state (start), with changes alone (now), or after a marker printed before
    #[arg(long, default_value = "start", value_name = "now|start|MARKER")]
    from: String,
    /// Print the marker after each group of changes that happened together
    #[arg(long)]
    markers: bool,
}

struct Follow {
    target: String,
    marker: Bytes,
    markers: bool,
    format: WriteOut,
    types: Types,
}

pub(super) async fn run(args: FollowArgs, cluster: &Cluster, client: &ClientArgs) -> Result<(), CliError> {
    let mut follow = Follow {
        target: target(&args.target, args.recursive),
        marker: marker(&args.from)?,
        markers: args.markers,
        format: client.write_out,
        types: Types::new(),
    };
    keep_open(cluster, async |attempt, contact| follow.at(attempt, cluster, contact).await).await
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
    /// Follows at one endpoint until the stream ends. Returns the reason to try the next one; an
    /// error if no endpoint would do better.
    async fn at(&mut self, attempt: &Attempt, cluster: &Cluster, contact: &mut Contact) -> Result<String, CliError> {
        let request = Request { target: self.target.clone(), resume_marker: self.marker.clone() };
        let mut batches = match attempt.watcher().watch(request).await {
            Ok(batches) => batches.into_inner(),
            Err(status) => return self.judge(&status, contact),
        };
        let mut out = std::io::stdout();
        loop {
            let batch = match batches.message().await {
                Ok(Some(batch)) => batch,
                Ok(None) => return Ok("the stream ended".to_owned()),
                Err(status) => return self.judge(&status, contact),
            };
            contact.made();
            self.types.learn(batch.changes.iter().filter_map(|change| change.data.as_ref()), cluster).await;
            for change in &batch.changes {
                print(&mut out, change, &self.types, self.format, self.markers)?;
                if !change.continued && !change.resume_marker.is_empty() {
                    self.marker = change.resume_marker.clone();
                }
            }
            out.flush()?;
        }
    }

    fn judge(&mut self, status: &Status, contact: &Contact) -> Result<String, CliError> {
        match status.code() {
            Code::FailedPrecondition if !contact.was_made() => Err(CliError::Finding(status.message().to_owned())),
            // The marker has expired or is unknown: the server cannot resume from it.
            Code::FailedPrecondition => {
                notice!("{}; the state is printed anew", status.message());
                self.marker = Bytes::new();
                Ok(status.message().to_owned())
            }
            _ => ended(status),
        }
    }
}

fn print(
    out: &mut impl Write,
    change: &Change,
    types: &Types,
    format: WriteOut,
    markers: bool,
) -> Result<(), CliError> {
    if format == WriteOut::Json {
        return print_json(out, &as_json(change, types));
    }
    let shown = |any| shown(any, types);
    let element = if change.element.is_empty() { "." } else { &change.element };
    let (sign, shown_state) = match change.state() {
        State::Exists => ("+", change.data.as_ref().map(&shown).unwrap_or_default()),
        State::DoesNotExist => ("-", String::new()),
        State::InitialStateSkipped => ("~", String::new()),
        State::Error => ("!", change.data.as_ref().map(shown).unwrap_or_default()),
    };
    writeln!(out, "{}", format!("{sign} {element}  {shown_state}").trim_end())?;
    if markers && !change.continued {
        writeln!(out, "= {}", URL_SAFE_NO_PAD.encode(&change.resume_marker))?;
    }
    Ok(())
}

fn as_json(change: &Change, types: &Types) -> Value {
    let mut object = json!({"element": change.element, "state": change.state().as_str_name()});
    let fields = object.as_object_mut().expect("made as an object");
    if let Some(data) = &change.data {
        fields.insert("data".to_owned(), data_as_json(data, types));
    }
    if change.continued {
        fields.insert("continued".to_owned(), true.into());
    } else {
        fields.insert("marker".to_owned(), URL_SAFE_NO_PAD.encode(&change.resume_marker).into());
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_proto::pb::{mvccpb, pbresource};
    use prost::Message;

    const RESOURCE: &str = "hashicorp.consul.resource.Resource";

    fn printed(change: &Change, format: WriteOut) -> String {
        let mut out = Vec::new();
        print(&mut out, change, &Types::new(), format, true).unwrap();
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
        let held = pbresource::Resource {
            version: "7".to_owned(),
            data: Some(any("x.y.Z", b"\x01".to_vec())),
            ..Default::default()
        };
        let resource = Change { data: Some(any(RESOURCE, held.encode_to_vec())), ..put.clone() };
        let json: Value = serde_json::from_str(&printed(&resource, WriteOut::Json)).unwrap();
        assert_eq!(json["data"]["version"], "7", "what is known is told although the data's type is not");
        assert_eq!(json["data"]["data"]["base64"], "AQ==");
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
