//! A cache of type registrations, so that not every write of a resource reads its registration.
//!
//! Owns their validity: until the registered types of the head change. Invariant: an answer equals
//! the record in `meta`.

use std::collections::HashMap;

use super::head::RegisteredTypes;
use super::type_record::Registration;
use headwater_types::resource::TypeName;

/// Cached registrations of types. Only registered types are cached, so their limit is its bound.
#[derive(Default)]
pub(super) struct Registrations {
    as_of: RegisteredTypes,
    known: HashMap<TypeName, Registration>,
}

impl Registrations {
    /// The cached registration; `None` if it is not cached. Drops all entries first if `as_of`
    /// differs from that of the last call.
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
