//! A cache of type registrations, so that not every write of a resource reads that of its type.
//!
//! Owns the validity of its entries: until [`RegisteredTypes`] of the head change. Invariant: an
//! answer equals the registration in `meta`.

use std::collections::HashMap;

use super::head::RegisteredTypes;
use super::type_record::Registration;
use headwater_types::resource::TypeName;

/// Cached registrations of types. Only registered types are cached, so the limit of registered
/// types bounds the cache.
#[derive(Default)]
pub(super) struct Registrations {
    as_of: RegisteredTypes,
    known: HashMap<TypeName, Registration>,
}

impl Registrations {
    /// The cached registration; `None` if it is not cached. If `as_of` differs from that of the
    /// last call, drops all entries first.
    pub(super) fn get(&mut self, name: &TypeName, as_of: RegisteredTypes) -> Option<&Registration> {
        if self.as_of != as_of {
            self.known.clear();
            self.as_of = as_of;
        }
        self.known.get(name)
    }

    /// Adds a registration that is valid for the `as_of` of the last [`get`](Self::get).
    pub(super) fn insert(&mut self, name: TypeName, registration: Registration) {
        self.known.insert(name, registration);
    }
}
