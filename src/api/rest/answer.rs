//! Answers, and the table from gRPC codes to statuses of HTTP (spec: consul §5.17).

use std::collections::BTreeMap;
use std::error::Error;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Response, StatusCode, header};
use http_body_util::Full;
use serde::Serialize;
use tonic::body::Body;
use tonic::metadata::MetadataMap;
use tonic::{Code, Status};

use super::types::ServedType;
use headwater_api_shared::timed_body::is_late;
use headwater_proto::pb::pbresource;
use headwater_schema::JsonData;
use headwater_types::resource::Any;

/// The failure of a request: a status and a text.
#[derive(Debug)]
pub(super) struct Refusal {
    code: StatusCode,
    text: String,
    /// Value of the header `Allow`: the methods that the path allows. `None` unless the status is
    /// 405.
    allow: Option<&'static str>,
    /// Metadata of the gRPC status with which the service refused; `None` if the refusal is made
    /// here.
    metadata: Option<Box<MetadataMap>>,
}

impl Refusal {
    pub(super) fn new(code: StatusCode, text: impl Into<String>) -> Self {
        Self { code, text: text.into(), allow: None, metadata: None }
    }

    pub(super) fn path(path: &str) -> Self {
        let text = format!(
            "there is nothing at {path}; resources are at /api/GROUP/VERSION/KIND/NAME, in lower case, if their type is \
             registered and served over HTTP"
        );
        Self::new(StatusCode::NOT_FOUND, text)
    }

    pub(super) fn method(method: &Method, has_name: bool) -> Self {
        let allow = if has_name { "GET, PUT, DELETE" } else { "GET" };
        let text = format!("{method} is not allowed here; there are {allow}");
        Self { allow: Some(allow), ..Self::new(StatusCode::METHOD_NOT_ALLOWED, text) }
    }

    pub(super) fn body(error: &(dyn Error + 'static)) -> Self {
        if error.is::<http_body_util::LengthLimitError>() {
            return Self::new(StatusCode::PAYLOAD_TOO_LARGE, "the body is too large");
        }
        let code = if is_late(error) { StatusCode::REQUEST_TIMEOUT } else { StatusCode::BAD_REQUEST };
        Self::new(code, format!("the body could not be read: {error}"))
    }

    pub(super) fn into_response(self) -> Response<Body> {
        let mut response = Response::new(Body::new(Full::new(Bytes::from(self.text + "\n"))));
        *response.status_mut() = self.code;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        if let Some(allow) = self.allow {
            headers.insert(header::ALLOW, HeaderValue::from_static(allow));
        }
        if let Some(metadata) = self.metadata {
            copy_metadata(&metadata, &mut response);
        }
        response
    }
}

impl From<Status> for Refusal {
    fn from(status: Status) -> Self {
        let metadata = Some(Box::new(status.metadata().clone()));
        Self { metadata, ..Self::new(http_status(status.code()), status.message()) }
    }
}

/// The HTTP status of a gRPC code. Consul answers 500 for codes that are not in its table; here
/// they get the status that HTTP clients act upon, if there is one.
fn http_status(code: Code) -> StatusCode {
    match code {
        Code::Ok => StatusCode::OK,
        Code::InvalidArgument | Code::FailedPrecondition | Code::OutOfRange => StatusCode::BAD_REQUEST,
        Code::NotFound => StatusCode::NOT_FOUND,
        Code::PermissionDenied => StatusCode::FORBIDDEN,
        Code::Unauthenticated => StatusCode::UNAUTHORIZED,
        Code::Aborted | Code::AlreadyExists => StatusCode::CONFLICT,
        Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
        Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        Code::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
        Code::Cancelled | Code::Unknown | Code::Unimplemented | Code::Internal | Code::DataLoss => {
            StatusCode::INTERNAL_SERVER_ERROR
        }
    }
}

/// Copies the log index, the page token and the mark of an indeterminate write into the headers of
/// `response`, as far as `metadata` has them, with what the values are marked as.
fn copy_metadata(metadata: &MetadataMap, response: &mut Response<Body>) {
    for name in ["headwater-index", "headwater-page-token", "headwater-indeterminate"] {
        if let Some(value) = metadata.as_ref().get(name) {
            response.headers_mut().insert(HeaderName::from_static(name), value.clone());
        }
    }
}

#[derive(Serialize)]
struct ListBody<'a> {
    resources: Vec<ResourceBody<'a>>,
}

/// A resource in proto-JSON. Its `data` has no `@type`: the path determines the type.
#[derive(Serialize)]
struct ResourceBody<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<IdBody<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<IdBody<'a>>,
    version: &'a str,
    generation: &'a str,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    metadata: BTreeMap<&'a str, &'a str>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    status: BTreeMap<&'a str, StatusBody<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<JsonData>,
}

#[derive(Serialize)]
struct IdBody<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    uid: &'a str,
    name: &'a str,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    type_: Option<TypeBody<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tenancy: Option<TenancyBody<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TypeBody<'a> {
    group: &'a str,
    group_version: &'a str,
    kind: &'a str,
}

#[derive(Serialize)]
struct TenancyBody<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    partition: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    namespace: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct StatusBody<'a> {
    observed_generation: &'a str,
    conditions: Vec<ConditionBody<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    updated_at: Option<String>,
}

#[derive(Serialize)]
struct ConditionBody<'a> {
    #[serde(rename = "type")]
    type_: &'a str,
    state: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    reason: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource: Option<ReferenceBody<'a>>,
}

#[derive(Serialize)]
struct ReferenceBody<'a> {
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    type_: Option<TypeBody<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tenancy: Option<TenancyBody<'a>>,
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    section: &'a str,
}

impl<'a> TypeBody<'a> {
    fn new(from: &'a pbresource::Type) -> Self {
        Self { group: &from.group, group_version: &from.group_version, kind: &from.kind }
    }
}

impl<'a> TenancyBody<'a> {
    fn new(from: &'a pbresource::Tenancy) -> Self {
        Self { partition: &from.partition, namespace: &from.namespace }
    }
}

impl<'a> IdBody<'a> {
    fn new(from: &'a pbresource::Id) -> Self {
        Self {
            uid: &from.uid,
            name: &from.name,
            type_: from.r#type.as_ref().map(TypeBody::new),
            tenancy: from.tenancy.as_ref().map(TenancyBody::new),
        }
    }
}

impl<'a> StatusBody<'a> {
    fn new(from: &'a pbresource::Status) -> Self {
        Self {
            observed_generation: &from.observed_generation,
            conditions: from.conditions.iter().map(ConditionBody::new).collect(),
            updated_at: from.updated_at.as_ref().map(ToString::to_string),
        }
    }
}

impl<'a> ConditionBody<'a> {
    fn new(from: &'a pbresource::Condition) -> Self {
        let reference = |it: &'a pbresource::Reference| ReferenceBody {
            type_: it.r#type.as_ref().map(TypeBody::new),
            tenancy: it.tenancy.as_ref().map(TenancyBody::new),
            name: &it.name,
            section: &it.section,
        };
        Self {
            type_: &from.r#type,
            state: from.state().as_str_name(),
            reason: &from.reason,
            message: &from.message,
            resource: from.resource.as_ref().map(reference),
        }
    }
}

impl<'a> ResourceBody<'a> {
    fn new(from: &'a pbresource::Resource, served: &ServedType) -> Result<Self, Refusal> {
        let schema = served.schema()?;
        let data = from.data.as_ref().map(|data| {
            let data = Any { type_url: data.type_url.clone(), value: data.value.clone().into() };
            schema.data_as_json(&data).map_err(|violation| {
                Refusal::new(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    format!("what is stored is not of its type: {violation}"),
                )
            })
        });
        Ok(Self {
            id: from.id.as_ref().map(IdBody::new),
            owner: from.owner.as_ref().map(IdBody::new),
            version: &from.version,
            generation: &from.generation,
            metadata: from.metadata.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect(),
            status: from.status.iter().map(|(key, status)| (key.as_str(), StatusBody::new(status))).collect(),
            data: data.transpose()?,
        })
    }
}

pub(super) fn resource(
    resource: Option<pbresource::Resource>,
    served: &ServedType,
    metadata: &MetadataMap,
) -> Result<Response<Body>, Refusal> {
    let resource = resource.unwrap_or_default();
    json(&ResourceBody::new(&resource, served)?, metadata)
}

pub(super) fn list(
    resources: Vec<pbresource::Resource>,
    served: &ServedType,
    metadata: &MetadataMap,
) -> Result<Response<Body>, Refusal> {
    let resources = resources.iter().map(|it| ResourceBody::new(it, served)).collect::<Result<_, _>>()?;
    json(&ListBody { resources }, metadata)
}

/// The refusal of a list for which the encoding task failed.
pub(super) fn broken() -> Refusal {
    Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "the list cannot be written as JSON")
}

pub(super) fn deleted() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}

fn json(body: &impl Serialize, metadata: &MetadataMap) -> Result<Response<Body>, Refusal> {
    let text = serde_json::to_vec(body).map_err(|error| {
        Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, format!("what is stored cannot be written as JSON: {error}"))
    })?;
    let mut response = Response::new(Body::new(Full::new(Bytes::from(text))));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    copy_metadata(metadata, &mut response);
    Ok(response)
}
