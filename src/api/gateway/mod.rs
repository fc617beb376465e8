//! JSON over HTTP, `/v3/*` (spec: etcd §4.6) and `/v1/store/*`: every method that has an HTTP
//! annotation, by calling its gRPC service in this process.
//!
//! Generic: [`routes`] reads paths and message types from the descriptors, [`json`] reads requests,
//! and [`mod@write`] writes answers. So a new service gets its paths from the annotations in its
//! proto, and nothing here knows any method or imports any face. The checks of gRPC (limits,
//! deadlines, metadata, counting) apply, because the gRPC service is called.
//!
//! ```text
//! POST /v3/kv/put   {"key": "Zm9v", "value": "YmFy"}      bytes are base64
//! 200               {"header":{"revision":"2", …}}        64-bit integers are strings
//! POST /v3/watch    {"create_request": {"key": "Zm9v"}}   any number of requests in a row
//! 200               {"result":{"created":true, …}}        one line for each answer
//! ```

mod answer;
mod body;
mod codec;
mod data;
pub(super) mod json;
mod layout;
mod routes;
mod split;
mod stream;
mod write;

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use prometheus::{IntCounterVec, Opts, Registry};
use prost_reflect::DescriptorPool;
use tonic::body::Body;
use tonic::{Code, Status};
use tower::{Service, ServiceExt};

use self::answer::AnswerWriter;
use self::codec::{EncodedCodec, Fault};
use self::layout::Layouts;
use self::routes::Route;
use self::stream::Deadline;
use headwater_api_shared::ApiOptions;
use headwater_api_shared::{http_errors, http_metadata};
use headwater_node::Node;
use headwater_proto::pb::PUBLIC_DESCRIPTORS;

/// Serves the paths of the gateway.
pub(super) struct Gateway {
    /// The node, which knows the registered types of resources; `None` in tests.
    node: Option<Node>,
    /// Routes by the path in the annotations of the protos.
    routes: HashMap<String, Arc<Route>>,
    layouts: Arc<Layouts>,
    requests: IntCounterVec,
    /// Longest JSON of one message, bytes.
    json_bytes_max: usize,
}

/// Value of the metric's label `path` for requests without a route.
const UNKNOWN: &str = "unknown";

impl Gateway {
    /// A gateway to all annotated methods for which `serves` is true; `serves` gets the gRPC path
    /// of a method. The registered types of resources are those of `node`, if there is one.
    ///
    /// # Errors
    ///
    /// If `registry` already holds the counter.
    pub(super) fn new(
        node: Option<Node>,
        serves: impl Fn(&str) -> bool,
        options: ApiOptions,
        registry: &Registry,
    ) -> Result<Self, prometheus::Error> {
        let opts = Opts::new(
            "headwater_gateway_requests_total",
            "Requests of JSON over HTTP by path and status code; a stream counts when it begins.",
        );
        let requests = IntCounterVec::new(opts, &["path", "code"])?;
        registry.register(Box::new(requests.clone()))?;
        let pool = DescriptorPool::decode(PUBLIC_DESCRIPTORS).expect("a descriptor set that was compiled in");
        let layouts = Arc::new(Layouts::new(&pool));
        let json_bytes_max = options.json_bytes_max();
        Ok(Self { node, routes: routes::routes(&pool, serves), layouts, requests, json_bytes_max })
    }

    /// Whether a path belongs to the gateway, even if no route has it.
    pub(super) fn owns(path: &str) -> bool {
        ["/v3", "/v3beta", "/v1/store"]
            .into_iter()
            .any(|prefix| path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
    }

    /// Answers a request by calling `service`, which takes gRPC. Without a route the answer is 404;
    /// for a method other than POST, 405.
    pub(super) fn call<S>(&self, service: S, request: Request<Body>) -> BoxFuture<'static, Response<Body>>
    where
        S: Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Send + 'static,
        S::Future: Send,
    {
        let route = self.route(request.uri().path()).cloned();
        let (requests, json_bytes_max) = (self.requests.clone(), self.json_bytes_max);
        let (layouts, node) = (Arc::clone(&self.layouts), self.node.clone());
        Box::pin(async move {
            let response = match &route {
                None => unknown(request.uri().path()),
                Some(_) if request.method() != Method::POST => only_post(request.method()),
                Some(route) => answer(route, service, request, json_bytes_max, (node, &layouts))
                    .await
                    .unwrap_or_else(|status| http_errors::response(&status)),
            };
            let path = route.as_ref().map_or(UNKNOWN, |route| &route.path);
            requests.with_label_values(&[path, response.status().as_str()]).inc();
            response
        })
    }

    /// Whether the body of a request to `path` is a stream of messages.
    pub(super) fn streams_in(&self, path: &str) -> bool {
        self.route(path).is_some_and(|route| route.streams_in)
    }

    fn route(&self, path: &str) -> Option<&Arc<Route>> {
        // etcd's older name of the same paths.
        match path.strip_prefix("/v3beta/") {
            Some(rest) => self.routes.get(&format!("/v3/{rest}")),
            None => self.routes.get(path),
        }
    }
}

/// Calls the method of a route. Fails only before the answer begins; a later error is a line of the
/// stream.
async fn answer<S>(
    route: &Arc<Route>,
    service: S,
    request: Request<Body>,
    json_bytes_max: usize,
    (node, layouts): (Option<Node>, &Arc<Layouts>),
) -> Result<Response<Body>, Status>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Send + 'static,
    S::Future: Send,
{
    let (parts, requests) = request.into_parts();
    let deadline = Deadline::read(&parts.headers)?;
    let requests = match route.streams_in {
        true => body::stream(requests, route.input.clone(), json_bytes_max),
        false => {
            let text = deadline.within(body::read(requests, json_bytes_max)).await?;
            body::single(data::read(route, node.as_ref(), &text).await?)
        }
    };
    let mut request = tonic::Request::new(requests);
    *request.metadata_mut() = http_metadata::incoming(&parts.headers);

    let fault = Fault::default();
    let codec = EncodedCodec::new(fault.clone());
    let service = service.map_request(move |request: Request<Body>| request.map(|body| fault.explain(body)));
    let mut client = tonic::client::Grpc::new(service).max_decoding_message_size(usize::MAX);
    let called = deadline.within(client.streaming(request, route.method.clone(), codec)).await?;
    let (metadata, mut answers, _) = called.into_parts();
    let first = deadline.within(answers.message()).await?;
    let writer = AnswerWriter::new(layouts, route, node.as_ref());
    let body = match (route.streams_out, first) {
        (true, first) => stream::lines(first, answers, deadline, writer),
        (false, Some(first)) => {
            // An error may still follow.
            deadline.within(answers.message()).await?;
            Body::new(Full::new(Bytes::from(writer.write(&first).await?)))
        }
        (false, None) => return Err(Status::internal("headwater: the method did not answer; report this")),
    };
    let mut response = Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, http_errors::JSON);
    http_metadata::outgoing(metadata.as_ref(), response.headers_mut());
    Ok(response)
}

fn unknown(path: &str) -> Response<Body> {
    let text = format!("there is no method at {path}; docs/http.md lists the paths, and every path is one of POST");
    http_errors::with_status(StatusCode::NOT_FOUND, &Status::not_found(text))
}

fn only_post(method: &Method) -> Response<Body> {
    let text = format!("{method} is not allowed here; use POST with a JSON body, {{}} if there is nothing to say");
    let mut response =
        http_errors::with_status(StatusCode::METHOD_NOT_ALLOWED, &Status::new(Code::Unimplemented, text));
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("POST"));
    response
}

#[cfg(test)]
mod tests;
