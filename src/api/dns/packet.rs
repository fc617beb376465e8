//! Packets: parses questions, and truncates answers to the size that the client accepts.
//!
//! Owns the codes for packets that are not valid questions. Must not know names. Invariant: for any
//! input, nothing panics and nothing large is allocated; an answer is never answered, so that two
//! servers cannot talk for ever.

use hickory_proto::ProtoError;
use hickory_proto::op::{Edns, Message, MessageType, Metadata, OpCode, Query, ResponseCode, emit_message_parts};
use hickory_proto::rr::{DNSClass, RecordType};
use hickory_proto::serialize::binary::BinEncoder;

use super::DnsTransport;
use super::records::Answer;
use headwater_types::limits::DNS_UDP_BYTES_MAX;

/// Length of a packet's head, bytes.
const HEAD_BYTES: usize = 12;
/// Largest answer over UDP to a client that states no limit, bytes (RFC 1035 §4.2.1).
const UDP_BYTES_DEFAULT: u16 = 512;
/// Most records in the authority section of a question, and in its additional section, count: its
/// EDNS options, perhaps a signature.
const QUESTION_RECORDS_MAX: u16 = 8;
/// The shortest record, bytes: a pointer to its name, type, class, time to live, and length.
const RECORD_BYTES_MIN: usize = 12;
/// The supported version of EDNS.
const EDNS_VERSION: u8 = 0;

/// A question, with the parts of its packet that the answer repeats or obeys.
#[derive(Clone, Debug)]
pub(super) struct Question {
    /// Name, type and class of the question.
    pub(super) query: Query,
    reply: Reply,
}

/// Parts of a received packet that the answer repeats or obeys.
#[derive(Clone, Debug)]
pub(super) struct Reply {
    metadata: Metadata,
    query: Option<Query>,
    edns: Option<Edns>,
    bytes_max: u16,
}

/// Kind of a received packet.
#[derive(Debug)]
pub(super) enum Received {
    /// A question to answer.
    Question(Question),
    /// A packet to refuse with this code: no valid question, or a question that is not supported.
    Wrong(Reply, ResponseCode),
    /// A packet that is ignored.
    Noise,
}

/// Reads a packet. Ignores answers, and packets without a whole head.
pub(super) fn read(packet: &[u8], transport: DnsTransport) -> Received {
    let Some((head, _)) = packet.split_at_checked(HEAD_BYTES) else { return Received::Noise };
    let word = |at: usize| u16::from_be_bytes([head[2 * at], head[2 * at + 1]]);
    let flags = word(1);
    let op_code = OpCode::from_u8(((flags >> 11) & 0xf) as u8);
    let mut metadata = Metadata::new(word(0), MessageType::Response, op_code);
    metadata.recursion_desired = flags & 0x0100 != 0;
    metadata.checking_disabled = flags & 0x0010 != 0;
    if flags & 0x8000 != 0 {
        return Received::Noise;
    }
    let bytes_max = match transport {
        DnsTransport::Udp => UDP_BYTES_DEFAULT,
        DnsTransport::Tcp => u16::MAX,
    };
    let mut reply = Reply { metadata, query: None, edns: None, bytes_max };
    if op_code != OpCode::Query {
        return Received::Wrong(reply, ResponseCode::NotImp);
    }
    // Checked before anything is allocated by these counts.
    let (queries, answers, authorities, additionals) = (word(2), word(3), word(4), word(5));
    if queries != 1 || answers != 0 || authorities > QUESTION_RECORDS_MAX || additionals > QUESTION_RECORDS_MAX {
        return Received::Wrong(reply, ResponseCode::FormErr);
    }
    let Ok(mut message) = Message::from_vec(packet) else { return Received::Wrong(reply, ResponseCode::FormErr) };
    let Some(query) = message.queries.pop() else { return Received::Wrong(reply, ResponseCode::FormErr) };
    reply.query = Some(query.clone());
    if let Some(asked) = &message.edns {
        let mut edns = Edns::new();
        edns.set_version(EDNS_VERSION).set_max_payload(DNS_UDP_BYTES_MAX);
        // Copied from the question (RFC 3225 §3); there are no signatures.
        edns.set_dnssec_ok(asked.flags().dnssec_ok);
        if transport == DnsTransport::Udp {
            reply.bytes_max = asked.max_payload().clamp(UDP_BYTES_DEFAULT, DNS_UDP_BYTES_MAX);
        }
        reply.edns = Some(edns);
        if asked.version() > EDNS_VERSION {
            return Received::Wrong(reply, ResponseCode::BADVERS);
        }
    }
    let is_transfer = matches!(query.query_type(), RecordType::AXFR | RecordType::IXFR);
    if is_transfer || !matches!(query.query_class(), DNSClass::IN | DNSClass::ANY) {
        return Received::Wrong(reply, ResponseCode::Refused);
    }
    Received::Question(Question { query, reply })
}

impl Question {
    /// Upper bound of the records in an answer, count: `small` for a client that accepts only 512
    /// bytes, otherwise as many as may fit.
    pub(super) fn answers_max(&self, small: usize) -> usize {
        if self.reply.bytes_max == UDP_BYTES_DEFAULT { small } else { self.reply.records_max() }
    }

    /// The packet that answers the question, and its code. `SERVFAIL` if `answer` cannot be
    /// encoded.
    pub(super) fn answer(self, answer: &Answer) -> (Vec<u8>, ResponseCode) {
        self.reply.positive(answer)
    }

    /// The parts that a refusal needs.
    pub(super) fn into_reply(self) -> Reply {
        self.reply
    }
}

impl Reply {
    /// The packet that refuses with `code`.
    pub(super) fn refuse(mut self, code: ResponseCode) -> Vec<u8> {
        self.metadata.response_code = code;
        match self.encode(&EMPTY, 0, 0) {
            Ok(Some(packet)) => packet,
            // The question cannot be repeated; the head alone always can.
            Ok(None) | Err(_) => self.head_alone(),
        }
    }

    /// Upper bound of the records that fit, count.
    fn records_max(&self) -> usize {
        usize::from(self.bytes_max) / RECORD_BYTES_MIN
    }

    /// The packet with as many records of `answer` as fit, and its response code. If not all fit,
    /// additional records are left out first, which sets no flag (RFC 2181 §9). The truncation flag
    /// is set only if answers are left out. `SERVFAIL` if `answer` cannot be encoded.
    fn positive(mut self, answer: &Answer) -> (Vec<u8>, ResponseCode) {
        self.metadata.authoritative = true;
        self.metadata.response_code = answer.code;
        match self.fitted(answer) {
            Ok(packet) => (packet, answer.code),
            Err(error) => {
                tracing::warn!(%error, "an answer to a DNS question could not be encoded");
                self.metadata.authoritative = false;
                (self.refuse(ResponseCode::ServFail), ResponseCode::ServFail)
            }
        }
    }

    fn fitted(&mut self, answer: &Answer) -> Result<Vec<u8>, ProtoError> {
        if let Some(packet) = self.encode(answer, answer.answers.len(), answer.additionals.len())? {
            return Ok(packet);
        }
        if let Some(packet) = self.encode(answer, answer.answers.len(), 0)? {
            return self.most(packet, answer.additionals.len(), |reply, count| {
                reply.encode(answer, answer.answers.len(), count)
            });
        }
        self.metadata.truncation = true;
        let none = self.encode(answer, 0, 0)?.ok_or(ProtoError::Message("a question leaves no room for an answer"))?;
        self.most(none, answer.answers.len(), |reply, count| reply.encode(answer, count, 0))
    }

    /// The packet with as many as possible of `count` records. `least` is the packet with none of
    /// them; the packet with all of them must be too long.
    fn most(
        &self,
        least: Vec<u8>,
        count: usize,
        encode: impl Fn(&Self, usize) -> Result<Option<Vec<u8>>, ProtoError>,
    ) -> Result<Vec<u8>, ProtoError> {
        let mut best = least;
        let (mut fits, mut too_many) = (0, count.min(self.records_max() + 1));
        while too_many - fits > 1 {
            let middle = fits + (too_many - fits) / 2;
            match encode(self, middle)? {
                Some(packet) => (best, fits) = (packet, middle),
                None => too_many = middle,
            }
        }
        Ok(best)
    }

    /// The packet with the first `answers` answers and `additionals` additional records; `None` if
    /// it is too long.
    fn encode(&self, answer: &Answer, answers: usize, additionals: usize) -> Result<Option<Vec<u8>>, ProtoError> {
        let mut packet = Vec::new();
        let mut encoder = BinEncoder::new(&mut packet);
        encoder.set_max_size(self.bytes_max);
        let header = emit_message_parts(
            &self.metadata,
            &mut self.query.iter(),
            &mut answer.answers[..answers].iter(),
            &mut answer.authorities.iter(),
            &mut answer.additionals[..additionals].iter(),
            self.edns.as_ref(),
            None,
            &mut encoder,
        );
        match header {
            // The encoder sets the bit if it left a record out.
            Ok(header) if header.metadata.truncation == self.metadata.truncation => {
                let wanted = answers + answer.authorities.len() + additionals + usize::from(self.edns.is_some());
                let counts = header.counts;
                let written =
                    [counts.answers, counts.authorities, counts.additionals].map(usize::from).iter().sum::<usize>();
                Ok((written == wanted).then_some(packet))
            }
            Ok(_) | Err(ProtoError::MaxBufferSizeExceeded(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn head_alone(&self) -> Vec<u8> {
        let mut packet = vec![0; HEAD_BYTES];
        packet[..2].copy_from_slice(&self.metadata.id.to_be_bytes());
        packet[2] = 0x80 | (u8::from(self.metadata.op_code) << 3) | u8::from(self.metadata.recursion_desired);
        packet[3] = self.metadata.response_code.low();
        packet
    }
}

/// An answer without records.
const EMPTY: Answer =
    Answer { code: ResponseCode::NoError, answers: Vec::new(), authorities: Vec::new(), additionals: Vec::new() };

#[cfg(test)]
#[path = "packet_tests.rs"]
mod tests;
