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
use headwater_proto::pb::etcdserverpb::{WatchCreateRequest, WatchRequest};

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

/// Watches `key` from the revision `from` on. True once the key is removed; false if the watch ends
/// before. Raises `from` to the compaction point if the server reports a higher one.
async fn watch_removal(attempt: &Attempt, key: Bytes, from: &AtomicI64) -> Result<bool, Status> {
    let create = WatchCreateRequest {
        key,
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
        from.fetch_max(answer.compact_revision, Ordering::Relaxed);
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
