//! Encoding of changes of the cluster's version, and of the programs of members.

use super::CodecError;
use super::kv::{required, unknown};
use crate::pb::internal as pb;
use headwater_types::{MemberProgram, NodeId, Supported, Term, Version, VersionChange, VersionRefusal};

pub(super) fn write_change(change: VersionChange) -> pb::VersionChange {
    use pb::version_change::Change as Wire;
    let change = match change {
        VersionChange::Raise { to, term } => Wire::Raise(pb::RaiseVersion { to: to.byte().into(), term: term.get() }),
        VersionChange::Downgrade { to } => Wire::Downgrade(to.byte().into()),
        VersionChange::EndDowngrade => Wire::EndDowngrade(pb::Unit {}),
    };
    pb::VersionChange { change: Some(change) }
}

pub(super) fn read_change(change: &pb::VersionChange) -> Result<VersionChange, CodecError> {
    use pb::version_change::Change as Wire;
    Ok(match required(change.change.as_ref(), "VersionChange.change")? {
        Wire::Raise(raise) => {
            VersionChange::Raise { to: read_version(raise.to, "RaiseVersion.to")?, term: Term(raise.term) }
        }
        Wire::Downgrade(to) => VersionChange::Downgrade { to: read_version(*to, "VersionChange.downgrade")? },
        Wire::EndDowngrade(pb::Unit {}) => VersionChange::EndDowngrade,
    })
}

pub(super) fn write_program(member: NodeId, program: &MemberProgram) -> pb::MemberProgram {
    let MemberProgram { program, supported } = program;
    pb::MemberProgram {
        member: member.get(),
        program: program.clone(),
        lowest: supported.lowest.byte().into(),
        highest: supported.highest.byte().into(),
    }
}

pub(super) fn read_program(program: pb::MemberProgram) -> Result<(NodeId, MemberProgram), CodecError> {
    let supported = Supported {
        lowest: read_version(program.lowest, "MemberProgram.lowest")?,
        highest: read_version(program.highest, "MemberProgram.highest")?,
    };
    Ok((NodeId(program.member), MemberProgram { program: program.program, supported }))
}

pub(super) fn read_version(number: u32, field: &'static str) -> Result<Version, CodecError> {
    match u8::try_from(number) {
        Ok(0) | Err(_) => Err(unknown(field, number as i32)),
        Ok(byte) => Ok(Version::from_byte(byte)),
    }
}

pub(super) fn read_refusal(number: i32) -> Result<VersionRefusal, CodecError> {
    let known = VersionRefusal::ALL.into_iter().find(|refusal| *refusal as i32 == number);
    known.ok_or_else(|| unknown("Refusal.version", number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{decode_applied, decode_proposal, encode_applied, encode_proposal};
    use headwater_types::{Applied, Command, LogIndex, Outcome, Proposal, Refusal, Revision};

    fn program() -> MemberProgram {
        let supported = Supported { lowest: Version::V0_3, highest: Version::new(0, 4) };
        MemberProgram { program: "p".to_owned(), supported }
    }

    #[test]
    fn commands_are_pinned_and_need_the_version_that_began_them() {
        let cases: [(Command, &[u8]); 4] = [
            (
                Command::SetVersion(VersionChange::Raise { to: Version::new(0, 4), term: Term(2) }),
                b"\x03\x08\x05\xe2\x03\x06\x0a\x04\x08\x04\x10\x02",
            ),
            (Command::SetVersion(VersionChange::Downgrade { to: Version::V0_3 }), b"\x03\x08\x05\xe2\x03\x02\x10\x03"),
            (Command::SetVersion(VersionChange::EndDowngrade), b"\x03\x08\x05\xe2\x03\x02\x1a\x00"),
            (
                Command::AnnounceProgram(NodeId(7), program()),
                b"\x03\x08\x05\xea\x03\x09\x08\x07\x12\x01p\x18\x03\x20\x04",
            ),
        ];
        for (command, bytes) in cases {
            let proposal = Proposal::new(5, command);
            let encoded = encode_proposal(&proposal).unwrap();
            assert_eq!(encoded, bytes, "{proposal:?}");
            assert_eq!(decode_proposal(encoded, Supported::RELEASE), Ok(Some(proposal)));
        }
    }

    #[test]
    fn outcomes_are_pinned() {
        let version = |refusal| Outcome::Refused(Refusal::Version(refusal));
        let cases: [(Outcome, &[u8]); 4] = [
            (Outcome::VersionSet, b"\xe2\x03\x00"),
            (Outcome::ProgramAnnounced, b"\xea\x03\x00"),
            (Outcome::Refused(Refusal::NeedsVersion { needs: Version::new(0, 4) }), b"\x82\x01\x03\xe0\x03\x04"),
            (version(VersionRefusal::Downgrading), b"\x82\x01\x03\xe8\x03\x01"),
        ];
        for (outcome, bytes) in cases {
            let applied = Applied { index: LogIndex(8), revision: Revision(4), outcome };
            let encoded = encode_applied(&applied);
            assert_eq!(encoded[..5], *b"\x01\x08\x08\x10\x04");
            assert_eq!(encoded[5..], *bytes, "{applied:?}");
            assert_eq!(decode_applied(encoded), Ok(applied));
        }
        for refusal in VersionRefusal::ALL {
            let applied = Applied { index: LogIndex(8), revision: Revision(4), outcome: version(refusal) };
            assert_eq!(decode_applied(encode_applied(&applied)), Ok(applied));
        }
    }

    #[test]
    fn what_is_no_version_is_refused() {
        for number in [0, 256] {
            assert!(read_version(number, "x").is_err());
        }
        assert!(read_refusal(5).is_err());
        assert_eq!(
            read_change(&pb::VersionChange { change: None }),
            Err(CodecError::Missing { field: "VersionChange.change" })
        );
    }
}
