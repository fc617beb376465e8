//! Resources as JSON over HTTP, below `/api/` (spec: consul §5.17): every type has a path of its
//! own, unless its registration says otherwise.
//!
//! Owns paths, queries and bodies. The resource service decides everything else. It is called in
//! this process, as the gateway calls its services, so its rules and the metrics of gRPC apply.
//! Knows types from the node's registry only, so a registered type has its path at once, on every
//! node.
//!
//! ```text
//! PUT    /api/demo/v2/artist/korn   {"data": {"name": "Korn"}}   200 the resource
//! PUT    /api/demo/v2/artist/korn?version=7                      409 if 7 is not the stored one
//! GET    /api/demo/v2/artist/korn                                200, 404
//! GET    /api/demo/v2/artist?name_prefix=k&namespace=*           200 {"resources": […]}
//! DELETE /api/demo/v2/artist/korn?version=7                      204, 409
//! ```

mod answer;
mod request;
mod types;

use std::convert::Infallible;

use futures::future::BoxFuture;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use prometheus::{IntCounterVec, Opts, Registry};
use tonic::body::Body;
use tower::Service;

use headwater_api_shared::ApiOptions;
use headwater_api_shared::caller::Caller;
use headwater_node::{Node, RequestContext};
use headwater_proto::pb::pbresource;
use headwater_proto::pb::pbresource::resource_service_client::ResourceServiceClient;

use answer::Refusal;
use request::{Path, Query, RequestMetadata, Target};

/// Serves the paths of resources.
pub(super) struct Rest {
    node: Node,
    options: ApiOptions,
    requests: IntCounterVec,
}

impl Rest {
    /// A service for the types of the node's registry.
    ///
    /// # Errors
    ///
    /// If `registry` already holds the counter.
    pub(super) fn new(node: Node, options: ApiOptions, registry: &Registry) -> Result<Self, prometheus::Error> {
        let opts = Opts::new("headwater_rest_requests_total", "Requests below /api/ by method and status code.");
        let requests = IntCounterVec::new(opts, &["method", "code"])?;
        registry.register(Box::new(requests.clone()))?;
        Ok(Self { node, options, requests })
    }

    /// Whether a path is `/api` or below it, even if nothing has the path.
    pub(super) fn owns(path: &str) -> bool {
        path.strip_prefix("/api").is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// Answers a request by calling `service`, which takes gRPC.
    pub(super) fn call<S>(&self, service: S, request: Request<Body>) -> BoxFuture<'static, Response<Body>>
    where
        S: Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Send + 'static,
        S::Future: Send,
    {
        let (node, options) = (self.node.clone(), self.options);
        let requests = self.requests.clone();
        Box::pin(async move {
            let method = request.method().clone();
            let answer = serve(&node, options, service, request).await.unwrap_or_else(Refusal::into_response);
            let label = match method {
                Method::GET | Method::PUT | Method::DELETE => method.as_str(),
                _ => "other",
            };
            requests.with_label_values(&[label, answer.status().as_str()]).inc();
            answer
        })
    }
}

async fn serve<S>(
    node: &Node,
    options: ApiOptions,
    service: S,
    request: Request<Body>,
) -> Result<Response<Body>, Refusal>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Send + 'static,
    S::Future: Send,
{
    let (parts, body) = request.into_parts();
    let path = Path::read(parts.uri.path())?;
    let context = Caller::of(&parts.extensions).fill(RequestContext::within(options.request_timeout));
    let served = types::find(node, &context, &path).await?;
    let target = Target { served, name: path.name.map(str::to_owned) };
    let query = Query::read(parts.uri.query())?;
    let mut client = ResourceServiceClient::new(service).max_decoding_message_size(usize::MAX);
    let extras = RequestMetadata::read(&parts.headers, &query)?;
    match (&parts.method, &target.name) {
        (&Method::GET, Some(name)) => {
            let id = target.id(name, &query);
            let read = client.read(extras.around(pbresource::ReadRequest { id: Some(id) })).await?;
            let (metadata, read, _) = read.into_parts();
            answer::resource(read.resource, &target.served, &metadata)
        }
        (&Method::GET, None) => {
            let list = pbresource::ListRequest {
                r#type: Some(target.type_to_pb()),
                tenancy: Some(target.tenancy(&query)),
                name_prefix: query.get("name_prefix").unwrap_or_default().to_owned(),
            };
            let (metadata, list, _) = client.list(extras.around(list)).await?.into_parts();
            let work = move || answer::list(list.resources, &target.served, &metadata);
            tokio::task::spawn_blocking(work).await.unwrap_or_else(|_| Err(answer::broken()))
        }
        (&Method::PUT, Some(name)) => {
            let body = Limited::new(body, options.json_bytes_max()).collect().await;
            let body = body.map_err(|error| Refusal::body(&*error))?.to_bytes();
            let resource = request::resource(&target, name, &query, &body)?;
            let size = prost::Message::encoded_len(&resource);
            let size_max = options.message_bytes_max();
            if size > size_max {
                let text = format!("the resource has {size} bytes, more than the {size_max} allowed");
                return Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, text));
            }
            let written = client.write(extras.around(pbresource::WriteRequest { resource: Some(resource) })).await?;
            let (metadata, written, _) = written.into_parts();
            answer::resource(written.resource, &target.served, &metadata)
        }
        (&Method::DELETE, Some(name)) => {
            // No read before the delete: this node's state might lack the resource yet, and the
            // version is the only condition.
            let version = query.get("version").unwrap_or_default().to_owned();
            let id = target.id(name, &query);
            client.delete(extras.around(pbresource::DeleteRequest { id: Some(id), version })).await?;
            Ok(answer::deleted())
        }
        (method, name) => Err(Refusal::method(method, name.is_some())),
    }
}

#[cfg(test)]
mod tests;
