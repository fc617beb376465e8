//! The quota and its alarm in a cluster: exact to the byte, the same on every member, and kept
//! across crashes.

use std::time::Duration;

use headwater::node::{Consistency, QuotaOptions, RequestContext};
use headwater::pb::etcdserverpb as pb;
use headwater::pb::etcdserverpb::alarm_request::AlarmAction;
use headwater::pb::etcdserverpb::lease_client::LeaseClient;
use headwater::pb::etcdserverpb::maintenance_client::MaintenanceClient;
use headwater::pb::etcdserverpb::{AlarmMember, AlarmType};
use headwater::types::limits::LEASE_QUOTA_BYTES;
use headwater::types::resource::{DEFAULT_UNIT, ResourceId, Tenancy, Type};

use crate::cluster::{Cluster, Settings, get, put, wait_until};

const QUOTA: u64 = 100_000;
const NO_SPACE: &str = "etcdserver: mvcc: database space exceeded";

/// Waits until the leader has stored the default units of tenancy. It writes them by itself soon
/// after the first start, so the stored data may change until then.
pub(crate) async fn wait_for_default_units(cluster: &Cluster) {
    wait_until("the default units of tenancy are there", async || {
        let id = ResourceId {
            uid: String::new(),
            name: DEFAULT_UNIT.to_owned(),
            type_: Type::namespace(),
            tenancy: Tenancy::new(DEFAULT_UNIT, ""),
        };
        let ctx = RequestContext::within(Duration::from_secs(5));
        cluster.node(0).resources().read(&ctx, Consistency::Linearizable, id).await.is_ok()
    })
    .await;
}

async fn cluster(auto_disarm: bool) -> Cluster {
    let quota = QuotaOptions { bytes_max: Some(QUOTA), auto_disarm };
    let cluster = Cluster::start(Settings { quota, ..Settings::default() }).await;
    // Resources count, too.
    wait_for_default_units(&cluster).await;
    // The quota takes effect once the leader has proposed it.
    wait_until("the quota counts", async || {
        let refused = cluster.kv(0).put(put("big", "x".repeat(QUOTA as usize))).await;
        match refused {
            Ok(_) => false,
            Err(status) => status.message() == NO_SPACE,
        }
    })
    .await;
    cluster.kv(0).delete_range(pb::DeleteRangeRequest { key: "big".into(), ..Default::default() }).await.unwrap();
    cluster
}

/// Bytes that can still be stored below [`QUOTA`].
async fn free(cluster: &Cluster) -> u64 {
    let status = cluster.maintenance(cluster.leader().await).status(pb::StatusRequest {}).await.unwrap().into_inner();
    QUOTA - status.db_size_in_use as u64
}

async fn alarm(cluster: &Cluster, member: usize, action: AlarmAction, alarm: AlarmMember) -> Vec<AlarmMember> {
    let mut client = MaintenanceClient::connect(cluster.client_url(member)).await.unwrap();
    let request = pb::AlarmRequest { action: action.into(), member_id: alarm.member_id, alarm: alarm.alarm };
    client.alarm(request).await.unwrap().into_inner().alarms
}

async fn list(cluster: &Cluster, member: usize) -> Vec<AlarmMember> {
    alarm(cluster, member, AlarmAction::Get, AlarmMember::default()).await
}

async fn disarm(cluster: &Cluster, member: usize) {
    for active in list(cluster, member).await {
        assert_eq!(alarm(cluster, member, AlarmAction::Deactivate, active).await, [active]);
    }
}

/// Puts a value of `value_len` bytes at a member. The error is the text of the status.
async fn try_put(cluster: &Cluster, member: usize, key: &str, value_len: u64) -> Result<(), String> {
    let answer = cluster.kv(member).put(put(key, "x".repeat(value_len as usize))).await;
    answer.map(|_| ()).map_err(|status| status.message().to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_quota_is_exact_and_the_alarm_outlives_leaders_and_restarts() {
    let mut cluster = cluster(false).await;
    disarm(&cluster, 1).await;
    // A pair counts 256 bytes, its key and its value: the limit is exact to the byte.
    let free = free(&cluster).await;
    assert_eq!(try_put(&cluster, 1, "k", free - 257).await, Ok(()));
    cluster.kv(2).delete_range(pb::DeleteRangeRequest { key: "k".into(), ..Default::default() }).await.unwrap();
    assert_eq!(list(&cluster, 2).await, []);
    assert_eq!(try_put(&cluster, 2, "k", free - 256).await, Err(NO_SPACE.to_owned()));
    let raised = list(&cluster, 0).await;
    assert_eq!(raised.iter().map(|alarm| alarm.alarm).collect::<Vec<_>>(), [AlarmType::Nospace as i32]);

    let refusals = async |cluster: &Cluster| {
        for member in cluster.running().collect::<Vec<_>>() {
            assert_eq!(try_put(cluster, member, "tiny", 1).await, Err(NO_SPACE.to_owned()), "member {member}");
            assert_eq!(list(cluster, member).await, raised);
            assert_eq!(cluster.kv(member).range(get("k")).await.unwrap().into_inner().count, 0);
            let delete = pb::DeleteRangeRequest { key: "k".into(), ..Default::default() };
            cluster.kv(member).delete_range(delete).await.unwrap();
            let health = http_get(cluster, member, "/health").await;
            assert!(health.contains("503") && health.contains("application/json"), "{health}");
            assert!(health.contains(r#"{"health":"false","reason":"ALARM NOSPACE"}"#), "{health}");
            assert!(http_get(cluster, member, "/health?exclude=NOSPACE").await.contains("200 OK"));
            assert!(http_get(cluster, member, "/readyz").await.contains("200 OK"), "a full store is ready");
        }
    };
    refusals(&cluster).await;
    let leader = cluster.leader().await;
    cluster.crash(leader).await;
    cluster.wait_healthy().await;
    wait_until("a new leader serves", async || {
        let member = cluster.running().next().unwrap();
        try_put(&cluster, member, "tiny", 1).await == Err(NO_SPACE.to_owned())
    })
    .await;
    refusals(&cluster).await;
    cluster.restart(leader).await;
    for member in 0..3 {
        cluster.crash(member).await;
    }
    for member in 0..3 {
        cluster.restart(member).await;
    }
    cluster.wait_healthy().await;
    refusals(&cluster).await;

    disarm(&cluster, 2).await;
    assert_eq!(list(&cluster, 0).await, []);
    assert_eq!(try_put(&cluster, 0, "tiny", 1).await, Ok(()));
    let hashes = cluster.hashes().await;
    assert!(hashes.windows(2).all(|pair| pair[0] == pair[1]), "{hashes:?}");
}

/// The whole answer to a GET of HTTP/1.1 at a member, as text with its headers.
async fn http_get(cluster: &Cluster, member: usize, path: &str) -> String {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let url = cluster.client_url(member);
    let address = url.strip_prefix("http://").unwrap();
    let mut socket = tokio::net::TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn the_alarm_goes_by_itself_if_that_is_wanted() {
    let cluster = cluster(true).await;
    wait_until("the alarm is taken back", async || list(&cluster, 1).await.is_empty()).await;
    assert_eq!(try_put(&cluster, 1, "k", 100).await, Ok(()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_corrupt_cluster_takes_no_writes_and_is_not_ready() {
    let cluster = Cluster::three().await;
    // An alarm about a member id that the cluster does not have does not stop its writes.
    for (member, stranger) in [(0, 0), (1, 4), (2, u64::MAX)] {
        let mut client = MaintenanceClient::connect(cluster.client_url(member)).await.unwrap();
        let request = pb::AlarmRequest {
            action: AlarmAction::Activate.into(),
            member_id: stranger,
            alarm: AlarmType::Corrupt.into(),
        };
        let refused = client.alarm(request).await.unwrap_err();
        assert_eq!((refused.code(), refused.message()), (tonic::Code::NotFound, "etcdserver: member not found"));
        assert_eq!(list(&cluster, member).await, []);
    }
    assert_eq!(try_put(&cluster, 0, "k", 1).await, Ok(()));
    let corrupt = AlarmMember { member_id: 2, alarm: AlarmType::Corrupt.into() };
    assert_eq!(alarm(&cluster, 0, AlarmAction::Activate, corrupt).await, [corrupt]);
    for member in 0..3 {
        assert_eq!(list(&cluster, member).await, [corrupt]);
        assert_eq!(try_put(&cluster, member, "k", 1).await, Err("etcdserver: corrupt cluster".to_owned()));
        // As in etcd, reads are still answered.
        cluster.kv(member).range(get("k")).await.unwrap();
        let ready = http_get(&cluster, member, "/readyz").await;
        assert!(
            ready.contains("503") && ready.contains("[-]data_corruption failed: alarm activated: CORRUPT"),
            "{ready}"
        );
        assert!(http_get(&cluster, member, "/livez").await.contains("200 OK"));
    }
    disarm(&cluster, 1).await;
    assert_eq!(try_put(&cluster, 2, "k", 1).await, Ok(()));
}

#[tokio::test(flavor = "multi_thread")]
async fn defragmentation_gives_space_back_while_writes_go_on() {
    let cluster = Cluster::start(Settings::alone()).await;
    let mut kv = cluster.kv(0);
    let mut revision = 0;
    for turn in 0..300u32 {
        // Not compressible.
        let value: Vec<u8> = (0..20_000u32).map(|at| (at.wrapping_mul(turn + 2654435761) >> 13) as u8).collect();
        let request = pb::PutRequest { key: "k".into(), value: value.into(), ..Default::default() };
        revision = kv.put(request).await.unwrap().into_inner().header.unwrap().revision;
    }
    kv.compact(pb::CompactionRequest { revision, physical: true }).await.unwrap();
    let size = || cluster.node(0).status().unwrap().stored_bytes;
    let mut client = MaintenanceClient::connect(cluster.client_url(0)).await.unwrap();
    let defragment = async { client.defragment(pb::DefragmentRequest {}).await };
    let writes = async {
        for turn in 0..50 {
            kv.put(put(format!("{turn}"), "v")).await.unwrap();
        }
    };
    let (done, ()) = tokio::join!(defragment, writes);
    assert_eq!(done.unwrap().into_inner().header, None, "as in etcd");
    // A defragmentation keeps the data of concurrent reads; a later one gives its space back.
    wait_until("all but one value is gone", async || {
        client.defragment(pb::DefragmentRequest {}).await.unwrap();
        size() < 2_000_000
    })
    .await;
    assert_eq!(kv.range(get("k")).await.unwrap().into_inner().kvs[0].value.len(), 20_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn leases_fill_the_quota_and_leave_it_when_they_end() {
    let mut cluster = cluster(false).await;
    disarm(&cluster, 1).await;
    let capacity = free(&cluster).await / LEASE_QUOTA_BYTES;
    let follower = cluster.follower().await;
    let mut client = LeaseClient::connect(cluster.client_url(follower)).await.unwrap();
    let grant = |id| pb::LeaseGrantRequest { id, ttl: 9_000_000_000 };
    for id in 1..=capacity as i64 {
        client.lease_grant(grant(id)).await.unwrap();
    }
    let refused = client.lease_grant(grant(0)).await.unwrap_err();
    assert_eq!((refused.code(), refused.message()), (tonic::Code::ResourceExhausted, NO_SPACE));
    // After a restart the number of leases is counted from the state.
    cluster.crash(follower).await;
    cluster.restart(follower).await;
    cluster.wait_healthy().await;
    let mut client = LeaseClient::connect(cluster.client_url(follower)).await.unwrap();
    assert_eq!(client.lease_grant(grant(0)).await.unwrap_err().message(), NO_SPACE);
    client.lease_revoke(pb::LeaseRevokeRequest { id: 1 }).await.unwrap();
    client.lease_grant(grant(0)).await.unwrap();
    let longer = pb::LeaseGrantRequest { id: 0, ttl: 9_000_000_001 };
    client.lease_revoke(pb::LeaseRevokeRequest { id: 2 }).await.unwrap();
    assert_eq!(client.lease_grant(longer).await.unwrap_err().message(), "etcdserver: too large lease TTL");
}
