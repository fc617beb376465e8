//! The grammar of names below the domain, and the names in answers.
//!
//! Owns the grammar (docs/dns.md). Must not know the catalog. Invariant: parsing the name that this
//! module makes of a node or an address gives that node or address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use hickory_proto::rr::Name;

use headwater_types::limits::DNS_DOMAIN_BYTES_MAX;

/// The domain and the datacenter of this server: reads the names below the domain, and makes names
/// for answers.
#[derive(Clone, Debug)]
pub(super) struct Zone {
    domain: Name,
    datacenter: String,
}

/// The subject of a question, read from its name. Names and tags are in lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    /// The domain itself.
    Apex,
    /// The name of the domain's servers.
    Servers,
    /// A name with no records, only names below it (`service.consul`): it exists, so that a
    /// resolver that descends label by label continues.
    Between,
    /// The healthy instances of a service; with `tag`, only those that have it.
    Service {
        /// Name of the service.
        name: String,
        /// A tag that an instance must have; `None` for all instances.
        tag: Option<String>,
    },
    /// The healthy instances that give access to a service in the mesh: sidecars, gateways, native
    /// instances.
    Connect {
        /// Name of the service that the instances give access to.
        name: String,
    },
    /// A node of the catalog.
    Node {
        /// Name of the node.
        name: String,
    },
    /// An address, spelled as hexadecimal digits in the name itself.
    Address(IpAddr),
    /// A name that cannot exist.
    Nothing,
}

/// Labels that give the kind of the subject. The labels before such a label name the subject: in
/// `web.service.consul`, the kind is `service` and the name is `web`.
const KINDS: [&str; 4] = ["service", "connect", "node", "addr"];
/// The label of the servers' name.
const SERVERS: &str = "ns";
/// The label that may follow the datacenter's name.
const DATACENTER: &str = "dc";

impl Zone {
    /// The zone of `domain` (`consul`, with or without a dot at its end) in the datacenter of that
    /// name.
    ///
    /// # Errors
    ///
    /// The reason why the domain is invalid, as a phrase such as "must be at most 100 bytes". The
    /// datacenter is not checked: if it is not a label, answers have no names of nodes and
    /// addresses.
    pub(super) fn new(domain: &str, datacenter: &str) -> Result<Self, String> {
        let relative = domain.strip_suffix('.').unwrap_or(domain);
        if relative.len() > DNS_DOMAIN_BYTES_MAX {
            return Err(format!("must be at most {DNS_DOMAIN_BYTES_MAX} bytes"));
        }
        let labels: Option<Vec<&[u8]>> =
            relative.split('.').map(|part| is_label(part).then_some(part.as_bytes())).collect();
        let domain = labels
            .and_then(|labels| Name::from_labels(labels).ok())
            .ok_or_else(|| "must be a domain name such as consul or svc.example.com".to_owned())?;
        Ok(Self { domain: domain.to_lowercase(), datacenter: datacenter.to_lowercase() })
    }

    /// The domain itself.
    pub(super) fn domain(&self) -> &Name {
        &self.domain
    }

    /// The name of the domain's servers.
    pub(super) fn servers(&self) -> Name {
        self.below([SERVERS]).expect("invariant: the domain is short enough for one more label")
    }

    /// The mailbox of the domain's administrator, as an SOA record spells it.
    pub(super) fn mailbox(&self) -> Name {
        self.below(["hostmaster"]).expect("invariant: the domain is short enough for one more label")
    }

    /// The name of a node. `None` if its name or the datacenter's cannot be spelled in DNS.
    pub(super) fn node(&self, name: &str) -> Option<Name> {
        // Names in the catalog may be any text. A DNS name has only characters that resolvers and
        // `getaddrinfo` accept.
        let labels = name.split('.').chain(["node", &self.datacenter]);
        if !labels.clone().all(is_label) {
            return None;
        }
        self.below(labels)
    }

    /// A name that spells an address. `None` if the datacenter's name cannot be spelled in DNS.
    pub(super) fn address(&self, address: IpAddr) -> Option<Name> {
        let digits = match address {
            IpAddr::V4(address) => format!("{:08x}", u32::from(address)),
            IpAddr::V6(address) => format!("{:032x}", u128::from(address)),
        };
        if !is_label(&self.datacenter) {
            return None;
        }
        self.below([digits.as_str(), "addr", &self.datacenter])
    }

    fn below<'a>(&self, labels: impl IntoIterator<Item = &'a str>) -> Option<Name> {
        let relative = Name::from_labels(labels.into_iter().map(str::as_bytes)).ok()?;
        relative.append_domain(&self.domain).ok()
    }

    /// The subject of `name`; `None` if it is not of this domain.
    pub(super) fn subject(&self, name: &Name) -> Option<Subject> {
        if !self.domain.zone_of(name) {
            return None;
        }
        // Every label counts: `num_labels` leaves out a `*` at the front, which here is a label as
        // any other.
        let count = name.iter().len() - self.domain.iter().len();
        let labels: Option<Vec<String>> =
            name.iter().take(count).map(|label| Some(std::str::from_utf8(label).ok()?.to_ascii_lowercase())).collect();
        // A name that is not text is no name in the catalog.
        Some(labels.map_or(Subject::Nothing, |labels| self.read(&labels)))
    }

    fn read(&self, labels: &[String]) -> Subject {
        let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
        if let Some(at) = labels.iter().rposition(|label| KINDS.contains(label)) {
            let (before, after) = (&labels[..at], &labels[at + 1..]);
            return match (self.is_here(after), before) {
                (false, _) => Subject::Nothing,
                (true, []) => Subject::Between,
                (true, before) => named(labels[at], before),
            };
        }
        // In RFC 2782's form `service` is optional.
        if let Some(at) = labels.iter().rposition(|label| label.starts_with('_')) {
            return if self.is_here(&labels[at + 1..]) { service(&labels[..=at]) } else { Subject::Nothing };
        }
        match labels[..] {
            [] => Subject::Apex,
            [SERVERS] => Subject::Servers,
            [DATACENTER] => Subject::Between,
            _ if self.is_here(&labels) => Subject::Between,
            _ => Subject::Nothing,
        }
    }

    /// Whether `labels` are empty, or are the name of this datacenter with or without `dc` after
    /// it. They stand between the kind and the domain.
    fn is_here(&self, labels: &[&str]) -> bool {
        match labels {
            [] => true,
            [name] | [name, DATACENTER] => *name == self.datacenter,
            _ => false,
        }
    }
}

fn named(kind: &str, before: &[&str]) -> Subject {
    match (kind, before) {
        ("service", labels) => service(labels),
        ("connect", [name]) => Subject::Connect { name: (*name).to_owned() },
        ("node", labels) => Subject::Node { name: labels.join(".") },
        ("addr", [digits]) => address(digits).map_or(Subject::Nothing, Subject::Address),
        _ => Subject::Nothing,
    }
}

/// Reads `NAME`, `TAG.NAME`, or `_NAME._TAG` (RFC 2782). The tag of `TAG.NAME` may contain dots;
/// the label `_tcp` means any tag.
fn service(labels: &[&str]) -> Subject {
    let subject = |name: &str, tag: Option<String>| Subject::Service { name: name.to_owned(), tag };
    match labels {
        [label] if label.starts_with('_') => Subject::Between,
        [name, tag] if name.starts_with('_') && tag.starts_with('_') => {
            let tag = &tag[1..];
            subject(&name[1..], (tag != "tcp").then(|| tag.to_owned()))
        }
        [name] => subject(name, None),
        [tag @ .., name] => subject(name, Some(tag.join("."))),
        [] => Subject::Between,
    }
}

/// The address that 8 or 32 hexadecimal digits spell. `None` for another text.
fn address(digits: &str) -> Option<IpAddr> {
    if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    match digits.len() {
        8 => u32::from_str_radix(digits, 16).ok().map(|bits| IpAddr::V4(Ipv4Addr::from(bits))),
        32 => u128::from_str_radix(digits, 16).ok().map(|bits| IpAddr::V6(Ipv6Addr::from(bits))),
        _ => None,
    }
}

/// Whether the text can be a label of a name in an answer: 1 to 63 ASCII letters, digits, `-` or
/// `_`, with no `-` at an end.
pub(super) fn is_label(text: &str) -> bool {
    let is_legal = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    (1..=63).contains(&text.len()) && text.bytes().all(is_legal) && !text.starts_with('-') && !text.ends_with('-')
}

/// The name of the host `text`, with or without a dot at its end. `None` if the text cannot be the
/// name of a host.
pub(super) fn host_name(text: &str) -> Option<Name> {
    let relative = text.strip_suffix('.').unwrap_or(text);
    relative.split('.').all(is_label).then_some(())?;
    Name::from_labels(relative.split('.').map(str::as_bytes)).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn zone() -> Zone {
        Zone::new("consul", "dc1").unwrap()
    }

    fn service(name: &str, tag: Option<&str>) -> Option<Subject> {
        Some(Subject::Service { name: name.into(), tag: tag.map(Into::into) })
    }

    fn node(name: &str) -> Option<Subject> {
        Some(Subject::Node { name: name.into() })
    }

    #[test]
    fn names() {
        use Subject::{Address, Apex, Between, Connect, Nothing, Servers};
        let cases = [
            ("web.service.consul.", service("web", None)),
            ("WEB.Service.CONSUL.", service("web", None)),
            ("web.service.dc1.consul.", service("web", None)),
            ("web.service.dc1.dc.consul.", service("web", None)),
            ("web.service.DC1.consul.", service("web", None)),
            ("web.service.dc2.consul.", Some(Nothing)),
            ("web.service.dc2.dc.consul.", Some(Nothing)),
            ("web.service.dc1.east.consul.", Some(Nothing)),
            ("primary.web.service.consul.", service("web", Some("primary"))),
            ("v1.2.web.service.consul.", service("web", Some("v1.2"))),
            ("_web._tcp.service.consul.", service("web", None)),
            ("_web._tcp.service.dc1.consul.", service("web", None)),
            ("_web._primary.service.consul.", service("web", Some("primary"))),
            ("_web._udp.service.consul.", service("web", Some("udp"))),
            ("_web._tcp.consul.", service("web", None)),
            ("_web._primary.dc1.consul.", service("web", Some("primary"))),
            ("_web._tcp.dc2.consul.", Some(Nothing)),
            ("_tcp.service.consul.", Some(Between)),
            ("_tcp.consul.", Some(Between)),
            ("n1.node.consul.", node("n1")),
            ("n1.node.dc1.consul.", node("n1")),
            ("n1.example.com.node.consul.", node("n1.example.com")),
            ("service.node.consul.", node("service")),
            ("n1.node.dc2.consul.", Some(Nothing)),
            ("web.connect.consul.", Some(Connect { name: "web".into() })),
            ("a.web.connect.consul.", Some(Nothing)),
            ("0a000001.addr.consul.", Some(Address("10.0.0.1".parse().unwrap()))),
            ("0A000001.addr.dc1.consul.", Some(Address("10.0.0.1".parse().unwrap()))),
            ("20010db8000000000000000000000001.addr.consul.", Some(Address("2001:db8::1".parse().unwrap()))),
            ("0a00001.addr.consul.", Some(Nothing)),
            ("+a000001.addr.consul.", Some(Nothing)),
            ("0a00000g.addr.consul.", Some(Nothing)),
            ("x.0a000001.addr.consul.", Some(Nothing)),
            ("consul.", Some(Apex)),
            ("ns.consul.", Some(Servers)),
            ("service.consul.", Some(Between)),
            ("service.dc1.consul.", Some(Between)),
            ("service.dc2.consul.", Some(Nothing)),
            ("node.consul.", Some(Between)),
            ("addr.consul.", Some(Between)),
            ("dc1.consul.", Some(Between)),
            ("dc.consul.", Some(Between)),
            ("dc1.dc.consul.", Some(Between)),
            ("web.consul.", Some(Nothing)),
            ("web.query.consul.", Some(Nothing)),
            ("*.consul.", Some(Nothing)),
            ("*.*.consul.", Some(Nothing)),
            ("*.ns.consul.", Some(Nothing)),
            ("*.dc1.consul.", Some(Nothing)),
            ("*.service.consul.", service("*", None)),
            ("*.web.service.consul.", service("web", Some("*"))),
            ("*._web._tcp.service.consul.", service("_tcp", Some("*._web"))),
            ("*.connect.consul.", Some(Connect { name: "*".into() })),
            ("*.node.consul.", node("*")),
            ("*.addr.consul.", Some(Nothing)),
            ("*.example.com.", None),
            ("*.", None),
            ("example.com.", None),
            ("notconsul.", None),
            (".", None),
        ];
        for (name, wanted) in cases {
            let labels = name.split('.').filter(|label| !label.is_empty()).map(str::as_bytes);
            assert_eq!(zone().subject(&Name::from_labels(labels).unwrap()), wanted, "{name}");
        }
    }

    #[test]
    fn another_domain() {
        let zone = Zone::new("Svc.Example.COM.", "east").unwrap();
        let subject = |name: &str| zone.subject(&Name::from_ascii(name).unwrap());
        assert_eq!(subject("web.service.svc.example.com."), service("web", None));
        assert_eq!(subject("web.service.consul."), None);
        assert_eq!(subject("example.com."), None);
        assert_eq!(zone.servers().to_ascii(), "ns.svc.example.com.");
    }

    #[test]
    fn domains_that_are_none() {
        let longest = vec!["a".repeat(DNS_DOMAIN_BYTES_MAX / 2); 2].join(".")[1..].to_owned();
        assert_eq!(longest.len(), DNS_DOMAIN_BYTES_MAX);
        Zone::new(&longest, "dc1").unwrap();
        for domain in ["", ".", "a..b", "a b", "-a", "müller", "a.", &format!("{longest}a"), &"a".repeat(64)] {
            let outcome = Zone::new(domain, "dc1");
            assert_eq!(outcome.is_ok(), domain == "a.", "{domain:?}: {outcome:?}");
        }
    }

    #[test]
    fn a_label_that_is_no_text() {
        let name = Name::from_labels([&b"\xff"[..], b"service", b"consul"]).unwrap();
        assert_eq!(zone().subject(&name), Some(Subject::Nothing));
    }

    #[test]
    fn nodes_that_have_no_name_in_dns() {
        for name in ["", "a b", "a..b", "-", &"a".repeat(64), "ü", &vec!["a".repeat(60); 4].join(".")] {
            assert_eq!(zone().node(name), None, "{name:?}");
        }
        assert_eq!(Zone::new("consul", "my dc").unwrap().node("n1"), None);
        assert_eq!(Zone::new("consul", "my dc").unwrap().address(IpAddr::from([10, 0, 0, 1])), None);
    }

    #[test]
    fn hosts() {
        for (text, wanted) in [
            ("db.example.com", Some("db.example.com.")),
            ("db.example.com.", Some("db.example.com.")),
            ("localhost", Some("localhost.")),
            ("", None),
            (".", None),
            ("a b", None),
            ("/run/x.sock", None),
        ] {
            assert_eq!(host_name(text).map(|name| name.to_ascii()).as_deref(), wanted, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(name in "[a-z0-9]([a-z0-9_-]{0,20}[a-z0-9])?(\\.[a-z0-9]{1,9}){0,3}", bits: u128, is_v4: bool) {
            let zone = zone();
            let address = if is_v4 { IpAddr::from(Ipv4Addr::from(bits as u32)) } else { IpAddr::from(Ipv6Addr::from(bits)) };
            let spelled = zone.address(address).unwrap();
            prop_assert_eq!(zone.subject(&spelled), Some(Subject::Address(address)));
            let spelled = zone.node(&name).unwrap();
            prop_assert_eq!(zone.subject(&spelled), Some(Subject::Node { name }));
        }

        #[test]
        fn no_name_is_too_much(labels in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..20), 0..8)) {
            let labels = labels.iter().map(Vec::as_slice).chain([&b"consul"[..]]);
            if let Ok(name) = Name::from_labels(labels) {
                prop_assert!(zone().subject(&name).is_some());
            }
        }
    }
}
