//! Encoding of changes of invitations, and of their outcome.

use bytes::Bytes;

use super::CodecError;
use super::kv::{fixed, required, unknown};
use crate::pb::internal as pb;
use headwater_types::{InvitationCommand, InvitationDone, InvitationId, InvitationRefusal, NewInvitation, TokenHash};

pub(super) fn write_command(command: &InvitationCommand) -> pb::InvitationCommand {
    use pb::invitation_command::Change as Wire;
    let change = match command {
        InvitationCommand::Create(new) => Wire::Create(pb::NewInvitation {
            name: new.name.clone(),
            hash: write_hash(new.hash),
            expires_unix_ms: new.expires_unix_ms,
            uses_max: new.uses_max,
            learner: new.learner,
        }),
        InvitationCommand::Delete(id) => Wire::Delete(id.0),
        InvitationCommand::Use { hash, incarnation, node } => {
            Wire::Use(pb::UseInvitation { hash: write_hash(*hash), incarnation: *incarnation, node: node.clone() })
        }
    };
    pb::InvitationCommand { change: Some(change) }
}

pub(super) fn read_command(command: pb::InvitationCommand) -> Result<InvitationCommand, CodecError> {
    use pb::invitation_command::Change as Wire;
    Ok(match required(command.change, "InvitationCommand.change")? {
        Wire::Create(new) => InvitationCommand::Create(NewInvitation {
            name: new.name,
            hash: read_hash(&new.hash, "NewInvitation.hash")?,
            expires_unix_ms: new.expires_unix_ms,
            uses_max: new.uses_max,
            learner: new.learner,
        }),
        Wire::Delete(id) => InvitationCommand::Delete(InvitationId(id)),
        Wire::Use(used) => InvitationCommand::Use {
            hash: read_hash(&used.hash, "UseInvitation.hash")?,
            incarnation: used.incarnation,
            node: used.node,
        },
    })
}

pub(super) fn write_done(done: InvitationDone) -> pb::InvitationDone {
    pb::InvitationDone { id: done.id.0, learner: done.learner }
}

pub(super) fn read_done(done: &pb::InvitationDone) -> InvitationDone {
    InvitationDone { id: InvitationId(done.id), learner: done.learner }
}

pub(super) fn read_refusal(number: i32) -> Result<InvitationRefusal, CodecError> {
    let known = InvitationRefusal::ALL.into_iter().find(|refusal| *refusal as i32 == number);
    known.ok_or_else(|| unknown("Refusal.invitation", number))
}

fn write_hash(hash: TokenHash) -> Bytes {
    Bytes::copy_from_slice(&hash.0)
}

fn read_hash(bytes: &[u8], field: &'static str) -> Result<TokenHash, CodecError> {
    fixed(bytes, field).map(TokenHash)
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;
    use crate::codec::{decode_applied, decode_proposal, encode_applied, encode_proposal};
    use headwater_types::{Applied, Command, LogIndex, Outcome, Proposal, Refusal, Revision, Supported};

    const HASH: TokenHash = TokenHash([7; 32]);

    fn new() -> NewInvitation {
        NewInvitation { name: "n".into(), hash: HASH, expires_unix_ms: 300, uses_max: Some(1), learner: true }
    }

    #[test]
    fn commands_are_pinned_and_need_the_version_that_began_them() {
        let hash = [&b"\x12\x20"[..], &[7; 32]].concat();
        let create =
            [b"\x04\x08\x05\xfa\x03\x2e\x0a\x2c\x0a\x01n", &hash[..], b"\x18\xac\x02\x20\x01\x28\x01"].concat();
        let reusable = [b"\x04\x08\x05\xfa\x03\x24\x0a\x22", &hash[..]].concat();
        let used = [b"\x04\x08\x05\xfa\x03\x29\x1a\x27\x0a\x20", &[7; 32][..], b"\x10\x09\x1a\x01m"].concat();
        let cases = [
            (InvitationCommand::Create(new()), create),
            (
                InvitationCommand::Create(NewInvitation {
                    name: String::new(),
                    expires_unix_ms: 0,
                    uses_max: None,
                    learner: false,
                    ..new()
                }),
                reusable,
            ),
            (InvitationCommand::Delete(InvitationId(300)), b"\x04\x08\x05\xfa\x03\x03\x10\xac\x02".to_vec()),
            (InvitationCommand::Use { hash: HASH, incarnation: 9, node: "m".into() }, used),
        ];
        for (command, bytes) in cases {
            let proposal = Proposal::new(5, Command::Invitation(command));
            let encoded = encode_proposal(&proposal).unwrap();
            assert_eq!(encoded, bytes, "{proposal:?}");
            assert_eq!(decode_proposal(encoded, Supported::RELEASE), Ok(Some(proposal)));
        }
    }

    #[test]
    fn outcomes_are_pinned() {
        let refused = |refusal| Outcome::Refused(Refusal::Invitation(refusal));
        let cases: [(Outcome, &[u8]); 3] = [
            (
                Outcome::Invitation(InvitationDone { id: InvitationId(300), learner: true }),
                b"\xfa\x03\x05\x08\xac\x02\x10\x01",
            ),
            (refused(InvitationRefusal::TooMany), b"\x82\x01\x03\xf8\x03\x00"),
            (refused(InvitationRefusal::UsedUp), b"\x82\x01\x03\xf8\x03\x04"),
        ];
        for (outcome, bytes) in cases {
            let applied = Applied { index: LogIndex(8), revision: Revision(4), outcome };
            let encoded = encode_applied(&applied);
            assert_eq!(encoded, [b"\x01\x08\x08\x10\x04", bytes].concat(), "{applied:?}");
            assert_eq!(decode_applied(encoded), Ok(applied));
        }
        for refusal in InvitationRefusal::ALL {
            assert_eq!(read_refusal(refusal as i32), Ok(refusal));
        }
        assert!(read_refusal(99).is_err());
    }

    #[test]
    fn a_hash_of_another_length_is_refused() {
        let wrong = |len| CodecError::WrongLength { field: "UseInvitation.hash", len, wanted: 32 };
        for (length, error) in
            [(0, CodecError::Missing { field: "UseInvitation.hash" }), (31, wrong(31)), (33, wrong(33))]
        {
            let used = pb::UseInvitation { hash: vec![7; length].into(), ..Default::default() };
            let change = Some(pb::invitation_command::Change::Use(used));
            let command = pb::InvitationCommand { change };
            assert!(pb::InvitationCommand::decode(&command.encode_to_vec()[..]).is_ok());
            assert_eq!(read_command(command), Err(error), "{length}");
        }
        assert!(read_command(pb::InvitationCommand { change: None }).is_err());
    }
}
