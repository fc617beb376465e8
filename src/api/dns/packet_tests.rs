//! Packets that are questions, packets that are none, and answers of all sizes.

use hickory_proto::rr::rdata::{A, TXT};
use hickory_proto::rr::{Name, RData, Record};
use proptest::prelude::*;

use super::*;

fn name(text: &str) -> Name {
    Name::from_ascii(text).unwrap()
}

fn asked(wanted: RecordType) -> Message {
    let mut message = Message::new(7, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(name("Web.Service.consul."), wanted));
    message
}

fn with_edns(mut message: Message, version: u8, payload: u16) -> Message {
    let mut edns = Edns::new();
    edns.set_version(version).set_max_payload(payload).set_dnssec_ok(true);
    message.set_edns(edns);
    message
}

fn question(message: &Message, transport: DnsTransport) -> Question {
    match read(&message.to_vec().unwrap(), transport) {
        Received::Question(question) => question,
        other => panic!("{other:?}"),
    }
}

fn refused(packet: &[u8]) -> Option<(ResponseCode, Message)> {
    match read(packet, DnsTransport::Udp) {
        Received::Wrong(reply, code) => Some((code, Message::from_vec(&reply.refuse(code)).unwrap())),
        Received::Question(question) => panic!("{question:?}"),
        Received::Noise => None,
    }
}

fn addresses(count: usize) -> Answer {
    let owner = name("Web.Service.consul.");
    let record =
        |at: usize| Record::from_rdata(owner.clone(), 0, RData::A(A::from(std::net::Ipv4Addr::from(at as u32))));
    Answer { answers: (0..count).map(record).collect(), ..EMPTY }
}

/// An answer with `answers` and `additionals` TXT records in these sections; each text has `bytes`
/// bytes.
fn texts(answers: usize, additionals: usize, bytes: usize) -> Answer {
    let record = || Record::from_rdata(name("x.consul."), 0, RData::TXT(TXT::new(vec!["t".repeat(bytes)])));
    Answer {
        answers: (0..answers).map(|_| record()).collect(),
        additionals: (0..additionals).map(|_| record()).collect(),
        ..EMPTY
    }
}

#[test]
fn what_is_no_question() {
    let good = asked(RecordType::A).to_vec().unwrap();
    assert!(refused(&[]).is_none(), "nothing at all");
    assert!(refused(&good[..HEAD_BYTES - 1]).is_none(), "not even a head");
    let changed = |at: usize, byte: u8| {
        let mut packet = good.clone();
        packet[at] = byte;
        packet
    };
    assert!(refused(&changed(2, 0x80)).is_none(), "an answer is never answered");

    let wrong = |packet: &[u8]| {
        let (code, answer) = refused(packet).expect("an answer");
        assert_eq!(answer.metadata.response_code, code);
        assert_eq!((answer.metadata.id, answer.metadata.message_type), (7, MessageType::Response));
        code
    };
    assert_eq!(wrong(&good[..good.len() - 1]), ResponseCode::FormErr, "cut short");
    assert_eq!(wrong(&good[..HEAD_BYTES]), ResponseCode::FormErr, "the question is missing");
    assert_eq!(wrong(&changed(5, 0)), ResponseCode::FormErr, "no question");
    assert_eq!(wrong(&changed(5, 2)), ResponseCode::FormErr, "two questions");
    assert_eq!(wrong(&changed(4, 0xff)), ResponseCode::FormErr, "65281 questions");
    assert_eq!(wrong(&changed(7, 1)), ResponseCode::FormErr, "an answer in a question");
    assert_eq!(wrong(&changed(11, 9)), ResponseCode::FormErr, "more records than a question has");
    assert_eq!(wrong(&changed(11, 8)), ResponseCode::FormErr, "records that are not there");
    assert_eq!(wrong(&changed(12, 0xc0)), ResponseCode::FormErr, "a name that points at itself");
    assert_eq!(wrong(&changed(12, 64)), ResponseCode::FormErr, "a label that is too long");
    for (op_code, byte) in [(OpCode::Status, 2 << 3), (OpCode::Notify, 4 << 3), (OpCode::Update, 5 << 3)] {
        assert_eq!(wrong(&changed(2, byte)), ResponseCode::NotImp, "{op_code}");
    }
    assert_eq!(wrong(&changed(good.len() - 1, 3)), ResponseCode::Refused, "the class of MIT");
    for wanted in [RecordType::AXFR, RecordType::IXFR] {
        assert_eq!(wrong(&asked(wanted).to_vec().unwrap()), ResponseCode::Refused, "{wanted}");
    }
}

#[test]
fn versions_of_edns() {
    let newer = with_edns(asked(RecordType::A), 1, 1232).to_vec().unwrap();
    let (code, answer) = refused(&newer).unwrap();
    // Compared by number: 16 is BADVERS in EDNS, and BADSIG in signatures (RFC 6895).
    assert_eq!((code, u16::from(answer.metadata.response_code)), (ResponseCode::BADVERS, 16));
    assert_eq!(answer.edns.map(|edns| edns.version()), Some(0), "the version that is spoken");

    let mut twice = with_edns(asked(RecordType::A), 0, 1232).to_vec().unwrap();
    let options = twice[twice.len() - 11..].to_vec();
    twice.extend(options);
    twice[11] = 2;
    assert_eq!(refused(&twice).unwrap().0, ResponseCode::FormErr);
}

#[test]
fn what_an_answer_repeats() {
    let (packet, code) = question(&with_edns(asked(RecordType::A), 0, 4096), DnsTransport::Udp).answer(&addresses(2));
    let answer = Message::from_vec(&packet).unwrap();
    assert_eq!(code, ResponseCode::NoError);
    assert_eq!(answer.metadata.id, 7);
    assert!(answer.metadata.authoritative && answer.metadata.recursion_desired && !answer.metadata.recursion_available);
    assert!(!answer.metadata.truncation);
    assert!(answer.queries[0].name().eq_case(&name("Web.Service.consul.")), "as it was spelled (draft 0x20)");
    assert!(answer.answers[0].name.eq_case(&name("Web.Service.consul.")));
    let edns = answer.edns.unwrap();
    assert_eq!((edns.max_payload(), edns.flags().dnssec_ok), (DNS_UDP_BYTES_MAX, true));

    let (packet, _) = question(&asked(RecordType::A), DnsTransport::Udp).answer(&addresses(2));
    assert!(Message::from_vec(&packet).unwrap().edns.is_none(), "who does not speak EDNS gets none");
}

#[test]
fn names_are_compressed() {
    let (packet, _) = question(&asked(RecordType::A), DnsTransport::Udp).answer(&addresses(3));
    // Head, question (name, type, class), and for each record a pointer, ten bytes and an address.
    assert_eq!(packet.len(), 12 + 20 + 4 + 3 * (2 + 10 + 4));
}

#[test]
fn how_much_a_reader_takes() {
    // The payload size in EDNS, `None` without EDNS, and the size limit of the answer.
    for (payload, bytes_max) in [
        (None, 512),
        (Some(0), 512),
        (Some(512), 512),
        (Some(513), 513),
        (Some(1231), 1231),
        (Some(1232), 1232),
        (Some(1233), 1232),
        (Some(65_535), 1232),
    ] {
        let message = match payload {
            Some(payload) => with_edns(asked(RecordType::A), 0, payload),
            None => asked(RecordType::A),
        };
        let (packet, _) = question(&message, DnsTransport::Udp).answer(&addresses(1000));
        assert!(packet.len() <= bytes_max && packet.len() + 16 > bytes_max, "{payload:?}: {}", packet.len());
        let answer = Message::from_vec(&packet).unwrap();
        assert!(answer.metadata.truncation, "{payload:?}");
        assert_eq!(answer.edns.is_some(), payload.is_some(), "{payload:?}");
        // The first records, in order.
        let count = answer.answers.len();
        assert_eq!(answer.answers, addresses(count).answers);
    }
    let (packet, _) = question(&asked(RecordType::A), DnsTransport::Tcp).answer(&addresses(1000));
    let answer = Message::from_vec(&packet).unwrap();
    assert_eq!((answer.answers.len(), answer.metadata.truncation), (1000, false));
}

#[test]
fn answers_are_as_many_as_can_fit() {
    for (message, small, wanted) in [
        (asked(RecordType::A), 3, 3),
        (with_edns(asked(RecordType::A), 0, 512), 3, 3),
        (with_edns(asked(RecordType::A), 0, 1200), 3, 100),
    ] {
        assert_eq!(question(&message, DnsTransport::Udp).answers_max(small), wanted);
    }
    assert!(question(&asked(RecordType::A), DnsTransport::Tcp).answers_max(3) > 5000);
}

#[test]
fn additional_records_go_first_and_are_not_missed() {
    let written = |answer: &Answer| {
        let (packet, _) = question(&asked(RecordType::A), DnsTransport::Udp).answer(answer);
        let answer = Message::from_vec(&packet).unwrap();
        assert!(packet.len() <= 512);
        (answer.answers.len(), answer.additionals.len(), answer.metadata.truncation)
    };
    assert_eq!(written(&texts(1, 1, 100)), (1, 1, false));
    assert_eq!(written(&texts(1, 5, 100)), (1, 3, false));
    assert_eq!(written(&texts(4, 5, 100)), (4, 0, false));
    assert_eq!(written(&texts(5, 0, 100)), (4, 0, true));
    assert_eq!(written(&texts(5, 4, 100)), (4, 0, true));
    assert_eq!(written(&texts(0, 5, 100)), (0, 4, false));
}

#[test]
fn the_longest_answer_of_a_connection() {
    let (packet, code) = question(&asked(RecordType::TXT), DnsTransport::Tcp).answer(&texts(1000, 10, 255));
    let answer = Message::from_vec(&packet).unwrap();
    assert_eq!(code, ResponseCode::NoError);
    assert!(answer.metadata.truncation && answer.answers.len() > 230, "{}", answer.answers.len());
    assert!(packet.len() <= usize::from(u16::MAX) && packet.len() > 65_000);
}

/// Checks that a packet is ignored, or answered by a readable packet with its id; a question is
/// repeated in the answer.
fn is_handled(packet: &[u8], transport: DnsTransport) {
    let answer = match read(packet, transport) {
        Received::Noise => return,
        Received::Wrong(reply, code) => reply.refuse(code),
        Received::Question(question) => {
            let asked = question.query.clone();
            let (answer, _) = question.answer(&addresses(100));
            assert_eq!(Message::from_vec(&answer).unwrap().queries, [asked]);
            answer
        }
    };
    assert_eq!(answer[..2], packet[..2], "the id");
    assert!(answer.len() <= usize::from(DNS_UDP_BYTES_MAX) || transport == DnsTransport::Tcp);
    let answer = Message::from_vec(&answer).unwrap();
    assert_eq!(answer.metadata.message_type, MessageType::Response);
}

fn transport() -> impl Strategy<Value = DnsTransport> {
    prop_oneof![Just(DnsTransport::Udp), Just(DnsTransport::Tcp)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_bytes(packet in prop::collection::vec(any::<u8>(), 0..600), transport in transport()) {
        is_handled(&packet, transport);
    }

    /// Random bytes after a head with few questions and records: nearer to a real packet.
    #[test]
    fn a_likely_head(
        counts in prop::array::uniform4(0u8..3),
        rest in prop::collection::vec(prop_oneof![0u8..8, Just(0xc0), any::<u8>()], 0..200),
        transport in transport(),
    ) {
        let mut packet = vec![1, 2, 1, 0];
        packet.extend(counts.iter().flat_map(|count| [0, *count]));
        packet.extend(rest);
        is_handled(&packet, transport);
    }

    #[test]
    fn a_question_with_some_bytes_changed(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
        is_cut: bool,
        transport in transport(),
    ) {
        let mut packet = with_edns(asked(RecordType::SRV), 0, 1232).to_vec().unwrap();
        for (at, byte) in changes {
            let at = at.index(packet.len());
            packet[at] = byte;
        }
        if is_cut {
            packet.truncate(cut.index(packet.len()));
        }
        is_handled(&packet, transport);
    }

    /// Names of any bytes, which answers repeat as they came.
    #[test]
    fn any_name(labels in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..64), 0..6), transport in transport()) {
        if let Ok(owner) = Name::from_labels(labels.iter().map(Vec::as_slice)) {
            let mut message = Message::new(9, MessageType::Query, OpCode::Query);
            message.add_query(Query::query(owner, RecordType::A));
            is_handled(&message.to_vec().unwrap(), transport);
        }
    }
}
