//! The one service of the client port. It dispatches by path: a gRPC call to its generated server,
//! an HTTP request to Consul's API, the gateway (`/v3/*`, `/v1/store/*`), REST (`/api/*`),
//! `/v1/watch`, the console or plain HTTP. The gateway, REST and `/v1/watch` call the gRPC methods
//! in this process.
//!
//! Owns the list of services ([`GrpcService`]) and the counting of calls. Knows nothing of
//! connections; the server hands it requests of HTTP/1 and HTTP/2. The table of methods is made at
//! the start from the descriptors of the served services, so that a call costs one look-up and no
//! layers.

use std::collections::HashMap;
use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::future::BoxFuture;
use http::{HeaderName, HeaderValue, Request, Response, StatusCode};
use http_body::Body as _;
use hyper::body::Incoming;
use prometheus::Registry;
use prost::Message;
use prost_types::FileDescriptorSet;
use tonic::body::Body;
use tonic::{Code, Status};
use tonic_health::pb::health_server::HealthServer;
use tower::util::BoxCloneSyncService;
use tower::{Service, ServiceExt};

use super::access::{self, AccessChecks, Admitted, KnownPrincipal, Operation, PendingLine};
use super::admission::{client_of, has_reserve, too_fast};
use super::gateway::Gateway;
use super::health::HealthService;
use super::http::browsers::{self, BrowserPolicy, Verdict};
use super::http::{self as plain};
use super::invitations::InvitationsService;
use super::members::MembersService;
use super::monitoring::MonitoringService;
use super::rest::Rest;
use super::versions::VersionsService;
use headwater_api_console::{Console, ConsoleOptions};
use headwater_api_consul::{self as consul, Consul};
use headwater_api_early::Early;
use headwater_api_etcd::Etcd;
use headwater_api_resource::ResourceService;
use headwater_api_shared::ApiOptions;
use headwater_api_shared::caller::Connected;
use headwater_api_shared::context::HEADWATER_INDEX;
use headwater_api_shared::grpc_messages::CountedRequest;
use headwater_api_shared::grpc_metrics::{
    Call, CountedBody, GrpcMetrics, MethodKind, MethodMetrics, grpc_code, too_large_status,
};
use headwater_api_shared::grpc_request::{ClientBody, GrpcFuture, GrpcRequest};
use headwater_api_shared::is_grpc;
use headwater_api_shared::stream_metrics::StreamMetrics;
use headwater_api_shared::timed_body::TimedBody;
use headwater_api_store::StoreService;
use headwater_api_subscribe::SubscribeService;
use headwater_api_watcher::{WatchPath, WatcherService};
use headwater_node::{LimitCounters, Node, NodeError};
use headwater_proto::pb::PUBLIC_DESCRIPTORS;
use headwater_proto::pb::headwater_v1::invitations_server::InvitationsServer;
use headwater_proto::pb::headwater_v1::members_server::MembersServer;
use headwater_proto::pb::headwater_v1::versions_server::VersionsServer;

/// Makes the services of the client port and of the metrics port. Metrics of all faces go into
/// `registry`, and `/metrics` shows all of it: on the metrics port, and on the client port if
/// `shows_metrics`.
///
/// # Errors
///
/// If `registry` already holds metrics of these names: every node needs a registry of its own.
pub fn client_service(
    node: Node,
    registry: &Registry,
    options: ApiOptions,
    browsers: BrowserPolicy,
    console: ConsoleOptions,
    shows_metrics: bool,
) -> Result<(ClientService, MonitoringService), prometheus::Error> {
    let routes = plain::Routes::new(node.clone(), registry, options)?;
    let monitoring = MonitoringService::new(node.clone(), browsers.clone(), routes.of_metrics_port());
    let streams = StreamMetrics::register(&node, registry)?;
    let methods = methods(&GrpcMetrics::register(registry)?);
    let inner = Inner {
        browsers,
        node: node.clone(),
        access: AccessChecks::new(node.clone()),
        limit_counters: node.limit_counters().clone(),
        request_timeout: options.request_timeout,
        etcd: Etcd::new(&node, options, streams.of_keys("etcd")),
        early: Early::new(&node, options, streams.of_keys("etcd-early")),
        resource: ResourceService::new(node.clone(), options, streams.of("resource")),
        watcher: WatcherService::new(node.clone(), options, streams.of("watcher")),
        watch_path: WatchPath::new(node.clone(), registry)?,
        subscribe: SubscribeService::new(node.clone(), options, streams.of("subscribe")),
        store: StoreService::new(node.clone(), options, streams.of("store")),
        gateway: Gateway::new(Some(node.clone()), |method| methods.contains_key(method), options, registry)?,
        rest: Rest::new(node.clone(), options, registry)?,
        console: Console::new(console, registry)?,
        consul: Consul::new(node.clone(), options, registry)?,
        methods,
        invitations: InvitationsServer::new(InvitationsService::new(node.clone(), options)),
        members: MembersServer::new(MembersService::new(node.clone(), options)),
        versions: VersionsServer::new(VersionsService::new(node.clone(), options)),
        health: HealthServer::new(HealthService::new(node.clone())),
        reflection_v1: BoxCloneSyncService::new(
            reflection().build_v1().expect("the descriptors were made by the compiler that this is built with"),
        ),
        reflection_v1alpha: BoxCloneSyncService::new(
            reflection().build_v1alpha().expect("the descriptors were made by the compiler that this is built with"),
        ),
        http: routes.of_client_port(shows_metrics),
    };
    Ok((ClientService { inner: Arc::new(inner) }, monitoring))
}

/// Serves every request of the client port; cheap to clone.
#[derive(Clone)]
pub struct ClientService {
    inner: Arc<Inner>,
}

impl fmt::Debug for ClientService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientService").finish_non_exhaustive()
    }
}

struct Inner {
    node: Node,
    browsers: BrowserPolicy,
    access: AccessChecks,
    limit_counters: LimitCounters,
    request_timeout: Duration,
    /// Methods of gRPC by path.
    methods: HashMap<String, Method>,
    gateway: Gateway,
    rest: Rest,
    console: Console,
    consul: Consul,
    etcd: Etcd,
    early: Early,
    resource: ResourceService,
    watcher: WatcherService,
    watch_path: WatchPath,
    subscribe: SubscribeService,
    store: StoreService,
    invitations: InvitationsServer<InvitationsService>,
    members: MembersServer<MembersService>,
    versions: VersionsServer<VersionsService>,
    health: HealthServer<HealthService>,
    reflection_v1: BoxCloneSyncService<Request<Body>, Response<Body>, Infallible>,
    reflection_v1alpha: BoxCloneSyncService<Request<Body>, Response<Body>, Infallible>,
    http: axum::Router,
}

struct Method {
    service: GrpcService,
    operation: Operation,
    metrics: Arc<MethodMetrics>,
}

/// Metadata key of the version of etcd's clients.
const CLIENT_API_VERSION: HeaderName = HeaderName::from_static("client-api-version");

/// A gRPC service that is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GrpcService {
    Kv,
    Watch,
    Lease,
    Cluster,
    Maintenance,
    Auth,
    Early,
    EarlyWatch,
    Lock,
    Election,
    Resource,
    Watcher,
    Subscribe,
    Store,
    Invitations,
    Members,
    Versions,
    Health,
    ReflectionV1,
    ReflectionV1Alpha,
}

impl GrpcService {
    const ALL: [Self; 20] = [
        Self::Kv,
        Self::Watch,
        Self::Lease,
        Self::Cluster,
        Self::Maintenance,
        Self::Auth,
        Self::Early,
        Self::EarlyWatch,
        Self::Lock,
        Self::Election,
        Self::Resource,
        Self::Watcher,
        Self::Subscribe,
        Self::Store,
        Self::Invitations,
        Self::Members,
        Self::Versions,
        Self::Health,
        Self::ReflectionV1,
        Self::ReflectionV1Alpha,
    ];

    /// The full name of the service.
    fn name(self) -> &'static str {
        match self {
            Self::Kv => "etcdserverpb.KV",
            Self::Watch => "etcdserverpb.Watch",
            Self::Lease => "etcdserverpb.Lease",
            Self::Cluster => "etcdserverpb.Cluster",
            Self::Maintenance => "etcdserverpb.Maintenance",
            Self::Auth => "etcdserverpb.Auth",
            Self::Early => "etcd",
            Self::EarlyWatch => "watch",
            Self::Lock => "v3lockpb.Lock",
            Self::Election => "v3electionpb.Election",
            Self::Resource => "hashicorp.consul.resource.ResourceService",
            Self::Watcher => "google.watcher.v1.Watcher",
            Self::Subscribe => "subscribe.StateChangeSubscription",
            Self::Store => "headwater.v1.Store",
            Self::Invitations => "headwater.v1.Invitations",
            Self::Members => "headwater.v1.Members",
            Self::Versions => "headwater.v1.Versions",
            Self::Health => "grpc.health.v1.Health",
            Self::ReflectionV1 => "grpc.reflection.v1.ServerReflection",
            Self::ReflectionV1Alpha => "grpc.reflection.v1alpha.ServerReflection",
        }
    }

    /// The name of the service's API in the audit log and, through `Face`, in history.
    fn api(self) -> &'static str {
        match self {
            Self::Kv
            | Self::Watch
            | Self::Lease
            | Self::Cluster
            | Self::Maintenance
            | Self::Auth
            | Self::Lock
            | Self::Election => "etcd",
            Self::Early | Self::EarlyWatch => "etcd-early",
            Self::Resource => "resource",
            Self::Watcher => "watcher",
            Self::Subscribe => "subscribe",
            Self::Store => "store",
            Self::Versions
            | Self::Members
            | Self::Invitations
            | Self::Health
            | Self::ReflectionV1
            | Self::ReflectionV1Alpha => "headwater",
        }
    }

    fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|service| service.name() == name)
    }
}

/// Every method of every served service, by its path.
fn methods(metrics: &GrpcMetrics) -> HashMap<String, Method> {
    let mut methods = HashMap::new();
    for encoded in [
        PUBLIC_DESCRIPTORS,
        tonic_health::pb::FILE_DESCRIPTOR_SET,
        tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET,
        tonic_reflection::pb::v1alpha::FILE_DESCRIPTOR_SET,
    ] {
        let files = FileDescriptorSet::decode(encoded).expect("a descriptor set that was compiled in");
        for file in files.file {
            for service in &file.service {
                let name = match file.package() {
                    "" => service.name().to_owned(),
                    package => format!("{package}.{}", service.name()),
                };
                let Some(grpc_service) = GrpcService::named(&name) else { continue };
                for method in &service.method {
                    let kind = MethodKind::of(method.client_streaming(), method.server_streaming());
                    let metrics = metrics.method(kind, &name, method.name());
                    let path = format!("/{name}/{}", method.name());
                    let operation = Operation::of_method(grpc_service.api(), &path);
                    methods.insert(path, Method { service: grpc_service, operation, metrics });
                }
            }
        }
    }
    methods
}

fn reflection() -> tonic_reflection::server::Builder<'static> {
    let builder = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(PUBLIC_DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET);
    GrpcService::ALL.into_iter().fold(builder, |builder, service| builder.with_service_name(service.name()))
}

/// The paths of all gRPC methods that are served.
#[cfg(test)]
pub(super) fn served_methods() -> std::collections::BTreeSet<String> {
    methods(&GrpcMetrics::register(&Registry::new()).expect("an empty registry")).into_keys().collect()
}

/// A client of the gRPC methods in this process, for the gateway, REST and `/v1/watch`. The
/// [`Connected`] is that of the client's HTTP request; for the gateway, without its certificate.
struct GrpcCalls(Arc<Inner>, Connected);

impl Service<Request<Body>> for GrpcCalls {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> ResponseFuture {
        let mut request = request.map(ClientBody::Process);
        request.extensions_mut().insert(self.1.clone());
        ResponseFuture { kind: Inner::grpc(&self.0, request), origin: None }
    }
}

impl Inner {
    fn grpc(this: &Arc<Self>, request: Request<ClientBody>) -> Kind {
        let Some(method) = this.methods.get(request.uri().path()) else {
            return Kind::Ready(Some(unknown_method(request.uri().path()).into_http()));
        };
        let call = Call::start(&method.metrics);
        method.metrics.client(request.headers().get(CLIENT_API_VERSION));
        let shown = AccessChecks::credentials_of(request.headers(), request.extensions().get::<Connected>());
        match this.access.principal_at_once(&method.operation, shown) {
            Ok(known) => match this.call_method(method, request, known) {
                Ok((future, line)) => Kind::Grpc { future, call: Some(call), line },
                Err(status) => Kind::Ready(Some(count_call(status.into_http(), call))),
            },
            Err(shown) => {
                let this = Arc::clone(this);
                Kind::Boxed(Box::pin(async move {
                    let method = &this.methods[request.uri().path()];
                    let connected = request.extensions().get::<Connected>().cloned();
                    let timeout = this.request_timeout;
                    let entered = match this
                        .access
                        .resolve_principal(&method.operation, shown, connected.as_ref(), timeout)
                        .await
                    {
                        Ok(principal) => this.call_method(method, request, principal.into()),
                        Err(error) => Err(access::grpc_refusal(request.uri().path(), &error)),
                    };
                    let response = match entered {
                        Ok((future, line)) => {
                            let Ok(response) = future.await;
                            write_audit_line(too_large(response), line)
                        }
                        Err(status) => status.into_http(),
                    };
                    count_call(response, call)
                }))
            }
        }
    }

    /// Checks the requirement of the method, and begins its call. Returns the answer to come, and
    /// the audit line, if there is one. The caller of this function writes the line once it has the
    /// answer. The error is a refusal, whose line is written already, or a failed read of the local
    /// state.
    fn call_method(
        &self,
        method: &Method,
        mut request: Request<ClientBody>,
        known: KnownPrincipal,
    ) -> Result<(GrpcFuture, Option<PendingLine>), Status> {
        let entered = self.access.admit(&method.operation, known, request.extensions().get::<Connected>());
        let mut admitted = entered.map_err(|error| access::grpc_refusal(request.uri().path(), &error))?;
        admitted.hand_over_caller(request.extensions_mut());
        let future = self.call_grpc(
            method.service,
            request.map(|body| {
                let body = match method.metrics.kind() {
                    MethodKind::Unary | MethodKind::ServerStream => {
                        TimedBody::within(self.request_timeout, &self.limit_counters, body)
                    }
                    MethodKind::ClientStream | MethodKind::BidiStream => TimedBody::unlimited(body),
                };
                CountedRequest::new(body, &method.metrics)
            }),
        );
        Ok((future, admitted.line))
    }

    /// Resolves the principal of an HTTP request, checks the requirement of `operation`, and puts
    /// the caller into the extensions of the request. The error is the refusal.
    async fn enter<B>(&self, operation: &Operation, request: &mut Request<B>) -> Result<Admitted, NodeError> {
        let shown = access::credentials_of_http(request, request.extensions().get::<Connected>());
        let known = match self.access.principal_at_once(operation, shown) {
            Ok(known) => known,
            Err(shown) => {
                let connected = request.extensions().get::<Connected>().cloned();
                self.access.resolve_principal(operation, shown, connected.as_ref(), self.request_timeout).await?.into()
            }
        };
        let mut admitted = self.access.admit(operation, known, request.extensions().get::<Connected>())?;
        admitted.hand_over_caller(request.extensions_mut());
        Ok(admitted)
    }

    /// Answers a request to Consul's API. `OPTIONS` needs no right.
    async fn consul(&self, mut request: Request<Body>) -> Response<Body> {
        let operation = self.access.consul(request.method(), consul::served_path(request.uri().path())).clone();
        if request.method() == http::Method::OPTIONS {
            return self.consul.call(request).await;
        }
        match self.enter(&operation, &mut request).await {
            Ok(admitted) => write_audit_line(self.consul.call(request).await, admitted.line),
            Err(error) => consul::refused(error),
        }
    }

    /// Answers a request for the console or for a path of plain HTTP.
    async fn plain(&self, mut request: Request<Body>) -> Response<Body> {
        let operation = self.access.plain(request.method(), request.uri().path());
        match self.enter(&operation, &mut request).await {
            Ok(admitted) => {
                let response = match Console::owns(request.uri().path()) {
                    true => self.console.call(&request),
                    false => {
                        let Ok(response) = self.http.clone().call(request).await;
                        response.map(Body::new)
                    }
                };
                write_audit_line(response, admitted.line)
            }
            Err(error) => access::plain_refusal(&error),
        }
    }

    /// Answers a request on the paths of resources. The gRPC method that it calls has a requirement
    /// of its own, and writes the line of the audit log.
    async fn rest(this: &Arc<Self>, mut request: Request<Body>) -> Response<Body> {
        let connected = request.extensions().get::<Connected>().cloned().unwrap_or_default();
        match this.enter(this.access.rest(), &mut request).await {
            Ok(_) => this.rest.call(GrpcCalls(Arc::clone(this), connected), request).await,
            Err(error) => access::plain_refusal(&error),
        }
    }

    /// A body that fails if it is not complete within the request timeout.
    fn timed(&self, body: Incoming) -> Body {
        Body::new(TimedBody::within(self.request_timeout, &self.limit_counters, body))
    }

    fn call_grpc(&self, service: GrpcService, request: GrpcRequest) -> GrpcFuture {
        match service {
            GrpcService::Kv => self.etcd.kv(request),
            GrpcService::Watch => self.etcd.watch(request),
            GrpcService::Lease => self.etcd.lease(request),
            GrpcService::Cluster => self.etcd.cluster(request),
            GrpcService::Maintenance => self.etcd.maintenance(request),
            GrpcService::Auth => self.etcd.auth(request),
            GrpcService::Lock => self.etcd.lock(request),
            GrpcService::Election => self.etcd.election(request),
            GrpcService::Early => self.early.etcd(request),
            GrpcService::EarlyWatch => self.early.watch(request),
            GrpcService::Resource => self.resource.call(request),
            GrpcService::Watcher => self.watcher.call(request),
            GrpcService::Subscribe => self.subscribe.call(request),
            GrpcService::Store => self.store.call(request),
            GrpcService::Invitations => self.invitations.clone().call(request),
            GrpcService::Members => self.members.clone().call(request),
            GrpcService::Versions => self.versions.clone().call(request),
            GrpcService::Health => self.health.clone().call(request),
            GrpcService::ReflectionV1 => Box::pin(self.reflection_v1.clone().oneshot(request.map(Body::new))),
            GrpcService::ReflectionV1Alpha => Box::pin(self.reflection_v1alpha.clone().oneshot(request.map(Body::new))),
        }
    }
}

impl Service<Request<Incoming>> for ClientService {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> ResponseFuture {
        let origin = match self.inner.browsers.judge(&request, &self.inner.limit_counters) {
            Verdict::Allowed(origin) => origin,
            Verdict::Refused(response) => return ResponseFuture { kind: Kind::Ready(Some(response)), origin: None },
        };
        if self.inner.node.bounds_request_rate()
            && !has_reserve(request.uri().path())
            && let Err(wait) = self.inner.node.count_request(client_of(&request))
        {
            return ResponseFuture { kind: Kind::Ready(Some(too_fast(&request, wait))), origin };
        }
        if is_grpc(request.version(), request.headers()) {
            let kind = Inner::grpc(&self.inner, request.map(ClientBody::Connection));
            return ResponseFuture { kind, origin };
        }
        let connected = request.extensions().get::<Connected>().cloned().unwrap_or_default();
        // The gateway ignores the certificate: it names the program that connects, not the user for
        // which that program sends the request.
        let by_gateway = Connected { certificate: None, ..connected.clone() };
        let inner = Arc::clone(&self.inner);
        let kind = if Consul::owns(request.uri().path()) {
            // Before the general preflight: on these paths the answer to `OPTIONS` lists the
            // methods.
            let request = request.map(|body| self.inner.timed(body));
            Kind::Boxed(Box::pin(async move { inner.consul(request).await }))
        } else if let Some(response) = browsers::preflight(&request) {
            Kind::Ready(Some(response))
        } else if Gateway::owns(request.uri().path()) {
            let calls = GrpcCalls(inner, by_gateway);
            let request = match self.inner.gateway.streams_in(request.uri().path()) {
                true => request.map(Body::new),
                false => request.map(|body| self.inner.timed(body)),
            };
            Kind::Boxed(self.inner.gateway.call(calls, request))
        } else if Rest::owns(request.uri().path()) {
            let request = request.map(|body| self.inner.timed(body));
            Kind::Boxed(Box::pin(async move { Inner::rest(&inner, request).await }))
        } else if WatchPath::owns(request.uri().path()) {
            let calls = GrpcCalls(inner, connected);
            Kind::Boxed(self.inner.watch_path.call(calls, request.map(Body::new)))
        } else {
            let request = request.map(Body::new);
            Kind::Boxed(Box::pin(async move { inner.plain(request).await }))
        };
        ResponseFuture { kind, origin }
    }
}

/// Status for a gRPC path that is not served, in the words of the Go implementation.
fn unknown_method(path: &str) -> Status {
    let Some((service, method)) = path.strip_prefix('/').and_then(|path| path.rsplit_once('/')) else {
        return Status::unimplemented(format!("malformed method name: {path:?}"));
    };
    Status::unimplemented(match GrpcService::named(service) {
        Some(_) => format!("unknown method {method} for service {service}"),
        None => format!("unknown service {service}"),
    })
}

/// The future answer to one request.
pub struct ResponseFuture {
    kind: Kind,
    /// The allowed origin of the page that sent the request, for the headers of the answer. `None`
    /// for requests of other clients, and of this server's own pages.
    origin: Option<HeaderValue>,
}

impl fmt::Debug for ResponseFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}

enum Kind {
    /// A call of gRPC. `call` is `None` after the answer.
    Grpc {
        future: GrpcFuture,
        call: Option<Call>,
        line: Option<PendingLine>,
    },
    Boxed(BoxFuture<'static, Response<Body>>),
    /// An answer that needs no wait. `None` after it was returned.
    Ready(Option<Response<Body>>),
}

impl Future for ResponseFuture {
    type Output = Result<Response<Body>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let response = match &mut self.kind {
            Kind::Grpc { future, call, line } => {
                let Ok(response) = ready!(future.as_mut().poll(cx));
                let call = call.take().expect("a future is not polled after it was ready");
                count_call(write_audit_line(too_large(response), line.take()), call)
            }
            Kind::Boxed(future) => ready!(future.as_mut().poll(cx)),
            Kind::Ready(response) => response.take().expect("a future is not polled after it was ready"),
        };
        Poll::Ready(Ok(browsers::allow(response, self.origin.take())))
    }
}

/// Returns `response` unchanged, after writing `line`, if there is one. The verdict (allowed or
/// refused) and the log index in the line are read from the response.
pub(super) fn write_audit_line(response: Response<Body>, line: Option<PendingLine>) -> Response<Body> {
    if let Some(line) = line {
        let headers = response.headers();
        let is_refused = matches!(grpc_code(headers), Some(Code::PermissionDenied | Code::Unauthenticated))
            || matches!(response.status(), StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED);
        let index = headers.get(HEADWATER_INDEX).and_then(|value| value.to_str().ok()?.parse().ok());
        line.write(!is_refused, index);
    }
    response
}

/// The response, with the end of its gRPC call counted: at once if the headers have `grpc-status`
/// or the body is empty, else when the body ends.
fn count_call(response: Response<Body>, mut call: Call) -> Response<Body> {
    match grpc_code(response.headers()) {
        Some(code) => {
            call.finish(code);
            response
        }
        // No trailers will follow that could end it.
        None if response.body().is_end_stream() => {
            call.finish(Code::Ok);
            response
        }
        None => response.map(|body| Body::new(CountedBody::new(body, call))),
    }
}

/// Replaces tonic's refusal of a message over the limit by the code and text of the Go
/// implementation, which clients know (spec: etcd §1.8, §6.2). Other answers stay.
fn too_large(response: Response<Body>) -> Response<Body> {
    match too_large_status(response.headers()) {
        Some(status) => status.into_http(),
        None => response,
    }
}

#[cfg(test)]
#[path = "service_tests.rs"]
mod tests;
