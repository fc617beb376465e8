//! Connections of tonic's clients, and leases that have to be there before a measurement.

use futures::stream::{self, StreamExt, TryStreamExt};
use tonic::transport::Channel;

use super::super::wire;
use crate::connect::describe;
use crate::error::CliError;
use headwater_client::Endpoints;
use headwater_proto::pb::etcdserverpb::kv_client::KvClient;
use headwater_proto::pb::etcdserverpb::lease_client::LeaseClient;
use headwater_proto::pb::etcdserverpb::{LeaseGrantRequest, PutRequest};

/// Largest number of grants under way at once.
const UNDER_WAY: usize = 256;

/// Opens a connection to each endpoint; the result is in the order of `endpoints`. An error if one
/// cannot be reached.
pub(crate) async fn connect(endpoints: &[String]) -> Result<Vec<Channel>, CliError> {
    let endpoints = Endpoints::by(endpoints, wire::dialer())?;
    let mut channels = Vec::new();
    for (number, name) in endpoints.names().enumerate() {
        let attempt = endpoints.connect(number, None).await;
        let attempt = attempt.map_err(|status| CliError::Finding(format!("{name}: {}", describe(&status))))?;
        channels.push(attempt.http());
    }
    Ok(channels)
}

/// Connects to the endpoints, grants `count` leases of `ttl` seconds, and returns their ids.
pub(super) fn grant_all(endpoints: &[String], count: usize, ttl: i64) -> Result<Vec<i64>, CliError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(CliError::other)?;
    runtime.block_on(async {
        let channels = connect(endpoints).await?;
        granted(&channels, count, ttl, None).await
    })
}

/// Grants `count` leases of `ttl` seconds and returns their ids. With a prefix, a key is attached
/// to each lease: the prefix, then the index of the lease's id in the result.
pub(super) async fn granted(
    channels: &[Channel],
    count: usize,
    ttl: i64,
    prefix: Option<&str>,
) -> Result<Vec<i64>, CliError> {
    let grant = |number: usize| async move {
        let channel = &channels[number % channels.len()];
        let request = LeaseGrantRequest { ttl, id: 0 };
        let lease = LeaseClient::new(channel.clone()).lease_grant(wire::request(request)).await?.into_inner().id;
        if let Some(prefix) = prefix {
            let key = format!("{prefix}{number}").into_bytes().into();
            let request = PutRequest { key, lease, ..PutRequest::default() };
            KvClient::new(channel.clone()).put(wire::request(request)).await?;
        }
        Ok::<_, tonic::Status>(lease)
    };
    let granted = stream::iter(0..count).map(grant).buffered(UNDER_WAY).try_collect().await;
    granted.map_err(|status| CliError::Finding(format!("leases cannot be granted: {}", status.message())))
}
