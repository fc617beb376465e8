//! Headwater: a replicated store that can be subscribed to. Start at ARCHITECTURE.md.
//!
//! This crate only re-exports crates of the workspace, so that they have one common name. Each of
//! them is a layer (ARCHITECTURE.md, "Layers").

pub use headwater_api as api;
pub use headwater_cli as cli;
pub use headwater_client as client;
pub use headwater_client::controller;
pub use headwater_fsm as fsm;
pub use headwater_node as node;
pub use headwater_proto::{codec, pb};
pub use headwater_raft as raft;
pub use headwater_schema as schema;
pub use headwater_server as server;
pub use headwater_storage as storage;
pub use headwater_stream as stream;
pub use headwater_tls as tls;
pub use headwater_types as types;
