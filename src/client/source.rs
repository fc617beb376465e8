//! Source of a view's events: a subscription at any member.

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use tonic::metadata::MetadataValue;
use tonic::{Request, Status};

use super::attempt::Attempt;
use super::endpoints::{Endpoints, OPEN_TIMEOUT};
use headwater_proto::pb::subscribe::{Event, SubscribeRequest};

/// Metadata: the lineage that indexes belong to. On answers, and on requests that name an index to
/// resume after or a minimum index.
pub const EPOCH: &str = "headwater-epoch";
/// Metadata of a request: the log index that the state of the answer must have reached.
const MIN_INDEX: &str = "headwater-min-index";

/// An open subscription.
pub struct Opened {
    /// The lineage that its indexes belong to, if the server names it.
    pub epoch: Option<String>,
    /// The events of the subscription.
    pub events: BoxStream<'static, Result<Event, Status>>,
}

/// Position of the state that a view shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Lineage of the state.
    pub epoch: String,
    /// Log index of the state.
    pub index: u64,
}

/// The source of a view's events: endpoints at which it subscribes. A clone has its own preferred
/// endpoint: the failover of one view does not move others.
pub trait EventSource: Send + Sync + 'static {
    /// Opens a subscription. `shown` is the position of the view's present state; `None` if it has
    /// none, or its lineage is unknown. A request with index 0 must not be answered with an older
    /// state of the same lineage.
    fn subscribe(&self, request: SubscribeRequest, shown: Option<Shown>) -> BoxFuture<'static, Result<Opened, Status>>;

    /// Makes the next attempt at the next endpoint, because the last one failed.
    fn fail_over(&self);

    /// Number of endpoints; at least one.
    fn endpoints(&self) -> usize;
}

impl EventSource for Endpoints {
    fn subscribe(&self, request: SubscribeRequest, shown: Option<Shown>) -> BoxFuture<'static, Result<Opened, Status>> {
        let endpoints = self.clone();
        Box::pin(async move {
            let shown = shown.and_then(|shown| Some((MetadataValue::try_from(shown.epoch).ok()?, shown.index)));
            let call = async |attempt: Attempt| {
                let begins = request.index == 0;
                let mut request = Request::new(request.clone());
                if let Some((epoch, index)) = &shown {
                    request.metadata_mut().insert(EPOCH, epoch.clone());
                    if begins {
                        request.metadata_mut().insert(MIN_INDEX, (*index).into());
                    }
                }
                attempt.authorize(&mut request);
                attempt.subscriptions().subscribe(request).await
            };
            let response = endpoints.open(endpoints.preferred(), Some(OPEN_TIMEOUT), call).await?;
            let epoch = response.metadata().get(EPOCH).and_then(|epoch| epoch.to_str().ok()).map(str::to_owned);
            Ok(Opened { epoch, events: response.into_inner().boxed() })
        })
    }

    fn fail_over(&self) {
        self.fail_over(self.preferred());
    }

    fn endpoints(&self) -> usize {
        self.names().count()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::future::{pending, ready};
    use std::net::SocketAddr;
    use std::sync::Arc;
    use std::task::{Context, Poll};
    use std::time::Duration;

    use parking_lot::Mutex;
    use tokio::time::Instant;
    use tonic::Code;
    use tonic::body::Body;
    use tonic::codegen::Service;
    use tonic::server::NamedService;
    use tonic::transport::Server;
    use tonic::transport::server::{TcpConnectInfo, TcpIncoming};

    use super::*;
    use crate::Credentials;

    /// A server's Subscribe, or its Auth: its first connection takes requests and never answers
    /// one.
    #[derive(Clone, Default)]
    struct SilentAtFirst<const IS_AUTH: bool> {
        /// The connection of each request.
        peers: Arc<Mutex<Vec<SocketAddr>>>,
    }

    impl<const IS_AUTH: bool> NamedService for SilentAtFirst<IS_AUTH> {
        const NAME: &'static str = if IS_AUTH { "etcdserverpb.Auth" } else { "subscribe.StateChangeSubscription" };
    }

    impl<const IS_AUTH: bool> Service<http::Request<Body>> for SilentAtFirst<IS_AUTH> {
        type Response = http::Response<Body>;
        type Error = Infallible;
        type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, request: http::Request<Body>) -> Self::Future {
            let peer = request.extensions().get::<TcpConnectInfo>().and_then(TcpConnectInfo::remote_addr).unwrap();
            let mut peers = self.peers.lock();
            peers.push(peer);
            if peers[0] == peer {
                return Box::pin(pending());
            }
            let status = match IS_AUTH {
                true => Status::failed_precondition("etcdserver: authentication is not enabled"),
                false => Status::unimplemented("answered"),
            };
            Box::pin(ready(Ok(status.into_http())))
        }
    }

    /// The endpoints of one such server.
    fn serve<const IS_AUTH: bool>(server: &SilentAtFirst<IS_AUTH>) -> Endpoints {
        let incoming = TcpIncoming::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let endpoints = Endpoints::new([incoming.local_addr().unwrap().to_string()]).unwrap();
        tokio::spawn(Server::builder().add_service(server.clone()).serve_with_incoming(incoming));
        endpoints
    }

    /// The code of a refused subscription, and how long it took.
    async fn subscribe(endpoints: &Endpoints) -> (Code, Duration) {
        let began = Instant::now();
        let refused = endpoints.subscribe(SubscribeRequest::default(), None).await.err().unwrap();
        (refused.code(), began.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn streams_that_are_not_opened_in_time_are_asked_for_by_one_new_connection() {
        let server = SilentAtFirst::<false>::default();
        let endpoints = serve(&server);
        let two_attempts = async |after: Duration| {
            tokio::time::sleep(after).await;
            assert_eq!(subscribe(&endpoints).await, (Code::DeadlineExceeded, OPEN_TIMEOUT));
            assert_eq!(subscribe(&endpoints).await.0, Code::Unimplemented);
        };
        // The second gives up the old connection when the new one is in its place.
        tokio::join!(two_attempts(Duration::ZERO), two_attempts(Duration::from_secs(10)));
        let peers = server.peers.lock();
        assert_eq!((peers[0], peers[2]), (peers[1], peers[3]), "{peers:?}");
        assert_ne!(peers[0], peers[2]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_that_does_not_come_in_time_is_asked_for_by_a_new_connection() {
        let server = SilentAtFirst::<true>::default();
        let endpoints = serve(&server).as_user(Some(Credentials::new("alice", "secret")));
        assert_eq!(subscribe(&endpoints).await, (Code::Unavailable, OPEN_TIMEOUT));
        assert_eq!(subscribe(&endpoints).await.0, Code::Unimplemented, "the server has no Subscribe");
        let peers = server.peers.lock();
        assert!(matches!(peers[..], [first, second] if first != second), "{peers:?}");
    }
}
