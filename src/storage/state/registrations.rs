//! The registrations of types that writes of resources have asked for, so that not each of them
//! reads one.
//!
//! Owns their validity: until the types of the head change. Invariant: an answer equals the record
//! in `meta`.

use std::collections::HashMap;

use super::head::RegisteredTypes;
use super::type_record::Registration;
use headwater_types::resource::TypeName;

/// Bounded like the types: only registered ones are cached.
#[derive(Default)]
pub(super) struct Registrations {
    as_of: RegisteredTypes,
    known: HashMap<TypeName, Registration>,
}

impl Registrations {
    /// A registration as of a head; registrations as of another head are dropped.
    pub(super) fn get(&mut self, name: &TypeName, as_of: RegisteredTypes) -> Option<&Registration> {
        if self.as_of != as_of {
            self.known.clear();
            self.as_of = as_of;
        }
        self.known.get(name)
    }

    /// Adds a registration as of the head of the last [`get`](Self::get).
    pub(super) fn insert(&mut self, name: TypeName, registration: Registration) {
        self.known.insert(name, registration);
    }
}
