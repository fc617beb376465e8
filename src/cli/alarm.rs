//! `headwater alarm`: list and disarm. Output is etcdctl's.

use std::io::Write;

use clap::Subcommand;

use super::ClientArgs;
use super::connect::Cluster;
use super::error::CliError;
use super::output::{self, WriteOut, json};
use headwater_client::Repeat;
use headwater_proto::pb::etcdserverpb::alarm_request::AlarmAction;
use headwater_proto::pb::etcdserverpb::{AlarmMember, AlarmRequest, AlarmResponse, AlarmType};

/// Alarms: why a cluster refuses writes although it is up
#[derive(Clone, Debug, clap::Args)]
pub(super) struct AlarmArgs {
    #[command(subcommand)]
    command: AlarmCommand,
}

#[derive(Clone, Debug, Subcommand)]
enum AlarmCommand {
    /// List the active alarms
    List,
    /// Disarm all active alarms, and list them
    Disarm,
}

pub(super) async fn run(args: AlarmArgs, cluster: &Cluster, client: &ClientArgs) -> Result<(), CliError> {
    let mut response = ask(cluster, AlarmAction::Get, AlarmMember::default()).await?;
    if let AlarmCommand::Disarm = args.command {
        let mut disarmed = Vec::new();
        for alarm in std::mem::take(&mut response.alarms) {
            let done = ask(cluster, AlarmAction::Deactivate, alarm).await?;
            response.header = done.header;
            disarmed.extend(done.alarms);
        }
        response.alarms = disarmed;
    }
    print(&mut std::io::stdout().lock(), &response, client.write_out)
}

/// Sends one alarm request. A repetition at the next endpoint is harmless: disarming twice is the
/// same as once.
async fn ask(cluster: &Cluster, action: AlarmAction, alarm: AlarmMember) -> Result<AlarmResponse, CliError> {
    let request = AlarmRequest { action: action.into(), member_id: alarm.member_id, alarm: alarm.alarm };
    cluster.call(Repeat::Harmless, async |a| a.maintenance().alarm(a.request(request)).await).await
}

fn name(alarm: &AlarmMember) -> String {
    match AlarmType::try_from(alarm.alarm) {
        Ok(AlarmType::None) => "NONE".to_owned(),
        Ok(AlarmType::Nospace) => "NOSPACE".to_owned(),
        Ok(AlarmType::Corrupt) => "CORRUPT".to_owned(),
        Err(_) => alarm.alarm.to_string(),
    }
}

fn print(out: &mut impl Write, response: &AlarmResponse, format: WriteOut) -> Result<(), CliError> {
    match format {
        WriteOut::Json => output::print_json(out, &json::Alarms::from(response)),
        WriteOut::Simple => {
            let line = |alarm: &AlarmMember| writeln!(out, "memberID:{} alarm:{} ", alarm.member_id, name(alarm));
            Ok(response.alarms.iter().try_for_each(line)?)
        }
        WriteOut::Table => {
            let rows = response.alarms.iter().map(|alarm| vec![format!("{:x}", alarm.member_id), name(alarm)]);
            output::print_table(out, &["MEMBER ID", "ALARM"], rows)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alarms_look_as_etcdctl_prints_them() {
        let alarms = [(17, 1), (2, 2)].map(|(member_id, alarm)| AlarmMember { member_id, alarm }).to_vec();
        for (alarms, format, wanted) in [
            (alarms.clone(), WriteOut::Simple, "memberID:17 alarm:NOSPACE \nmemberID:2 alarm:CORRUPT \n"),
            (alarms, WriteOut::Json, "{\"alarms\":[{\"memberID\":17,\"alarm\":1},{\"memberID\":2,\"alarm\":2}]}\n"),
            (vec![], WriteOut::Simple, ""),
            (vec![], WriteOut::Json, "{}\n"),
        ] {
            let mut out = Vec::new();
            print(&mut out, &AlarmResponse { header: None, alarms }, format).unwrap();
            assert_eq!(String::from_utf8(out).unwrap(), wanted);
        }
    }
}
