//! Records of a newer program are told from damaged ones.

use super::bed::TestBed;
use crate::StorageError;
use crate::state::options::{HISTORY, VERSIONS};
use headwater_types::Revision;

#[test]
fn a_record_that_only_a_newer_program_can_read_is_not_called_damaged() {
    for family in [HISTORY, VERSIONS] {
        for (first, is_newer) in [(0xFF, true), (0, false)] {
            let bed = TestBed::new();
            bed.commit(1, &[("key", Some("value"))]);
            let db = bed.store.current();
            let handle = db.db.cf_handle(family).unwrap();
            let stored = db.db.iterator_cf(handle, rocksdb::IteratorMode::End).next().unwrap().unwrap();
            db.db.put_cf(handle, &stored.0, [first, 1, 2, 3]).unwrap();
            let error = db.view().unwrap().kv_hash(Revision(2)).unwrap_err();
            assert_eq!(matches!(error, StorageError::TooNew(_)), is_newer, "{family}: {error}");
            assert_eq!(matches!(error, StorageError::Corrupt { .. }), !is_newer, "{family}: {error}");
        }
    }
}
