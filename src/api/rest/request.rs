//! Paths, queries and bodies of the requests below `/api/`.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode};
use serde::Deserialize;
use serde::de::IgnoredAny;
use tonic::metadata::MetadataMap;

use super::answer::Refusal;
use super::types::ServedType;
use headwater_proto::pb::pbresource;
use headwater_types::resource::DEFAULT_UNIT;

/// A path, split into its parts.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Path<'a> {
    pub(super) whole: &'a str,
    pub(super) group: &'a str,
    pub(super) version: &'a str,
    pub(super) kind: &'a str,
    pub(super) name: Option<&'a str>,
}

impl<'a> Path<'a> {
    /// Splits a path. Refused (404) unless it has three or four parts. Its letter case stays, and
    /// only a kind in lower case matches a type: another spelling would be a second name of the
    /// same resource.
    pub(super) fn read(whole: &'a str) -> Result<Self, Refusal> {
        let rest = whole.strip_prefix("/api").unwrap_or(whole);
        let parts: Vec<&str> = rest.trim_matches('/').split('/').collect();
        match parts.as_slice() {
            [group, version, kind] => Ok(Self { whole, group, version, kind, name: None }),
            [group, version, kind, name] => Ok(Self { whole, group, version, kind, name: Some(name) }),
            _ => Err(Refusal::path(whole)),
        }
    }
}

/// The type that a path names and, for one resource, its name. The units are in the query.
pub(super) struct Target {
    pub(super) served: ServedType,
    /// `None` for the list of the type's resources.
    pub(super) name: Option<String>,
}

impl Target {
    pub(super) fn type_to_pb(&self) -> pbresource::Type {
        let type_ = &self.served.type_;
        pbresource::Type {
            group: type_.group.clone(),
            group_version: type_.group_version.clone(),
            kind: type_.kind.clone(),
        }
    }

    /// The units in the query; `default` for a unit that the type has and the query leaves out.
    pub(super) fn tenancy(&self, query: &Query) -> pbresource::Tenancy {
        let unit = |is_there: bool, given: Option<&str>| match given.filter(|given| !given.is_empty()) {
            Some(given) => given.to_owned(),
            None if is_there => DEFAULT_UNIT.to_owned(),
            None => String::new(),
        };
        let scope = self.served.scope;
        pbresource::Tenancy {
            partition: unit(scope.has_partition(), query.get("partition")),
            namespace: unit(scope.has_namespace(), query.get("namespace").or_else(|| query.get("ns"))),
        }
    }

    pub(super) fn id(&self, name: &str, query: &Query) -> pbresource::Id {
        pbresource::Id {
            uid: String::new(),
            name: name.to_owned(),
            r#type: Some(self.type_to_pb()),
            tenancy: Some(self.tenancy(query)),
        }
    }
}

/// The parameters of all methods. Any other one is refused: a misspelt `version` would drop the
/// condition of a write.
const PARAMETERS: &[&str] =
    &["partition", "namespace", "ns", "name_prefix", "version", "consistent", "page_size", "page_token"];

/// The query of a URL. Of a parameter that comes twice, the first counts.
#[derive(Debug)]
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    pub(super) fn read(query: Option<&str>) -> Result<Self, Refusal> {
        let mut uri = "/?".to_owned();
        uri.push_str(query.unwrap_or_default());
        let bad = |text: String| Refusal::new(StatusCode::BAD_REQUEST, format!("the query cannot be read: {text}"));
        let uri: http::Uri = uri.parse().map_err(|error: http::uri::InvalidUri| bad(error.to_string()))?;
        let read = axum::extract::Query::try_from_uri(&uri).map_err(|error| bad(error.body_text()))?;
        let read: Vec<(String, String)> = read.0;
        match read.iter().find(|(name, _)| !PARAMETERS.contains(&name.as_str())) {
            Some((unknown, _)) => {
                Err(bad(format!("unknown parameter {unknown:?}; known are {}", PARAMETERS.join(", "))))
            }
            None => Ok(Self(read)),
        }
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    fn is_set(&self, name: &str) -> bool {
        self.get(name).is_some_and(|value| !matches!(value, "false" | "0"))
    }
}

/// Metadata of the gRPC call, taken from the headers and the query of the request.
pub(super) struct RequestMetadata(HeaderMap);

impl RequestMetadata {
    pub(super) fn read(headers: &HeaderMap, query: &Query) -> Result<Self, Refusal> {
        let mut metadata = HeaderMap::new();
        for name in ["authorization", "token", "x-consul-token", "grpc-timeout", "headwater-min-index"] {
            if let Some(value) = headers.get(name) {
                metadata.insert(name, value.clone());
            }
        }
        if query.is_set("consistent") {
            metadata.insert("x-consul-consistency-mode", HeaderValue::from_static("consistent"));
        }
        for (parameter, name) in [("page_size", "headwater-page-size"), ("page_token", "headwater-page-token")] {
            if let Some(value) = query.get(parameter) {
                let value = value.parse().map_err(|_| {
                    Refusal::new(
                        StatusCode::BAD_REQUEST,
                        format!("{parameter} has characters that cannot be handed on"),
                    )
                })?;
                metadata.insert(name, value);
            }
        }
        Ok(Self(metadata))
    }

    /// A gRPC request with `message` and this metadata.
    pub(super) fn around<T>(&self, message: T) -> tonic::Request<T> {
        let mut request = tonic::Request::new(message);
        *request.metadata_mut() = MetadataMap::from_headers(self.0.clone());
        request
    }
}

/// Members of a body. Any other member is refused: PUT replaces the whole resource, and a misspelt
/// `data` would empty it. The path and the query determine the resource and its version; the other
/// members of an answer are ignored, so that an answer can be sent back as a body.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PutBody {
    #[serde(default)]
    metadata: Option<BTreeMap<String, String>>,
    #[serde(default)]
    owner: Option<OwnerBody>,
    #[serde(default)]
    data: Option<serde_json::Value>,
    #[serde(default, rename = "id")]
    _id: IgnoredAny,
    #[serde(default, rename = "version")]
    _version: IgnoredAny,
    #[serde(default, rename = "generation")]
    _generation: IgnoredAny,
    #[serde(default, rename = "status")]
    _status: IgnoredAny,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct OwnerBody {
    #[serde(default)]
    uid: String,
    #[serde(default)]
    name: String,
    #[serde(rename = "type")]
    type_: Option<TypeBody>,
    tenancy: Option<TenancyBody>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct TypeBody {
    #[serde(default)]
    group: String,
    #[serde(default, alias = "group_version")]
    group_version: String,
    #[serde(default)]
    kind: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TenancyBody {
    #[serde(default)]
    partition: String,
    #[serde(default)]
    namespace: String,
}

/// The resource to write, from the path (`target`, `name`), the query and the body of a PUT.
pub(super) fn resource(
    target: &Target,
    name: &str,
    query: &Query,
    body: &Bytes,
) -> Result<pbresource::Resource, Refusal> {
    let bad = |error: serde_json::Error| {
        Refusal::new(StatusCode::BAD_REQUEST, format!("the body is not {{metadata, data, owner}} as JSON: {error}"))
    };
    // Through a map: serde would read a list as the members in their order.
    let members: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(body).map_err(bad)?;
    let read: PutBody = serde_json::from_value(members.into()).map_err(bad)?;
    let schema = target.served.schema()?;
    let data = read.data.map(|data| {
        let data = schema.read_data(data).map_err(|error| {
            Refusal::new(StatusCode::BAD_REQUEST, format!("data is not what {} wants: {error}", target.served.type_))
        })?;
        Ok::<_, Refusal>(prost_types::Any { type_url: data.type_url, value: data.value.to_vec() })
    });
    let owner = read.owner.map(|owner| pbresource::Id {
        uid: owner.uid,
        name: owner.name,
        r#type: owner.type_.map(|type_| pbresource::Type {
            group: type_.group,
            group_version: type_.group_version,
            kind: type_.kind,
        }),
        tenancy: owner
            .tenancy
            .map(|tenancy| pbresource::Tenancy { partition: tenancy.partition, namespace: tenancy.namespace }),
    });
    Ok(pbresource::Resource {
        id: Some(target.id(name, query)),
        owner,
        version: query.get("version").unwrap_or_default().to_owned(),
        metadata: read.metadata.unwrap_or_default(),
        data: data.transpose()?,
        ..Default::default()
    })
}
