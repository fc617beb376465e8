//! A bounded cache of leases with the keys that are attached to them, for write transactions: for a
//! lease in it, a put with the lease, a checkpoint and the end of the lease read nothing from
//! RocksDB.
//!
//! Owns the choice of cached leases. Only the one writer uses the cache: its reads add what is
//! committed, and staging a commit brings the entries up to date. A write that fails after that
//! stops the store. Invariants: an entry equals the committed state, or the one about to be
//! committed; no entry of `index` names a lease that does not exist, so a lease has no keys when it
//! is granted.

use bytes::Bytes;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use smallvec::SmallVec;

use headwater_types::limits::CACHED_LEASE_KEYS_MAX;
use headwater_types::{Lease, LeaseId};

/// Estimated memory of an entry without its keys, bytes.
const ENTRY_BYTES: u64 = 160;
/// Estimated memory of a key beside its bytes.
const KEY_BYTES: u64 = 64;

#[derive(Clone)]
struct CachedLease {
    lease: Lease,
    /// The attached keys, in order. `None` if they are not known, or too many.
    keys: Option<SmallVec<[Bytes; 1]>>,
}

#[derive(Clone)]
struct ByBytes;

impl Weighter<LeaseId, CachedLease> for ByBytes {
    fn weight(&self, _id: &LeaseId, cached: &CachedLease) -> u64 {
        let keys = cached.keys.iter().flatten().map(|key| KEY_BYTES + key.len() as u64);
        ENTRY_BYTES + keys.sum::<u64>()
    }
}

pub(super) struct LeaseCache {
    leases: Cache<LeaseId, CachedLease, ByBytes>,
}

impl LeaseCache {
    /// A cache of at most `bytes` bytes of memory, by an estimate.
    pub(super) fn new(bytes: u64) -> Self {
        let expected = usize::try_from(bytes / (ENTRY_BYTES + KEY_BYTES)).unwrap_or(usize::MAX);
        Self { leases: Cache::with_weighter(expected, bytes, ByBytes) }
    }

    pub(super) fn clear(&self) {
        self.leases.clear();
    }

    /// The lease `id`, if it is cached.
    pub(super) fn lease(&self, id: LeaseId) -> Option<Lease> {
        self.leases.get(&id).map(|cached| cached.lease)
    }

    /// The keys of the lease `id`, in order, if they are cached.
    pub(super) fn keys(&self, id: LeaseId) -> Option<Vec<Bytes>> {
        self.leases.get(&id)?.keys.map(|keys| keys.into_vec())
    }

    /// Adds a lease that was read, and is not cached yet.
    pub(super) fn add(&self, id: LeaseId, lease: Lease) {
        self.leases.insert(id, CachedLease { lease, keys: None });
    }

    /// Adds the keys of a lease that were read. Does nothing if the lease is not cached, or has
    /// more than [`CACHED_LEASE_KEYS_MAX`] keys.
    pub(super) fn add_keys(&self, id: LeaseId, keys: &[Bytes]) {
        if keys.len() <= CACHED_LEASE_KEYS_MAX {
            self.change(id, |cached| cached.keys = Some(keys.into()));
        }
    }

    /// Adds a lease that is granted. It has no keys yet.
    pub(super) fn grant(&self, id: LeaseId, lease: Lease) {
        self.leases.insert(id, CachedLease { lease, keys: Some(SmallVec::new()) });
    }

    /// Replaces the record of a cached lease that was granted before.
    pub(super) fn update(&self, id: LeaseId, lease: Lease) {
        self.change(id, |cached| cached.lease = lease);
    }

    /// Removes a lease that ends.
    pub(super) fn end(&self, id: LeaseId) {
        self.leases.remove(&id);
    }

    /// Attaches `key` to a cached lease, or detaches it.
    pub(super) fn attach(&self, id: LeaseId, key: &[u8], attached: bool) {
        self.change(id, |cached| {
            let Some(keys) = &mut cached.keys else { return };
            match (keys.binary_search_by(|known| (**known).cmp(key)), attached) {
                (Ok(place), false) => {
                    keys.remove(place);
                }
                (Err(place), true) => keys.insert(place, Bytes::copy_from_slice(key)),
                (Ok(_), true) | (Err(_), false) => {}
            }
            if keys.len() > CACHED_LEASE_KEYS_MAX {
                cached.keys = None;
            }
        });
    }

    fn change(&self, id: LeaseId, change: impl FnOnce(&mut CachedLease)) {
        // Inserted anew rather than changed in place, so that its weight is counted anew.
        if let Some(mut cached) = self.leases.get(&id) {
            change(&mut cached);
            self.leases.insert(id, cached);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_types::LogIndex;

    const ID: LeaseId = LeaseId(7);

    fn lease(granted: u64) -> Lease {
        Lease { granted: LogIndex(granted), ttl_seconds: 60, due_ms: None }
    }

    fn keys(names: &[&'static str]) -> Vec<Bytes> {
        names.iter().map(|name| Bytes::from_static(name.as_bytes())).collect()
    }

    #[test]
    fn a_granted_lease_has_the_keys_that_are_attached_since_in_order() {
        let cache = LeaseCache::new(1 << 20);
        cache.grant(ID, lease(1));
        for (key, attached) in [("b", true), ("c", true), ("a", true), ("b", true), ("c", false), ("d", false)] {
            cache.attach(ID, key.as_bytes(), attached);
        }
        assert_eq!(cache.keys(ID), Some(keys(&["a", "b"])));
        // The record changes, and the keys stay.
        cache.update(ID, Lease { due_ms: Some(9), ..lease(1) });
        assert_eq!(cache.lease(ID), Some(Lease { due_ms: Some(9), ..lease(1) }));
        assert_eq!(cache.keys(ID), Some(keys(&["a", "b"])));
        // A later lease of the same id begins without keys.
        cache.end(ID);
        assert_eq!((cache.lease(ID), cache.keys(ID)), (None, None));
        cache.grant(ID, lease(8));
        assert_eq!((cache.lease(ID), cache.keys(ID)), (Some(lease(8)), Some(Vec::new())));
    }

    #[test]
    fn keys_that_nobody_has_read_are_not_guessed() {
        let cache = LeaseCache::new(1 << 20);
        cache.add_keys(ID, &keys(&["a"]));
        cache.attach(ID, b"a", true);
        cache.update(ID, lease(1));
        assert_eq!((cache.lease(ID), cache.keys(ID)), (None, None), "it is not cached");
        cache.add(ID, lease(1));
        cache.attach(ID, b"b", true);
        assert_eq!((cache.lease(ID), cache.keys(ID)), (Some(lease(1)), None), "it may have other keys");
        cache.add_keys(ID, &keys(&["a", "b"]));
        cache.attach(ID, b"a", false);
        assert_eq!(cache.keys(ID), Some(keys(&["b"])));
    }

    #[test]
    fn many_keys_are_not_kept_and_memory_is_bounded() {
        let bytes = 1 << 20;
        let cache = LeaseCache::new(bytes);
        cache.add(ID, lease(1));
        cache.add_keys(ID, &vec![Bytes::new(); CACHED_LEASE_KEYS_MAX + 1]);
        assert_eq!(cache.keys(ID), None);
        cache.add_keys(ID, &vec![Bytes::new(); CACHED_LEASE_KEYS_MAX]);
        assert_eq!(cache.keys(ID).map(|keys| keys.len()), Some(CACHED_LEASE_KEYS_MAX));
        cache.grant(ID, lease(1));
        for key in 0..=CACHED_LEASE_KEYS_MAX {
            assert!(cache.keys(ID).is_some(), "{key}");
            cache.attach(ID, format!("{key:04}").as_bytes(), true);
        }
        assert_eq!(cache.keys(ID), None);
        cache.attach(ID, b"0000", false);
        assert_eq!(cache.keys(ID), None, "the others are still there");
        for id in 0..20_000 {
            cache.grant(LeaseId(id), lease(1));
            cache.attach(LeaseId(id), &[b'k'; 100], true);
        }
        assert!(cache.leases.len() > 1000, "{}", cache.leases.len());
        assert!(cache.leases.weight() <= bytes, "{}", cache.leases.weight());
    }
}
