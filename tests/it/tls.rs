//! TLS of both ports: members, clients, certificates that are refused, and their renewal.

use std::time::{Duration, SystemTime};

use headwater::pb::etcdserverpb as pb;
use headwater::pb::etcdserverpb::kv_client::KvClient;
use headwater::pb::headwater::peer::{self, peer_client::PeerClient};
use headwater::tls::authority::{Authority, Pair, Purpose};
use headwater::tls::{CertificateFiles, Dialer};
use tonic::transport::Channel;
use tonic::{Code, Request};

use crate::certs::{Certs, Port};
use crate::cluster::{Cluster, Settings, get, get_local, put, wait_until, within};

const DAY: Duration = Duration::from_secs(86_400);

async fn secure() -> Cluster {
    Cluster::start(Settings { tls: true, ..Settings::default() }).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_talks_and_serves_by_tls_alone() {
    let mut cluster = secure().await;
    for writer in 0..3 {
        cluster.kv(writer).put(put(format!("from-{writer}"), "v")).await.unwrap();
        for reader in 0..3 {
            let found = cluster.kv(reader).range(get(format!("from-{writer}"))).await.unwrap().into_inner();
            assert_eq!(found.kvs.len(), 1);
        }
    }
    let joined = cluster.join(true).await;
    wait_until("the learner follows", async || {
        !cluster.kv(joined).range(get_local("from-2")).await.unwrap().into_inner().kvs.is_empty()
    })
    .await;
    cluster.crash(1).await;
    cluster.restart(1).await;
    cluster.wait_healthy().await;
    // A client without TLS is not served.
    let plain = cluster.client_url(0).replace("https://", "http://");
    let mut kv = KvClient::connect(plain).await.unwrap();
    within("plain text is refused", async { kv.range(get("from-0")).await.unwrap_err() }).await;
}

/// The failure of a get at the first member by a client with this certificate; `None` if it is
/// served.
async fn as_client(cluster: &Cluster, files: CertificateFiles) -> Option<tonic::Status> {
    let dialer = cluster.certs.as_ref().unwrap().dialer(files);
    KvClient::new(channel(&dialer, &cluster.client_url(0))).range(get("k")).await.err()
}

fn channel(dialer: &Dialer, url: &str) -> Channel {
    let (endpoint, connector) = dialer.endpoint(url, Duration::from_secs(5)).unwrap();
    endpoint.timeout(Duration::from_secs(10)).connect_with_connector_lazy(connector)
}

/// A client of the first member's peer port, with this certificate.
fn peer_port(cluster: &Cluster, files: CertificateFiles) -> PeerClient<Channel> {
    let dialer = cluster.certs.as_ref().unwrap().dialer(files);
    PeerClient::new(channel(&dialer, &cluster.peer_url(0)))
}

/// A request to the first member with the metadata of the member with the id `from`.
async fn message_of<T>(cluster: &Cluster, from: u64, message: T) -> Request<T> {
    let list = pb::MemberListRequest { linearizable: false };
    let header = cluster.members(0).member_list(list).await.unwrap().into_inner().header.unwrap();
    let mut request = Request::new(message);
    for (key, value) in
        [("headwater-cluster", header.cluster_id), ("headwater-from", from), ("headwater-to", cluster.id(0))]
    {
        request.metadata_mut().insert(key, value.into());
    }
    request
}

/// Requests a read index from the first member, as the member with the id `from` and with this
/// certificate.
async fn as_member(cluster: &Cluster, from: u64, files: CertificateFiles) -> Result<(), tonic::Status> {
    let request = message_of(cluster, from, peer::ReadIndexRequest {}).await;
    peer_port(cluster, files).read_index(request).await.map(drop)
}

/// A certificate that is valid from `from` to `until`, both in seconds relative to now.
fn dated(authority: &Authority, purpose: Purpose, name: &str, from: i64, until: i64) -> Pair {
    let at = |seconds: i64| match u64::try_from(seconds) {
        Ok(after) => SystemTime::now() + Duration::from_secs(after),
        Err(_) => SystemTime::now() - Duration::from_secs(seconds.unsigned_abs()),
    };
    authority.issue(purpose, name, &[name.to_owned()], (at(from), at(until))).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_are_judged_by_their_certificates() {
    let cluster = secure().await;
    let certs = cluster.certs.as_ref().unwrap();
    let other_ca = Authority::new("another authority", DAY).unwrap();
    certs.write("stranger", &other_ca.issue_for(Purpose::Client, "tester", &[], DAY).unwrap());
    certs.write("expired", &dated(&certs.client_ca, Purpose::Client, "tester", -7200, -3600));
    certs.write("early", &dated(&certs.client_ca, Purpose::Client, "tester", 3600, 7200));
    let files = |name| certs.files(Port::Client, name);
    assert!(as_client(&cluster, files("tester")).await.is_none());
    let none = CertificateFiles { cert: None, key: None, ..files("tester") };
    for (what, files) in [
        ("no certificate", none),
        ("another authority", files("stranger")),
        ("expired", files("expired")),
        ("not yet valid", files("early")),
        ("a server of members", CertificateFiles { trusted_ca: Some(certs.file("peer-ca.crt")), ..files("tester") }),
    ] {
        let failure = as_client(&cluster, files).await.unwrap_or_else(|| panic!("{what} is served"));
        assert_ne!(failure.code(), Code::Ok, "{what}");
    }
    assert!(as_client(&cluster, files("tester")).await.is_none(), "others are served as before");
}

#[tokio::test(flavor = "multi_thread")]
async fn members_are_judged_by_their_certificates() {
    let cluster = secure().await;
    let certs = cluster.certs.as_ref().unwrap();
    let files = |name| certs.files(Port::Peer, name);
    let two = cluster.id(1);
    as_member(&cluster, two, files("node2-peer")).await.unwrap();

    let refused = as_member(&cluster, cluster.id(2), files("node2-peer")).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied, "another member's id: {refused}");
    assert!(refused.message().contains("node3") && refused.message().contains("node2"), "{refused}");

    let foreign = certs.peer_ca.issue_for(Purpose::Member, "node9", &["node9".to_owned()], DAY).unwrap();
    certs.write("node9", &foreign);
    let refused = as_member(&cluster, two, files("node9")).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied, "a wrong name: {refused}");

    // The name of a joining node must be that of its certificate.
    let joining = peer::JoiningNode {
        incarnation: 7,
        name: "node8".into(),
        peer_url: "https://127.0.0.1:9".into(),
        client_url: "https://127.0.0.1:8".into(),
        ..Default::default()
    };
    let change = Some(peer::change_members_request::Change::Join(joining));
    let join = message_of(&cluster, 0, peer::ChangeMembersRequest { timeout_ms: 5000, change }).await;
    let refused = peer_port(&cluster, files("node9")).change_members(join).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied, "a wrong name of a new member: {refused}");
    assert!(refused.message().contains("node8") && refused.message().contains("node9"), "{refused}");

    let other_ca = Authority::new("another authority", DAY).unwrap();
    certs.write("stranger", &other_ca.issue_for(Purpose::Member, "node2", &["node2".to_owned()], DAY).unwrap());
    certs.write("expired", &dated(&certs.peer_ca, Purpose::Member, "node2", -7200, -3600));
    certs.write("early", &dated(&certs.peer_ca, Purpose::Member, "node2", 3600, 7200));
    let client =
        CertificateFiles { trusted_ca: Some(certs.file("peer-ca.crt")), ..certs.files(Port::Client, "tester") };
    let none = CertificateFiles { cert: None, key: None, ..files("node2-peer") };
    for (what, files) in [
        ("no certificate", none),
        ("another authority", files("stranger")),
        ("expired", files("expired")),
        ("not yet valid", files("early")),
        ("a client's certificate", client),
    ] {
        let refused = as_member(&cluster, two, files).await.expect_err(what);
        assert_ne!(refused.code(), Code::PermissionDenied, "{what} is refused by the handshake: {refused}");
    }
    cluster.kv(0).put(put("k", "v")).await.unwrap();
}

/// Makes a member read its certificate files again.
fn renew(cluster: &Cluster, member: usize) {
    cluster.renew_certificates(member);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_certificate_ends_its_connections() {
    let cluster = secure().await;
    let certs = cluster.certs.as_ref().unwrap();
    let pair = certs.client_ca.issue_for(Purpose::Client, "leaver", &[], DAY).unwrap();
    certs.write("leaver", &pair);
    let dialer = certs.dialer(certs.files(Port::Client, "leaver"));
    let mut kv = KvClient::new(channel(&dialer, &cluster.client_url(0)));
    kv.range(get("k")).await.unwrap();
    certs.revoke(Port::Client, &[pair.cert]);
    renew(&cluster, 0);
    let is_cut = async || kv.range(get("k")).await.is_err();
    wait_until("the connection ends", is_cut).await;
    assert!(kv.range(get("k")).await.is_err(), "and no other is made");
    cluster.kv(0).range(get("k")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_that_expires_ends_its_connections() {
    let cluster = secure().await;
    let certs = cluster.certs.as_ref().unwrap();
    certs.write("short", &dated(&certs.client_ca, Purpose::Client, "short", -60, 10));
    let dialer = certs.dialer(certs.files(Port::Client, "short"));
    let mut kv = KvClient::new(channel(&dialer, &cluster.client_url(0)));
    kv.range(get("k")).await.unwrap();
    wait_until("the connection ends", async || kv.range(get("k")).await.is_err()).await;
    assert!(kv.range(get("k")).await.is_err(), "and no other is made");
    cluster.kv(0).range(get("k")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_member_is_cut_off() {
    let cluster = secure().await;
    let certs = cluster.certs.as_ref().unwrap();
    let name = "node2".to_owned();
    let pair = certs.peer_ca.issue_for(Purpose::Member, &name, std::slice::from_ref(&name), DAY).unwrap();
    certs.write("lost", &pair);
    let mut peers = peer_port(&cluster, certs.files(Port::Peer, "lost"));
    let ask = async |peers: &mut PeerClient<Channel>| {
        peers.read_index(message_of(&cluster, cluster.id(1), peer::ReadIndexRequest {}).await).await
    };
    ask(&mut peers).await.unwrap();
    certs.revoke(Port::Peer, &[pair.cert]);
    renew(&cluster, 0);
    wait_until("the connection ends", async || ask(&mut peers).await.is_err()).await;
    assert!(ask(&mut peers).await.is_err(), "and no other is made");
    cluster.kv(1).put(put("k", "v")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handshake_that_is_not_finished_ends() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let cluster = secure().await;
    for url in [cluster.client_url(0), cluster.peer_url(0)] {
        let address = url.rsplit('/').next().unwrap().to_owned();
        // Nothing, and the beginning of a hello.
        for sent in [&[][..], &[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc]] {
            let mut socket = tokio::net::TcpStream::connect(&address).await.unwrap();
            socket.write_all(sent).await.unwrap();
            let mut answer = Vec::new();
            // Closed or reset.
            let _closed = within("the port closes it", socket.read_to_end(&mut answer)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_are_replaced_under_load() {
    let cluster = secure().await;
    let certs: &Certs = cluster.certs.as_ref().unwrap();
    let before: Vec<String> =
        (1..=3).map(|n| std::fs::read_to_string(certs.file(&format!("node{n}-peer.crt"))).unwrap()).collect();
    let writing = async {
        for number in 0..300 {
            cluster.kv(number % 3).put(put("k", number.to_string())).await.unwrap();
        }
    };
    let replacing = async {
        for member in 0..3 {
            certs.make_member(member);
            renew(&cluster, member);
            tokio::task::yield_now().await;
        }
    };
    tokio::join!(writing, replacing);
    // The former certificates no longer count: members connect anew, by the new ones.
    certs.revoke(Port::Peer, &before);
    for member in 0..3 {
        renew(&cluster, member);
    }
    for number in 0..30 {
        cluster.kv(number % 3).put(put("k", number.to_string())).await.unwrap();
    }
    // Files that cannot be used change nothing.
    std::fs::write(certs.file("node1-client.crt"), "not a certificate").unwrap();
    renew(&cluster, 0);
    cluster.kv(0).put(put("k", "last")).await.unwrap();
}
