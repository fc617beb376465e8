//! Sets the epoch of a new cluster. The first such command counts; later ones change nothing.

use headwater_storage::state::{StateReader, WriteTxn};
use headwater_types::{Outcome, StoreEpoch};

pub(super) fn apply(txn: &mut WriteTxn<'_>, epoch: StoreEpoch) -> Outcome {
    // Several members may propose an epoch at the same time; all but the first find it set.
    if txn.head().epoch.is_none() {
        txn.set_epoch(epoch);
    }
    Outcome::Bootstrapped
}
