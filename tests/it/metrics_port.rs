//! The metrics port: its paths and nothing else, its own TLS, and its limits, on nodes in this
//! process and on the program.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;

use headwater::pb::etcdserverpb::kv_client::KvClient;
use headwater::tls::{CertificateFiles, ClientCertificates};
use headwater::types::limits::HEADER_LIST_BYTES_MAX;
use http::Version;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::process::{Child, Command};

use crate::access::audit_options;
use crate::auth;
use crate::certs::{self, Port};
use crate::cluster::{Cluster, Settings, get, put, wait_until, within};
use crate::gateway::client::Connection;

/// Paths of the metrics port, with a text that each answer has.
const PATHS: [(&str, &str); 8] = [
    ("/metrics", "\netcd_server_has_leader 1\n"),
    ("/health", "\"health\":\"true\""),
    ("/health?serializable=true", "\"health\":\"true\""),
    ("/livez", "ok\n"),
    ("/livez/progress", "ok\n"),
    ("/readyz?verbose", "[+]linearizable_read ok\n"),
    ("/readyz/non_learner", "ok\n"),
    ("/version", "\"etcdserver\""),
];

/// Longest head of a request of HTTP/1, bytes.
const HEAD_BYTES_MAX: usize = 4 * HEADER_LIST_BYTES_MAX as usize;

/// Settings of one member with a metrics port.
fn with_port() -> Settings {
    Settings { metrics_port: Some(ClientCertificates::Off), ..Settings::alone() }
}

/// Sends one request. `line` is its method and path, `head` has further lines of its head. Returns
/// the status and the whole answer; status 0 if the connection ends without an answer.
async fn ask(stream: impl AsyncRead + AsyncWrite + Unpin, line: &str, head: &str) -> (u16, String) {
    send(stream, &format!("{line} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n{head}\r\n")).await
}

/// As [`ask`], but `request` is the complete text of the request.
async fn send(mut stream: impl AsyncRead + AsyncWrite + Unpin, request: &str) -> (u16, String) {
    let answer = async {
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.map(|_| answer)
    };
    let Ok(answer) = within("an answer", answer).await else { return (0, String::new()) };
    let text = String::from_utf8_lossy(&answer).into_owned();
    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    (status, text)
}

async fn plain(to: SocketAddr, line: &str, head: &str) -> (u16, String) {
    ask(TcpStream::connect(to).await.unwrap(), line, head).await
}

/// The value of a sample of the metrics at `address`.
async fn sample(address: SocketAddr, name: &str) -> f64 {
    let (_, text) = plain(address, "GET /metrics", "").await;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name} in\n{text}")).parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_port_has_metrics_and_health_and_nothing_else() {
    let mut cluster = Cluster::start(with_port()).await;
    let port = cluster.metrics_address(0);
    for (path, wanted) in PATHS {
        let (status, text) = plain(port, &format!("GET {path}"), "").await;
        assert!(status == 200 && text.contains(wanted), "{path}: {text}");
    }
    let url = format!("http://{port}");
    let mut two = Connection::open(&url, Version::HTTP_2).await;
    assert_eq!(two.get_with("/livez", &[]).await, (200, "ok\n".to_owned()));

    for line in [
        "GET /",
        "GET /metrics/",
        "GET /livez/linearizable_read",
        "GET /debug/pprof/",
        "POST /v3/kv/range",
        "PUT /v1/kv/k",
        "GET /v1/status/leader",
        "GET /v1/watch?target=/kv",
        "GET /api/demo/v1/Artist",
        "OPTIONS /v1/kv/k",
    ] {
        let (status, text) = plain(port, line, "").await;
        assert_eq!(status, 404, "{line}: {text}");
    }
    for line in ["POST /metrics", "DELETE /health", "HEAD /livez", "PUT /version"] {
        assert_eq!(plain(port, line, "").await.0, 405, "{line}");
    }
    KvClient::connect(url).await.unwrap().put(put("k", "v")).await.unwrap_err();
    assert_eq!(cluster.kv(0).range(get("k")).await.unwrap().into_inner().count, 0);

    // Both ports count together.
    let client = cluster.client_url(0);
    let before = sample(port, "etcd_server_health_success").await;
    let mut clients = Connection::open(&client, Version::HTTP_11).await;
    assert_eq!(clients.get_with("/health", &[]).await.0, 200);
    assert_eq!(plain(port, "GET /health", "").await.0, 200);
    assert_eq!(sample(port, "etcd_server_health_success").await, before + 2.0);

    cluster.stop(0).await;
    TcpStream::connect(port).await.unwrap_err();
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_other_sites_read_no_metrics() {
    let cluster = Cluster::start(with_port()).await;
    let port = cluster.metrics_address(0);
    for (head, wanted) in [
        ("Origin: http://elsewhere.example\r\n", 403),
        ("Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: cors\r\n", 403),
        ("Accept-Language: en\r\n", 200),
    ] {
        let (status, text) = plain(port, "GET /metrics", head).await;
        assert_eq!(status, wanted, "{head}: {text}");
        assert_eq!(text.contains("etcd_server_has_leader"), wanted == 200, "{head}");
    }
    let mut rebound = Connection::open(&format!("http://{port}"), Version::HTTP_11).await;
    let headers = [("host", "elsewhere.example"), ("user-agent", "Mozilla/5.0")];
    assert_eq!(rebound.get_with("/metrics", &headers).await.0, 403, "a name that points here");
    assert_eq!(sample(port, "headwater_limited_total{limit=\"origin\"}").await, 2.0);
    assert_eq!(sample(port, "headwater_limited_total{limit=\"host\"}").await, 1.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_port_asks_for_no_rights_and_its_requests_are_audited() {
    let metrics_port = Some(ClientCertificates::Off);
    let cluster = auth::cluster(Settings { audit: Some(audit_options), metrics_port, ..Settings::calm() }).await;
    auth::enable_auth(&cluster).await;
    let port = cluster.metrics_address(0);
    for head in ["", "token: wrong\r\n", "Authorization: Basic dTp3cm9uZw==\r\n"] {
        for (path, wanted) in PATHS {
            let (status, text) = plain(port, &format!("GET {path}"), head).await;
            assert!(status == 200 && text.contains(wanted), "{head} {path}: {text}");
        }
        assert_eq!(plain(port, "POST /v3/kv/range", head).await.0, 404, "{head}");
    }
    let file = audit_options(&cluster.data_dir(0)).file;
    wait_until("the last request is in the audit log", async || {
        let text = std::fs::read_to_string(&file).unwrap();
        let lines: Vec<&str> = text.lines().filter(|line| line.contains("\"GET /version\"")).collect();
        let is_anonymous = |line: &&str| line.contains("\"who\":\"anonymous\"") && line.contains("\"allowed\":true");
        lines.len() == 3 && lines.iter().all(is_anonymous)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_client_port_keeps_metrics_only_if_it_may() {
    for (metrics_on_client_port, wanted) in [(true, 200), (false, 404)] {
        let cluster = Cluster::start(Settings { metrics_on_client_port, ..with_port() }).await;
        let mut clients = Connection::open(&cluster.client_url(0), Version::HTTP_11).await;
        assert_eq!(clients.get_with("/metrics", &[]).await.0, wanted);
        for path in ["/health", "/livez", "/readyz", "/version"] {
            assert_eq!(clients.get_with(path, &[]).await.0, 200, "{path}");
        }
        assert_eq!(plain(cluster.metrics_address(0), "GET /metrics", "").await.0, 200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rate_of_a_client_holds_on_the_port() {
    let rate = headwater::node::RateOptions { requests_per_second: 1, burst: 5 };
    let cluster = Cluster::start(Settings { request_rate: Some(rate), ..with_port() }).await;
    let port = cluster.metrics_address(0);
    let mut refused = None;
    for _ in 0..100 {
        let (status, text) = plain(port, "GET /metrics", "").await;
        if status == 429 {
            refused = Some(text);
            break;
        }
    }
    assert!(refused.expect("one is too many").to_ascii_lowercase().contains("\r\nretry-after: "));
    assert_eq!(plain(port, "GET /livez", "").await.0, 200, "checks of health count for no rate");
}

/// Sends a request by TLS, with the certificate in `files`, if there is one.
async fn by_tls(cluster: &Cluster, line: &str, files: CertificateFiles) -> (u16, String) {
    match certs::connect(cluster.metrics_address(0), b"http/1.1", files).await {
        Ok(stream) => ask(stream, line, "").await,
        Err(_) => (0, String::new()),
    }
}

/// The TLS files of the test's client without its certificate and key.
fn anonymous(cluster: &Cluster) -> CertificateFiles {
    let files = cluster.certs.as_ref().unwrap().files(Port::Client, "tester");
    CertificateFiles { cert: None, key: None, ..files }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_port_may_want_certificates_of_its_clients() {
    let settings = Settings { tls: true, metrics_port: Some(ClientCertificates::Require), ..Settings::alone() };
    let cluster = Cluster::start(settings).await;
    let certs = cluster.certs.as_ref().unwrap();
    let client = || certs.files(Port::Client, "tester");
    for (path, wanted) in PATHS {
        let (status, text) = by_tls(&cluster, &format!("GET {path}"), client()).await;
        assert!(status == 200 && text.contains(wanted), "{path}: {text}");
    }
    let (_, text) = by_tls(&cluster, "GET /metrics", client()).await;
    let names = ["headwater_tls_certificate_expiry_seconds", "headwater_tls_handshake_failures_total"];
    for name in names {
        assert!(text.contains(&format!("\n{name}{{port=\"metrics\"}} ")), "{name}: {text}");
    }
    assert_eq!(by_tls(&cluster, "GET /metrics", anonymous(&cluster)).await.0, 0, "without a certificate");
    assert_eq!(plain(cluster.metrics_address(0), "GET /metrics", "").await.0, 0, "plain text");
    let (_, text) = by_tls(&cluster, "GET /metrics", client()).await;
    assert!(text.contains("\nheadwater_tls_handshake_failures_total{port=\"metrics\"} 2\n"), "{text}");

    // An open connection ends when its certificate is revoked, and no other is made.
    let mut open = certs::connect(cluster.metrics_address(0), b"http/1.1", client()).await.unwrap();
    certs.revoke(Port::Client, &[std::fs::read_to_string(client().cert.unwrap()).unwrap()]);
    cluster.renew_certificates(0);
    let mut rest = Vec::new();
    // Closed or reset.
    let _closed = within("the connection ends", open.read_to_end(&mut rest)).await;
    assert_eq!(by_tls(&cluster, "GET /livez", client()).await.0, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_port_may_have_tls_for_everybody() {
    let settings = Settings { tls: true, metrics_port: Some(ClientCertificates::Off), ..Settings::alone() };
    let cluster = Cluster::start(settings).await;
    let certs = cluster.certs.as_ref().unwrap();
    for files in [certs.files(Port::Client, "tester"), anonymous(&cluster)] {
        let (status, text) = by_tls(&cluster, "GET /metrics", files).await;
        assert!(status == 200 && text.contains("etcd_server_has_leader 1"), "{text}");
    }
    assert_eq!(plain(cluster.metrics_address(0), "GET /metrics", "").await.0, 0, "plain text");
    let of_peers = CertificateFiles { trusted_ca: Some(certs.file("peer-ca.crt")), ..anonymous(&cluster) };
    assert_eq!(by_tls(&cluster, "GET /metrics", of_peers).await.0, 0, "the client does not know the authority");

    // New files are taken without a restart.
    let taken = "\nheadwater_tls_renewals_total{port=\"metrics\",result=\"taken\"} 1\n";
    assert!(!by_tls(&cluster, "GET /metrics", anonymous(&cluster)).await.1.contains(taken));
    std::fs::remove_file(certs.file("node1-metrics.crt")).unwrap();
    drop(certs.metrics_tls(0, ClientCertificates::Off));
    cluster.renew_certificates(0);
    wait_until("the new certificate is in use", async || {
        by_tls(&cluster, "GET /metrics", anonymous(&cluster)).await.1.contains(taken)
    })
    .await;
}

/// A free address.
async fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().to_string()
}

/// The program on a data directory of its own, with at most 256 open files.
fn program(data: &Path, flags: &[&str]) -> Command {
    let mut command = Command::new("sh");
    command
        .args(["-c", "ulimit -n 256; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_headwater"), "serve", "--data-dir"])
        .arg(data)
        .args(flags)
        .kill_on_drop(true);
    command
}

async fn started(data: &Path, [client, peer, metrics]: [&str; 3]) -> Child {
    let flags = ["--listen-client", client, "--listen-peer", peer, "--metrics-listen", metrics];
    let node = program(data, &flags).stderr(Stdio::null()).spawn().unwrap();
    wait_until("the node serves", async || match TcpStream::connect(metrics).await {
        Ok(stream) => ask(stream, "GET /readyz", "").await.0 == 200,
        Err(_) => false,
    })
    .await;
    node
}

/// Opens `of_each` connections to `to` from each loopback address `127.0.HOST.1`. Returns those
/// that could be opened.
async fn crowd(to: &str, hosts: impl Iterator<Item = u8>, of_each: usize) -> Vec<TcpStream> {
    let mut crowd = Vec::new();
    for host in hosts {
        for _ in 0..of_each {
            let socket = TcpSocket::new_v4().unwrap();
            socket.bind(SocketAddr::from(([127, 0, host, 1], 0))).unwrap();
            // Refused ones are closed or reset at once.
            crowd.extend(socket.connect(to.parse().unwrap()).await);
        }
    }
    crowd
}

#[tokio::test(flavor = "multi_thread")]
async fn crowds_on_one_port_leave_the_other_alone() {
    let dir = tempfile::tempdir().unwrap();
    let addresses = [free_address().await, free_address().await, free_address().await];
    let [client, peer, metrics] = addresses.each_ref().map(String::as_str);
    let mut node = started(&dir.path().join("data"), [client, peer, metrics]).await;
    let (port, clients) = (metrics.parse().unwrap(), client.parse().unwrap());

    // 104 connections of clients, 52 of one address; 8 of the metrics port, 4 of one address.
    let of_clients = crowd(client, 2..5, 60).await;
    wait_until("the client port is full", async || {
        sample(port, "headwater_connections_refused_total{port=\"client\"}").await > 0.0
    })
    .await;
    assert_eq!(plain(port, "GET /readyz", "").await.0, 200, "the node is watched as before");
    drop(of_clients);

    let of_metrics = crowd(metrics, 2..10, 10).await;
    wait_until("the metrics port is full", async || {
        sample(clients, "headwater_connections_refused_total{port=\"metrics\"}").await >= 72.0
    })
    .await;
    let mut kv = KvClient::connect(format!("http://{client}")).await.unwrap();
    within("a put beside the crowd", kv.put(put("k", "v"))).await.unwrap();
    drop(of_metrics);
    wait_until("the port has room again", async || {
        let stream = TcpStream::connect(metrics).await.unwrap();
        ask(stream, "GET /readyz", "").await.0 == 200
    })
    .await;

    let (begin, end) = ("GET /version HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-Long: ", "\r\n\r\n");
    for (bytes, wanted) in [(HEAD_BYTES_MAX, 200), (HEAD_BYTES_MAX + 1, 431)] {
        let head = format!("{begin}{}{end}", "x".repeat(bytes - begin.len() - end.len()));
        let stream = TcpStream::connect(metrics).await.unwrap();
        assert_eq!(send(stream, &head).await.0, wanted, "{bytes}");
    }
    let mut silent = TcpStream::connect(metrics).await.unwrap();
    let mut nothing = Vec::new();
    let _closed = within("a connection without a request ends", silent.read_to_end(&mut nothing)).await;
    assert!(nothing.is_empty());
    assert!(sample(port, "headwater_limited_total{limit=\"first-request\"}").await >= 1.0);
    assert_eq!(node.try_wait().unwrap(), None);
    node.kill().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_that_cannot_be_had_is_named_and_nothing_is_made() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let holder = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let taken = holder.local_addr().unwrap().to_string();
    let (client, peer) = (free_address().await, free_address().await);
    let of = |listen: &str| {
        let flags = ["--listen-client", &client, "--listen-peer", &peer, "--metrics-listen", listen];
        let mut command = program(&data, &flags);
        async move { within("the program ends", command.output()).await.unwrap() }
    };
    for (listen, wanted) in [
        (taken.as_str(), format!("metrics.listen {taken} is in use")),
        ("0.0.0.0:2381", "metrics.listen".to_owned()),
        ("nowhere", "metrics.listen".to_owned()),
    ] {
        let output = of(listen).await;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(&wanted), "{listen}: {said}");
        assert!(!data.exists(), "{listen}");
    }
    drop(holder);
}
