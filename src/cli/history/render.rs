//! States of entities as text for people: values that are text are readable, JSON by lines, other
//! bytes in hexadecimal; everything else by its fields.

use std::io::Write;

use prost::Message;
use serde_json::Value;

use super::patch::{Line, patch};
use super::point::time_text;
use crate::entity::{Types, data_as_json, name, shown};
use crate::error::CliError;
use headwater_proto::pb::headwater_v1 as pb;
use headwater_proto::pb::headwater_v1::entity_change::Kind;
use headwater_proto::pb::{etcdserverpb, mvccpb, pbservice};

/// Beginning of the full names of the messages of the catalog.
const CATALOG: &str = "hashicorp.consul.internal.service.";
/// Number of bytes on one line, in hexadecimal, of a value that is no text.
const HEX_LINE_BYTES: usize = 32;
/// Longest path or state on one line on a terminal, characters. Longer ones are cut.
const TERMINAL_CHARS_MAX: usize = 100;

/// The form of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Style {
    /// Whether to use colours.
    pub(super) has_colours: bool,
    /// Whether to cut long paths and states that stand on one line.
    pub(super) is_cut: bool,
    /// Whether changes are shown line by line.
    pub(super) is_patch: bool,
}

/// Meanings that have a colour.
#[derive(Clone, Copy)]
enum Colour {
    Head,
    Created,
    Removed,
    Updated,
}

impl Style {
    /// The style for standard output. On a terminal long lines are cut, and have colours unless
    /// `NO_COLOR` is set and not empty.
    pub(super) fn of_stdout(is_patch: bool) -> Self {
        use std::io::IsTerminal;
        let wants_none = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let is_terminal = std::io::stdout().is_terminal();
        Self { has_colours: is_terminal && !wants_none, is_cut: is_terminal, is_patch }
    }

    fn paint(self, colour: Colour, text: &str) -> String {
        if !self.has_colours {
            return text.to_owned();
        }
        let code = match colour {
            Colour::Head => "1",
            Colour::Created => "32",
            Colour::Removed => "31",
            Colour::Updated => "33",
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }

    /// A path or a state as it stands on one line.
    fn cut(self, text: &str) -> String {
        match text.char_indices().nth(TERMINAL_CHARS_MAX) {
            Some((end, _)) if self.is_cut => format!("{}… ({} characters)", &text[..end], text.chars().count()),
            Some(_) | None => text.to_owned(),
        }
    }

    /// The path of an entity and its state, on one line.
    pub(super) fn path_and_state(self, entity: &pb::Entity, types: &Types) -> String {
        let text = format!("{}  {}", self.cut(&entity.path), self.cut(&line(entity, types)));
        text.trim_end().to_owned()
    }
}

/// Whether the entity exists only because of others below it.
pub(super) fn is_directory(entity: &pb::Entity) -> bool {
    entity.data.as_ref().is_some_and(|data| name(data) == "google.protobuf.Empty")
}

/// The state of an entity on one line. Empty without data, or if the data does not decode.
pub(super) fn line(entity: &pb::Entity, types: &Types) -> String {
    let Some(data) = &entity.data else { return String::new() };
    match name(data) {
        "google.protobuf.Empty" => "/".to_owned(),
        "mvccpb.KeyValue" => match mvccpb::KeyValue::decode(&data.value[..]) {
            Ok(kv) => match readable(&kv.value) {
                Some(text) => text.replace('\n', "\\n").replace('\t', "\\t").replace('\r', "\\r"),
                None => format!("0x{}", hex(&kv.value)),
            },
            Err(_) => String::new(),
        },
        "hashicorp.consul.internal.service.CheckServiceNode" => {
            match pbservice::CheckServiceNode::decode(&data.value[..]) {
                Ok(instance) => instance_line(&instance),
                Err(_) => String::new(),
            }
        }
        "hashicorp.consul.internal.service.Node" => {
            pbservice::Node::decode(&data.value[..]).map(|node| node.address).unwrap_or_default()
        }
        "etcdserverpb.LeaseGrantResponse" => match etcdserverpb::LeaseGrantResponse::decode(&data.value[..]) {
            Ok(lease) if lease.ttl > 0 => format!("{} s", lease.ttl),
            Ok(_) | Err(_) => String::new(),
        },
        "etcdserverpb.Member" => match etcdserverpb::Member::decode(&data.value[..]) {
            Ok(member) => {
                let learner = if member.is_learner { "  learner" } else { "" };
                format!("{}  {}{learner}", member.name, member.peer_ur_ls.join(","))
            }
            Err(_) => String::new(),
        },
        _ => shown(data, types),
    }
}

/// Address, tags and checks of an instance; empty without a service.
fn instance_line(instance: &pbservice::CheckServiceNode) -> String {
    let node = instance.node.as_ref();
    let Some(service) = &instance.service else { return String::new() };
    let address = match service.address.as_str() {
        "" => node.map(|node| node.address.as_str()).unwrap_or_default(),
        address => address,
    };
    let mut parts = vec![format!("{address}:{}", service.port)];
    if !service.tags.is_empty() {
        parts.push(format!("tags {}", service.tags.join(",")));
    }
    parts.extend(instance.checks.iter().map(|check| format!("{} {}", check.check_id, check.status)));
    parts.join("  ")
}

/// The state of an entity as lines: a value by its lines, JSON with indentation, other bytes in
/// hexadecimal. Nodes and instances are without log indexes and empty parts. Empty without data.
pub(super) fn lines(entity: &pb::Entity, types: &Types) -> Vec<String> {
    let Some(data) = &entity.data else { return Vec::new() };
    let by_lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    if name(data) != "mvccpb.KeyValue" {
        let mut json = data_as_json(data, types);
        if let Some(fields) = json.as_object_mut() {
            fields.remove("@type");
        }
        if name(data).starts_with(CATALOG) {
            prune(&mut json);
        }
        return by_lines(&serde_json::to_string_pretty(&json).unwrap_or_default());
    }
    let Ok(kv) = mvccpb::KeyValue::decode(&data.value[..]) else { return Vec::new() };
    match readable(&kv.value) {
        Some(text) => match serde_json::from_str::<Value>(text) {
            Ok(json @ (Value::Object(_) | Value::Array(_))) => {
                by_lines(&serde_json::to_string_pretty(&json).unwrap_or_default())
            }
            Ok(_) | Err(_) => by_lines(text),
        },
        None => kv.value.chunks(HEX_LINE_BYTES).map(hex).collect(),
    }
}

/// Removes the members `RaftIndex` and those that are empty, at any depth: a message of the catalog
/// has dozens of them.
fn prune(json: &mut Value) {
    match json {
        Value::Object(fields) => {
            fields.remove("RaftIndex");
            fields.values_mut().for_each(prune);
            fields.retain(|_, value| !value.as_object().is_some_and(serde_json::Map::is_empty));
        }
        Value::Array(items) => items.iter_mut().for_each(prune),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// `value` as text. `None` if it is not UTF-8, or has control characters other than line ends and
/// tabs.
fn readable(value: &[u8]) -> Option<&str> {
    let is_shown = |c: char| !c.is_control() || matches!(c, '\n' | '\t' | '\r');
    std::str::from_utf8(value).ok().filter(|text| text.chars().all(is_shown))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Prints a command: a line with its log index, time, author, face and revision, then its changes.
pub(super) fn print_command(
    out: &mut impl Write,
    command: &pb::CommandChanges,
    types: &Types,
    style: Style,
) -> Result<(), CliError> {
    let time = time_text(command.unix_ms);
    let revision = if command.revision > 0 { format!("revision {}", command.revision) } else { String::new() };
    let parts = [format!("#{}", command.index), time, command.author.clone(), command.face.clone(), revision];
    let head = parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("  ");
    writeln!(out, "{}", style.paint(Colour::Head, &head))?;
    print_changes(out, command, types, style)
}

/// Prints the changes of a command.
pub(super) fn print_changes(
    out: &mut impl Write,
    command: &pb::CommandChanges,
    types: &Types,
    style: Style,
) -> Result<(), CliError> {
    for change in &command.changes {
        print_change(out, change, types, style)?;
    }
    Ok(())
}

/// Prints one change: on one line, or with `is_patch` line by line.
pub(super) fn print_change(
    out: &mut impl Write,
    change: &pb::EntityChange,
    types: &Types,
    style: Style,
) -> Result<(), CliError> {
    let (sign, colour) = match change.kind() {
        Kind::Created => ("+", Colour::Created),
        Kind::Removed => ("-", Colour::Removed),
        Kind::Updated | Kind::Unknown => ("~", Colour::Updated),
    };
    let reason = match change.expired {
        true => "  (its lease ended)".to_owned(),
        false => lease_change(change),
    };
    if style.is_patch {
        writeln!(out, "  {}", style.paint(colour, &format!("{sign} {}{reason}", change.path)))?;
        let state = |entity: &Option<pb::Entity>| entity.as_ref().map(|it| lines(it, types)).unwrap_or_default();
        for line in patch(&state(&change.before), &state(&change.after)) {
            match line {
                Line::Same(text) => writeln!(out, "      {text}")?,
                Line::Old(text) => writeln!(out, "    {}", style.paint(Colour::Removed, &format!("- {text}")))?,
                Line::New(text) => writeln!(out, "    {}", style.paint(Colour::Created, &format!("+ {text}")))?,
                Line::Gap => writeln!(out, "      …")?,
            }
        }
        return Ok(());
    }
    let shown = |entity: &pb::Entity| style.cut(&line(entity, types));
    let states = match (&change.before, &change.after) {
        (Some(before), Some(after)) => format!("{} -> {}", shown(before), shown(after)),
        (Some(only), None) | (None, Some(only)) => shown(only),
        (None, None) => String::new(),
    };
    let text = format!("{sign} {}  {states}", style.cut(&change.path));
    Ok(writeln!(out, "  {}{reason}", style.paint(colour, text.trim_end()))?)
}

/// A note about the lease of a key, if the change gave it another one.
fn lease_change(change: &pb::EntityChange) -> String {
    let lease = |entity: &Option<pb::Entity>| {
        let data = entity.as_ref()?.data.as_ref().filter(|data| name(data) == "mvccpb.KeyValue")?;
        mvccpb::KeyValue::decode(&data.value[..]).ok().map(|kv| kv.lease)
    };
    let text = |id: i64| if id == 0 { "none".to_owned() } else { format!("{id:x}") };
    match (lease(&change.before), lease(&change.after)) {
        (Some(before), Some(after)) if before != after => format!("  (lease {} -> {})", text(before), text(after)),
        (None, Some(lease)) if lease != 0 => format!("  (lease {})", text(lease)),
        (_, _) => String::new(),
    }
}

/// The data of the states before and after each change of a command.
pub(super) fn data_of(command: &pb::CommandChanges) -> impl Iterator<Item = &prost_types::Any> {
    let states = command.changes.iter().flat_map(|change| change.before.iter().chain(&change.after));
    states.filter_map(|entity| entity.data.as_ref())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use headwater_proto::pb::pbcommon;

    const PLAIN: Style = Style { has_colours: false, is_cut: false, is_patch: false };

    pub(in crate::history) fn key(value: &[u8]) -> pb::Entity {
        let kv = mvccpb::KeyValue { value: value.to_vec().into(), ..Default::default() };
        let type_url = "type.googleapis.com/mvccpb.KeyValue".to_owned();
        let data = Some(prost_types::Any { type_url, value: kv.encode_to_vec() });
        pb::Entity { path: "/kv/a".to_owned(), data, index: 7 }
    }

    fn printed(change: pb::EntityChange, style: Style) -> String {
        let command = pb::CommandChanges {
            index: 9,
            revision: 4,
            unix_ms: 1001,
            author: "user:alice".to_owned(),
            face: "etcd".to_owned(),
            changes: vec![pb::EntityChange { path: "/kv/a".to_owned(), ..change }],
            continued: false,
        };
        let mut out = Vec::new();
        print_command(&mut out, &command, &Types::new(), style).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn update(before: &[u8], after: &[u8]) -> pb::EntityChange {
        pb::EntityChange { kind: 2, before: Some(key(before)), after: Some(key(after)), ..Default::default() }
    }

    #[test]
    fn another_lease_is_a_change() {
        let key = |lease| {
            let kv = mvccpb::KeyValue { value: "v".into(), lease, ..Default::default() };
            let type_url = "type.googleapis.com/mvccpb.KeyValue".to_owned();
            let data = Some(prost_types::Any { type_url, value: kv.encode_to_vec() });
            Some(pb::Entity { data, ..Default::default() })
        };
        for (before, after, wanted) in [
            (key(0), key(0x4711), "  ~ /kv/a  v -> v  (lease none -> 4711)\n"),
            (key(0x4711), key(0), "  ~ /kv/a  v -> v  (lease 4711 -> none)\n"),
            (key(5), key(5), "  ~ /kv/a  v -> v\n"),
            (None, key(5), "  + /kv/a  v  (lease 5)\n"),
            (None, key(0), "  + /kv/a  v\n"),
        ] {
            let kind = if before.is_some() { Kind::Updated } else { Kind::Created };
            let change = pb::EntityChange { kind: kind.into(), before, after, ..Default::default() };
            for style in [PLAIN, Style { is_patch: true, ..PLAIN }] {
                let told = printed(change.clone(), style);
                let note = wanted.trim_end().split_once("  (").map_or("", |(_, note)| note);
                assert!(told.contains(note), "{told}");
                assert!(style.is_patch || told.ends_with(wanted), "{told}");
            }
        }
    }

    #[test]
    fn a_change_is_told_on_one_line() {
        let head = "#9  1970-01-01T00:00:01.001Z  user:alice  etcd  revision 4\n";
        assert_eq!(printed(update(b"1", b"2\n"), PLAIN), format!("{head}  ~ /kv/a  1 -> 2\\n\n"));
        let created = pb::EntityChange { kind: 1, after: Some(key(b"\xff\x00")), ..Default::default() };
        assert_eq!(printed(created, PLAIN), format!("{head}  + /kv/a  0xff00\n"));
        let expired = pb::EntityChange { kind: 3, before: Some(key(b"1")), expired: true, ..Default::default() };
        assert_eq!(printed(expired, PLAIN), format!("{head}  - /kv/a  1  (its lease ended)\n"));
        let short = pb::EntityChange { kind: 3, ..Default::default() };
        assert_eq!(printed(short, PLAIN), format!("{head}  - /kv/a\n"));
    }

    #[test]
    fn other_states_are_told_by_what_matters() {
        let entity = |name: &str, value: Vec<u8>| {
            let data = Some(prost_types::Any { type_url: format!("type.googleapis.com/{name}"), value });
            pb::Entity { data, ..Default::default() }
        };
        let instance = pbservice::CheckServiceNode {
            node: Some(pbservice::Node { address: "10.0.0.1".to_owned(), ..Default::default() }),
            service: Some(pbservice::NodeService { port: 80, tags: vec!["a".to_owned()], ..Default::default() }),
            checks: vec![pbservice::HealthCheck {
                check_id: "c".to_owned(),
                status: "passing".to_owned(),
                ..Default::default()
            }],
        };
        let name = "hashicorp.consul.internal.service.CheckServiceNode";
        let types = Types::new();
        assert_eq!(line(&entity(name, instance.encode_to_vec()), &types), "10.0.0.1:80  tags a  c passing");
        let lease = etcdserverpb::LeaseGrantResponse { ttl: 60, ..Default::default() };
        assert_eq!(line(&entity("etcdserverpb.LeaseGrantResponse", lease.encode_to_vec()), &types), "60 s");
    }

    #[test]
    fn a_patch_tells_lines_of_json_and_of_text() {
        let patch = Style { is_patch: true, ..PLAIN };
        let json = printed(update(br#"{"a":1,"b":2}"#, br#"{"a":1,"b":3}"#), patch);
        let wanted = "      {\n        \"a\": 1,\n    -   \"b\": 2\n    +   \"b\": 3\n      }\n";
        assert!(json.ends_with(wanted), "{json}");
        let text = printed(update(b"one\ntwo\n", b"one\n2\n"), patch);
        assert!(text.ends_with("      one\n    - two\n    + 2\n"), "{text}");
        let binary = printed(update(&[255; 33], &[255; 32]), patch);
        assert!(binary.ends_with(&format!("      {}\n    - ff\n", "ff".repeat(32))), "{binary}");
    }

    #[test]
    fn instances_are_told_without_indexes_and_empty_parts() {
        let instance = |index| pbservice::CheckServiceNode {
            service: Some(pbservice::NodeService {
                port: 80,
                proxy: Some(Default::default()),
                enterprise_meta: Some(Default::default()),
                raft_index: Some(pbcommon::RaftIndex { create_index: 1, modify_index: index }),
                ..Default::default()
            }),
            ..Default::default()
        };
        let told = |index| {
            let type_url = format!("type.googleapis.com/{CATALOG}CheckServiceNode");
            let data = Some(prost_types::Any { type_url, value: instance(index).encode_to_vec() });
            lines(&pb::Entity { data, ..Default::default() }, &Types::new())
        };
        assert_eq!(told(7).concat().replace(' ', ""), r#"{"Service":{"Port":80}}"#);
        assert_eq!(told(7), told(8));
    }

    #[test]
    fn people_see_colours_and_short_lines() {
        let style = Style { has_colours: true, is_cut: true, is_patch: false };
        let long = printed(update(b"1", &[b'x'; 200]), style);
        assert!(long.contains("\x1b[33m~ /kv/a") && long.contains("… (200 characters)"), "{long}");
        let pale = Style { has_colours: false, ..style };
        let path = pb::Entity { path: format!("/kv/{}", "ä".repeat(300)), ..key(b"1") };
        let wanted = format!("/kv/{}… (304 characters)  1", "ä".repeat(96));
        assert_eq!(pale.path_and_state(&path, &Types::new()), wanted);
        assert_eq!(PLAIN.path_and_state(&path, &Types::new()), format!("{}  1", path.path));
        assert!(!printed(update(b"1", &[b'x'; 200]), PLAIN).contains('…'));
    }
}
