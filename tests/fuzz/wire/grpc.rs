//! gRPC calls with every byte chosen by the attack: headers, framing of messages, their order and
//! end.
//!
//! Owns the connections, one for each address; all calls to an address share it.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use h2::client::SendRequest;
use http::{HeaderMap, HeaderValue, Request};
use parking_lot::Mutex;
use tonic::Code;

use crate::dice::Dice;
use crate::rig::Reach;

/// Longest time of a call. Then it is given up.
const CALL_TIMEOUT: Duration = Duration::from_millis(400);
/// Longest wait for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Most bytes of an answer that are read. After more, the call is given up.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// A gRPC call to be sent.
pub(crate) struct Call {
    pub(crate) path: String,
    pub(crate) headers: Vec<(&'static str, String)>,
    /// The framed messages of the body. Each is sent in DATA frames of its own.
    pub(crate) messages: Vec<Bytes>,
    /// Whether the request's stream is closed after the last message; if not, it stays open until
    /// the answer.
    pub(crate) ends: bool,
    /// Whether the flow-control window is opened again as the answer's body arrives. If not, a long
    /// body stalls.
    pub(crate) reads: bool,
}

/// The result of a call.
#[derive(Debug)]
pub(crate) enum Answer {
    /// A gRPC status, with its message.
    Status(Code, String),
    /// The HTTP status of an answer without a gRPC status.
    Http(u16),
    /// The stream was reset, the connection ended, or no call could be made, for this reason.
    Reset(#[allow(dead_code, reason = "shown by Debug")] String),
    /// The answer did not end in time or within `ANSWER_BYTES_MAX`: the method waits, or is a
    /// stream that stays open.
    Open,
}

/// Connections for calls.
pub(crate) struct Caller {
    reach: Reach,
    connections: Mutex<HashMap<SocketAddr, SendRequest<Bytes>>>,
}

impl Caller {
    pub(crate) fn new(reach: Reach) -> Self {
        Self { reach, connections: Mutex::default() }
    }

    async fn connection(&self, address: SocketAddr) -> anyhow::Result<SendRequest<Bytes>> {
        let known = self.connections.lock().get(&address).cloned();
        if let Some(known) = known
            && let Ok(Ok(ready)) = tokio::time::timeout(CONNECT_TIMEOUT, known.ready()).await
        {
            return Ok(ready);
        }
        let connecting = async {
            let socket = self.reach.open(address).await?;
            let mut builder = h2::client::Builder::new();
            builder.initial_window_size(1 << 20).initial_connection_window_size(1 << 24);
            let (send, connection) = builder.handshake(socket).await?;
            tokio::spawn(connection);
            anyhow::Ok(send.ready().await?)
        };
        let made = tokio::time::timeout(CONNECT_TIMEOUT, connecting).await??;
        self.connections.lock().insert(address, made.clone());
        Ok(made)
    }

    /// Makes a call. Failures are answers, too.
    pub(crate) async fn call(&self, address: SocketAddr, call: Call) -> Answer {
        let connection = match self.connection(address).await {
            Ok(connection) => connection,
            Err(error) => return Answer::Reset(format!("no connection: {error:#}")),
        };
        match tokio::time::timeout(CALL_TIMEOUT, exchange(connection, address, call)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => {
                // Other calls go on at a connection that is still sound.
                if !error.is_reset() {
                    self.connections.lock().remove(&address);
                }
                Answer::Reset(error.to_string())
            }
            Err(_) => Answer::Open,
        }
    }
}

async fn exchange(connection: SendRequest<Bytes>, address: SocketAddr, call: Call) -> Result<Answer, h2::Error> {
    let mut request = Request::post(format!("http://{address}{}", call.path));
    for (name, value) in &call.headers {
        if let Ok(value) = HeaderValue::try_from(value.as_str()) {
            request = request.header(*name, value);
        }
    }
    let Ok(request) = request.body(()) else { return Ok(Answer::Reset("no request can have this path".into())) };
    let mut connection = connection;
    let ends_at_once = call.ends && call.messages.is_empty();
    let (response, mut body) = connection.send_request(request, ends_at_once)?;
    let count = call.messages.len();
    for (index, message) in call.messages.into_iter().enumerate() {
        // The answer may come first; a stream that was ended takes nothing more.
        if body.send_data(message, call.ends && index + 1 == count).is_err() {
            break;
        }
    }
    let response = response.await?;
    let http = response.status().as_u16();
    if let Some(answer) = status(response.headers()) {
        return Ok(answer);
    }
    let mut answer = response.into_body();
    let mut read = 0;
    while let Some(data) = answer.data().await {
        let data = data?;
        read += data.len();
        if read > ANSWER_BYTES_MAX {
            return Ok(Answer::Open);
        }
        if call.reads {
            answer.flow_control().release_capacity(data.len())?;
        }
    }
    let trailers = answer.trailers().await?;
    Ok(trailers.as_ref().and_then(status).unwrap_or(Answer::Http(http)))
}

fn status(headers: &HeaderMap) -> Option<Answer> {
    let code = headers.get("grpc-status")?;
    let message = headers.get("grpc-message").map_or(&[] as &[u8], HeaderValue::as_bytes);
    let message = percent_encoding::percent_decode(message).decode_utf8_lossy().into_owned();
    Some(Answer::Status(Code::from_bytes(code.as_bytes()), message))
}

/// Headers of a call, mostly correct.
pub(crate) fn headers(dice: &mut Dice) -> Vec<(&'static str, String)> {
    let mut headers = vec![("content-type", "application/grpc".to_owned()), ("te", "trailers".to_owned())];
    match dice.below(24) {
        0 => headers[0].1 = (*dice.pick(&["text/plain", "application/grpc+json", "application/json", ""])).to_owned(),
        1 => drop(headers.remove(0)),
        2..=4 => headers.push(("grpc-timeout", (*dice.pick(TIMEOUTS)).to_owned())),
        5 => headers.push(("grpc-encoding", (*dice.pick(&["gzip", "identity", "zstd", "\u{1}"])).to_owned())),
        6 => headers.push(("headwater-min-index", dice.number().to_string())),
        7 => headers.push(("hasleader", (*dice.pick(&["true", "false", "", "\t"])).to_owned())),
        8 => headers.push(("token", "x".repeat(dice.length().min(15_000)))),
        9 => headers.push(("authorization", "Bearer x".to_owned())),
        10 => headers.push(("origin", "http://evil.example".to_owned())),
        _ => {}
    }
    headers
}

const TIMEOUTS: &[&str] =
    &["1n", "0S", "50m", "99999999H", "100000000S", "-1S", "1", "S", "1x", "", "18446744073709551615S"];

/// A message after its gRPC header (flag and length). Now and then the header is wrong, or the
/// result is cut.
pub(crate) fn framed(message: &[u8], dice: &mut Dice) -> Bytes {
    let mut framed = BytesMut::with_capacity(message.len() + 5);
    let lies = dice.once_in(24);
    framed.put_u8(if lies { *dice.pick(&[0, 1, 2, 0xFF]) } else { 0 });
    framed.put_u32(match lies && dice.once_in(2) {
        true => dice.number() as u32,
        false => message.len() as u32,
    });
    framed.put_slice(message);
    if dice.once_in(40) {
        framed.truncate(dice.below(framed.len()));
    }
    framed.freeze()
}
