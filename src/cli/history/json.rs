//! Commands, changes and entities as JSON for programs.
//!
//! They are written without a tree of values in between, which took longer than all else of a
//! history. Members stand in the order of their names.

use serde::Serialize;

use crate::entity::{Types, WrittenData};
use headwater_proto::pb::headwater_v1 as pb;

/// A command, with the lineage of its index.
#[derive(Serialize)]
pub(super) struct WrittenCommand<'a> {
    author: &'a str,
    changes: Vec<WrittenChange<'a>>,
    #[serde(skip_serializing_if = "is_false")]
    continued: bool,
    epoch: &'a str,
    face: &'a str,
    index: u64,
    revision: i64,
    unix_ms: i64,
}

impl<'a> WrittenCommand<'a> {
    /// `epoch` is the lineage of the command's index, as the server writes it.
    pub(super) fn new(command: &'a pb::CommandChanges, epoch: &'a str, types: &'a Types) -> Self {
        Self {
            author: &command.author,
            changes: written_changes(&command.changes, types),
            continued: command.continued,
            epoch,
            face: &command.face,
            index: command.index,
            revision: command.revision,
            unix_ms: command.unix_ms,
        }
    }
}

/// A change of an entity, with the states before and after it that are known.
#[derive(Serialize)]
pub(super) struct WrittenChange<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    after: Option<WrittenEntity<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<WrittenEntity<'a>>,
    #[serde(skip_serializing_if = "is_false")]
    expired: bool,
    kind: &'static str,
    path: &'a str,
}

/// Changes in their order.
pub(super) fn written_changes<'a>(changes: &'a [pb::EntityChange], types: &'a Types) -> Vec<WrittenChange<'a>> {
    let state = |state: &'a Option<pb::Entity>| state.as_ref().map(|entity| WrittenEntity::new(entity, types));
    let written = |change: &'a pb::EntityChange| WrittenChange {
        after: state(&change.after),
        before: state(&change.before),
        expired: change.expired,
        kind: change.kind().as_str_name(),
        path: &change.path,
    };
    changes.iter().map(written).collect()
}

/// An entity: its path, its log index, and its data if there is any.
#[derive(Serialize)]
pub(super) struct WrittenEntity<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<WrittenData<'a>>,
    index: u64,
    path: &'a str,
}

impl<'a> WrittenEntity<'a> {
    pub(super) fn new(entity: &'a pb::Entity, types: &'a Types) -> Self {
        let data = entity.data.as_ref().map(|data| WrittenData { data, types });
        Self { data, index: entity.index, path: &entity.path }
    }
}

fn is_false(flag: &bool) -> bool {
    !*flag
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::render::tests::key;

    #[test]
    fn a_command_has_its_members_in_order_and_no_empty_ones() {
        let change =
            pb::EntityChange { path: "/kv/a".to_owned(), kind: 2, before: Some(key(b"1")), ..Default::default() };
        let ended = pb::EntityChange { kind: 3, expired: true, before: Some(pb::Entity::default()), ..change.clone() };
        let updated = pb::EntityChange { after: Some(key(b"2")), ..change };
        let command = pb::CommandChanges {
            index: 9,
            revision: 4,
            unix_ms: 1001,
            author: "user:alice".to_owned(),
            face: "etcd".to_owned(),
            changes: vec![updated, ended],
            continued: true,
        };
        let written = serde_json::to_string(&WrittenCommand::new(&command, "e", &Types::new())).unwrap();
        let state = |value: &str| {
            let data = format!(r#"{{"@type":"type.googleapis.com/mvccpb.KeyValue","value":"{value}"}}"#);
            format!(r#"{{"data":{data},"index":7,"path":"/kv/a"}}"#)
        };
        let updated =
            format!(r#"{{"after":{},"before":{},"kind":"UPDATED","path":"/kv/a"}}"#, state("Mg=="), state("MQ=="));
        let ended = r#"{"before":{"index":0,"path":""},"expired":true,"kind":"REMOVED","path":"/kv/a"}"#;
        let rest = r#""continued":true,"epoch":"e","face":"etcd","index":9,"revision":4,"unix_ms":1001"#;
        assert_eq!(written, format!(r#"{{"author":"user:alice","changes":[{updated},{ended}],{rest}}}"#));
        let whole = pb::CommandChanges { changes: Vec::new(), continued: false, ..command };
        let written = serde_json::to_string(&WrittenCommand::new(&whole, "", &Types::new())).unwrap();
        assert!(!written.contains("continued"), "{written}");
    }
}
