//! Bounds by address.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use parking_lot::Mutex;

/// The part of an address that one client has: all of IPv4, and a /64 of IPv6, which one machine
/// may use as it likes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Network(IpAddr);

impl Network {
    fn of(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V4(address) => IpAddr::V4(address),
            IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
        })
    }
}

/// A bound on what one network may have at a time; clones share it.
#[derive(Clone, Debug)]
pub(super) struct AddressLimit {
    most: usize,
    counts: Arc<Mutex<HashMap<Network, usize>>>,
}

/// A place below the bound, until it is dropped.
#[derive(Debug)]
pub(super) struct AddressPermit {
    network: Network,
    counts: Arc<Mutex<HashMap<Network, usize>>>,
}

impl AddressLimit {
    /// Each network may have `most`.
    pub(super) fn new(most: usize) -> Self {
        Self { most, counts: Arc::default() }
    }

    /// A place for `address`; `None` if its network has too many.
    pub(super) fn take(&self, address: IpAddr) -> Option<AddressPermit> {
        let network = Network::of(address);
        let mut counts = self.counts.lock();
        let count = counts.entry(network).or_default();
        if *count >= self.most {
            return None;
        }
        *count += 1;
        Some(AddressPermit { network, counts: Arc::clone(&self.counts) })
    }
}

impl Drop for AddressPermit {
    fn drop(&mut self) {
        let mut counts = self.counts.lock();
        if let Entry::Occupied(mut count) = counts.entry(self.network) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_has_so_many_places_gets_them_back_and_is_forgotten() {
        let limit = AddressLimit::new(2);
        let take = |address: &str| limit.take(address.parse().unwrap());
        let held = (take("127.0.0.1").unwrap(), take("::ffff:127.0.0.1").unwrap());
        assert!(take("127.0.0.1").is_none() && take("127.0.0.2").is_some());
        let _network = (take("2001:db8::1").unwrap(), take("2001:db8::ffff:2").unwrap());
        assert!(take("2001:db8::3").is_none() && take("2001:db8:0:1::3").is_some());
        drop(held);
        assert!(take("127.0.0.1").is_some());
        assert_eq!(limit.counts.lock().len(), 1, "networks without places are forgotten");
    }
}
