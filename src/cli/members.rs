//! `headwater members`: who belongs to the cluster.

use std::io::Write;

use super::connect::{Cluster, Repeat};
use super::error::CliError;
use super::output::{self, WriteOut, json};
use super::{ClientArgs, Freshness};
use crate::pb::etcdserverpb::MemberListRequest;

pub(super) async fn run(cluster: &Cluster, client: &ClientArgs) -> Result<(), CliError> {
    let request = MemberListRequest { linearizable: client.consistency == Freshness::Linearizable };
    let response = cluster.call(Repeat::Harmless, async |a| a.cluster().member_list(a.request(request)).await).await?;
    let mut out = std::io::stdout().lock();
    let rows = response.members.iter().map(|member| {
        let status = if member.name.is_empty() { "unstarted" } else { "started" };
        vec![
            format!("{:x}", member.id),
            status.to_owned(),
            member.name.clone(),
            member.peer_ur_ls.join(","),
            member.client_ur_ls.join(","),
            member.is_learner.to_string(),
        ]
    });
    match client.write_out {
        WriteOut::Json => output::print_json(&mut out, &json::MemberList::from(&response)),
        WriteOut::Simple => {
            for row in rows {
                writeln!(out, "{}", row.join(", "))?;
            }
            Ok(())
        }
        WriteOut::Table => {
            output::print_table(&mut out, &["ID", "STATUS", "NAME", "PEER ADDRS", "CLIENT ADDRS", "IS LEARNER"], rows)
        }
    }
}
