//! Where each member is reached: at its address by the membership, or still where it was before.
//!
//! A membership may name an address at which nobody answers yet, because the member is about to
//! move there, or never. So calls go where they went until the member itself has answered at the
//! new address. Invariant: an address that works is given up only for one that works.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;

use super::{CONNECT_TIMEOUT, PeerClient, Route};
use crate::types::MemberInfo;
use headwater_proto::pb::peer as pb;
use headwater_types::NodeId;

/// How long to wait before a member is looked for again.
const LOOK_PAUSE: Duration = Duration::from_millis(250);

/// The addresses of all members.
pub(super) struct Addresses {
    /// The route of the calls; its receiver is filled in.
    route: Route,
    known: Mutex<BTreeMap<NodeId, Address>>,
}

/// The addresses of one member.
#[derive(Debug)]
struct Address {
    /// By the latest membership.
    latest: Arc<str>,
    /// Where it was before it was to move there.
    former: Option<Arc<str>>,
    /// Where calls go.
    used: Arc<str>,
    /// Somebody looks for it.
    is_sought: bool,
}

impl Address {
    fn of(info: &MemberInfo) -> Self {
        let latest: Arc<str> = info.peer_url.as_str().into();
        Self { used: Arc::clone(&latest), latest, former: former(info), is_sought: false }
    }

    /// Takes the addresses of the current membership.
    fn learn(&mut self, info: &MemberInfo) {
        if *self.latest != *info.peer_url {
            self.latest = info.peer_url.as_str().into();
        }
        if self.former.as_deref().unwrap_or_default() != info.former_peer_url {
            self.former = former(info);
        }
    }

    /// Where to look for it, in this order; nowhere, if calls go where they should.
    fn places(&self, is_first_look: bool) -> Vec<Arc<str>> {
        if self.used == self.latest && !is_first_look {
            return Vec::new();
        }
        let mut places = vec![Arc::clone(&self.latest)];
        for other in [Some(&self.used), self.former.as_ref()].into_iter().flatten() {
            if !places.contains(other) {
                places.push(Arc::clone(other));
            }
        }
        places
    }
}

fn former(info: &MemberInfo) -> Option<Arc<str>> {
    (!info.former_peer_url.is_empty()).then(|| info.former_peer_url.as_str().into())
}

impl Addresses {
    pub(super) fn new(route: Route) -> Arc<Self> {
        Arc::new(Self { route, known: Mutex::default() })
    }

    /// Where calls to a member go.
    pub(super) fn used(&self, member: NodeId) -> Option<Arc<str>> {
        self.known.lock().get(&member).map(|address| Arc::clone(&address.used))
    }

    /// Records an address from a possibly outdated membership; a known address stays.
    pub(super) fn learn_if_unknown(self: &Arc<Self>, member: NodeId, info: &MemberInfo) {
        if !self.known.lock().contains_key(&member) {
            self.learn(member, info);
        }
    }

    /// Notes where a member is by the latest membership.
    pub(super) fn learn(self: &Arc<Self>, member: NodeId, info: &MemberInfo) {
        let mut known = self.known.lock();
        let (address, is_new) = match known.entry(member) {
            std::collections::btree_map::Entry::Occupied(entry) => (entry.into_mut(), false),
            std::collections::btree_map::Entry::Vacant(entry) => (entry.insert(Address::of(info)), true),
        };
        address.learn(info);
        if member == self.route.from {
            // Nobody calls itself.
            address.used = Arc::clone(&address.latest);
            return;
        }
        // This process has never called it: it may be in either place.
        let may_be_elsewhere = is_new && address.former.is_some();
        if (address.used != address.latest || may_be_elsewhere) && !address.is_sought {
            address.is_sought = true;
            tokio::spawn(seek(Arc::downgrade(self), member, may_be_elsewhere));
        }
    }

    /// Removes the addresses of former members.
    pub(super) fn keep(&self, is_member: impl Fn(NodeId) -> bool) {
        self.known.lock().retain(|member, _| is_member(*member));
    }

    /// Whether `member` itself answers at an address.
    pub(super) async fn answers(&self, member: NodeId, url: &str) -> bool {
        let client = PeerClient::to_address(Route { to: member, ..self.route.clone() }, url);
        let Ok(mut grpc) = client.grpc() else { return false };
        // Another member at this address refuses the call.
        let hello = grpc.hello(client.route().request(pb::HelloRequest {}));
        matches!(tokio::time::timeout(CONNECT_TIMEOUT, hello).await, Ok(Ok(_)))
    }
}

/// Looks for a member until it answers at its latest address; meanwhile calls go wherever it
/// answers.
async fn seek(addresses: Weak<Addresses>, member: NodeId, mut is_first_look: bool) {
    loop {
        let Some(addresses) = addresses.upgrade() else { return };
        let places = {
            let mut known = addresses.known.lock();
            let Some(address) = known.get_mut(&member) else { return };
            let places = address.places(is_first_look);
            address.is_sought = !places.is_empty();
            places
        };
        if places.is_empty() {
            return;
        }
        let mut found = None;
        for place in places {
            if addresses.answers(member, &place).await {
                found = Some(place);
                break;
            }
        }
        if let Some(place) = found
            && let Some(address) = addresses.known.lock().get_mut(&member)
        {
            is_first_look = false;
            if address.used != place {
                tracing::info!(%member, from = %address.used, to = %place, "a member is reached at another address");
                address.used = place;
                // One that is where it should be needs no pause.
                continue;
            }
        }
        drop(addresses);
        tokio::time::sleep(LOOK_PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(peer: &str, former: &str) -> MemberInfo {
        MemberInfo { peer_url: peer.into(), former_peer_url: former.into(), ..MemberInfo::default() }
    }

    fn places(address: &Address, is_first_look: bool) -> Vec<String> {
        address.places(is_first_look).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_member_is_sought_where_it_should_be_and_then_where_it_was() {
        let mut address = Address::of(&info("a", ""));
        assert!(places(&address, false).is_empty(), "it is where it should be");
        address.learn(&info("b", "a"));
        assert_eq!((&*address.used, places(&address, false)), ("a", vec!["b".to_owned(), "a".to_owned()]));
        address.learn(&info("c", "a"));
        assert_eq!((&*address.used, places(&address, false)), ("a", vec!["c".to_owned(), "a".to_owned()]));
        address.used = "c".into();
        assert!(places(&address, false).is_empty(), "it has moved");
        address.learn(&info("d", "c"));
        address.learn(&info("c", ""));
        assert!(places(&address, false).is_empty(), "the move was taken back");
    }

    #[test]
    fn a_process_that_has_never_called_a_member_looks_in_both_places() {
        let address = Address::of(&info("b", "a"));
        assert_eq!((&*address.used, places(&address, true)), ("b", vec!["b".to_owned(), "a".to_owned()]));
    }
}
