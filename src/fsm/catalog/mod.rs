//! What commands about the catalog do (spec: consul §2).

use super::stop::Stop;
use crate::storage::state::WriteTxn;
use crate::types::catalog::{CatalogCommand, CatalogRefusal};
use crate::types::{LogIndex, Outcome, Refusal};

/// Applies a command of the log entry at `index`.
pub(super) fn apply(_txn: &mut WriteTxn<'_>, _index: LogIndex, _command: &CatalogCommand) -> Result<Outcome, Stop> {
    unimplemented!("follows in the next commit")
}

impl From<CatalogRefusal> for Stop {
    fn from(refusal: CatalogRefusal) -> Self {
        Self::Refused(Refusal::Catalog(refusal))
    }
}
