//! Frames of HTTP/2 on both ports: a preface, mostly correct, then frames out of order, floods, and
//! wrong lengths and windows.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{Attack, Outcome};
use crate::dice::Dice;
use crate::mutate;
use crate::rig::Rig;
use crate::wire::frames::{self, frame};
use crate::wire::message;

/// Longest time on one connection.
const CONNECTION_TIMEOUT: Duration = Duration::from_millis(400);
/// Number of frames in a flood.
const FLOOD: usize = 2000;

const PATHS: &[&str] = &[
    "/etcdserverpb.KV/Range",
    "/etcdserverpb.KV/Put",
    "/etcdserverpb.Watch/Watch",
    "/etcdserverpb.Maintenance/Snapshot",
    "/google.watcher.v1.Watcher/Watch",
    "/headwater.peer.Peer/AppendStream",
    "/headwater.peer.Peer/Vote",
    "/grpc.health.v1.Health/Check",
    "/livez",
];

pub(super) struct Http2 {
    rig: Arc<Rig>,
}

pub(super) async fn prepare(rig: Arc<Rig>) -> anyhow::Result<Http2> {
    Ok(Http2 { rig })
}

impl Attack for Http2 {
    fn input<'a>(&'a self, mut dice: Dice) -> BoxFuture<'a, anyhow::Result<Outcome>> {
        Box::pin(async move {
            let bytes = connection(&mut dice);
            let node = self.rig.node(dice.below(3));
            let address = if dice.once_in(2) { node.client } else { node.peer };
            let reads = !dice.once_in(4);
            let exchange = async {
                let mut connection = self.rig.reach.open(address).await?;
                connection.write_all(&bytes).await?;
                let mut answer = Vec::new();
                let mut part = [0; 8192];
                while reads && answer.len() < 1 << 20 {
                    match connection.read(&mut part).await? {
                        0 => break,
                        read => answer.extend_from_slice(&part[..read]),
                    }
                }
                anyhow::Ok(answer)
            };
            Ok(match tokio::time::timeout(CONNECTION_TIMEOUT, exchange).await {
                Ok(Ok(answer)) if answer.is_empty() => Outcome::of("closed"),
                Ok(Ok(answer)) => Outcome::of(verdict(&answer)),
                Ok(Err(_)) => Outcome::of("reset"),
                Err(_) => Outcome::of("open"),
            })
        })
    }
}

/// The kind of the last frame of an answer, in words.
fn verdict(answer: &[u8]) -> &'static str {
    let mut last = "no frame";
    let mut rest = answer;
    while let Some((head, after)) = rest.split_at_checked(9) {
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        last = match head[3] {
            frames::GOAWAY => "GOAWAY",
            frames::RST_STREAM => "RST_STREAM",
            frames::HEADERS | frames::DATA => "answer",
            frames::SETTINGS | frames::PING | frames::WINDOW_UPDATE => "settings",
            _ => "other frame",
        };
        rest = after.get(length..).unwrap_or_default();
    }
    last
}

/// All bytes that are sent on one connection.
fn connection(dice: &mut Dice) -> Vec<u8> {
    let mut bytes = frames::PREFACE.to_vec();
    if dice.once_in(30) {
        mutate::bytes(&mut bytes, dice);
    }
    let mut settings = Vec::new();
    for _ in 0..dice.below(4) {
        // Settings for header table, streams, window, frame size and header lists: each of these
        // values is legal.
        let sound = *dice.pick(&[
            (1, 0),
            (1, 65_536),
            (3, 0),
            (3, 1),
            (4, 0),
            (4, 1),
            (4, 1 << 30),
            (5, 16_384),
            (6, 0),
            (6, 1),
        ]);
        let (id, value) = if dice.once_in(20) { (dice.below(10) as u16, dice.number() as u32) } else { sound };
        settings.extend(frames::setting(id, value));
    }
    if !dice.once_in(20) {
        bytes.extend(frame(frames::SETTINGS, 0, 0, &settings));
    }
    for _ in 0..1 + dice.below(4) {
        act(&mut bytes, dice);
    }
    if dice.once_in(8) {
        let mut damaged = bytes.split_off(frames::PREFACE.len().min(bytes.len()));
        mutate::bytes(&mut damaged, dice);
        bytes.extend(damaged);
    }
    bytes
}

fn act(bytes: &mut Vec<u8>, dice: &mut Dice) {
    let stream = 1 + 2 * dice.below(20) as u32;
    let path = *dice.pick(PATHS);
    let open =
        |stream: u32, flags: u8| frame(frames::HEADERS, flags | frames::END_HEADERS, stream, &frames::request(path));
    match dice.below(15) {
        // A call, whole or in pieces.
        0 | 1 => {
            bytes.extend(open(stream, 0));
            let length = dice.length().min(16_000);
            bytes.extend(frame(frames::DATA, frames::END_STREAM, stream, &dice.bytes(length)));
        }
        // Headers that never end.
        2 => {
            bytes.extend(frame(frames::HEADERS, 0, stream, &frames::request(path)));
            for number in 0..FLOOD {
                let mut block = Vec::new();
                frames::literal(&mut block, "x", &[b'a'; 100]);
                let is_last = number == FLOOD - 1 && dice.once_in(2);
                let flags = if is_last { frames::END_HEADERS } else { 0 };
                bytes.extend(frame(frames::CONTINUATION, flags, stream, &block));
            }
        }
        // Rapid reset.
        3 => {
            for number in 0..FLOOD as u32 {
                bytes.extend(open(1 + 2 * number, frames::END_STREAM));
                bytes.extend(frame(frames::RST_STREAM, 0, 1 + 2 * number, &8u32.to_be_bytes()));
            }
        }
        // More streams than may be open.
        4 => (0..FLOOD as u32).for_each(|number| bytes.extend(open(1 + 2 * number, 0))),
        // Windows that overflow, or stay closed.
        5 => {
            bytes.extend(open(stream, 0));
            for of in [0, stream] {
                bytes.extend(frame(frames::WINDOW_UPDATE, 0, of, &0x7FFF_FFFFu32.to_be_bytes()));
                bytes.extend(frame(frames::WINDOW_UPDATE, 0, of, &(dice.number() as u32).to_be_bytes()));
            }
        }
        6 => bytes.extend(frame(frames::SETTINGS, 0, 0, &frames::setting(4, *dice.pick(&[0, 1, u32::MAX])))),
        7 => (0..FLOOD).for_each(|_| bytes.extend(frame(frames::PING, 0, 0, &[0; 8]))),
        8 => (0..FLOOD).for_each(|_| bytes.extend(frame(frames::SETTINGS, 0, 0, &frames::setting(1, 0)))),
        // Frames on streams that are closed, or were never opened.
        9 => {
            bytes.extend(open(stream, frames::END_STREAM));
            bytes.extend(frame(frames::DATA, 0, stream, b"late"));
            bytes.extend(frame(frames::DATA, 0, stream + 100, b"early"));
        }
        10 => {
            for number in 0..200 {
                let on = (dice.number() as u32 & 0x7FFF_FFFF) | 1;
                let depends = if number == 199 && dice.once_in(2) { on } else { on ^ 2 };
                bytes.extend(frame(frames::PRIORITY, 0, on, &[depends.to_be_bytes().as_slice(), &[16]].concat()));
            }
        }
        // A header block of random bytes, which may refer to missing entries of the header table.
        11 => {
            let length = 1 + dice.below(40);
            let block = dice.bytes(length);
            bytes.extend(frame(frames::HEADERS, frames::END_HEADERS, stream, &block));
        }
        // Empty frames without end.
        12 => {
            bytes.extend(open(stream, 0));
            (0..FLOOD).for_each(|_| bytes.extend(frame(frames::DATA, 0, stream, b"")));
        }
        // Odd headers.
        13 => {
            let mut block = frames::request(path);
            let name =
                *dice.pick(&[":path", ":status", "connection", "te", "Upper", "", "content-length", "host", "cookie"]);
            frames::literal(&mut block, name, message::text(dice).as_bytes());
            block.truncate(16_000);
            bytes.extend(frame(frames::HEADERS, frames::END_HEADERS, stream, &block));
            bytes.extend(frame(frames::PUSH_PROMISE, frames::END_HEADERS, stream, &block));
            bytes.extend(frame(frames::GOAWAY, frames::ACK, 0, &[0; 8]));
        }
        _ => (0..10).for_each(|_| bytes.extend(frames::any(dice))),
    }
}
