//! The effect of changes on a tree of elements: the directories of an element may appear and
//! disappear with it.
//!
//! Owns the rules of "Ordering constraints" in the watcher's specification: an ancestor comes
//! before its descendants, in the same group; if an element disappears, those below it are not
//! reported. Invariant: applied to the tree as of `before`, the changes give the tree as of
//! `after`. Unchanged elements are not reported, unless `before` can no longer be read.

use std::collections::{BTreeMap, HashMap};

use super::space::{ElementData, Space, Touched};
use headwater_storage::{ReadView, StorageError};
use headwater_types::LogIndex;
use headwater_types::entity::{absolute, parent, relative};

/// The new state of an element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElementChange {
    /// Name of the element relative to the followed entity.
    pub element: String,
    /// State of the element after the change.
    pub state: ElementState,
}

/// The state of an element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ElementState {
    /// The element exists, with this data.
    Exists(ElementData),
    /// Neither the element nor anything below it exists.
    Missing,
    /// The state is not reported: the client asked for changes only.
    Skipped,
}

/// The followed part of a space: an entity with its children, or with everything below.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Scope {
    /// Name of the followed entity within its space.
    pub(super) root: String,
    pub(super) recursive: bool,
}

impl Scope {
    /// Whether the element with this relative name is reported.
    pub(super) fn shows(&self, element: &str) -> bool {
        self.recursive || !element.contains('/')
    }

    /// The element that is reported for a change of `element`: itself, or without `recursive` the
    /// child of the root that contains it.
    fn clip<'a>(&self, element: &'a str) -> &'a str {
        match element.split_once('/') {
            Some((child, _)) if !self.recursive => child,
            Some(_) | None => element,
        }
    }
}

/// The elements that a run of commits touched, by names relative to the root. Each has its first
/// `was_there` and its last `data`.
pub(super) type Changed = BTreeMap<String, Touched>;

/// Adds the effect of a change to those of earlier changes. Ignores an element that is neither the
/// root of `scope` nor below it.
pub(super) fn add(changed: &mut Changed, scope: &Scope, name: &str, touched: Touched) {
    let Some(element) = relative(name, &scope.root) else { return };
    match changed.get_mut(element) {
        // Only the first change determines whether the element existed before.
        Some(earlier) => earlier.data = touched.data,
        None => {
            changed.insert(element.to_owned(), touched);
        }
    }
}

/// The changes of the tree from the state at `before` to that at `after`, in the order of names.
/// `changed` has the elements that were touched in between. `before` is `None` if that state cannot
/// be read any more; then some of the reported elements may be unchanged.
pub(super) fn differences<S: Space>(
    space: &S,
    view: &ReadView<'_>,
    scope: &Scope,
    changed: &Changed,
    before: Option<LogIndex>,
    after: LogIndex,
) -> Result<Vec<ElementChange>, StorageError> {
    let mut tree = Tree {
        space,
        view,
        scope,
        changed,
        before,
        after,
        was: HashMap::new(),
        is: HashMap::new(),
        reported: BTreeMap::new(),
    };
    for (element, touched) in changed {
        tree.settle(element, touched)?;
    }
    Ok(tree.reported.into_iter().map(|(element, state)| ElementChange { element, state }).collect())
}

struct Tree<'a, 'db, S> {
    space: &'a S,
    view: &'a ReadView<'db>,
    scope: &'a Scope,
    changed: &'a Changed,
    before: Option<LogIndex>,
    after: LogIndex,
    /// Whether an element existed at `before`, by its name, for those looked up so far. `None` if
    /// `before` cannot be read any more.
    was: HashMap<String, Option<bool>>,
    /// Whether an element exists at `after`, by its name.
    is: HashMap<String, bool>,
    /// The reported states. The order of names puts parents first.
    reported: BTreeMap<String, ElementState>,
}

impl<S: Space> Tree<'_, '_, S> {
    fn settle(&mut self, element: &str, touched: &Touched) -> Result<(), StorageError> {
        // The element existed and exists: no directory appears or disappears.
        let stays = touched.data.is_some() && touched.was_there == Some(true);
        if self.scope.shows(element) {
            if let Some(data) = &touched.data {
                self.reported.insert(element.to_owned(), ElementState::Exists(data.clone()));
                if stays { Ok(()) } else { self.come(parent(element)) }
            } else if self.is(element)? {
                self.reported.insert(element.to_owned(), ElementState::Exists(ElementData::Empty));
                if self.was(element)? == Some(true) { Ok(()) } else { self.come(parent(element)) }
            } else if touched.was_there == Some(true) || self.was(element)? != Some(false) {
                self.go(element)
            } else {
                Ok(())
            }
        } else if stays {
            Ok(())
        } else {
            let shown = self.scope.clip(element);
            if self.is(shown)? { self.come(Some(shown)) } else { self.go(shown) }
        }
    }

    /// `element` exists now, and so do all elements above it: reports those that did not exist
    /// before, or may not have.
    fn come(&mut self, mut element: Option<&str>) -> Result<(), StorageError> {
        while let Some(here) = element {
            if self.changed.contains_key(here) || self.reported.contains_key(here) {
                // `here` is reported already, or by its own change, and so are the elements above
                // it.
                return Ok(());
            }
            match self.was(here)? {
                Some(true) => return Ok(()),
                Some(false) => {}
                // An untouched element that exists by itself also existed before.
                None if self.space.read(self.view, &absolute(&self.scope.root, here), self.after)?.is_some() => {
                    return Ok(());
                }
                None => {}
            }
            self.reported.insert(here.to_owned(), ElementState::Exists(ElementData::Empty));
            element = parent(here);
        }
        Ok(())
    }

    /// `element` no longer exists: reports the topmost element that disappeared with it.
    fn go(&mut self, element: &str) -> Result<(), StorageError> {
        let mut top = element;
        while let Some(above) = parent(top) {
            if self.is(above)? {
                break;
            }
            top = above;
        }
        if !self.reported.contains_key(top) && self.was(top)? != Some(false) {
            self.reported.insert(top.to_owned(), ElementState::Missing);
        }
        Ok(())
    }

    fn is(&mut self, element: &str) -> Result<bool, StorageError> {
        if let Some(is) = self.is.get(element) {
            return Ok(*is);
        }
        let name = absolute(&self.scope.root, element);
        let is = match self.changed.get(element) {
            Some(touched) if touched.data.is_some() => true,
            // The root of a space exists even if it is empty.
            Some(_) if !name.is_empty() => self.space.has_below(self.view, &name, self.after)?,
            Some(_) | None => self.space.is_there(self.view, &name, self.after)?,
        };
        self.is.insert(element.to_owned(), is);
        Ok(is)
    }

    /// Whether `element`, or one below it, existed at `before`; `None` if that is unknown.
    fn was(&mut self, element: &str) -> Result<Option<bool>, StorageError> {
        if self.changed.get(element).is_some_and(|touched| touched.was_there == Some(true)) {
            return Ok(Some(true));
        }
        if let Some(was) = self.was.get(element) {
            return Ok(*was);
        }
        let was = match self.before {
            Some(before) => Some(self.space.is_there(self.view, &absolute(&self.scope.root, element), before)?),
            None => None,
        };
        self.was.insert(element.to_owned(), was);
        Ok(was)
    }
}
