//! The client's side of a cluster: endpoints with failover, backoff, leases, views and controllers.
//!
//! Owns when a request may go to another endpoint. [`Endpoints`] is the one failover of this
//! project; the head of its module has the contract. A [`HeldLease`] is kept alive at any of them;
//! [`controller`] builds on both. A [`MaterializedView`] folds a stream of Subscribe (spec: consul
//! §3) into a state, resumes at the next endpoint when the stream breaks, and wakes callers that
//! wait for changes. A [`ViewStore`] shares views of one subject, and evicts unused ones. Knows the
//! public API alone, so it works against any member. Invariant: a view shows the state at its
//! index, whole: neither an incomplete snapshot nor a part of a commit is ever visible.
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

mod address;
mod attempt;
mod backoff;
mod commit;
pub mod controller;
mod credentials;
mod endpoints;
mod fold;
mod health;
mod history;
mod lease;
mod list;
mod source;
mod store;
mod topic;
mod verdict;
mod view;

pub use address::{BadEndpoint, endpoint_url, socket_path};
pub use attempt::Attempt;
pub use backoff::Backoff;
pub use commit::{CommitError, CommitTimeouts};
pub use credentials::Credentials;
pub use endpoints::{CallError, Endpoints, FailedAttempt, Failure, Repeat};
pub use health::{InstanceKey, Instances, ServiceHealth};
pub use history::{History, Store};
pub use lease::HeldLease;
pub use list::{Names, ServiceList};
pub use source::{EPOCH, EventSource, Opened, Shown};
pub use store::{StoreOptions, ViewStore};
pub use topic::{Rejected, ViewTopic};
pub use verdict::is_final_for_streams;
pub use view::{MaterializedView, View, ViewError};

#[cfg(test)]
mod silent_server;
#[cfg(test)]
mod tests;
