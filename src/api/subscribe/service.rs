//! The method `Subscribe`: decode, check, begin a stream.

use std::sync::Arc;

use http::HeaderMap;
use tonic::{Request, Response};

use super::errors::Failure;
use super::payload;
use super::reader::Reader;
use super::remote;
use super::request::{self, Invalid};
use super::stream::EventStream;
use headwater_api_shared::ApiOptions;
use headwater_api_shared::context;
use headwater_api_shared::frames::Frames;
use headwater_api_shared::grpc_request::{GrpcFuture, GrpcRequest};
use headwater_api_shared::stream::Driver;
use headwater_api_shared::stream_metrics::WatchMetrics;
use headwater_api_shared::stream_server::server_streaming;
use headwater_node::{
    Authorizer, CatalogSubject, Encode, Node, NodeError, Position, Principal, RequestContext, Secret, Session,
    WatchStart,
};
use headwater_proto::pb::subscribe::SubscribeRequest;
use headwater_types::{Access, AuthRefusal, KeyRange, LogIndex, Refusal, Space};

/// Serves `subscribe.StateChangeSubscription`; cheap to clone.
#[derive(Clone)]
pub struct SubscribeService {
    node: Node,
    options: ApiOptions,
    metrics: WatchMetrics,
    encode: Encode,
}

impl SubscribeService {
    /// The service of `node`. Streams are counted in `metrics`.
    pub fn new(node: Node, options: ApiOptions, metrics: WatchMetrics) -> Self {
        let datacenter: Arc<str> = node.datacenter().into();
        let encode: Encode = Arc::new(move |event| payload::encoded(event, &datacenter));
        Self { node, options, metrics, encode }
    }

    /// Answers one call of the only method, `Subscribe`; other paths must not be routed here.
    pub fn call(&self, request: GrpcRequest) -> GrpcFuture {
        let service = self.clone();
        server_streaming(self.options, request, move |request: Request<SubscribeRequest>| {
            let service = service.clone();
            async move {
                let (metadata, extensions, message) = request.into_parts();
                let context = context::read(metadata.as_ref(), &extensions, service.options.request_timeout)?;
                Ok(service.open(context, metadata.into_headers(), message).await?)
            }
        })
    }

    async fn open(
        self,
        mut context: RequestContext,
        metadata: HeaderMap,
        message: SubscribeRequest,
    ) -> Result<Response<Frames>, Failure> {
        // The token is a field of the request; metadata is for clients that cannot set it.
        if !message.token.is_empty() {
            context.principal = Principal::Bearer(Secret::new(message.token.clone()));
            self.node.learn_token(&context).await;
        }
        let here = self.node.datacenter();
        if !message.datacenter.is_empty() && message.datacenter != here {
            let Some(endpoints) = self.node.remote_datacenter(&message.datacenter) else {
                return Err(Invalid::Datacenter { asked: message.datacenter, here: here.to_owned() }.into());
            };
            permit_forwarding(&self.node.authorizer(&context)?)?;
            return remote::open(&self.node, endpoints, context.deadline, &metadata, message).await;
        }
        let subject = request::subject(&message)?;
        let reader = Reader::new(&self.node, &context)?;
        let epoch = context::epoch(&metadata).map_err(|context::InvalidEpoch| Invalid::Metadata("headwater-epoch"))?;
        let deadline = context::client_deadline(&metadata)?;
        let start = match message.index {
            // This node may never reach an index of another lineage.
            0 => match epoch.zip(context.min_index) {
                Some((epoch, index)) => {
                    context.min_index = None;
                    WatchStart::State { since: Some(Position { index, epoch: Some(epoch) }) }
                }
                None => WatchStart::STATE,
            },
            index => WatchStart::After(Position { index: LogIndex(index), epoch }),
        };
        let session = Session::new();
        let is_of_names = subject == CatalogSubject::ServiceList;
        let watch = self.node.follow().catalog(&context, subject, start, &session, Arc::clone(&self.encode)).await?;
        let stream = EventStream::new(watch, self.encode, is_of_names, reader);
        let driver = Driver::new(&self.node, &self.metrics, session, stream).until(deadline);
        let applied = *self.node.applied().borrow();
        Ok(context::reply_with_epoch(self.node.epoch(), applied, driver.into_frames()))
    }
}

/// Permits a request to be forwarded to another datacenter, which judges it again by its own
/// rights.
///
/// # Errors
///
/// If the principal is anonymous and may not read the name of any service.
fn permit_forwarding(authorizer: &Authorizer) -> Result<(), NodeError> {
    let Some(rights) = authorizer.rights() else { return Ok(()) };
    if authorizer.is_anonymous() && !rights.touches(Space::CatalogService, &KeyRange::all(), Access::READ) {
        return Err(Refusal::Auth(AuthRefusal::UserEmpty).into());
    }
    Ok(())
}
