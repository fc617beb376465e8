//! The registrations of types that writes of resources have asked for, so that not each of them reads one.
//!
//! Owns for how long they count: until the head says that types have changed. Invariant: what it answers is what `meta` holds.

use std::collections::HashMap;

use super::record::RegisteredTypes;
use super::type_record::Registration;
use headwater_types::resource::TypeName;

/// Bounded as the types are: only those that are registered are remembered.
#[derive(Default)]
pub(super) struct Registrations {
    as_of: RegisteredTypes,
    known: HashMap<TypeName, Registration>,
}

impl Registrations {
    /// A registration as of a head; what was remembered as of another one is forgotten.
    pub(super) fn get(&mut self, name: &TypeName, as_of: RegisteredTypes) -> Option<&Registration> {
        if self.as_of != as_of {
            self.known.clear();
            self.as_of = as_of;
        }
        self.known.get(name)
    }

    /// Remembers a registration as of the head that [`get`](Self::get) was asked with last.
    pub(super) fn insert(&mut self, name: TypeName, registration: Registration) {
        self.known.insert(name, registration);
    }
}
