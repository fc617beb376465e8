//! `etcdserverpb.Watch` (spec: etcd §2): any number of watchers on one stream.
//!
//! [`stream`] is one client's stream, [`watcher`] one watcher on it. A stream reads events from the
//! feed only after its client has taken the earlier ones. A client that stops reading costs its
//! position in the feed, and the responses of one read.

mod encode;
mod stream;
mod watcher;

use headwater_api_shared::stream_server::WatchServer;

/// Serves `etcdserverpb.Watch`.
pub(crate) type WatchService = WatchServer<stream::WatchStream>;
