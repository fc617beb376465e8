use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use http::{Version, header};

use super::*;
use headwater_proto::pb;
use headwater_types::limits::CLIENT_MESSAGE_BYTES_MAX;

fn all_methods() -> HashMap<String, Method> {
    methods(&GrpcMetrics::register(&Registry::new()).unwrap())
}

#[test]
fn every_served_service_has_its_methods() {
    let methods = all_methods();
    let mut counts = BTreeMap::new();
    for method in methods.values() {
        *counts.entry(method.service.name()).or_insert(0) += 1;
    }
    let wanted = BTreeMap::from([
        ("etcd", 10),
        ("etcdserverpb.Auth", 17),
        ("etcdserverpb.Cluster", 5),
        ("etcdserverpb.KV", 6),
        ("etcdserverpb.Lease", 5),
        ("etcdserverpb.Maintenance", 8),
        ("etcdserverpb.Watch", 1),
        ("google.watcher.v1.Watcher", 1),
        ("grpc.health.v1.Health", counts["grpc.health.v1.Health"]),
        ("grpc.reflection.v1.ServerReflection", 1),
        ("grpc.reflection.v1alpha.ServerReflection", 1),
        ("hashicorp.consul.resource.ResourceService", 8),
        ("headwater.v1.Invitations", 3),
        ("headwater.v1.Members", 1),
        ("headwater.v1.Store", 3),
        ("headwater.v1.Versions", 1),
        ("subscribe.StateChangeSubscription", 1),
        ("v3electionpb.Election", 5),
        ("v3lockpb.Lock", 2),
        ("watch", 1),
    ]);
    assert_eq!(counts, wanted);
    assert_eq!(methods["/etcdserverpb.KV/Range"].metrics.kind(), MethodKind::Unary);
    assert_eq!(methods["/etcdserverpb.KV/RangeStream"].metrics.kind(), MethodKind::ServerStream);
    assert_eq!(methods["/etcd/LeaseKeepAlive"].metrics.kind(), MethodKind::BidiStream);
    assert_eq!(methods["/etcd/Range"].service, GrpcService::Early);
    assert_eq!(methods["/watch/Watch"].service, GrpcService::EarlyWatch);
    assert_eq!(methods["/etcdserverpb.Watch/Watch"].metrics.kind(), MethodKind::BidiStream);
}

#[test]
fn names_are_those_of_the_generated_servers() {
    let generated = BTreeSet::from([
        pb::etcdserverpb::kv_server::SERVICE_NAME,
        pb::etcdserverpb::lease_server::SERVICE_NAME,
        pb::etcdserverpb::cluster_server::SERVICE_NAME,
        pb::etcdserverpb::maintenance_server::SERVICE_NAME,
        pb::etcdserverpb::auth_server::SERVICE_NAME,
        pb::etcdserverpb::watch_server::SERVICE_NAME,
        pb::early::etcd_server::SERVICE_NAME,
        pb::early::watch_server::SERVICE_NAME,
        pb::v3lockpb::lock_server::SERVICE_NAME,
        pb::v3electionpb::election_server::SERVICE_NAME,
        pb::headwater_v1::invitations_server::SERVICE_NAME,
        pb::headwater_v1::store_server::SERVICE_NAME,
        pb::headwater_v1::members_server::SERVICE_NAME,
        pb::headwater_v1::versions_server::SERVICE_NAME,
        pb::pbresource::resource_service_server::SERVICE_NAME,
        pb::pbwatcher::watcher_server::SERVICE_NAME,
        pb::subscribe::state_change_subscription_server::SERVICE_NAME,
        tonic_health::pb::health_server::SERVICE_NAME,
    ]);
    let named: BTreeSet<_> = GrpcService::ALL
        .into_iter()
        .map(GrpcService::name)
        .filter(|name| !name.starts_with("grpc.reflection"))
        .collect();
    assert_eq!(generated, named);
}

#[test]
fn reflection_knows_every_public_file() {
    assert!(reflection().build_v1().is_ok());
    assert!(reflection().build_v1alpha().is_ok());
}

#[test]
fn internal_records_are_not_shown() {
    let files = FileDescriptorSet::decode(PUBLIC_DESCRIPTORS).unwrap();
    let names: BTreeSet<_> = files.file.iter().map(|file| file.name().to_owned()).collect();
    assert!(names.contains("etcd/rpc.proto") && names.contains("etcd/early.proto"), "{names:?}");
    assert!(!names.iter().any(|name| name.starts_with("internal/")), "{names:?}");
}

#[test]
fn grpc_is_told_by_version_and_content_type() {
    let table = [
        (Version::HTTP_2, Some("application/grpc"), true),
        (Version::HTTP_2, Some("application/grpc+proto"), true),
        (Version::HTTP_2, Some("application/grpc;charset=utf-8"), true),
        (Version::HTTP_2, Some("application/grpc-web"), false),
        (Version::HTTP_2, Some("application/json"), false),
        (Version::HTTP_2, None, false),
        (Version::HTTP_11, Some("application/grpc"), false),
    ];
    for (version, content_type, wanted) in table {
        let headers =
            content_type.map(|value| (header::CONTENT_TYPE, HeaderValue::from_static(value))).into_iter().collect();
        assert_eq!(is_grpc(version, &headers), wanted, "{version:?} {content_type:?}");
    }
}

#[test]
fn unknown_paths_are_named() {
    for (path, text) in [
        ("/etcdserverpb.Auth/AuthEnable", "unknown method AuthEnable for service etcdserverpb.Auth"),
        ("/etcdserverpb.KV/Fly", "unknown method Fly for service etcdserverpb.KV"),
        ("/etcd/Fly", "unknown method Fly for service etcd"),
        ("/", "malformed method name: \"/\""),
        ("*", "malformed method name: \"*\""),
    ] {
        let status = unknown_method(path);
        assert_eq!((status.code(), status.message()), (Code::Unimplemented, text));
    }
}

#[test]
fn oversized_messages_are_refused_in_the_words_that_clients_know() {
    let tonic = |status: Status| too_large(status.into_http());
    let found = 3_000_000;
    let refused = tonic(Status::out_of_range(format!(
        "Error, decoded message length too large: found {found} bytes, the limit is: {CLIENT_MESSAGE_BYTES_MAX} bytes"
    )));
    let status = Status::from_header_map(refused.headers()).unwrap();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert_eq!(status.message(), "grpc: received message larger than max (3000000 vs. 2097152)");

    let compacted = "etcdserver: mvcc: required revision has been compacted";
    let kept = Status::from_header_map(tonic(Status::out_of_range(compacted)).headers()).unwrap();
    assert_eq!((kept.code(), kept.message()), (Code::OutOfRange, compacted));
}

#[tokio::test]
async fn the_transport_still_uses_the_words_that_are_replaced() {
    struct Never;
    impl tonic::server::UnaryService<pb::etcdserverpb::PutRequest> for Never {
        type Response = pb::etcdserverpb::PutResponse;
        type Future = std::future::Ready<Result<tonic::Response<Self::Response>, Status>>;
        fn call(&mut self, _: tonic::Request<pb::etcdserverpb::PutRequest>) -> Self::Future {
            unreachable!("the message is over the limit")
        }
    }
    let length = CLIENT_MESSAGE_BYTES_MAX as u32 + 1;
    let frame = [&[0][..], &length.to_be_bytes()].concat();
    let request = Request::new(http_body_util::Full::new(Bytes::from(frame)));
    let response = tonic::server::Grpc::new(tonic_prost::ProstCodec::default())
        .apply_max_message_size_config(Some(CLIENT_MESSAGE_BYTES_MAX), None)
        .unary(Never, request)
        .await;
    let status = Status::from_header_map(too_large(response).headers()).unwrap();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
    assert_eq!(status.message(), "grpc: received message larger than max (2097153 vs. 2097152)");
}

#[test]
fn an_answer_without_a_code_in_its_headers_is_good() {
    let registry = Registry::new();
    let metrics = GrpcMetrics::register(&registry).unwrap();
    let method = metrics.method(MethodKind::Unary, "s", "M");
    count_call(Response::new(Body::empty()), Call::start(&method));
    count_call(Status::unavailable("").into_http(), Call::start(&method));
    let text = prometheus::TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
    assert!(text.contains("grpc_code=\"OK\",grpc_method=\"M\",grpc_service=\"s\",grpc_type=\"unary\"} 1"), "{text}");
    assert!(text.contains("grpc_code=\"Unavailable\",grpc_method=\"M\",grpc_service=\"s\",grpc_type=\"unary\"} 1"));
}

/// The bounds that the listener requires, checked by the compiler here.
#[test]
fn connections_can_be_served_with_it() {
    fn serve(service: ClientService, socket: tokio::io::DuplexStream) -> impl Future<Output = ()> + Send {
        let builder = hyper_util::server::conn::auto::Builder::new(hyper_util::rt::TokioExecutor::new());
        let service = hyper_util::service::TowerToHyperService::new(service);
        async move { drop(builder.serve_connection(hyper_util::rt::TokioIo::new(socket), service).await) }
    }
    let _: fn(ClientService, tokio::io::DuplexStream) -> _ = serve;
}
