//! Attacks by connections on which the enemy stops sending: at once, or in the middle of a
//! request's head, its body, or a TLS handshake. The node must end each of them.

use std::time::{Duration, Instant};

use futures::future::join_all;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::attack::{Outcome, Raid};
use super::ground::{Identity, Port};
use super::peers::worst;

/// Number of silent connections to each of both ports.
const SILENT: usize = 150;
/// Longest time until the node ends a connection without a request. It promises ten seconds, and
/// five for a handshake; but faults pause nodes, and the machine may be busy.
const END_MAX: Duration = Duration::from_secs(45);
/// Longest wait for the reset of a connection after its end was lost on the network.
const PROBE_MAX: Duration = Duration::from_secs(5);
/// The preface of an HTTP/2 client, with an empty SETTINGS frame.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
/// The header of a TLS handshake record, and the first bytes of a `ClientHello` of 512 bytes.
const HALF_HELLO: &[u8] = &[22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3, 1, 2, 3, 4, 5, 6, 7, 8, 9];

/// The end of a connection.
enum End {
    /// It was closed or reset. The bytes are those that the node had sent before.
    Closed(Vec<u8>),
    /// The node did not end it in time.
    Open,
}

/// Waits for the end of a connection, at most [`END_MAX`]; then sends a byte to see whether it is
/// still open.
async fn until_end(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> End {
    let mut rest = Vec::new();
    // Closed, reset, or an alert: each is an end.
    if tokio::time::timeout(END_MAX, stream.read_to_end(&mut rest)).await.is_ok() {
        return End::Closed(rest);
    }
    // The end may have been lost on a broken network: it is not sent again if the node's process
    // has ended meanwhile. Then the next byte is answered by a reset.
    let asked = async {
        stream.write_all(b"x").await?;
        stream.flush().await?;
        stream.read_to_end(&mut rest).await
    };
    if tokio::time::timeout(PROBE_MAX, asked).await.is_ok() { End::Closed(rest) } else { End::Open }
}

/// Opens `count` connections to each port of a node, with a TLS handshake if `tls`. Sends one of
/// the texts `says` on each, in turn, and waits for the ends. One that stays open past [`END_MAX`]
/// means that the attack was let through.
async fn hold(raid: &Raid<'_>, count: usize, tls: bool, says: &[&[u8]]) -> Outcome {
    let begin = Instant::now();
    let connect = |port, says: Vec<u8>| async move {
        match tls {
            true => {
                let identity = if port == Port::Client { Identity::Client } else { Identity::Stranger };
                let mut stream = raid.ground.stream(raid.node, port, identity).await?;
                stream.write_all(&says).await?;
                stream.flush().await?;
                std::io::Result::Ok(until_end(&mut stream).await)
            }
            false => {
                let mut stream = raid.ground.tcp(raid.node, port).await?;
                stream.write_all(&says).await?;
                Ok(until_end(&mut stream).await)
            }
        }
    };
    let mut all = Vec::new();
    for port in [Port::Client, Port::Peer] {
        for number in 0..count {
            all.push(connect(port, says[number % says.len()].to_vec()));
        }
    }
    let (mut ended, mut open, mut failed) = (0usize, 0usize, None);
    for end in join_all(all).await {
        match end {
            Ok(End::Closed(_)) => ended += 1,
            Ok(End::Open) => open += 1,
            Err(error) => failed = Some(error),
        }
    }
    let seconds = begin.elapsed().as_secs_f64();
    match (open, ended, failed) {
        (1.., ..) => Outcome::LetThrough(format!("{open} connections are still open after {END_MAX:?}")),
        (0, 0, failed) => Outcome::Unclear(failed.map_or("nothing was opened".to_owned(), |error| error.to_string())),
        (0, ended, _) => Outcome::Refused(format!("{ended} connections ended within {seconds:.0} s")),
    }
}

pub(super) async fn silent(raid: &mut Raid<'_>) -> Outcome {
    hold(raid, SILENT, false, &[b""]).await
}

pub(super) async fn endless_head(raid: &mut Raid<'_>) -> Outcome {
    let says: [&[u8]; 3] = [b"GET / HTT", b"GET /version HTTP/1.1\r\nHost: x\r\nX-Half: ", PREFACE];
    hold(raid, says.len() * 4, raid.ground.has_tls(), &says).await
}

pub(super) async fn half_handshake(raid: &mut Raid<'_>) -> Outcome {
    hold(raid, SILENT, false, &[HALF_HELLO]).await
}

pub(super) async fn endless_body(raid: &mut Raid<'_>) -> Outcome {
    let raid: &Raid<'_> = raid;
    let faces =
        [("PUT /v1/kv/enemy", "408"), ("POST /v3/kv/put", "504"), ("PUT /api/headwater/v1/resourcetype/enemy", "408")];
    let asked = faces.map(|(line, status)| async move {
        let sent = async {
            let mut stream = raid.ground.stream(raid.node, Port::Client, Identity::Client).await?;
            let head = format!(
                "{line} HTTP/1.1\r\nHost: {}\r\nContent-Length: 100\r\n\r\n{{",
                raid.ground.address(raid.node, Port::Client)
            );
            stream.write_all(head.as_bytes()).await?;
            stream.flush().await?;
            std::io::Result::Ok(until_end(&mut stream).await)
        };
        match sent.await {
            Ok(End::Open) => Outcome::LetThrough(format!("{line} is still open after {END_MAX:?}")),
            Ok(End::Closed(answer)) => {
                let answer = String::from_utf8_lossy(&answer);
                let first = answer.lines().next().unwrap_or_default();
                match answer.starts_with(&format!("HTTP/1.1 {status}")) {
                    true => Outcome::Refused(format!("{line}: {first}")),
                    false => Outcome::Unclear(format!("{line}: {first:?}")),
                }
            }
            Err(error) => Outcome::Unclear(format!("{line}: {error}")),
        }
    });
    worst(join_all(asked).await)
}

pub(super) async fn plain_text(raid: &mut Raid<'_>) -> Outcome {
    let raid: &Raid<'_> = raid;
    let mut outcomes = Vec::new();
    for port in [Port::Client, Port::Peer] {
        for says in [b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n", PREFACE] {
            let sent = async {
                let mut stream = raid.ground.tcp(raid.node, port).await?;
                stream.write_all(says).await?;
                std::io::Result::Ok(until_end(&mut stream).await)
            };
            outcomes.push(match sent.await {
                Ok(End::Open) => Outcome::LetThrough(format!("{port:?} port: open after {END_MAX:?}")),
                // An alert of TLS, or nothing.
                Ok(End::Closed(answer)) if answer.is_empty() || answer[0] == 21 => {
                    Outcome::Refused(format!("{port:?} port: closed"))
                }
                Ok(End::Closed(answer)) => Outcome::LetThrough(format!("{port:?} port answers {answer:?}")),
                Err(error) => Outcome::Unclear(error.to_string()),
            });
        }
    }
    worst(outcomes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::{TcpListener, TcpStream};

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_is_kept_is_told_from_one_that_has_ended() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut kept = TcpStream::connect(address).await.unwrap();
        let (_held, _) = listener.accept().await.unwrap();
        assert!(matches!(until_end(&mut kept).await, End::Open));
        let mut ended = TcpStream::connect(address).await.unwrap();
        let (mut other, _) = listener.accept().await.unwrap();
        other.write_all(b"bye").await.unwrap();
        drop(other);
        assert!(matches!(until_end(&mut ended).await, End::Closed(rest) if rest == b"bye"));
    }
}
