//! `headwater follow`: prints an entity and then its changes. Resumes from its last marker at the
//! next endpoint when a node stops.
//!
//! Invariant: `marker` is that of the last completely printed group, so that no change is missed.
//! An interrupted group is printed again from its beginning.

use std::collections::{HashMap, HashSet};
use std::io::Write;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use bytes::Bytes;
use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage};
use serde_json::{Value, json};
use tonic::{Code, Status};

use super::connect::Cluster;
use super::error::CliError;
use super::open_call::{Contact, ended, keep_open};
use super::output::{WriteOut, print_json};
use super::resource::{Catalogue, Data};
use super::{ClientArgs, Freshness};
use headwater_client::Attempt;
use headwater_client::controller::wire;
use headwater_proto::pb::pbwatcher::change::State;
use headwater_proto::pb::pbwatcher::{Change, Request};
use headwater_proto::pb::{PUBLIC_DESCRIPTORS, google, mvccpb, pbresource};
use headwater_types::resource::{ResourceId, Type};

/// The marker that requests changes alone, without the state.
const NOW: &str = "now";
/// Least time between two reads of an unknown type. The type may have been registered since, or the
/// member may have been behind.
const TYPES_AGAIN: Duration = Duration::from_secs(5);
/// Full name of the protobuf message of a resource.
const RESOURCE: &str = "hashicorp.consul.resource.Resource";

static POOL: LazyLock<DescriptorPool> =
    LazyLock::new(|| DescriptorPool::decode(PUBLIC_DESCRIPTORS).expect("a descriptor set that was compiled in"));

/// Print any part of the store, then every change of it as it happens
///
/// TARGET is a path: /kv/app, /resources/demo/v2/Artist, or / for the list of spaces. Resumes by
/// itself after the last printed change, at the next endpoint, when a node stops or the connection
/// breaks.
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

/// Types of the printed resources; read again when a resource has an unknown type.
struct Types {
    catalogue: Catalogue,
    /// Types that the catalogue lacked when it was last read, or that could not be read, with the
    /// time of that attempt. Read again after [`TYPES_AGAIN`].
    unknown: HashMap<Type, Instant>,
}

impl Types {
    fn new() -> Self {
        Self { catalogue: Catalogue::builtin(), unknown: HashMap::new() }
    }

    /// Whether `type_` is unknown and the catalogue was not read for it within [`TYPES_AGAIN`].
    fn wants(&self, type_: &Type, now: Instant) -> bool {
        let is_due = |tried: &Instant| now.saturating_duration_since(*tried) >= TYPES_AGAIN;
        self.catalogue.get(type_).is_none() && self.unknown.get(type_).is_none_or(is_due)
    }

    /// Reads the catalogue again if a change has a resource of an unknown type that was not tried
    /// lately.
    async fn learn(&mut self, changes: &[Change], cluster: &Cluster) {
        let met = changes.iter().filter_map(|change| Some(id_of(&resource(change.data.as_ref()?)?).type_));
        let now = Instant::now();
        let new: HashSet<Type> = met.filter(|type_| self.wants(type_, now)).collect();
        if new.is_empty() {
            return;
        }
        // On failure the data is printed in base64, from which a program can still decode it.
        if let Ok(catalogue) = Catalogue::read(cluster, Freshness::Serializable).await {
            self.catalogue = catalogue;
        }
        self.unknown.retain(|type_, _| self.catalogue.get(type_).is_none());
        let still = new.into_iter().filter(|type_| self.catalogue.get(type_).is_none());
        self.unknown.extend(still.map(|type_| (type_, now)));
    }

    /// Data of a resource as JSON; `None` if it has none.
    fn data(&self, resource: &pbresource::Resource) -> Option<Value> {
        let data = wire::data_from_pb(resource)?;
        serde_json::to_value(Data::of(&id_of(resource), data, &self.catalogue)).ok()
    }
}

fn id_of(resource: &pbresource::Resource) -> ResourceId {
    wire::id_from_pb(resource.id.as_ref())
}

/// The resource in an element. `None` if the element is another message or does not decode.
fn resource(any: &prost_types::Any) -> Option<pbresource::Resource> {
    (name(any) == RESOURCE).then(|| pbresource::Resource::decode(any.value.as_slice()).ok()).flatten()
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
    /// Follows at one endpoint. Returns the reason to try the next one.
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
            self.types.learn(&batch.changes, cluster).await;
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
                eprintln!("{}; the state is printed anew", status.message());
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

fn name(any: &prost_types::Any) -> &str {
    any.type_url.rsplit('/').next().unwrap_or_default()
}

/// The data of an element, on one line for people.
fn shown(any: &prost_types::Any, types: &Types) -> String {
    let bytes = any.value.as_slice();
    match name(any) {
        "google.protobuf.Empty" => "/".to_owned(),
        "mvccpb.KeyValue" => mvccpb::KeyValue::decode(bytes)
            .map(|kv| String::from_utf8_lossy(&kv.value).escape_debug().to_string())
            .unwrap_or_default(),
        RESOURCE => resource(any)
            .map(|resource| {
                let data = types.data(&resource).map(|data| format!("  {data}")).unwrap_or_default();
                format!("version {}{data}", resource.version)
            })
            .unwrap_or_default(),
        "google.rpc.Status" => google::rpc::Status::decode(bytes).map(|status| status.message).unwrap_or_default(),
        _ => data_as_json(any, types).to_string(),
    }
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

/// JSON by the message's descriptor, if this program knows it and every type within it; else the
/// bytes in base64.
fn data_as_json(any: &prost_types::Any, types: &Types) -> Value {
    if let Some(resource) = resource(any) {
        let data = types.data(&resource);
        let rest = pbresource::Resource { data: None, ..resource }.encode_to_vec();
        let mut json = known_as_json(any, &rest);
        if let (Some(fields), Some(data)) = (json.as_object_mut(), data) {
            fields.insert("data".to_owned(), data);
        }
        return json;
    }
    known_as_json(any, &any.value)
}

fn known_as_json(any: &prost_types::Any, value: &[u8]) -> Value {
    let message = POOL.get_message_by_name(name(any));
    let message = message.and_then(|message| DynamicMessage::decode(message, value).ok());
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
    fn an_unknown_type_is_read_again_after_a_while() {
        let now = Instant::now();
        let lost = Type::new("demo", "v2", "Artist");
        let mut types = Types::new();
        assert!(!types.wants(&Type::partition(), now), "it is built in");
        assert!(types.wants(&lost, now));
        types.unknown.insert(lost.clone(), now);
        assert!(!types.wants(&lost, now + TYPES_AGAIN / 2));
        assert!(types.wants(&lost, now + TYPES_AGAIN));
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
