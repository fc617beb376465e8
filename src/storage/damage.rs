//! The list of damages in files, for operators: an inspection lists all of them instead of stopping
//! at the first.

use std::fmt;

use crate::StorageError;

/// Most damaged parts that a list keeps, count.
const KEPT_MAX: usize = 100;

/// One damaged, missing or misplaced part of a data directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The part: a file, a record, or a run of records.
    pub location: String,
    /// The defect: the difference from the part that was written, or the error of reading it.
    pub detail: String,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.location, self.detail)
    }
}

/// All damage that an inspection has found. Bounded: parts beyond the bound are only counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DamageList {
    kept: Vec<Damage>,
    count: usize,
}

impl DamageList {
    /// Adds a damaged part.
    pub fn add(&mut self, location: impl Into<String>, detail: impl Into<String>) {
        self.count += 1;
        if self.kept.len() < KEPT_MAX {
            self.kept.push(Damage { location: location.into(), detail: detail.into() });
        }
    }

    /// Adds a failed read of `location`. For [`StorageError::Corrupt`], adds the location that the
    /// error names instead.
    pub(crate) fn add_error(&mut self, location: impl Into<String>, error: &StorageError) {
        match error {
            StorageError::Corrupt { location, detail } => self.add(location.clone(), detail.clone()),
            // The remedy in the text of the error is that of a node.
            StorageError::RocksDb(error) => self.add(location, error.to_string()),
            error => self.add(location, error.to_string()),
        }
    }

    /// The damaged parts that the list keeps: those found first.
    pub fn kept(&self) -> &[Damage] {
        &self.kept
    }

    /// Number of damaged parts that were found, kept or not.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Whether no damage was found.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Appends another list. Its parts beyond the bound are only counted.
    pub fn append(&mut self, other: Self) {
        let free = KEPT_MAX - self.kept.len();
        self.count += other.count;
        self.kept.extend(other.kept.into_iter().take(free));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_bounded_and_counts_on() {
        let mut list = DamageList::default();
        assert!(list.is_empty());
        for number in 0..KEPT_MAX + 3 {
            list.add(format!("entry {number}"), "damaged");
        }
        assert_eq!((list.kept().len(), list.count()), (KEPT_MAX, KEPT_MAX + 3));
        assert_eq!(list.kept()[0].to_string(), "entry 0: damaged");
        let mut other = DamageList::default();
        other.add("state", "gone");
        other.append(list);
        assert_eq!((other.kept().len(), other.count()), (KEPT_MAX, KEPT_MAX + 4));
    }
}
