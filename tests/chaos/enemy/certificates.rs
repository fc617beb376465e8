//! Attacks by TLS handshakes that must fail.

use std::time::Duration;

use futures::future::BoxFuture;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::attack::{Outcome, Raid};
use super::ground::{Identity, Port};
use super::peers::worst;

/// Longest wait for a server to refuse a certificate. With TLS 1.3 it does so after the client has
/// finished the handshake: the client's first read returns the alert.
const VERDICT_MAX: Duration = Duration::from_secs(8);

/// Makes a TLS handshake at a port with the certificate of `identity`, and waits for the alert.
/// Without one it sends a request, which the port must not answer.
async fn shake(raid: &Raid<'_>, port: Port, identity: Identity) -> Outcome {
    let mut stream = match raid.ground.stream(raid.node, port, identity).await {
        Ok(stream) => stream,
        Err(error) => return judge(port, &error.to_string()),
    };
    let mut byte = [0];
    // Nothing is written before: unread bytes would make the end of the connection a reset, which
    // has no text.
    match tokio::time::timeout(VERDICT_MAX, stream.read(&mut byte)).await {
        Ok(Ok(0)) => return Outcome::Unclear(format!("{port:?} port: closed without a word")),
        Ok(Ok(_)) => return Outcome::LetThrough(format!("{port:?} port answers {identity:?}")),
        Ok(Err(error)) => return judge(port, &error.to_string()),
        Err(_) => {}
    }
    // Neither an alert nor an end: then the node must serve nothing on this connection.
    let asked = async {
        stream.write_all(b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n").await?;
        stream.flush().await?;
        stream.read(&mut byte).await
    };
    match tokio::time::timeout(VERDICT_MAX, asked).await {
        Ok(Ok(1)) => Outcome::LetThrough(format!("{port:?} port serves {identity:?}")),
        Ok(Ok(_)) => Outcome::Unclear(format!("{port:?} port: closed late")),
        Ok(Err(error)) => judge(port, &error.to_string()),
        Err(_) => Outcome::Unclear(format!("{port:?} port: no verdict in time")),
    }
}

fn judge(port: Port, error: &str) -> Outcome {
    let text = format!("{port:?} port: {error}");
    if error.contains("fatal alert") { Outcome::Refused(text) } else { Outcome::Unclear(text) }
}

/// Makes the handshake at both ports; the worse outcome.
fn both<'a>(raid: &'a mut Raid<'_>, identity: fn(Port) -> Identity) -> BoxFuture<'a, Outcome> {
    let raid: &'a Raid<'_> = raid;
    Box::pin(async move {
        let client = shake(raid, Port::Client, identity(Port::Client)).await;
        worst([client, shake(raid, Port::Peer, identity(Port::Peer)).await])
    })
}

pub(super) async fn none(raid: &mut Raid<'_>) -> Outcome {
    both(raid, Identity::Nobody).await
}

pub(super) async fn foreign(raid: &mut Raid<'_>) -> Outcome {
    both(raid, Identity::Foreign).await
}

pub(super) async fn expired(raid: &mut Raid<'_>) -> Outcome {
    both(raid, Identity::Expired).await
}

pub(super) async fn early(raid: &mut Raid<'_>) -> Outcome {
    both(raid, Identity::NotYetValid).await
}

pub(super) async fn client_at_peers(raid: &mut Raid<'_>) -> Outcome {
    shake(raid, Port::Peer, Identity::ClientAtPeers).await
}
