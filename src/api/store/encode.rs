//! Changes as messages.

use headwater_api_shared::context::write_epoch_text;
use headwater_api_shared::entity_data::entity_data;
use headwater_api_shared::target::path_of;
use headwater_node::{CommandChanges, EntityChange, EntityChangeKind, EntityState, HistoryPage};
use headwater_proto::pb::headwater_v1 as pb;
use headwater_proto::pb::headwater_v1::entity_change::Kind;
use headwater_types::{Author, Face, Revision};

/// A message of a stream of changes.
pub(super) fn history(page: HistoryPage, datacenter: &str) -> pb::HistoryResponse {
    pb::HistoryResponse {
        commands: page.commands.into_iter().map(|command| changes(command, datacenter)).collect(),
        reached: page.reached.get(),
        oldest: page.oldest.get(),
        epoch: page.epoch.map(write_epoch_text).unwrap_or_default(),
    }
}

fn changes(command: CommandChanges, datacenter: &str) -> pb::CommandChanges {
    pb::CommandChanges {
        index: command.index.get(),
        revision: command.revision.map_or(0, Revision::get),
        unix_ms: signed(command.unix_ms),
        author: command.authorship.author.as_ref().map(author).unwrap_or_default(),
        face: command.authorship.face.map_or("", Face::name).to_owned(),
        changes: command.changes.into_iter().map(|it| change(it, datacenter)).collect(),
        continued: command.is_continued,
    }
}

fn change(change: EntityChange, datacenter: &str) -> pb::EntityChange {
    let path = path_of(change.space, &change.name);
    let state = |state: EntityState| pb::Entity {
        path: path.clone(),
        data: Some(entity_data(state.data, datacenter)),
        index: state.index.get(),
    };
    let kind = match change.kind {
        EntityChangeKind::Created => Kind::Created,
        EntityChangeKind::Updated => Kind::Updated,
        EntityChangeKind::Removed => Kind::Removed,
    };
    pb::EntityChange {
        before: change.before.map(&state),
        after: change.after.map(state),
        path,
        kind: kind.into(),
        expired: change.is_expired,
    }
}

/// An author as answers name it.
pub(super) fn author(author: &Author) -> String {
    match author {
        Author::User(name) => format!("user:{name}"),
        Author::Token(accessor) => format!("token:{accessor}"),
        Author::Node => "node".to_owned(),
    }
}

pub(super) fn signed(unix_ms: u64) -> i64 {
    i64::try_from(unix_ms).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn authors_have_their_kind_in_front() {
        for (given, wanted) in [
            (Author::User("alice".to_owned()), "user:alice"),
            (Author::Token("a-1".to_owned()), "token:a-1"),
            (Author::Node, "node"),
        ] {
            assert_eq!(author(&given), wanted);
        }
        assert_eq!((signed(5), signed(u64::MAX)), (5, i64::MAX));
    }
}
