//! The methods that a node serves, as its own reflection lists them. So new methods are attacked
//! without a change of this program.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context;
use prost::Message;
use prost_reflect::{DescriptorPool, MethodDescriptor};
use prost_types::{FileDescriptorProto, FileDescriptorSet};
use tonic::transport::Channel;
use tonic_reflection::pb;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

/// Prefix of the names of reflection's own services, which reflection does not describe.
const OWN_PACKAGES: &str = "grpc.reflection.";

/// Every gRPC method that the node serves, and a pool with all their types.
pub(crate) async fn served(channel: Channel) -> anyhow::Result<(DescriptorPool, Vec<MethodDescriptor>)> {
    let mut client = ServerReflectionClient::new(channel);
    let services = match ask(&mut client, MessageRequest::ListServices(String::new())).await? {
        MessageResponse::ListServicesResponse(list) => list.service,
        other => anyhow::bail!("no list of services: {other:?}"),
    };
    let mut files: BTreeMap<String, FileDescriptorProto> = BTreeMap::new();
    let mut wanted = Vec::new();
    // Reflection does not describe itself.
    for encoded in [pb::v1::FILE_DESCRIPTOR_SET, pb::v1alpha::FILE_DESCRIPTOR_SET] {
        wanted.extend(FileDescriptorSet::decode(encoded)?.file);
    }
    for service in services.iter().filter(|service| !service.name.starts_with(OWN_PACKAGES)) {
        wanted.extend(file(&mut client, MessageRequest::FileContainingSymbol(service.name.clone())).await?);
    }
    while let Some(found) = wanted.pop() {
        for name in &found.dependency {
            if !files.contains_key(name) && !wanted.iter().any(|other| other.name() == name) {
                wanted.extend(file(&mut client, MessageRequest::FileByFilename(name.clone())).await?);
            }
        }
        files.insert(found.name().to_owned(), found);
    }
    let mut pool = DescriptorPool::new();
    pool.add_file_descriptor_protos(files.into_values())?;
    let names: BTreeSet<&str> = services.iter().map(|service| service.name.as_str()).collect();
    let mut methods: Vec<MethodDescriptor> = pool
        .services()
        .filter(|service| names.contains(service.full_name()))
        .flat_map(|service| service.methods().collect::<Vec<_>>())
        .collect();
    methods.sort_by(|a, b| a.full_name().cmp(b.full_name()));
    anyhow::ensure!(!methods.is_empty(), "the node serves no method");
    Ok((pool, methods))
}

async fn file(
    client: &mut ServerReflectionClient<Channel>,
    request: MessageRequest,
) -> anyhow::Result<Vec<FileDescriptorProto>> {
    match ask(client, request).await? {
        MessageResponse::FileDescriptorResponse(found) => {
            let decode = |encoded: &Vec<u8>| FileDescriptorProto::decode(encoded.as_slice());
            Ok(found.file_descriptor_proto.iter().map(decode).collect::<Result<_, _>>()?)
        }
        other => anyhow::bail!("no descriptor: {other:?}"),
    }
}

async fn ask(client: &mut ServerReflectionClient<Channel>, request: MessageRequest) -> anyhow::Result<MessageResponse> {
    let request = ServerReflectionRequest { host: String::new(), message_request: Some(request) };
    let mut answers = client.server_reflection_info(tokio_stream::iter([request])).await?.into_inner();
    answers.message().await?.and_then(|answer| answer.message_response).context("reflection says nothing")
}
