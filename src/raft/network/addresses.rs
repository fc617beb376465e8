//! The address to which the calls for each member go: the one in the membership, or the member's
//! former one.
//!
//! A membership may name an address at which the member does not answer yet, or never will. So
//! calls go to the old address until the member itself has answered at the new one. Invariant: a
//! working address is replaced only by a working one.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;

use super::{CONNECT_TIMEOUT, PeerClient, Route};
use crate::types::MemberInfo;
use headwater_proto::pb::peer as pb;
use headwater_types::NodeId;

/// Pause between two rounds of a search for a member.
const RETRY_PAUSE: Duration = Duration::from_millis(250);

/// The addresses of all members.
pub(super) struct Addresses {
    /// The route of the calls. Its receiver `to` is replaced for each member.
    route: Route,
    known: Mutex<BTreeMap<NodeId, Address>>,
}

/// The addresses of one member.
#[derive(Debug)]
struct Address {
    /// The address in the latest membership.
    latest: Arc<str>,
    /// The address before the move to the latest one.
    former: Option<Arc<str>>,
    /// The address that calls use: the latest or the former one.
    used: Arc<str>,
    /// Whether a task is finding out which address answers.
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

    /// The addresses to try, in this order: the latest, the used, the former. Empty if calls use
    /// the latest one already, unless this is the first attempt: then no address has answered yet.
    fn candidates(&self, is_first_attempt: bool) -> Vec<Arc<str>> {
        if self.used == self.latest && !is_first_attempt {
            return Vec::new();
        }
        let mut candidates = vec![Arc::clone(&self.latest)];
        for other in [Some(&self.used), self.former.as_ref()].into_iter().flatten() {
            if !candidates.contains(other) {
                candidates.push(Arc::clone(other));
            }
        }
        candidates
    }
}

fn former(info: &MemberInfo) -> Option<Arc<str>> {
    (!info.former_peer_url.is_empty()).then(|| info.former_peer_url.as_str().into())
}

impl Addresses {
    pub(super) fn new(route: Route) -> Arc<Self> {
        Arc::new(Self { route, known: Mutex::default() })
    }

    /// The address that calls to a member use; `None` for an unknown member.
    pub(super) fn used(&self, member: NodeId) -> Option<Arc<str>> {
        self.known.lock().get(&member).map(|address| Arc::clone(&address.used))
    }

    /// Records an address from a possibly outdated membership; a known address stays.
    pub(super) fn learn_if_unknown(self: &Arc<Self>, member: NodeId, info: &MemberInfo) {
        if !self.known.lock().contains_key(&member) {
            self.learn(member, info);
        }
    }

    /// Records the addresses of a member in the latest membership. Starts a search if calls do not
    /// use the latest address.
    pub(super) fn learn(self: &Arc<Self>, member: NodeId, info: &MemberInfo) {
        let mut known = self.known.lock();
        let (address, is_new) = match known.entry(member) {
            std::collections::btree_map::Entry::Occupied(entry) => (entry.into_mut(), false),
            std::collections::btree_map::Entry::Vacant(entry) => (entry.insert(Address::of(info)), true),
        };
        address.learn(info);
        if member == self.route.from {
            // A member does not call itself.
            address.used = Arc::clone(&address.latest);
            return;
        }
        // This process has never called the member, which may still be at its former address.
        let may_be_at_former = is_new && address.former.is_some();
        if (address.used != address.latest || may_be_at_former) && !address.is_sought {
            address.is_sought = true;
            tokio::spawn(find_member(Arc::downgrade(self), member, may_be_at_former));
        }
    }

    /// Keeps the addresses of those that are members, by `is_member`, and removes the others.
    pub(super) fn keep(&self, is_member: impl Fn(NodeId) -> bool) {
        self.known.lock().retain(|member, _| is_member(*member));
    }

    /// Whether `member` itself answers a hello call at `url` within [`CONNECT_TIMEOUT`].
    pub(super) async fn answers(&self, member: NodeId, url: &str) -> bool {
        let client = PeerClient::to_address(Route { to: member, ..self.route.clone() }, url);
        let Ok(mut grpc) = client.grpc() else { return false };
        // Another member at this address refuses the call.
        let hello = grpc.hello(client.route().request(pb::HelloRequest::default()));
        matches!(tokio::time::timeout(CONNECT_TIMEOUT, hello).await, Ok(Ok(_)))
    }
}

/// Tries the addresses of a member until the latest one answers, or until it is no member any more.
/// Meanwhile calls use the first address that answers.
async fn find_member(addresses: Weak<Addresses>, member: NodeId, mut is_first_attempt: bool) {
    loop {
        let Some(addresses) = addresses.upgrade() else { return };
        let candidates = {
            let mut known = addresses.known.lock();
            let Some(address) = known.get_mut(&member) else { return };
            let candidates = address.candidates(is_first_attempt);
            address.is_sought = !candidates.is_empty();
            candidates
        };
        if candidates.is_empty() {
            return;
        }
        let mut found = None;
        for candidate in candidates {
            if addresses.answers(member, &candidate).await {
                found = Some(candidate);
                break;
            }
        }
        if let Some(candidate) = found
            && let Some(address) = addresses.known.lock().get_mut(&member)
        {
            is_first_attempt = false;
            if address.used != candidate {
                tracing::info!(%member, from = %address.used, to = %candidate, "a member is reached at another address");
                address.used = candidate;
                // No pause: at the latest address the search ends at once.
                continue;
            }
        }
        drop(addresses);
        tokio::time::sleep(RETRY_PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(peer: &str, former: &str) -> MemberInfo {
        MemberInfo { peer_url: peer.into(), former_peer_url: former.into(), ..MemberInfo::default() }
    }

    fn candidates(address: &Address, is_first_attempt: bool) -> Vec<String> {
        address.candidates(is_first_attempt).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_member_is_sought_where_it_should_be_and_then_where_it_was() {
        let mut address = Address::of(&info("a", ""));
        assert!(candidates(&address, false).is_empty(), "it is where it should be");
        address.learn(&info("b", "a"));
        assert_eq!((&*address.used, candidates(&address, false)), ("a", vec!["b".to_owned(), "a".to_owned()]));
        address.learn(&info("c", "a"));
        assert_eq!((&*address.used, candidates(&address, false)), ("a", vec!["c".to_owned(), "a".to_owned()]));
        address.used = "c".into();
        assert!(candidates(&address, false).is_empty(), "it has moved");
        address.learn(&info("d", "c"));
        address.learn(&info("c", ""));
        assert!(candidates(&address, false).is_empty(), "the move was taken back");
    }

    #[test]
    fn a_process_that_has_never_called_a_member_looks_in_both_places() {
        let address = Address::of(&info("b", "a"));
        assert_eq!((&*address.used, candidates(&address, true)), ("b", vec!["b".to_owned(), "a".to_owned()]));
    }
}
