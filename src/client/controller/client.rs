//! A client of the resource service that goes on at the next endpoint when one does not answer.
//!
//! Invariant: a write is sent a second time only if it was certainly not carried out; otherwise it
//! is an error that says so, and the reconciler's next look at things tells.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use thiserror::Error;
use tonic::transport::Channel;
use tonic::{Code, Request, Response, Status};

use super::wire;
use crate::{BadEndpoint, channel};
use headwater_proto::pb::etcdserverpb::lease_client::LeaseClient;
use headwater_proto::pb::pbresource::resource_service_client::ResourceServiceClient;
use headwater_proto::pb::pbresource::{self, Resource};
use headwater_proto::pb::v3electionpb::election_client::ElectionClient;
use headwater_types::resource::{ResourceId, Tenancy, Type};

/// Longest wait for one answer.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// Resources that one answer to a list brings, count.
const PAGE_SIZE: usize = 500;

/// Why a controller could not do something.
#[derive(Debug, Error)]
pub enum Error {
    /// An endpoint that is none.
    #[error(transparent)]
    Endpoint(#[from] BadEndpoint),
    /// The server refused, or nobody answered. A write may or may not have been carried out if the
    /// code is `UNAVAILABLE`, `DEADLINE_EXCEEDED`, `CANCELLED` or `UNKNOWN`.
    #[error("{}: {}", .0.code(), .0.message())]
    Status(#[from] Box<Status>),
    /// The controller's own.
    #[error("{0}")]
    Other(String),
}

impl From<Status> for Error {
    fn from(status: Status) -> Self {
        Self::Status(Box::new(status))
    }
}

impl Error {
    /// The code, if a server or the connection said one.
    #[must_use]
    pub fn code(&self) -> Option<Code> {
        match self {
            Self::Status(status) => Some(status.code()),
            Self::Endpoint(_) | Self::Other(_) => None,
        }
    }

    /// Whether somebody else has changed the resource first: read it again.
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        matches!(self.code(), Some(Code::Aborted | Code::FailedPrecondition))
    }
}

/// Connections to a cluster. Clones share them.
#[derive(Clone, Debug)]
pub struct Client {
    channels: Arc<[Channel]>,
    /// Where calls begin: the endpoint that answered last.
    current: Arc<AtomicUsize>,
}

impl Client {
    /// Names the endpoints, as `HOST:PORT`; connects when it is first needed.
    ///
    /// # Errors
    ///
    /// [`Error::Endpoint`] for one that makes no sense. Needs a Tokio runtime around it.
    pub fn new<S: AsRef<str>>(endpoints: impl IntoIterator<Item = S>) -> Result<Self, Error> {
        let channels = endpoints.into_iter().map(|name| channel(name.as_ref())).collect::<Result<Vec<_>, _>>()?;
        if channels.is_empty() {
            return Err(BadEndpoint(String::new()).into());
        }
        Ok(Self { channels: channels.into(), current: Arc::default() })
    }

    /// The resource, if it is there, as of a state that has every write acknowledged before. One
    /// that is there as another version of its kind is not.
    ///
    /// # Errors
    ///
    /// [`Error::Status`].
    pub async fn read(&self, id: &ResourceId) -> Result<Option<Resource>, Error> {
        let request = pbresource::ReadRequest { id: Some(wire::id_to_pb(id)) };
        let call = |channel| {
            let mut request = timed(request.clone());
            wire::consistent(&mut request);
            async move { resources(channel).read(request).await }
        };
        let found = self.call(true, call).await;
        match found {
            Ok(answer) => Ok(answer.into_inner().resource),
            Err(Error::Status(status)) if status.code() == Code::NotFound || wire::is_other_version(&status) => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Creates or replaces a resource. With a version it happens only if that is the stored one.
    ///
    /// # Errors
    ///
    /// [`Error::Status`]; see [`Error::is_conflict`].
    pub async fn write(&self, resource: Resource) -> Result<Resource, Error> {
        let request = pbresource::WriteRequest { resource: Some(resource) };
        let call = |channel| {
            let request = timed(request.clone());
            async move { resources(channel).write(request).await }
        };
        let answer = self.call(false, call).await?;
        Ok(answer.into_inner().resource.unwrap_or_default())
    }

    /// Replaces one status of a resource, at any version.
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
        // The same once more leaves the same behind.
        let call = |channel| {
            let request = timed(request.clone());
            async move { resources(channel).write_status(request).await }
        };
        let answer = self.call(true, call).await?;
        Ok(answer.into_inner().resource.unwrap_or_default())
    }

    /// Every resource of a type in some units of tenancy, as of one state.
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
            let call = |channel| {
                let mut request = timed(request.clone());
                wire::consistent(&mut request);
                wire::page(&mut request, PAGE_SIZE, token.as_deref());
                async move { resources(channel).list(request).await }
            };
            let answer = self.call(true, call).await?;
            let next = wire::next_page(&answer);
            all.extend(answer.into_inner().resources);
            match next {
                Some(next) => token = Some(next),
                None => return Ok(all),
            }
        }
    }

    /// Children of a resource. The id must have a uid.
    ///
    /// # Errors
    ///
    /// [`Error::Status`].
    pub async fn list_by_owner(&self, owner: &pbresource::Id) -> Result<Vec<Resource>, Error> {
        let request = pbresource::ListByOwnerRequest { owner: Some(owner.clone()) };
        let call = |channel| {
            let request = timed(request.clone());
            async move { resources(channel).list_by_owner(request).await }
        };
        let answer = self.call(true, call).await?;
        Ok(answer.into_inner().resources)
    }

    /// Deletes a resource. That there is none is no error.
    ///
    /// # Errors
    ///
    /// [`Error::Status`].
    pub async fn delete(&self, id: &pbresource::Id, version: &str) -> Result<(), Error> {
        let request = pbresource::DeleteRequest { id: Some(id.clone()), version: version.to_owned() };
        let is_harmless = !id.uid.is_empty();
        let call = |channel| {
            let request = timed(request.clone());
            async move { resources(channel).delete(request).await }
        };
        self.call(is_harmless, call).await?;
        Ok(())
    }

    /// Watches a type in every unit: after a position, or from a list on.
    pub(super) async fn watch(
        &self,
        type_: &Type,
        after: &wire::Position,
    ) -> Result<Response<tonic::Streaming<pbresource::WatchEvent>>, Status> {
        let request = pbresource::WatchListRequest {
            r#type: Some(wire::type_to_pb(type_)),
            tenancy: None,
            name_prefix: String::new(),
        };
        let mut request = Request::new(request);
        after.resume(&mut request);
        resources(self.channel()).watch_list(request).await
    }

    pub(super) fn election(&self) -> ElectionClient<Channel> {
        ElectionClient::new(self.channel())
    }

    pub(super) fn lease(&self) -> LeaseClient<Channel> {
        LeaseClient::new(self.channel())
    }

    /// Begins at the next endpoint from now on.
    pub(super) fn go_on(&self) {
        self.current.fetch_add(1, Ordering::Relaxed);
    }

    /// Every endpoint once, beginning where calls begin.
    pub(super) fn channels(&self) -> impl Iterator<Item = Channel> {
        let first = self.current.load(Ordering::Relaxed);
        (0..self.channels.len()).map(move |number| self.channels[(first + number) % self.channels.len()].clone())
    }

    fn channel(&self) -> Channel {
        self.channels[self.current.load(Ordering::Relaxed) % self.channels.len()].clone()
    }

    /// Asks one endpoint after the other until one answers. A request that must not be repeated
    /// continues only while there was no connection.
    pub(super) async fn call<T, F>(&self, is_harmless: bool, call: impl Fn(Channel) -> F) -> Result<Response<T>, Error>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let mut tries = self.channels.len();
        loop {
            tries -= 1;
            let status = match tokio::time::timeout(CALL_TIMEOUT, call(self.channel())).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(status)) => status,
                Err(_) => Status::deadline_exceeded("no answer in time"),
            };
            let is_undone = status.code() == Code::Unavailable && is_no_connection(&status);
            let may_go_on = match status.code() {
                Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled | Code::Unknown => {
                    self.go_on();
                    is_harmless || is_undone
                }
                _ => false,
            };
            if tries == 0 || !may_go_on {
                return Err(status.into());
            }
        }
    }
}

fn resources(channel: Channel) -> ResourceServiceClient<Channel> {
    ResourceServiceClient::new(channel).max_decoding_message_size(usize::MAX)
}

/// A request that carries the deadline, so that the server gives up in time.
pub(super) fn timed<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(CALL_TIMEOUT);
    request
}

fn is_no_connection(status: &Status) -> bool {
    let mut source = std::error::Error::source(status);
    while let Some(error) = source {
        if let Some(error) = error.downcast_ref::<std::io::Error>() {
            return error.kind() == std::io::ErrorKind::ConnectionRefused;
        }
        source = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn endpoints_have_a_port() {
        for (name, is_good) in [("127.0.0.1:2379", true), ("http://h:1/", true), ("h", false), ("", false)] {
            assert_eq!(Client::new([name]).is_ok(), is_good, "{name}");
        }
        assert!(Client::new(Vec::<String>::new()).is_err());
    }

    #[tokio::test]
    async fn a_write_goes_on_to_the_next_endpoint_only_if_there_was_no_connection() {
        let free = || std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let client = Client::new([free(), free(), free()]).unwrap();
        let tried = AtomicUsize::new(0);
        let refused = client.call(false, |channel| {
            tried.fetch_add(1, Ordering::Relaxed);
            async move { resources(channel).write(timed(pbresource::WriteRequest::default())).await }
        });
        assert_eq!(refused.await.unwrap_err().code(), Some(Code::Unavailable));
        assert_eq!(tried.swap(0, Ordering::Relaxed), 3);
        let unknown = client.call(false, |_| {
            tried.fetch_add(1, Ordering::Relaxed);
            async { Err::<Response<()>, _>(Status::unavailable("the leader is gone")) }
        });
        assert!(unknown.await.is_err());
        assert_eq!(tried.load(Ordering::Relaxed), 1);
    }
}
