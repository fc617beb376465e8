//! One controller of a name at a time: an election over the cluster's own service, and the lease that the leadership hangs on.
//!
//! Invariant: leadership counts as lost as soon as the lease may have ended by this machine's clock, whether or not anybody
//! has said so.

use std::time::{Duration, Instant};

use tracing::debug;

use super::client::{Client, Error, timed};
use crate::pb::etcdserverpb::lease_client::LeaseClient;
use crate::pb::etcdserverpb::{LeaseGrantRequest, LeaseKeepAliveRequest, LeaseRevokeRequest};
use crate::pb::v3electionpb::CampaignRequest;

/// Time to live of a leadership without a sign of life, seconds.
const TTL_SECONDS: i64 = 10;
/// Pause after something failed.
const RETRY_PAUSE: Duration = Duration::from_millis(250);

/// A leadership, or the way to it.
pub(super) struct Seat<'a> {
    client: &'a Client,
    lease: i64,
    ttl: Duration,
    until: Instant,
}

impl<'a> Seat<'a> {
    pub(super) async fn open(client: &'a Client) -> Result<Self, Error> {
        let asked = Instant::now();
        let request = LeaseGrantRequest { ttl: TTL_SECONDS, id: 0 };
        // A lease that nobody hears of ends by itself.
        let call = |channel| async move { LeaseClient::new(channel).lease_grant(timed(request)).await };
        let granted = client.call(true, call).await?.into_inner();
        let ttl = Duration::from_secs(granted.ttl.unsigned_abs());
        Ok(Self { client, lease: granted.id, ttl, until: asked + ttl })
    }

    /// Waits until it is this one's turn.
    pub(super) async fn win(&self, name: &str, value: &str) -> Result<(), Error> {
        loop {
            let request = CampaignRequest {
                name: format!("headwater-controller/{name}").into_bytes().into(),
                lease: self.lease,
                value: value.to_owned().into_bytes().into(),
            };
            match self.client.election().campaign(request).await {
                Ok(_) => return Ok(()),
                // Called again with the same lease, it keeps its place.
                Err(status) if status.code() == tonic::Code::Unavailable => {
                    debug!(error = status.message(), "standing for election goes on elsewhere");
                    self.client.go_on();
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
                Err(status) => return Err(status.into()),
            }
        }
    }

    /// Keeps the lease alive; comes back when it has ended or may have.
    pub(super) async fn keep(&self) {
        let mut until = self.until;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let asked = Instant::now();
            match tokio::time::timeout(left, self.sign_of_life()).await {
                Ok(Ok(0)) | Err(_) => return,
                Ok(Ok(_)) => {
                    until = asked + self.ttl;
                    tokio::time::sleep(self.ttl / 3).await;
                }
                Ok(Err(error)) => {
                    debug!(%error, "keeping the leadership alive failed");
                    self.client.go_on();
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
            }
        }
    }

    /// The time that the lease has again; 0 if it has ended.
    async fn sign_of_life(&self) -> Result<i64, Error> {
        let requests = futures::stream::iter([LeaseKeepAliveRequest { id: self.lease }]);
        let mut answers = self.client.lease().lease_keep_alive(timed(requests)).await?.into_inner();
        let answer = answers.message().await?;
        answer.map(|answer| answer.ttl).ok_or_else(|| Error::Other("keeping alive was not answered".to_owned()))
    }

    /// Gives up: another one may lead at once.
    pub(super) async fn leave(self) {
        let request = LeaseRevokeRequest { id: self.lease };
        let revoked = self.client.lease().lease_revoke(timed(request)).await;
        if let Err(status) = revoked {
            debug!(error = status.message(), "the leadership was not given back; it ends by itself");
        }
    }
}
