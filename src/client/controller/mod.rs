//! For authors of controllers: programs that watch resources and make the world, or other
//! resources, follow.
//!
//! Owns the loop around a [`Reconciler`]: one instance at a time, elected; a watch of the types
//! that matter; a queue in which each resource is once, however often it changed, and comes back
//! later if it could not be dealt with. Talks to a cluster by its public API, so a controller runs
//! anywhere and outlives every node. Knows nothing of the work of a controller.
//!
//! A reconciler gets the name of a resource, never the event: it reads the present state, compares,
//! and corrects differences. So events that come twice, or together, do no harm, and a restart
//! begins by looking at everything.
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
