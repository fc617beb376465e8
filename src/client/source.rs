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
