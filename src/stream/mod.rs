//! Delivery of committed changes to subscribers: topics, feeds, subscriptions (ARCHITECTURE.md §7).
//!
//! Owns topics, subjects, the live lists, the window of recent commits, catch-up, the snapshot
//! cache and its memory budget. Knows nothing of RocksDB, Raft or wire formats: commits older than
//! the window are read through [`History`]. `docs/adding-a-topic.md` is the recipe for a new topic.
//!
//! Invariants: publishing never waits for a reader and takes no lock across anything that can
//! block; a subscription yields every matching change once, in order, a commit's changes together,
//! or it ends with a [`CloseReason`].
//!
//! ```text
//! publish ─► Feed<T> ─ window: the last commits, bounded in items and bytes; owns every list node
//!               ├── subject A: node ─► node ─► tail ◄── readers hold a link of the list, never a node
//!               └── subject B: tail
//! reader:  live list ──(its next node left the window)──► window ──► history ──► window ──► live list
//! ```

mod catalog;
mod catch_up;
mod cluster;
mod commit;
mod event_publisher;
mod feed;
mod intervals;
mod kv;
mod link;
mod listing;
mod publisher;
mod resource;
mod run;
mod session;
mod slab;
mod snapshot;
mod state_memory;
mod subscription;
mod topic;
mod window;

pub use catalog::{Catalog, CatalogIndex, CatalogMemo, CatalogSubject};
pub use catch_up::{Chunk, History, ScanLimits};
pub use cluster::{ClusterChanges, ClusterIndex, ClusterSubject};
pub use commit::{Commit, Derived, Item};
pub use event_publisher::EventPublisher;
pub use feed::{Feed, FeedOptions, FeedStats, Start};
pub use kv::{Encoding, Kv, KvMemo};
pub use listing::{Effect, Entries, EntryFilter, Listing, ListingError, ListingStep};
pub use publisher::{NoSubscribers, Publisher, StatePoint};
pub use resource::{ResourceIndex, ResourceMemo, Resources};
pub use run::{Run, RunBounds};
pub use session::Session;
pub use snapshot::{Snapshot, SnapshotCache};
pub use state_memory::{StateMemory, StateShare};
pub use subscription::{CloseReason, Subscription};
pub use topic::{SubjectIndex, Topic};

#[cfg(test)]
mod tests;
