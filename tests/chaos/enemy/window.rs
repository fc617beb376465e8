//! Attacks by readers that take no data: requests on HTTP/2 streams with a flow-control window of
//! 0.

use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};
use futures::future::{join_all, poll_fn};
use h2::client::{ResponseFuture, SendRequest};
use headwater_proto::pb::etcdserverpb as pb;
use prost::Message;

use super::attack::{Outcome, Raid};
use super::ground::{Identity, Port};

/// Number of ranges over all keys in one attack.
const RANGES: usize = 40;
/// Number of backups in one attack.
const BACKUPS: usize = 2;
/// Longest time until the node ends a stalled stream. The node promises thirty seconds, but faults
/// pause nodes.
const CUT_MAX: Duration = Duration::from_secs(90);

/// Longest wait for the answer to a ping. After it, the connection counts as gone.
const PING_MAX: Duration = Duration::from_secs(5);

/// The end of a stream whose window lets the node send no data.
enum End {
    /// The request was refused, with this status of gRPC.
    Refused(String),
    /// The stream was reset.
    Cut,
    /// The answer ended without any data.
    Empty,
    /// The connection broke.
    Gone,
    /// The node did not end it within [`CUT_MAX`].
    Open,
}

/// Sends a gRPC request with one message; `method` is `SERVICE/METHOD` of the package
/// `etcdserverpb`.
fn call(requests: &mut SendRequest<Bytes>, method: &str, message: &impl Message) -> Result<ResponseFuture, h2::Error> {
    let request = http::Request::post(format!("http://node/etcdserverpb.{method}"));
    let request = request.header("content-type", "application/grpc").header("te", "trailers").body(());
    let (answer, mut body) = requests.send_request(request.expect("invariant: a legal request"), false)?;
    let mut frame = BytesMut::new();
    frame.put_u8(0);
    frame.put_u32(message.encoded_len() as u32);
    frame.put_slice(&message.encode_to_vec());
    body.send_data(frame.freeze(), true)?;
    Ok(answer)
}

async fn end_of(answer: ResponseFuture) -> End {
    let answer = match answer.await {
        Ok(answer) => answer,
        Err(error) if error.is_reset() => return End::Cut,
        Err(_) => return End::Gone,
    };
    if let Some(status) = answer.headers().get("grpc-status") {
        let message = answer.headers().get("grpc-message").and_then(|text| text.to_str().ok());
        return End::Refused(format!(
            "{} (code {})",
            message.unwrap_or_default().replace("%20", " "),
            status.to_str().unwrap_or("?")
        ));
    }
    let mut body = answer.into_body();
    match body.data().await {
        Some(Err(error)) if error.is_reset() => End::Cut,
        Some(Err(_)) => End::Gone,
        // No byte fits a window of 0.
        Some(Ok(_)) | None => End::Empty,
    }
}

pub(super) async fn zero(raid: &mut Raid<'_>) -> Outcome {
    let begin = Instant::now();
    let opened = async {
        let stream =
            raid.ground.stream(raid.node, Port::Client, Identity::Client).await.map_err(|error| error.to_string())?;
        let mut builder = h2::client::Builder::new();
        let (mut requests, mut connection) =
            builder.initial_window_size(0).handshake::<_, Bytes>(stream).await.map_err(|error| error.to_string())?;
        let ping = connection.ping_pong();
        let connection = tokio::spawn(connection);
        let mut answers = Vec::new();
        for number in 0..RANGES + BACKUPS {
            poll_fn(|cx| requests.poll_ready(cx)).await.map_err(|error| error.to_string())?;
            let all = pb::RangeRequest {
                key: "\0".into(),
                range_end: "\0".into(),
                serializable: true,
                ..pb::RangeRequest::default()
            };
            let answer = match number {
                0..RANGES => call(&mut requests, "KV/Range", &all),
                _ => call(&mut requests, "Maintenance/Snapshot", &pb::SnapshotRequest {}),
            };
            answers.push(answer.map_err(|error| error.to_string())?);
        }
        Ok::<_, String>((requests, connection, ping, answers))
    };
    let (requests, connection, ping, answers) = match opened.await {
        Ok(opened) => opened,
        Err(why) => return Outcome::Unclear(why),
    };
    let ends = answers
        .into_iter()
        .map(|answer| async { tokio::time::timeout(CUT_MAX, end_of(answer)).await.unwrap_or(End::Open) });
    let ends = join_all(ends).await;
    let count = |wanted: fn(&End) -> bool| ends.iter().filter(|end| wanted(end)).count();
    let (cut, open) = (count(|end| matches!(end, End::Cut)), count(|end| matches!(end, End::Open)));
    let refused = ends.iter().filter_map(|end| if let End::Refused(why) = end { Some(why.as_str()) } else { None });
    let refused: Vec<&str> = refused.collect();
    let is_alive = match ping {
        Some(mut ping) if open > 0 => {
            tokio::time::timeout(PING_MAX, ping.ping(h2::Ping::opaque())).await.is_ok_and(|pong| pong.is_ok())
        }
        _ => false,
    };
    drop(requests);
    connection.abort();
    if open > 0 && !is_alive {
        return Outcome::Unclear("the connection is gone".to_owned());
    }
    if open > 0 {
        return Outcome::LetThrough(format!("{open} streams of which nothing is read are open after {CUT_MAX:?}"));
    }
    if cut == 0 {
        let (gone, empty) = (count(|end| matches!(end, End::Gone)), count(|end| matches!(end, End::Empty)));
        return Outcome::Unclear(format!("none was cut: {gone} gone, {empty} empty, {refused:?}"));
    }
    let first = refused.first().map_or(String::new(), |why| format!(": {why}"));
    let seconds = begin.elapsed().as_secs();
    Outcome::Refused(format!("{cut} streams cut within {seconds} s, {} requests refused{first}", refused.len()))
}
