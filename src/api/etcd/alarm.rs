//! Alarms on the wire (spec: etcd §4.2).

use super::errors::{Failure, Invalid};
use super::header;
use headwater_api_shared::etcd_texts::alarm_name;
use headwater_node::{Consistency, Node, RequestContext};
use headwater_proto::pb::etcdserverpb as pb;
use headwater_types::{Alarm, AlarmKind, LogIndex, NodeId, SetAlarm};

/// Lists, raises or clears alarms. The answer has the listed alarms; or the raised alarm, also if
/// it was active before; or the cleared alarm, if it was active.
pub(super) async fn serve(
    node: &Node,
    ctx: &RequestContext,
    request: pb::AlarmRequest,
) -> Result<(LogIndex, pb::AlarmResponse), Failure> {
    let (index, revision, alarms) = match decode(request)? {
        AlarmCall::List(kind) => {
            let read = node.maintenance().alarms(ctx, Consistency::Linearizable).await?;
            let wanted = |alarm: &Alarm| kind.is_none_or(|kind| alarm.kind == kind);
            (read.index, read.revision, read.value.into_iter().filter(wanted).collect())
        }
        AlarmCall::Set(set) => {
            let done = node.maintenance().set_alarm(ctx, set).await?;
            // A raised alarm is in the answer even if it existed before; a cleared one only if it
            // existed.
            let is_included = set.active || done.value;
            (done.index, done.revision, if is_included { vec![set.alarm] } else { vec![] })
        }
        AlarmCall::Nothing => {
            let read = node.maintenance().alarms(ctx, Consistency::Linearizable).await?;
            (read.index, read.revision, vec![])
        }
    };
    let alarms = alarms.iter().map(encode).collect();
    Ok((index, pb::AlarmResponse { header: Some(header::full(node, revision)), alarms }))
}

#[derive(Debug, PartialEq, Eq)]
enum AlarmCall {
    /// List all alarms, or those of one kind. The member that the request names is ignored, as in
    /// etcd.
    List(Option<AlarmKind>),
    Set(SetAlarm),
    /// Deactivation without a kind of alarm: nothing changes.
    Nothing,
}

fn decode(request: pb::AlarmRequest) -> Result<AlarmCall, Invalid> {
    use pb::alarm_request::AlarmAction;
    let kind = match pb::AlarmType::try_from(request.alarm) {
        Ok(pb::AlarmType::None) => None,
        Ok(pb::AlarmType::Nospace) => Some(AlarmKind::NoSpace),
        Ok(pb::AlarmType::Corrupt) => Some(AlarmKind::Corrupt),
        Err(_) => return Err(Invalid::UnknownAlarm),
    };
    let set =
        |kind, active| AlarmCall::Set(SetAlarm { alarm: Alarm { member: NodeId(request.member_id), kind }, active });
    match (AlarmAction::try_from(request.action), kind) {
        (Ok(AlarmAction::Get), kind) => Ok(AlarmCall::List(kind)),
        (Ok(AlarmAction::Activate), Some(kind)) => Ok(set(kind, true)),
        (Ok(AlarmAction::Activate), None) => Err(Invalid::UnknownAlarm),
        (Ok(AlarmAction::Deactivate), Some(kind)) => Ok(set(kind, false)),
        (Ok(AlarmAction::Deactivate), None) => Ok(AlarmCall::Nothing),
        (Err(_), _) => Err(Invalid::UnknownAction),
    }
}

fn encode(alarm: &Alarm) -> pb::AlarmMember {
    let kind = match alarm.kind {
        AlarmKind::NoSpace => pb::AlarmType::Nospace,
        AlarmKind::Corrupt => pb::AlarmType::Corrupt,
    };
    pb::AlarmMember { member_id: alarm.member.get(), alarm: kind.into() }
}

/// The alarm in protobuf's text format, with a trailing space: tools search the errors in the
/// answer of `Status` for this text.
pub(super) fn text(alarm: &Alarm) -> String {
    format!("memberID:{} alarm:{} ", alarm.member, alarm_name(alarm.kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for() {
        let set = |kind, active| Ok(AlarmCall::Set(SetAlarm { alarm: Alarm { member: NodeId(7), kind }, active }));
        for (action, alarm, wanted) in [
            (0, 0, Ok(AlarmCall::List(None))),
            (0, 1, Ok(AlarmCall::List(Some(AlarmKind::NoSpace)))),
            (0, 2, Ok(AlarmCall::List(Some(AlarmKind::Corrupt)))),
            (1, 1, set(AlarmKind::NoSpace, true)),
            (1, 0, Err(Invalid::UnknownAlarm)),
            (2, 2, set(AlarmKind::Corrupt, false)),
            (2, 0, Ok(AlarmCall::Nothing)),
            (0, 3, Err(Invalid::UnknownAlarm)),
            (3, 1, Err(Invalid::UnknownAction)),
        ] {
            assert_eq!(decode(pb::AlarmRequest { action, member_id: 7, alarm }), wanted, "{action} {alarm}");
        }
    }

    #[test]
    fn alarms_look_as_in_etcd() {
        let alarm = Alarm { member: NodeId(1234), kind: AlarmKind::Corrupt };
        assert_eq!(encode(&alarm), pb::AlarmMember { member_id: 1234, alarm: 2 });
        assert_eq!(text(&alarm), "memberID:1234 alarm:CORRUPT ");
    }
}
