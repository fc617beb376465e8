//! Attacks by clients with a valid certificate, and by web pages in the browsers of clients.

use std::time::Duration;

use headwater_proto::pb::etcdserverpb as pb;
use headwater_proto::pb::etcdserverpb::lease_client::LeaseClient;
use headwater_proto::pb::etcdserverpb::maintenance_client::MaintenanceClient;
use rand::Rng;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tonic::Code;

use super::LEASES_FROM;
use super::attack::{Outcome, Raid};
use super::ground::{Identity, Port};
use super::peers::worst;

/// The longest time to live of a lease that the server grants, seconds (docs/etcd.md).
const TTL_MAX: i64 = 9_000_000_000;
/// Leases of one attack, count: all leases of an enemy take less than a thousandth of the quota, so
/// that other clients can still write.
const LEASES: i64 = 200;
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// Grants [`LEASES`] leases with the longest legal time to live, then tries one with a longer time,
/// then revokes the leases. The outcome is that of the longer one, which must be refused; a failure
/// of the others only explains an unclear outcome.
pub(super) async fn leases(raid: &mut Raid<'_>) -> Outcome {
    let channel = match raid.ground.grpc(raid.node, Port::Client, Identity::Client).await {
        Ok(channel) => channel,
        Err(why) => return Outcome::Unclear(why),
    };
    let mut client = LeaseClient::new(channel);
    let first = LEASES_FROM + i64::from(raid.rng.random::<u32>()) * LEASES;
    let mut granted = Vec::new();
    let mut failed = None;
    for id in first..first + LEASES {
        match client.lease_grant(pb::LeaseGrantRequest { id, ttl: TTL_MAX }).await {
            Ok(_) => granted.push(id),
            Err(status) => failed = Some(status.to_string()),
        }
    }
    let longer = pb::LeaseGrantRequest { id: first + LEASES, ttl: TTL_MAX + 1 };
    let too_long = match client.lease_grant(longer).await {
        Ok(granted) => Outcome::LetThrough(format!("a lease of {} seconds", granted.into_inner().ttl)),
        Err(status) if status.message().contains("too large lease TTL") => {
            Outcome::Refused(status.message().to_owned())
        }
        Err(status) => Outcome::Unclear(status.to_string()),
    };
    for id in granted {
        // The run revokes the leases that this leaves.
        if let Err(status) = client.lease_revoke(pb::LeaseRevokeRequest { id }).await {
            failed = Some(status.to_string());
        }
    }
    match failed {
        Some(why) if matches!(too_long, Outcome::Unclear(_)) => Outcome::Unclear(why),
        _ => too_long,
    }
}

/// Sends an HTTP/1 request without a body: method and path in `line`, and `headers`. Status 403
/// with `words` in the answer is a refusal, 2xx lets it through, all else is unclear.
async fn forbidden(raid: &Raid<'_>, line: &str, headers: &str, words: &str) -> Outcome {
    let sent = async {
        let mut stream = raid.ground.stream(raid.node, Port::Client, Identity::Client).await?;
        let request = format!("{line} HTTP/1.1\r\n{headers}Content-Length: 0\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        stream.flush().await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        std::io::Result::Ok(String::from_utf8_lossy(&answer).into_owned())
    };
    let answer = match tokio::time::timeout(ANSWER_MAX, sent).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => return Outcome::Unclear(format!("{line}: {error}")),
        Err(_) => return Outcome::Unclear(format!("{line}: no answer in time")),
    };
    let first = answer.lines().next().unwrap_or_default();
    let text = format!("{line}: {first}");
    match first.split(' ').nth(1) {
        Some("403") if answer.contains(words) => Outcome::Refused(text),
        Some(status) if status.starts_with('2') => Outcome::LetThrough(text),
        _ => Outcome::Unclear(text),
    }
}

pub(super) async fn foreign_origin(raid: &mut Raid<'_>) -> Outcome {
    let host = raid.ground.address(raid.node, Port::Client).to_owned();
    let mut outcomes = Vec::new();
    for line in
        ["GET /version", "POST /v3/maintenance/snapshot", "GET /v1/kv/?keys", "GET /metrics", "PUT /v1/kv/enemy"]
    {
        for header in ["Origin: http://evil.example", "Sec-Fetch-Site: cross-site"] {
            let headers = match raid.is_harmless {
                true => format!("Host: {host}\r\n"),
                false => format!("Host: {host}\r\n{header}\r\n"),
            };
            outcomes.push(forbidden(raid, line, &headers, "http.allowed-origins").await);
            if raid.is_harmless {
                return worst(outcomes);
            }
        }
    }
    worst(outcomes)
}

pub(super) async fn foreign_host(raid: &mut Raid<'_>) -> Outcome {
    let mut outcomes = Vec::new();
    for line in ["GET /version", "GET /v1/kv/?keys", "PUT /v1/kv/enemy"] {
        let headers = "Host: evil.example\r\nAccept-Language: en\r\n";
        outcomes.push(forbidden(raid, line, headers, "http.allowed-hosts").await);
    }
    worst(outcomes)
}

pub(super) async fn false_alarm(raid: &mut Raid<'_>) -> Outcome {
    let channel = match raid.ground.grpc(raid.node, Port::Client, Identity::Client).await {
        Ok(channel) => channel,
        Err(why) => return Outcome::Unclear(why),
    };
    let mut client = MaintenanceClient::new(channel);
    let mut outcomes = Vec::new();
    for member_id in [u64::MAX, raid.rng.random_range(1 << 40..1 << 50)] {
        let corrupt = pb::AlarmType::Corrupt.into();
        let request =
            pb::AlarmRequest { action: pb::alarm_request::AlarmAction::Activate.into(), member_id, alarm: corrupt };
        outcomes.push(match client.alarm(request).await {
            Ok(raised) => Outcome::LetThrough(format!("{:?}", raised.into_inner().alarms)),
            Err(status) if status.code() == Code::NotFound => Outcome::Refused(status.message().to_owned()),
            Err(status) => Outcome::Unclear(status.to_string()),
        });
    }
    worst(outcomes)
}
