//! `etcdserverpb.Watch` (spec: etcd §2): any number of watchers on one stream.
//!
//! [`stream`] is one client's stream, [`watcher`] one watcher on it. Events are pulled from the
//! feed when the client takes them: a client that stops reading costs an entry in a list, and one
//! response that is ready.

mod encode;
mod stream;
mod watcher;

use headwater_api_shared::stream_server::WatchServer;

/// Serves `etcdserverpb.Watch`.
pub(crate) type WatchService = WatchServer<stream::WatchStream>;
