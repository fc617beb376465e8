//! A lease that is kept alive, for the holder of a lock or a leadership.
//!
//! Owns the times of keep-alives, and the choice of the endpoint. Knows nothing of the holder.
//! Invariant: the lease counts as ended as soon as it may have ended by this machine's clock, even
//! without an answer of a member. So a suspended process notices it when it continues.

use std::time::{Duration, Instant};

use tonic::Code;
use tracing::debug;

use super::attempt::Attempt;
use super::endpoints::{CallError, Endpoints, Repeat};
use headwater_proto::pb::etcdserverpb::{LeaseGrantRequest, LeaseRevokeRequest};

/// Pause after a round in which all endpoints failed.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// A lease that was granted to this process. It ends by itself unless [`keep`](Self::keep) runs.
#[derive(Debug)]
pub struct HeldLease<'a> {
    endpoints: &'a Endpoints,
    id: i64,
    ttl: Duration,
    /// End of the lease at the earliest, if it is not kept alive.
    granted_until: Instant,
    timeout: Duration,
}

impl<'a> HeldLease<'a> {
    /// Grants a lease. With [`Repeat::Harmless`] the request is repeated although a lost attempt
    /// may have granted another lease, which then ends by itself. `timeout` is the longest wait for
    /// each answer, also to later requests about the lease.
    ///
    /// # Errors
    ///
    /// [`CallError`].
    pub async fn grant(
        endpoints: &'a Endpoints,
        ttl_seconds: i64,
        repeat: Repeat,
        timeout: Duration,
    ) -> Result<Self, CallError> {
        let asked = Instant::now();
        let request = LeaseGrantRequest { ttl: ttl_seconds, id: 0 };
        let granted =
            endpoints.call(repeat, timeout, async |a| a.lease().lease_grant(a.request(request)).await).await?;
        let granted = granted.into_inner();
        let ttl = Duration::from_secs(granted.ttl.unsigned_abs());
        Ok(Self { endpoints, id: granted.id, ttl, granted_until: asked + ttl, timeout })
    }

    /// The id of the lease.
    #[must_use]
    pub fn id(&self) -> i64 {
        self.id
    }

    /// The time to live that the server granted.
    #[must_use]
    pub fn ttl(&self) -> Duration {
        self.ttl
    }

    /// Keeps the lease alive, with one keep-alive every third of its time to live. Returns when the
    /// lease has ended or may have ended.
    pub async fn keep(&self) {
        let mut until = self.granted_until;
        let mut next = Instant::now() + self.ttl / 3;
        loop {
            tokio::time::sleep_until(next.min(until).into()).await;
            if Instant::now() >= until {
                return;
            }
            let asked = Instant::now();
            match tokio::time::timeout_at(until.into(), self.ask()).await {
                Ok(Some(left)) if left > 0 => {
                    until = asked + self.ttl;
                    next = asked + self.ttl / 3;
                }
                Ok(Some(_)) | Err(_) => return,
                Ok(None) => next = Instant::now() + RETRY_PAUSE,
            }
        }
    }

    /// The time to live, seconds, by the first endpoint that answers; 0 if the lease has ended,
    /// `None` if no endpoint answers. Each endpoint has a sixth of the time to live, so that others
    /// can still be asked.
    async fn ask(&self) -> Option<i64> {
        for number in self.endpoints.order() {
            let call = async |attempt: Attempt| attempt.keep_alive(self.id).await;
            let limit = self.ttl / 6;
            // Shorter than the limit, so that a connection that does not answer is given up.
            let once = self.endpoints.open(number, Some(self.timeout.min(limit * 3 / 4)), call);
            match tokio::time::timeout(limit, once).await {
                Ok(Ok(Some(answer))) => return Some(answer.ttl),
                Ok(Ok(None)) => debug!(number, "an endpoint ended a keep-alive without an answer"),
                Ok(Err(error)) => debug!(number, %error, "a keep-alive failed at an endpoint"),
                Err(_) => debug!(number, "a keep-alive was not answered in time by an endpoint"),
            }
            self.endpoints.fail_over(number);
        }
        None
    }

    /// Revokes the lease, and so removes the keys that are attached to it. A lease that has ended
    /// already is no error.
    ///
    /// # Errors
    ///
    /// [`CallError`]; if the lease was not revoked, it ends by itself.
    pub async fn revoke(&self) -> Result<(), CallError> {
        let request = LeaseRevokeRequest { id: self.id };
        let call = async |a: super::Attempt| a.lease().lease_revoke(a.request(request)).await;
        match self.endpoints.call(Repeat::Harmless, self.timeout, call).await {
            Err(CallError::Refused { status, .. }) if status.code() == Code::NotFound => Ok(()),
            revoked => revoked.map(drop),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn an_endpoint_that_stands_still_does_not_cost_the_lease() {
        let stopped =
            [TcpListener::bind("127.0.0.1:0").await.unwrap(), TcpListener::bind("127.0.0.1:0").await.unwrap()];
        let endpoints = Endpoints::new(stopped.iter().map(|it| it.local_addr().unwrap().to_string())).unwrap();
        let (ttl, timeout) = (Duration::from_millis(3000), Duration::from_secs(10));
        let lease = HeldLease { endpoints: &endpoints, id: 1, ttl, granted_until: Instant::now() + ttl, timeout };
        // These endpoints take connections and send nothing, like processes that were stopped.
        let all_asked = async {
            let mut open = Vec::new();
            for endpoint in &stopped {
                open.push(endpoint.accept().await.unwrap());
            }
            open
        };
        tokio::select! {
            () = lease.keep() => panic!("the lease is lost before the second endpoint was asked"),
            open = all_asked => assert_eq!(open.len(), 2),
        }
    }
}
