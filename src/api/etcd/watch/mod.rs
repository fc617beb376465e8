//! `etcdserverpb.Watch` (spec: etcd §2): any number of watchers on one stream.
//!
//! [`stream`] is one client's stream, [`watcher`] one watcher on it. Messages are pulled from the
//! feed when the client takes it: a client that stops reading costs a place in a list, and one
//! response that is ready.

mod encode;
mod stream;
mod watcher;

use tonic::{Status, Streaming};

use crate::shared::watch_service::{Frames, WatchFace, WatchParts, WatchServer};
use headwater_node::RequestContext;
use headwater_proto::pb::etcdserverpb as pb;

/// Serves `etcdserverpb.Watch`.
pub(crate) type WatchService = WatchServer<Watch>;

/// The method.
pub(crate) enum Watch {}

impl WatchFace for Watch {
    type Request = pb::WatchRequest;

    fn open(
        parts: WatchParts,
        context: RequestContext,
        requests: Streaming<pb::WatchRequest>,
    ) -> Result<Frames, Status> {
        Ok(stream::WatchStream::new(parts, context, requests).into_frames())
    }
}
