//! Where events come from: a list of members, of which any will do.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use thiserror::Error;
use tonic::metadata::MetadataValue;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};

use headwater_proto::pb::subscribe::state_change_subscription_client::StateChangeSubscriptionClient;
use headwater_proto::pb::subscribe::{Event, SubscribeRequest};

/// Longest wait for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// How often an open connection asks whether the other side is there, and how long it waits for an
/// answer: a stream is silent for as long as nothing changes.
const KEEPALIVE: Duration = Duration::from_secs(5);

/// Metadata: the lineage that indexes belong to, on answers and on requests that resume.
pub const EPOCH: &str = "headwater-epoch";
/// Metadata: the state that an answer must not be older than.
const MIN_INDEX: &str = "headwater-min-index";

/// A text that names no endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0:?} is not an endpoint; write HOST:PORT")]
pub struct BadEndpoint(pub String);

/// An open subscription.
pub struct Opened {
    /// The lineage that its indexes belong to, if the server says it.
    pub epoch: Option<String>,
    /// Its events.
    pub events: BoxStream<'static, Result<Event, Status>>,
}

/// State that a view shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// The lineage of its state.
    pub epoch: String,
    /// The index of its state.
    pub index: u64,
}

/// Where a view subscribes. A clone has its own position among the endpoints: the failover of one
/// view does not move others.
pub trait EventSource: Send + Sync + 'static {
    /// Opens a subscription. `shown` is the present state of the view: a request without an index
    /// must not be answered with an older state of the same lineage.
    fn subscribe(&self, request: SubscribeRequest, shown: Option<Shown>) -> BoxFuture<'static, Result<Opened, Status>>;

    /// The last attempt failed: make the next one elsewhere.
    fn go_on(&self);

    /// How many attempts it takes until everybody was asked, count; at least one.
    fn endpoints(&self) -> usize;
}

/// Members of a cluster; a view goes on at the next one when one does not answer. Clones share
/// connections, and nothing else.
#[derive(Debug)]
pub struct Endpoints {
    channels: Arc<[Channel]>,
    current: AtomicUsize,
}

impl Clone for Endpoints {
    fn clone(&self) -> Self {
        let current = AtomicUsize::new(self.current.load(Ordering::Relaxed));
        Self { channels: Arc::clone(&self.channels), current }
    }
}

impl Endpoints {
    /// Names the members, as `HOST:PORT`; connects when it is first needed.
    ///
    /// # Errors
    ///
    /// [`BadEndpoint`] for one that makes no sense, or if there is none. Needs a Tokio runtime
    /// around it.
    pub fn new<S: AsRef<str>>(endpoints: impl IntoIterator<Item = S>) -> Result<Self, BadEndpoint> {
        let channels = endpoints.into_iter().map(|name| channel(name.as_ref())).collect::<Result<Vec<_>, _>>()?;
        if channels.is_empty() {
            return Err(BadEndpoint(String::new()));
        }
        Ok(Self { channels: channels.into(), current: AtomicUsize::default() })
    }
}

/// A connection to a member, made when it is first needed.
///
/// # Errors
///
/// [`BadEndpoint`] for a text that names none.
pub fn channel(name: &str) -> Result<Channel, BadEndpoint> {
    let refused = || BadEndpoint(name.to_owned());
    let endpoint = if name.starts_with("unix:") {
        let path = name.strip_prefix("unix://").or_else(|| name.strip_prefix("unix:"));
        let path = path.filter(|path| path.starts_with('/') && !path.ends_with('/')).ok_or_else(refused)?;
        Endpoint::from_shared(format!("unix://{path}")).map_err(|_| refused())?
    } else {
        let authority = name.strip_prefix("http://").unwrap_or(name).trim_end_matches('/');
        let uri: http::Uri = format!("http://{authority}").parse().map_err(|_| refused())?;
        uri.port_u16().ok_or_else(refused)?;
        Endpoint::from(uri)
    };
    let endpoint = endpoint.connect_timeout(CONNECT_TIMEOUT).tcp_nodelay(true);
    let endpoint = endpoint.http2_keep_alive_interval(KEEPALIVE).keep_alive_timeout(KEEPALIVE);
    Ok(endpoint.connect_lazy())
}

impl EventSource for Endpoints {
    fn subscribe(&self, request: SubscribeRequest, shown: Option<Shown>) -> BoxFuture<'static, Result<Opened, Status>> {
        let channel = self.channels[self.current.load(Ordering::Relaxed) % self.channels.len()].clone();
        Box::pin(async move {
            let mut client = StateChangeSubscriptionClient::new(channel).max_decoding_message_size(usize::MAX);
            let begins = request.index == 0;
            let mut request = Request::new(request);
            if let Some(shown) = shown
                && let Ok(epoch) = MetadataValue::try_from(shown.epoch)
            {
                request.metadata_mut().insert(EPOCH, epoch);
                if begins {
                    request.metadata_mut().insert(MIN_INDEX, shown.index.into());
                }
            }
            let response = client.subscribe(request).await?;
            let epoch = response.metadata().get(EPOCH).and_then(|epoch| epoch.to_str().ok()).map(str::to_owned);
            Ok(Opened { epoch, events: response.into_inner().boxed() })
        })
    }

    fn go_on(&self) {
        self.current.fetch_add(1, Ordering::Relaxed);
    }

    fn endpoints(&self) -> usize {
        self.channels.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn views_that_go_past_the_same_member_meet_at_the_next() {
        let stopped_and_healthy = Endpoints::new(["127.0.0.1:1", "127.0.0.1:2"]).unwrap();
        let views = [stopped_and_healthy.clone(), stopped_and_healthy.clone()];
        views.iter().for_each(EventSource::go_on);
        let at = |view: &Endpoints| view.current.load(Ordering::Relaxed) % view.endpoints();
        assert_eq!(views.each_ref().map(at), [1, 1]);
    }

    #[tokio::test]
    async fn an_endpoint_is_a_host_and_a_port_or_a_socket() {
        for (name, is_good) in [
            ("127.0.0.1:2379", true),
            ("http://localhost:2379/", true),
            ("[::1]:2379", true),
            ("localhost", false),
            ("", false),
            ("a b:1", false),
            ("unix:///run/s.sock", true),
            ("unix:/run/s.sock", true),
            ("unix://s.sock", false),
        ] {
            assert_eq!(Endpoints::new([name]).is_ok(), is_good, "{name:?}");
        }
        assert_eq!(Endpoints::new([""; 0]).err(), Some(BadEndpoint(String::new())));
    }
}
