//! Answers for results of look-ups, by table.

use super::*;

struct Bed {
    zone: Zone,
    answers_max: usize,
}

impl Bed {
    fn new() -> Self {
        Self { zone: Zone::new("consul", "dc1").unwrap(), answers_max: 100 }
    }

    fn ask(&self, wanted: RecordType, found: Found) -> Answer {
        let writer = Writer { zone: &self.zone, ttl_seconds: 7, serial: 42, answers_max: self.answers_max };
        writer.answer(&name("q.consul."), wanted, found)
    }

    /// The answer as lines: code, then answers, then additional records behind a plus.
    fn answer(&self, wanted: RecordType, found: Found) -> Vec<String> {
        let answer = self.ask(wanted, found);
        let is_negative = answer.answers.is_empty();
        assert_eq!(answer.authorities.len(), usize::from(is_negative), "the SOA record is for negative answers");
        let lines = |records: &[Record], mark: &'static str| -> Vec<String> {
            records.iter().map(|record| format!("{mark}{} {} {}", record.name, record.ttl, record.data)).collect()
        };
        let head = vec![format!("{:?}", answer.code)];
        [head, lines(&answer.answers, ""), lines(&answer.additionals, "+")].concat()
    }
}

fn name(text: &str) -> Name {
    Name::from_ascii(text).unwrap()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn at_node(node: &str, address: &str, port: u16) -> Instance {
    let address = Address::new(address, std::iter::empty());
    Instance { node: node.into(), address, is_at_node: true, port, weight: 1 }
}

fn at_own_address(node: &str, address: &str, port: u16) -> Instance {
    Instance { is_at_node: false, ..at_node(node, address, port) }
}

#[test]
fn services() {
    let bed = Bed::new();
    let both = Address::At(ip("10.0.0.1"), Some(ip("::1")));
    let cases = [
        // The address of each instance, once.
        (
            RecordType::A,
            vec![at_node("n1", "10.0.0.1", 80), at_node("n2", "10.0.0.2", 80), at_node("n1", "10.0.0.1", 81)],
            vec!["NoError", "q.consul. 7 10.0.0.1", "q.consul. 7 10.0.0.2"],
        ),
        (
            RecordType::AAAA,
            vec![at_node("n1", "::1", 80), at_node("n2", "10.0.0.2", 80)],
            vec!["NoError", "q.consul. 7 ::1"],
        ),
        (
            RecordType::ANY,
            vec![at_node("n1", "::1", 80), at_node("n2", "10.0.0.2", 80)],
            vec!["NoError", "q.consul. 7 ::1", "q.consul. 7 10.0.0.2"],
        ),
        (
            RecordType::A,
            vec![Instance { address: both.clone(), ..at_node("n1", "10.0.0.1", 80) }],
            vec!["NoError", "q.consul. 7 10.0.0.1"],
        ),
        (
            RecordType::AAAA,
            vec![Instance { address: both.clone(), ..at_node("n1", "10.0.0.1", 80) }],
            vec!["NoError", "q.consul. 7 ::1"],
        ),
        // The name is there, but nothing of that type.
        (RecordType::AAAA, vec![at_node("n1", "10.0.0.1", 80)], vec!["NoError"]),
        (RecordType::TXT, vec![at_node("n1", "10.0.0.1", 80)], vec!["NoError"]),
        (RecordType::MX, vec![at_node("n1", "10.0.0.1", 80)], vec!["NoError"]),
        (RecordType::SOA, vec![at_node("n1", "10.0.0.1", 80)], vec!["NoError"]),
        (RecordType::A, vec![at_node("n1", "", 80)], vec!["NoError"]),
        (RecordType::SRV, vec![at_own_address("n1", "no host", 80)], vec!["NoError"]),
        // No instance is healthy.
        (RecordType::A, vec![], vec!["NXDomain"]),
        (RecordType::SRV, vec![], vec!["NXDomain"]),
        // The target is the node, or spells the address, or is the name that was registered.
        (
            RecordType::SRV,
            vec![at_node("n1", "10.0.0.1", 80), at_node("n1", "10.0.0.1", 81)],
            vec![
                "NoError",
                "q.consul. 7 1 1 80 n1.node.dc1.consul.",
                "q.consul. 7 1 1 81 n1.node.dc1.consul.",
                "+n1.node.dc1.consul. 7 10.0.0.1",
            ],
        ),
        (
            RecordType::SRV,
            vec![Instance { address: both.clone(), ..at_node("n1", "10.0.0.1", 80) }],
            vec![
                "NoError",
                "q.consul. 7 1 1 80 n1.node.dc1.consul.",
                "+n1.node.dc1.consul. 7 10.0.0.1",
                "+n1.node.dc1.consul. 7 ::1",
            ],
        ),
        (
            RecordType::SRV,
            vec![at_own_address("n1", "10.0.0.9", 80)],
            vec!["NoError", "q.consul. 7 1 1 80 0a000009.addr.dc1.consul.", "+0a000009.addr.dc1.consul. 7 10.0.0.9"],
        ),
        (
            RecordType::SRV,
            vec![Instance { address: both, ..at_own_address("n1", "10.0.0.1", 80) }],
            vec!["NoError", "q.consul. 7 1 1 80 0a000001.addr.dc1.consul.", "+0a000001.addr.dc1.consul. 7 10.0.0.1"],
        ),
        (
            RecordType::SRV,
            vec![at_own_address("n1", "::9", 80)],
            vec![
                "NoError",
                "q.consul. 7 1 1 80 00000000000000000000000000000009.addr.dc1.consul.",
                "+00000000000000000000000000000009.addr.dc1.consul. 7 ::9",
            ],
        ),
        (
            RecordType::SRV,
            vec![at_own_address("n1", "db.example.com", 80)],
            vec!["NoError", "q.consul. 7 1 1 80 db.example.com."],
        ),
        (
            RecordType::SRV,
            vec![at_node("n1", "db.example.com", 80)],
            vec!["NoError", "q.consul. 7 1 1 80 n1.node.dc1.consul."],
        ),
        // A node with a name that no resolver takes is answered by its address.
        (
            RecordType::SRV,
            vec![at_node("my node", "10.0.0.1", 80)],
            vec!["NoError", "q.consul. 7 1 1 80 0a000001.addr.dc1.consul.", "+0a000001.addr.dc1.consul. 7 10.0.0.1"],
        ),
        // Instances at a name of their own: an alias, unless there are addresses.
        (
            RecordType::A,
            vec![at_own_address("n1", "db.example.com", 80), at_own_address("n2", "db2.example.com", 80)],
            vec!["NoError", "q.consul. 7 db.example.com."],
        ),
        (
            RecordType::CNAME,
            vec![at_own_address("n1", "db.example.com", 80)],
            vec!["NoError", "q.consul. 7 db.example.com."],
        ),
        (RecordType::TXT, vec![at_own_address("n1", "db.example.com", 80)], vec!["NoError"]),
        (
            RecordType::A,
            vec![at_own_address("n1", "db.example.com", 80), at_node("n2", "10.0.0.2", 80)],
            vec!["NoError", "q.consul. 7 10.0.0.2"],
        ),
        (
            RecordType::AAAA,
            vec![at_own_address("n1", "db.example.com", 80), at_node("n2", "10.0.0.2", 80)],
            vec!["NoError"],
        ),
    ];
    for (wanted, instances, lines) in cases {
        assert_eq!(bed.answer(wanted, Found::Instances(instances.clone())), lines, "{wanted} of {instances:?}");
    }
}

#[test]
fn weights_are_answered() {
    let instance = Instance { weight: 9, ..at_node("n1", "10.0.0.1", 80) };
    let lines = Bed::new().answer(RecordType::SRV, Found::Instances(vec![instance]));
    assert_eq!(lines[1], "q.consul. 7 1 9 80 n1.node.dc1.consul.");
}

#[test]
fn no_more_answers_than_wanted() {
    let bed = Bed { answers_max: 3, ..Bed::new() };
    let count = |wanted: RecordType, instances: u8| {
        let instances = (0..instances).map(|at| at_node(&format!("n{at}"), &format!("10.0.0.{at}"), 80)).collect();
        bed.ask(wanted, Found::Instances(instances)).answers.len()
    };
    for wanted in [RecordType::A, RecordType::SRV, RecordType::ANY] {
        assert_eq!([2, 3, 4].map(|instances| count(wanted, instances)), [2, 3, 3], "{wanted}");
    }
}

#[test]
fn nodes() {
    let bed = Bed::new();
    let meta = BTreeMap::from([("rack".into(), "r1".into()), ("rfc1035-00".into(), "plain".into())]);
    let found = |address: &str| Found::Node { address: Address::new(address, std::iter::empty()), meta: meta.clone() };
    let cases = [
        (RecordType::A, "10.0.0.1", vec!["NoError", "q.consul. 7 10.0.0.1"]),
        (RecordType::AAAA, "10.0.0.1", vec!["NoError"]),
        (RecordType::SRV, "10.0.0.1", vec!["NoError"]),
        (RecordType::TXT, "10.0.0.1", vec!["NoError", "q.consul. 7 rack=r1", "q.consul. 7 plain"]),
        (
            RecordType::ANY,
            "10.0.0.1",
            vec!["NoError", "q.consul. 7 10.0.0.1", "q.consul. 7 rack=r1", "q.consul. 7 plain"],
        ),
        (RecordType::A, "host.example.com", vec!["NoError", "q.consul. 7 host.example.com."]),
    ];
    for (wanted, address, lines) in cases {
        assert_eq!(bed.answer(wanted, found(address)), lines, "{wanted} of {address}");
    }
}

#[test]
fn the_domain_and_its_servers() {
    let bed = Bed::new();
    let servers = || vec![ip("10.0.0.1"), ip("::1")];
    let soa = "consul. 0 ns.consul. hostmaster.consul. 42 3600 600 86400 0";
    let ns = "q.consul. 7 ns.consul.";
    let glue = ["+ns.consul. 7 10.0.0.1", "+ns.consul. 7 ::1"];
    assert_eq!(bed.answer(RecordType::SOA, Found::Apex(servers())), ["NoError", soa]);
    assert_eq!(bed.answer(RecordType::NS, Found::Apex(servers())), ["NoError", ns, glue[0], glue[1]]);
    assert_eq!(bed.answer(RecordType::ANY, Found::Apex(servers())), ["NoError", soa, ns, glue[0], glue[1]]);
    assert_eq!(bed.answer(RecordType::A, Found::Apex(servers())), ["NoError"]);
    assert_eq!(bed.answer(RecordType::A, Found::Servers(servers())), ["NoError", "q.consul. 7 10.0.0.1"]);
    assert_eq!(bed.answer(RecordType::AAAA, Found::Servers(servers())), ["NoError", "q.consul. 7 ::1"]);
    assert_eq!(bed.answer(RecordType::A, Found::Servers(vec![])), ["NoError"]);
}

#[test]
fn names_without_records() {
    let bed = Bed::new();
    assert_eq!(bed.answer(RecordType::A, Found::Nothing), ["NXDomain"]);
    assert_eq!(bed.answer(RecordType::ANY, Found::Between), ["NoError"]);
    assert_eq!(bed.answer(RecordType::A, Found::Address(ip("10.0.0.1"))), ["NoError", "q.consul. 7 10.0.0.1"]);
    assert_eq!(bed.answer(RecordType::AAAA, Found::Address(ip("10.0.0.1"))), ["NoError"]);
    assert_eq!(bed.answer(RecordType::AAAA, Found::Address(ip("::1"))), ["NoError", "q.consul. 7 ::1"]);
    let soa = &bed.ask(RecordType::A, Found::Nothing).authorities[0];
    assert_eq!((soa.name.to_ascii(), soa.ttl), ("consul.".to_owned(), 0), "nobody remembers that a name is not there");
}

#[test]
fn texts() {
    let strings = |key: &str, value: &str| -> Vec<String> {
        text(key, value).txt_data.iter().map(|string| String::from_utf8_lossy(string).into_owned()).collect()
    };
    let long = "v".repeat(300);
    let cases: &[(&str, &str, &[&str])] = &[
        ("rack", "r1", &["rack=r1"]),
        ("rack", "", &["rack="]),
        ("a=b", "c=d", &["a`=b=c=d"]),
        ("a`b", "`", &["a``b=`"]),
        (" a b\t", "v", &["` a b`\t=v"]),
        ("  ", "v", &["` ` =v"]),
        ("rfc1035-x", "a=b", &["a=b"]),
        ("RFC1035-x", "", &[""]),
        ("k", &long, &[&format!("k={}", &long[..253]), &long[..47]]),
    ];
    for (key, value, wanted) in cases {
        let lines = strings(key, value);
        assert_eq!(lines, *wanted, "{key:?}");
        assert!(lines.iter().all(|string| string.len() <= TEXT_BYTES_MAX));
    }
}
