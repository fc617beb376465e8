//! A lease that is kept alive while a command holds something.
//!
//! Invariant: the session counts as over as soon as the lease may have ended ([`keep_lease`]).

use std::time::{Duration, Instant};

use bytes::Bytes;
use tonic::{Code, Status};

use crate::connect::{Attempt, Cluster, Repeat};
use crate::error::CliError;
use headwater_client::{keep_lease, lease_patience};
use headwater_proto::pb::etcdserverpb::watch_create_request::FilterType;
use headwater_proto::pb::etcdserverpb::watch_request::RequestUnion;
use headwater_proto::pb::etcdserverpb::{
    LeaseGrantRequest, LeaseKeepAliveRequest, LeaseRevokeRequest, WatchCreateRequest, WatchRequest,
};

/// Pause after every endpoint was tried in vain.
const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// Text of a server to a contender without its key.
const PLACE_LOST: [&str; 2] = ["mutex: session is expired", "election: not leader"];

pub(super) struct Session<'a> {
    cluster: &'a Cluster,
    pub(super) lease: i64,
    ttl: Duration,
    /// Until when the lease lives at least, if it began when its grant was asked for.
    granted_until: Instant,
}

impl<'a> Session<'a> {
    pub(super) async fn open(cluster: &'a Cluster, ttl: i64) -> Result<Self, CliError> {
        let asked = Instant::now();
        let request = LeaseGrantRequest { ttl, id: 0 };
        let granted = cluster.call(Repeat::Harmful, async |a| a.lease().lease_grant(a.request(request)).await).await?;
        let ttl = Duration::from_secs(granted.ttl.unsigned_abs());
        Ok(Self { cluster, lease: granted.id, ttl, granted_until: asked + ttl })
    }

    /// Keeps the lease alive; comes back when it has ended or may have.
    pub(super) async fn keep(&self) {
        keep_lease(self.ttl, self.granted_until, || self.keep_alive()).await;
    }

    /// The time to live by the first endpoint that answers; `None` if none does.
    async fn keep_alive(&self) -> Option<i64> {
        let patience = lease_patience(self.ttl);
        for number in 0..self.cluster.names().count() {
            let once = async {
                let attempt = self.cluster.attempt(number).await.ok()?;
                let request = futures::stream::iter([LeaseKeepAliveRequest { id: self.lease }]);
                let mut answers = attempt.lease().lease_keep_alive(attempt.request(request)).await.ok()?.into_inner();
                answers.message().await.ok()?
            };
            if let Ok(Some(answer)) = tokio::time::timeout(patience, once).await {
                return Some(answer.ttl);
            }
        }
        None
    }

    /// Asks one endpoint after the other until one says that it is the session's turn: nothing is
    /// repeated that could do harm, for a contender keeps its place.
    pub(super) async fn contend<T>(&self, ask: impl AsyncFn(&Attempt) -> Result<T, Status>) -> Result<T, CliError> {
        loop {
            for (number, name) in self.cluster.names().enumerate() {
                let Ok(attempt) = self.cluster.attempt(number).await else { continue };
                match ask(&attempt).await {
                    Ok(answer) => return Ok(answer),
                    // A member that lost its client may have given this contender up; the session
                    // decides, not the place.
                    Err(status) if PLACE_LOST.contains(&status.message()) => {}
                    Err(status) => match status.code() {
                        Code::Unavailable | Code::Cancelled | Code::Internal | Code::ResourceExhausted => {}
                        Code::Unknown if std::error::Error::source(&status).is_some() => {}
                        _ => return Err(CliError::Refused { endpoint: name.to_owned(), status: Box::new(status) }),
                    },
                }
            }
            tokio::time::sleep(RETRY_PAUSE).await;
        }
    }

    /// Comes back when `key`, which was there at `revision`, has been removed: by hand, say, for a
    /// lease that ends is noticed by [`keep`](Self::keep), with or without an endpoint that
    /// answers.
    pub(super) async fn removed(&self, key: Bytes, revision: i64) {
        let mut from = revision + 1;
        loop {
            for number in 0..self.cluster.names().count() {
                let Ok(attempt) = self.cluster.attempt(number).await else { continue };
                if watch_removal(&attempt, key.clone(), &mut from).await.unwrap_or(false) {
                    return;
                }
            }
            tokio::time::sleep(RETRY_PAUSE).await;
        }
    }

    /// Ends the lease, and with it the lock or the leadership.
    pub(super) async fn close(&self) -> Result<(), CliError> {
        let request = LeaseRevokeRequest { id: self.lease };
        let revoked =
            self.cluster.call(Repeat::Harmless, async |a| a.lease().lease_revoke(a.request(request)).await).await;
        match revoked {
            // It had ended already.
            Err(CliError::Refused { status, .. }) if status.code() == Code::NotFound => Ok(()),
            result => result.map(drop),
        }
    }
}

/// Whether the key was removed; false if the watch ended before that. Moves `from` past compacted
/// revisions.
async fn watch_removal(attempt: &Attempt, key: Bytes, from: &mut i64) -> Result<bool, Status> {
    let create = WatchCreateRequest {
        key,
        start_revision: *from,
        filters: vec![FilterType::Noput.into()],
        ..WatchCreateRequest::default()
    };
    let create = WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) };
    // The client's side stays open: a server may end a stream that its client has closed (spec:
    // etcd §2.1).
    let requests = futures::StreamExt::chain(futures::stream::iter([create]), futures::stream::pending());
    let mut streaming = tonic::Request::new(requests);
    streaming.metadata_mut().insert("hasleader", tonic::metadata::MetadataValue::from_static("true"));
    let mut answers = attempt.watch().watch(streaming).await?.into_inner();
    while let Some(answer) = answers.message().await? {
        if !answer.events.is_empty() {
            return Ok(true);
        }
        *from = (*from).max(answer.compact_revision);
    }
    Ok(false)
}
