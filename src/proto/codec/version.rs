//! Changes of the cluster's version, and the programs of its members.

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
