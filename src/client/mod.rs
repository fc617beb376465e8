//! For programs that follow the service catalog: views that keep themselves up to date.
//!
//! Owns the client's side of Subscribe (spec: consul §3): a [`MaterializedView`] folds a stream
//! into a state, begins again where it was when the stream breaks, at whichever endpoint answers,
//! and any number of callers wait for its changes. A [`ViewStore`] shares views among callers of
//! the same subject, and evicts unused ones. Knows the public API alone, so it works against any
//! member and outlives every one. Invariant: a view shows the state at its index, whole: neither a
//! snapshot that is still coming nor a part of a commit is ever visible.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use headwater_client::{Endpoints, MaterializedView, ServiceHealth};
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let endpoints = Endpoints::new(["127.0.0.1:2379", "127.0.0.1:22379"])?;
//! let view = MaterializedView::start(ServiceHealth::of("web").passing_only(), endpoints);
//! let mut index = 0;
//! loop {
//!     let web = view.query(index, Duration::from_secs(60)).await?;
//!     for instance in web.state.instances() {
//!         println!("{}: {instance:?}", web.index);
//!     }
//!     index = web.index;
//! }
//! # }
//! ```

mod backoff;
pub mod controller;
mod endpoints;
mod fold;
mod health;
mod lease;
mod list;
mod store;
mod topic;
mod view;

pub use backoff::Backoff;
pub use endpoints::channel;
pub use endpoints::{BadEndpoint, EPOCH, Endpoints, EventSource, Opened, Shown};
pub use health::{InstanceKey, Instances, ServiceHealth};
pub use lease::{keep_lease, lease_patience};
pub use list::{Names, ServiceList};
pub use store::{StoreOptions, ViewStore};
pub use topic::{Rejected, ViewTopic};
pub use view::{MaterializedView, View, ViewError};

#[cfg(test)]
mod tests;
