//! DNS over UDP and TCP: correct questions, damaged ones, and packets that are answers.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::BufMut;
use futures::future::BoxFuture;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UdpSocket;

use super::{Attack, Outcome};
use crate::dice::Dice;
use crate::mutate;
use crate::rig::Rig;

/// Longest wait for an answer that may not come.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(150);
/// Longest wait for the answer to a correct question.
const SOUND_TIMEOUT: Duration = Duration::from_secs(10);
const HEAD_BYTES: usize = 12;
/// Most bytes of an answer over UDP to a question without EDNS.
const UDP_BYTES_MAX: usize = 512;

const LABELS: &[&str] = &[
    "web", "service", "node", "consul", "connect", "addr", "ns", "dc1", "dc", "_web", "_tcp", "node1", "7f000001", "*",
    "query", "arpa", "in-addr", "x",
];
/// Types of questions: A, NS, CNAME, SOA, PTR, MX, TXT, AAAA, SRV, OPT, AXFR, ANY, and two that do
/// not exist.
const TYPES: &[u16] = &[1, 2, 5, 6, 12, 15, 16, 28, 33, 41, 252, 255, 0, 65_535];

pub(super) struct Dns {
    rig: Arc<Rig>,
}

pub(super) async fn prepare(rig: Arc<Rig>) -> anyhow::Result<Dns> {
    Ok(Dns { rig })
}

impl Attack for Dns {
    fn input<'a>(&'a self, mut dice: Dice) -> BoxFuture<'a, anyhow::Result<Outcome>> {
        Box::pin(async move {
            let dice = &mut dice;
            let address = self.rig.node(dice.below(3)).dns;
            let is_sound = dice.once_in(16);
            let message = if is_sound { sound(dice) } else { hostile(dice) };
            let timeout = if is_sound { SOUND_TIMEOUT } else { ANSWER_TIMEOUT };
            let is_udp = dice.once_in(2);
            let exchange = async {
                match is_udp {
                    true => by_udp(address, &message).await,
                    false => by_tcp(address, &message, dice).await,
                }
            };
            let answer = match tokio::time::timeout(timeout, exchange).await {
                Ok(answer) => answer.ok().flatten(),
                Err(_) => None,
            };
            Ok(match answer {
                None if is_sound && is_udp => Outcome::finding("nothing", "a sound question over UDP gets no answer"),
                None => Outcome::of("nothing"),
                Some(answer) => judge(&message, &answer, is_udp),
            })
        })
    }
}

async fn by_udp(address: SocketAddr, message: &[u8]) -> anyhow::Result<Option<Vec<u8>>> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    socket.connect(address).await?;
    socket.send(message).await?;
    let mut answer = vec![0; 65_535];
    let length = socket.recv(&mut answer).await?;
    answer.truncate(length);
    Ok(Some(answer))
}

async fn by_tcp(address: SocketAddr, message: &[u8], dice: &mut Dice) -> anyhow::Result<Option<Vec<u8>>> {
    let mut socket = tokio::net::TcpStream::connect(address).await?;
    let length = if dice.once_in(10) { dice.number() as u16 } else { message.len() as u16 };
    let framed = [length.to_be_bytes().as_slice(), message].concat();
    for _ in 0..if dice.once_in(10) { 200 } else { 1 } {
        socket.write_all(&framed).await?;
    }
    let length = socket.read_u16().await?;
    let mut answer = vec![0; usize::from(length)];
    socket.read_exact(&mut answer).await?;
    Ok(Some(answer))
}

/// Judges an answer: it must have a whole header with the flag of an answer, and not be SERVFAIL.
/// Over UDP it must also repeat the id, and be at most [`UDP_BYTES_MAX`] long for a question
/// without EDNS.
fn judge(message: &[u8], answer: &[u8], is_udp: bool) -> Outcome {
    if answer.len() < HEAD_BYTES {
        return Outcome::finding("short", format!("an answer of {} bytes", answer.len()));
    }
    let has_edns = message.len() > HEAD_BYTES && message[10..12] != [0, 0];
    if is_udp && answer.len() > UDP_BYTES_MAX && !has_edns {
        return Outcome::finding("long", format!("{} bytes over UDP to a client that takes 512", answer.len()));
    }
    if is_udp && answer[..2] != message[..2] {
        return Outcome::finding("foreign", "an answer to another question");
    }
    if answer[2] & 0x80 == 0 {
        return Outcome::finding("question", "a question for an answer");
    }
    match answer[3] & 0xF {
        // The server failed.
        2 => Outcome::finding("SERVFAIL", format!("SERVFAIL to {message:02x?}")),
        code => Outcome::of(format!("code {code}")),
    }
}

fn head(dice: &mut Dice, flags: u16, counts: [u16; 4]) -> Vec<u8> {
    let mut message = Vec::new();
    message.put_u16(dice.number() as u16);
    message.put_u16(flags);
    counts.iter().for_each(|count| message.put_u16(*count));
    message
}

fn sound(dice: &mut Dice) -> Vec<u8> {
    let mut message = head(dice, 0x0100, [1, 0, 0, 0]);
    for label in ["web", "service", "consul"] {
        put_label(&mut message, label.as_bytes());
    }
    message.put_u8(0);
    message.put_u16(*dice.pick(&[1, 28, 33]));
    message.put_u16(1);
    message
}

fn hostile(dice: &mut Dice) -> Vec<u8> {
    let flags = if dice.once_in(6) { dice.number() as u16 } else { 0x0100 };
    let lies = dice.once_in(5);
    let mut count = |sound: u16| if lies && dice.once_in(2) { dice.number() as u16 } else { sound };
    let (questions, answers, authorities) = (count(1), count(0), count(0));
    let counts = [questions, answers, authorities, u16::from(dice.once_in(2))];
    let mut message = head(dice, flags, counts);
    for _ in 0..questions.min(40) {
        name(&mut message, dice);
        message.put_u16(*dice.pick(TYPES));
        message.put_u16(*dice.pick(&[1, 3, 255, 0]));
    }
    if counts[3] > 0 {
        // EDNS, with options of any length.
        message.put_u8(0);
        message.put_u16(41);
        message.put_u16(dice.number() as u16);
        message.put_u32(if dice.once_in(3) { dice.number() as u32 } else { 0 });
        let length = if dice.once_in(2) { 0 } else { dice.below(30) };
        message.put_u16(if dice.once_in(8) { dice.number() as u16 } else { length as u16 });
        message.extend(dice.bytes(length));
    }
    if dice.once_in(5) {
        mutate::bytes(&mut message, dice);
    }
    message.truncate(60_000);
    message
}

fn name(message: &mut Vec<u8>, dice: &mut Dice) {
    let labels_max = if dice.once_in(20) { 130 } else { 6 };
    for _ in 0..dice.below(labels_max) {
        match dice.below(12) {
            // A pointer, to itself or ahead.
            0 => {
                return message
                    .put_u16(0xC000 | if dice.once_in(2) { message.len() as u16 } else { dice.number() as u16 });
            }
            1 => {
                let length = dice.below(64);
                let label = dice.bytes(length);
                put_label(message, &label);
            }
            // A length byte above the longest label's.
            2 => message.put_u8(*dice.pick(&[64, 0x7F, 0x80, 0xBF])),
            _ => put_label(message, dice.pick(LABELS).as_bytes()),
        }
    }
    message.put_u8(0);
}

fn put_label(message: &mut Vec<u8>, label: &[u8]) {
    message.put_u8(label.len() as u8);
    message.extend_from_slice(label);
}
