//! Endpoints of servers that take requests on a connection and never answer one, with Tokio's clock
//! paused.

use std::convert::Infallible;
use std::future::{pending, ready};
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::time::Instant;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::server::NamedService;
use tonic::transport::Server;
use tonic::transport::server::{TcpConnectInfo, TcpIncoming};
use tonic::{Code, Status};

use super::endpoints::OPEN_TIMEOUT;
use super::{Attempt, CallError, Credentials, Endpoints, EventSource, Failure, Repeat};
use headwater_proto::pb::etcdserverpb::PutRequest;
use headwater_proto::pb::subscribe::SubscribeRequest;

/// Services that a server may have, by their numbers.
const SERVICES: [&str; 3] = ["subscribe.StateChangeSubscription", "etcdserverpb.Auth", "etcdserverpb.KV"];
const SUBSCRIBE: usize = 0;
const AUTH: usize = 1;
const KV: usize = 2;

/// A server of one service. Its first connection takes requests and never answers one, others
/// refuse every request.
#[derive(Clone, Default)]
struct SilentAtFirst<const SERVICE: usize> {
    /// The connection of each request.
    peers: Arc<Mutex<Vec<SocketAddr>>>,
}

impl<const SERVICE: usize> NamedService for SilentAtFirst<SERVICE> {
    const NAME: &'static str = SERVICES[SERVICE];
}

impl<const SERVICE: usize> Service<http::Request<Body>> for SilentAtFirst<SERVICE> {
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
        let status = match SERVICE {
            AUTH => Status::failed_precondition("etcdserver: authentication is not enabled"),
            _ => Status::unimplemented("refused"),
        };
        Box::pin(ready(Ok(status.into_http())))
    }
}

impl<const SERVICE: usize> SilentAtFirst<SERVICE> {
    /// Starts such a server.
    fn start() -> (Self, Endpoints) {
        let server = Self { peers: Arc::default() };
        let incoming = TcpIncoming::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let endpoints = Endpoints::new([incoming.local_addr().unwrap().to_string()]).unwrap();
        tokio::spawn(Server::builder().add_service(server.clone()).serve_with_incoming(incoming));
        (server, endpoints)
    }

    fn assert_two_connections(&self) {
        let peers = self.peers.lock();
        assert!(matches!(peers[..], [first, second] if first != second), "{peers:?}");
    }
}

/// The code of a refused subscription, and how long it took.
async fn subscribe(endpoints: &Endpoints) -> (Code, Duration) {
    let began = Instant::now();
    let refused = endpoints.subscribe(SubscribeRequest::default(), None).await.err().unwrap();
    (refused.code(), began.elapsed())
}

#[tokio::test(start_paused = true)]
async fn streams_that_are_not_opened_in_time_are_asked_for_by_one_new_connection() {
    let (server, endpoints) = SilentAtFirst::<SUBSCRIBE>::start();
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
    let (server, endpoints) = SilentAtFirst::<AUTH>::start();
    let endpoints = endpoints.as_user(Some(Credentials::new("alice", "secret")));
    assert_eq!(subscribe(&endpoints).await, (Code::Unavailable, OPEN_TIMEOUT));
    assert_eq!(subscribe(&endpoints).await.0, Code::Unimplemented, "the server has no Subscribe");
    server.assert_two_connections();
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_not_answered_in_time_is_made_again_by_a_new_connection() {
    let (server, endpoints) = SilentAtFirst::<KV>::start();
    let put = async |attempt: Attempt| attempt.kv().put(attempt.request(PutRequest::default())).await;
    let put = async || endpoints.call(Repeat::Harmful, Duration::from_secs(5), put).await.unwrap_err();
    let error = put().await;
    let CallError::Indeterminate(tried) = error else { panic!("{error:?}") };
    assert!(matches!(tried.failure, Failure::Timeout(_)), "{tried:?}");
    let error = put().await;
    assert!(matches!(error, CallError::Refused { .. }), "{error:?}");
    server.assert_two_connections();
}
