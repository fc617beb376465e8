//! Operations of a transaction on rows of the catalog (spec: consul §8.3).

use std::sync::Arc;

use crate::catalog::Desk;
use crate::quota::row_bytes;
use crate::room::Room;
use crate::stop::Stop;
use headwater_storage::StorageError;
use headwater_types::catalog::{Check, Node, Service};
use headwater_types::consul::{CatalogVerb, TxnFaultReason, TxnItem, TxnRow};
use headwater_types::{LogIndex, Refusal};

/// Runs one operation. Returns its result, or the reason why it is not done. Nothing is written
/// before the staged rows are finished.
pub(super) fn run(
    desk: &mut Desk<'_, '_>,
    verb: CatalogVerb,
    row: &TxnRow,
    room: &mut Room,
) -> Result<Result<Option<TxnItem>, TxnFaultReason>, Stop> {
    let (stored, expected) = (find(desk, row)?, modified(row));
    let done = match (verb, &stored) {
        (CatalogVerb::Get, None) => return Ok(Err(TxnFaultReason::RowAbsent)),
        (CatalogVerb::Get, Some(stored)) if !room.tell(row_bytes(stored) as usize) => {
            return Ok(Err(TxnFaultReason::TooMuchTold));
        }
        (CatalogVerb::Get, Some(_)) => Ok(()),
        (CatalogVerb::Cas, None) if expected != LogIndex::ZERO => return Ok(Err(TxnFaultReason::Stale)),
        (CatalogVerb::Cas, Some(stored)) if expected == LogIndex::ZERO || modified(stored) != expected => {
            return Ok(Err(TxnFaultReason::Stale));
        }
        (CatalogVerb::DeleteCas, Some(stored)) if modified(stored) != expected => {
            return Ok(Err(TxnFaultReason::Stale));
        }
        (CatalogVerb::Set | CatalogVerb::Cas, _) => set(desk, row),
        (CatalogVerb::Delete | CatalogVerb::DeleteCas, _) => delete(desk, row),
    };
    match done {
        Ok(()) => {}
        Err(Stop::Refused(Refusal::Catalog(refusal))) => return Ok(Err(refusal.into())),
        Err(stop) => return Err(stop),
    }
    let is_delete = matches!(verb, CatalogVerb::Delete | CatalogVerb::DeleteCas);
    Ok(Ok(if is_delete || !room.is_wanted() { None } else { find(desk, row)?.map(TxnItem::Catalog) }))
}

/// The row that an operation names, with the changes of earlier operations.
fn find(desk: &Desk<'_, '_>, row: &TxnRow) -> Result<Option<TxnRow>, StorageError> {
    Ok(match row {
        TxnRow::Node(row) => desk.node(&row.name)?.map(|row| TxnRow::Node(Box::new(Node::clone(&row)))),
        TxnRow::Service(row) => {
            desk.service(&row.node, &row.id)?.map(|row| TxnRow::Service(Box::new(Service::clone(&row))))
        }
        TxnRow::Check(row) => desk.check(&row.node, &row.id)?.map(|row| TxnRow::Check(Box::new(Check::clone(&row)))),
    })
}

/// The row with its stored log indexes, once everything is written.
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

fn set(desk: &mut Desk<'_, '_>, row: &TxnRow) -> Result<(), Stop> {
    match row {
        TxnRow::Node(row) => desk.set_node(Node::clone(row)),
        TxnRow::Service(row) => desk.set_service(Service::clone(row)),
        TxnRow::Check(row) => desk.set_check(Check::clone(row)),
    }
}

fn delete(desk: &mut Desk<'_, '_>, row: &TxnRow) -> Result<(), Stop> {
    match row {
        TxnRow::Node(row) => desk.delete_node(&row.name),
        TxnRow::Service(row) => desk.delete_service(&row.node, &row.id),
        TxnRow::Check(row) => desk.delete_check(&row.node, &row.id),
    }
}
