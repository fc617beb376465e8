//! One active instance of each controller at a time: an election over the cluster's own service,
//! and the lease that the leadership depends on.
//!
//! Invariant: leadership counts as lost as soon as the lease may have ended ([`HeldLease`]).

use std::time::Duration;

use tonic::Request;
use tracing::debug;

use super::client::{CALL_TIMEOUT, Client, Error};
use crate::{Attempt, HeldLease, Repeat};
use headwater_proto::pb::v3electionpb::CampaignRequest;

/// Time to live of a leadership that is not kept alive, seconds.
const TTL_SECONDS: i64 = 10;
/// Pause after a round in which all endpoints failed.
const RETRY_PAUSE: Duration = Duration::from_millis(250);

/// A candidate of the election, with the lease of its key. It leads after
/// [`campaign`](Self::campaign).
pub(super) struct Candidate<'a> {
    client: &'a Client,
    lease: HeldLease<'a>,
}

impl<'a> Candidate<'a> {
    pub(super) async fn open(client: &'a Client) -> Result<Self, Error> {
        let lease = HeldLease::grant(client.endpoints(), TTL_SECONDS, Repeat::Harmless, CALL_TIMEOUT).await?;
        Ok(Self { client, lease })
    }

    /// Waits until this instance leads, at any endpoint that answers. An error only if a server
    /// refuses it.
    pub(super) async fn campaign(&self, name: &str, value: &str) -> Result<(), Error> {
        let request = CampaignRequest {
            name: format!("headwater-controller/{name}").into_bytes().into(),
            lease: self.lease.id(),
            value: value.to_owned().into_bytes().into(),
        };
        // A campaign that is repeated with the same lease keeps its position in the queue.
        let call = async |attempt: Attempt| {
            let mut request = Request::new(request.clone());
            attempt.authorize(&mut request);
            attempt.election().campaign(request).await
        };
        self.client.endpoints().call_until_answered(RETRY_PAUSE, call).await?;
        Ok(())
    }

    /// Keeps the lease alive. Returns when it has ended or may have ended.
    pub(super) async fn keep_alive(&self) {
        self.lease.keep().await;
    }

    /// Revokes the lease, which ends the leadership, so that another instance may lead at once. If
    /// that fails, both end by themselves.
    pub(super) async fn resign(self) {
        // After its time to live the lease has ended without this.
        match tokio::time::timeout(self.lease.ttl(), self.lease.revoke()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                let status = error.into_status();
                debug!(error = status.message(), "the leadership was not given back; it ends by itself");
            }
            Err(_) => debug!("the leadership was not given back in time; it has ended by itself"),
        }
    }
}
