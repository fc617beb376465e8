//! For authors of controllers: programs that watch resources and make other resources, or outside
//! systems, match them.
//!
//! Owns the loop around a [`Reconciler`]: the election of one active instance; a watch of each
//! relevant type; a queue that holds each resource once, and again later after an error. Uses the
//! public API of a cluster, so a controller runs anywhere and does not depend on one node. Knows
//! nothing of the work of a controller.
//!
//! A reconciler gets the name of a resource, never the event: it reads the current state, compares,
//! and corrects differences. So repeated or merged events do no harm, and a restart begins with all
//! resources.
//!
//! ```no_run
//! use headwater_client::controller::{Action, Client, Controller, Error, Reconciler};
//! use headwater_types::resource::{ResourceId, Type};
//!
//! struct Greeter;
//!
//! impl Reconciler for Greeter {
//!     async fn reconcile(&self, client: &Client, id: &ResourceId) -> Result<Action, Error> {
//!         match client.read(id).await? {
//!             Some(artist) => println!("{} is at version {}", id.name, artist.version),
//!             None => println!("{} is gone", id.name),
//!         }
//!         Ok(Action::Done)
//!     }
//! }
//!
//! # async fn run() -> Result<(), Error> {
//! let client = Client::new(["127.0.0.1:2379", "127.0.0.1:22379"])?;
//! let controller = Controller::new("greeter", Type::new("demo", "v2", "Artist"));
//! controller.run(client, Greeter, std::future::pending()).await;
//! # Ok(())
//! # }
//! ```

mod client;
mod election;
mod queue;
mod runtime;
mod watch;
pub mod wire;

pub use client::{Client, Error};
pub use queue::WorkQueue;
pub use runtime::{Action, Controller, Reconciler};
