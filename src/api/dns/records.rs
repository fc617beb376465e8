//! Records: the answer to one question.
//!
//! Owns the choice of records, and the difference between a missing name (NXDOMAIN) and a name
//! without the wanted type (no error and no answer). Must not know packets and look-ups. Invariant:
//! a negative answer carries the domain's SOA record, which makes resolvers not cache it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use hickory_proto::op::ResponseCode;
use hickory_proto::rr::rdata::{CNAME, NS, SOA, SRV, TXT};
use hickory_proto::rr::{Name, RData, Record, RecordType};

use super::zone::{Zone, host_name};

/// The result of a look-up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// The domain itself, with the addresses of its servers.
    Apex(Vec<IpAddr>),
    /// The name of the domain's servers, with their addresses.
    Servers(Vec<IpAddr>),
    /// A name that has no records, but names below it.
    Between,
    /// Healthy instances, in the order of the answer. If there are none, the name does not exist.
    Instances(Vec<Instance>),
    /// A node of the catalog.
    Node {
        /// Address of the node.
        address: Address,
        /// Metadata of the node.
        meta: BTreeMap<String, String>,
    },
    /// An address that the name spells.
    Address(IpAddr),
    /// The name does not exist.
    Nothing,
}

/// A healthy instance of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Instance {
    /// The name of its node.
    pub(super) node: String,
    /// Address of the instance; that of its node if the instance has none.
    pub(super) address: Address,
    /// Whether the instance has no address of its own, so that the target of its SRV record is the
    /// name of its node.
    pub(super) is_at_node: bool,
    /// Port of the instance.
    pub(super) port: u16,
    /// Share of the load, relative to the other instances.
    pub(super) weight: u16,
}

/// The address of a node or an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Address {
    /// An IP address, and one of the other family if there is one.
    At(IpAddr, Option<IpAddr>),
    /// A host name, which resolvers look up by themselves.
    Alias(Name),
    /// Neither an IP address nor a host name.
    Unknown,
}

impl Address {
    /// Reads `address`, an IP address or a host name. An IP address gets a second one: the first of
    /// `tagged`, the addresses in the local network, that is of the other family.
    pub(super) fn new<'a>(address: &str, tagged: impl Iterator<Item = &'a str>) -> Self {
        match address.parse::<IpAddr>() {
            Ok(address) => {
                let mut others = tagged.filter_map(|text| text.parse::<IpAddr>().ok());
                Self::At(address, others.find(|other| other.is_ipv4() != address.is_ipv4()))
            }
            Err(_) => host_name(address).map_or(Self::Unknown, Self::Alias),
        }
    }

    /// The addresses for a question of type `wanted`: IPv4 for A, IPv6 for AAAA, both for ANY, none
    /// for other types.
    fn addresses(&self, wanted: RecordType) -> impl Iterator<Item = IpAddr> {
        let (first, other) = match self {
            Self::At(address, other) => (Some(*address), *other),
            Self::Alias(_) | Self::Unknown => (None, None),
        };
        first.into_iter().chain(other).filter(move |address| match wanted {
            RecordType::A => address.is_ipv4(),
            RecordType::AAAA => address.is_ipv6(),
            RecordType::ANY => true,
            _ => false,
        })
    }
}

/// The code of an answer, and the records of its three sections.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Answer {
    /// Code of the answer: `NoError` or `NXDomain`.
    pub(super) code: ResponseCode,
    /// Records of the answer section; empty in a negative answer.
    pub(super) answers: Vec<Record>,
    /// The SOA record, in a negative answer.
    pub(super) authorities: Vec<Record>,
    /// The addresses of the targets in `answers`, which resolvers need next.
    pub(super) additionals: Vec<Record>,
}

/// Writer of answers, with its settings.
#[derive(Clone, Copy, Debug)]
pub(super) struct Writer<'a> {
    /// The zone of the domain, which makes the names in answers.
    pub(super) zone: &'a Zone,
    /// Time to live of an answer, seconds.
    pub(super) ttl_seconds: u32,
    /// The serial number in the SOA record: the low 32 bits of the log index.
    pub(super) serial: u32,
    /// Most address or SRV records in an answer, count.
    pub(super) answers_max: usize,
}

impl Writer<'_> {
    /// The answer to a question for records of type `wanted` about `name`, from the result of the
    /// look-up.
    pub(super) fn answer(&self, name: &Name, wanted: RecordType, found: Found) -> Answer {
        let mut answer =
            Answer { code: ResponseCode::NoError, answers: vec![], authorities: vec![], additionals: vec![] };
        match found {
            Found::Nothing => answer.code = ResponseCode::NXDomain,
            Found::Between => {}
            Found::Apex(servers) => self.apex(name, wanted, &servers, &mut answer),
            Found::Servers(servers) => {
                let candidates = servers.into_iter().map(|address| Address::At(address, None));
                self.addresses(name, wanted, candidates, &mut answer);
            }
            Found::Address(address) => self.addresses(name, wanted, [Address::At(address, None)], &mut answer),
            Found::Node { address, meta } => {
                self.addresses(name, wanted, [address], &mut answer);
                if matches!(wanted, RecordType::TXT | RecordType::ANY) {
                    let texts = meta.iter().map(|(key, value)| self.record(name, RData::TXT(text(key, value))));
                    answer.answers.extend(texts);
                }
            }
            // A service without a healthy instance does not exist, as in Consul.
            Found::Instances(instances) if instances.is_empty() => answer.code = ResponseCode::NXDomain,
            Found::Instances(instances) if wanted == RecordType::SRV => self.services(name, &instances, &mut answer),
            Found::Instances(instances) => {
                self.addresses(name, wanted, instances.into_iter().map(|instance| instance.address), &mut answer);
            }
        }
        if answer.answers.is_empty() {
            answer.authorities.push(self.soa());
        }
        answer
    }

    fn record(&self, name: &Name, data: RData) -> Record {
        Record::from_rdata(name.clone(), self.ttl_seconds, data)
    }

    fn soa(&self) -> Record {
        // Consul's times; they only matter to secondary servers, of which there are none.
        let soa = SOA::new(self.zone.servers(), self.zone.mailbox(), self.serial, 3600, 600, 86_400, 0);
        Record::from_rdata(self.zone.domain().clone(), 0, RData::SOA(soa))
    }

    fn apex(&self, name: &Name, wanted: RecordType, servers: &[IpAddr], answer: &mut Answer) {
        if matches!(wanted, RecordType::SOA | RecordType::ANY) {
            answer.answers.push(self.soa());
        }
        if matches!(wanted, RecordType::NS | RecordType::ANY) {
            let server = self.zone.servers();
            answer.additionals.extend(servers.iter().map(|address| self.record(&server, RData::from(*address))));
            answer.answers.push(self.record(name, RData::NS(NS(server))));
        }
    }

    /// Adds the addresses of the wanted type, each once, at most `answers_max`. If no candidate has
    /// an IP address of either family, adds an alias to the first host name of the candidates. The
    /// alias answers only questions for A, AAAA, CNAME and ANY.
    fn addresses(
        &self,
        name: &Name,
        wanted: RecordType,
        candidates: impl IntoIterator<Item = Address>,
        answer: &mut Answer,
    ) {
        let mut seen = BTreeSet::new();
        let mut alias = None;
        let mut has_address = false;
        for candidate in candidates {
            for address in candidate.addresses(wanted) {
                if seen.len() < self.answers_max && seen.insert(address) {
                    answer.answers.push(self.record(name, RData::from(address)));
                }
            }
            match candidate {
                Address::At(..) => has_address = true,
                Address::Alias(other) => alias = alias.or(Some(other)),
                Address::Unknown => {}
            }
        }
        // An alias has no other records (RFC 1034 §3.6.2).
        if let (Some(other), false) = (alias, has_address)
            && matches!(wanted, RecordType::A | RecordType::AAAA | RecordType::CNAME | RecordType::ANY)
        {
            answer.answers.push(self.record(name, RData::CNAME(CNAME(other))));
        }
    }

    /// Adds one SRV record for each target and port, at most `answers_max`. Adds the addresses of
    /// targets in this domain as additional records.
    fn services(&self, name: &Name, instances: &[Instance], answer: &mut Answer) {
        let mut seen = BTreeSet::new();
        let mut resolved = BTreeSet::new();
        for instance in instances {
            let Some(target) = self.target(instance) else { continue };
            if seen.len() >= self.answers_max {
                break;
            }
            if !seen.insert((target.clone(), instance.port)) {
                continue;
            }
            // The node's own name has all its addresses; a name that spells an address has no
            // other.
            let is_of_node = instance.is_at_node && self.zone.node(&instance.node).as_ref() == Some(&target);
            for address in instance.address.addresses(RecordType::ANY) {
                let is_of_target = is_of_node || Address::At(address, None).is_spelled_by(self.zone, &target);
                if is_of_target && resolved.insert((target.clone(), address)) {
                    answer.additionals.push(self.record(&target, RData::from(address)));
                }
            }
            // The same priority for all: instances differ only by their weights.
            let srv = SRV::new(1, instance.weight, instance.port, target);
            answer.answers.push(self.record(name, RData::SRV(srv)));
        }
    }

    /// The target of an instance's SRV record: the name of its node if it has no address of its own
    /// and DNS can spell that name; else a name that spells its address, or its host name. `None`
    /// if there is no such name.
    fn target(&self, instance: &Instance) -> Option<Name> {
        let of_node = if instance.is_at_node { self.zone.node(&instance.node) } else { None };
        of_node.or_else(|| match &instance.address {
            Address::At(address, _) => self.zone.address(*address),
            Address::Alias(name) => Some(name.clone()),
            Address::Unknown => None,
        })
    }
}

impl Address {
    fn is_spelled_by(&self, zone: &Zone, name: &Name) -> bool {
        matches!(self, Self::At(address, _) if zone.address(*address).as_ref() == Some(name))
    }
}

/// Longest character string of a TXT record, bytes (RFC 1035 §3.3).
const TEXT_BYTES_MAX: usize = 255;
/// Prefix of metadata keys that are left out of TXT records: the value is the whole text, as in
/// Consul.
const PLAIN_KEY: &str = "rfc1035-";

/// A pair of a node's metadata as a TXT record: `KEY=VALUE` by RFC 1464, or the value alone for a
/// key that begins with `rfc1035-`.
fn text(key: &str, value: &str) -> TXT {
    let text = match key.to_ascii_lowercase().starts_with(PLAIN_KEY) {
        true => value.to_owned(),
        false => format!("{}={value}", quoted(key)),
    };
    let mut strings: Vec<&[u8]> = text.as_bytes().chunks(TEXT_BYTES_MAX).collect();
    if strings.is_empty() {
        strings.push(b"");
    }
    TXT::from_bytes(strings)
}

/// The key with a grave accent before each `=`, each grave accent, and each blank at its ends.
fn quoted(key: &str) -> String {
    let inner = key.trim_matches([' ', '\t']);
    let begin = key.find(inner).unwrap_or(0);
    let end = begin + inner.len();
    let mut quoted = String::with_capacity(key.len());
    for (at, c) in key.char_indices() {
        if matches!(c, '=' | '`') || !(begin..end).contains(&at) {
            quoted.push('`');
        }
        quoted.push(c);
    }
    quoted
}

#[cfg(test)]
#[path = "records_tests.rs"]
mod tests;
