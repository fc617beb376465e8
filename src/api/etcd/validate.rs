//! Checks of the shape of requests, before they become commands (spec: etcd §1.6). Pure functions.
//!
//! Owns only the checks of single messages and lists; the rules about a transaction as a whole are
//! `fsm`'s, through [`headwater_node::validate_txn`].

use bytes::Bytes;

use super::errors::Invalid;

/// Checks a key.
///
/// # Errors
///
/// [`Invalid::EmptyKey`] for an empty key.
pub fn key(key: &Bytes) -> Result<(), Invalid> {
    if key.is_empty() { Err(Invalid::EmptyKey) } else { Ok(()) }
}

/// Checks the number of items in each list of a transaction. Returns `budget` minus the length of
/// the longest list: the budget of each nested transaction.
///
/// # Errors
///
/// [`Invalid::TooManyOperations`] if the longest list is longer than `budget`.
pub fn operations(compares: usize, success: usize, failure: usize, budget: usize) -> Result<usize, Invalid> {
    budget.checked_sub(compares.max(success).max(failure)).ok_or(Invalid::TooManyOperations)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budget_shrinks_by_the_longest_list() {
        assert_eq!(operations(0, 0, 0, 128), Ok(128));
        assert_eq!(operations(1, 2, 3, 128), Ok(125));
        for lists in [[128, 0, 0], [0, 128, 0], [0, 0, 128]] {
            assert_eq!(operations(lists[0], lists[1], lists[2], 128), Ok(0));
        }
        for lists in [[129, 0, 0], [0, 129, 0], [0, 0, 129]] {
            assert_eq!(operations(lists[0], lists[1], lists[2], 128), Err(Invalid::TooManyOperations));
        }
        assert_eq!(operations(0, 0, 0, 0), Ok(0));
    }

    #[test]
    fn keys_are_not_empty() {
        assert_eq!(key(&Bytes::new()), Err(Invalid::EmptyKey));
        assert_eq!(key(&Bytes::from_static(b"\0")), Ok(()));
    }
}
