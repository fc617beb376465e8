//! `headwater defrag`: makes endpoints give space back to the file system now.

use std::io::Write;
use std::time::Instant;

use serde::Serialize;
use tonic::Request;

use super::ClientArgs;
use super::connect::Cluster;
use super::error::CliError;
use super::notice;
use super::output::{self, WriteOut};
use super::status::member_endpoints;
use headwater_proto::pb::etcdserverpb::DefragmentRequest;

/// Make each endpoint rewrite its files, so that removed data takes no space any more
///
/// Space is returned in the background anyway, some time after a compaction. The endpoint serves
/// reads and writes meanwhile.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct DefragArgs {
    /// Every member of the cluster, not only the named endpoints
    #[arg(long)]
    cluster: bool,
}

#[derive(Serialize)]
struct Row {
    endpoint: String,
    seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// Defragments one endpoint after the other, so that only one is busy with it at a time. Goes on
/// after a failure, also one to print, and fails at the end if any endpoint failed.
pub(super) async fn run(args: DefragArgs, cluster: &Cluster, client: &ClientArgs) -> Result<(), CliError> {
    let found;
    let cluster = if args.cluster {
        found =
            Cluster::new(&member_endpoints(cluster).await?, client.timeout, &client.dialer()?)?.as_user(cluster.user());
        &found
    } else {
        cluster
    };
    let mut rows = Vec::new();
    let mut printed = Ok(());
    for (number, endpoint) in cluster.names().enumerate() {
        let began = Instant::now();
        let done = match cluster.attempt(number).await {
            // No deadline: a large store takes long. The connection's keep-alive detects a dead
            // member.
            Ok(attempt) => {
                let mut request = Request::new(DefragmentRequest {});
                attempt.authorize(&mut request);
                let done = attempt.maintenance().defragment(request).await;
                done.map_err(|status| status.message().to_owned())
            }
            Err(reason) => Err(reason),
        };
        let row = Row { endpoint: endpoint.to_owned(), seconds: began.elapsed().as_secs_f64(), error: done.err() };
        if client.write_out == WriteOut::Simple {
            match &row.error {
                None => {
                    let line = writeln!(std::io::stdout(), "Finished defragmenting etcd member[{endpoint}]");
                    printed = printed.and(line.map_err(CliError::from));
                }
                Some(error) => notice!("Failed to defragment etcd member[{endpoint}] ({error})"),
            }
        }
        rows.push(row);
    }
    let mut out = std::io::stdout().lock();
    let printed = printed.and(match client.write_out {
        WriteOut::Simple => out.flush().map_err(CliError::from),
        WriteOut::Json => output::print_json(&mut out, &rows),
        WriteOut::Table => {
            let cells = rows.iter().map(|row| {
                vec![row.endpoint.clone(), format!("{:.2}", row.seconds), row.error.clone().unwrap_or_default()]
            });
            output::print_table(&mut out, &["ENDPOINT", "SECONDS", "ERROR"], cells)
        }
    });
    match rows.iter().filter(|row| row.error.is_some()).count() {
        0 => printed,
        failed => Err(CliError::Finding(format!("{failed} of {} endpoints were not defragmented", rows.len()))),
    }
}
