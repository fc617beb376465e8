//! One controller of a name at a time: an election over the cluster's own service, and the lease
//! that the leadership hangs on.
//!
//! Invariant: leadership counts as lost as soon as the lease may have ended by this machine's
//! clock, whether or not anybody has said so.

use std::time::{Duration, Instant};

use tonic::transport::Channel;
use tracing::debug;

use super::client::{Client, Error, timed};
use crate::{keep_lease, lease_patience};
use headwater_proto::pb::etcdserverpb::lease_client::LeaseClient;
use headwater_proto::pb::etcdserverpb::{LeaseGrantRequest, LeaseKeepAliveRequest, LeaseRevokeRequest};
use headwater_proto::pb::v3electionpb::CampaignRequest;

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
        keep_lease(self.ttl, self.until, || self.keep_alive()).await;
    }

    /// The time to live by the first endpoint that answers; `None` if none does.
    async fn keep_alive(&self) -> Option<i64> {
        for channel in self.client.channels() {
            match tokio::time::timeout(lease_patience(self.ttl), self.sign_of_life(channel)).await {
                Ok(Ok(left)) => return Some(left),
                Ok(Err(error)) => debug!(%error, "keeping the leadership alive failed at an endpoint"),
                Err(_) => debug!("keeping the leadership alive was not answered in time by an endpoint"),
            }
            // Others begin elsewhere, too.
            self.client.go_on();
        }
        None
    }

    /// The time that the lease has again; 0 if it has ended.
    async fn sign_of_life(&self, channel: Channel) -> Result<i64, Error> {
        let requests = futures::stream::iter([LeaseKeepAliveRequest { id: self.lease }]);
        let mut answers = LeaseClient::new(channel).lease_keep_alive(timed(requests)).await?.into_inner();
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

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn an_endpoint_that_stands_still_does_not_cost_the_leadership() {
        let stopped =
            [TcpListener::bind("127.0.0.1:0").await.unwrap(), TcpListener::bind("127.0.0.1:0").await.unwrap()];
        let client = Client::new(stopped.iter().map(|it| it.local_addr().unwrap().to_string())).unwrap();
        let ttl = Duration::from_millis(3000);
        let seat = Seat { client: &client, lease: 1, ttl, until: Instant::now() + ttl };
        // They take connections and say nothing, like processes that were stopped.
        let all_asked = async {
            let mut open = Vec::new();
            for endpoint in &stopped {
                open.push(endpoint.accept().await.unwrap());
            }
            open
        };
        tokio::select! {
            () = seat.keep() => panic!("the lease is lost before the second endpoint was asked"),
            open = all_asked => assert_eq!(open.len(), 2),
        }
    }
}
