//! A client for tests, over both transports.

use std::sync::LazyLock;

use headwater::pb::etcdserverpb::PutRequest;
use headwater::pb::headwater_v1 as pb;
use headwater::pb::headwater_v1::store_client::StoreClient;
use headwater::pb::{PUBLIC_DESCRIPTORS, mvccpb};
use http::{Request, Version};
use http_body_util::BodyExt;
use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, SerializeOptions};
use serde_json::{Value, json};
use tonic::body::Body;
use tonic::{Code, Status, Streaming};

use crate::cluster::{Cluster, within};
use crate::gateway::client::{Connection, Lines};
use crate::resources::client::{Demo, descriptors};

/// A transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    Grpc,
    Json,
}

pub const BOTH: [Via; 2] = [Via::Grpc, Via::Json];

/// One member, by one transport.
#[derive(Clone, Copy)]
pub struct Member<'a> {
    pub cluster: &'a Cluster,
    pub index: usize,
    pub via: Via,
}

/// The public messages, and the type of resources that tests of commits register.
static POOL: LazyLock<DescriptorPool> = LazyLock::new(|| {
    let mut pool = DescriptorPool::decode(PUBLIC_DESCRIPTORS).unwrap();
    pool.decode_file_descriptor_set(&descriptors("demo.v2", "Artist")[..]).unwrap();
    pool
});

fn to_json(name: &str, message: &impl Message) -> String {
    let descriptor = POOL.get_message_by_name(name).unwrap();
    let message = DynamicMessage::decode(descriptor, &message.encode_to_vec()[..]).unwrap();
    let mut text = Vec::new();
    let options = SerializeOptions::new().use_proto_field_name(true);
    message.serialize_with_options(&mut serde_json::Serializer::new(&mut text), &options).unwrap();
    String::from_utf8(text).unwrap()
}

fn from_json<M: Message + Default>(name: &str, json: &Value) -> M {
    let descriptor = POOL.get_message_by_name(name).unwrap();
    let message = DynamicMessage::deserialize(descriptor, json).unwrap_or_else(|error| panic!("{error}: {json}"));
    M::decode(&message.encode_to_vec()[..]).unwrap()
}

/// A commit as JSON, with the data of artists in the form of their registered type.
fn commit_json(mut request: pb::CommitRequest) -> String {
    let mut artists = Vec::new();
    for (at, operation) in request.operations.iter_mut().enumerate() {
        if let Some(pb::operation::Operation::WriteResource(write)) = &mut operation.operation
            && let Some(data) = write.resource.as_mut().and_then(|resource| resource.data.take())
        {
            let Demo { name, genre } = Demo::decode(&data.value[..]).unwrap();
            artists.push((at, json!({"@type": data.type_url, "name": name, "genre": genre})));
        }
    }
    let mut value: Value = serde_json::from_str(&to_json("headwater.v1.CommitRequest", &request)).unwrap();
    for (at, data) in artists {
        value["operations"][at]["write_resource"]["resource"]["data"] = data;
    }
    value.to_string()
}

fn status(json: &Value) -> Status {
    let code = json["code"].as_i64().unwrap_or_else(|| panic!("no status: {json}"));
    Status::new(Code::from(code as i32), json["message"].as_str().unwrap_or_default())
}

/// A stream of changes.
pub enum Changes {
    Grpc(Box<Streaming<pb::HistoryResponse>>),
    Json(Box<(Connection, Lines)>),
}

impl Changes {
    /// The next message; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<pb::HistoryResponse>, Status> {
        match self {
            Self::Grpc(stream) => within("a message of the history", stream.message()).await,
            Self::Json(stream) => match stream.1.next().await {
                None => Ok(None),
                Some(line) if line.get("error").is_some() => Err(status(&line["error"])),
                Some(line) => Ok(Some(from_json("headwater.v1.HistoryResponse", &line["result"]))),
            },
        }
    }

    /// All commands up to the end, each with its parts together, and the last position.
    pub async fn rest(mut self) -> Result<(Vec<pb::CommandChanges>, u64), Status> {
        let (mut commands, mut reached) = (Vec::<pb::CommandChanges>::new(), None);
        while let Some(message) = self.next().await? {
            for command in message.commands {
                match commands.last_mut().filter(|open| open.continued) {
                    None => commands.push(command),
                    Some(open) => {
                        assert_eq!(open.index, command.index);
                        open.continued = command.continued;
                        open.changes.extend(command.changes);
                    }
                }
            }
            reached = Some(message.reached);
        }
        Ok((commands, reached.expect("a stream says its position")))
    }

    /// The next command of a live stream, which must be the only one of its message, and the
    /// position in that message.
    pub async fn command(&mut self) -> (pb::CommandChanges, u64) {
        loop {
            let mut message = self.next().await.unwrap().expect("the stream goes on");
            if !message.commands.is_empty() {
                assert_eq!(message.commands.len(), 1, "{message:?}");
                return (message.commands.remove(0), message.reached);
            }
        }
    }
}

impl Member<'_> {
    async fn grpc(&self) -> StoreClient<tonic::transport::Channel> {
        let endpoint = tonic::transport::Endpoint::from_shared(self.cluster.client_url(self.index)).unwrap();
        StoreClient::new(within("a member accepts", endpoint.connect()).await.unwrap())
    }

    pub async fn read_request(&self, request: pb::ReadRequest) -> Result<pb::ReadResponse, Status> {
        match self.via {
            Via::Grpc => within("a read", self.grpc().await.read(request)).await.map(tonic::Response::into_inner),
            Via::Json => {
                let body = to_json("headwater.v1.ReadRequest", &request);
                let mut connection = Connection::open(&self.cluster.client_url(self.index), Version::HTTP_11).await;
                let answer = connection.post("/v1/store/read", body).await;
                if answer.status != 200 {
                    return Err(status(&answer.json));
                }
                assert!(answer.headers.contains_key("grpc-metadata-headwater-index"));
                Ok(from_json("headwater.v1.ReadResponse", &answer.json))
            }
        }
    }

    pub async fn commit(&self, request: pb::CommitRequest) -> Result<pb::CommitResponse, Status> {
        match self.via {
            Via::Grpc => within("a commit", self.grpc().await.commit(request)).await.map(tonic::Response::into_inner),
            Via::Json => {
                let body = commit_json(request);
                let mut connection = Connection::open(&self.cluster.client_url(self.index), Version::HTTP_11).await;
                let mut answer = connection.post("/v1/store/commit", body).await;
                if answer.status != 200 {
                    let mut status = status(&answer.json);
                    for name in ["headwater-condition", "headwater-operation"] {
                        if let Some(number) = answer.headers.get(format!("grpc-metadata-{name}")) {
                            status.metadata_mut().insert(name, number.to_str().unwrap().parse().unwrap());
                        }
                    }
                    return Err(status);
                }
                // Only the server knows the types of data.
                for result in answer.json["results"].as_array_mut().into_iter().flatten() {
                    if let Some(resource) =
                        result.pointer_mut("/write_resource/resource").and_then(Value::as_object_mut)
                    {
                        let data = resource.remove("data");
                        assert!(data.is_none_or(|data| data.get("name").is_some()), "{resource:?}");
                    }
                }
                Ok(from_json("headwater.v1.CommitResponse", &answer.json))
            }
        }
    }

    pub async fn read(&self, targets: &[&str], at: Option<pb::Point>) -> Result<pb::ReadResponse, Status> {
        let targets = targets.iter().map(|&target| target.to_owned()).collect();
        self.read_request(pb::ReadRequest { targets, at, ..Default::default() }).await
    }

    pub async fn history(&self, request: pb::HistoryRequest) -> Result<Changes, Status> {
        match self.via {
            Via::Grpc => {
                let mut client = self.grpc().await.max_decoding_message_size(usize::MAX);
                let stream = within("a stream begins", client.history(request)).await?.into_inner();
                Ok(Changes::Grpc(Box::new(stream)))
            }
            Via::Json => {
                let body = to_json("headwater.v1.HistoryRequest", &request);
                let mut connection = Connection::open(&self.cluster.client_url(self.index), Version::HTTP_2).await;
                let body = Body::new(http_body_util::Full::new(body.into()));
                let response = connection.send(Request::post("/v1/store/history").body(body).unwrap()).await;
                if response.status() != 200 {
                    let text = within("an error", response.into_body().collect()).await.unwrap().to_bytes();
                    return Err(status(&serde_json::from_slice(&text).unwrap()));
                }
                Ok(Changes::Json(Box::new((connection, Lines::new(response)))))
            }
        }
    }

    /// All commands that changed `target`.
    pub async fn changes(&self, target: &str) -> Vec<pb::CommandChanges> {
        self.history(of(target)).await.unwrap().rest().await.unwrap().0
    }

    /// Writes a key; returns its revision and the log index.
    pub async fn put(&self, key: &str, value: &str) -> (i64, u64) {
        let request = PutRequest { key: key.to_owned().into(), value: value.to_owned().into(), ..Default::default() };
        let answer = self.cluster.kv(self.index).put(request).await.unwrap();
        let index = answer.metadata().get("headwater-index").unwrap().to_str().unwrap().parse().unwrap();
        (answer.into_inner().header.unwrap().revision, index)
    }

    pub async fn delete(&self, key: &str) -> u64 {
        let request =
            headwater::pb::etcdserverpb::DeleteRangeRequest { key: key.to_owned().into(), ..Default::default() };
        let answer = self.cluster.kv(self.index).delete_range(request).await.unwrap();
        answer.metadata().get("headwater-index").unwrap().to_str().unwrap().parse().unwrap()
    }
}

/// The request for all changes of a target.
pub fn of(target: &str) -> pb::HistoryRequest {
    pb::HistoryRequest { targets: vec![target.to_owned()], ..Default::default() }
}

pub fn at(index: u64) -> Option<pb::Point> {
    Some(pb::Point { point: Some(pb::point::Point::Index(index)), epoch: String::new() })
}

pub fn at_time(unix_ms: i64) -> Option<pb::Point> {
    Some(pb::Point { point: Some(pb::point::Point::UnixMs(unix_ms)), epoch: String::new() })
}

/// The value of a key, as text. For any other entity, the short name of its message.
pub fn data(entity: &pb::Entity) -> String {
    let any = entity.data.as_ref().expect("an entity has data");
    let name = any.type_url.rsplit('/').next().unwrap();
    match name {
        "mvccpb.KeyValue" => String::from_utf8_lossy(&mvccpb::KeyValue::decode(&any.value[..]).unwrap().value).into(),
        name => name.rsplit('.').next().unwrap().to_owned(),
    }
}

/// `path=data` of each entity.
pub fn shown(entities: &[pb::Entity]) -> Vec<String> {
    entities.iter().map(|entity| format!("{}={}", entity.path, data(entity))).collect()
}

/// `path before -> after` of each change of a command, with `-` for an absent entity.
pub fn changes(command: &pb::CommandChanges) -> Vec<String> {
    let state = |state: &Option<pb::Entity>| state.as_ref().map_or("-".to_owned(), data);
    let shown = |change: &pb::EntityChange| {
        for entity in change.before.iter().chain(&change.after) {
            assert_eq!(entity.path, change.path);
        }
        format!("{} {} -> {}", change.path, state(&change.before), state(&change.after))
    };
    command.changes.iter().map(shown).collect()
}
