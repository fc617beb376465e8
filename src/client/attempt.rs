//! One attempt at one endpoint: its connection, and the clients of its services.

use std::time::Duration;

use tonic::transport::Channel;
use tonic::{Request, Status};

use super::credentials::Token;
use headwater_proto::pb::etcdserverpb::auth_client::AuthClient;
use headwater_proto::pb::etcdserverpb::cluster_client::ClusterClient;
use headwater_proto::pb::etcdserverpb::kv_client::KvClient;
use headwater_proto::pb::etcdserverpb::lease_client::LeaseClient;
use headwater_proto::pb::etcdserverpb::maintenance_client::MaintenanceClient;
use headwater_proto::pb::etcdserverpb::watch_client::WatchClient;
use headwater_proto::pb::etcdserverpb::{LeaseKeepAliveRequest, LeaseKeepAliveResponse};
use headwater_proto::pb::headwater_v1::invitations_client::InvitationsClient;
use headwater_proto::pb::headwater_v1::store_client::StoreClient;
use headwater_proto::pb::headwater_v1::versions_client::VersionsClient;
use headwater_proto::pb::pbresource::resource_service_client::ResourceServiceClient;
use headwater_proto::pb::pbwatcher::watcher_client::WatcherClient;
use headwater_proto::pb::subscribe::state_change_subscription_client::StateChangeSubscriptionClient;
use headwater_proto::pb::v3electionpb::election_client::ElectionClient;
use headwater_proto::pb::v3lockpb::lock_client::LockClient;

/// A connection to one endpoint, with the timeout and the user's token for its requests. The
/// clients add neither: make requests by [`request`](Self::request), or add the token by
/// [`authorize`](Self::authorize).
#[derive(Clone, Debug)]
pub struct Attempt {
    channel: Channel,
    timeout: Option<Duration>,
    token: Option<Token>,
}

impl Attempt {
    pub(crate) fn new(channel: Channel, timeout: Option<Duration>, token: Option<Token>) -> Self {
        Self { channel, timeout, token }
    }

    /// Client of the service of keys.
    #[must_use]
    pub fn kv(&self) -> KvClient<Channel> {
        KvClient::new(self.channel.clone()).max_decoding_message_size(usize::MAX)
    }

    /// Client of the service of watches of keys.
    #[must_use]
    pub fn watch(&self) -> WatchClient<Channel> {
        WatchClient::new(self.channel.clone()).max_decoding_message_size(usize::MAX)
    }

    /// Client of the service of leases.
    #[must_use]
    pub fn lease(&self) -> LeaseClient<Channel> {
        LeaseClient::new(self.channel.clone()).max_decoding_message_size(usize::MAX)
    }

    /// Client of the service of locks.
    #[must_use]
    pub fn lock(&self) -> LockClient<Channel> {
        LockClient::new(self.channel.clone())
    }

    /// Client of the service of elections.
    #[must_use]
    pub fn election(&self) -> ElectionClient<Channel> {
        ElectionClient::new(self.channel.clone())
    }

    /// Client of the service of typed resources.
    #[must_use]
    pub fn resources(&self) -> ResourceServiceClient<Channel> {
        ResourceServiceClient::new(self.channel.clone()).max_decoding_message_size(usize::MAX)
    }

    /// Client of the service of watches of any entity.
    #[must_use]
    pub fn watcher(&self) -> WatcherClient<Channel> {
        WatcherClient::new(self.channel.clone()).max_decoding_message_size(usize::MAX)
    }

    /// Client of the store's service.
    #[must_use]
    pub fn store(&self) -> StoreClient<Channel> {
        StoreClient::new(self.channel.clone()).max_decoding_message_size(usize::MAX)
    }

    /// Client of the service of versions.
    #[must_use]
    pub fn versions(&self) -> VersionsClient<Channel> {
        VersionsClient::new(self.channel.clone())
    }

    /// Client of the service of invitations.
    #[must_use]
    pub fn invitations(&self) -> InvitationsClient<Channel> {
        InvitationsClient::new(self.channel.clone())
    }

    /// Client of the service of members.
    #[must_use]
    pub fn cluster(&self) -> ClusterClient<Channel> {
        ClusterClient::new(self.channel.clone())
    }

    /// Client of the service of maintenance.
    #[must_use]
    pub fn maintenance(&self) -> MaintenanceClient<Channel> {
        MaintenanceClient::new(self.channel.clone())
    }

    /// Client of the service of users and roles.
    #[must_use]
    pub fn auth(&self) -> AuthClient<Channel> {
        AuthClient::new(self.channel.clone())
    }

    /// Client of the service of subscriptions to the catalog.
    pub(crate) fn subscriptions(&self) -> StateChangeSubscriptionClient<Channel> {
        StateChangeSubscriptionClient::new(self.channel.clone()).max_decoding_message_size(usize::MAX)
    }

    /// Channel for plain HTTP requests.
    #[must_use]
    pub fn http(&self) -> Channel {
        self.channel.clone()
    }

    /// A request that carries the timeout and the user's token, each if there is one. The server,
    /// and this client, give up after the timeout.
    #[must_use]
    pub fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(timeout) = self.timeout {
            request.set_timeout(timeout);
        }
        self.authorize(&mut request);
        request
    }

    /// Adds the user's token, if there is a user, to a request that was not made by this attempt.
    pub fn authorize<T>(&self, request: &mut Request<T>) {
        if let Some(Token(token)) = &self.token {
            request.metadata_mut().insert("token", token.clone());
        }
    }

    /// Sends one keep-alive of a lease, on a stream of its own: a broken stream is noticed at once.
    /// An answer with a time to live of 0 means that there is no such lease. `None` if the stream
    /// ended without an answer.
    ///
    /// # Errors
    ///
    /// The status of the call. The lease may have been kept alive all the same.
    pub async fn keep_alive(&self, lease: i64) -> Result<Option<LeaseKeepAliveResponse>, Status> {
        let requests = futures::stream::iter([LeaseKeepAliveRequest { id: lease }]);
        self.lease().lease_keep_alive(self.request(requests)).await?.into_inner().message().await
    }
}
