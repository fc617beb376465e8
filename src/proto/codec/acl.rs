//! Encoding of Consul's ACLs: in storage, in commands and in outcomes.

use bytes::Bytes;

use super::CodecError;
use super::command::{decode_message, encode_message};
use super::kv::{required, unknown};
use crate::pb::internal as pb;
use headwater_types::acl::{
    AclBinding, AclCommand, AclDone, AclGrants, AclKey, AclMethod, AclPolicy, AclRefusal, AclRole, AclRow, AclToken,
    NodeIdentity, ServiceIdentity, TemplatedPolicy,
};
use headwater_types::auth::SecretHash;
use headwater_types::{Feature, LogIndex};

/// The only format of stored rows so far.
const FORMAT: u8 = Feature::Acl.since().byte();

/// The bytes of a row as it is stored, without `modified`, which is the log index of the stored
/// record.
pub fn encode_acl_row(row: &AclRow) -> Bytes {
    encode_message(FORMAT, &write_row(row))
}

/// Decodes a row. `modified` is the log index of its record, and becomes the row's `modified`.
///
/// # Errors
///
/// [`CodecError`] for another format byte, for malformed bytes, and for a value that this version
/// does not know. Unknown fields are ignored.
pub fn decode_acl_row(bytes: Bytes, modified: LogIndex) -> Result<AclRow, CodecError> {
    let mut row = read_row(decode_message("row of the access control lists", FORMAT, bytes)?)?;
    match &mut row {
        AclRow::Token(it) => it.modified = modified,
        AclRow::Policy(it) => it.modified = modified,
        AclRow::Role(it) => it.modified = modified,
        AclRow::Method(it) => it.modified = modified,
        AclRow::Binding(it) => it.modified = modified,
    }
    Ok(row)
}

pub(super) fn write_command(command: &AclCommand) -> pb::AclCommand {
    use pb::acl_command::Command;
    let command = match command {
        AclCommand::Bootstrap { token, reset } => {
            Command::Bootstrap(pb::AclBootstrap { token: Some(write_token(token)), reset: reset.get() })
        }
        AclCommand::Put { row, is_new } => Command::Put(pb::AclPut { row: Some(write_row(row)), is_new: *is_new }),
        AclCommand::Delete(key) => Command::Delete(write_key(key)),
        AclCommand::Expire(tokens) => Command::Expire(pb::AclExpire {
            tokens: tokens
                .iter()
                .map(|(accessor, modified)| pb::AclExpired { accessor: accessor.clone(), modified: modified.get() })
                .collect(),
        }),
    };
    pb::AclCommand { command: Some(command) }
}

pub(super) fn read_command(command: pb::AclCommand) -> Result<AclCommand, CodecError> {
    use pb::acl_command::Command;
    Ok(match required(command.command, "AclCommand.command")? {
        Command::Bootstrap(bootstrap) => AclCommand::Bootstrap {
            token: Box::new(read_token(required(bootstrap.token, "AclBootstrap.token")?)),
            reset: LogIndex(bootstrap.reset),
        },
        Command::Put(put) => AclCommand::Put { row: read_row(required(put.row, "AclPut.row")?)?, is_new: put.is_new },
        Command::Delete(key) => AclCommand::Delete(read_key(key)?),
        Command::Expire(expire) => AclCommand::Expire(
            expire.tokens.into_iter().map(|token| (token.accessor, LogIndex(token.modified))).collect(),
        ),
    })
}

pub(super) fn write_done(done: AclDone) -> pb::AclDone {
    pb::AclDone { changed: done.changed, created: done.created.get() }
}

pub(super) fn read_done(done: &pb::AclDone) -> AclDone {
    AclDone { changed: done.changed, created: LogIndex(done.created) }
}

pub(super) fn read_refusal(number: i32) -> Result<AclRefusal, CodecError> {
    let found = AclRefusal::ALL.into_iter().find(|refusal| *refusal as i32 == number);
    found.ok_or_else(|| unknown("Refusal.acl", number))
}

fn write_key(key: &AclKey) -> pb::AclKey {
    use pb::acl_key::Key;
    let key = match key {
        AclKey::Token(accessor) => Key::Token(accessor.clone()),
        AclKey::Policy(id) => Key::Policy(id.clone()),
        AclKey::Role(id) => Key::Role(id.clone()),
        AclKey::Method(name) => Key::Method(name.clone()),
        AclKey::Binding(id) => Key::Binding(id.clone()),
    };
    pb::AclKey { key: Some(key) }
}

fn read_key(key: pb::AclKey) -> Result<AclKey, CodecError> {
    use pb::acl_key::Key;
    Ok(match required(key.key, "AclKey.key")? {
        Key::Token(accessor) => AclKey::Token(accessor),
        Key::Policy(id) => AclKey::Policy(id),
        Key::Role(id) => AclKey::Role(id),
        Key::Method(name) => AclKey::Method(name),
        Key::Binding(id) => AclKey::Binding(id),
    })
}

fn write_row(row: &AclRow) -> pb::AclRow {
    use pb::acl_row::Row;
    let row = match row {
        AclRow::Token(token) => Row::Token(write_token(token)),
        AclRow::Policy(policy) => Row::Policy(pb::AclPolicy {
            id: policy.id.clone(),
            name: policy.name.clone(),
            description: policy.description.clone(),
            rules: policy.rules.clone(),
            datacenters: policy.datacenters.clone(),
            created: policy.created.get(),
        }),
        AclRow::Role(role) => Row::Role(pb::AclRole {
            id: role.id.clone(),
            name: role.name.clone(),
            description: role.description.clone(),
            grants: Some(write_grants(&role.grants)),
            created: role.created.get(),
        }),
        AclRow::Method(method) => Row::Method(pb::AclMethod {
            name: method.name.clone(),
            kind: method.kind.clone(),
            display_name: method.display_name.clone(),
            description: method.description.clone(),
            max_token_ttl_ms: method.max_token_ttl_ms,
            locality: method.locality.clone(),
            config_json: method.config_json.clone(),
            created: method.created.get(),
        }),
        AclRow::Binding(binding) => Row::Binding(pb::AclBinding {
            id: binding.id.clone(),
            description: binding.description.clone(),
            method: binding.method.clone(),
            selector: binding.selector.clone(),
            bind_type: binding.bind_type.clone(),
            bind_name: binding.bind_name.clone(),
            bind_var: binding.bind_var.clone(),
            created: binding.created.get(),
        }),
    };
    pb::AclRow { row: Some(row) }
}

fn read_row(row: pb::AclRow) -> Result<AclRow, CodecError> {
    use pb::acl_row::Row;
    let modified = LogIndex::ZERO;
    Ok(match required(row.row, "AclRow.row")? {
        Row::Token(token) => AclRow::Token(Box::new(read_token(token))),
        Row::Policy(policy) => AclRow::Policy(Box::new(AclPolicy {
            id: policy.id,
            name: policy.name,
            description: policy.description,
            rules: policy.rules,
            datacenters: policy.datacenters,
            created: LogIndex(policy.created),
            modified,
        })),
        Row::Role(role) => AclRow::Role(Box::new(AclRole {
            id: role.id,
            name: role.name,
            description: role.description,
            grants: read_grants(role.grants.unwrap_or_default()),
            created: LogIndex(role.created),
            modified,
        })),
        Row::Method(method) => AclRow::Method(Box::new(AclMethod {
            name: method.name,
            kind: method.kind,
            display_name: method.display_name,
            description: method.description,
            max_token_ttl_ms: method.max_token_ttl_ms,
            locality: method.locality,
            config_json: method.config_json,
            created: LogIndex(method.created),
            modified,
        })),
        Row::Binding(binding) => AclRow::Binding(Box::new(AclBinding {
            id: binding.id,
            description: binding.description,
            method: binding.method,
            selector: binding.selector,
            bind_type: binding.bind_type,
            bind_name: binding.bind_name,
            bind_var: binding.bind_var,
            created: LogIndex(binding.created),
            modified,
        })),
    })
}

fn write_token(token: &AclToken) -> pb::AclToken {
    pb::AclToken {
        accessor: token.accessor.clone(),
        secret_hash: token.secret.0.clone(),
        description: token.description.clone(),
        grants: Some(write_grants(&token.grants)),
        roles: token.roles.clone(),
        local: token.local,
        method: token.method.clone(),
        created_ms: token.created_ms,
        expires_ms: token.expires_ms,
        created: token.created.get(),
    }
}

fn read_token(token: pb::AclToken) -> AclToken {
    AclToken {
        accessor: token.accessor,
        secret: SecretHash(token.secret_hash),
        description: token.description,
        grants: read_grants(token.grants.unwrap_or_default()),
        roles: token.roles,
        local: token.local,
        method: token.method,
        created_ms: token.created_ms,
        expires_ms: token.expires_ms,
        created: LogIndex(token.created),
        modified: LogIndex::ZERO,
    }
}

fn write_grants(grants: &AclGrants) -> pb::AclGrants {
    let service =
        |it: &ServiceIdentity| pb::AclServiceIdentity { name: it.name.clone(), datacenters: it.datacenters.clone() };
    let node = |it: &NodeIdentity| pb::AclNodeIdentity { name: it.name.clone(), datacenter: it.datacenter.clone() };
    let template = |it: &TemplatedPolicy| pb::AclTemplatedPolicy {
        template: it.template.clone(),
        name: it.name.clone(),
        datacenters: it.datacenters.clone(),
    };
    pb::AclGrants {
        policies: grants.policies.clone(),
        services: grants.services.iter().map(service).collect(),
        nodes: grants.nodes.iter().map(node).collect(),
        templates: grants.templates.iter().map(template).collect(),
    }
}

fn read_grants(grants: pb::AclGrants) -> AclGrants {
    let service = |it: pb::AclServiceIdentity| ServiceIdentity { name: it.name, datacenters: it.datacenters };
    let node = |it: pb::AclNodeIdentity| NodeIdentity { name: it.name, datacenter: it.datacenter };
    let template = |it: pb::AclTemplatedPolicy| TemplatedPolicy {
        template: it.template,
        name: it.name,
        datacenters: it.datacenters,
    };
    AclGrants {
        policies: grants.policies,
        services: grants.services.into_iter().map(service).collect(),
        nodes: grants.nodes.into_iter().map(node).collect(),
        templates: grants.templates.into_iter().map(template).collect(),
    }
}

#[cfg(test)]
mod tests {
    use headwater_types::{Applied, Command, Outcome, Proposal, Refusal, Revision};

    use super::*;
    use crate::codec::{NEWEST, decode_applied, decode_proposal, encode_applied, encode_proposal};

    fn texts(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    fn grants() -> AclGrants {
        AclGrants {
            policies: texts(&["p"]),
            services: vec![ServiceIdentity { name: "s".to_owned(), datacenters: texts(&["d"]) }],
            nodes: vec![NodeIdentity { name: "n".to_owned(), datacenter: "d".to_owned() }],
            templates: vec![TemplatedPolicy {
                template: "t".to_owned(),
                name: "v".to_owned(),
                datacenters: texts(&["d"]),
            }],
        }
    }

    fn token() -> AclToken {
        AclToken {
            accessor: "a".to_owned(),
            secret: SecretHash("h".into()),
            description: "x".to_owned(),
            grants: grants(),
            roles: texts(&["r"]),
            local: true,
            method: "m".to_owned(),
            created_ms: 5,
            expires_ms: 6,
            created: LogIndex(300),
            modified: LogIndex::ZERO,
        }
    }

    fn rows() -> Vec<(AclRow, &'static [u8])> {
        let text = str::to_owned;
        vec![
            (
                AclRow::Token(Box::new(token())),
                b"\x04\x0a\x38\x0a\x01a\x12\x01h\x1a\x01x\x22\x1e\x0a\x01p\x12\x06\x0a\x01s\x12\x01d\
                  \x1a\x06\x0a\x01n\x12\x01d\x22\x09\x0a\x01t\x12\x01v\x1a\x01d\x2a\x01r\x30\x01\x3a\x01m\x40\x05\x48\x06\x50\xac\x02",
            ),
            (
                AclRow::Policy(Box::new(AclPolicy {
                    id: text("p"),
                    name: text("n"),
                    description: text(""),
                    rules: text("r"),
                    datacenters: texts(&["d"]),
                    created: LogIndex(300),
                    modified: LogIndex::ZERO,
                })),
                b"\x04\x12\x0f\x0a\x01p\x12\x01n\x22\x01r\x2a\x01d\x30\xac\x02",
            ),
            (
                AclRow::Role(Box::new(AclRole {
                    id: text("r"),
                    name: text("n"),
                    description: text("x"),
                    grants: AclGrants { policies: texts(&["p"]), ..AclGrants::default() },
                    created: LogIndex(7),
                    modified: LogIndex::ZERO,
                })),
                b"\x04\x1a\x10\x0a\x01r\x12\x01n\x1a\x01x\x22\x03\x0a\x01p\x28\x07",
            ),
            (
                AclRow::Method(Box::new(AclMethod {
                    name: text("m"),
                    kind: text("jwt"),
                    display_name: text("d"),
                    description: text("x"),
                    max_token_ttl_ms: 9,
                    locality: text("l"),
                    config_json: text("{}"),
                    created: LogIndex(7),
                    modified: LogIndex::ZERO,
                })),
                b"\x04\x22\x19\x0a\x01m\x12\x03jwt\x1a\x01d\x22\x01x\x28\x09\x32\x01l\x3a\x02{}\x40\x07",
            ),
            (
                AclRow::Binding(Box::new(AclBinding {
                    id: text("b"),
                    description: text("x"),
                    method: text("m"),
                    selector: text("s"),
                    bind_type: text("role"),
                    bind_name: text("n"),
                    bind_var: text("v"),
                    created: LogIndex(7),
                    modified: LogIndex::ZERO,
                })),
                b"\x04\x2a\x1a\x0a\x01b\x12\x01x\x1a\x01m\x22\x01s\x2a\x04role\x32\x01n\x3a\x01v\x40\x07",
            ),
        ]
    }

    #[test]
    fn rows_are_pinned() {
        for (row, bytes) in rows() {
            assert_eq!(encode_acl_row(&row), bytes, "{row:?}");
            assert_eq!(decode_acl_row(Bytes::from_static(bytes), LogIndex::ZERO), Ok(row));
        }
        let Ok(AclRow::Policy(found)) = decode_acl_row(Bytes::from_static(rows()[1].1), LogIndex(9)) else { panic!() };
        assert_eq!(found.modified, LogIndex(9));
        assert!(decode_acl_row(Bytes::from_static(b"\x01\x12\x00"), LogIndex(1)).is_err(), "another format");
    }

    #[test]
    fn commands_are_pinned_and_raise_the_version() {
        let policy = rows().swap_remove(1).0;
        // `modified` is the log index of the stored record, so that no command has it.
        let anonymous = AclToken { modified: LogIndex::ZERO, ..AclToken::anonymous() };
        let cases: [(AclCommand, &[u8]); 5] = [
            (
                AclCommand::Bootstrap { token: Box::new(anonymous), reset: LogIndex(7) },
                b"\x0a\x3f\x0a\x3b\x0a\x2400000000-0000-0000-0000-000000000002\x1a\x0fAnonymous Token\x22\x00\x50\x01\x10\x07",
            ),
            (
                AclCommand::Put { row: policy, is_new: true },
                b"\x12\x15\x0a\x11\x12\x0f\x0a\x01p\x12\x01n\x22\x01r\x2a\x01d\x30\xac\x02\x10\x01",
            ),
            (AclCommand::Delete(AclKey::Token("a".to_owned())), b"\x1a\x03\x0a\x01a"),
            (AclCommand::Delete(AclKey::Binding("b".to_owned())), b"\x1a\x03\x2a\x01b"),
            (AclCommand::Expire(vec![("a".to_owned(), LogIndex(7))]), b"\x22\x07\x0a\x05\x0a\x01a\x10\x07"),
        ];
        for (command, bytes) in cases {
            let proposal = Proposal::new(5, Command::Acl(command));
            let encoded = encode_proposal(&proposal).unwrap();
            assert_eq!(encoded[..5], [4, 8, 5, 0x8a, 4], "{proposal:?}");
            assert_eq!(encoded[6..], *bytes, "{proposal:?}");
            assert_eq!(decode_proposal(encoded, NEWEST), Ok(Some(proposal)));
        }
        for key in [AclKey::Policy("p".to_owned()), AclKey::Role("r".to_owned()), AclKey::Method("m".to_owned())] {
            assert_eq!(read_key(write_key(&key)), Ok(key));
        }
    }

    #[test]
    fn outcomes_are_pinned() {
        let round = |outcome| {
            let applied = Applied { index: LogIndex(8), revision: Revision(4), outcome };
            let encoded = encode_applied(&applied);
            assert_eq!(decode_applied(encoded.clone()), Ok(applied));
            encoded
        };
        let done = AclDone { changed: 2, created: LogIndex(7) };
        assert_eq!(round(Outcome::Acl(done))[5..], *b"\x8a\x04\x04\x08\x02\x10\x07");
        for (number, refusal) in (1u8..).zip(AclRefusal::ALL) {
            let encoded = round(Outcome::Refused(Refusal::Acl(refusal)));
            assert_eq!(encoded[5..], [0x82, 1, 3, 0x88, 4, number], "{refusal:?}");
        }
        assert!(read_refusal(0).is_err() && read_refusal(12).is_err());
    }

    #[test]
    fn no_hash_of_a_secret_is_printed() {
        let token = AclToken { secret: SecretHash("canary".into()), ..token() };
        assert!(!format!("{token:?}").contains("canary"));
    }
}
