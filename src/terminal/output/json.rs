//! Answers as JSON with the names, the order and the omissions of etcdctl, so that scripts written
//! for it keep working: bytes in base64, zero values left out, operations of a transaction wrapped
//! in `Response`. The comment of each type names the message of etcd, or the type of its Go client,
//! that the type prints.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Serialize, Serializer};

use headwater_proto::pb::etcdserverpb as pb;
use headwater_proto::pb::mvccpb;

fn base64<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&STANDARD.encode(bytes))
}

fn is_zero<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// `ResponseHeader`.
#[derive(Serialize)]
pub struct Header {
    #[serde(skip_serializing_if = "is_zero")]
    cluster_id: u64,
    #[serde(skip_serializing_if = "is_zero")]
    member_id: u64,
    #[serde(skip_serializing_if = "is_zero")]
    revision: i64,
    #[serde(skip_serializing_if = "is_zero")]
    raft_term: u64,
}

impl From<&pb::ResponseHeader> for Header {
    fn from(h: &pb::ResponseHeader) -> Self {
        Self { cluster_id: h.cluster_id, member_id: h.member_id, revision: h.revision, raft_term: h.raft_term }
    }
}

type OptionalHeader = Option<Header>;

fn header(header: &Option<pb::ResponseHeader>) -> OptionalHeader {
    header.as_ref().map(Header::from)
}

/// `KeyValue`.
#[derive(Serialize)]
pub struct Pair<'a> {
    #[serde(serialize_with = "base64")]
    key: &'a [u8],
    #[serde(skip_serializing_if = "is_zero")]
    create_revision: i64,
    #[serde(skip_serializing_if = "is_zero")]
    mod_revision: i64,
    #[serde(skip_serializing_if = "is_zero")]
    version: i64,
    #[serde(serialize_with = "base64", skip_serializing_if = "<[u8]>::is_empty")]
    value: &'a [u8],
    #[serde(skip_serializing_if = "is_zero")]
    lease: i64,
}

impl<'a> From<&'a mvccpb::KeyValue> for Pair<'a> {
    fn from(kv: &'a mvccpb::KeyValue) -> Self {
        Self {
            key: &kv.key,
            create_revision: kv.create_revision,
            mod_revision: kv.mod_revision,
            version: kv.version,
            value: &kv.value,
            lease: kv.lease,
        }
    }
}

/// `RangeResponse`.
#[derive(Serialize)]
pub struct Range<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    header: OptionalHeader,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    kvs: Vec<Pair<'a>>,
    #[serde(skip_serializing_if = "is_zero")]
    more: bool,
    #[serde(skip_serializing_if = "is_zero")]
    count: i64,
}

impl<'a> From<&'a pb::RangeResponse> for Range<'a> {
    fn from(r: &'a pb::RangeResponse) -> Self {
        Self { header: header(&r.header), kvs: r.kvs.iter().map(Pair::from).collect(), more: r.more, count: r.count }
    }
}

/// `PutResponse`.
#[derive(Serialize)]
pub struct Put<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    header: OptionalHeader,
    #[serde(skip_serializing_if = "Option::is_none")]
    prev_kv: Option<Pair<'a>>,
}

impl<'a> From<&'a pb::PutResponse> for Put<'a> {
    fn from(r: &'a pb::PutResponse) -> Self {
        Self { header: header(&r.header), prev_kv: r.prev_kv.as_ref().map(Pair::from) }
    }
}

/// `DeleteRangeResponse`.
#[derive(Serialize)]
pub struct DeleteRange<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    header: OptionalHeader,
    #[serde(skip_serializing_if = "is_zero")]
    deleted: i64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    prev_kvs: Vec<Pair<'a>>,
}

impl<'a> From<&'a pb::DeleteRangeResponse> for DeleteRange<'a> {
    fn from(r: &'a pb::DeleteRangeResponse) -> Self {
        Self { header: header(&r.header), deleted: r.deleted, prev_kvs: r.prev_kvs.iter().map(Pair::from).collect() }
    }
}

/// `TxnResponse`.
#[derive(Serialize)]
pub struct Txn<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    header: OptionalHeader,
    #[serde(skip_serializing_if = "is_zero")]
    succeeded: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    responses: Vec<Wrapped<'a>>,
}

#[derive(Serialize)]
struct Wrapped<'a> {
    #[serde(rename = "Response", skip_serializing_if = "Option::is_none")]
    response: Option<OpResponse<'a>>,
}

#[derive(Serialize)]
enum OpResponse<'a> {
    #[serde(rename = "ResponseRange")]
    Range(Range<'a>),
    #[serde(rename = "ResponsePut")]
    Put(Put<'a>),
    #[serde(rename = "ResponseDeleteRange")]
    DeleteRange(DeleteRange<'a>),
    #[serde(rename = "ResponseTxn")]
    Txn(Txn<'a>),
}

impl<'a> From<&'a pb::TxnResponse> for Txn<'a> {
    fn from(r: &'a pb::TxnResponse) -> Self {
        use pb::response_op::Response;
        let wrap = |op: &'a pb::ResponseOp| Wrapped {
            response: op.response.as_ref().map(|response| match response {
                Response::ResponseRange(r) => OpResponse::Range(r.into()),
                Response::ResponsePut(r) => OpResponse::Put(r.into()),
                Response::ResponseDeleteRange(r) => OpResponse::DeleteRange(r.into()),
                Response::ResponseTxn(r) => OpResponse::Txn(r.into()),
            }),
        };
        Self { header: header(&r.header), succeeded: r.succeeded, responses: r.responses.iter().map(wrap).collect() }
    }
}

/// `CompactionResponse`.
#[derive(Serialize)]
pub struct Compaction {
    #[serde(skip_serializing_if = "Option::is_none")]
    header: OptionalHeader,
}

impl From<&pb::CompactionResponse> for Compaction {
    fn from(r: &pb::CompactionResponse) -> Self {
        Self { header: header(&r.header) }
    }
}

/// `clientv3.WatchResponse`, which etcdctl prints.
#[derive(Serialize)]
pub struct Watch<'a> {
    #[serde(rename = "Header", skip_serializing_if = "Option::is_none")]
    header: OptionalHeader,
    #[serde(rename = "Events")]
    events: Vec<Event<'a>>,
    #[serde(rename = "CompactRevision")]
    compact_revision: i64,
    #[serde(rename = "Canceled")]
    canceled: bool,
    #[serde(rename = "Created")]
    created: bool,
}

#[derive(Serialize)]
struct Event<'a> {
    #[serde(rename = "type", skip_serializing_if = "is_zero")]
    kind: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    kv: Option<Pair<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prev_kv: Option<Pair<'a>>,
}

impl<'a> From<&'a pb::WatchResponse> for Watch<'a> {
    fn from(r: &'a pb::WatchResponse) -> Self {
        let event = |event: &'a mvccpb::Event| Event {
            kind: event.r#type,
            kv: event.kv.as_ref().map(Pair::from),
            prev_kv: event.prev_kv.as_ref().map(Pair::from),
        };
        Self {
            header: header(&r.header),
            events: r.events.iter().map(event).collect(),
            compact_revision: r.compact_revision,
            canceled: r.canceled,
            created: r.created,
        }
    }
}

/// `clientv3.LeaseGrantResponse`, with its header's fields inlined.
#[derive(Serialize)]
pub struct LeaseGrant<'a> {
    #[serde(flatten)]
    header: OptionalHeader,
    #[serde(rename = "ID")]
    id: i64,
    #[serde(rename = "TTL")]
    ttl: i64,
    #[serde(rename = "Error")]
    error: &'a str,
}

impl<'a> From<&'a pb::LeaseGrantResponse> for LeaseGrant<'a> {
    fn from(r: &'a pb::LeaseGrantResponse) -> Self {
        Self { header: header(&r.header), id: r.id, ttl: r.ttl, error: &r.error }
    }
}

/// `LeaseRevokeResponse`.
#[derive(Serialize)]
pub struct LeaseRevoke {
    #[serde(skip_serializing_if = "Option::is_none")]
    header: OptionalHeader,
}

impl From<&pb::LeaseRevokeResponse> for LeaseRevoke {
    fn from(r: &pb::LeaseRevokeResponse) -> Self {
        Self { header: header(&r.header) }
    }
}

/// `clientv3.LeaseKeepAliveResponse`.
#[derive(Serialize)]
pub struct LeaseKeepAlive {
    #[serde(flatten)]
    header: OptionalHeader,
    #[serde(rename = "ID")]
    id: i64,
    #[serde(rename = "TTL")]
    ttl: i64,
}

impl From<&pb::LeaseKeepAliveResponse> for LeaseKeepAlive {
    fn from(r: &pb::LeaseKeepAliveResponse) -> Self {
        Self { header: header(&r.header), id: r.id, ttl: r.ttl }
    }
}

/// Bytes in base64, as an item of a list.
struct Base64<'a>(&'a [u8]);

impl Serialize for Base64<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        base64(self.0, serializer)
    }
}

/// `clientv3.LeaseTimeToLiveResponse`.
#[derive(Serialize)]
pub struct LeaseTimeToLive<'a> {
    #[serde(flatten)]
    header: OptionalHeader,
    id: i64,
    ttl: i64,
    #[serde(rename = "granted-ttl")]
    granted_ttl: i64,
    /// The lease's keys; `null` if there are none, as in Go's encoding.
    keys: Option<Vec<Base64<'a>>>,
}

impl<'a> From<&'a pb::LeaseTimeToLiveResponse> for LeaseTimeToLive<'a> {
    fn from(r: &'a pb::LeaseTimeToLiveResponse) -> Self {
        let keys = (!r.keys.is_empty()).then(|| r.keys.iter().map(|key| Base64(key)).collect());
        Self { header: header(&r.header), id: r.id, ttl: r.ttl, granted_ttl: r.granted_ttl, keys }
    }
}

/// `clientv3.LeaseLeasesResponse`.
#[derive(Serialize)]
pub struct LeaseList {
    #[serde(flatten)]
    header: OptionalHeader,
    leases: Vec<LeaseListed>,
}

#[derive(Serialize)]
struct LeaseListed {
    id: i64,
}

impl From<&pb::LeaseLeasesResponse> for LeaseList {
    fn from(r: &pb::LeaseLeasesResponse) -> Self {
        Self { header: header(&r.header), leases: r.leases.iter().map(|lease| LeaseListed { id: lease.id }).collect() }
    }
}

/// Output of `move-leader`: the leader before and after. These fields are our own: etcdctl's JSON
/// names no leader.
#[derive(Serialize)]
pub struct LeaderMoved {
    /// Id of the member that led before.
    pub from: u64,
    /// Id of the member that leads now.
    pub to: u64,
}

/// `MemberListResponse`.
#[derive(Serialize)]
pub struct MemberList<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    header: OptionalHeader,
    members: Vec<Member<'a>>,
}

#[derive(Serialize)]
struct Member<'a> {
    #[serde(rename = "ID")]
    id: u64,
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
    #[serde(rename = "peerURLs")]
    peer_urls: &'a [String],
    #[serde(rename = "clientURLs", skip_serializing_if = "<[String]>::is_empty")]
    client_urls: &'a [String],
    #[serde(rename = "isLearner", skip_serializing_if = "is_zero")]
    is_learner: bool,
}

impl<'a> From<&'a pb::MemberListResponse> for MemberList<'a> {
    fn from(r: &'a pb::MemberListResponse) -> Self {
        let member = |m: &'a pb::Member| Member {
            id: m.id,
            name: &m.name,
            peer_urls: &m.peer_ur_ls,
            client_urls: &m.client_ur_ls,
            is_learner: m.is_learner,
        };
        Self { header: header(&r.header), members: r.members.iter().map(member).collect() }
    }
}

/// Any response of etcd's Auth that has only a header.
#[derive(Serialize)]
pub struct HeaderOnly {
    #[serde(skip_serializing_if = "Option::is_none")]
    header: OptionalHeader,
}

impl From<Option<&pb::ResponseHeader>> for HeaderOnly {
    fn from(header: Option<&pb::ResponseHeader>) -> Self {
        Self { header: header.map(Header::from) }
    }
}

/// `AuthStatusResponse`.
#[derive(Serialize)]
pub struct AuthStatus {
    #[serde(skip_serializing_if = "Option::is_none")]
    header: OptionalHeader,
    #[serde(skip_serializing_if = "is_zero")]
    enabled: bool,
    #[serde(rename = "authRevision", skip_serializing_if = "is_zero")]
    auth_revision: u64,
}

impl From<&pb::AuthStatusResponse> for AuthStatus {
    fn from(r: &pb::AuthStatusResponse) -> Self {
        Self { header: header(&r.header), enabled: r.enabled, auth_revision: r.auth_revision }
    }
}

/// `AuthUserListResponse`, `AuthRoleListResponse` and `AuthUserGetResponse`.
#[derive(Serialize)]
pub struct Named<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    header: OptionalHeader,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    users: &'a [String],
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    roles: &'a [String],
}

impl<'a> Named<'a> {
    /// The response with the names of users.
    pub fn users(header: Option<&pb::ResponseHeader>, users: &'a [String]) -> Self {
        Self { header: header.map(Header::from), users, roles: &[] }
    }

    /// The response with the names of roles.
    pub fn roles(header: Option<&pb::ResponseHeader>, roles: &'a [String]) -> Self {
        Self { header: header.map(Header::from), users: &[], roles }
    }

    /// The names of users or, if there are none, of roles.
    pub fn names(&self) -> &'a [String] {
        if self.users.is_empty() { self.roles } else { self.users }
    }
}

/// `AuthRoleGetResponse`.
#[derive(Serialize)]
pub struct RoleGet<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    header: OptionalHeader,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    perm: Vec<Permission<'a>>,
}

#[derive(Serialize)]
struct Permission<'a> {
    #[serde(rename = "permType", skip_serializing_if = "is_zero")]
    perm_type: i32,
    #[serde(serialize_with = "base64", skip_serializing_if = "<[u8]>::is_empty")]
    key: &'a [u8],
    #[serde(serialize_with = "base64", skip_serializing_if = "<[u8]>::is_empty")]
    range_end: &'a [u8],
}

impl<'a> From<&'a pb::AuthRoleGetResponse> for RoleGet<'a> {
    fn from(r: &'a pb::AuthRoleGetResponse) -> Self {
        let permission = |given: &'a headwater_proto::pb::authpb::Permission| Permission {
            perm_type: given.perm_type,
            key: &given.key,
            range_end: &given.range_end,
        };
        Self { header: header(&r.header), perm: r.perm.iter().map(permission).collect() }
    }
}

/// `AlarmResponse`.
#[derive(Serialize)]
pub struct Alarms {
    #[serde(skip_serializing_if = "Option::is_none")]
    header: OptionalHeader,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    alarms: Vec<Alarm>,
}

#[derive(Serialize)]
struct Alarm {
    #[serde(rename = "memberID", skip_serializing_if = "is_zero")]
    member_id: u64,
    #[serde(skip_serializing_if = "is_zero")]
    alarm: i32,
}

impl From<&pb::AlarmResponse> for Alarms {
    fn from(r: &pb::AlarmResponse) -> Self {
        let alarm = |a: &pb::AlarmMember| Alarm { member_id: a.member_id, alarm: a.alarm };
        Self { header: header(&r.header), alarms: r.alarms.iter().map(alarm).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_looks_as_etcdctl_prints_it() {
        let response = pb::RangeResponse {
            header: Some(pb::ResponseHeader { cluster_id: 7, member_id: 8, revision: 4, raft_term: 2 }),
            kvs: vec![mvccpb::KeyValue {
                key: "a".into(),
                create_revision: 2,
                mod_revision: 3,
                version: 2,
                value: "2".into(),
                lease: 0,
            }],
            more: false,
            count: 1,
        };
        assert_eq!(
            serde_json::to_string(&Range::from(&response)).unwrap(),
            r#"{"header":{"cluster_id":7,"member_id":8,"revision":4,"raft_term":2},"kvs":[{"key":"YQ==","create_revision":2,"mod_revision":3,"version":2,"value":"Mg=="}],"count":1}"#
        );
    }

    #[test]
    fn leases_look_as_etcdctl_prints_them() {
        let header = Some(pb::ResponseHeader { cluster_id: 7, member_id: 8, revision: 4, raft_term: 2 });
        let granted = pb::LeaseGrantResponse { header, id: 9, ttl: 60, error: String::new() };
        assert_eq!(
            serde_json::to_string(&LeaseGrant::from(&granted)).unwrap(),
            r#"{"cluster_id":7,"member_id":8,"revision":4,"raft_term":2,"ID":9,"TTL":60,"Error":""}"#
        );
        let standing = pb::LeaseTimeToLiveResponse { header, id: 9, ttl: 5, granted_ttl: 60, keys: vec!["a".into()] };
        assert_eq!(
            serde_json::to_string(&LeaseTimeToLive::from(&standing)).unwrap(),
            r#"{"cluster_id":7,"member_id":8,"revision":4,"raft_term":2,"id":9,"ttl":5,"granted-ttl":60,"keys":["YQ=="]}"#
        );
        let gone = pb::LeaseTimeToLiveResponse { id: 9, ttl: -1, ..Default::default() };
        assert_eq!(
            serde_json::to_string(&LeaseTimeToLive::from(&gone)).unwrap(),
            r#"{"id":9,"ttl":-1,"granted-ttl":0,"keys":null}"#
        );
        let list = pb::LeaseLeasesResponse { header: None, leases: vec![pb::LeaseStatus { id: 9 }] };
        assert_eq!(serde_json::to_string(&LeaseList::from(&list)).unwrap(), r#"{"leases":[{"id":9}]}"#);
    }

    #[test]
    fn a_transaction_looks_as_etcdctl_prints_it() {
        let op = |response| pb::ResponseOp { response: Some(response) };
        let response = pb::TxnResponse {
            header: None,
            succeeded: false,
            responses: vec![
                op(pb::response_op::Response::ResponseDeleteRange(pb::DeleteRangeResponse {
                    header: Some(pb::ResponseHeader { revision: 8, ..Default::default() }),
                    deleted: 1,
                    prev_kvs: vec![],
                })),
                op(pb::response_op::Response::ResponsePut(pb::PutResponse::default())),
            ],
        };
        assert_eq!(
            serde_json::to_string(&Txn::from(&response)).unwrap(),
            r#"{"responses":[{"Response":{"ResponseDeleteRange":{"header":{"revision":8},"deleted":1}}},{"Response":{"ResponsePut":{}}}]}"#
        );
    }
}
