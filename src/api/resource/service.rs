//! The methods of the service: decode, check, call the node, encode.

use std::future::Future;

use http::HeaderMap;
use prost::Message;
use tonic::server::Grpc;
use tonic::{Request, Response, Status};
use tower::service_fn;

use super::errors::Failure;
use super::{metadata, validate, watch};
use headwater_api_shared::ApiOptions;
use headwater_api_shared::context::{self, reply};
use headwater_api_shared::grpc_request::{GrpcFuture, GrpcRequest};
use headwater_api_shared::stream_metrics::WatchMetrics;
use headwater_api_shared::stream_server::server_streaming;
use headwater_node::{Node, Read, RequestContext, ResourceQuery};
use headwater_proto::pb::{SizedCodec, pbresource as pb};
use headwater_types::resource::Resource;

/// Serves `hashicorp.consul.resource.ResourceService`; cheap to clone.
#[derive(Clone)]
pub struct ResourceService {
    pub(super) node: Node,
    pub(super) options: ApiOptions,
    pub(super) metrics: WatchMetrics,
}

/// A request of a method, split into its parts.
pub(super) struct Call<M> {
    pub(super) context: RequestContext,
    pub(super) metadata: HeaderMap,
    pub(super) message: M,
}

impl ResourceService {
    /// The service of `node`. Watch streams are counted in `metrics`.
    pub fn new(node: Node, options: ApiOptions, metrics: WatchMetrics) -> Self {
        Self { node, options, metrics }
    }

    /// Answers one call. The last part of the path is the method; an unknown one is
    /// `UNIMPLEMENTED`.
    pub fn call(&self, request: GrpcRequest) -> GrpcFuture {
        let service = self.clone();
        let method = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
        match method.as_str() {
            "Read" => service.unary(request, Self::read),
            "Write" => service.unary(request, Self::write),
            "WriteStatus" => service.unary(request, Self::write_status),
            "List" => service.unary(request, Self::list),
            "ListByOwner" => service.unary(request, Self::list_by_owner),
            "Delete" => service.unary(request, Self::delete),
            "MutateAndValidate" => service.unary(request, Self::mutate_and_validate),
            "WatchList" => server_streaming(service.options, request, move |request| {
                let service = service.clone();
                async move { Ok(watch::open(service.clone(), service.take(request)?).await?) }
            }),
            other => {
                let status = Status::unimplemented(format!("unknown method {other}"));
                Box::pin(std::future::ready(Ok(status.into_http())))
            }
        }
    }

    /// Answers a call of a method with one message each way.
    fn unary<M, A, F>(self, request: GrpcRequest, method: fn(Self, Call<M>) -> F) -> GrpcFuture
    where
        M: Message + Default + 'static,
        A: Message + Default + 'static,
        F: Future<Output = Result<Response<A>, Failure>> + Send + 'static,
    {
        Box::pin(async move {
            let codec = SizedCodec::<A, M>::default();
            let mut grpc = Grpc::new(codec).max_decoding_message_size(self.options.message_bytes_max());
            let answer = service_fn(move |request: Request<M>| {
                let service = self.clone();
                async move {
                    let call = service.take(request)?;
                    Ok::<_, Status>(method(service, call).await?)
                }
            });
            Ok(grpc.unary(answer, request).await)
        })
    }

    fn take<M>(&self, request: Request<M>) -> Result<Call<M>, Failure> {
        let (metadata, extensions, message) = request.into_parts();
        let context = context::read(metadata.as_ref(), &extensions, self.options.request_timeout)?;
        Ok(Call { context, metadata: metadata.into_headers(), message })
    }

    async fn read(self, call: Call<pb::ReadRequest>) -> Result<Response<pb::ReadResponse>, Failure> {
        let id = validate::id(call.message.id, "id")?;
        let consistency = metadata::consistency(&call.metadata);
        let read = self.node.resources().read(&call.context, consistency, id).await?;
        let (index, resource) = encoded(read);
        Ok(reply(index, pb::ReadResponse { resource }))
    }

    async fn write(self, call: Call<pb::WriteRequest>) -> Result<Response<pb::WriteResponse>, Failure> {
        let (resource, expected) = validate::resource(call.message.resource)?;
        let written = self.node.resources().write(&call.context, resource, expected).await?;
        let (index, resource) = encoded(written);
        Ok(reply(index, pb::WriteResponse { resource }))
    }

    async fn write_status(
        self,
        call: Call<pb::WriteStatusRequest>,
    ) -> Result<Response<pb::WriteStatusResponse>, Failure> {
        let validate::StatusWrite { id, key, status, expected } = validate::status(call.message)?;
        let written = self.node.resources().write_status(&call.context, id, key, status, expected).await?;
        let (index, resource) = encoded(written);
        Ok(reply(index, pb::WriteStatusResponse { resource }))
    }

    async fn list(self, call: Call<pb::ListRequest>) -> Result<Response<pb::ListResponse>, Failure> {
        let pb::ListRequest { r#type, tenancy, name_prefix } = call.message;
        let selector = validate::selector(r#type, tenancy, name_prefix, None)?;
        let (page_size, page) = metadata::page(&call.metadata)?;
        let consistency = metadata::consistency(&call.metadata);
        let query = ResourceQuery { selector, page_size, page };
        let listed = self.node.resources().list(&call.context, consistency, query).await?;
        let resources = listed.value.resources.into_iter().map(Into::into).collect();
        let mut response = reply(listed.index, pb::ListResponse { resources });
        if let Some(next) = &listed.value.next {
            response.metadata_mut().as_mut().insert(metadata::PAGE_TOKEN, metadata::write_token(next));
        }
        Ok(response)
    }

    async fn list_by_owner(
        self,
        call: Call<pb::ListByOwnerRequest>,
    ) -> Result<Response<pb::ListByOwnerResponse>, Failure> {
        let owner = validate::owner(call.message.owner)?;
        let listed = self.node.resources().list_by_owner(&call.context, owner).await?;
        let resources = listed.value.into_iter().map(Into::into).collect();
        Ok(reply(listed.index, pb::ListByOwnerResponse { resources }))
    }

    async fn delete(self, call: Call<pb::DeleteRequest>) -> Result<Response<pb::DeleteResponse>, Failure> {
        let id = validate::id(call.message.id, "id")?;
        let expected = validate::expected(&call.message.version);
        let deleted = self.node.resources().delete(&call.context, id, expected).await?;
        Ok(reply(deleted.index, pb::DeleteResponse {}))
    }

    async fn mutate_and_validate(
        self,
        call: Call<pb::MutateAndValidateRequest>,
    ) -> Result<Response<pb::MutateAndValidateResponse>, Failure> {
        // Nothing is stored, so the version is echoed unchecked.
        let version = call.message.resource.as_ref().map(|resource| resource.version.clone()).unwrap_or_default();
        let (resource, _) = validate::resource(call.message.resource)?;
        let judged = self.node.resources().mutate_and_validate(&call.context, resource).await?;
        let (index, resource) = encoded(judged);
        let resource = resource.map(|resource| pb::Resource { version, ..resource });
        Ok(reply(index, pb::MutateAndValidateResponse { resource }))
    }
}

fn encoded(read: Read<Resource>) -> (headwater_types::LogIndex, Option<pb::Resource>) {
    (read.index, Some(read.value.into()))
}
