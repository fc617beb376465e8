//! Operations of a transaction on rows of the catalog (spec: consul §8.3).

use std::sync::Arc;

use crate::catalog::CatalogTxn;
use crate::error::FsmError;
use crate::quota::row_bytes;
use crate::read_budget::ReadBudget;
use headwater_storage::StorageError;
use headwater_types::catalog::{CatalogNode, Check, Service};
use headwater_types::consul::{CatalogVerb, TxnFaultReason, TxnItem, TxnRow};
use headwater_types::{LogIndex, Refusal};

/// Runs one operation on the staged rows. Returns its result, or the reason why it is not done. The
/// result is `None` for a deletion, and if results are not wanted.
pub(super) fn run(
    catalog: &mut CatalogTxn<'_, '_>,
    verb: CatalogVerb,
    row: &TxnRow,
    budget: &mut ReadBudget,
) -> Result<Result<Option<TxnItem>, TxnFaultReason>, FsmError> {
    let (stored, expected) = (find(catalog, row)?, modified(row));
    let done = match (verb, &stored) {
        (CatalogVerb::Get, None) => return Ok(Err(TxnFaultReason::RowAbsent)),
        (CatalogVerb::Get, Some(stored)) if !budget.take_result(row_bytes(stored) as usize) => {
            return Ok(Err(TxnFaultReason::ResultTooLarge));
        }
        (CatalogVerb::Get, Some(_)) => Ok(()),
        (CatalogVerb::Cas, None) if expected != LogIndex::ZERO => return Ok(Err(TxnFaultReason::Stale)),
        (CatalogVerb::Cas, Some(stored)) if expected == LogIndex::ZERO || modified(stored) != expected => {
            return Ok(Err(TxnFaultReason::Stale));
        }
        (CatalogVerb::DeleteCas, Some(stored)) if modified(stored) != expected => {
            return Ok(Err(TxnFaultReason::Stale));
        }
        (CatalogVerb::Set | CatalogVerb::Cas, _) => set(catalog, row),
        (CatalogVerb::Delete | CatalogVerb::DeleteCas, _) => delete(catalog, row),
    };
    match done {
        Ok(()) => {}
        Err(FsmError::Refused(Refusal::Catalog(refusal))) => return Ok(Err(refusal.into())),
        Err(stop) => return Err(stop),
    }
    let is_delete = matches!(verb, CatalogVerb::Delete | CatalogVerb::DeleteCas);
    Ok(Ok(if is_delete || !budget.is_wanted() { None } else { find(catalog, row)?.map(TxnItem::Catalog) }))
}

/// The row that an operation names, with the changes of earlier operations.
fn find(catalog: &CatalogTxn<'_, '_>, row: &TxnRow) -> Result<Option<TxnRow>, StorageError> {
    Ok(match row {
        TxnRow::Node(row) => catalog.node(&row.name)?.map(|row| TxnRow::Node(Box::new(CatalogNode::clone(&row)))),
        TxnRow::Service(row) => {
            catalog.service(&row.node, &row.id)?.map(|row| TxnRow::Service(Box::new(Service::clone(&row))))
        }
        TxnRow::Check(row) => catalog.check(&row.node, &row.id)?.map(|row| TxnRow::Check(Box::new(Check::clone(&row)))),
    })
}

/// The stored row with the key of `row`, to be read after the writes: only the stored row has its
/// log indexes. `None` if it is absent.
pub(super) fn as_stored(
    stored: &impl headwater_storage::state::CatalogReader,
    row: &TxnRow,
) -> Result<Option<TxnRow>, StorageError> {
    Ok(match row {
        TxnRow::Node(row) => stored.node(&row.name)?.value.map(|row| TxnRow::Node(Box::new(Arc::unwrap_or_clone(row)))),
        TxnRow::Service(row) => {
            stored.service(&row.node, &row.id)?.map(|it| TxnRow::Service(Box::new(Arc::unwrap_or_clone(it.row))))
        }
        TxnRow::Check(row) => {
            stored.check(&row.node, &row.id)?.map(|it| TxnRow::Check(Box::new(Arc::unwrap_or_clone(it.row))))
        }
    })
}

fn modified(row: &TxnRow) -> LogIndex {
    match row {
        TxnRow::Node(row) => row.modified,
        TxnRow::Service(row) => row.modified,
        TxnRow::Check(row) => row.modified,
    }
}

fn set(catalog: &mut CatalogTxn<'_, '_>, row: &TxnRow) -> Result<(), FsmError> {
    match row {
        TxnRow::Node(row) => catalog.set_node(CatalogNode::clone(row)),
        TxnRow::Service(row) => catalog.set_service(Service::clone(row)),
        TxnRow::Check(row) => catalog.set_check(Check::clone(row)),
    }
}

fn delete(catalog: &mut CatalogTxn<'_, '_>, row: &TxnRow) -> Result<(), FsmError> {
    match row {
        TxnRow::Node(row) => catalog.delete_node(&row.name),
        TxnRow::Service(row) => catalog.delete_service(&row.node, &row.id),
        TxnRow::Check(row) => catalog.delete_check(&row.node, &row.id),
    }
}
