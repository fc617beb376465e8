//! Every gRPC method of the peer port, from its descriptor: as a node that is no member, with an
//! invented member id, and with the id of a real member. Messages have correct checksums, so that
//! their content is read.
//!
//! Entries and snapshots under the vote of the sender itself are not sent: a member that misuses
//! its own leadership is out of scope (docs/security.md).

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use bytes::{BufMut, Bytes};
use futures::future::BoxFuture;
use headwater_proto::pb::etcdserverpb as pb;
use headwater_proto::pb::etcdserverpb::cluster_client::ClusterClient;
use headwater_proto::pb::etcdserverpb::maintenance_client::MaintenanceClient;
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor, MethodDescriptor, ReflectMessage, Value};

use super::{Attack, Outcome};
use crate::dice::Dice;
use crate::oracle::status;
use crate::rig::Rig;
use crate::wire::grpc::{self, Answer, Call, Caller};
use crate::wire::{harm, message};

/// The service of the peer port. Reflection does not list it.
const SERVICE: &str = "headwater.peer.Peer";
const PROPOSAL: &str = "headwater.internal.Proposal";
/// Methods that any process may call.
const OPEN_TO_ALL: &[&str] = &["Hello", "ChangeMembers"];
/// Methods that only members may call, and only those in the called node's membership.
const OF_KNOWN_MEMBERS: &[&str] = &["Propose", "Ask", "ReadIndex", "LeaderEnded", "TransferLeader"];
/// First bytes of encoded commands: the format bytes that exist, often, and others.
const FORMATS: &[u8] = &[1, 1, 1, 2, 3, 3, 3, 0, 4, 0xFF];
/// Largest distance of an invented log index from the cluster's at the beginning of the attack.
const NEAR: u64 = 8;

/// The methods of the peer port, and term and log index of the cluster when the attack began.
pub(super) struct Peers {
    rig: Arc<Rig>,
    caller: Caller,
    pool: DescriptorPool,
    methods: Vec<MethodDescriptor>,
    proposal: MessageDescriptor,
    cluster: u64,
    term: u64,
    index: u64,
}

pub(super) async fn prepare(rig: Arc<Rig>) -> anyhow::Result<Peers> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../proto");
    let files = protox::compile(["internal/peer.proto", "internal/command.proto"], [root])?;
    let pool = DescriptorPool::from_file_descriptor_set(files)?;
    let service = pool.get_service_by_name(SERVICE).context(SERVICE)?;
    let methods: Vec<MethodDescriptor> = service.methods().collect();
    let proposal = pool.get_message_by_name(PROPOSAL).context(PROPOSAL)?;
    eprintln!("peer: {} methods", methods.len());
    let channel = rig.reach.channel(rig.node(0).client)?;
    let list = pb::MemberListRequest { linearizable: true };
    let list = ClusterClient::new(channel.clone()).member_list(list).await?.into_inner();
    let status = MaintenanceClient::new(channel).status(pb::StatusRequest {}).await?.into_inner();
    let caller = Caller::new(rig.reach.clone());
    let cluster = list.header.context("a header")?.cluster_id;
    Ok(Peers { rig, caller, pool, methods, proposal, cluster, term: status.raft_term, index: status.raft_index })
}

/// The member id that a call claims as its sender.
#[derive(Clone, Copy)]
enum Sender {
    Outsider,
    Invented(u64),
    /// An id above all known ones, which could be that of a member that the called node does not
    /// know yet.
    Newer(u64),
    Member(u64),
}

impl Sender {
    fn id(self) -> u64 {
        match self {
            Self::Outsider => 0,
            Self::Invented(id) | Self::Newer(id) | Self::Member(id) => id,
        }
    }
}

impl Attack for Peers {
    fn input<'a>(&'a self, mut dice: Dice) -> BoxFuture<'a, anyhow::Result<Outcome>> {
        Box::pin(async move {
            let dice = &mut dice;
            let method = dice.pick(&self.methods).clone();
            let node = self.rig.node(dice.below(3));
            let from = match dice.below(8) {
                0 => Sender::Outsider,
                1 => Sender::Invented(dice.number() | 1 << 40),
                3 => Sender::Newer(4 + dice.below(1 << 20) as u64),
                2 => Sender::Member(node.id),
                _ => Sender::Member(1 + dice.below(3) as u64),
            };
            let Some(messages) = self.messages(&method, from, dice) else {
                return Ok(Outcome::of("not sent"));
            };
            let call = Call {
                path: format!("/{SERVICE}/{}", method.name()),
                headers: self.headers(from, node.id, dice),
                messages,
                ends: !dice.once_in(6),
                reads: !dice.once_in(32),
            };
            let answer = self.caller.call(node.peer, call).await;
            // Wrong framing counts as damage on the network: DATA_LOSS is the correct status.
            let answer = match answer {
                Answer::Status(tonic::Code::DataLoss, _) => return Ok(Outcome::of("DataLoss")),
                answer => answer,
            };
            let is_served = matches!(answer, Answer::Status(tonic::Code::Ok, _));
            let is_for_strangers = match from {
                Sender::Outsider | Sender::Invented(_) => OPEN_TO_ALL.contains(&method.name()),
                Sender::Newer(_) => !OF_KNOWN_MEMBERS.contains(&method.name()),
                Sender::Member(_) => true,
            };
            if is_served && !is_for_strangers {
                let what = format!("{} serves a sender that is no member", method.name());
                return Ok(Outcome::finding("served", what));
            }
            Ok(status::judge(method.name(), answer))
        })
    }
}

impl Peers {
    fn headers(&self, from: Sender, to: u64, dice: &mut Dice) -> Vec<(&'static str, String)> {
        let mut headers = grpc::headers(dice);
        headers.extend([
            ("headwater-cluster", self.cluster.to_string()),
            ("headwater-from", from.id().to_string()),
            ("headwater-to", to.to_string()),
        ]);
        if dice.once_in(20) {
            let last = headers.len() - 1 - dice.below(3);
            headers[last].1 = message::text(dice);
        }
        headers
    }

    /// The framed messages of a call. `None` if the call must not be sent: one of its messages may
    /// do harm without any defect (`wire::harm`), or is out of scope ([`Self::is_of_leader`]).
    fn messages(&self, method: &MethodDescriptor, from: Sender, dice: &mut Dice) -> Option<Vec<Bytes>> {
        let desc = method.input();
        let count = if method.is_client_streaming() { dice.below(5) } else { 1 };
        let call = dice.number();
        let mut messages = Vec::new();
        for number in 0..count as u32 {
            let mut made = message::message(&self.pool, &desc, dice);
            if dice.once_in(2) {
                self.make_plausible(&mut made, from, dice);
            }
            if desc.name() == "ProposeRequest" {
                let commands = (0..dice.below(4)).map(|_| self.command(dice)).collect::<Option<Vec<_>>>()?;
                made.set_field_by_name("commands", Value::List(commands));
            }
            let encoded = message::encode(&made, dice);
            let decoded = DynamicMessage::decode(desc.clone(), encoded.as_slice());
            if decoded.is_ok_and(|message| harm::harms(&message) || self.is_of_leader(&message, from)) {
                return None;
            }
            let number = if dice.once_in(30) { dice.number() as u32 } else { number };
            messages.push(grpc::framed(&checked(desc.name(), number, call, &encoded), dice));
        }
        Some(messages)
    }

    /// Replaces votes in a message by the sender's own, and terms and log ids by ones close to the
    /// cluster's.
    fn make_plausible(&self, message: &mut DynamicMessage, from: Sender, dice: &mut Dice) {
        let fields: Vec<_> = message.descriptor().fields().collect();
        for field in fields {
            if !message.has_field(&field) || field.is_list() || field.is_map() {
                continue;
            }
            let Value::Message(inner) = message.get_field_mut(&field) else { continue };
            match inner.descriptor().name() {
                "Vote" => {
                    inner.set_field_by_name("term", Value::U64(self.term + dice.below(4) as u64));
                    inner.set_field_by_name("node_id", Value::U64(from.id()));
                }
                "LogId" => {
                    inner.set_field_by_name("term", Value::U64(self.term.saturating_sub(dice.below(2) as u64)));
                    let near = self.index.saturating_sub(NEAR) + dice.below(2 * NEAR as usize) as u64;
                    inner.set_field_by_name("index", Value::U64(near));
                }
                _ => self.make_plausible(inner, from, dice),
            }
        }
    }

    /// Whether a message has entries or a snapshot under a committed vote for its sender, of the
    /// cluster's term or a later one, as if the sender led.
    fn is_of_leader(&self, message: &DynamicMessage, from: Sender) -> bool {
        let offer = message.get_field_by_name("offer");
        let offer = offer.as_ref().and_then(|value| value.as_message());
        let carrier = offer.unwrap_or(message);
        let Some(vote) = carrier.get_field_by_name("vote") else { return false };
        let Some(vote) = vote.as_message() else { return false };
        let number = |name: &str| vote.get_field_by_name(name).and_then(|value| value.as_u64()).unwrap_or_default();
        let is_elected = vote.get_field_by_name("committed").and_then(|value| value.as_bool()).unwrap_or_default();
        let has_entries = carrier
            .get_field_by_name("entries")
            .is_some_and(|list| list.as_list().is_some_and(|list| !list.is_empty()));
        let is_state = message.descriptor().name() == "SnapshotMessage";
        is_elected && number("node_id") == from.id() && number("term") >= self.term && (has_entries || is_state)
    }

    /// An encoded proposal; `None` if it may legally do harm (`wire::harm`).
    fn command(&self, dice: &mut Dice) -> Option<Value> {
        let made = message::message(&self.pool, &self.proposal, dice);
        let encoded = message::encode(&made, dice);
        if harm::is_allowed_to_harm(&self.proposal, &encoded) {
            return None;
        }
        let mut command = vec![*dice.pick(FORMATS)];
        command.extend(encoded);
        Some(Value::Bytes(command.into()))
    }
}

/// Puts the header of `src/proto/pb/checked.rs` before a message of the type `name`, with a correct
/// checksum. `number` is the message's number in the call `call`.
fn checked(name: &str, number: u32, call: u64, message: &[u8]) -> Vec<u8> {
    let mut rest = Vec::with_capacity(12 + message.len());
    rest.put_u32_le(number);
    rest.put_u64_le(call);
    rest.extend_from_slice(message);
    let sum = crc32c::crc32c_append(crc32c::crc32c(name.as_bytes()), &rest);
    [sum.to_le_bytes().as_slice(), &rest].concat()
}
