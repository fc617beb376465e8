//! A client's connection to one node: sends requests, and classifies their outcomes.
//!
//! A request is *failed* only if it was never sent (no connection) or the server says that it was
//! not and will not be carried out; every other request without an answer is *unknown*. No request
//! is sent a second time.

use std::sync::Arc;
use std::time::Duration;

use headwater_proto::pb::etcdserverpb as pb;
use headwater_proto::pb::etcdserverpb::auth_client::AuthClient;
use headwater_proto::pb::etcdserverpb::kv_client::KvClient;
use headwater_proto::pb::etcdserverpb::lease_client::LeaseClient;
use headwater_proto::pb::etcdserverpb::maintenance_client::MaintenanceClient;
use headwater_proto::pb::etcdserverpb::watch_client::WatchClient;
use headwater_proto::pb::mvccpb;
use headwater_proto::pb::pbresource::resource_service_client::ResourceServiceClient;
use headwater_tls::{Connector, Dialer};
use parking_lot::Mutex;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Response, Status};

use crate::history::{Answer, Body, Condition, Freshness, Outcome, Pair, Request, Step, StepDone};
use crate::login::{Line, Login};

const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);
/// Longest time of the handshakes of TLS and HTTP/2. Added to [`CONNECT_TIMEOUT`].
const HANDSHAKE_MAX: Duration = Duration::from_millis(1500);
/// Interval of HTTP/2 pings, and the timeout of their answers: a connection to an isolated or
/// frozen node is dropped after at most twice this time.
const KEEPALIVE: Duration = Duration::from_secs(2);
/// Metadata field of a status: the request may have been carried out.
const INDETERMINATE: &str = "headwater-indeterminate";
pub(crate) const INDEX: &str = "headwater-index";
pub(crate) const MIN_INDEX: &str = "headwater-min-index";

/// The client port of one node, with one connection that clones share. Connects at the first
/// request.
#[derive(Clone)]
pub(crate) struct Target {
    /// Number of the node in the rig, from 0.
    pub node: usize,
    inner: Arc<Inner>,
}

struct Inner {
    address: String,
    dialer: Dialer,
    endpoint: Endpoint,
    connector: Connector,
    channel: Mutex<Option<Channel>>,
    login: Option<Login>,
}

impl Target {
    /// A target without a user. `address` is `HOST:PORT` of the client port of the node with the
    /// number `node`. The port speaks TLS if the dialer has it.
    pub(crate) fn new(node: usize, address: &str, dialer: &Dialer) -> Self {
        let scheme = if dialer.has_tls() { "https" } else { "http" };
        let (endpoint, connector) = dialer
            .endpoint(&format!("{scheme}://{address}"), CONNECT_TIMEOUT)
            .expect("invariant: addresses are made by the rig");
        let endpoint = endpoint.http2_keep_alive_interval(KEEPALIVE).keep_alive_timeout(KEEPALIVE);
        let (address, dialer, channel) = (address.to_owned(), dialer.clone(), Mutex::default());
        Self { node, inner: Arc::new(Inner { address, dialer, endpoint, connector, channel, login: None }) }
    }

    /// A target of the same node and user that does not share this one's connection.
    pub(crate) fn apart(&self) -> Self {
        self.by(self.inner.login.clone())
    }

    /// A target of the same node with a connection of its own. Its requests carry the token of
    /// `login`; `None` for requests without a token.
    pub(crate) fn by(&self, login: Option<Login>) -> Self {
        let Inner { address, dialer, endpoint, connector, .. } = &*self.inner;
        let (address, dialer, channel) = (address.clone(), dialer.clone(), Mutex::default());
        let (endpoint, connector) = (endpoint.clone(), connector.clone());
        Self { node: self.node, inner: Arc::new(Inner { address, dialer, endpoint, connector, channel, login }) }
    }

    /// The user of this target's requests; `None` if they carry no token.
    pub(crate) fn login(&self) -> Option<&Login> {
        self.inner.login.as_ref()
    }

    /// The dialer of connections to the node.
    pub(crate) fn dialer(&self) -> &Dialer {
        &self.inner.dialer
    }

    /// The client port as an endpoint of `headwater-client`: `HOST:PORT`, after `https://` with
    /// TLS.
    pub(crate) fn name(&self) -> String {
        let scheme = if self.inner.dialer.has_tls() { "https://" } else { "" };
        format!("{scheme}{}", self.inner.address)
    }

    /// The open connection, or a new one, with the user's token. An error if the node does not
    /// accept the connection or gives no token.
    pub(crate) async fn channel(&self) -> Result<Line, String> {
        Line::open(self.connection().await?, self.inner.login.as_ref()).await
    }

    async fn connection(&self) -> Result<Channel, String> {
        let known = self.inner.channel.lock().clone();
        if let Some(channel) = known {
            return Ok(channel);
        }
        let connected = self.inner.endpoint.connect_with_connector(self.inner.connector.clone());
        let connected = tokio::time::timeout(CONNECT_TIMEOUT + HANDSHAKE_MAX, connected).await;
        let connected = connected.map_err(|_| "no handshake in time".to_owned())?;
        let channel = connected.map_err(|error| innermost(&error))?;
        *self.inner.channel.lock() = Some(channel.clone());
        Ok(channel)
    }

    /// Drops the connection of this target and its clones: the next request makes a new one.
    pub(crate) fn forget(&self) {
        *self.inner.channel.lock() = None;
    }

    pub(crate) async fn resources(&self) -> Result<ResourceServiceClient<Line>, String> {
        Ok(ResourceServiceClient::new(self.channel().await?).max_decoding_message_size(usize::MAX))
    }

    pub(crate) async fn maintenance(&self) -> Result<MaintenanceClient<Line>, String> {
        Ok(MaintenanceClient::new(self.channel().await?))
    }

    pub(crate) async fn watch(&self) -> Result<WatchClient<Line>, String> {
        Ok(WatchClient::new(self.channel().await?).max_decoding_message_size(usize::MAX))
    }

    pub(crate) async fn auth(&self) -> Result<AuthClient<Line>, String> {
        Ok(AuthClient::new(self.channel().await?))
    }

    pub(crate) async fn kv(&self) -> Result<KvClient<Line>, String> {
        Ok(KvClient::new(self.channel().await?).max_decoding_message_size(usize::MAX))
    }

    /// Sends a request once. Waits at most `timeout` for a connection, and as long again for the
    /// outcome. Drops a connection that turns out to be broken.
    pub(crate) async fn send(&self, request: &Request, timeout: Duration) -> Outcome {
        let line = match tokio::time::timeout(timeout, self.channel()).await {
            Ok(Ok(line)) => line,
            Ok(Err(why)) => return Outcome::Failed(why),
            Err(_) => return Outcome::Failed("no connection in time".to_owned()),
        };
        match tokio::time::timeout(timeout, call(line.clone(), request, timeout)).await {
            Ok(Ok(answer)) => Outcome::Ok(answer),
            Ok(Err(status)) => {
                // The status of a stream comes after the headers, where `Line` does not see it.
                line.note(&status);
                if is_broken(&status) {
                    self.forget();
                }
                judge(&status)
            }
            Err(_) => Outcome::Unknown("no answer in time".to_owned()),
        }
    }
}

/// Whether the status comes from the connection, not from the server.
pub(crate) fn is_broken(status: &Status) -> bool {
    std::error::Error::source(status).is_some()
}

/// The outcome that an error status stands for: `Failed` or `Unknown`, never `Ok`
/// (docs/operations.md, "When something goes wrong"; ARCHITECTURE.md §3).
pub(crate) fn judge(status: &Status) -> Outcome {
    let text = match std::error::Error::source(status) {
        Some(source) => innermost(source),
        None => format!("{} ({:?})", status.message(), status.code()),
    };
    let undecided = matches!(status.code(), Code::DeadlineExceeded | Code::Cancelled | Code::Internal);
    if is_broken(status) || undecided || status.metadata().contains_key(INDETERMINATE) {
        Outcome::Unknown(text)
    } else {
        Outcome::Failed(text)
    }
}

fn innermost(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

async fn call(line: Line, request: &Request, timeout: Duration) -> Result<Answer, Status> {
    let mut kv = KvClient::new(line.clone()).max_decoding_message_size(usize::MAX);
    let mut lease = LeaseClient::new(line);
    match request {
        Request::Read { key, prefix, freshness } => {
            let range = pb::RangeRequest {
                key: key.clone().into(),
                range_end: if *prefix { prefix_end(key) } else { Vec::new() }.into(),
                serializable: *freshness != Freshness::Linearizable,
                ..Default::default()
            };
            let mut range = with_deadline(range, timeout);
            if let Freshness::AtLeast(index) = freshness {
                range.metadata_mut().insert(MIN_INDEX, (*index).into());
            }
            answered(
                kv.range(range).await?,
                |done| done.header,
                |done| Body::Pairs(done.kvs.into_iter().map(pair).collect()),
            )
        }
        Request::Put { key, value, lease } => {
            let put = kv.put(with_deadline(put(key, value, *lease), timeout)).await?;
            answered(put, |done| done.header, |_| Body::Put)
        }
        Request::Replace { key, value, lease } => {
            let replace = pb::PutRequest { prev_kv: true, ..put(key, value, *lease) };
            let replaced = kv.put(with_deadline(replace, timeout)).await?;
            answered(replaced, |done| done.header, |done| Body::Replaced(done.prev_kv.map(pair)))
        }
        Request::Delete { key } => {
            let deleted = kv.delete_range(with_deadline(delete(key), timeout)).await?;
            answered(deleted, |done| done.header, |done| Body::Deleted(done.deleted))
        }
        Request::DeleteRange { prefix } => {
            let removed = kv.delete_range(with_deadline(delete_range(prefix), timeout)).await?;
            let body = |done: pb::DeleteRangeResponse| Body::Removed {
                count: done.deleted,
                before: done.prev_kvs.into_iter().map(pair).collect(),
            };
            answered(removed, |done| done.header, body)
        }
        Request::Txn { when, then, or_else } => {
            let txn = pb::TxnRequest {
                compare: when.iter().map(compare).collect(),
                success: then.iter().map(step).collect(),
                failure: or_else.iter().map(step).collect(),
            };
            let done = kv.txn(with_deadline(txn, timeout)).await?;
            answered(
                done,
                |done| done.header,
                |done| Body::Txn {
                    succeeded: done.succeeded,
                    steps: steps_done(done.responses, if done.succeeded { then } else { or_else }),
                },
            )
        }
        Request::Grant { ttl_seconds } => {
            let grant = pb::LeaseGrantRequest { ttl: *ttl_seconds, id: 0 };
            let granted = lease.lease_grant(with_deadline(grant, timeout)).await?;
            answered(granted, |done| done.header, |done| Body::Granted { lease: done.id, ttl_seconds: done.ttl })
        }
        Request::Revoke { lease: id } => {
            let revoked = lease.lease_revoke(with_deadline(pb::LeaseRevokeRequest { id: *id }, timeout)).await?;
            answered(revoked, |done| done.header, |_| Body::Revoked)
        }
        Request::KeepAlive { lease: id } => {
            let once = tokio_stream::iter([pb::LeaseKeepAliveRequest { id: *id }]);
            let mut answers = lease.lease_keep_alive(once).await?.into_inner();
            let Some(done) = answers.message().await? else {
                return Err(Status::cancelled("the stream ended without an answer"));
            };
            let revision = done.header.map_or(0, |header| header.revision);
            Ok(Answer { revision, index: 0, body: Body::KeptAlive { ttl_seconds: done.ttl } })
        }
    }
}

pub(crate) fn with_deadline<T>(message: T, timeout: Duration) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    request.set_timeout(timeout);
    request
}

fn answered<T>(
    response: Response<T>,
    header: impl Fn(&T) -> Option<pb::ResponseHeader>,
    body: impl Fn(T) -> Body,
) -> Result<Answer, Status> {
    let index = response.metadata().get(INDEX).and_then(|text| text.to_str().ok()?.parse().ok()).unwrap_or(0);
    let message = response.into_inner();
    let revision = header(&message).ok_or_else(|| Status::internal("an answer without a header"))?.revision;
    Ok(Answer { revision, index, body: body(message) })
}

/// End of the range of all keys with this prefix: the first key after them. `\0` if no key comes
/// after them: as an end it stands for all keys from the start on.
pub(crate) fn prefix_end(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    // There is no such key: `\0` as an end means every key from the start of the range on.
    vec![0]
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Converts a pair to the form of records. Bytes that are no UTF-8 are replaced.
pub(crate) fn pair(kv: mvccpb::KeyValue) -> Pair {
    Pair {
        key: text(&kv.key),
        value: text(&kv.value),
        created: kv.create_revision,
        modified: kv.mod_revision,
        version: kv.version,
        lease: kv.lease,
    }
}

fn put(key: &str, value: &str, lease: i64) -> pb::PutRequest {
    pb::PutRequest { key: key.to_owned().into(), value: value.to_owned().into(), lease, ..Default::default() }
}

fn delete(key: &str) -> pb::DeleteRangeRequest {
    pb::DeleteRangeRequest { key: key.to_owned().into(), ..Default::default() }
}

fn delete_range(prefix: &str) -> pb::DeleteRangeRequest {
    let (key, range_end) = (prefix.to_owned().into(), prefix_end(prefix).into());
    pb::DeleteRangeRequest { key, range_end, prev_kv: true }
}

fn step(step: &Step) -> pb::RequestOp {
    use pb::request_op::Request as Op;
    let op = match step {
        Step::Put { key, value, lease } => Op::RequestPut(put(key, value, *lease)),
        Step::Delete { key } => Op::RequestDeleteRange(delete(key)),
        Step::DeleteRange { prefix } => Op::RequestDeleteRange(delete_range(prefix)),
        Step::Get { key } => Op::RequestRange(pb::RangeRequest { key: key.clone().into(), ..Default::default() }),
    };
    pb::RequestOp { request: Some(op) }
}

/// Results of the steps `asked`, those of the taken branch. A result of another kind than its step
/// is left out, so that a checker rejects the answer.
fn steps_done(done: Vec<pb::ResponseOp>, asked: &[Step]) -> Vec<StepDone> {
    done.into_iter().zip(asked).filter_map(|(done, asked)| step_done(done, asked)).collect()
}

fn step_done(done: pb::ResponseOp, asked: &Step) -> Option<StepDone> {
    use pb::response_op::Response as Op;
    Some(match (done.response?, asked) {
        (Op::ResponsePut(_), Step::Put { .. }) => StepDone::Put,
        (Op::ResponseDeleteRange(done), Step::Delete { .. }) => StepDone::Deleted(done.deleted),
        (Op::ResponseDeleteRange(done), Step::DeleteRange { .. }) => {
            StepDone::Removed { count: done.deleted, before: done.prev_kvs.into_iter().map(pair).collect() }
        }
        (Op::ResponseRange(done), Step::Get { .. }) => StepDone::Got(done.kvs.into_iter().next().map(pair)),
        _ => return None,
    })
}

fn compare(condition: &Condition) -> pb::Compare {
    use pb::compare::{CompareTarget, TargetUnion};
    let (key, target, union) = match condition {
        Condition::Modified { key, is } => (key, CompareTarget::Mod, TargetUnion::ModRevision(*is)),
        Condition::Created { key, is } => (key, CompareTarget::Create, TargetUnion::CreateRevision(*is)),
        Condition::Value { key, is } => (key, CompareTarget::Value, TargetUnion::Value(is.clone().into())),
        Condition::Version { key, is } => (key, CompareTarget::Version, TargetUnion::Version(*is)),
        Condition::Lease { key, is } => (key, CompareTarget::Lease, TargetUnion::Lease(*is)),
    };
    pb::Compare {
        result: pb::compare::CompareResult::Equal.into(),
        target: target.into(),
        key: key.clone().into(),
        target_union: Some(union),
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_server_rules_out_has_failed() {
        let mut undecided = Status::unavailable("etcdserver: request timed out");
        undecided.metadata_mut().insert(INDETERMINATE, "true".parse().unwrap());
        for (status, failed) in [
            (Status::unavailable("etcdserver: no leader"), true),
            (Status::unavailable("etcdserver: request timed out"), true),
            (Status::resource_exhausted("etcdserver: too many requests"), true),
            (undecided, false),
            (Status::deadline_exceeded("x"), false),
            (Status::cancelled("Timeout expired"), false),
        ] {
            assert_eq!(matches!(judge(&status), Outcome::Failed(_)), failed, "{status:?}");
        }
    }

    #[test]
    fn a_prefix_ends_before_the_next_key() {
        assert_eq!(prefix_end("a/"), b"a0");
        assert_eq!(prefix_end(""), [0]);
    }
}
