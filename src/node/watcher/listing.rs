//! The state of an entity as it is sent to one follower: the shared listing, with the changes since
//! it was made.
//!
//! Invariant: elements come in the order of their names, each once; the last one closes the group.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;

use super::tree::{ElementChange, ElementState};
use super::watched::{ElementEncoder, Listing};
use crate::{NodeError, Position};
use headwater_stream::StateShare;
use headwater_types::entity::parent;

/// Most elements in one page of a state, count.
const PAGE_ELEMENTS_MAX: usize = 256;

/// The unsent rest of a state.
pub(super) struct Sending {
    listing: Listing,
    next: usize,
    /// Elements that changed since the listing was made, encoded.
    changed: BTreeMap<String, Bytes>,
    /// Elements that were removed since the listing was made. Everything below them was removed,
    /// too.
    gone: HashSet<String>,
    /// An element that was taken but not sent yet: it is sent once it is known whether it is the
    /// last.
    held: Option<Bytes>,
    /// The position of the state that is being sent.
    position: Position,
    /// The memory of `changed` and `gone`.
    _share: StateShare,
}

impl Sending {
    /// The listing and the changes since it was made, as the state at `position`.
    ///
    /// # Errors
    ///
    /// [`NodeError::TooManyRequests`] if the memory budget is too small for the changes.
    pub(super) fn new(
        listing: Listing,
        changes: &[ElementChange],
        encoder: &dyn ElementEncoder,
        position: Position,
    ) -> Result<Self, NodeError> {
        let mut share = listing.share_of_changes();
        let (mut changed, mut gone) = (BTreeMap::new(), HashSet::new());
        for change in changes {
            let element = change.element.clone();
            let encoded = match change.state {
                ElementState::Exists(_) | ElementState::Skipped => Some(encoder.encode(change, None)),
                ElementState::Missing => None,
            };
            if !share.grow(element.len() + encoded.as_ref().map_or(0, Bytes::len)) {
                return Err(NodeError::TooManyRequests);
            }
            match encoded {
                Some(encoded) => {
                    changed.insert(element, encoded);
                }
                None => {
                    gone.insert(element);
                }
            }
        }
        Ok(Self { listing, next: 0, changed, gone, held: None, position, _share: share })
    }

    /// The next page, and whether it is the last one. The last page closes the group.
    pub(super) fn page(&mut self, encoder: &dyn ElementEncoder) -> (Arc<[Bytes]>, bool) {
        let mut page = Vec::with_capacity(PAGE_ELEMENTS_MAX);
        while page.len() < PAGE_ELEMENTS_MAX {
            let next = self.take();
            let is_last = next.is_none();
            match (std::mem::replace(&mut self.held, next), is_last) {
                (Some(last), true) => page.push(encoder.close(last, self.position)),
                (Some(held), false) => page.push(held),
                // The state is empty: not even the entity exists.
                (None, true) => {
                    let nothing = ElementChange { element: String::new(), state: ElementState::Missing };
                    page.push(encoder.encode(&nothing, Some(self.position)));
                }
                (None, false) => {}
            }
            if is_last {
                return (page.into(), true);
            }
        }
        (page.into(), false)
    }

    /// Takes the next element of the state, in the order of names; `None` after the last. A changed
    /// element replaces the listed one, and removed ones are skipped.
    fn take(&mut self) -> Option<Bytes> {
        loop {
            let is_changed_first = match (self.listing.get(self.next), self.changed.first_key_value()) {
                (None, None) => return None,
                (Some((listed, _)), Some((changed, _))) => {
                    if listed == changed {
                        // The changed one replaces the listed one.
                        self.next += 1;
                        continue;
                    }
                    changed < listed
                }
                (listed, _) => listed.is_none(),
            };
            if is_changed_first {
                return self.changed.pop_first().map(|(_, encoded)| encoded);
            }
            let (name, encoded) = &self.listing[self.next];
            self.next += 1;
            if !self.is_gone(name) {
                return Some(encoded.clone());
            }
        }
    }

    fn is_gone(&self, name: &str) -> bool {
        let mut element = Some(name).filter(|_| !self.gone.is_empty());
        while let Some(here) = element {
            if self.gone.contains(here) {
                return true;
            }
            element = parent(here);
        }
        false
    }
}
