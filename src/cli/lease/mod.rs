//! `headwater lease`: grant, revoke, look at, list and keep alive. Flags and output are etcdctl's.

mod keep_alive;

use std::io::Write;

use clap::Subcommand;

use super::connect::Cluster;
use super::error::CliError;
use super::kv::parse_lease;
use super::output::{self, WriteOut, json};
use super::{ClientArgs, parse_ttl};
use headwater_client::Repeat;
use headwater_proto::pb::etcdserverpb::{
    LeaseGrantRequest, LeaseLeasesRequest, LeaseLeasesResponse, LeaseRevokeRequest, LeaseTimeToLiveRequest,
    LeaseTimeToLiveResponse,
};

/// Leases: keys attached to one are removed when it ends
#[derive(Clone, Debug, clap::Args)]
pub(super) struct LeaseArgs {
    #[command(subcommand)]
    command: LeaseCommand,
}

#[derive(Clone, Debug, Subcommand)]
enum LeaseCommand {
    /// Make a lease
    Grant {
        /// Time to live, such as 60 (seconds), 60s or 5m; raised to the least that the server
        /// grants
        #[arg(allow_negative_numbers = true, value_parser = parse_ttl)]
        ttl: i64,
    },
    /// End a lease now, with all keys attached to it
    Revoke {
        /// The lease (hexadecimal)
        #[arg(value_parser = parse_lease)]
        id: i64,
    },
    /// Keep a lease alive until it ends or this command is ended
    KeepAlive {
        /// The lease (hexadecimal)
        #[arg(value_parser = parse_lease)]
        id: i64,
        /// Renew the lease once, then end
        #[arg(long)]
        once: bool,
    },
    /// Show how long a lease has still to live
    Timetolive {
        /// The lease (hexadecimal)
        #[arg(value_parser = parse_lease)]
        id: i64,
        /// Show the keys attached to it
        #[arg(long)]
        keys: bool,
    },
    /// List all leases
    List,
}

pub(super) async fn run(args: LeaseArgs, cluster: &Cluster, client: &ClientArgs) -> Result<(), CliError> {
    let format = client.write_out;
    match args.command {
        LeaseCommand::Grant { ttl } => grant(ttl, cluster, format).await,
        LeaseCommand::Revoke { id } => revoke(id, cluster, format).await,
        LeaseCommand::KeepAlive { id, once } => keep_alive::run(id, once, cluster, format).await,
        LeaseCommand::Timetolive { id, keys } => time_to_live(id, keys, cluster, format).await,
        LeaseCommand::List => list(cluster, format).await,
    }
}

async fn grant(ttl: i64, cluster: &Cluster, format: WriteOut) -> Result<(), CliError> {
    let request = LeaseGrantRequest { ttl, id: 0 };
    let response = cluster.call(Repeat::Harmful, async |a| a.lease().lease_grant(a.request(request)).await).await?;
    let mut out = std::io::stdout().lock();
    match format {
        WriteOut::Json => output::print_json(&mut out, &json::LeaseGrant::from(&response)),
        WriteOut::Simple => Ok(writeln!(out, "lease {:016x} granted with TTL({}s)", response.id, response.ttl)?),
        WriteOut::Table => {
            let row = vec![format!("{:016x}", response.id), response.ttl.to_string()];
            output::print_table(&mut out, &["ID", "TTL"], [row])
        }
    }
}

async fn revoke(id: i64, cluster: &Cluster, format: WriteOut) -> Result<(), CliError> {
    let request = LeaseRevokeRequest { id };
    let response = cluster.call(Repeat::Harmful, async |a| a.lease().lease_revoke(a.request(request)).await).await?;
    let mut out = std::io::stdout().lock();
    match format {
        WriteOut::Json => output::print_json(&mut out, &json::LeaseRevoke::from(&response)),
        WriteOut::Simple | WriteOut::Table => Ok(writeln!(out, "lease {id:016x} revoked")?),
    }
}

async fn time_to_live(id: i64, keys: bool, cluster: &Cluster, format: WriteOut) -> Result<(), CliError> {
    let request = LeaseTimeToLiveRequest { id, keys };
    let response =
        cluster.call(Repeat::Harmless, async |a| a.lease().lease_time_to_live(a.request(request)).await).await?;
    let mut out = std::io::stdout().lock();
    match format {
        WriteOut::Json => output::print_json(&mut out, &json::LeaseTimeToLive::from(&response)),
        WriteOut::Simple => print_standing(&mut out, &response, keys),
        WriteOut::Table => {
            let mut row =
                vec![format!("{:016x}", response.id), response.ttl.to_string(), response.granted_ttl.to_string()];
            let mut header = vec!["ID", "TTL", "GRANTED TTL"];
            if keys {
                header.push("KEYS");
                row.push(words(&response));
            }
            output::print_table(&mut out, &header, [row])
        }
    }
}

fn words(response: &LeaseTimeToLiveResponse) -> String {
    let keys: Vec<_> = response.keys.iter().map(|key| String::from_utf8_lossy(key)).collect();
    keys.join(" ")
}

fn print_standing(out: &mut impl Write, response: &LeaseTimeToLiveResponse, keys: bool) -> Result<(), CliError> {
    let LeaseTimeToLiveResponse { id, ttl, granted_ttl, .. } = response;
    if *granted_ttl == 0 && *ttl == -1 {
        return Ok(writeln!(out, "lease {id:016x} already expired")?);
    }
    write!(out, "lease {id:016x} granted with TTL({granted_ttl}s), remaining({ttl}s)")?;
    if keys {
        write!(out, ", attached keys([{}])", words(response))?;
    }
    Ok(writeln!(out)?)
}

async fn list(cluster: &Cluster, format: WriteOut) -> Result<(), CliError> {
    let response = cluster
        .call(Repeat::Harmless, async |a| a.lease().lease_leases(a.request(LeaseLeasesRequest {})).await)
        .await?;
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    match format {
        WriteOut::Json => output::print_json(&mut out, &json::LeaseList::from(&response))?,
        WriteOut::Simple => print_list(&mut out, &response)?,
        WriteOut::Table => {
            let rows = response.leases.iter().map(|lease| vec![format!("{:016x}", lease.id)]);
            output::print_table(&mut out, &["ID"], rows)?;
        }
    }
    Ok(out.flush()?)
}

fn print_list(out: &mut impl Write, response: &LeaseLeasesResponse) -> Result<(), CliError> {
    writeln!(out, "found {} leases", response.leases.len())?;
    Ok(response.leases.iter().try_for_each(|lease| writeln!(out, "{:016x}", lease.id))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_proto::pb::etcdserverpb::LeaseStatus;

    fn printed(print: impl FnOnce(&mut Vec<u8>) -> Result<(), CliError>) -> String {
        let mut out = Vec::new();
        print(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_standing_looks_as_etcdctl_prints_it() {
        let lease = LeaseTimeToLiveResponse {
            header: None,
            id: 0x326a_963b,
            ttl: 55,
            granted_ttl: 60,
            keys: vec!["a".into(), "b".into()],
        };
        let show = |response: &LeaseTimeToLiveResponse, keys| printed(|out| print_standing(out, response, keys));
        assert_eq!(show(&lease, false), "lease 00000000326a963b granted with TTL(60s), remaining(55s)\n");
        assert_eq!(
            show(&lease, true),
            "lease 00000000326a963b granted with TTL(60s), remaining(55s), attached keys([a b])\n"
        );
        let gone = LeaseTimeToLiveResponse { ttl: -1, granted_ttl: 0, keys: vec![], id: -1, ..lease };
        assert_eq!(show(&gone, true), "lease ffffffffffffffff already expired\n");
    }

    #[test]
    fn a_list_looks_as_etcdctl_prints_it() {
        let response = LeaseLeasesResponse { header: None, leases: vec![LeaseStatus { id: 10 }] };
        assert_eq!(printed(|out| print_list(out, &response)), "found 1 leases\n000000000000000a\n");
    }
}
