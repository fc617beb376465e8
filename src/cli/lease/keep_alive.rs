//! `headwater lease keep-alive`: renews a lease every third of its time to live, at any endpoint
//! that answers.

use std::io::Write;
use std::time::Duration;

use crate::connect::Cluster;
use crate::error::{CliError, Tried};
use crate::output::{self, WriteOut, json};
use headwater_client::Attempt;
use headwater_proto::pb::etcdserverpb::LeaseKeepAliveResponse;

/// Pause after a round in which all endpoints failed.
const RETRY_PAUSE: Duration = Duration::from_millis(250);

pub(super) async fn run(id: i64, once: bool, cluster: &Cluster, format: WriteOut) -> Result<(), CliError> {
    let mut was_alive = false;
    loop {
        let endpoints = cluster.endpoints();
        let mut tried = Vec::new();
        for number in endpoints.order() {
            let kept = match cluster.attempt(number).await {
                Ok(attempt) => keep(&attempt, id, once, &mut was_alive, format).await,
                Err(reason) => Ok(Some(reason)),
            };
            match kept? {
                None => return Ok(()),
                Some(reason) => tried.push(Tried { endpoint: endpoints.name(number).to_owned(), reason }),
            }
            endpoints.fail_over(number);
        }
        if once || !was_alive {
            return Err(CliError::Unreachable(tried));
        }
        tokio::time::sleep(RETRY_PAUSE).await;
    }
}

/// Keeps the lease alive at one endpoint. `None` once the lease has ended, or after one renewal
/// with `once`; else the reason to try the next endpoint. With `once`, a lease that has ended is an
/// error.
async fn keep(
    attempt: &Attempt,
    id: i64,
    once: bool,
    was_alive: &mut bool,
    format: WriteOut,
) -> Result<Option<String>, CliError> {
    loop {
        let response = match attempt.keep_alive(id).await {
            Ok(Some(response)) => response,
            Ok(None) => return Ok(Some("the stream ended".to_owned())),
            Err(status) => return Ok(Some(status.message().to_owned())),
        };
        if once && response.ttl <= 0 {
            return Err(CliError::Finding("etcdserver: requested lease not found".to_owned()));
        }
        print(&mut std::io::stdout(), &response, format)?;
        if response.ttl <= 0 || once {
            return Ok(None);
        }
        *was_alive = true;
        let ttl = Duration::from_secs(response.ttl.unsigned_abs());
        tokio::time::sleep(ttl / 3).await;
    }
}

fn print(out: &mut impl Write, response: &LeaseKeepAliveResponse, format: WriteOut) -> Result<(), CliError> {
    let LeaseKeepAliveResponse { id, ttl, .. } = response;
    match format {
        WriteOut::Json => output::print_json(out, &json::LeaseKeepAlive::from(response))?,
        WriteOut::Simple | WriteOut::Table if *ttl <= 0 => writeln!(out, "lease {id:016x} expired or revoked.")?,
        WriteOut::Simple | WriteOut::Table => writeln!(out, "lease {id:016x} keepalived with TTL({ttl})")?,
    }
    Ok(out.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_look_as_etcdctl_prints_them() {
        let printed = |ttl, format| {
            let mut out = Vec::new();
            print(&mut out, &LeaseKeepAliveResponse { header: None, id: 10, ttl }, format).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert_eq!(printed(60, WriteOut::Simple), "lease 000000000000000a keepalived with TTL(60)\n");
        assert_eq!(printed(0, WriteOut::Simple), "lease 000000000000000a expired or revoked.\n");
        assert_eq!(printed(60, WriteOut::Json), "{\"ID\":10,\"TTL\":60}\n");
    }
}
