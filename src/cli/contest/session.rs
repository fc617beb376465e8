//! The lease that a lock or a leadership depends on, and the calls of its contender.
//!
//! Owns the calls that wait in a queue. Knows neither locks nor elections. Invariant: a [`Session`]
//! counts as over as soon as its lease may have ended ([`HeldLease`]).

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tonic::{Response, Status};

use crate::connect::Cluster;
use crate::error::CliError;
use crate::kv::watch::STALE_TOKEN;
use headwater_client::{Attempt, HeldLease, Repeat};
use headwater_proto::pb::etcdserverpb::watch_create_request::FilterType;
use headwater_proto::pb::etcdserverpb::watch_request::RequestUnion;
use headwater_proto::pb::etcdserverpb::{RangeRequest, WatchCreateRequest, WatchRequest};

/// Pause after a round in which all endpoints failed.
const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// Error texts of a server for a contender that has lost its key.
const KEY_LOST: [&str; 2] = ["mutex: session is expired", "election: not leader"];

/// A lease that was granted for one lock or leadership. Not a session of Consul or of a stream.
pub(super) struct Session<'a> {
    cluster: &'a Cluster,
    lease: HeldLease<'a>,
}

impl<'a> Session<'a> {
    pub(super) async fn open(cluster: &'a Cluster, ttl: i64) -> Result<Self, CliError> {
        let lease = HeldLease::grant(cluster.endpoints(), ttl, Repeat::Harmful, cluster.timeout()).await?;
        Ok(Self { cluster, lease })
    }

    /// The id of the lease.
    pub(super) fn lease(&self) -> i64 {
        self.lease.id()
    }

    /// Keeps the lease alive. Returns when it has expired or may have.
    pub(super) async fn keep(&self) {
        self.lease.keep().await;
    }

    /// Repeats `call`, which waits for the lock or the leadership, until an endpoint answers or
    /// refuses it. A repeated call keeps the contender's position in the queue, unless its key was
    /// removed.
    pub(super) async fn contend<T>(
        &self,
        call: impl AsyncFn(Attempt) -> Result<Response<T>, Status>,
    ) -> Result<T, CliError> {
        let call = async |attempt: Attempt| match call(attempt).await {
            // A member that lost its client may have removed this contender from the queue: the
            // call is repeated as long as the session lives.
            Err(status) if KEY_LOST.contains(&status.message()) => Err(Status::unavailable(status.message())),
            answered => answered,
        };
        Ok(self.cluster.endpoints().call_until_answered(RETRY_PAUSE, call).await?.into_inner())
    }

    /// Returns when `key`, which existed at `revision`, has been removed, by another client for
    /// example. Does not return while no endpoint answers: [`keep`](Self::keep) notices that the
    /// lease ends.
    pub(super) async fn removed(&self, key: Bytes, revision: i64) {
        let from = AtomicI64::new(revision + 1);
        loop {
            let endpoints = self.cluster.endpoints();
            for number in endpoints.order() {
                let call = async |attempt: Attempt| watch_removal(&attempt, key.clone(), &from).await;
                if endpoints.open(number, None, call).await.unwrap_or(false) {
                    return;
                }
                endpoints.fail_over(number);
            }
            tokio::time::sleep(RETRY_PAUSE).await;
        }
    }

    /// Revokes the lease, and with it releases the lock or the leadership.
    pub(super) async fn close(&self) -> Result<(), CliError> {
        Ok(self.lease.revoke().await?)
    }
}

/// Whether the key was removed at revision `from` or later; false if the watch ended before that.
/// Moves `from` past compacted revisions at which the key was not removed.
async fn watch_removal(attempt: &Attempt, key: Bytes, from: &AtomicI64) -> Result<bool, Status> {
    let create = WatchCreateRequest {
        key: key.clone(),
        start_revision: from.load(Ordering::Relaxed),
        filters: vec![FilterType::Noput.into()],
        ..WatchCreateRequest::default()
    };
    let create = WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) };
    // The client's side stays open: a server may end a stream that its client has closed (spec:
    // etcd §2.1).
    let requests = futures::StreamExt::chain(futures::stream::iter([create]), futures::stream::pending());
    let mut streaming = tonic::Request::new(requests);
    attempt.authorize(&mut streaming);
    streaming.metadata_mut().insert("hasleader", tonic::metadata::MetadataValue::from_static("true"));
    let mut answers = attempt.watch().watch(streaming).await?.into_inner();
    while let Some(answer) = answers.message().await? {
        if !answer.events.is_empty() {
            return Ok(true);
        }
        if answer.compact_revision > 0 {
            // The removal may be among the changes that the watch can no longer show.
            return is_gone(attempt, key, from).await;
        }
        if answer.canceled {
            // A cancel reason about the token becomes a status, so that the client gets a new
            // token.
            return match answer.cancel_reason.contains(STALE_TOKEN) {
                true => Err(Status::unauthenticated(answer.cancel_reason)),
                false => Ok(false),
            };
        }
    }
    Ok(false)
}

/// Reads whether the key was removed at revision `from` or later, even if it was made again. Moves
/// `from` past the revision of the read if it was not.
async fn is_gone(attempt: &Attempt, key: Bytes, from: &AtomicI64) -> Result<bool, Status> {
    let found = attempt.kv().range(attempt.request(RangeRequest { key, ..Default::default() })).await?.into_inner();
    let since = from.load(Ordering::Relaxed);
    if found.kvs.first().is_none_or(|kv| kv.create_revision >= since) {
        return Ok(true);
    }
    let revision = found.header.map_or(0, |header| header.revision);
    from.fetch_max(revision + 1, Ordering::Relaxed);
    Ok(false)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures::stream::{self, BoxStream};
    use tonic::transport::Server;
    use tonic::transport::server::TcpIncoming;
    use tonic::{Request, Streaming};

    use super::*;
    use headwater_client::Endpoints;
    use headwater_proto::pb::etcdserverpb as pb;
    use headwater_proto::pb::etcdserverpb::kv_server::{Kv, KvServer};
    use headwater_proto::pb::etcdserverpb::watch_server::{Watch, WatchServer};
    use headwater_proto::pb::mvccpb::KeyValue;

    /// A server at revision 9, whose history is compacted through 8.
    #[derive(Clone)]
    struct Compacted {
        /// The revision at which the key was created; `None` if there is no key.
        created: Option<i64>,
        /// The revision at which the last watch began.
        watched: Arc<AtomicI64>,
    }

    #[tonic::async_trait]
    impl Watch for Compacted {
        type WatchStream = BoxStream<'static, Result<pb::WatchResponse, Status>>;

        async fn watch(
            &self,
            request: Request<Streaming<WatchRequest>>,
        ) -> Result<Response<Self::WatchStream>, Status> {
            let Some(WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) }) =
                request.into_inner().message().await?
            else {
                return Err(Status::invalid_argument("no watch"));
            };
            self.watched.store(create.start_revision, Ordering::Relaxed);
            let created = pb::WatchResponse { created: true, ..Default::default() };
            let ended = match create.start_revision {
                ..8 => pb::WatchResponse { canceled: true, compact_revision: 8, ..Default::default() },
                _ => pb::WatchResponse { canceled: true, ..Default::default() },
            };
            Ok(Response::new(Box::pin(stream::iter([Ok(created), Ok(ended)]))))
        }
    }

    #[tonic::async_trait]
    impl Kv for Compacted {
        type RangeStreamStream = BoxStream<'static, Result<pb::RangeStreamResponse, Status>>;

        async fn range(&self, _: Request<RangeRequest>) -> Result<Response<pb::RangeResponse>, Status> {
            let header = Some(pb::ResponseHeader { revision: 9, ..Default::default() });
            let kv = |create_revision| KeyValue { create_revision, ..Default::default() };
            let kvs = self.created.map(kv).into_iter().collect();
            Ok(Response::new(pb::RangeResponse { header, kvs, ..Default::default() }))
        }

        async fn range_stream(&self, _: Request<RangeRequest>) -> Result<Response<Self::RangeStreamStream>, Status> {
            Err(Status::unimplemented(""))
        }

        async fn put(&self, _: Request<pb::PutRequest>) -> Result<Response<pb::PutResponse>, Status> {
            Err(Status::unimplemented(""))
        }

        async fn delete_range(
            &self,
            _: Request<pb::DeleteRangeRequest>,
        ) -> Result<Response<pb::DeleteRangeResponse>, Status> {
            Err(Status::unimplemented(""))
        }

        async fn txn(&self, _: Request<pb::TxnRequest>) -> Result<Response<pb::TxnResponse>, Status> {
            Err(Status::unimplemented(""))
        }

        async fn compact(&self, _: Request<pb::CompactionRequest>) -> Result<Response<pb::CompactionResponse>, Status> {
            Err(Status::unimplemented(""))
        }
    }

    #[tokio::test]
    async fn a_removal_below_the_compaction_is_noticed() {
        for (created, is_removed) in [(None, true), (Some(6), true), (Some(4), false)] {
            let server = Compacted { created, watched: Arc::default() };
            let watched = Arc::clone(&server.watched);
            let incoming = TcpIncoming::bind("127.0.0.1:0".parse().unwrap()).unwrap();
            let name = incoming.local_addr().unwrap().to_string();
            let services = Server::builder().add_service(WatchServer::new(server.clone()));
            tokio::spawn(services.add_service(KvServer::new(server)).serve_with_incoming(incoming));
            let attempt = Endpoints::new([name]).unwrap().connect(0, None).await.unwrap();
            let from = AtomicI64::new(5);
            let removed = watch_removal(&attempt, "lock".into(), &from).await.unwrap();
            assert_eq!((removed, watched.load(Ordering::Relaxed)), (is_removed, 5), "{created:?}");
            if !is_removed {
                assert!(!watch_removal(&attempt, "lock".into(), &from).await.unwrap());
                assert_eq!(watched.load(Ordering::Relaxed), 10, "what was read is not watched again");
            }
        }
    }
}
