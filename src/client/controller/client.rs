//! Client of the resource service for reconcilers, over [`Endpoints`].
//!
//! Invariant: a write is sent a second time only if it was certainly not carried out, or if a
//! repetition leaves the same behind. Otherwise it fails with one of the codes that
//! [`Error::Status`] lists, and the next reconciliation reads the outcome.

use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use tonic::{Code, Request, Response, Status};

use super::wire;
use crate::endpoints::OPEN_TIMEOUT;
use crate::{Attempt, BadEndpoint, CallError, Endpoints, Repeat};
use headwater_proto::pb::pbresource::{self, Resource};
use headwater_types::resource::{ResourceId, Tenancy, Type};

/// Longest wait for the answer of one endpoint.
pub(super) const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// Most resources in one answer to a list, count.
const PAGE_SIZE: usize = 500;

/// Failure of a controller's request.
#[derive(Debug, Error)]
pub enum Error {
    /// An endpoint is malformed, or none is named.
    #[error(transparent)]
    Endpoint(#[from] BadEndpoint),
    /// The status of the last endpoint that was asked: the server refused the call, or no endpoint
    /// answered. A write may or may not have been carried out if the code is `UNAVAILABLE`,
    /// `DEADLINE_EXCEEDED`, `CANCELLED`, `INTERNAL` or `UNKNOWN`.
    #[error("{}: {}", .0.code(), .0.message())]
    Status(#[from] Box<Status>),
    /// An error of a reconciler's own.
    #[error("{0}")]
    Other(String),
}

impl From<Status> for Error {
    fn from(status: Status) -> Self {
        Self::Status(Box::new(status))
    }
}

impl From<CallError> for Error {
    fn from(error: CallError) -> Self {
        error.into_status().into()
    }
}

impl Error {
    /// The status code of the server or of the connection; `None` for other errors.
    #[must_use]
    pub fn code(&self) -> Option<Code> {
        match self {
            Self::Status(status) => Some(status.code()),
            Self::Endpoint(_) | Self::Other(_) => None,
        }
    }

    /// Whether the code is `ABORTED` or `FAILED_PRECONDITION`. A write or deletion gets one of them
    /// if the stored resource has another version or uid than the given one, if it was deleted, or
    /// if its type was registered again. The caller should then read the resource again. Other
    /// errors have these codes too, for example that a list is too old for its next page.
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        matches!(self.code(), Some(Code::Aborted | Code::FailedPrecondition))
    }
}

/// Connections to a cluster. Clones share them, and the preferred endpoint.
#[derive(Clone, Debug)]
pub struct Client {
    endpoints: Arc<Endpoints>,
}

impl Client {
    /// A client of the cluster at these endpoints, named as `HOST:PORT` or `unix:///PATH`. Connects
    /// when it is first needed.
    ///
    /// # Errors
    ///
    /// [`Error::Endpoint`] for a malformed one, or if there is none.
    pub fn new<S: AsRef<str>>(endpoints: impl IntoIterator<Item = S>) -> Result<Self, Error> {
        Ok(Self { endpoints: Arc::new(Endpoints::new(endpoints)?) })
    }

    /// The resource `id`, by a linearizable read. `None` if it does not exist, or is stored as
    /// another version of its kind.
    ///
    /// # Errors
    ///
    /// [`Error::Status`].
    pub async fn read(&self, id: &ResourceId) -> Result<Option<Resource>, Error> {
        let request = pbresource::ReadRequest { id: Some(wire::id_to_pb(id)) };
        let call = async |a: Attempt| {
            let mut request = a.request(request.clone());
            wire::consistent(&mut request);
            a.resources().read(request).await
        };
        match self.call(Repeat::Harmless, call).await {
            Ok(answer) => Ok(answer.into_inner().resource),
            Err(Error::Status(status)) if status.code() == Code::NotFound || wire::is_other_version(&status) => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Creates or replaces a resource, and returns it as stored. If `version` is set in it, only if
    /// that is the stored version.
    ///
    /// # Errors
    ///
    /// [`Error::Status`]; see [`Error::is_conflict`].
    pub async fn write(&self, resource: Resource) -> Result<Resource, Error> {
        let request = pbresource::WriteRequest { resource: Some(resource) };
        let call = async |a: Attempt| a.resources().write(a.request(request.clone())).await;
        let answer = self.call(Repeat::Harmful, call).await?;
        Ok(answer.into_inner().resource.unwrap_or_default())
    }

    /// Replaces the status `key` of a resource, at any version. Returns the resource as stored.
    ///
    /// # Errors
    ///
    /// [`Error::Status`].
    pub async fn write_status(
        &self,
        id: Option<pbresource::Id>,
        key: &str,
        status: pbresource::Status,
    ) -> Result<Resource, Error> {
        let request =
            pbresource::WriteStatusRequest { id, version: String::new(), key: key.to_owned(), status: Some(status) };
        // Writing the same status twice leaves the same state.
        let call = async |a: Attempt| a.resources().write_status(a.request(request.clone())).await;
        let answer = self.call(Repeat::Harmless, call).await?;
        Ok(answer.into_inner().resource.unwrap_or_default())
    }

    /// Every resource of a type in the units that `tenancy` selects, as of one state.
    ///
    /// # Errors
    ///
    /// [`Error::Status`].
    pub async fn list(&self, type_: &Type, tenancy: &Tenancy) -> Result<Vec<Resource>, Error> {
        let request = pbresource::ListRequest {
            r#type: Some(wire::type_to_pb(type_)),
            tenancy: Some(wire::tenancy_to_pb(tenancy)),
            name_prefix: String::new(),
        };
        let mut all = Vec::new();
        let mut token: Option<String> = None;
        loop {
            let call = async |a: Attempt| {
                let mut request = a.request(request.clone());
                wire::consistent(&mut request);
                wire::page(&mut request, PAGE_SIZE, token.as_deref());
                a.resources().list(request).await
            };
            let answer = self.call(Repeat::Harmless, call).await?;
            let next = wire::next_page(&answer);
            all.extend(answer.into_inner().resources);
            match next {
                Some(next) => token = Some(next),
                None => return Ok(all),
            }
        }
    }

    /// The resources that `owner` owns. The id must have a uid.
    ///
    /// # Errors
    ///
    /// [`Error::Status`].
    pub async fn list_by_owner(&self, owner: &pbresource::Id) -> Result<Vec<Resource>, Error> {
        let request = pbresource::ListByOwnerRequest { owner: Some(owner.clone()) };
        let call = async |a: Attempt| a.resources().list_by_owner(a.request(request.clone())).await;
        let answer = self.call(Repeat::Harmless, call).await?;
        Ok(answer.into_inner().resources)
    }

    /// Deletes a resource, if its uid is that of `id` and its version is `version`; an empty one
    /// matches any. A missing resource is no error; another uid or version is.
    ///
    /// # Errors
    ///
    /// [`Error::Status`].
    pub async fn delete(&self, id: &pbresource::Id, version: &str) -> Result<(), Error> {
        let request = pbresource::DeleteRequest { id: Some(id.clone()), version: version.to_owned() };
        // A uid names one life of the resource: it is deleted once, however often it is asked for.
        let repeat = if id.uid.is_empty() { Repeat::Harmful } else { Repeat::Harmless };
        let call = async |a: Attempt| a.resources().delete(a.request(request.clone())).await;
        self.call(repeat, call).await?;
        Ok(())
    }

    /// Watches a type in every unit at one endpoint. Resumes after a position; without one, the
    /// stream begins with a list.
    pub(super) async fn watch(
        &self,
        endpoint: usize,
        type_: &Type,
        after: &wire::Position,
    ) -> Result<Response<tonic::Streaming<pbresource::WatchEvent>>, Status> {
        let request = pbresource::WatchListRequest {
            r#type: Some(wire::type_to_pb(type_)),
            tenancy: None,
            name_prefix: String::new(),
        };
        let call = async |attempt: Attempt| {
            let mut request = Request::new(request.clone());
            after.resume(&mut request);
            attempt.authorize(&mut request);
            attempt.resources().watch_list(request).await
        };
        self.endpoints.open(endpoint, Some(OPEN_TIMEOUT), call).await
    }

    pub(super) fn endpoints(&self) -> &Endpoints {
        &self.endpoints
    }

    async fn call<T, F>(&self, repeat: Repeat, call: impl Fn(Attempt) -> F) -> Result<Response<T>, Error>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        Ok(self.endpoints.call(repeat, CALL_TIMEOUT, call).await?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_have_a_port() {
        for (name, is_good) in [("127.0.0.1:2379", true), ("http://h:1/", true), ("h", false), ("", false)] {
            assert_eq!(Client::new([name]).is_ok(), is_good, "{name}");
        }
        assert!(Client::new(Vec::<String>::new()).is_err());
    }
}
