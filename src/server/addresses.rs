//! Bound on the number of things, such as open connections, that one network holds at a time.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;

use headwater_node::ClientKey;

/// A bound on the [`AddressPermit`]s that each network holds at a time: one for each connection or
/// handshake. A network is an IPv4 address or a /64 of IPv6. Clones share the counts.
#[derive(Clone, Debug)]
pub(super) struct AddressLimit {
    most: usize,
    counts: Arc<Mutex<HashMap<ClientKey, usize>>>,
}

/// One unit of an [`AddressLimit`], held by a network. Dropping it gives the unit back.
#[derive(Debug)]
pub(super) struct AddressPermit {
    network: ClientKey,
    counts: Arc<Mutex<HashMap<ClientKey, usize>>>,
}

impl AddressLimit {
    /// Allows each network at most `most` [`AddressPermit`]s at a time.
    pub(super) fn new(most: usize) -> Self {
        Self { most, counts: Arc::default() }
    }

    /// Takes a unit for the network of `address`; `None` if the network holds as many as it may.
    pub(super) fn take(&self, address: IpAddr) -> Option<AddressPermit> {
        let network = ClientKey::of_address(address);
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
