//! The client that a request counts for, wherever capacity is shared fairly between clients.
//!
//! Owns the rule for the key: the name of a verified client certificate, else the user of a Unix
//! socket, else the address of the connection. Knows nothing of connections; the ports make the
//! key, and faces pass it on. A key is not an identity for rights: two names with the same hash
//! would only share their turns.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::LazyLock;

/// The party that a request counts for. Small, because every request carries one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ClientKey {
    /// The node itself: its background tasks, and the reads by which it answers health probes.
    Own,
    /// A request of no known connection. All such requests count as one client.
    #[default]
    Unknown,
    /// A user of this machine, by the Unix socket: the user's id.
    User(u32),
    /// The network of an address: a whole IPv4 address (mapped to IPv6), or the /64 prefix of an
    /// IPv6 address, because one machine may use all addresses of a /64.
    Network(u128),
    /// The name in a verified client certificate, as a hash. Users and tokens have no key of their
    /// own: they count for the certificate, socket or address of their connection.
    Named(u64),
}

/// Seed of the hashes in [`ClientKey::Named`], different in each process, so that a client cannot
/// choose a name that shares another client's turns.
static NAMES: LazyLock<RandomState> = LazyLock::new(RandomState::new);

impl ClientKey {
    /// The key of an address.
    pub fn of_address(address: IpAddr) -> Self {
        Self::Network(match address.to_canonical() {
            IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
            IpAddr::V6(address) => address.to_bits() >> 64 << 64,
        })
    }

    /// The key of the name in a client's certificate.
    pub fn of_name(name: &str) -> Self {
        Self::Named(NAMES.hash_one(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_has_one_key_whichever_of_its_addresses_it_uses() {
        let key = |address: &str| ClientKey::of_address(address.parse().unwrap());
        assert_eq!(key("192.0.2.1"), key("::ffff:192.0.2.1"));
        assert_ne!(key("192.0.2.1"), key("192.0.2.2"));
        assert_eq!(key("2001:db8::1"), key("2001:db8::ffff:2"));
        assert_ne!(key("2001:db8::1"), key("2001:db8:0:1::1"));
        assert_eq!(ClientKey::of_name("app"), ClientKey::of_name("app"));
        assert_ne!(ClientKey::of_name("app"), ClientKey::of_name("web"));
    }
}
